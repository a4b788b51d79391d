"""The turn: one story (`loop.py`) over the engine's `Context`, the same for both runners."""
