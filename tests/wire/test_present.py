"""Threads and cards on the wire (WIRE 6)."""

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import pytest

from signoff.agents.agent import Persona
from signoff.domain.call import Call, CallStatus, ToolKind
from signoff.domain.jsonvalue import JsonObject, digest
from signoff.domain.thread import Message, Role, Thread
from signoff.http import present_catalog
from signoff.http.present import approval_view, stored_message, thread_detail, thread_summary, tool_result
from signoff.http.present_inbox import pending_call
from signoff.ports.quota import QuotaWindow
from signoff.service.read import AgentView, QuotaToday
from signoff.service.threads import ThreadView

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
NOON_TEXT = "2026-01-01T12:00:00.000Z"

THREAD = Thread(id="t", actor_id="ana", created_at=NOON, updated_at=NOON)
CALL = Call(
    id="c",
    run_id="r",
    thread_id="t",
    message_id="m",
    step=0,
    index=0,
    name="refund",
    kind=ToolKind.ACTION,
    arguments={"cents": 5},
    status=CallStatus.PENDING,
    actor_id="ana",
    agent_name="desk",
    created_at=NOON,
    approver="finance",
    request_reason="over 4 cents",
    digest="d",
)
DECIDED = replace(
    CALL, decided_by="bo", decided_via="slack", decided_at=NOON, decision_reason="fine", status=CallStatus.APPROVED
)


def test_an_idle_thread_names_no_run() -> None:
    assert thread_summary(THREAD) == {
        "id": "t",
        "title": "",
        "transient": False,
        "createdAt": NOON_TEXT,
        "updatedAt": NOON_TEXT,
        "defaultAgent": None,
        "activeRunId": None,
    }


def test_a_busy_thread_names_its_run_twice() -> None:
    thread = replace(THREAD, active_run_id="r", last_message_preview="hi", model="m", persona="p", default_agent="a")

    summary = thread_summary(thread)

    assert summary["activeRunId"] == summary["activeStreamId"] == "r"
    assert (summary["lastMessagePreview"], summary["model"], summary["persona"], summary["defaultAgent"]) == (
        "hi",
        "m",
        "p",
        "a",
    )


def test_a_user_message_has_nothing_but_its_text() -> None:
    message = Message(id="m", thread_id="t", role=Role.USER, content="hi", created_at=NOON)

    assert stored_message(message, []) == {"id": "m", "role": "user", "content": "hi", "createdAt": NOON_TEXT}


def test_a_step_with_everything() -> None:
    message = Message(
        id="m",
        thread_id="t",
        role=Role.ASSISTANT,
        content="",
        agent_name="desk",
        reasoning="because",
        usage={"inputTokens": 1, "outputTokens": 2, "costUsd": None},
        metadata={"k": "v"},
        created_at=NOON,
    )
    read = replace(
        CALL, id="c2", name="look", kind=ToolKind.READ, status=CallStatus.COMPLETED, output=None, approver=None,
        parent_call_id="c0", request_reason=None, digest=None,
    )  # fmt: skip

    row = stored_message(message, [CALL, read])

    assert row == {
        "id": "m",
        "role": "assistant",
        "content": "",
        "createdAt": NOON_TEXT,
        "toolCalls": [
            {"id": "c", "name": "refund", "input": {"cents": 5}, "kind": "action"},
            {"id": "c2", "name": "look", "input": {"cents": 5}, "kind": "read", "parentId": "c0"},
        ],
        "toolResults": [{"id": "c2", "name": "look", "output": None}],
        "approvals": [
            {"toolCallId": "c", "approver": "finance", "status": "pending", "reason": "over 4 cents", "digest": "d"}
        ],
        "usage": {"inputTokens": 1, "outputTokens": 2, "costUsd": None},
        "agentName": "desk",
        "reasoning": "because",
        "metadata": {"k": "v"},
    }


