"""What `ports.engine` promises and this adapter does not, each with its reason. The contract's tests refer to it."""

from collections.abc import Mapping

LACKS: Mapping[str, str] = {
    "two workers in one process": "DBOS has one instance a process, so a process is one worker",
}
