"""Where this adapter does less than the embedded engine, each with its reason; the contract's tests refer to it."""

from collections.abc import Mapping

LACKS: Mapping[str, str] = {
    "two workers in one process": "DBOS has one instance a process, so a process is one worker",
    "serve after open": "DBOS is told before its launch which queues it listens to; start another worker instead",
    "a body sees its step's cancel": (
        "a run leaves memory while a worker does its step, so a cancel ends it without executing its body again"
    ),
    "compensating cancel": (
        "undoing drives the body once more and journals at negative positions, and DBOS numbers a workflow's steps "
        "from 0; use engine='embedded', or cancel without compensation"
    ),
    "a worker for all namespaces": (
        "namespaces share no queue, and DBOS is told by name which queues to listen to: a worker drives the runs of "
        "its own namespace, one without a namespace those without one"
    ),
    "pending after a forced drain": (
        "a run whose step was cut off stays parked on it; the worker that takes over the step wakes the run"
    ),
    "concurrency per worker": (
        "DBOS keeps a queue's settings in the database: what the last worker that starts says holds for all of them"
    ),
}
