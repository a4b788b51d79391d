"""What users write, what the model is told about it, and what they are told when it cannot work."""

import enum
import functools
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date, timedelta
from decimal import Decimal
from typing import Annotated, Any, Literal

import pytest
from pydantic import BaseModel, Field

from signoff.domain.approval import Requirement
from signoff.domain.call import ToolKind
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import ConfigurationError
from signoff.ports.policy import ToolView
from signoff.tools.arguments import InvalidArguments
from signoff.tools.context import ToolContext
from signoff.tools.decorator import as_tool, tool
from signoff.tools.definition import Tool, define_tool
from tests.unit.tools.support import a_context


class Priority(enum.Enum):
    LOW = "low"
    HIGH = "high"


class Line(BaseModel):
    sku: str
    count: int = 1


@tool(kind="action", roles={"support"}, approval=Requirement(approver="finance"), timeout=timedelta(seconds=5))
async def refund(order_id: str, cents: Annotated[int, Field(gt=0)], ctx: ToolContext, note: str = "") -> str:
    """Pay money back.

    Only for orders that were paid.

    Args:
        order_id: The order,
            as printed on the invoice.
        cents (int): How much.

    Returns:
        The receipt.
    """
    return f"{ctx.idempotency_key}:{order_id}:{cents}{note}"


async def test_a_decorated_function_stays_a_plain_function() -> None:
    assert await refund("A1", 500, a_context()) == "run_1:call_1:A1:500"


def test_the_model_is_told_name_description_and_schema() -> None:
    told = as_tool(refund).offered()

    assert told.name == "refund"
    assert told.description == "Pay money back.\n\nOnly for orders that were paid."
    assert told.schema == {
        "type": "object",
        "properties": {
            "order_id": {"type": "string", "description": "The order, as printed on the invoice."},
            "cents": {"type": "integer", "exclusiveMinimum": 0, "description": "How much."},
            "note": {"type": "string", "default": ""},
        },
        "required": ["order_id", "cents"],
        "additionalProperties": False,
    }


def test_a_policy_sees_the_tool() -> None:
    view: ToolView = as_tool(refund)

    assert (view.name, view.roles) == ("refund", frozenset({"support"}))
    assert view.approval == Requirement(approver="finance")


def test_a_bare_decorator_makes_a_read() -> None:
    @tool
    def ping() -> str:
        return "pong"

    assert as_tool(ping).kind is ToolKind.READ
    assert as_tool(ping).schema == {"type": "object", "properties": {}, "additionalProperties": False}


@pytest.mark.parametrize(
    ("sent", "received"),
    [
        ({"value": "2026-02-01"}, date(2026, 2, 1)),
        ({"value": {"sku": "x"}}, Line(sku="x")),
        ({"value": [{"sku": "x", "count": 2}]}, [Line(sku="x", count=2)]),
        ({"value": "high"}, Priority.HIGH),
        ({"value": "1.10"}, Decimal("1.10")),
        ({"value": None}, None),
        ({"value": ["a", "b"]}, frozenset({"a", "b"})),
    ],
    ids=["date", "model", "models", "enum", "decimal", "none", "set"],
)
async def test_arguments_arrive_as_the_annotated_types(sent: JsonObject, received: object) -> None:
    annotation: Any = {
        date: date,
        Line: Line,
        list: list[Line],
        Priority: Priority,
        Decimal: Decimal,
        type(None): str | None,
        frozenset: frozenset[str],
    }[type(received)]

    def echo(value: object) -> object:
        return value

    echo.__annotations__["value"] = annotation
    made = define_tool(echo)

    assert await made.invoke(made.parse(sent), a_context()) == received


async def test_any_parameter_name_works() -> None:
    @tool
    async def odd(copy: int, model_dump: int, _private: int, *, json: int = 4, schema: int = 5) -> list[int]:
        return [copy, model_dump, _private, json, schema]

    made = as_tool(odd)
    bound = made.parse('{"copy": 1, "model_dump": 2, "_private": 3, "schema": 6}')

    assert await made.invoke(bound, a_context()) == [1, 2, 3, 4, 6]


