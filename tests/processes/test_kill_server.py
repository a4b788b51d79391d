"""SIGKILL of a real server: mid-stream, while parked, and between an effect and its checkpoint."""

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import httpx
import pytest

from tests.processes.bank_process import BankProcess
from tests.wire.desk import Reader

HEADERS = {"x-actor-id": "ana", "x-actor-role": "USER"}


@pytest.fixture
def bank(tmp_path: Path) -> Iterator[BankProcess]:
    with BankProcess(tmp_path) as bank:
        yield bank


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(headers=HEADERS, timeout=30) as client:
        yield client


async def send_until(bank: BankProcess, http: httpx.AsyncClient, message: str, kind: str) -> Reader:
    """Send a message and read its stream up to `kind`; the connection is dropped then."""
    async with http.stream("POST", f"{bank.url}/agent/chat", json={"message": message}) as response:
        assert response.status_code == 200
        reader = Reader(response)
        await reader.until(kind)
        return reader


async def read_until(
    bank: BankProcess, http: httpx.AsyncClient, run_id: str, kind: str | None, *, after: int | None = None
) -> Reader:
    """Attach and read up to `kind`, or to the end."""
    params = {} if after is None else {"after": str(after)}
    async with http.stream("GET", f"{bank.url}/agent/chat/{run_id}/stream", params=params) as response:
        if response.status_code != 200:
            await response.aread()
        assert response.status_code == 200, response.text
        reader = Reader(response)
        if kind is None:
            await reader.rest()
        else:
            await reader.until(kind)
        return reader


async def decide(bank: BankProcess, http: httpx.AsyncClient, verb: str, **body: object) -> httpx.Response:
    return await http.post(f"{bank.url}/agent/tool-call/{verb}", json=body)


def ids_of(reader: Reader) -> tuple[str, str]:
    meta = next(block for block in reader.seen if block.event == "meta")
    return meta.data["runId"], meta.data["threadId"]


def card_of(reader: Reader) -> str:
    cards = [block.data["id"] for block in reader.seen if block.kind == "approval-requested"]
    assert cards
    return str(cards[-1])


async def thread_of(bank: BankProcess, http: httpx.AsyncClient, thread_id: str) -> dict[str, object]:
    answer = await http.get(f"{bank.url}/agent/threads/{thread_id}")
    found: dict[str, object] = answer.json()
    return found


async def test_a_run_killed_while_parked_is_approved_by_the_next_process(
    bank: BankProcess, http: httpx.AsyncClient
) -> None:
    reader = await send_until(bank, http, "transfer", "approval-requested")
    run_id, thread_id = ids_of(reader)
    last = reader.numbers[-1]

    for _ in range(3):
        bank.kill()
        bank.start()
    assert (await decide(bank, http, "approve", toolCallId=card_of(reader))).status_code == 200
    rest = await read_until(bank, http, run_id, None, after=last)

    assert rest.numbers[0] == last + 1
    assert rest.kinds[-1] == "done"
    assert bank.count("read") == 1
    assert bank.count("transfer") == 1
    assert bank.count("model") == 3
    assert (await thread_of(bank, http, thread_id))["activeRunId"] is None


async def test_a_reader_after_a_kill_mid_stream_sees_one_clean_answer(
    bank: BankProcess, http: httpx.AsyncClient
) -> None:
    bank.arm("die-mid-stream")
    with pytest.raises(httpx.HTTPError):
        await send_until(bank, http, "long", "done")
    bank.wait_for_death()
    bank.start()

    threads = (await http.get(f"{bank.url}/agent/threads")).json()
    run_id = threads[0]["activeRunId"]
    # A reader that saw words of the lost attempt is cut off when they are withdrawn, and attaches afresh.
    reader = await read_until(bank, http, run_id, None)
    if reader.kinds[-1] != "done":
        reader = await read_until(bank, http, run_id, None)

    assert reader.kinds[-1] == "done"
    assert reader.text == "one two three four five six seven eight nine ten"
    assert bank.count("model") == 2
    thread = await thread_of(bank, http, threads[0]["id"])
    messages = thread["messages"]
    assert isinstance(messages, list)
    assert [message["content"] for message in messages] == ["long", reader.text]


async def test_an_action_killed_after_its_effect_is_not_repeated_but_asked_about(
    bank: BankProcess, http: httpx.AsyncClient
) -> None:
    reader = await send_until(bank, http, "transfer", "approval-requested")
    run_id, thread_id = ids_of(reader)
    bank.arm("die-after-effect")
    await decide(bank, http, "approve", toolCallId=card_of(reader))
    bank.wait_for_death()
    bank.start()

    doubtful = await read_until(bank, http, run_id, "approval-requested", after=reader.numbers[-1])
    card = doubtful.seen[-1].data

    assert card["inDoubt"]["attempt"] == 1
    assert bank.count("transfer") == 1
    settled = await decide(bank, http, "settle", toolCallId=card["id"], output={"receipt": "seen at the bank"})
    assert settled.status_code == 200, settled.text
    rest = await read_until(bank, http, run_id, None, after=doubtful.numbers[-1])
    outputs = [block.data["output"] for block in rest.seen if block.kind == "tool-output"]
    assert outputs == [{"receipt": "seen at the bank"}]
    assert bank.count("transfer") == 1
    assert (await thread_of(bank, http, thread_id))["activeRunId"] is None


async def test_an_idempotent_action_killed_after_its_effect_runs_again_under_its_key(
    bank: BankProcess, http: httpx.AsyncClient
) -> None:
    reader = await send_until(bank, http, "pay", "approval-requested")
    run_id, _ = ids_of(reader)
    bank.arm("die-after-effect")
    await decide(bank, http, "approve", toolCallId=card_of(reader))
    bank.wait_for_death()
    bank.start()

    await read_until(bank, http, run_id, None, after=reader.numbers[-1])

    paid = [line for line in bank.effects if line.startswith("pay ")]
    assert len(paid) == 2
    assert len(set(paid)) == 1  # the same key: one payment
