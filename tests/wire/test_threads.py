"""Conversations and catalogs."""

from typing import Any

import httpx
import pytest

from signoff import ActorQuota
from tests.wire.conftest import Served
from tests.wire.desk import BO, a_desk


async def say(http: httpx.AsyncClient, message: str, **body: object) -> str:
    """Say something, wait for the answer; the thread's id."""
    answer = await http.post("/chat", json={"message": message, **body})
    assert answer.status_code == 200, answer.text
    return answer.headers["x-agent-thread-id"]


async def test_a_list_of_ones_own_threads() -> None:
    async with a_desk().client() as http:
        first = await say(http, "hello")
        second = await say(http, "weather in Rome")
        await http.post("/chat", json={"message": "hello", "transient": True})
        await http.post("/chat", json={"message": "hello"}, headers=BO)
        threads = (await http.get("/threads")).json()

    assert {thread["id"] for thread in threads} == {first, second}
    thread = next(thread for thread in threads if thread["id"] == first)
    assert thread["createdAt"] == "2026-01-01T00:00:00.000Z"
    assert thread["transient"] is False
    assert thread["activeRunId"] is None


async def test_a_thread_is_renamed_and_told_its_choices() -> None:
    async with a_desk().client() as http:
        thread_id = await say(http, "hello")

        async def changed(**changes: object) -> dict[str, Any]:
            answer = await http.patch(f"/threads/{thread_id}", json=changes)
            assert (answer.status_code, answer.json()) == (200, {"ok": True})
            detail: dict[str, Any] = (await http.get(f"/threads/{thread_id}")).json()
            return detail

        assert (await changed(title="Rome\0"))["title"] == "Rome\0"
        named = await changed(defaultAgent="desk", persona="calm")
        assert (named["title"], named["defaultAgent"], named["persona"]) == ("Rome\0", "desk", "calm")
        cleared = await changed(defaultAgent=None, persona=None)
        assert cleared["defaultAgent"] is None
        assert "persona" not in cleared
        for wrong in ({"title": ""}, {"title": "x" * 201}, {"defaultAgent": "nobody"}, {"persona": "angry"}):
            assert (await http.patch(f"/threads/{thread_id}", json=wrong)).status_code == 400


async def test_a_deleted_thread_is_gone() -> None:
    async with a_desk().client() as http:
        thread_id = await say(http, "hello")
        assert (await http.delete(f"/threads/{thread_id}")).json() == {"ok": True}

        assert (await http.get("/threads")).json() == []
        assert (await http.get(f"/threads/{thread_id}")).status_code == 404
        assert (await http.delete(f"/threads/{thread_id}")).status_code == 404
        refused = await http.post("/chat", json={"message": "hello", "threadId": thread_id})
        assert refused.status_code == 404


async def test_fork_and_truncate() -> None:
    async with a_desk().client() as http:
        thread_id = await say(http, "weather in Rome")
        await say(http, "hello", threadId=thread_id)
        rows = (await http.get(f"/threads/{thread_id}")).json()["messages"]
        last_of_first_turn = rows[-3]

        fork = (await http.post(f"/threads/{thread_id}/fork-from/{last_of_first_turn['id']}")).json()
        copied = (await http.get(f"/threads/{fork['id']}")).json()["messages"]
        cut = await http.delete(f"/threads/{thread_id}/from/{rows[-2]['id']}")
        left = (await http.get(f"/threads/{thread_id}")).json()["messages"]

    assert fork["id"] != thread_id
    assert [row["content"] for row in copied] == [row["content"] for row in rows[:-2]]
    assert [row.get("toolResults", [{}])[0].get("output") for row in copied][1] == {"city": "Rome", "tempC": 21}
    assert cut.json() == {"ok": True}
    assert left == rows[:-2]


async def test_a_throw_away_thread_is_kept_by_promoting_it() -> None:
    async with a_desk().client() as http:
        thread_id = await say(http, "hello", transient=True)
        assert (await http.get("/threads")).json() == []

        assert (await http.post(f"/threads/{thread_id}/promote")).json() == {"ok": True}

        assert [thread["id"] for thread in (await http.get("/threads")).json()] == [thread_id]


