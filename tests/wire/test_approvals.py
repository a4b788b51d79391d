"""Decisions and inboxes over a real connection."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any

import httpx
import pytest

from signoff import Actor, Requirement
from signoff.approvals.requirement import DefaultPolicy
from signoff.domain.call import Call
from signoff.domain.thread import Thread
from signoff.ports.policy import ToolView
from tests.wire.conftest import Served, serve
from tests.wire.desk import ADMIN, ANA, BO, TTL, Reader, a_desk


@asynccontextmanager
async def parked(
    served: Served, message: str = "purge users", *, on: str = "approval-requested"
) -> AsyncIterator[Reader]:
    """The open stream of a run that waits; the last block seen is its card."""
    async with served.said(message) as reader:
        await reader.until(on)
        yield reader


async def decide(
    served: Served, verb: str, reader: Reader, *, headers: dict[str, str] = ANA, **body: Any
) -> httpx.Response:
    call_id = next(block.data["id"] for block in reader.seen if block.kind == "tool-input-available")
    return await served.http.post(f"/tool-call/{verb}", json={"toolCallId": call_id, **body}, headers=headers)


async def stored(served: Served, reader: Reader) -> dict[str, Any]:
    """The row of the step that asked, as a reload shows it."""
    thread = (await served.http.get(f"/threads/{reader.seen[0].data['threadId']}")).json()
    row: dict[str, Any] = thread["messages"][1]
    return row


async def test_the_card_on_the_stream_in_both_dialects(served: Served) -> None:
    async with parked(served) as reader:
        card = reader.seen[-1].data
        older = await reader.next()

    run_id = reader.seen[0].data["runId"]
    assert card["approver"] == "requester"
    assert (card["runId"], card["toolName"], card["input"]) == (run_id, "purgeCache", {"key": "users"})
    assert older is not None
    assert (older.event, older.id) == ("approval", None)
    assert older.data == {"runId": run_id, "id": card["id"], "toolName": "purgeCache", "input": {"key": "users"}}
    assert "tool-input-delta" not in reader.kinds


async def test_approve(served: Served) -> None:
    async with parked(served) as reader:
        before = await stored(served, reader)
        answer = await decide(served, "approve", reader, digest=reader.seen[-1].data["digest"], via="slack")
        await reader.rest()
    after = await stored(served, reader)

    assert (answer.status_code, answer.json()) == (200, {"ok": True})
    assert served.desk.did == ["users"]
    settled = next(block.data for block in reader.seen if block.kind == "approval-settled")
    assert (settled["status"], settled["decidedBy"], settled["decidedVia"]) == ("approved", "ana", "slack")
    assert before["toolResults"] == []
    assert before["approvals"][0]["status"] == "pending"
    assert after["toolResults"] == [{"id": settled["id"], "name": "purgeCache", "output": {"purged": "users"}}]
    assert (after["approvals"][0]["status"], after["approvals"][0]["decidedVia"]) == ("approved", "slack")


async def test_reject(served: Served) -> None:
    async with parked(served) as reader:
        await decide(served, "reject", reader, reason="not now")
        await reader.rest()
    row = await stored(served, reader)

    assert served.desk.did == []
    frames = [block.data for block in reader.seen if block.kind and block.kind.startswith("tool-output")]
    assert [(frame["kind"], frame.get("error"), frame.get("reason")) for frame in frames] == [
        ("tool-output-error", "not now", None),
        ("tool-output-denied", None, "not now"),
    ]
    assert row["toolResults"][0]["output"] == {"rejected": True, "reason": "not now"}
    assert row["toolResults"][0]["error"] == "rejected"
    assert row["approvals"][0]["status"] == "rejected"


async def test_only_the_first_answer_counts(served: Served) -> None:
    async with parked(served, "refund 7") as reader:
        first = await decide(served, "approve", reader, headers=ADMIN)
        second = await decide(served, "reject", reader, headers=ADMIN)
        # The run may have ended in between; either way the refusal moves nothing.
        await reader.rest()

    assert first.status_code == 200
    assert second.status_code == 409
    assert second.json()["code"] in ("already_decided", "run_not_active")
    assert served.desk.did == ["7"]


async def test_only_an_approver_decides(served: Served) -> None:
    async with parked(served, "refund 7") as reader:
        by_owner = await decide(served, "approve", reader)
        by_stranger = await decide(served, "approve", reader, headers=BO)
        answer = await decide(served, "approve", reader, headers=ADMIN)
        await reader.rest()
    row = await stored(served, reader)

    assert (by_owner.status_code, by_stranger.status_code, answer.status_code) == (403, 403, 200)
    assert row["approvals"][0]["decidedBy"] == "amy"


async def test_the_deadline(served: Served) -> None:
    async with parked(served, "refund 7") as reader:
        served.desk.clock.advance(TTL)
        await reader.rest()
        late = await decide(served, "approve", reader, headers=ADMIN)
    row = await stored(served, reader)

    assert (late.status_code, late.json()["code"]) == (410, "expired")
    assert served.desk.did == []
    assert row["toolResults"][0]["error"] == "expired"
    assert row["approvals"][0]["status"] == "expired"
    denied = next(block.data for block in reader.seen if block.kind == "tool-output-denied")
    assert denied["reason"] == "approval expired"


async def test_a_decision_names_the_run_and_the_card_it_saw(served: Served) -> None:
    async with parked(served) as reader:
        elsewhere = await decide(served, "approve", reader, runId="run_other")
        changed = await decide(served, "approve", reader, digest="0" * 64)
        right = await decide(served, "approve", reader, runId=reader.seen[0].data["runId"])
        await reader.rest()

    assert elsewhere.status_code == 404
    assert (changed.status_code, changed.json()["code"]) == (409, "card_changed")
    assert right.status_code == 200


async def test_edited_arguments_run(served: Served) -> None:
    async with parked(served) as reader:
        wrong = await decide(served, "approve", reader, arguments={"key": 1})
        right = await decide(served, "approve", reader, arguments={"key": "sessions"})
        await reader.rest()
    row = await stored(served, reader)

    assert wrong.status_code == 400
    assert right.status_code == 200
    assert served.desk.did == ["sessions"]
    assert row["toolCalls"][0]["input"] == {"key": "users"}
    assert row["approvals"][0]["editedInput"] == {"key": "sessions"}


MALFORMED: list[object] = [
    {},
    None,
    "maybe",
    [],
    {"approve": "false"},
    {"toolCallId": "the card", "approve": "false"},
    {"toolCallId": "the card", "approved": False},
    {"toolCallId": "the card", "approve": None},
]


@pytest.mark.parametrize("body", MALFORMED, ids=str)
async def test_only_a_clear_yes_approves(served: Served, body: object) -> None:
    """C05."""
    async with parked(served) as reader:
        call_id = reader.seen[-1].data["id"]
        if isinstance(body, dict) and "toolCallId" in body:
            body = {**body, "toolCallId": call_id}
        refused = await served.http.post("/tool-call/approve", json=body)
        mine = (await served.http.get("/approvals/mine")).json()
        await decide(served, "approve", reader)
        await reader.rest()

    assert refused.status_code == 400
    assert [card["toolCallId"] for card in mine] == [call_id]
    assert served.desk.did == ["users"]


@pytest.mark.parametrize("verb", ["answer", "skip", "settle"])
async def test_an_action_is_not_answered(served: Served, verb: str) -> None:
    """C09, the other way round."""
    body: dict[str, Any] = {"answers": {"output": []}} if verb == "answer" else {"output": {}}
    async with parked(served) as reader:
        refused = await decide(served, verb, reader, **body)
        mine = (await served.http.get("/approvals/mine")).json()

    assert (refused.status_code, refused.json()["code"]) == (409, "wrong_kind")
    assert len(mine) == 1


async def test_a_question_set(served: Served) -> None:
    async with parked(served, "ask me", on="elicitation") as reader:
        asked = reader.seen[-1].data
        older = await reader.next()
        wrong = await decide(served, "answer", reader, answers={"scope": ["galaxy"]})
        mine = (await served.http.get("/approvals/mine")).json()
        right = await decide(served, "answer", reader, answers={"scope": ["file"]})
        await reader.rest()
    row = await stored(served, reader)

    announced = reader.kinds.index("tool-input-available")
    assert announced < reader.kinds.index("elicitation")
    assert reader.seen[announced].data["toolKind"] == "action"
    assert older is not None
    assert (older.event, older.data) == (
        "elicitation",
        {"runId": asked["runId"], "id": asked["id"], "request": asked["request"]},
    )
    assert wrong.status_code == 400
    assert 'answers["scope"]' in wrong.json()["message"]
    assert mine[0]["request"]["questions"][0]["id"] == "scope"
    assert right.status_code == 200
    outcome = row["toolResults"][0]["output"]
    assert (outcome["answers"], outcome["skipped"], outcome["answeredBy"]) == ({"scope": ["file"]}, False, "ana")
    assert next(block.data["output"] for block in reader.seen if block.kind == "tool-output") == outcome
    assert "approvals" not in row


@pytest.mark.parametrize(("verb", "skipped"), [("skip", True), ("reject", True), ("approve", False)])
async def test_a_question_set_takes_its_defaults(served: Served, verb: str, *, skipped: bool) -> None:
    """Approve confirms them, reject skips (WIRE 2.2)."""
    async with parked(served, "ask me", on="elicitation") as reader:
        answer = await decide(served, verb, reader)
        await reader.rest()
    result = (await stored(served, reader))["toolResults"][0]

    assert answer.status_code == 200
    assert result["output"]["answers"] == {"scope": ["module"]}
    assert result["output"]["skipped"] is skipped
    assert result["output"]["defaulted"] == ["scope"]
    assert "error" not in result


async def test_the_callers_own_inbox_pages_with_a_true_total(served: Served) -> None:
    for number in range(5):
        async with parked(served, f"purge {number}"):
            pass
        served.desk.clock.advance(timedelta(seconds=1))

    seen: list[str] = []
    query: dict[str, str] = {"limit": "2"}
    while True:
        page = await served.http.get("/approvals/mine", params=query)
        assert page.headers["x-total-count"] == "5"
        seen += [card["input"]["key"] for card in page.json()]
        if (cursor := page.headers.get("x-next-cursor")) is None:
            break
        query["cursor"] = cursor
    assert seen == ["0", "1", "2", "3", "4"]
    assert (await served.http.get("/approvals/mine", headers=BO)).json() == []


async def test_a_card_in_the_inbox(served: Served) -> None:
    async with parked(served, "refund 7\u202e") as reader:
        card = (await served.http.get("/approvals/mine")).json()[0]

    shown = reader.seen[-1].data
    assert card.pop("safeText") == 'orderId = "7\\u202e"  (2 characters)\ncents = 4200'
    assert card == {
        "toolCallId": shown["id"],
        "toolName": "refundOrder",
        "input": {"orderId": "7\u202e", "cents": 4200},
        "threadId": reader.seen[0].data["threadId"],
        "runId": reader.seen[0].data["runId"],
        "actorRef": "ana",
        "agentName": "desk",
        "requestedAt": "2026-01-01T00:00:00.000Z",
        "approver": "ADMIN",
        "expiresAt": "2026-01-01T00:01:00.000Z",
        "reason": "money leaves",
        "digest": shown["digest"],
    }


async def test_everybodys_inbox_is_gated_and_filtered(served: Served) -> None:
    async with parked(served, "purge users"):
        pass
    async with parked(served, "refund 7"):
        pass

    async def listed(**query: str) -> list[str]:
        page = (await served.http.get("/approvals", headers=ADMIN, params=query)).json()
        assert page["total"] == len(page["items"])
        assert "nextCursor" not in page
        return [card["toolName"] for card in page["items"]]

    assert (await served.http.get("/approvals")).status_code == 403
    assert await listed() == ["purgeCache", "refundOrder"]
    assert await listed(tool="refundOrder") == ["refundOrder"]
    assert await listed(agent="nobody") == []
    assert await listed(actor="ana") == ["purgeCache", "refundOrder"]
    assert await listed(actor="bo") == []
    assert await listed(due="2026-01-01T00:01:01Z") == ["refundOrder"]
    assert await listed(due="2026-01-01T00:00:59+00:00") == []
    first = (await served.http.get("/approvals", headers=ADMIN, params={"limit": 1})).json()
    second = await served.http.get("/approvals", headers=ADMIN, params={"cursor": first["nextCursor"]})
    assert first["total"] == 2
    assert [card["toolName"] for card in second.json()["items"]] == ["refundOrder"]


async def test_a_batch_answers_each_card_by_itself(served: Served) -> None:
    async with (
        parked(served, "purge one") as one,
        parked(served, "purge two") as two,
        parked(served, "refund 3") as three,
    ):
        ids = [reader.seen[-1].data["id"] for reader in (one, two, three)]
        answer = await served.http.post(
            "/approvals/decide",
            json={
                "decisions": [
                    {"decision": "approve", "toolCallId": ids[0]},
                    {"decision": "maybe", "toolCallId": ids[1]},
                    {"decision": "approve", "toolCallId": ids[2]},
                    {"decision": "reject", "toolCallId": ids[1], "reason": "no"},
                    {"decision": "reject", "toolCallId": ids[1]},
                    {"decision": "approve", "toolCallId": "call_unknown"},
                    {"decision": "approve", "toolCallId": 7},
                ]
            },
        )
        await one.rest()
        await two.rest()

    assert answer.status_code == 200
    results = answer.json()["results"]
    assert [(result["toolCallId"], result["status"]) for result in results] == [
        (ids[0], 200),
        (ids[1], 400),
        (ids[2], 403),
        (ids[1], 200),
        (ids[1], 409),
        ("call_unknown", 404),
        ("", 400),
    ]
    assert results[0] == {"toolCallId": ids[0], "status": 200, "ok": True}
    assert results[1]["field"] == "decision"
    assert served.desk.did == ["one"]


async def test_a_remembered_approval_asks_no_more(served: Served) -> None:
    async with parked(served) as reader:
        await decide(served, "approve", reader, remember=True)
        await reader.rest()
    thread_id = reader.seen[0].data["threadId"]
    async with served.said("purge sessions", threadId=thread_id) as again:
        await again.rest()

    assert "approval-requested" not in again.kinds
    settled = next(block.data for block in again.seen if block.kind == "approval-settled")
    assert (settled["decidedVia"], settled["remember"]) == ("remembered", True)
    assert served.desk.did == ["users", "sessions"]


class TwoOfUs(DefaultPolicy):
    """Two people who hold USER must say yes."""

    def requirement_for(self, call: Call, tool: ToolView, actor: Actor, thread: Thread) -> Requirement:
        """See `ports.policy.ApprovalPolicy`."""
        return Requirement(approver="USER", quorum=2)


async def test_a_quorum_is_counted_on_the_stream_in_the_answer_and_in_the_inbox() -> None:
    async with serve(a_desk(policy=TwoOfUs())) as served, parked(served) as reader:
        before = (await served.http.get("/approvals/mine")).json()[0]["quorum"]
        first = await decide(served, "approve", reader)
        again = await decide(served, "approve", reader)
        await reader.until("approval-requested")
        told = reader.seen[-1].data["quorum"]
        between = (await served.http.get("/approvals", headers=ADMIN)).json()["items"][0]["quorum"]
        assert served.desk.did == []
        second = await decide(served, "approve", reader, headers=BO)
        await reader.rest()
        assert served.desk.did == ["users"]

    assert before == {"needed": 2, "have": 0}
    assert first.json() == {"ok": True, "quorum": {"needed": 2, "have": 1}}
    assert (again.status_code, again.json()["code"]) == (409, "already_decided")
    assert told == between == {"needed": 2, "have": 1}
    assert second.json() == {"ok": True, "quorum": {"needed": 2, "have": 2}}