async def test_a_mutable_default_is_not_shared_between_calls() -> None:
    @tool
    def collect(item: str, into: list[str] = []) -> list[str]:  # noqa: B006
        into.append(item)
        return into

    made = as_tool(collect)

    assert await made.invoke(made.parse({"item": "a"}), a_context()) == ["a"]
    assert await made.invoke(made.parse({"item": "b"}), a_context()) == ["b"]


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ('{"order_id": "A1"}', "cents: Field required"),
        ('{"order_id": "A1", "cents": "x"}', "cents: Input should be a valid integer"),
        ('{"order_id": "A1", "cents": 0}', "cents: Input should be greater than 0"),
        ('{"order_id": "A1", "cents": 1, "amount": 5}', "amount: Extra inputs are not permitted"),
        ('{"order_id": "A1", "cents": 1, "ctx": {}}', "ctx: Extra inputs are not permitted"),
        ('{"cents": "x"}', "order_id: Field required; cents: Input should be a valid integer"),
    ],
)
def test_wrong_arguments_are_explained_by_path_and_reason(sent: str, told: str) -> None:
    with pytest.raises(InvalidArguments) as caught:
        as_tool(refund).parse(sent)

    assert str(caught.value).startswith(told)
    assert "argument_" not in str(caught.value)
    assert "pydantic" not in str(caught.value)


def test_a_broken_validator_of_the_users_refuses_without_telling_its_insides() -> None:
    class Secretive(BaseModel):
        value: int

        def model_post_init(self, _context: object) -> None:
            raise KeyError("password=hunter2")

    def look(value: object) -> None: ...

    look.__annotations__["value"] = Secretive

    with pytest.raises(InvalidArguments) as caught:
        define_tool(look).parse({"value": {"value": 1}})
    assert "hunter2" not in str(caught.value)


def test_schema_version_follows_name_and_schema_only() -> None:
    def one(a: int) -> None:
        """One."""

    def two(a: int, b: int) -> None: ...

    version = define_tool(one).schema_version

    assert define_tool(one, description="other words").schema_version == version
    assert define_tool(one, name="uno").schema_version != version
    assert define_tool(two, name="one").schema_version != version


def _positional_only(a: int, /) -> None: ...
def _starred(*values: int) -> None: ...
def _keywords(**values: int) -> None: ...
def _two_contexts(a: ToolContext, b: ToolContext) -> None: ...
def _unschemable(callback: Callable[[], None]) -> None: ...
def _field_default(a: int = Field(gt=0)) -> None: ...
def _fine(order_id: str = "") -> None: ...
def _asks_for_more(order_id: str, colour: str) -> None: ...
def _yields() -> Iterator[int]:
    yield 1


async def _yields_async() -> AsyncIterator[int]:
    yield 1


def _unannotated(a) -> None:  # type: ignore[no-untyped-def]
    ...


