"""`module:attribute`: the application that a verb works with."""

import importlib
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from signoff.errors import ConfigurationError

if TYPE_CHECKING:
    from signoff.app import Signoff


def load(target: str) -> "Signoff":
    """The `Signoff` that `target` names; the current folder is importable.

    Raises:
        ConfigurationError: says what is wrong with `target`.
    """
    from signoff.app import Signoff

    module_name, _, attribute = target.partition(":")
    if not module_name or not attribute:
        raise ConfigurationError(f"{target!r} is no target; write module:attribute, e.g. desk:app")
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)
    try:
        module = importlib.import_module(module_name)
    except ModuleNotFoundError as error:
        raise ConfigurationError(f"there is no module {error.name!r} here ({target})") from error
    found: object = getattr(module, attribute, None)
    if not isinstance(found, Signoff):
        raise ConfigurationError(f"{target!r} is not a Signoff application")
    return found
