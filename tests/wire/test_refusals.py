"""Every route, asked wrongly: by nobody, by others, about nothing, with rubbish."""

import re
from collections.abc import AsyncIterator
from dataclasses import dataclass

import httpx
import pytest
from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from signoff import cors_options
from signoff.errors import ConfigurationError
from tests.wire.conftest import Served
from tests.wire.desk import ADMIN, BO, Desk, a_desk


@dataclass(frozen=True, slots=True, kw_only=True)
class Route:
    """A route: its method, and its path with `{names}`."""

    method: str
    path: str

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    def filled(self, **ids: str) -> str:
        """The path with ids; what is not given is `nothing`."""
        return re.sub(r"\{(\w+)\}", lambda name: ids.get(name[1], "nothing"), self.path)


def _routes() -> list[Route]:
    router = Desk().router
    return [
        Route(method=method, path=getattr(route, "path"))  # noqa: B009
        for route in router.routes
        for method in sorted(getattr(route, "methods"))  # noqa: B009
    ]


ROUTES = _routes()
BODIES: dict[str, dict[str, object]] = {
    "POST /chat": {"message": "hello"},
    "PATCH /threads/{thread_id}": {"title": "x"},
    "POST /approvals/decide": {"decisions": [{"decision": "approve", "toolCallId": "nothing"}]},
    "POST /tool-call/approve": {"toolCallId": "nothing"},
    "POST /tool-call/reject": {"toolCallId": "nothing"},
    "POST /tool-call/answer": {"toolCallId": "nothing", "answers": {}},
    "POST /tool-call/skip": {"toolCallId": "nothing"},
    "POST /tool-call/settle": {"toolCallId": "nothing", "output": {}},
}
WITH_BODY = [route for route in ROUTES if str(route) in BODIES]
ABOUT_A_THREAD = [route for route in ROUTES if "{thread_id}" in route.path]
ABOUT_A_RUN = [route for route in ROUTES if "{run_id}" in route.path]
ABOUT_A_CALL = [route for route in ROUTES if route.path.startswith("/tool-call/")]


@pytest.fixture
async def http() -> AsyncIterator[httpx.AsyncClient]:
    async with a_desk().client() as client:
        yield client


def told(response: httpx.Response, status: int, code: str | None = None) -> None:
    """The response is a refusal in the contract's shape."""
    assert response.status_code == status, response.text
    problem = response.json()
    assert problem["message"] == problem["error"]
    assert problem["message"]
    assert "detail" not in problem
    assert code is None or problem["code"] == code


async def test_the_routes_of_the_contract_are_all_there() -> None:
    assert {str(route) for route in ROUTES} >= set(BODIES)
    assert len(ABOUT_A_THREAD) == 12
    assert len(ABOUT_A_RUN) == 2
    assert len(ABOUT_A_CALL) == 5


async def test_without_a_resolver_every_route_is_401() -> None:
    async with Desk().client() as http:
        for route in ROUTES:
            told(await http.request(route.method, route.filled()), 401, "unauthenticated")
            told(await http.request(route.method, route.filled(), content=b"rubbish"), 401)


async def test_without_an_actor_every_route_is_401() -> None:
    async with a_desk().client({}) as http:
        for route in ROUTES:
            told(await http.request(route.method, route.filled(), json=BODIES.get(str(route))), 401)


async def test_what_does_not_exist_is_404(http: httpx.AsyncClient) -> None:
    offered = [route for route in ABOUT_A_THREAD + ABOUT_A_RUN + ABOUT_A_CALL if not await _is_not_offered(http, route)]
    assert len(offered) > 12
    for route in offered:
        told(await http.request(route.method, route.filled(), json=BODIES.get(str(route))), 404, "not_found")
    told(await http.post("/chat", json={"message": "hi", "threadId": "nothing"}), 404, "not_found")


@pytest.mark.parametrize("id_", ["%00", "a%00b", "x" * 300, "%ff%fe", "%ED%A0%80", "..%2f..", "%E2%80%AE"])
async def test_ids_that_cannot_be_are_unknown(http: httpx.AsyncClient, id_: str) -> None:
    for route in ABOUT_A_THREAD + ABOUT_A_RUN:
        path = route.filled(thread_id=id_, run_id=id_)
        response = await http.request(route.method, path, json=BODIES.get(str(route)))
        assert response.status_code in (404, 501), response.text


