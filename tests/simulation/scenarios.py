"""The stories that are played."""

from datetime import timedelta

from signoff import (
    Agent,
    Confirmation,
    Delegate,
    Denied,
    Done,
    Happened,
    Intake,
    NotHappened,
    Ready,
    Requirement,
    Rung,
    RungAction,
    Tool,
    ToolContext,
    ask,
    define_tool,
)
from signoff.domain.call import Call
from signoff.domain.jsonvalue import JsonObject
from signoff.testing.scripted import ask_for, boom, flaky, turn
from tests.simulation.scenario import (
    BO,
    CLEO,
    DEE,
    Scenario,
    Scene,
    answer,
    approve,
    approve_with,
    by_subject,
    cancel,
    cancel_once_parked,
    in_order,
    nobody,
    once_widened,
    reject,
    skip,
    voting,
)
from tests.simulation.town import Town

_SIZE: JsonObject = {
    "id": "size",
    "prompt": "Which size?",
    "options": [{"value": "m", "label": "Medium"}, {"value": "l", "label": "Large"}],
    "defaults": ["m"],
}
_REFUND = ask_for("refund", {"order": "A1"})


def desk(town: Town, *tools: object, **options: object) -> list[Agent]:
    """The only agent of most stories."""
    return [Agent("desk", instructions="Serve the customer.", model=town.model, tools=tools, **options)]  # type: ignore[arg-type]


READ = Scenario(
    name="read",
    agents=lambda town: desk(town, town.get_order()),
    says={"Go on.": [turn("Let me look.", ask_for("get_order", {"order": "A1"})), "It is on its way."]},
)

TALK = Scenario(
    name="two messages",
    agents=lambda town: desk(town),
    says={"Hello.": ["Hello to you."], "And?": ["And what?"]},
    messages=("Hello.", "And?"),
)

APPROVED = Scenario(
    name="action approved",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [turn("I will refund it.", _REFUND), "Done."]},
)

REJECTED = Scenario(
    name="action rejected",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [_REFUND, "As you wish."]},
    people=reject("not now"),
)

EXPIRED = Scenario(
    name="action expired",
    agents=lambda town: desk(town, town.refund(approval=Requirement(ttl=timedelta(seconds=3)))),
    says={"Go on.": [_REFUND, "Nobody answered."]},
    people=nobody,
)

UNGOVERNED = Scenario(
    name="action without approval",
    agents=lambda town: desk(town, town.refund(approval=Requirement(required=False))),
    says={"Go on.": [_REFUND, "Done."]},
)

_ABC = turn(*(ask_for("refund", {"order": order}, id=order) for order in "ABC"))


def three(order: str, *, together: bool = False) -> Scenario:
    """Three actions at once, decided one after the other or all before anything else happens; B is refused."""
    return Scenario(
        name=f"three actions {order}{' together' if together else ''}",
        agents=lambda town: desk(town, town.refund()),
        says={"Go on.": [_ABC, "Done."]},
        people=by_subject(A=approve, B=reject("not B"), C=approve),
        order=in_order(order),
        together=together,
        interleaves=True,
    )


MIXED = Scenario(
    name="reads beside an action",
    agents=lambda town: desk(town, town.refund(), town.get_order()),
    says={
        "Go on.": [
            turn(
                ask_for("get_order", {"order": "A1"}, id="1"),
                ask_for("refund", {"order": "A1"}, id="2"),
                ask_for("get_order", {"order": "A2"}, id="3"),
            ),
            "Done.",
        ]
    },
    interleaves=True,
)

IDEMPOTENT = Scenario(
    name="idempotent action",
    agents=lambda town: desk(town, town.refund(idempotent=True)),
    says={"Go on.": [_REFUND, "Done."]},
)


def _probed(town: Town) -> list[Agent]:
    async def look(order: str, cents: int) -> Happened | NotHappened:
        town.mark("before probe")
        paid = order in town.bank.orders
        town.mark("after probe")
        return Happened(output={"refunded": order, "cents": cents}) if paid else NotHappened()

    return desk(town, town.refund(probe=look))


PROBED = Scenario(name="action with a probe", agents=_probed, says={"Go on.": [_REFUND, "Done."]})


def _retrying(town: Town) -> list[Agent]:
    failures = [ConnectionError("the bank is closed")]

    async def refund(order: str) -> JsonObject:
        """Try three times, whatever happens: control flow must get out of here all the same."""
        for _ in range(3):
            try:
                town.mark(f"before request {order}")
                if failures:
                    raise failures.pop()
                return town.pay(order, 500)
            except Exception:  # noqa: BLE001  # what careless tools do
                continue
        raise ConnectionError("the bank stays closed")

    return desk(town, define_tool(refund, kind="action"))


