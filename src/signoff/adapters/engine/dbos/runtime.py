"""DBOS in this process: its tables, its client, and, in a worker, its queues."""

import asyncio
import logging
import threading
from collections.abc import Awaitable, Callable, Mapping
from datetime import timedelta

from dbos import DBOS, DBOSClient, DBOSConfig, DBOSPortableJSONSerializer

from signoff.adapters.engine.dbos.internals import finish, hang_bells, refuse_pickles
from signoff.adapters.engine.dbos.queues import APPLICATION, POLL_S, RUN_WORKFLOW, TASK_WORKFLOW, VERSION, Queues
from signoff.adapters.stores.sql.postgres import ASLEEP_S
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import ConfigurationError

logger = logging.getLogger(__name__)

Drive = Callable[[str], Awaitable[JsonObject]]
Serve = Callable[[str, int, int], Awaitable[None]]

_CLIENT_CONNECTIONS = 3
_WORKER_CONNECTIONS = 8

#: Time to record how executions ended that were let go by force.
_UNWIND_S = 1.0


class Runtime:
    """What this engine needs of DBOS. One worker a process: DBOS has one instance a process."""

    def __init__(self, url: str, *, schema: str, executor_id: str) -> None:
        self._url = url
        self._schema = schema
        self._executor_id = executor_id
        self._launched: DBOS | None = None
        self._bells: dict[str, threading.Event] = {}
        refuse_pickles()
        self.client = DBOSClient(
            system_database_url=url,
            dbos_system_schema=schema,
            serializer=DBOSPortableJSONSerializer(),
            system_database_pool_size=_CLIENT_CONNECTIONS,
            sys_db_idle_transaction_timeout_sec=ASLEEP_S,
            application_name=APPLICATION,
        )
        self.queues = Queues(self.client)

    @staticmethod
    def migrate(url: str, *, schema: str) -> None:
        """Create or update DBOS's tables. Blocks; not inside a transaction, which its indexes would wait for."""
        DBOS.migrate(url, schema=schema)

    def register_queues(self, concurrency: Mapping[str, int], *, namespace: str) -> None:
        """Create the groups' queues, or change how many tasks each worker takes from them. Blocks.

        The numbers hold for all workers: DBOS keeps them with the queue, and the last worker that starts sets them.
        """
        for group, number in concurrency.items():
            self.client.register_queue(
                self.queues.name(group, namespace),
                worker_concurrency=number,
                polling_interval_sec=POLL_S,
                application_name=APPLICATION,
            )

    def launch(self, groups: Mapping[str, int], *, namespace: str, drive: Drive, serve: Serve) -> None:
        """Begin to take runs and steps. Call it in the event loop that shall execute them."""
        config: DBOSConfig = {
            "name": APPLICATION,
            "system_database_url": self._url,
            "dbos_system_schema": self._schema,
            "sys_db_pool_size": _WORKER_CONNECTIONS,
            "sys_db_idle_transaction_timeout_sec": ASLEEP_S,
            "serializer": DBOSPortableJSONSerializer(),
            "application_version": VERSION,
            "executor_id": self._executor_id,
            "run_migrations": False,
            "log_level": "WARNING",
        }
        dbos = DBOS(config=config)
        if DBOS.executor_id != self._executor_id:
            raise ConfigurationError("this process runs DBOS already; signoff's worker needs a process of its own")
        self._launched = dbos

        async def run(run_id: str) -> JsonObject:
            return await drive(run_id)

        async def task(run_id: str, position: int, dispatches: int) -> None:
            await serve(run_id, position, dispatches)

        # The rows of signoff count crashes; DBOS's own limit would end a workflow behind their back.
        DBOS.workflow(name=RUN_WORKFLOW, max_recovery_attempts=None)(run)
        DBOS.workflow(name=TASK_WORKFLOW, max_recovery_attempts=None)(task)
        slots = {self.queues.name(group, namespace): number for group, number in groups.items()}
        self._bells = {queue: threading.Event() for queue in slots}
        hang_bells(dbos, self._bells, slots)
        DBOS.listen_queues(list(self._bells))
        DBOS.launch()

    def ring(self, queue: str) -> None:
        """Something was put into the queue: have DBOS look now, not at its next poll."""
        self._bells[queue].set()

    def ring_all(self) -> None:
        """As `ring`, for each queue that this worker listens to."""
        for queue in self._bells:
            self.ring(queue)

    @property
    def listens_to(self) -> list[str]:
        """The queues of a worker that was launched."""
        return list(self._bells)

    async def stop(self, timeout: timedelta) -> None:
        """Take nothing new, and return once DBOS has recorded how the activations ended (or after `timeout`)."""
        dbos, self._launched = self._launched, None
        if dbos is None:
            return
        await finish(dbos, timeout.total_seconds() + _UNWIND_S)
        await asyncio.to_thread(DBOS.destroy, destroy_registry=True)

    def close(self) -> None:
        """Disconnect. Blocks."""
        self.client.destroy()
