"""The engine that lives in the store's database."""

from signoff.adapters.engine.embedded.engine import EmbeddedEngine

__all__ = ["EmbeddedEngine"]
