"""What there is to see from outside when everything has ended; ids are replaced by what they stand for.

Two plays of one scenario must show the same, wherever their processes ended, but for what `Seen.plain` takes out: the
rounds in which a person was asked about an action in doubt.
"""

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import pairwise
from typing import TypeAlias

import pytest

from signoff.domain.audit import AuditEntry, AuditKind, audit_hash
from signoff.domain.call import Call
from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import Json, JsonObject, decode, encode
from signoff.domain.run import Run, UsageEntry
from signoff.domain.thread import Message, Thread
from signoff.errors import StreamReset
from signoff.ports.engine import BRANCH_POSITIONS, Engine, EngineRun, JournalEntry
from signoff.ports.model import AssistantMessage, CallResult, Prompt, UserMessage
from signoff.ports.store import Tx
from signoff.testing.world import World
from tests.simulation.town import Town

_ID = re.compile(r"\b(?:run|call|msg|thread)_\d{6}\b")

#: Rows about an action in doubt: whether there are any depends on where the process ended.
_DOUBT = frozenset({AuditKind.IN_DOUBT, AuditKind.RESOLVED})

Stories: TypeAlias = dict[str, list[Json]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rows:
    """Everything in the database at the end, in one reading."""

    runs: list[Run]
    engine_runs: dict[str, EngineRun]
    journals: dict[str, list[JournalEntry]]
    threads: dict[str, Thread]
    messages: dict[str, list[Message]]
    calls: dict[str, Call]
    frames: dict[str, list[Frame]]
    audit: list[AuditEntry]
    usage: dict[str, list[UsageEntry]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What people, auditors and the outside world see.

    `effects` are what the town saw, sorted. `talk` is what each thread shows, by run. `calls` are the calls as shown.
    `stream` is what the stream of each top-level run says on its own behalf, `cards` what it says about each call,
    `order` in which order it says so. `record` is the audit by call, without its rows about doubt. `prompts` are all
    that the model was shown, each once. `in_doubt` are the ids (not replaced) of calls that a person was asked about.
    """

    effects: list[str]
    runs: Stories
    talk: Stories
    calls: dict[str, Json]
    stream: Stories
    cards: Stories
    order: Stories
    record: Stories
    prompts: list[str]
    in_doubt: frozenset[str]
    rows: Rows


async def look(world: World, town: Town) -> Seen:
    """See everything. Raises `AssertionError` if anything is left over, or contradicts itself."""
    engine = world.app.engine
    assert engine is not None
    rows = await world.read(lambda tx: _read(tx, engine))
    _check_nothing_is_left(rows)
    _check_journals(rows)
    _check_ledger(rows)
    _check_audit(rows.audit)
    names = _names(rows)
    frames = {names[stream]: [_named(frame, names) for frame in found] for stream, found in rows.frames.items()}
    return Seen(
        effects=sorted(
            [f"paid {payment.order} {payment.cents}" for payment in town.bank.payments]
            + [f"mailed {mail.to}" for mail in town.mail.sent]
        ),
        runs={names[run.id]: [_run(run)] for run in rows.runs},
        talk=_talk(rows, names),
        calls={names[call.id]: _named(_call(call), names) for call in rows.calls.values()},
        stream={
            stream: _joined(frame for frame in found if _call_of(frame) is None) for stream, found in frames.items()
        },
        cards=_cards(frames),
        order={stream: _order(found) for stream, found in frames.items()},
        record=_record(rows, names),
        prompts=sorted({encode(_named(_prompt(prompt), names)) for prompt in town.scripted.prompts}),
        in_doubt=frozenset(str(row.call_id) for row in rows.audit if row.kind is AuditKind.IN_DOUBT),
        rows=rows,
    )


def _read(tx: Tx, engine: Engine) -> Rows:
    runs = sorted(tx.runs(limit=1000), key=lambda run: run.id)
    threads = {run.thread_id: tx.thread(run.thread_id) for run in runs}
    return Rows(
        runs=runs,
        engine_runs={run.id: run for run in engine.runs(tx, limit=1000)},
        journals={run.id: engine.history(tx, run.id) for run in runs},
        threads={id_: thread for id_, thread in threads.items() if thread is not None},
        messages={id_: tx.messages_of(id_) for id_ in threads},
        calls={call.id: call for run in runs for call in tx.calls_of_run(run.id)},
        frames={run.id: _frames(tx, run.id) for run in runs if run.stream_id == run.id},
        audit=tx.audit(tenant=""),
        usage={run.id: tx.usage_of_run(run.id) for run in runs},
    )


def _frames(tx: Tx, stream_id: str) -> list[Frame]:
    """The stream's frames. Their numbers have no gap, but where frames were withdrawn."""
    found = tx.frames(stream_id, after=0, limit=100_000)
    for before, frame in pairwise([0, *(each.seq for each in found)]):
        assert before < frame
        if frame != before + 1:
            with pytest.raises(StreamReset):
                tx.frames(stream_id, after=before + 1, limit=1)
    return [each.frame for each in found]


def assert_same(died: Seen, alive: Seen, *, interleaves: bool) -> None:
    """Nothing lost, nothing twice, nothing told differently."""
    assert died.effects == alive.effects
    assert died.runs == alive.runs
    assert died.talk == alive.talk
    for name, shown in alive.calls.items():
        found = died.calls[name]
        assert isinstance(found, dict)
        assert isinstance(shown, dict)
        assert found == {key: shown[key] for key in found}, name
    assert died.calls.keys() == alive.calls.keys()
    assert died.stream == alive.stream
    assert died.cards == alive.cards
    assert died.record == alive.record
    assert died.prompts == alive.prompts
    if not interleaves:
        assert died.order == alive.order


# --- what must hold after any play ----------------------------------------------------------------------------


def _check_nothing_is_left(rows: Rows) -> None:
    for run in rows.runs:
        assert run.status.is_terminal, f"{run.id} has not ended"
        assert not run.parked, f"{run.id} ended parked"
        assert rows.engine_runs[run.id].status.is_terminal, f"{run.id} has not ended for the engine"
        assert rows.engine_runs[run.id].waits == (), f"{run.id} still waits"
    for thread in rows.threads.values():
        assert thread.active_run_id is None, f"{thread.id} is still held by {thread.active_run_id}"
    for call in rows.calls.values():
        assert not call.is_open, f"the card {call.id} is still open"
        assert call.ended_at is not None, f"{call.id} has no end: {call.status}"


def _check_journals(rows: Rows) -> None:
    """Positions without a gap: on the main line, and from the start of each branch's block."""
    for run_id, journal in rows.journals.items():
        positions = {entry.position for entry in journal}
        expected = 1
        branches: list[int] = []
        for entry in sorted(journal, key=lambda entry: entry.position):
            if entry.position in branches or any(0 < entry.position - first < BRANCH_POSITIONS for first in branches):
                assert entry.position in branches or entry.position - 1 in positions, (
                    f"{run_id}: nothing before {entry.position} {entry.name}"
                )
                continue
            assert entry.position == expected, f"{run_id}: {entry.position} {entry.name} instead of {expected}"
            expected += 1
            if entry.kind == "parallel":
                branches = [expected + number * BRANCH_POSITIONS for number in range(int(entry.name))]
                expected += len(branches) * BRANCH_POSITIONS


def _check_ledger(rows: Rows) -> None:
    """Every step that counts is in the ledger, and the run's totals are those of its steps."""
    for run in rows.runs:
        last = {entry.step: entry for entry in sorted(rows.usage[run.id], key=lambda entry: entry.attempt)}
        assert len(last) >= run.steps, f"{run.id} has {run.steps} steps, and {len(last)} in the ledger"
        counted = [last[step].usage for step in range(run.steps)]
        assert sum(usage.input_tokens for usage in counted) == run.input_tokens
        assert sum(usage.output_tokens for usage in counted) == run.output_tokens


def _check_audit(audit: list[AuditEntry]) -> None:
    previous = ""
    for number, row in enumerate(audit, start=1):
        assert row.seq == number, f"row {number} of the audit has the number {row.seq}"
        if number > 1:
            assert row.previous == previous, f"the audit's chain breaks at {number}"
        previous = row.hash
        assert row.hash == audit_hash(
            tenant=row.tenant,
            seq=row.seq,
            at=row.at,
            kind=row.kind,
            run_id=row.run_id,
            call_id=row.call_id,
            actor_id=row.actor_id,
            data=row.data,
            previous=row.previous,
        )


# --- names ----------------------------------------------------------------------------------------------------


def _names(rows: Rows) -> dict[str, str]:
    """What each id stands for: the same in every play of a scenario."""
    names: dict[str, str] = {}
    turns = 0
    for run in rows.runs:  # a child's id is made after its parent's
        if run.parent_id is None:
            turns += 1
            names[run.id] = f"turn{turns}"
        else:
            for call in (call for call in rows.calls.values() if call.run_id == run.parent_id):
                names.setdefault(call.id, _call_name(call, names))
            names[run.id] = f"{names[str(run.parent_call_id)]}>{run.agent}"
        names.setdefault(run.thread_id, f"thread of {names[run.id]}")
    for call in rows.calls.values():
        names.setdefault(call.id, _call_name(call, names))
    for messages in rows.messages.values():
        for message in messages:
            step = message.role if message.step is None else message.step
            names[message.id] = f"{names[str(message.run_id)]}#{step}"
    return names


def _call_name(call: Call, names: dict[str, str]) -> str:
    return f"{names[call.run_id]}.{call.step}.{call.index}.{call.name}"


def _named(value: JsonObject, names: dict[str, str]) -> JsonObject:
    def name(found: "re.Match[str]") -> str:
        return names.get(found.group(), found.group())

    named = decode(_ID.sub(name, encode(value)))
    assert isinstance(named, dict)
    return named


# --- what is shown --------------------------------------------------------------------------------------------


def _run(run: Run) -> JsonObject:
    return {
        "agent": run.agent,
        "status": run.status.value,
        "steps": run.steps,
        "in": run.input_tokens,
        "out": run.output_tokens,
        "code": run.error_code,
        "durable": run.durable,
    }


def _talk(rows: Rows, names: dict[str, str]) -> Stories:
    talk: Stories = {}
    for thread_id, messages in rows.messages.items():
        for message in messages:
            said: JsonObject = {"role": message.role.value, "text": message.content, "usage": message.usage}
            talk.setdefault(f"{names[thread_id]}: {names[str(message.run_id)]}", []).append(said)
    return talk


def _call(call: Call) -> JsonObject:
    shown: JsonObject = {
        "arguments": call.arguments,
        "edited": call.edited_arguments,
        "status": call.status.value,
        "output": call.output,
        "error": call.error,
        "thread": call.thread_id,
        "message": call.message_id,
        "digest": call.digest,
        "child": call.child_run_id,
        "widened": list(call.widened),
    }
    if call.in_doubt is None:  # whoever resolves a doubt is recorded as the decider
        shown["decided"] = [call.decided_by, call.decided_via, call.decision_reason, call.remember]
    return shown


def _call_of(frame: Json) -> str | None:
    assert isinstance(frame, dict)
    id_ = frame.get("toolCallId") or frame.get("id")
    return None if id_ is None else str(id_)


def _joined(frames: Iterable[JsonObject]) -> list[Json]:
    """The frames; pieces of one text as one, however they were cut."""
    joined: list[Json] = []
    for frame in frames:
        last = joined[-1] if joined else None
        for key in ("text", "delta"):
            if isinstance(last, dict) and key in frame and {**last, key: ""} == {**frame, key: ""}:
                last[key] = str(last[key]) + str(frame[key])
                break
        else:
            joined.append(dict(frame))
    return joined


def _cards(frames: dict[str, list[JsonObject]]) -> Stories:
    by_call: dict[str, list[JsonObject]] = {}
    for found in frames.values():
        for frame in found:
            call = _call_of(frame)
            if call is not None:
                by_call.setdefault(call, []).append(frame)
    return {call: _joined(_without_doubt(told)) for call, told in by_call.items()}


def _without_doubt(told: list[JsonObject]) -> list[JsonObject]:
    """Without the cards about an action in doubt, and what the stream says when one is closed."""
    left: list[JsonObject] = []
    doubted = False
    for frame in told:
        if frame["kind"] == "approval-requested" and "inDoubt" in frame:
            doubted = True
        elif frame["kind"] == "approval-settled" and doubted:
            doubted = False
        else:
            left.append(_timeless(frame))
    return left


def _timeless(frame: JsonObject) -> JsonObject:
    """Without instants: a restart takes its time."""
    return {key: value for key, value in frame.items() if key != "expiresAt"}


def _order(frames: list[JsonObject]) -> list[Json]:
    """Who speaks when: calls by name, the run itself by the kinds of its frames."""
    order: list[Json] = []
    for frame in frames:
        if "inDoubt" in frame:
            continue
        speaker = _call_of(frame) or str(frame["kind"])
        if not order or order[-1] != speaker:
            order.append(speaker)
    return order


def _record(rows: Rows, names: dict[str, str]) -> Stories:
    """The audit by call, without its rows about doubt."""
    record: Stories = {}
    for row in rows.audit:
        if row.kind in _DOUBT:
            continue
        # Whoever resolves a doubt is the one on whose word the action ran.
        by_whom = "somebody" if row.kind is AuditKind.EXECUTED else row.actor_id
        told: Json = [row.kind.value, by_whom]
        record.setdefault(names.get(str(row.call_id), str(row.call_id)), []).append(told)
    return {call: told for call, told in record.items() if told}


def _prompt(prompt: Prompt) -> JsonObject:
    return {"instructions": prompt.instructions, "messages": [_shown(message) for message in prompt.messages]}


def _shown(message: UserMessage | AssistantMessage | CallResult) -> Json:
    match message:
        case UserMessage(text=text):
            return ["user", text]
        case AssistantMessage(text=text, calls=calls):
            return ["assistant", text, [[call.id, call.name, call.arguments] for call in calls]]
        case CallResult(id=id_, output=output, is_error=is_error):
            return ["result", id_, output, is_error]


def attempts(seen: Seen) -> Counter[tuple[str, int]]:
    """How often each step of each run is in the ledger."""
    return Counter((run_id, entry.step) for run_id, found in seen.rows.usage.items() for entry in found)
