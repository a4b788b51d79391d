"""Who may call what: one gate for every call, and the same rule for what is offered."""

import asyncio

import pytest

from signoff.domain.actor import Actor
from signoff.domain.jsonvalue import Json
from signoff.errors import ConfigurationError
from signoff.ports.policy import ToolView
from signoff.tools.arguments import ARGUMENTS_BYTES_MAX, InvalidArguments, parse_arguments
from signoff.tools.decorator import tool
from signoff.tools.definition import define_tool
from signoff.tools.gate import Access, Admitted, Authorizer, RefusalReason, Refused, admit, offered
from signoff.tools.registry import ToolRegistry


@tool
async def look(order_id: str) -> str:
    return order_id


@tool(kind="action", roles={"support", "finance"})
async def refund(amount: int) -> int:
    return amount


@tool(kind="action", ability="orders.delete")
async def delete() -> None: ...


TOOLS = ToolRegistry([look, refund, delete])


def yes(actor: Actor, ability: str, view: ToolView) -> bool:
    return True


async def yes_later(actor: Actor, ability: str, view: ToolView) -> bool:
    await asyncio.sleep(0)
    return True


def raises(actor: Actor, ability: str, view: ToolView) -> bool:
    raise RuntimeError("authorizer is down")


def truthy(actor: Actor, ability: str, view: ToolView) -> bool:
    return "no"  # type: ignore[return-value]


def access(
    *roles: str,
    allowed: frozenset[str] | None = None,
    default_role: str | None = None,
    authorizer: Authorizer | None = None,
) -> Access:
    actor = Actor(id="ana", roles=frozenset(roles))
    return Access(actor=actor, allowed=allowed, default_role=default_role, authorizer=authorizer)


@pytest.mark.parametrize(
    ("who", "names"),
    [
        (access(), ["look"]),
        (access("support"), ["look", "refund"]),
        (access("finance"), ["look", "refund"]),
        (access("Support"), ["look"]),
        (access(default_role="staff"), []),
        (access("staff", default_role="staff"), ["look"]),
        (access("support", default_role="staff"), ["refund"]),
        (access(authorizer=yes), ["look", "delete"]),
        (access(authorizer=yes_later), ["look", "delete"]),
        (access(authorizer=raises), ["look"]),
        (access(authorizer=truthy), ["look"]),
        (access("support", allowed=frozenset({"refund"})), ["refund"]),
        (access("support", allowed=frozenset()), []),
    ],
)
async def test_what_is_offered_is_what_is_admitted(who: Access, names: list[str]) -> None:
    arguments: dict[str, Json] = {"look": {"order_id": "A1"}, "refund": {"amount": 5}, "delete": {}}

    admitted = [name for name in TOOLS.names if isinstance(await admit(TOOLS, who, name, arguments[name]), Admitted)]

    assert [each.name for each in await offered(TOOLS, who)] == names
    assert admitted == names


async def test_an_admitted_call_carries_its_arguments() -> None:
    verdict = await admit(TOOLS, access("support"), "refund", '{"amount": 5}')

    assert isinstance(verdict, Admitted)
    assert verdict.tool.name == "refund"
    assert verdict.bound.arguments == {"amount": 5}


async def test_an_unknown_tool_is_answered_with_those_the_actor_may_use() -> None:
    verdict = await admit(TOOLS, access(), "refnd", "{}")

    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.UNKNOWN_TOOL
    assert verdict.text == "There is no tool 'refnd'. Known tools: look."


async def test_a_tool_outside_the_personas_list_is_unknown() -> None:
    verdict = await admit(TOOLS, access("support", allowed=frozenset({"look"})), "refund", '{"amount": 5}')

    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.UNKNOWN_TOOL
    assert verdict.tool is None


async def test_a_forbidden_tool_is_refused_before_its_arguments_are_read() -> None:
    verdict = await admit(TOOLS, access(), "refund", "{broken")

    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.NOT_ALLOWED
    assert verdict.tool is not None


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        ('{"amount": 5', "arguments are not valid JSON"),
        ("amount=5", "arguments are not valid JSON"),
        ('{"amount": NaN}', "NaN is not a JSON number"),
        ('{"amount": 1e999}', "inf is not a JSON number"),
        ("[5]", "must be a JSON object, not an array"),
        ('"5"', "must be a JSON object, not a string"),
        ("null", "must be a JSON object, not null"),
        ("5", "must be a JSON object, not a number"),
        ("true", "must be a JSON object, not a boolean"),
        ("", "amount: Field required"),
        ('{"amount": "much"}', "amount: Input should be a valid integer"),
        ("[" * 100_000, "nested too deep"),
        ('{"a":' * 100 + "1" + "}" * 100, "nested deeper than 64"),
        ('{"amount": ' + "9" * 5000 + "}", "arguments"),
        ('{"x": "' + "é" * 200_000 + '"}', "bytes"),
        ("x" * (ARGUMENTS_BYTES_MAX + 1), "too long"),
        (None, "must be a JSON object, not null"),
        ([], "must be a JSON object, not an array"),
    ],
    ids=lambda value: repr(value)[:24],
)
async def test_bad_arguments_are_refused_in_words_for_the_model(sent: Json, told: str) -> None:
    verdict = await admit(TOOLS, access("support"), "refund", sent)

    assert isinstance(verdict, Refused)
    assert verdict.reason is RefusalReason.INVALID_ARGUMENTS
    assert verdict.text.startswith("The call of 'refund' was not made, its arguments are not valid: ")
    assert told in verdict.text
    assert len(verdict.text) < 1000


@pytest.mark.parametrize(
    ("sent", "parsed"),
    [
        ("", {}),
        ("  \n", {}),
        ("{}", {}),
        ('{"a": 1, "a": 2}', {"a": 2}),
        ('{"a": "\\u0000"}', {"a": "\x00"}),
        ('{"a": "\\ud800"}', {"a": "\ufffd"}),
        ({"a": [1]}, {"a": [1]}),
    ],
    ids=repr,
)
def test_arguments_are_read_as_a_replay_would_read_them(sent: Json, parsed: Json) -> None:
    assert parse_arguments(sent) == parsed


def test_parsed_arguments_have_the_same_bound() -> None:
    with pytest.raises(InvalidArguments, match="at most 262144 are allowed"):
        parse_arguments({"a": "x" * ARGUMENTS_BYTES_MAX})


def test_two_tools_of_one_name_are_refused() -> None:
    async def other(order_id: str) -> str:
        return order_id

    with pytest.raises(ConfigurationError, match="agent 'desk' has two tools named 'look'"):
        ToolRegistry([look, define_tool(other, name="look")], owner="desk")
