"""Errors on the wire: a status and `{message, code, error}`. The only file that knows statuses."""

import logging
import traceback
from collections.abc import Callable, Coroutine

from fastapi.exceptions import RequestValidationError
from fastapi.routing import APIRoute
from pydantic import BaseModel, ConfigDict
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from signoff import errors
from signoff.domain.frame import instant
from signoff.domain.jsonvalue import JsonObject, encode
from signoff.errors import SignoffError

log = logging.getLogger(__name__)

#: Looked up by class, then by base class. What is missing is not the caller's fault: 500.
_STATUS: dict[type[SignoffError], int] = {
    errors.InvalidInput: 400,
    errors.NotJson: 400,
    errors.Unauthenticated: 401,
    errors.Forbidden: 403,
    errors.NotFound: 404,
    errors.StreamReset: 404,
    errors.LinkInvalid: 404,
    errors.RunActive: 409,
    errors.RunNotActive: 409,
    errors.AlreadyDecided: 409,
    errors.CardChanged: 409,
    errors.WrongKind: 409,
    errors.IdempotencyMismatch: 409,
    errors.Expired: 410,
    errors.LinkSpent: 410,
    errors.TooLarge: 413,
    errors.QuotaExceeded: 429,
    errors.StoreBusy: 503,
}

INTERNAL = "something went wrong on our side; please try again"
NOT_OFFERED = 501


class SignoffProblem(BaseModel):
    """Every refusal, as it is described. `message` is for people; `error` is the same text, for older clients."""

    model_config = ConfigDict(extra="allow")

    message: str
    code: str
    error: str


def problem_of(error: Exception) -> tuple[int, JsonObject]:
    """Status and body that tell a caller about `error`; nothing of an unexpected one is told."""
    status = _status_of(error)
    if not isinstance(error, SignoffError) or status is None:
        return 500, body(INTERNAL, "internal")
    code = error.code
    if isinstance(error, errors.InvalidInput) and error.specific_code:
        code = error.specific_code
    if status == 503:
        return status, body("the service is busy; please try again", code)
    return status, {**body(str(error), code), **_details(error)}


def body(message: str, code: str) -> JsonObject:
    """The shape of a refusal."""
    return {"message": message, "code": code, "error": message}


def problem_response(error: Exception) -> Response:
    """`problem_of` as a response."""
    status, content = problem_of(error)
    return refusal(status, content)


def refusal(status: int, content: JsonObject) -> Response:
    """A response for a refusal whose status and body are known."""
    headers = {"retry-after": "1"} if status == 503 else None
    return Response(encode(content), status_code=status, headers=headers, media_type="application/json")


class ProblemRoute(APIRoute):
    """A route whose errors are answered in our shape, whatever application the router is included in."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[object, object, Response]]:
        """The route's handler, guarded."""
        handler = super().get_route_handler()

        async def guarded(request: Request) -> Response:
            try:
                return await handler(request)
            except RequestValidationError as error:
                return problem_response(_from_validation(error))
            except (HTTPException, ClientDisconnect):
                raise
            except Exception as error:  # noqa: BLE001  # the edge: nothing may reach the caller in another shape
                if _status_of(error) is None:
                    log_unexpected(f"{request.method} {self.path}", error)
                return problem_response(error)

        return guarded


def log_unexpected(where: str, error: BaseException) -> None:
    """Log an error by its place, never by its text: a driver's error quotes the values it was given."""
    frames = "".join(traceback.format_tb(error.__traceback__))
    log.error("%s failed: %s at\n%s", where, _names(error), frames)


def _names(error: BaseException) -> str:
    names = [type(error).__qualname__]
    while (cause := error.__cause__) is not None:
        names.append(type(cause).__qualname__)
        error = cause
    return " from ".join(names)


def _status_of(error: Exception) -> int | None:
    for class_ in type(error).__mro__:
        if class_ in _STATUS:
            return _STATUS[class_]
    return None


def _details(error: SignoffError) -> JsonObject:
    """What a handler needs beside the code, where the error carries it."""
    match error:
        case errors.InvalidInput(field=str(field)):
            return {"field": field}
        case errors.RunActive(run_id=str(run_id)):
            return {"runId": run_id}
        case errors.AlreadyDecided(status=status, decided_by=decided_by):
            return {"status": status} if decided_by is None else {"status": status, "decidedBy": decided_by}
        case errors.Expired(expires_at=expires_at):
            return {"expiresAt": instant(expires_at)}
        case errors.CardChanged(digest=str(digest)):
            return {"digest": digest}
        case errors.QuotaExceeded(period=period):
            return {"period": period}
        case _:
            return {}


def _from_validation(error: RequestValidationError) -> SignoffError:
    """FastAPI's complaint about a path or query parameter in our words (bodies are read in `bodies.py`)."""
    first = error.errors()[0]
    place, *name = (str(part) for part in first["loc"])
    field = ".".join(name)
    if place == "path":
        return errors.NotFound(field.removesuffix("_id"), str(first["input"]))
    return errors.InvalidInput(f"{field}: {first['msg']}", field=field)


def responses(*statuses: int, ok: object = None) -> dict[int | str, dict[str, object]]:
    """What a route answers, for its OpenAPI description: the shape of its 200, and its refusals.

    `default` stands in for the 422 that FastAPI would declare and we never answer.
    """
    declared: dict[int | str, dict[str, object]] = {
        status: {"content": _PROBLEM, "description": _MEANING[status]} for status in sorted({401, *statuses})
    }
    declared["default"] = {"model": SignoffProblem, "description": "Any other refusal, in the same shape"}
    if ok is not None:
        declared[200] = {"model": ok, "description": "Done"}
    return declared


#: `default` brings the model itself, under a name no application has; to repeat it for each status would cost every
#: start a tenth of a second.
_PROBLEM = {"application/json": {"schema": {"$ref": "#/components/schemas/SignoffProblem"}}}

_MEANING = {
    400: "The request is malformed; `field` names the part",
    401: "Nobody acts",
    403: "The actor may not do this",
    404: "No such thing, or not any more",
    409: "It conflicts with what happened before; `code` says how",
    410: "The deadline has passed",
    413: "Too large",
    429: "The quota is spent; `period` says which",
    501: "Not offered",
}