@pytest.mark.parametrize(
    ("function", "options", "complaint"),
    [
        (_positional_only, {}, "'a' of tool '_positional_only' is positional-only"),
        (_starred, {}, r"takes \*values"),
        (_keywords, {}, r"takes \*\*values"),
        (_unannotated, {}, "'a' of tool '_unannotated' has no type"),
        (_two_contexts, {}, "two ToolContext parameters"),
        (_unschemable, {}, "no JSON schema can be made for tool '_unschemable'"),
        (_field_default, {}, r"has Field\(\.\.\.\) as its default; write Annotated"),
        (_yields, {}, "is a generator"),
        (_yields_async, {}, "is a generator"),
        (_fine, {"name": "no spaces"}, "'no spaces' is no tool name"),
        (_fine, {"name": "9lives"}, "'9lives' is no tool name"),
        (_fine, {"name": "x" * 65}, "is no tool name"),
        (_fine, {"kind": "write"}, "has kind 'write'; use 'read' or 'action'"),
        (_fine, {"kind": "agent"}, r"delegates_to=\[\.\.\.\]"),
        (_fine, {"roles": "support"}, "must be a set of names"),
        (_fine, {"timeout": 5}, "must be a timedelta"),
        (_fine, {"timeout": timedelta(0)}, "must be a timedelta above zero"),
        (_fine, {"presentation": {"icon": object()}}, "presentation of tool '_fine' cannot be stored"),
        (_fine, {"idempotent": True}, "is a read and runs at once, so idempotent"),
        (_fine, {"probe": _fine}, "is a read and runs at once, so probe"),
        (_fine, {"prepare": _fine}, "is a read and runs at once, so prepare"),
        (_fine, {"approval": Requirement()}, "is a read and runs at once, so approval"),
        (_fine, {"kind": "action", "prepare": _asks_for_more}, "asks for 'colour', which the tool does not have"),
        (_fine, {"retries": 3}, "has no option 'retries'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else getattr(value, "__name__", str(value)[:40]),
)
def test_what_cannot_work_is_refused_at_decoration(function: Any, options: dict[str, Any], complaint: str) -> None:
    with pytest.raises(ConfigurationError, match=complaint):
        tool(**options)(function)


def test_types_that_cannot_be_resolved_are_named() -> None:
    def lost(a: object) -> None: ...

    lost.__annotations__["a"] = "NoSuchType"
    with pytest.raises(ConfigurationError, match=r"NoSuchType.*at module level"):
        tool(lost)


async def test_a_local_function_may_refer_to_itself_and_to_local_types() -> None:
    class Step(BaseModel):
        left: int

    @tool
    async def count(step: "Step") -> int:
        return 0 if step.left == 0 else 1 + await count(Step(left=step.left - 1))

    made = as_tool(count)

    assert await made.invoke(made.parse({"step": {"left": 3}}), a_context()) == 3


class Cache:
    def __init__(self) -> None:
        self.purged: list[str] = []


@tool(kind="action", description="Purge a cache key.", idempotent=True)
class PurgeCache:
    def __init__(self, cache: Cache) -> None:
        self.cache = cache

    def prepare(self, key: str) -> str:
        return f"prepared {key}"

    async def execute(self, key: str, ctx: ToolContext) -> JsonObject:
        self.cache.purged.append(key)
        return {"purged": key}


async def test_an_instance_of_a_decorated_class_is_a_tool_with_its_dependencies() -> None:
    cache = Cache()
    made = as_tool(PurgeCache(cache))
    bound = made.parse({"key": "k"})

    assert (made.name, made.description, made.kind) == ("purge_cache", "Purge a cache key.", ToolKind.ACTION)
    assert made.prepare is not None
    assert await made.prepare(bound, a_context()) == "prepared k"
    assert await made.invoke(bound, a_context()) == {"purged": "k"}
    assert cache.purged == ["k"]


def test_a_class_is_checked_at_decoration() -> None:
    with pytest.raises(ConfigurationError, match="needs a method `execute`"):

        @tool
        class Empty: ...

    with pytest.raises(ConfigurationError, match="'a' of tool 'untyped' has no type"):

        @tool
        class Untyped:
            def execute(self, a) -> None:  # type: ignore[no-untyped-def]
                ...


def test_the_class_itself_is_no_tool() -> None:
    with pytest.raises(ConfigurationError, match=r"pass an instance: PurgeCache\(\.\.\.\)"):
        as_tool(PurgeCache)


def test_an_undecorated_function_is_no_tool() -> None:
    with pytest.raises(ConfigurationError, match="decorate it with @tool"):
        as_tool(_fine)


def test_a_wrapper_around_a_tool_cannot_be_left_out_unseen() -> None:
    @functools.wraps(refund)
    async def audited(*args: Any, **kwargs: Any) -> Any:
        return await refund(*args, **kwargs)

    with pytest.raises(ConfigurationError, match="put @tool on top"):
        as_tool(audited)


@dataclass
class Desk:
    till: int

    def open_till(self, reason: Literal["audit", "sale"]) -> int:
        """Open the till."""
        return self.till


async def test_a_bound_method_is_defined_without_decorating_it() -> None:
    made = define_tool(Desk(till=3).open_till, kind="action")

    assert isinstance(made, Tool)
    assert (made.name, made.description) == ("open_till", "Open the till.")
    assert await made.invoke(made.parse({"reason": "sale"}), a_context()) == 3
    with pytest.raises(ConfigurationError, match="use define_tool"):
        tool(Desk(till=3).open_till)


async def test_hooks_take_the_arguments_they_name_and_cannot_change_what_runs() -> None:
    async def prepare(lines: list[Line], context: ToolContext) -> str:
        lines[0].count = 500
        return context.call_id

    @tool(kind="action", prepare=prepare)
    def ship(order_id: str, lines: list[Line]) -> int:
        return lines[0].count

    made = as_tool(ship)
    bound = made.parse({"order_id": "A1", "lines": [{"sku": "x", "count": 5}]})
    assert made.prepare is not None

    assert await made.prepare(bound, a_context()) == "call_1"
    assert await made.invoke(bound, a_context()) == 5
