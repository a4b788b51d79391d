"""Approval rules: what they ask for, what doubt does, what a mistake in them is told as."""

from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

import pytest

from signoff.approvals.rules import Rule, RulesPolicy
from signoff.domain.actor import Actor
from signoff.domain.approval import Requirement, Rung, RungAction
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import Json
from signoff.domain.thread import Thread
from signoff.errors import ConfigurationError
from signoff.testing.clock import START

RULES = """
[[rules]]
name = "large refunds"
tool = "refund*"
when.cents.above = 5000
approver = "finance"
ttl = "1h30m"
quorum = 2
may_requester = false
reason = "more than 50 euros leave"
ladder = [
  { after = "10m", action = "remind" },
  { after = "1h", action = "widen", role = "lead" },
]

[[rules]]
name = "pocket money"
tool = ["refund_order", "refund_ticket"]
when.cents.at_most = 100
when.currency.in = ["EUR", "CHF"]
required = false

[[rules]]
tool = "delete_*"
when."target.region".equals = "eu"
when.force.missing = true
approver = "legal"
"""


@dataclass(frozen=True)
class View:
    name: str
    approval: Requirement | None = None
    description: str = ""
    roles: frozenset[str] = frozenset()


def asked(policy: RulesPolicy, tool: str, arguments: Json, *, own: Requirement | None = None) -> Requirement:
    call = Call(
        id="call_1",
        run_id="run_1",
        thread_id="thread_1",
        message_id="message_1",
        step=0,
        index=0,
        name=tool,
        kind=ToolKind.ACTION,
        arguments=arguments,
        status=CallStatus.RUNNING,
        actor_id="ana",
        agent_name="desk",
        created_at=START,
    )
    thread = Thread(id="thread_1", actor_id="ana", created_at=START, updated_at=START)
    return policy.requirement_for(call, View(tool, own), Actor(id="ana"), thread)


def test_the_first_rule_that_covers_a_call_says_what_it_needs() -> None:
    policy = RulesPolicy.from_toml(RULES)

    assert asked(policy, "refund_order", {"cents": 5001, "currency": "EUR"}) == Requirement(
        approver="finance",
        ttl=timedelta(minutes=90),
        quorum=2,
        may_requester=False,
        reason="more than 50 euros leave",
        ladder=(
            Rung(after=timedelta(minutes=10), action=RungAction.REMIND),
            Rung(after=timedelta(hours=1), action=RungAction.WIDEN, role="lead"),
        ),
    )
    assert asked(policy, "refund_order", {"cents": 100, "currency": "CHF"}).required is False
    assert asked(policy, "delete_all", {"target": {"region": "eu"}}).approver == "legal"


def test_without_a_rule_the_tool_decides() -> None:
    policy = RulesPolicy.from_toml(RULES)
    own = Requirement(approver="ops")

    assert asked(policy, "refund_order", {"cents": 5000, "currency": "EUR"}, own=own) == own
    assert asked(policy, "refund_order", {"cents": 100, "currency": "USD"}) == Requirement()
    assert asked(policy, "delete_all", {"target": {"region": "eu"}, "force": True}) == Requirement()
    assert asked(policy, "delete_all", {"target": {"region": "us"}}) == Requirement()
    assert asked(policy, "other", {}, own=Requirement(required=False)).required is False


@pytest.mark.parametrize(
    "arguments",
    [{}, {"cents": None}, {"cents": "many"}, {"cents": True}, {"cents": [6000]}, {"cents": "NaN"}, [], "6000", None],
    ids=repr,
)
def test_a_rule_that_asks_covers_what_it_cannot_judge(arguments: Json) -> None:
    assert asked(RulesPolicy.from_toml(RULES), "refund_order", arguments).approver == "finance"


@pytest.mark.parametrize(
    "arguments",
    [{}, {"cents": 50}, {"cents": 50, "currency": 978}, {"cents": "x", "currency": "EUR"}],
    ids=repr,
)
def test_a_rule_that_lets_through_does_not_cover_what_it_cannot_judge(arguments: Json) -> None:
    """And neither a later rule nor the tool's own word lets it through then."""
    lets_through = {"tool": "*", "required": False, "when": {"cents": {"below": 100}, "currency": {"equals": "EUR"}}}
    policy = RulesPolicy([lets_through, {"tool": "refund_ticket", "required": False}])

    assert asked(policy, "refund_order", arguments, own=Requirement(required=False)).required
    assert asked(policy, "refund_ticket", arguments).required
    assert not asked(policy, "refund_order", {"cents": 50, "currency": "EUR"}).required


