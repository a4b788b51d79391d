"""Request bodies: read within a bound, checked before anything happens, refused in words that name the field."""

import json
import math
from typing import Annotated, Literal, TypeVar
from urllib.parse import parse_qsl

from pydantic import BaseModel, ConfigDict, Field, JsonValue, StringConstraints, ValidationError, WithJsonSchema
from pydantic.alias_generators import to_camel
from starlette.requests import Request

from signoff.domain.jsonvalue import DEPTH_MAX
from signoff.domain.validation import explain
from signoff.errors import InvalidInput, TooLarge

BATCH_MAX = 100
REASON_CHARS_MAX = 4096

#: No id of ours is longer or holds a NUL (which PostgreSQL cannot even be asked for).
ID_PATTERN = r"^[^\x00]+$"
ID_CHARS_MAX = 255
Id = Annotated[str, StringConstraints(min_length=1, max_length=ID_CHARS_MAX, pattern=ID_PATTERN)]
Via = Annotated[str, StringConstraints(min_length=1, max_length=64, pattern=ID_PATTERN)]
AnswerValue = Annotated[str, StringConstraints(max_length=4096)]
Answers = Annotated[
    dict[Annotated[str, StringConstraints(max_length=256)], Annotated[list[AnswerValue], Field(max_length=100)]],
    Field(max_length=100),
]
Object = Annotated[dict[str, JsonValue], WithJsonSchema({"type": "object"})]


class Body(BaseModel):
    """Strict about types, deaf to fields it does not know. An optional field may be null: the same as left out."""

    model_config = ConfigDict(strict=True, extra="ignore", frozen=True, alias_generator=to_camel)


class ChatBody(Body):
    """`POST /chat` (WIRE 2.1)."""

    message: str = ""
    thread_id: Id | None = None
    agent: Id | None = None
    persona: Id | None = None
    model: Id | None = None
    page_context: Object | None = None
    regenerate: bool | None = None
    transient: bool | None = None
    mode: Literal["auto", "queue", "interrupt"] | None = None
    attachments: list[Object] | None = Field(default=None, description="Not offered: only an empty list is accepted")


class DecisionBody(Body):
    """What every decision says. `runId` must name the run that asks, when present."""

    tool_call_id: Id
    run_id: Id | None = None
    via: Via = "web"


class ApproveBody(DecisionBody):
    """`POST /tool-call/approve`. A body that also says `approve` or `approved` must say true: no mixed messages."""

    remember: bool | None = None
    arguments: Object | None = Field(default=None, description="Edited arguments: they run instead of the model's")
    digest: Id | None = Field(default=None, description="The digest of what was shown; refused if it is another")
    approve: Literal[True] = True
    approved: Literal[True] = True


class RejectBody(DecisionBody):
    """`POST /tool-call/reject`."""

    reason: Annotated[str, StringConstraints(max_length=REASON_CHARS_MAX)] | None = None
    digest: Id | None = None


class AnswerBody(DecisionBody):
    """`POST /tool-call/answer`. A question that is left out takes its defaults."""

    answers: Answers | None = None


class SkipBody(DecisionBody):
    """`POST /tool-call/skip`."""


class SettleBody(DecisionBody):
    """`POST /tool-call/settle`: an action in doubt has happened, and this is its output."""

    output: Annotated[JsonValue, WithJsonSchema({})]
    reason: Annotated[str, StringConstraints(max_length=REASON_CHARS_MAX)] | None = None


class BatchBody(Body):
    """`POST /approvals/decide`. Each entry is a decision's body and `decision`, the verb of its route."""

    decisions: Annotated[list[Object], Field(min_length=1, max_length=BATCH_MAX)]


class ThreadBody(Body):
    """`PATCH /threads/:id`. What is left out stays; null clears."""

    title: str = ""
    default_agent: Id | None = None
    model: Id | None = None
    persona: Id | None = None


BodyT = TypeVar("BodyT", bound=Body)


