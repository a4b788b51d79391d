"""The composition root: the one place where adapters meet ports."""

import logging
import os
from collections.abc import AsyncIterator, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Literal, assert_never

from fastapi import APIRouter

from signoff.adapters.models.providers import PydanticAiCatalog
from signoff.adapters.sinks.database import DatabaseSink
from signoff.adapters.stores.memory import MemoryStore
from signoff.adapters.stores.sql import SqlStore
from signoff.adapters.system import SystemClock, SystemIds
from signoff.agents.agent import Agent
from signoff.agents.registry import AgentRegistry
from signoff.approvals.links import DecisionLinks
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.actor import Actor
from signoff.errors import ConfigurationError
from signoff.governance.delivery import OutboxDelivery
from signoff.http.context import HttpOptions
from signoff.http.identity import ActorResolver
from signoff.http.native import build_router
from signoff.ports.clock import Clock
from signoff.ports.engine import Engine, EngineLimits
from signoff.ports.events import EventName, Subscriber
from signoff.ports.ids import Ids
from signoff.ports.model import Model, ModelCatalog
from signoff.ports.notifier import Notification, Notifier
from signoff.ports.policy import ApprovalPolicy
from signoff.ports.quota import Quota
from signoff.ports.runner import Runner
from signoff.ports.sink import Sink
from signoff.ports.store import Store
from signoff.runners.durable import DurableRunner
from signoff.runners.fallback import FallbackRunner
from signoff.runners.inline import InlineRunner
from signoff.service import cancel, decide, send, stream
from signoff.service import links as decision_links
from signoff.service.approval_port import ApprovalPort
from signoff.service.deps import Deps, Limits
from signoff.tools.gate import Authorizer
from signoff.turn.deps import TurnDeps, TurnSettings
from signoff.turn.events import Events

if TYPE_CHECKING:
    from signoff.adapters.engine.dbos import DbosEngine

_log = logging.getLogger("signoff.app")

MEMORY = "memory://"


