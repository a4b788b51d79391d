"""Say something, watch the answer, stop it: over a real connection."""

import asyncio
from datetime import timedelta

import pytest

from tests.wire.conftest import Served, serve
from tests.wire.desk import ANA, BO, Reader, a_desk


async def test_a_plain_answer(served: Served) -> None:
    async with served.said("hello") as reader:
        blocks = await reader.rest()

    headers = reader.response.headers
    assert headers["content-type"] == "text/event-stream"
    assert headers["cache-control"] == "no-cache, no-transform"
    assert blocks[0].event == "meta"
    assert blocks[0].id is None
    assert blocks[0].data == {"runId": headers["x-agent-run-id"], "threadId": headers["x-agent-thread-id"]}
    assert (blocks[-1].event, blocks[-1].id, blocks[-1].data) == ("done", None, {})
    steps = [kind for kind in reader.kinds[1:-1] if kind not in ("title", "text")]
    assert steps == ["step-start", "step-finish"]
    assert reader.text.startswith("Hello!")
    assert all(block.data["delta"] == block.data["text"] for block in blocks if block.kind == "text")
    assert reader.numbers == sorted(set(reader.numbers))
    assert reader.numbers[0] >= 1


async def test_an_ended_run_is_404_and_its_answer_is_in_the_thread(served: Served) -> None:
    async with served.said("hello") as reader:
        await reader.rest()
    meta = reader.seen[0].data

    gone = await served.http.get(f"/chat/{meta['runId']}/stream")
    thread = (await served.http.get(f"/threads/{meta['threadId']}")).json()

    assert gone.status_code == 404
    assert gone.json()["code"] == "not_found"
    assert [(row["role"], row["content"]) for row in thread["messages"]] == [
        ("user", "hello"),
        ("assistant", reader.text),
    ]
    assert thread["activeRunId"] is None
    assert "activeStreamId" not in thread


async def test_a_read_tool_stays_inside_its_step(served: Served) -> None:
    async with served.said("weather in Rome") as reader:
        await reader.rest()

    kinds = [kind for kind in reader.kinds if kind not in ("title", "text")]
    assert kinds == [
        "meta",
        "step-start",
        "tool-input-start",
        "tool-input-available",
        "tool-output",
        "step-finish",
        "step-start",
        "step-finish",
        "done",
    ]
    output = next(block.data for block in reader.seen if block.kind == "tool-output")
    assert output["output"] == {"city": "Rome", "tempC": 21}


async def test_a_failed_run_ends_in_an_error_that_tells_nothing(served: Served) -> None:
    async with served.said("boom") as reader:
        blocks = await reader.rest()

    assert (blocks[-1].event, blocks[-1].id) == ("error", None)
    assert blocks[-1].data["code"] == "run_failed"
    assert "the model went away" not in str(blocks[-1].data)
    again = await served.http.get(f"/threads/{blocks[0].data['threadId']}")
    assert again.json()["activeRunId"] is None


async def test_development_tells_why_a_run_failed() -> None:
    async with serve(a_desk(production=False)) as served, served.said("boom") as reader:
        blocks = await reader.rest()

    assert "the model went away" in blocks[-1].data["message"]


async def test_every_cut_resumes_behind_its_number(served: Served) -> None:
    """C47: whatever was the last number a reader saw, it gets exactly what follows, from either kind of cursor."""
    async with served.said("purge users") as first:
        asked = await first.until("approval-requested")
        run_id = first.seen[0].data["runId"]
        for cut in [0, *first.numbers[:-1]]:
            for headers, query in (({}, f"?after={cut}"), ({"last-event-id": str(cut)}, "")):
                async with served.stream("GET", f"/chat/{run_id}/stream{query}", headers=headers) as again:
                    await again.until("approval-requested")
                assert again.seen[0] == first.seen[0]
                assert again.seen[1:] == [block for block in first.seen if int(block.id or 0) > cut]
        assert asked.data["runId"] == run_id


async def test_after_wins_over_the_header_and_both_must_be_numbers(served: Served) -> None:
    async with served.said("purge users") as first:
        await first.until("approval-requested")
        path = f"/chat/{first.seen[0].data['runId']}/stream"
        last = first.numbers[-1] - 1
        async with served.stream("GET", f"{path}?after={last}", headers={"last-event-id": "0"}) as again:
            await again.until("approval-requested")
        assert again.numbers == [last + 1]
        async with served.stream("GET", path, headers={"last-event-id": ""}) as again:
            await again.until("approval-requested")
        assert again.numbers == first.numbers
        for wrong in ("-1", "1.5", "abc", "", "1e3", "٣", "9" * 30):
            assert (await served.http.get(path, params={"after": wrong})).status_code == 400
        for wrong in ("-1", "abc"):
            refused = await served.http.get(path, headers={"last-event-id": wrong})
            assert (refused.status_code, refused.json()["field"]) == (400, "Last-Event-ID")


async def test_a_reader_that_leaves_does_not_stop_the_run(served: Served) -> None:
    """C48."""
    async with served.said("slow") as reader:
        await reader.until("text")
        meta = reader.seen[0].data

    async with served.stream("GET", f"/chat/{meta['runId']}/stream") as again:
        await again.until("text")
        await _play(served, again)
    assert again.kinds[-1] == "done"
    thread = (await served.http.get(f"/threads/{meta['threadId']}")).json()
    assert thread["messages"][-1]["content"] == again.text


