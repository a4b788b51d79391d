"""What a model is shown: the rows of the thread as a prompt in which every call has exactly one result."""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from signoff.domain.call import Call, CallStatus
from signoff.domain.jsonvalue import Json, JsonObject, encode
from signoff.domain.thread import Message, Role
from signoff.ports.model import AssistantMessage, CallRequest, CallResult, PromptMessage, UserMessage

#: A rough measure; providers count differently, the window only has to be bounded.
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A message that may be shown: its place, who speaks, and roughly how many tokens it takes."""

    seq: int
    role: Role
    tokens: int

    def to_json(self) -> JsonObject:
        """The journaled form."""
        return {"seq": self.seq, "role": self.role.value, "tokens": self.tokens}


def by_message(calls: Iterable[Call]) -> dict[str, list[Call]]:
    """Calls grouped by their message, in the order given."""
    grouped: dict[str, list[Call]] = defaultdict(list)
    for call in calls:
        grouped[call.message_id].append(call)
    return grouped


def candidates(messages: Sequence[Message], calls: Iterable[Call]) -> list[Candidate]:
    """Measure the messages, their calls and results included."""
    grouped = by_message(calls)
    measured = []
    for message in messages:
        characters = len(message.content)
        for call in grouped.get(message.id, ()):
            characters += len(encode(call.arguments)) + len(encode(call.output))
        measured.append(Candidate(seq=message.seq, role=message.role, tokens=1 + characters // _CHARACTERS_PER_TOKEN))
    return measured


def window_start(measured: Sequence[Candidate], *, messages_max: int, tokens_max: int) -> int:
    """The `seq` from which the model is shown the thread; 0 for an empty one.

    The newest messages that fit, beginning with a user's: a provider refuses results without their call, and
    an answer without its question helps nobody. The newest user message is always shown.
    """
    start = 0
    tokens = 0
    for count, candidate in enumerate(reversed(measured), start=1):
        tokens += candidate.tokens
        fits = count <= messages_max and tokens <= tokens_max
        if not fits and start:
            break
        if candidate.role is Role.USER:
            start = candidate.seq
    return start


def in_speaking_order(messages: Sequence[Message], run_id: str) -> list[Message]:
    """The messages as the model of `run_id` should read them: its own steps last.

    The work of a detached sub-agent arrives in the thread whenever it is done, also in the middle of a turn. Left
    behind the turn's own steps it would be the last word, and providers want that to be the user's, or a result.
    """
    users = [at for at, message in enumerate(messages) if message.role is Role.USER]
    if not users:
        return list(messages)
    asked = users[-1]
    arrived = [message for message in messages[asked + 1 :] if message.run_id != run_id]
    own = [message for message in messages[asked + 1 :] if message.run_id == run_id]
    # A conversation begins with the user: before the first message nothing can be put.
    earlier, later = (arrived, []) if asked > 0 else ([], arrived)
    return [*messages[:asked], *earlier, messages[asked], *later, *own]


def prompt_messages(messages: Iterable[Message], calls: Iterable[Call]) -> list[PromptMessage]:
    """The rows as a prompt. A call that never got an outcome is shown as never completed (C30)."""
    grouped = by_message(calls)
    prompt: list[PromptMessage] = []
    for message in messages:
        asked = [call for call in grouped.get(message.id, ()) if call.index >= 0]
        match message.role:
            case Role.USER | Role.SYSTEM:
                prompt.append(UserMessage(text=message.content))
            case Role.ASSISTANT if message.content or asked:
                requests = tuple(CallRequest(id=call.id, name=call.name, arguments=_as_sent(call)) for call in asked)
                prompt.append(AssistantMessage(text=message.content, calls=requests))
                prompt.extend(result_of(call) for call in asked)
            case Role.ASSISTANT:
                pass
    return prompt


def result_of(call: Call) -> CallResult:
    """What the model reads about one call."""
    match call.status:
        case CallStatus.COMPLETED:
            return CallResult(id=call.id, name=call.name, output=_with_edit(call))
        case CallStatus.FAILED:
            return _refused(call, call.error or "the call failed")
        case CallStatus.REJECTED if call.request is not None:
            return CallResult(id=call.id, name=call.name, output=call.output)
        case CallStatus.REJECTED if call.in_doubt is not None:
            reason = f" They said: {encode(call.decision_reason)}." if call.decision_reason else ""
            return _refused(
                call,
                "This call was started, nobody knows whether it happened, and a person decided not to make it "
                f"again.{reason} Do not make it again yourself: tell the user that its outcome is unknown.",
            )
        case CallStatus.REJECTED:
            reason = f" They said: {encode(call.decision_reason)}." if call.decision_reason else ""
            return _refused(
                call,
                f"A person declined this call; it did not run.{reason} Respect that: do not make this call again "
                "unless the user asks for it.",
            )
        case CallStatus.EXPIRED:
            return _refused(
                call,
                "Nobody answered in time, so the approval expired and the call did not run. Nobody said no: "
                "tell the user, and ask again only if they want it.",
            )
        case CallStatus.CANCELLED if call.decided_via is not None or call.in_doubt is not None:
            return _refused(
                call,
                "The turn was cancelled while this call was being made: check what happened before doing it again.",
            )
        case CallStatus.CANCELLED:
            return _refused(call, "The turn was cancelled before this call completed.")
        case CallStatus.RUNNING | CallStatus.PENDING | CallStatus.APPROVED | CallStatus.IN_DOUBT:
            return _refused(call, "This call never completed: check what happened before doing it again.")


def _refused(call: Call, text: str) -> CallResult:
    return CallResult(id=call.id, name=call.name, output=text, is_error=True)


def _with_edit(call: Call) -> Json:
    if call.edited_arguments is None:
        return call.output
    return {
        "note": "A person changed the arguments before approving; this is what ran.",
        "arguments": call.edited_arguments,
        "output": call.output,
    }


def _as_sent(call: Call) -> Json:
    return call.arguments if isinstance(call.arguments, dict) else {"unparsed": call.arguments}
