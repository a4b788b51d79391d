"""Would the code at hand go on with these journals?"""

from collections.abc import Iterable
from datetime import datetime

from signoff.domain.jsonvalue import Json, JsonObject, as_object
from signoff.errors import ConfigurationError, NotJson
from signoff.ports.engine import Context, JournalEntry
from signoff.runners.replay import ReplayReport, replay
from signoff.service.operate import JOURNAL_FORMAT
from signoff.turn.deps import TurnDeps
from signoff.turn.input import TurnInput
from signoff.turn.loop import run_turn


class ReplayCheck:
    """Replays exported journals against an application's turn. Calls no model, no tool, no database."""

    def __init__(self, deps: TurnDeps) -> None:
        self._deps = deps

    async def all(self, recorded: Iterable[JsonObject]) -> list[ReplayReport]:
        """One report a journal, in order.

        Raises:
            ConfigurationError: something is no journal, or of a format that this build does not read.
        """
        return [await self.one(journal) for journal in recorded]

    async def one(self, recorded: JsonObject) -> ReplayReport:
        """Replay one exported journal. Raises as `all`."""
        if recorded.get("format") != JOURNAL_FORMAT:
            raise ConfigurationError(f"not a journal of format {JOURNAL_FORMAT}: {recorded.get('format')!r}")
        try:
            run = as_object(recorded.get("run"), what="run of a journal")
            entries = recorded.get("entries")
            journal = [_entry(entry) for entry in entries] if isinstance(entries, list) else []
            input_ = as_object(run.get("input"), what="input of a journal")
            turn = TurnInput.from_json(input_)
        except (NotJson, KeyError, ValueError) as error:
            raise ConfigurationError(f"a journal cannot be read: {error}") from error

        async def body(ctx: Context, _: JsonObject) -> Json:
            return await run_turn(ctx, self._deps, turn)

        return await replay(body, run_id=turn.run_id, input_=input_, entries=journal)


def _entry(value: Json) -> JournalEntry:
    entry = as_object(value, what="entry of a journal")
    return JournalEntry(
        position=int(str(entry["position"])),
        kind=str(entry["kind"]),
        name=str(entry["name"]),
        state=str(entry["state"]),
        attempt=int(str(entry["attempt"])),
        body=entry["body"],
        at=datetime.fromisoformat(str(entry["at"])),
    )