async def test_two_watchers_see_the_same(served: Served) -> None:
    async with served.said("slow") as one:
        await one.until("text")
        async with served.stream("GET", f"/chat/{one.seen[0].data['runId']}/stream") as two:
            await two.until("text")
            await asyncio.gather(_play(served, one), two.rest())

    assert one.seen == two.seen


async def test_a_parked_stream_is_kept_alive() -> None:
    async with serve(a_desk(keep_alive=timedelta(milliseconds=1))) as served, served.said("purge users") as reader:
        await reader.until("approval-requested")
        while (block := await reader.next()) is not None and block.comment is None:
            pass

    assert block is not None
    assert block.comment == "keep-alive"


@pytest.mark.parametrize("mode", [None, "auto", "queue", "interrupt"])
async def test_a_busy_thread_is_409_and_keeps_nothing(served: Served, mode: str | None) -> None:
    async with served.said("purge users") as reader:
        await reader.until("approval-requested")
        meta = reader.seen[0].data
        body = {"message": "more", "threadId": meta["threadId"]} | ({} if mode is None else {"mode": mode})
        refused = await served.http.post("/chat", json=body)
        thread = (await served.http.get(f"/threads/{meta['threadId']}")).json()

    assert (refused.status_code, refused.json()["code"]) == (409, "run_active")
    assert refused.json()["runId"] == meta["runId"] == thread["activeRunId"] == thread["activeStreamId"]
    assert [row["content"] for row in thread["messages"] if row["role"] == "user"] == ["purge users"]


async def test_the_same_key_is_the_same_run(served: Served) -> None:
    """C50: at the same time, and after the end."""
    body, headers = {"message": "weather in Rome"}, {"idempotency-key": "k" * 255}
    streams = await asyncio.gather(*[served.http.post("/chat", json=body, headers=headers) for _ in range(3)])
    later = await served.http.post("/chat", json=body, headers=headers)
    other = await served.http.post("/chat", json={"message": "hello"}, headers=headers)
    stranger = await served.http.post("/chat", json={"message": "hello"}, headers=headers | BO)

    assert {answer.headers["x-agent-run-id"] for answer in [*streams, later]} == {streams[0].headers["x-agent-run-id"]}
    assert {answer.text for answer in [*streams, later]} == {streams[0].text}
    assert (other.status_code, other.json()["code"]) == (409, "idempotency_mismatch")
    assert stranger.status_code == 200
    assert len((await served.http.get("/threads")).json()) == 1


@pytest.mark.parametrize("key", ["", "k" * 256])
async def test_a_key_has_bounds(served: Served, key: str) -> None:
    refused = await served.http.post("/chat", json={"message": "hello"}, headers={"idempotency-key": key})

    assert (refused.status_code, refused.json()["field"]) == (400, "Idempotency-Key")


async def test_regenerate_answers_the_last_message_again(served: Served) -> None:
    async with served.said("hello") as reader:
        await reader.rest()
    meta = reader.seen[0].data
    async with served.said("ignored", threadId=meta["threadId"], regenerate=True) as again:
        await again.rest()
    thread = (await served.http.get(f"/threads/{meta['threadId']}")).json()
    nowhere = await served.http.post("/chat", json={"regenerate": True})

    assert again.seen[0].data["runId"] != meta["runId"]
    assert [row["content"] for row in thread["messages"]] == ["hello", again.text]
    assert (nowhere.status_code, nowhere.json()["code"]) == (400, "thread_required")


async def test_cancel_while_parked(served: Served) -> None:
    async with served.said("purge users") as reader:
        card = await reader.until("approval-requested")
        meta = reader.seen[0].data
        answer = await served.http.post(f"/chat/{meta['runId']}/cancel")
        await reader.rest()
    late = await served.http.post("/tool-call/approve", json={"toolCallId": card.data["id"]})
    twice = await served.http.post(f"/chat/{meta['runId']}/cancel")
    thread = (await served.http.get(f"/threads/{meta['threadId']}")).json()

    assert (answer.status_code, answer.json()) == (200, {"aborted": True})
    assert [block.kind for block in reader.seen if block.id is not None][-1] == "cancelled"
    assert reader.kinds[-1] == "done"
    assert (late.status_code, late.json()["code"]) == (409, "run_not_active")
    assert twice.status_code == 404
    assert thread["messages"][-1]["toolResults"][0]["error"] == "cancelled"
    assert "approvals" not in thread["messages"][-1]
    assert served.desk.did == []


async def test_others_may_neither_watch_nor_stop(served: Served) -> None:
    async with served.said("purge users") as reader:
        await reader.until("approval-requested")
        run_id = reader.seen[0].data["runId"]
        watch = await served.http.get(f"/chat/{run_id}/stream", headers=BO)
        stop = await served.http.post(f"/chat/{run_id}/cancel", headers=BO)

    assert (watch.status_code, stop.status_code) == (403, 403)


async def test_pure_native_streams_carry_argument_deltas_and_nothing_of_the_older_dialect() -> None:
    async with serve(a_desk(adonis=False)) as served, served.said("purge users") as reader:
        await reader.until("approval-requested")
        run_id = reader.seen[0].data["runId"]
        await served.http.post(f"/chat/{run_id}/cancel", headers=ANA)
        await reader.rest()

    assert "tool-input-delta" in reader.kinds
    assert not any("delta" in block.data for block in reader.seen if block.kind == "text")
    assert {block.event for block in reader.seen} == {None, "meta", "done"}


async def _play(served: Served, reader: Reader) -> None:
    """Move the clock each time the slow model has said a word, up to the end of the stream."""
    while reader.kinds[-1] not in ("done", "error"):
        served.desk.clock.advance(timedelta(seconds=1))
        await reader.next()