RETRYING = Scenario(name="action in a retry wrapper", agents=_retrying, says={"Go on.": [_REFUND, "Done."]})

CANCELLED = Scenario(
    name="cancelled while parked",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [_REFUND, "Done."]},
    people=cancel,
)

FLAKY = Scenario(
    name="model fails once",
    agents=lambda town: desk(town, town.get_order()),
    says={"Go on.": [flaky(ask_for("get_order", {"order": "A1"})), flaky("Done.")]},
)

BROKEN = Scenario(
    name="model fails for good",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [_REFUND, turn("I have", boom("the provider is gone"))]},
)

REMEMBERED = Scenario(
    name="remembered approval",
    agents=lambda town: desk(town, town.refund()),
    says={
        "Go on.": [_REFUND, ask_for("refund", {"order": "A2"}), "Done."],
        "Once more.": [ask_for("refund", {"order": "A3"}), "Done again."],
    },
    messages=("Go on.", "Once more."),
    people=approve_with(remember=True),
)

REPAIRED = Scenario(
    name="history after a dead turn",
    agents=lambda town: desk(town, town.refund(), town.get_order()),
    says={
        "Go on.": [
            turn(ask_for("refund", {"order": "A1"}, id="1"), ask_for("get_order", {"order": "A1"}, id="2")),
            boom("the provider is gone"),
        ],
        "And now?": ["It was refunded."],
    },
    messages=("Go on.", "And now?"),
    interleaves=True,
)

REPAIRED_CANCELLED = Scenario(
    name="history after a cancelled turn",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [turn("Both.", _REFUND, ask_for("refund", {"order": "A2"}, id="2"))], "And now?": ["Stopped."]},
    messages=("Go on.", "And now?"),
    people=cancel_once_parked,
    interleaves=True,
)

QUORUM = Scenario(
    name="quorum of two",
    agents=lambda town: desk(
        town, town.refund(approval=Requirement(approver="manager", quorum=2, may_requester=False))
    ),
    says={"Go on.": [_REFUND, "Done."]},
    people=voting(BO, CLEO),
)

LADDER = Scenario(
    name="ladder",
    agents=lambda town: desk(
        town,
        town.refund(
            approval=Requirement(
                approver="manager",
                ladder=(
                    Rung(after=timedelta(seconds=2)),
                    Rung(after=timedelta(seconds=4), action=RungAction.WIDEN, role="deputy"),
                ),
            )
        ),
    ),
    says={"Go on.": [_REFUND, "Done."]},
    people=once_widened(DEE),
)

EDITED = Scenario(
    name="edited arguments",
    agents=lambda town: desk(town, town.refund()),
    says={"Go on.": [ask_for("refund", {"order": "A1", "cents": 900}), "Done."]},
    people=approve_with(arguments={"order": "A1", "cents": 300}),
)


def _prepared(town: Town) -> Tool:
    async def prepare(order: str) -> Ready | Denied | Done:
        town.mark(f"prepare {order}")
        match order:
            case "denied":
                return Denied("the order is too old")
            case "done":
                return Done({"refunded": order, "cents": 0})
            case _:
                return Ready(confirmation=Confirmation(title=f"Refund {order}", verb="Refund"))

    async def execute(order: str) -> Ready | Denied | Done:
        town.mark(f"execute {order}")
        match order:
            case "late":
                return Denied("the order was closed meanwhile")
            case "paid":
                return Done({"refunded": order, "cents": 0})
            case _:
                return Ready()

    return town.refund(prepare=prepare, execute_check=execute)


PREFLIGHT_BEFORE = Scenario(
    name="preflight before the card",
    agents=lambda town: desk(town, _prepared(town)),
    says={"Go on.": [ask_for("refund", {"order": "denied"}), ask_for("refund", {"order": "done"}), "Settled."]},
)

PREFLIGHT_LATE = Scenario(
    name="preflight before running",
    agents=lambda town: desk(town, _prepared(town)),
    says={"Go on.": [ask_for("refund", {"order": "late"}), ask_for("refund", {"order": "paid"}), "Settled."]},
)

ASKED = Scenario(
    name="question",
    agents=lambda town: desk(town, ask),
    says={"Go on.": [ask_for("ask", {"questions": [_SIZE]}), "Thank you."]},
    people=answer(size=["l"]),
)

SKIPPED = Scenario(
    name="question skipped",
    agents=lambda town: desk(town, ask),
    says={"Go on.": [ask_for("ask", {"questions": [_SIZE]}), "As you wish."]},
    people=skip,
)