async def test_what_belongs_to_somebody_else_is_403(served: Served) -> None:
    async with served.said("purge users") as reader:
        card = await reader.until("approval-requested")
        ids = {"thread_id": reader.seen[0].data["threadId"], "run_id": reader.seen[0].data["runId"]}
        before = (await served.http.get(f"/threads/{ids['thread_id']}")).json()
        ids["message_id"] = before["messages"][0]["id"]
        for who in (BO, ADMIN):
            for route in ABOUT_A_THREAD + ABOUT_A_RUN + ABOUT_A_CALL:
                if await _is_not_offered(served.http, route):
                    continue
                body = BODIES.get(str(route))
                if route in ABOUT_A_CALL:
                    body = {**BODIES[str(route)], "toolCallId": card.data["id"]}
                told(await served.http.request(route.method, route.filled(**ids), json=body, headers=who), 403)
            theirs = {"message": "hi", "threadId": ids["thread_id"]}
            told(await served.http.post("/chat", json=theirs, headers=who), 403)

        assert (await served.http.get(f"/threads/{ids['thread_id']}")).json() == before
        assert served.desk.did == []


async def test_what_is_not_offered_says_so(http: httpx.AsyncClient) -> None:
    for method, path in (
        ("POST", "/threads/t/action-proposals/p/approve"),
        ("POST", "/attachments"),
        ("GET", "/attachments"),
        ("POST", "/messages/m/feedback"),
        ("GET", "/skills?threadId=t"),
        ("PATCH", "/queue/m"),
    ):
        told(await http.request(method, path), 501, "not_offered")


RUBBISH = [
    b"",
    b"{",
    b"null",
    b'"maybe"',
    b"[]",
    b"\xff\xfe\x00",
    b'{"toolCallId": "\\ud800", "message": "\\ud800", "title": "\\ud800", "decisions": ["\\ud800"]}',
    b'{"toolCallId": 1, "message": 1, "title": 1, "decisions": 1}',
    b'{"toolCallId": {}, "message": {}, "title": {}, "decisions": {}}',
    b'{"toolCallId": null, "message": null, "title": null, "decisions": null}',
    b'{"toolCallId": "", "message": "", "title": "", "decisions": []}',
    b'{"x":' * 5000 + b"1" + b"}" * 5000,
    b"[" * 500_000,
]


@pytest.mark.parametrize("raw", RUBBISH, ids=lambda raw: raw[:20].decode(errors="replace"))
async def test_rubbish_is_400(http: httpx.AsyncClient, raw: bytes) -> None:
    thread_id = (await http.post("/chat", json={"message": "hello"})).headers["x-agent-thread-id"]
    for route in WITH_BODY:
        path = route.filled(thread_id=thread_id)
        told(await http.request(route.method, path, content=raw, headers={"content-type": "application/json"}), 400)


async def test_a_nul_is_text_but_no_part_of_an_id(http: httpx.AsyncClient) -> None:
    for route in ABOUT_A_CALL:
        told(await http.post(route.path, json={**BODIES[str(route)], "toolCallId": "a\0b"}), 400)
        told(await http.post(route.path, json={**BODIES[str(route)], "runId": "a\0b"}), 400)
    told(await http.post("/chat", json={"message": "hi", "threadId": "a\0b"}), 400)
    said = await http.post("/chat", json={"message": "a\0b"})
    thread = (await http.get(f"/threads/{said.headers['x-agent-thread-id']}")).json()
    assert thread["messages"][0]["content"] == "a\0b"


async def test_queries_are_checked(http: httpx.AsyncClient) -> None:
    for path in (
        "/approvals/mine?limit=0",
        "/approvals/mine?limit=-1",
        "/approvals/mine?limit=x",
        "/approvals/mine?limit=501",
        "/approvals/mine?cursor=nonsense",
        "/approvals/mine?cursor=%00",
        "/tools?agent=%00",
    ):
        told(await http.get(path), 400)
    for path in (
        "/approvals?limit=0",
        "/approvals?due=tomorrow",
        "/approvals?due=2026-01-01",
        "/approvals?due=2026-01-01T00:00:00",
        "/approvals?cursor=nonsense",
        "/approvals?tool=%00",
    ):
        told(await http.get(path, headers=ADMIN), 400)


async def test_10_megabytes_are_413(http: httpx.AsyncClient) -> None:
    big = b'{"toolCallId": "' + b"x" * 10_000_000 + b'"}'
    for route in WITH_BODY:
        path = route.filled()
        told(
            await http.request(route.method, path, content=big, headers={"content-type": "application/json"}),
            413,
            "too_large",
        )


async def test_10_megabytes_without_an_announced_length_are_413_on_a_real_connection(served: Served) -> None:
    async def chunks() -> AsyncIterator[bytes]:
        yield b'{"message": "'
        for _ in range(160):
            yield b"x" * 65536

    response = await served.http.post("/chat", content=chunks(), headers={"content-type": "application/json"})

    told(response, 413, "too_large")
    assert (await served.http.get("/threads")).json() == []