def test_an_answer_names_its_run_and_its_card_the_votes() -> None:
    message = Message(id="m", thread_id="t", role=Role.ASSISTANT, content="", run_id="r", created_at=NOON)

    detail = thread_detail(
        ThreadView(thread=THREAD, messages=[message], calls={"m": [replace(CALL, quorum=2)]}, votes={"c": 1})
    )

    [row] = detail["messages"]
    assert row["runId"] == "r"
    assert [approval["quorum"] for approval in row["approvals"]] == [{"needed": 2, "have": 1}]


def test_a_detail_is_a_summary_with_messages() -> None:
    message = Message(id="m", thread_id="t", role=Role.ASSISTANT, content="x", created_at=NOON)

    detail = thread_detail(ThreadView(thread=THREAD, messages=[message], calls={"m": [CALL]}))

    assert detail["id"] == "t"
    assert [call["id"] for row in detail["messages"] for call in row["toolCalls"]] == ["c"]


@pytest.mark.parametrize("status", [CallStatus.RUNNING, CallStatus.PENDING, CallStatus.APPROVED, CallStatus.IN_DOUBT])
def test_a_live_call_has_no_result(status: CallStatus) -> None:
    assert tool_result(replace(CALL, status=status, output={"x": 1})) is None


OUTCOMES = [
    (replace(DECIDED, status=CallStatus.COMPLETED, output={"ok": 1}), {"ok": 1}, None),
    (replace(DECIDED, status=CallStatus.REJECTED), {"rejected": True, "reason": "fine"}, "rejected"),
    (replace(CALL, status=CallStatus.REJECTED), {"rejected": True}, "rejected"),
    (replace(CALL, status=CallStatus.EXPIRED), {"expired": True, "reason": "approval expired"}, "expired"),
    (replace(CALL, status=CallStatus.CANCELLED, error="cancelled"), {"cancelled": True}, "cancelled"),
    (replace(CALL, status=CallStatus.FAILED, error="boom", output={"error": "boom"}), {"error": "boom"}, "boom"),
    (replace(CALL, status=CallStatus.FAILED, error="boom"), {"failed": True, "reason": "boom"}, "boom"),
    (replace(CALL, kind=ToolKind.ASK, status=CallStatus.REJECTED, output={"skipped": True}), {"skipped": True}, None),
    (replace(CALL, kind=ToolKind.ASK, status=CallStatus.COMPLETED, output={"answers": {}}), {"answers": {}}, None),
    (replace(CALL, kind=ToolKind.ASK, status=CallStatus.CANCELLED), {"cancelled": True}, "cancelled"),
]


@pytest.mark.parametrize(("call", "output", "error"), OUTCOMES, ids=lambda value: getattr(value, "status", None))
def test_an_ended_call_has_exactly_one_result(call: Call, output: object, error: str | None) -> None:
    result = tool_result(call)

    assert result == {"id": "c", "name": "refund", "output": output} | ({} if error is None else {"error": error})


STANDINGS = [
    (CALL, "pending", "over 4 cents"),
    (replace(CALL, status=CallStatus.IN_DOUBT), "pending", "over 4 cents"),
    (DECIDED, "approved", "fine"),
    (replace(DECIDED, status=CallStatus.RUNNING), "approved", "fine"),
    (replace(DECIDED, status=CallStatus.COMPLETED), "approved", "fine"),
    (replace(DECIDED, status=CallStatus.FAILED), "approved", "fine"),
    (replace(DECIDED, status=CallStatus.REJECTED), "rejected", "fine"),
    (replace(CALL, status=CallStatus.EXPIRED), "expired", None),
]


@pytest.mark.parametrize(("call", "status", "reason"), STANDINGS, ids=lambda value: getattr(value, "status", None))
def test_where_an_approval_stands(call: Call, status: str, reason: str | None) -> None:
    view = approval_view(call)

    assert view is not None
    assert (view["status"], view.get("reason")) == (status, reason)


NO_APPROVAL = [
    replace(CALL, status=CallStatus.FAILED),
    replace(CALL, status=CallStatus.CANCELLED),
    replace(CALL, kind=ToolKind.ASK),
    replace(CALL, kind=ToolKind.READ, approver=None),
    replace(CALL, status=CallStatus.COMPLETED, approver=None, decided_via="policy"),
]