async def test_a_busy_thread_is_not_truncated(served: Served) -> None:
    async with served.said("purge users") as reader:
        await reader.until("approval-requested")
        thread_id = reader.seen[0].data["threadId"]
        row = (await served.http.get(f"/threads/{thread_id}")).json()["messages"][0]
        refused = await served.http.delete(f"/threads/{thread_id}/from/{row['id']}")

    assert (refused.status_code, refused.json()["code"]) == (409, "run_active")


async def test_what_is_asked_after_each_turn_is_empty_but_owned() -> None:
    async with a_desk().client() as http:
        thread_id = await say(http, "hello")

        assert (await http.get(f"/threads/{thread_id}/action-proposals?after=x")).json() == []
        assert (await http.get(f"/threads/{thread_id}/queue")).json() == {"items": [], "paused": None}
        assert (await http.get(f"/threads/{thread_id}/queue", headers=BO)).status_code == 403
        assert (await http.get("/threads/nowhere/action-proposals")).status_code == 404


async def test_the_catalogs() -> None:
    async with a_desk().client() as http:
        agents = (await http.get("/agents")).json()
        tools = (await http.get("/tools")).json()
        of_all = (await http.get("/tools", params={"agent": "*"})).json()
        nobodys = await http.get("/tools", headers={"x-actor-role": "GUEST"})
        models = (await http.get("/models")).json()
        personas = (await http.get("/threads/personas/catalog")).json()

        assert (await http.get("/tools", params={"agent": "nobody"})).status_code == 404
        assert (await http.get("/models", params={"agent": "nobody"})).status_code == 404
    assert agents == [{"name": "desk", "description": "Helps.", "isDefault": True, "personas": ["calm"]}]
    kinds = {tool["name"]: tool["kind"] for tool in tools}
    assert kinds == {"getWeather": "read", "purgeCache": "action", "refundOrder": "action", "ask": "action"}
    assert of_all == tools
    assert {tool["name"] for tool in nobodys.json()} <= {"ask"}
    assert models == {"providers": [], "default": None}
    assert personas == [{"id": "calm", "label": "calm"}]


async def test_quota_is_unlimited_by_default() -> None:
    async with a_desk().client() as http:
        await say(http, "hello")

        today = (await http.get("/quota/today")).json()
        assert today.pop("usedTokens") > 0
        assert today == {"limitTokens": None, "withinLimit": True, "costUsd": 0.0}
        assert (await http.get("/quota")).json() == {"windows": []}
        assert (await http.get("/config")).json()["quota"] == {"enforced": False}


async def test_a_spent_quota_refuses_before_the_stream() -> None:
    async with a_desk(quota=ActorQuota(daily_tokens=1)).client() as http:
        await say(http, "hello")
        refused = await http.post("/chat", json={"message": "hello"})
        quota = (await http.get("/quota")).json()

        assert (await http.get("/quota/today")).json()["withinLimit"] is False
        assert (await http.get("/config")).json()["quota"] == {"enforced": True}
        assert len((await http.get("/threads")).json()) == 1
    assert (refused.status_code, refused.json()["code"], refused.json()["period"]) == (429, "quota_exceeded", "day")
    assert quota["blocked"] == {"period": "day"}
    assert quota["windows"][0]["limitTokens"] == 1


REFUSED: list[tuple[dict[str, object], str]] = [
    ({"message": ""}, "message"),
    ({"message": " \n"}, "message"),
    ({"message": "hi", "agent": "nobody"}, "agent"),
    ({"message": "hi", "model": "nowhere:x"}, "model"),
    ({"message": "hi", "persona": "angry"}, "persona"),
    ({"message": "hi", "attachments": [{"mediaId": "m"}]}, "attachments"),
]


@pytest.mark.parametrize(("body", "field"), REFUSED, ids=str)
async def test_what_cannot_be_answered_is_refused_before_the_stream(body: dict[str, object], field: str) -> None:
    async with a_desk().client() as http:
        refused = await http.post("/chat", json=body)

        assert refused.status_code == 400
        assert refused.json()["field"] == field
        assert (await http.get("/threads")).json() == []