async def test_posts_without_a_body_need_no_content_type(served: Served) -> None:
    async with served.said("hello", transient=True) as reader:
        await reader.rest()
    thread_id = reader.seen[0].data["threadId"]
    row = (await served.http.get(f"/threads/{thread_id}")).json()["messages"][0]

    for path in (f"/threads/{thread_id}/promote", f"/threads/{thread_id}/fork-from/{row['id']}"):
        request = served.http.build_request("POST", path)
        assert "content-type" not in request.headers
        assert (await served.http.send(request)).status_code == 200


async def test_a_body_that_is_not_json_is_400(http: httpx.AsyncClient) -> None:
    """A form on another site can send it with the person's cookies."""
    told(await http.post("/tool-call/approve", data={"toolCallId": "c"}), 400)
    told(await http.post("/tool-call/approve", content=b'{"toolCallId":"c"}'), 400)


async def test_a_browser_of_another_origin() -> None:
    desk = a_desk()
    options = cors_options(["https://app.example"], identity_headers=["x-actor-id", "x-actor-role"])
    desk.api.add_middleware(CORSMiddleware, **options)
    async with desk.client() as http:
        asked = {
            "origin": "https://app.example",
            "access-control-request-method": "PATCH",
            "access-control-request-headers": "content-type, last-event-id, idempotency-key, x-actor-id",
        }
        preflight = await http.options("/threads/t", headers=asked)
        answer = await http.get("/threads", headers={"origin": "https://app.example"})
        other = await http.options("/threads/t", headers={**asked, "origin": "https://evil.example"})

    assert preflight.status_code == 200
    assert preflight.headers["access-control-allow-origin"] == "https://app.example"
    assert preflight.headers["access-control-allow-credentials"] == "true"
    exposed = {name.strip().lower() for name in answer.headers["access-control-expose-headers"].split(",")}
    assert exposed == {"x-agent-run-id", "x-agent-thread-id", "x-total-count", "x-next-cursor"}
    assert other.status_code == 400


@pytest.mark.parametrize("origins", ["https://app.example", ["*"]])
def test_origins_are_named(origins: list[str]) -> None:
    with pytest.raises(ConfigurationError):
        cors_options(origins)


async def test_an_unexpected_failure_tells_nothing_and_is_logged_without_values(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    desk = a_desk()
    values = ["hunter2"]

    async def broken(work: object) -> object:
        raise RuntimeError(f"INSERT {values}")

    async with desk.client() as http:
        monkeypatch.setattr(desk.signoff.store, "read", broken)
        told(await http.get("/threads"), 500, "internal")

    assert "RuntimeError" in caplog.text
    assert "GET /threads" in caplog.text
    assert "hunter2" not in caplog.text


def test_the_openapi_document() -> None:
    desk = Desk()
    document = desk.api.openapi()
    operations = {
        f"{method.upper()} {path.removeprefix('/agent')}": operation
        for path, methods in document["paths"].items()
        for method, operation in methods.items()
    }

    assert set(operations) <= {str(route) for route in ROUTES}
    ids = [operation["operationId"] for operation in operations.values()]
    assert len(set(ids)) == len(ids)
    for name, operation in operations.items():
        assert "422" not in operation["responses"], name
        assert {"200", "401", "default"} <= set(operation["responses"]), name
        assert ("requestBody" in operation) == (name in BODIES), name
        streams = name in ("POST /chat", "GET /chat/{run_id}/stream")
        content = "text/event-stream" if streams else "application/json"
        assert list(operation["responses"]["200"]["content"]) == [content], name
    for reference in re.findall(r"'\$ref': '([^']+)'", str(document)):
        found = document
        for part in reference.removeprefix("#/").split("/"):
            found = found[part]


async def test_two_desks_in_one_application() -> None:
    """The prefix is the application's, and so are other routes' own errors."""
    api = FastAPI()
    api.include_router(a_desk().router, prefix="/one/agent")
    api.include_router(Desk().router, prefix="/two")
    transport = httpx.ASGITransport(api)
    async with httpx.AsyncClient(transport=transport, base_url="http://desk") as http:
        told(await http.get("/one/agent/threads"), 401)
        told(await http.get("/two/threads"), 401)
        assert (await http.get("/threads")).json() == {"detail": "Not Found"}


async def _is_not_offered(http: httpx.AsyncClient, route: Route) -> bool:
    return (await http.request(route.method, route.filled(), json=BODIES.get(str(route)))).status_code == 501
