"""Errors and their statuses."""

import inspect
from datetime import UTC, datetime

import pytest

from signoff import errors
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import SignoffError
from signoff.http.problems import problem_of, problem_response

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)

CASES: list[tuple[SignoffError, int, str, JsonObject]] = [
    (errors.InvalidInput("bad", field="title"), 400, "invalid_input", {"field": "title"}),
    (errors.InvalidInput("no thread", code="thread_required"), 400, "thread_required", {}),
    (errors.NotJson(what="output", reason="NaN"), 400, "not_json", {}),
    (errors.Unauthenticated(), 401, "unauthenticated", {}),
    (errors.Forbidden("no"), 403, "forbidden", {}),
    (errors.NotFound("thread", "t"), 404, "not_found", {}),
    (errors.StreamReset("r"), 404, "stream_reset", {}),
    (errors.RunActive("t", "r"), 409, "run_active", {"runId": "r"}),
    (errors.RunActive("t"), 409, "run_active", {}),
    (errors.RunNotActive("r"), 409, "run_not_active", {}),
    (
        errors.AlreadyDecided("c", status="rejected", decided_by="ana"),
        409,
        "already_decided",
        {"status": "rejected", "decidedBy": "ana"},
    ),
    (errors.AlreadyDecided("c", status="expired", decided_by=None), 409, "already_decided", {"status": "expired"}),
    (errors.CardChanged("c", "d1"), 409, "card_changed", {"digest": "d1"}),
    (errors.WrongKind("a question"), 409, "wrong_kind", {}),
    (errors.IdempotencyMismatch("k"), 409, "idempotency_mismatch", {}),
    (errors.LinkInvalid(), 404, "link_invalid", {}),
    (errors.LinkSpent("used"), 410, "link_spent", {}),
    (errors.Expired("c", NOON), 410, "expired", {"expiresAt": "2026-01-01T12:00:00.000Z"}),
    (errors.TooLarge(what="it", size=2, size_max=1), 413, "too_large", {}),
    (errors.QuotaExceeded(period="month"), 429, "quota_exceeded", {"period": "month"}),
]


@pytest.mark.parametrize(("error", "status", "code", "details"), CASES, ids=lambda value: type(value).__name__)
def test_what_a_caller_is_told(error: SignoffError, status: int, code: str, details: JsonObject) -> None:
    assert problem_of(error) == (status, {"message": str(error), "code": code, "error": str(error), **details})


def test_a_busy_store_is_503_without_its_text() -> None:
    response = problem_response(errors.StoreBusy("deadlock in INSERT …"))

    assert response.status_code == 503
    assert response.headers["retry-after"] == "1"
    assert b"INSERT" not in bytes(response.body)
    assert b"store_busy" in bytes(response.body)


@pytest.mark.parametrize(
    "error",
    [RuntimeError("hunter2"), errors.ModelError("hunter2"), errors.StepFailed("s", error_type="X", message="hunter2")],
)
def test_what_is_not_the_callers_fault_is_500_without_its_text(error: Exception) -> None:
    status, body = problem_of(error)

    assert status == 500
    assert body["code"] == "internal"
    assert "hunter2" not in str(body)


def test_no_error_of_the_use_cases_is_forgotten() -> None:
    """Errors that no request can meet: those of start-up, of the engine and of models."""
    inside = {
        "SignoffError",
        "ConfigurationError",
        "EngineUnavailable",
        "ModelError",
        "ModelNoOutput",
        "SignalTimeout",
        "StepFailed",
        "InDoubt",
        "ChildCancelled",
        "UnknownWorkflow",
        "PositionsExhausted",
    }
    told = {type(error).__name__ for error, *_ in CASES} | {"StoreBusy"}
    known = {name for name, class_ in inspect.getmembers(errors, inspect.isclass) if issubclass(class_, SignoffError)}

    assert known - told == inside