def _asking(town: Town) -> list[Agent]:
    async def refund(order: str, ctx: ToolContext) -> JsonObject:
        """Ask before the effect, in the kind of retry loop that careless tools have."""
        for _ in range(3):
            try:
                answers = await ctx.ask([_SIZE])
            except Exception:  # noqa: BLE001
                continue
            return {**town.pay(order, 500), "size": list(answers.answers["size"])}
        raise ConnectionError("nobody can be asked")

    return desk(town, define_tool(refund, kind="action"))


async def _with_size(scene: Scene, card: Call) -> None:
    """What happened, with what the tool would have added."""
    found = scene.town.outcome_of(card)
    if found is None:
        await scene.world.approve(card)
    else:
        await scene.world.settle(card, {**found, "size": ["l"]})


ASKED_IN_A_TOOL = Scenario(
    name="question in an action",
    agents=_asking,
    says={"Go on.": [_REFUND, "Done."]},
    people=answer(size=["l"]),
    settled_by=_with_size,
)

INTAKE = Scenario(
    name="intake",
    agents=lambda town: desk(town, intake=Intake([_SIZE])),
    says={"Go on.": ["(the questions)", "A large one, then."]},
    people=answer(size=["l"]),
)


def _levels(town: Town) -> list[Agent]:
    """Front asks back, back asks the vault; the vault pays."""
    vault = Agent("vault", instructions="Pay.", model=town.model, tools=[town.refund()])
    back = Agent("back", instructions="Check.", model=town.model, tools=[town.get_order()], delegates_to=[vault])
    return [Agent("front", instructions="Serve.", model=town.model, delegates_to=[back]), back, vault]


GRANDCHILD = Scenario(
    name="card in a grandchild",
    agents=_levels,
    says={
        "Go on.": [turn("I will ask.", ask_for("ask_back", {"task": "Refund A1, please."})), "All done."],
        "Refund A1, please.": [ask_for("ask_vault", {"task": "Pay A1."}), "Paid."],
        "Pay A1.": [_REFUND, "Done."],
    },
)

CANCELLED_GRANDCHILD = Scenario(
    name="cancelled grandchild",
    agents=_levels,
    says=GRANDCHILD.says,
    people=cancel,
)


def _siblings(town: Town) -> list[Agent]:
    helper = Agent("helper", instructions="Help.", model=town.model, tools=[town.refund(), town.get_order()])
    return [Agent("front", instructions="Serve.", model=town.model, delegates_to=[helper]), helper]


PARALLEL_CHILDREN = Scenario(
    name="parallel children",
    agents=_siblings,
    says={
        "Go on.": [
            turn(
                ask_for("ask_helper", {"task": "Look at A1."}, id="1"),
                ask_for("ask_helper", {"task": "Refund A2."}, id="2"),
            ),
            "All done.",
        ],
        "Look at A1.": [ask_for("get_order", {"order": "A1"}), "Seen."],
        "Refund A2.": [ask_for("refund", {"order": "A2"}), "Paid."],
    },
    interleaves=True,
)


def _detaching(town: Town) -> list[Agent]:
    helper = Agent("helper", instructions="Help.", model=town.model, tools=[town.refund()])
    front = Agent("front", instructions="Serve.", model=town.model, delegates_to=[Delegate(helper, detached=True)])
    return [front, helper]


DETACHED = Scenario(
    name="detached child",
    agents=_detaching,
    says={
        "Go on.": [ask_for("start_helper", {"task": "Refund A1."}), "It is being done."],
        "Refund A1.": [_REFUND, "Paid."],
    },
    interleaves=True,
)

SCENARIOS = [
    READ,
    TALK,
    APPROVED,
    REJECTED,
    EXPIRED,
    UNGOVERNED,
    three("ABC"),
    three("CBA"),
    three("BCA", together=True),
    MIXED,
    IDEMPOTENT,
    PROBED,
    RETRYING,
    CANCELLED,
    FLAKY,
    BROKEN,
    REMEMBERED,
    REPAIRED,
    REPAIRED_CANCELLED,
    QUORUM,
    LADDER,
    EDITED,
    PREFLIGHT_BEFORE,
    PREFLIGHT_LATE,
    ASKED,
    SKIPPED,
    ASKED_IN_A_TOOL,
    INTAKE,
    GRANDCHILD,
    CANCELLED_GRANDCHILD,
    PARALLEL_CHILDREN,
    DETACHED,
]

#: Also played with streamed text, marks and ledger rows as commits of their own, as with a model that takes its time.
SLOWLY = [READ, APPROVED, FLAKY, BROKEN, GRANDCHILD]
