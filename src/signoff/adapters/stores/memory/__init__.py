"""The store in memory: the reference that the others are compared with. Nothing survives the process."""

from signoff.adapters.stores.memory.store import MemoryStore

__all__ = ["MemoryStore"]
