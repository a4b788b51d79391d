"""The page behind a decision link. GET only shows it, since mail scanners and previews follow links; POST decides."""

import base64
import hashlib
from collections.abc import Iterator
from html import escape
from http import HTTPStatus

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from signoff.domain.call import Call, ToolKind
from signoff.domain.frame import instant
from signoff.domain.safetext import safe_text, visible
from signoff.errors import Forbidden, InvalidInput, SignoffError
from signoff.http import bodies
from signoff.http.context import Door
from signoff.http.problems import problem_of
from signoff.service.decide import Decided, Verb
from signoff.service.links import Shown, decide_by_link, show

FORM_BYTES_MAX = 64 * 1024

_STYLE = """
body { font: 1rem/1.5 system-ui, sans-serif; margin: 0 auto; max-width: 44rem; padding: 1.5rem; color: #1b1f24; }
h1 { font-size: 1.3rem; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .25rem 1rem; }
dt { color: #57606a; }
dd { margin: 0; overflow-wrap: anywhere; }
pre { background: #f3f4f6; padding: 1rem; white-space: pre-wrap; overflow-wrap: anywhere; }
textarea { box-sizing: border-box; width: 100%; font: inherit; }
button { font: inherit; padding: .5rem 1.25rem; margin: .75rem .75rem 0 0; }
.doubt { border-left: .3rem solid #b54708; padding-left: 1rem; }
"""
_STYLE_HASH = base64.b64encode(hashlib.sha256(_STYLE.encode()).digest()).decode()

#: Nothing is loaded and nothing runs; the form goes back to where it came from; no other page may frame this one.
_HEADERS = {
    "content-security-policy": (
        f"default-src 'none'; style-src 'sha256-{_STYLE_HASH}'; form-action 'self'; frame-ancestors 'none'; "
        "base-uri 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "x-robots-tag": "noindex",
}


def add_link_routes(router: APIRouter, door: Door) -> None:
    """`/links/{token}`. The link is the credential: these routes ask no actor resolver."""

    @router.get("/links/{token}", include_in_schema=False)
    async def show_link(token: str) -> Response:
        try:
            return _page(HTTPStatus.OK, _card(await show(door.deps, token)))
        except SignoffError as error:
            return _refusal(error)

    @router.post("/links/{token}", include_in_schema=False)
    async def use_link(token: str, request: Request) -> Response:
        try:
            # The page's own form is same-origin; a form elsewhere would have to know the link, and is refused anyway.
            if request.headers.get("sec-fetch-site", "same-origin") not in ("same-origin", "none"):
                raise Forbidden("open the link and decide there")
            form = await bodies.read_form(request, bytes_max=FORM_BYTES_MAX)
            decided = await decide_by_link(
                door.deps, token, _verb(form.get("decision")), reason=form.get("reason", "").strip() or None
            )
            return _page(HTTPStatus.OK, _thanks(decided))
        except SignoffError as error:
            return _refusal(error)


def _verb(decision: str | None) -> Verb:
    match decision:
        case "approve":
            return Verb.APPROVE
        case "reject":
            return Verb.REJECT
        case _:
            raise InvalidInput("say approve or reject", field="decision")


def _refusal(error: SignoffError) -> Response:
    status, body = problem_of(error)
    return _page(status, [f"<h1>{_text(str(body['message']))}</h1>", "<p>Nothing was done.</p>"])


def _page(status: int, body: list[str] | Iterator[str]) -> Response:
    html = "\n".join(
        [
            "<!doctype html>",
            '<html lang="en"><head><meta charset="utf-8"><title>Sign-off</title>',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<style>{_STYLE}</style></head><body>",
            *body,
            "</body></html>",
        ]
    )
    return HTMLResponse(html, status_code=status, headers=_HEADERS)


def _card(shown: Shown) -> Iterator[str]:
    call = shown.call
    yield f"<h1>{_text(_title(call))}</h1>"
    if call.in_doubt is not None:
        yield (
            f'<p class="doubt">It was approved and started at {_text(str(call.in_doubt.get("startedAt")))}, and '
            "nobody knows whether it happened. Look before you answer.</p>"
        )
    yield "<dl>"
    for name, value in _facts(shown):
        yield f"<dt>{name}</dt><dd>{_text(value)}</dd>"
    yield "</dl>"
    yield f"<p>{'What is asked' if call.kind is ToolKind.ASK else 'What would run'}:</p>"
    yield f"<pre>{escape(safe_text(call.final_arguments))}</pre>"
    approve, reject = _buttons(call)
    yield '<form method="post"><label>A reason, if you like<textarea name="reason" maxlength="4096"></textarea></label>'
    yield f'<button name="decision" value="approve">{_text(approve)}</button>'
    yield f'<button name="decision" value="reject">{_text(reject)}</button></form>'


def _title(call: Call) -> str:
    if call.kind is ToolKind.ASK:
        return "Questions for you"
    title = None if call.confirmation is None else call.confirmation.get("title")
    return str(title) if title else f"Run {call.name}?"


def _facts(shown: Shown) -> Iterator[tuple[str, str]]:
    call = shown.call
    detail = None if call.confirmation is None else call.confirmation.get("detail")
    if detail:
        yield "Details", str(detail)
    yield "Tool", call.name
    yield "Asked by", call.actor_id
    yield "Agent", call.agent_name
    if call.request_reason:
        yield "Why you are asked", call.request_reason
    if call.quorum > 1:
        yield "Approvals", f"{shown.votes} of {call.quorum}"
    yield "You decide as", shown.link.actor.id
    yield "Until", instant(shown.link.expires_at)


def _buttons(call: Call) -> tuple[str, str]:
    if call.kind is ToolKind.ASK:
        return "Take the defaults", "Skip"
    if call.in_doubt is not None:
        return "Run it again", "Give up"
    verb = None if call.confirmation is None else call.confirmation.get("verb")
    return str(verb) if verb else "Approve", "Reject"


def _thanks(decided: Decided) -> Iterator[str]:
    decision = decided.decision
    yield f"<h1>Recorded: {_text(decision.verdict.value)}</h1>"
    if not decided.complete:
        yield f"<p>{decided.have} of {decided.needed} approvals are there.</p>"
    yield f"<p>Decided by {_text(decision.by)}. You may close this page.</p>"


def _text(text: str) -> str:
    """Text that came from a model, a tool or a person: nothing invisible, nothing that is markup."""
    return escape(visible(text))
