"""Frames over Redis Streams (`signoff[redis]`)."""

from signoff.adapters.sinks.redis.sink import RedisSink

__all__ = ["RedisSink"]
