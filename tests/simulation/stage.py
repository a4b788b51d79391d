"""What every play has: people, and a process that they speak to and that may end. Each engine brings its own stage."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Literal

from signoff import Tool
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.errors import StoreBusy
from signoff.ports.store import Tx
from signoff.testing.stores import Changed, MortalStore
from signoff.testing.world import ProcessDied, World
from tests.simulation.scenario import ANA, Scenario
from tests.simulation.seen import Seen, look
from tests.simulation.town import Mark, Town

#: Leases have ended by then.
AFTER = timedelta(seconds=20)
#: More than any scenario takes: a run that is stuck shows here.
MOMENTS_MAX = 400


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """What there is to see at the end of a play. `tools` are all agents' tools by name."""

    seen: Seen
    tools: Mapping[str, Tool]


class Stage(ABC):
    """One play. See `scenario.Scene`."""

    def __init__(self, scenario: Scenario, *, mark: Mark, engine: Literal["embedded", "dbos"]) -> None:
        self.scenario = scenario
        self.town = Town(scenario.says, mark=mark)
        self._thread_id: str | None = None
        self.agents = scenario.agents(self.town)
        self.world = World(self._store, durable="strict", agents=self.agents, engine=engine)

    # --- what each engine brings ----------------------------------------------------------------------------

    @abstractmethod
    def _store(self, changed: Changed) -> MortalStore:
        """The store of the next process."""

    @abstractmethod
    async def _start(self) -> None:
        """Start a process; the one before has died."""

    @abstractmethod
    async def _idle(self) -> None:
        """Return once nothing can go on unless people act or time passes.

        Raises:
            ProcessDied: the process has ended meanwhile.
        """

    @abstractmethod
    def _last_places(self) -> list[str]:
        """Where the play has come by last."""

    # --- the play -------------------------------------------------------------------------------------------

    async def _play(self) -> Ended:
        """Play it to the end."""
        await self._survive(self._start)
        for number, message in enumerate(self.scenario.messages):
            await self._survive(partial(self._say, number, message))
            await self._survive(self._go_on)
        assert self.town.strict.refusals == []
        seen = await look(self.world, self.town)
        return Ended(seen=seen, tools={tool.name: tool for agent in self.agents for tool in agent.toolset})

    async def _survive(self, step: Callable[[], Awaitable[None]]) -> None:
        """Do it; if the process ends meanwhile, start another one and do it again."""
        while True:
            try:
                await step()
            except ProcessDied:
                pass
            else:
                return
            self.world.clock.advance(AFTER)
            if step != self._start:
                await self._survive(self._start)

    # --- people ---------------------------------------------------------------------------------------------

    async def _say(self, number: int, message: str) -> None:
        while True:
            try:
                started = await self.world.send(message, by=ANA, thread=self._thread_id, key=f"message-{number}")
            except StoreBusy:
                self.world.clock.advance(timedelta(seconds=1))
            else:
                self._thread_id = started.thread_id
                return

    async def _go_on(self) -> None:
        """Let everything come to its end: people act when nothing moves any more, and time passes when nobody acts."""
        for _ in range(MOMENTS_MAX):
            await self._idle()
            if await self._is_over():
                return
            if await self._somebody_acts():
                continue
            next_at = self.world.clock.next_at
            if next_at is None:
                await self._idle()  # or the process has died since, and its timers with it
            assert next_at is not None, "nothing will ever happen again"
            self.world.clock.advance(next_at - self.world.clock.now())
        raise AssertionError(f"the run is stuck: {self._last_places()}")

    async def _is_over(self) -> bool:
        engine = self.world.app.engine
        assert engine is not None
        return await self.world.read(lambda tx: all(run.status.is_terminal for run in engine.runs(tx, limit=1000)))

    async def _somebody_acts(self) -> bool:
        acted = False
        for card in sorted(await self.world.read(open_cards), key=self.scenario.order):
            try:
                acted = await self._act(card)
            except StoreBusy:
                return False
            if acted and not self.scenario.together:
                return True
        return acted

    async def _act(self, card: Call) -> bool:
        if card.status is CallStatus.IN_DOUBT:
            await self.scenario.settled_by(self, card)
            return True
        return await self.scenario.people(self, card)


def is_doubtful(ended: Ended, call_id: str) -> bool:
    """Whether only a person can tell: neither may it run again by itself, nor does it find out by itself."""
    call = ended.seen.rows.calls[call_id]
    tool = ended.tools[call.name]
    return tool.kind is ToolKind.ACTION and not tool.idempotent and tool.probe is None


def open_cards(tx: Tx) -> list[Call]:
    """All open cards of runs that have not ended."""
    return [
        call
        for run in tx.runs(limit=1000)
        if not run.status.is_terminal
        for call in tx.calls_of_run(run.id)
        if call.is_open
    ]