async def read(request: Request, model: type[BodyT], *, bytes_max: int) -> BodyT:
    """The request's body as `model`.

    Raises:
        TooLarge: over `bytes_max`, whether or not the client announced its length.
        InvalidInput: not JSON in UTF-8, not an object, or a field is wrong.
    """
    raw = await _bounded(request, bytes_max)
    if not raw:
        raise InvalidInput("the request needs a JSON body")
    # A page of another origin may post text/plain with the person's cookies, but JSON only after a CORS preflight.
    if not _is_json(request.headers.get("content-type", "")):
        raise InvalidInput("send the body as application/json")
    return check(model, parse(raw))


async def read_form(request: Request, *, bytes_max: int) -> dict[str, str]:
    """The fields of an HTML form, each given once.

    Raises:
        TooLarge: over `bytes_max`.
        InvalidInput: not a form in UTF-8, or a field is there twice.
    """
    raw = await _bounded(request, bytes_max)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/x-www-form-urlencoded":
        raise InvalidInput("send the form as application/x-www-form-urlencoded")
    try:
        fields = parse_qsl(raw.decode("ascii"), keep_blank_values=True, errors="strict", max_num_fields=20)
    except ValueError:
        raise InvalidInput("the body is not a form in UTF-8") from None
    form = dict(fields)
    if len(form) != len(fields):
        raise InvalidInput("a field of the form is there twice")
    return form


def parse(raw: bytes) -> object:
    """JSON text as a value that any store can hold.

    Raises:
        InvalidInput: not JSON, not UTF-8, nested too deep, numbers out of range, or half of a surrogate pair.
    """
    try:
        value: object = json.loads(raw.decode("utf-8"))
    except RecursionError:
        raise InvalidInput(f"the body is nested deeper than {DEPTH_MAX} levels") from None
    except ValueError:  # UnicodeDecodeError, JSONDecodeError, an integer of thousands of digits
        raise InvalidInput("the body is not valid JSON in UTF-8") from None
    _check_value(value)
    return value


def check(model: type[BodyT], value: object) -> BodyT:
    """`value` as `model`. Raises `InvalidInput` that names the first wrong field."""
    if not isinstance(value, dict):
        raise InvalidInput("the body must be a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False, include_context=False, include_input=False)[0]
        raise InvalidInput(explain(error), field=".".join(str(part) for part in first["loc"])) from None


def request_body(model: type[Body], *, required: bool = True) -> dict[str, object]:
    """The OpenAPI description of a body that `read` takes, for a route's `openapi_extra`."""
    schema = model.model_json_schema()
    return {"requestBody": {"required": required, "content": {"application/json": {"schema": schema}}}}


async def _bounded(request: Request, bytes_max: int) -> bytes:
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced) > bytes_max:
        raise TooLarge(what="the request body", size=int(announced), size_max=bytes_max)
    raw = bytearray()
    async for chunk in request.stream():
        raw += chunk
        if len(raw) > bytes_max:
            raise TooLarge(what="the request body", size=len(raw), size_max=bytes_max)
    return bytes(raw)


def _is_json(content_type: str) -> bool:
    media_type = content_type.partition(";")[0].strip().lower()
    return media_type == "application/json" or (media_type.startswith("application/") and media_type.endswith("+json"))


def _check_value(value: object) -> None:
    """Walks without recursion, so that depth is refused instead of exhausting the stack."""
    level = [value]
    for _ in range(DEPTH_MAX + 1):
        deeper: list[object] = []
        for item in level:
            match item:
                case str():
                    _check_text(item)
                case float() if not math.isfinite(item):
                    raise InvalidInput("the body holds a number out of range")
                case list():
                    deeper.extend(item)
                case dict():
                    deeper.extend(item)
                    deeper.extend(item.values())
                case _:
                    pass
        if not deeper:
            return
        level = deeper
    raise InvalidInput(f"the body is nested deeper than {DEPTH_MAX} levels")


def _check_text(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidInput("the body holds text that is not valid Unicode (half of a surrogate pair)") from None