@pytest.mark.parametrize("call", NO_APPROVAL, ids=lambda call: f"{call.kind}-{call.status}")
def test_nobody_approved_these(call: Call) -> None:
    assert approval_view(call) is None


def test_an_action_that_nobody_was_asked_about_has_a_card_once_it_is_in_doubt() -> None:
    doubt: JsonObject = {"startedAt": "2026-01-01T12:00:00.000Z", "attempt": 1, "round": 1}
    call = replace(CALL, status=CallStatus.IN_DOUBT, approver=None, in_doubt=doubt)

    view = approval_view(call)

    assert view is not None
    assert (view["status"], view["approver"]) == ("pending", "requester")


def test_a_remembered_edited_approval_tells_all() -> None:
    call = replace(
        DECIDED,
        remember=True,
        expires_at=NOON + timedelta(hours=1),
        edited_arguments={"cents": 3},
        confirmation={"title": "Sure?", "verb": "Refund"},
        target={"id": 1},
    )

    assert approval_view(call) == {
        "toolCallId": "c",
        "approver": "finance",
        "status": "approved",
        "reason": "fine",
        "expiresAt": "2026-01-01T13:00:00.000Z",
        "remember": True,
        "decidedBy": "bo",
        "decidedVia": "slack",
        "confirmation": {"title": "Sure?", "verb": "Refund"},
        "target": {"id": 1},
        "digest": "d",
        "editedInput": {"cents": 3},
    }


def test_a_sub_agents_card_in_an_inbox_names_the_call_that_led_to_it() -> None:
    card = pending_call(replace(CALL, agent_name="clerk", parent_call_id="c0"))

    assert (card["agentName"], card["parentId"]) == ("clerk", "c0")


def test_a_card_in_an_inbox() -> None:
    card = pending_call(replace(CALL, in_doubt={"startedAt": NOON_TEXT, "attempt": 1, "round": 2}))

    assert card == {
        "toolCallId": "c",
        "toolName": "refund",
        "input": {"cents": 5},
        "threadId": "t",
        "runId": "r",
        "actorRef": "ana",
        "agentName": "desk",
        "requestedAt": NOON_TEXT,
        "safeText": "cents = 5",
        "approver": "finance",
        "reason": "over 4 cents",
        # Not the card's own: an answer to the first card must not count for this one.
        "digest": digest({"card": "d", "round": 2}),
        "inDoubt": {"startedAt": NOON_TEXT, "attempt": 1, "round": 2},
    }


def test_quota() -> None:
    open_ = QuotaWindow(
        period="day", used_tokens=1, limit_tokens=None, used_usd=Decimal("0.5"), limit_usd=None, resets_at=NOON
    )
    spent = replace(open_, period="month", limit_tokens=1, limit_usd=Decimal(2))
    today = QuotaToday(used_tokens=1, limit_tokens=None, within_limit=True, cost_usd=Decimal("0.5"))

    assert present_catalog.quota([]) == {"windows": []}
    assert present_catalog.quota([open_, spent]) == {
        "windows": [
            {"period": "day", "usedTokens": 1, "usedUsd": 0.5, "resetsAt": NOON_TEXT},
            {
                "period": "month",
                "usedTokens": 1,
                "usedUsd": 0.5,
                "resetsAt": NOON_TEXT,
                "limitTokens": 1,
                "limitUsd": 2.0,
            },
        ],
        "blocked": {"period": "month"},
    }
    assert present_catalog.quota_today(today) == {
        "usedTokens": 1,
        "limitTokens": None,
        "withinLimit": True,
        "costUsd": 0.5,
    }


def test_an_agent_in_a_picker() -> None:
    plain = AgentView(
        name="desk", description="", is_default=False, locked_model=None, personas=[], default_persona=None
    )
    rich = replace(plain, is_default=True, locked_model="m", personas=[Persona("calm")], default_persona="calm")

    assert present_catalog.agent_summary(plain) == {"name": "desk", "description": ""}
    assert present_catalog.agent_summary(rich) == {
        "name": "desk",
        "description": "",
        "isDefault": True,
        "lockedModel": "m",
        "personas": ["calm"],
        "defaultPersona": "calm",
    }
