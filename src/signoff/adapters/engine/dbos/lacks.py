"""Where this adapter does less than the embedded engine, each with its reason; the contract's tests refer to it."""

from collections.abc import Mapping

LACKS: Mapping[str, str] = {
    "two workers in one process": "DBOS has one instance a process, so a process is one worker",
    "serve after open": "DBOS is told before its launch which queues it listens to; start another worker instead",
    "a body sees its step's cancel": (
        "a run leaves memory while a worker does its step, so a cancel ends it without executing its body again"
    ),
    "concurrency per worker": (
        "DBOS keeps a queue's settings in the database: what the last worker that starts says holds for all of them"
    ),
}