def test_one_clear_no_outweighs_a_doubt() -> None:
    rule = {"tool": "*", "approver": "finance", "when": {"cents": {"above": 5000}, "currency": {"equals": "EUR"}}}
    assert asked(RulesPolicy([rule]), "refund", {"currency": "USD"}).approver == "requester"


@pytest.mark.parametrize(
    ("condition", "value", "covered"),
    [
        ({"equals": 1}, True, True),  # not comparable, so it is asked
        ({"equals": 1}, 1.0, True),
        ({"equals": 1}, 2, False),
        ({"equals": True}, False, False),
        ({"equals": "EUR"}, "eur", False),
        ({"in": [1, 2]}, 3, False),
        ({"in": ["a", 2]}, 2, True),
        ({"above": 10}, "10.5", True),
        ({"above": 10}, "9.5", False),
        ({"above": 1, "below": 3}, 2, True),
        ({"above": 1, "below": 3}, 3, False),
        ({"at_least": 0.1}, 0.1, True),
        ({"at_most": 9007199254740993}, 9007199254740994, False),
        ({"missing": True}, "x", False),
        ({"missing": False}, None, False),
        ({"missing": False, "above": 5}, 6, True),
    ],
    ids=str,
)
def test_conditions(condition: dict[str, object], value: Json, covered: bool) -> None:
    policy = RulesPolicy([{"tool": "t", "approver": "boss", "when": {"x": condition}}])
    assert (asked(policy, "t", {"x": value}).approver == "boss") is covered


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ('name = "big"\ntool = "t"\nwhen.cents.above = "12"', "rule 1 ('big'): when.cents.above: must be a number"),
        ('tool = "t"\nwhen.cents.over = 12', "rule 1: when.cents.over: Extra inputs are not permitted"),
        ('tool = "t"\nwhen.cents = {}', "rule 1: when.cents: say what must hold"),
        ('tool = "t"\nttl = "15"', "rule 1: ttl: a duration is a text such as '15m'"),
        ('tool = "t"\nttl = "0m"', "rule 1: ttl: a duration is longer than nothing"),
        ('tool = "t"\nttl = 15', "rule 1: ttl: a duration is a text"),
        ('tool = "t"\naprover = "x"', "rule 1: aprover: Extra inputs are not permitted"),
        ('approver = "x"', "rule 1: tool: Field required"),
        ('tool = "t"\nrequired = false\nttl = "1m"', "rule 1: nobody is asked with required = false, so ttl"),
        ('tool = "t"\nquorum = 2', "rule 1: the requester is one person"),
        ('tool = "t"\nmay_requester = false', "rule 1: the requester is the only approver"),
        ('tool = "t"\nquorum = 0\napprover = "x"', "rule 1: quorum: Input should be greater than or equal to 1"),
        ('tool = "t"\nladder = [{ after = "1m", action = "widen" }]', "rule 1: ladder[0]: a rung that widens needs"),
        ('tool = "t"\nttl = "1m"\nladder = [{ after = "1m", action = "remind" }]', "rule 1: a rung that comes at"),
    ],
)
def test_a_mistake_is_told_by_rule_and_field(rule: str, message: str) -> None:
    with pytest.raises(ConfigurationError) as refused:
        RulesPolicy.from_toml(f"[[rules]]\n{rule}")
    assert message in str(refused.value)


def test_a_file_is_named_in_its_mistakes(tmp_path: Path) -> None:
    good, bad, missing = tmp_path / "good.toml", tmp_path / "bad.toml", tmp_path / "missing.toml"
    good.write_text(RULES)
    bad.write_text("[[rule]]\ntool = 't'")

    assert asked(RulesPolicy.from_toml(good), "refund_order", {"cents": 9999}).approver == "finance"
    with pytest.raises(ConfigurationError, match=r"bad\.toml: expected \[\[rules\]\] tables and nothing else"):
        RulesPolicy.from_toml(bad)
    with pytest.raises(ConfigurationError, match=r"missing\.toml cannot be read"):
        RulesPolicy.from_toml(missing)
    with pytest.raises(ConfigurationError, match="to read a file, pass a Path"):
        RulesPolicy.from_toml("good.toml")


def test_rules_can_be_written_in_python() -> None:
    policy = RulesPolicy([Rule(tool="refund", approver="finance", ttl=timedelta(minutes=15))])
    assert asked(policy, "refund", {}).ttl == timedelta(minutes=15)