class Signoff:
    """An application's agents, with everything they run on.

    Args:
        agents: the first one is the default.
        database: ``"sqlite:///desk.db"``, ``"postgresql://…"`` or ``"memory://"`` (lost with the process), or
            a `Store` of your own.
        actor: finds who acts in a request; without one every route answers 401.
        agent_actors: resolvers of their own for messages to these agents (by name), in place of `actor`.
        durable: True runs each turn as a replay-safe workflow, and inline with a loud warning if the engine
            cannot start; "strict" refuses to start instead; False runs inline.
        model: for agents that name none: a catalog name, or a `Model`.
        models: turns names into models; default: the providers by name, as ``"openai:gpt-5-mini"``.
        policy: who must approve which call; default: what the tool says, else the requester.
        quota: how much an actor may spend; default: unlimited.
        authorizer: whether an actor has a tool's `ability`; without one nobody has.
        default_role: what a tool without roles needs; None lets every authenticated actor use it.
        inbox_role: who may see and decide everybody's cards at ``/approvals``; None: nobody.
        notifiers: told of every card that is made, escalated and settled, at least once each.
        links: decision links: for notifications, and for `decision_link`.
        settings: bounds of a turn.
        limits: bounds at the door.
        engine: "embedded" drives runs in this process; "dbos" (`signoff[dbos]`, PostgreSQL only) in any number of
            worker processes, see `signoff worker`.
        serve: whether runs are driven here, or the worker groups to serve here ("runs", "llm", "tools"; with "dbos"
            only). False: this process only starts, signals and shows them; another one drives.
        engine_limits: bounds and patience of the durable engine.
        sink: how frames reach the readers of streams: "database" wakes them to read it, in all processes that
            share it; a `RedisSink` (`signoff[redis]`) carries the frames to many readers on many replicas.
        migrate: bring the database's schema up to date on start.
        subscribers: called with every diagnostics event.
        clock, ids: for tests.

    Raises:
        ConfigurationError: names what cannot work, and how to fix it.
    """

    def __init__(
        self,
        *,
        agents: Sequence[Agent],
        database: str | Store = "sqlite:///signoff.db",
        actor: ActorResolver | None = None,
        agent_actors: Mapping[str, ActorResolver] | None = None,
        durable: bool | Literal["strict"] = True,
        model: str | Model | None = None,
        models: ModelCatalog | None = None,
        policy: ApprovalPolicy | None = None,
        quota: Quota | None = None,
        authorizer: Authorizer | None = None,
        default_role: str | None = None,
        inbox_role: str | None = None,
        notifiers: Sequence[Notifier] = (),
        links: DecisionLinks | None = None,
        settings: TurnSettings | None = None,
        limits: Limits | None = None,
        engine: Literal["embedded", "dbos"] = "embedded",
        serve: bool | Collection[str] = True,
        engine_limits: EngineLimits | None = None,
        sink: Literal["database"] | Sink = "database",
        migrate: bool = True,
        subscribers: Iterable[Subscriber] = (),
        clock: Clock | None = None,
        ids: Ids | None = None,
    ) -> None:
        self._clock = clock or SystemClock()
        self._ids = ids or SystemIds()
        self._actor = actor
        self._agent_actors = dict(agent_actors or {})
        self.events = Events(self._clock, subscribers)
        self.store = self._store(database, migrate=migrate)
        for name in self._agent_actors:
            if name not in [agent.name for agent in agents]:
                raise ConfigurationError(f"agent_actors names {name!r}, which is no agent")
        turn = TurnDeps(
            store=self.store,
            agents=AgentRegistry(agents),
            models=models or PydanticAiCatalog(),
            default_model=model,
            policy=policy or DefaultPolicy(),
            authorizer=authorizer,
            quota=quota,
            clock=self._clock,
            ids=self._ids,
            events=self.events,
            settings=_settings(settings, default_role),
            notifies=bool(notifiers),
        )
        self.engine: Engine | None = None
        self._worker: DbosEngine | None = None
        if durable is not False:
            self.engine = self._engine(engine, serve=serve, limits=engine_limits)
        self.runner = self._runner(turn, strict=durable == "strict", drive=bool(serve))
        self.sink = DatabaseSink(shared=not isinstance(self.store, MemoryStore)) if sink == "database" else sink
        self.deps = Deps(
            turn=turn,
            runner=self.runner,
            sink=self.sink,
            limits=limits or Limits(),
            inbox_role=inbox_role,
            links=links,
        )
        self._delivery = self._outbox_delivery(notifiers) if notifiers else None
        self.approvals = ApprovalPort(self.deps)

    # --- life -----------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, migrate, and begin to drive runs. Call it in the event loop that serves.

        Raises:
            ConfigurationError: an agent's model cannot be used (names the agent), or the schema is too old.
            EngineUnavailable: `durable="strict"` and the engine cannot start.
        """
        self._check_models()
        await self.store.open()
        try:
            await self.sink.open(self.store, self.events)
            self._check_sink()
            await self.runner.open()
        except BaseException:
            await self.sink.close()
            await self.store.close()
            raise
        if self._delivery is not None:
            await self._delivery.open()

    async def close(self) -> None:
        """Let runs reach a safe point and disconnect. Durable runs go on in the next process."""
        await self.runner.close()
        if self._delivery is not None:
            await self._delivery.close()
        await self.sink.close()
        await self.store.close()
        await self.deps.models.aclose()

    @asynccontextmanager
    async def running(self) -> AsyncIterator["Signoff"]:
        """``async with app.running(): …`` opens and closes."""
        await self.open()
        try:
            yield self
        finally:
            await self.close()

    def lifespan(self, api: object) -> AbstractAsyncContextManager[None]:
        """For ``FastAPI(lifespan=app.lifespan)``."""
        del api
        return self._lifespan()

    @asynccontextmanager
    async def _lifespan(self) -> AsyncIterator[None]:
        async with self.running():
            yield

    def assign(self, groups: Collection[str], *, concurrency: Mapping[str, int] | None = None) -> None:
        """Before `open`: make this process a worker for these worker groups, whatever `serve` says.

        Args:
            groups: "runs", "llm", "tools".
            concurrency: how many tasks of a group each of its workers takes at once; a group that is not named
                keeps what `engine_limits` say.

        Raises:
            ConfigurationError: the engine has no workers of its own, or nothing serves such a group.
        """
        if self._worker is None:
            raise ConfigurationError("only engine='dbos' has workers; the embedded engine drives where it is opened")
        self._worker.assign(groups, concurrency=concurrency or {})

    # --- doors ----------------------------------------------------------------------------------------------

    def router(
        self,
        *,
        adonis: bool = True,
        production: bool = True,
        keep_alive: timedelta = timedelta(seconds=10),
        body_bytes_max: int = 1024 * 1024,
    ) -> APIRouter:
        """The HTTP API; include it under a prefix. See `http.context.HttpOptions` for the arguments."""
        return build_router(
            self.deps,
            HttpOptions(
                actor=self._actor,
                agent_actors=self._agent_actors,
                adonis=adonis,
                production=production,
                keep_alive=keep_alive,
                body_bytes_max=body_bytes_max,
            ),
        )

    async def send(self, actor: Actor, request: send.SendRequest) -> send.Started:
        """See `service.send.send`."""
        return await send.send(self.deps, actor, request)

    async def attach(self, actor: Actor, run_id: str, *, after: int = 0, even_ended: bool = False) -> stream.Attached:
        """See `service.stream.attach`."""
        return await stream.attach(self.deps, actor, run_id, after=after, even_ended=even_ended)

    async def decide(self, actor: Actor, request: decide.DecisionRequest) -> decide.Decided:
        """See `service.decide.decide`."""
        return await decide.decide(self.deps, actor, request)

    async def decision_link(self, actor: Actor, call_id: str) -> str:
        """A link under which `actor` may decide this card, once. See `service.links.issue`."""
        return await decision_links.issue(self.deps, actor, call_id)

    async def cancel(self, actor: Actor, run_id: str) -> None:
        """See `service.cancel.cancel`."""
        await cancel.cancel(self.deps, actor, run_id)

    def _check_models(self) -> None:
        """A missing key or library is found at the start, not in somebody's first turn."""
        turn = self.deps.turn
        for agent in turn.agents:
            model = agent.model or turn.default_model
            if model is None:
                raise ConfigurationError(f"agent {agent.name!r} has no model: give it one, or Signoff(model=…)")
            if isinstance(model, str):
                try:
                    turn.models.model(model)
                except ConfigurationError as error:
                    raise ConfigurationError(f"agent {agent.name!r}: {error}") from error

    def _check_sink(self) -> None:
        """A stream that other replicas cannot serve is told of at the start, not by a user who sees nothing."""
        if self.sink.shared or not (self._worker is not None or _replicas() > 1):
            return
        _log.warning(
            "THERE ARE SEVERAL PROCESSES, AND THE SINK (%s) SERVES ONLY ONE: a reader sees nothing of a run that is "
            "driven elsewhere. Use database='postgresql://…' or a RedisSink.",
            type(self.sink).__name__,
        )
        self.events.emit(EventName.SINK_IN_PROCESS, sink=type(self.sink).__name__)

    # --- wiring ---------------------------------------------------------------------------------------------

    def _store(self, database: str | Store, *, migrate: bool) -> Store:
        if not isinstance(database, str):
            return database
        if database == MEMORY:
            return MemoryStore()
        return SqlStore(database, migrate=migrate)

    def _outbox_delivery(self, notifiers: Sequence[Notifier]) -> OutboxDelivery:
        async def add_links(notification: Notification) -> Notification:
            return await decision_links.with_links(self.deps, notification)

        return OutboxDelivery(
            self.store,
            notifiers,
            clock=self._clock,
            ids=self._ids,
            events=self.events,
            addition=None if self.deps.links is None else add_links,
        )

    def _engine(
        self,
        kind: Literal["embedded", "dbos"],
        *,
        serve: bool | Collection[str],
        limits: EngineLimits | None,
    ) -> Engine:
        groups = None if isinstance(serve, bool) else tuple(serve)
        if not isinstance(self.store, SqlStore):
            raise ConfigurationError(
                "durable runs need a database that survives: use database='sqlite:///…' or durable=False"
            )
        match kind:
            case "embedded":
                from signoff.adapters.engine.embedded import EmbeddedEngine

                if groups is not None:
                    raise ConfigurationError("only engine='dbos' can serve some worker groups and leave others")
                return EmbeddedEngine(self.store, clock=self._clock, ids=self._ids, limits=limits)
            case "dbos":
                self._worker = _dbos_engine()(
                    self.store, url=self.store.url, clock=self._clock, ids=self._ids, limits=limits, groups=groups
                )
                return self._worker
            case _:
                assert_never(kind)

    def _runner(self, turn: TurnDeps, *, strict: bool, drive: bool) -> Runner:
        inline = InlineRunner(turn)
        if self.engine is None:
            return inline
        durable = DurableRunner(turn, self.engine, drive=drive)
        return FallbackRunner(durable, inline, strict=strict, events=self.events)


def _replicas() -> int:
    """How many web processes there are, as uvicorn, gunicorn and most platforms are told it."""
    declared = os.environ.get("WEB_CONCURRENCY", "")
    return int(declared) if declared.isdecimal() else 1


def _dbos_engine() -> "type[DbosEngine]":
    try:
        from signoff.adapters.engine.dbos import DbosEngine
    except ImportError as error:
        raise ConfigurationError("engine='dbos' needs DBOS: pip install 'signoff[dbos]'") from error
    return DbosEngine


def _settings(settings: TurnSettings | None, default_role: str | None) -> TurnSettings:
    if settings is None:
        return TurnSettings(default_role=default_role)
    if default_role is not None and settings.default_role not in (None, default_role):
        raise ConfigurationError("default_role is given twice, and differently")
    return settings
