"""The engine on DBOS and PostgreSQL."""

from signoff.adapters.engine.dbos.engine import LIMITS, DbosEngine
from signoff.adapters.engine.dbos.lacks import LACKS

__all__ = ["LACKS", "LIMITS", "DbosEngine"]
