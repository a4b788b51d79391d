"""Question sets and answers: what is refused, in which words, and what comes of the rest."""

from typing import Any

import pytest

from signoff.domain.elicitation import Outcome, parse_question_set
from signoff.domain.jsonvalue import Json
from signoff.elicitation.questions import answered, skipped, validate_answers
from signoff.errors import InvalidInput

PICK: dict[str, Any] = {
    "id": "size",
    "prompt": "Which size?",
    "options": [{"value": "s", "label": "Small"}, {"value": "l", "label": "Large"}],
    "defaults": ["s"],
}


def typed(type_: str, **fields: Any) -> dict[str, Any]:
    return {"id": "q", "prompt": "?", "input": {"type": type_, **fields}}


@pytest.mark.parametrize(
    "question",
    [
        PICK,
        {**PICK, "multiple": True, "defaults": ["s", "l"]},
        {**PICK, "allowFreeText": True, "description": "By height."},
        {**PICK, "options": [{"value": "s", "label": "Small", "hotkey": "s"}]},
        typed("text", placeholder="Name", required=True, min=1, max=10, pattern="[a-z]+"),
        typed("number", min=0, max=2.5),
        typed("date", min="2026-01-01"),
        typed("boolean"),
        {**PICK, "input": {"type": "select"}, "defaults": None},
        {**typed("number", max=5), "defaults": ["3"]},
    ],
    ids=str,
)
def test_a_well_formed_question_comes_back_as_it_was(question: dict[str, Any]) -> None:
    without_none = {name: value for name, value in question.items() if value is not None}

    assert parse_question_set({"questions": [without_none]}).as_json() == {"questions": [without_none]}


@pytest.mark.parametrize(
    ("question", "complaint"),
    [
        ({"id": "q", "prompt": "?"}, "questions[0]: a pick needs options"),
        (typed("select"), "questions[0]: a pick needs options"),
        ({**PICK, "defaults": None}, "questions[0]: a pick needs defaults, drawn from its options"),
        ({**PICK, "defaults": []}, "questions[0]: a pick needs defaults, drawn from its options"),
        ({**PICK, "defaults": ["m"]}, "questions[0]: every default must be the value of an option"),
        ({**PICK, "defaults": ["s", "l"]}, "questions[0]: defaults: takes one value"),
        ({**PICK, "options": PICK["options"][:1] * 2}, "questions[0]: two options have the same value"),
        ({**PICK, "id": ""}, "questions[0].id: "),
        ({**PICK, "id": 'a"b'}, "questions[0].id: "),
        ({**PICK, "prompt": ""}, "questions[0].prompt: "),
        ({**PICK, "optional": True}, "questions[0].optional: Extra inputs are not permitted"),
        (typed("colour"), "questions[0].input.type: Input should be 'text'"),
        (typed("number", min="a"), "questions[0].input: min must be a number"),
        (typed("number", min=3, max=2), "questions[0].input: min must not be above max"),
        (typed("date", max="2026-02-30"), "questions[0].input: max of a date must be YYYY-MM-DD"),
        (typed("boolean", min=1), "questions[0].input: min does not apply to type 'boolean'"),
        (typed("number", pattern="1+"), "questions[0].input: pattern does not apply to type 'number'"),
        (typed("text", pattern="("), "questions[0].input: pattern is not a regular expression"),
        (typed("text", pattern="(?=a)"), "questions[0].input: pattern is not a regular expression"),
        ({**typed("number", max=5), "defaults": ["9"]}, "questions[0]: defaults: must be at most 5"),
        ("size?", "questions[0]: Input should be"),
    ],
    ids=lambda value: str(value)[:60],
)
def test_a_malformed_question_is_named_with_its_fault(question: Json, complaint: str) -> None:
    if isinstance(question, dict):
        question = {name: value for name, value in question.items() if value is not None}
    with pytest.raises(InvalidInput) as caught:
        parse_question_set({"questions": [question]})
    assert str(caught.value).startswith(f"malformed question set: {complaint}")


@pytest.mark.parametrize(
    ("request_", "complaint"),
    [
        ({"questions": []}, "questions: "),
        ({}, "questions: Field required"),
        ("ask", "Input should be"),
        ({"questions": [PICK, PICK]}, "two questions have the id 'size'"),
        ({"questions": [PICK], "title": "x"}, "title: Extra inputs are not permitted"),
    ],
    ids=str,
)
def test_a_malformed_set_is_refused(request_: Json, complaint: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        parse_question_set(request_)
    assert str(caught.value).startswith(f"malformed question set: {complaint}")


def test_a_stored_request_is_read_back() -> None:
    stored: Json = {"id": "intake-run_1", "source": "intake", "questions": [PICK]}

    assert parse_question_set(stored).as_json() == {"questions": [PICK]}


@pytest.mark.parametrize(
    ("question", "value", "reason"),
    [
        (PICK, ["m"], "'m' is not one of the options"),
        (PICK, ["s", "l"], "takes one value"),
        (PICK, "s", "must be an array of strings"),
        (PICK, [1], "must be an array of strings"),
        (PICK, None, "must be an array of strings"),
        (PICK, ["x" * 4097], "must have values of at most 4096 characters"),
        (PICK, ["s"] * 101, "must have at most 100 values"),
        (typed("number"), ["1,5"], "must be a decimal number"),
        (typed("number"), ["1e5"], "must be a decimal number"),
        (typed("number"), ["nan"], "must be a decimal number"),
        (typed("number"), ["١"], "must be a decimal number"),
        (typed("number", min=1), ["0.99"], "must be at least 1"),
        (typed("number", max=2), ["2.01"], "must be at most 2"),
        (typed("boolean"), ["yes"], 'must be "true" or "false"'),
        (typed("date"), ["2026-2-1"], "must be a date, YYYY-MM-DD"),
        (typed("date"), ["2026-02-30"], "must be a date, YYYY-MM-DD"),
        (typed("date", min="2026-03-01"), ["2026-02-28"], "must be at least 2026-03-01"),
        (typed("email"), ["ana"], "must be an e-mail address"),
        (typed("url"), ["javascript:alert(1)"], "must be a URL, http or https"),
        (typed("text", max=3), ["four"], "length must be at most 3"),
        (typed("text", pattern="[a-z]+"), ["a1"], "must match [a-z]+"),
        (typed("text", pattern="[a-z]+"), ["ab\n"], "must match [a-z]+"),
        (typed("text", required=True), [], "is required"),
        (typed("text", required=True), ["  "], "is required"),
        (typed("text"), ["a", "b"], "takes one value"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_a_wrong_answer_is_refused_by_question_and_reason(question: dict[str, Any], value: Json, reason: str) -> None:
    asked = parse_question_set({"questions": [question]})

    with pytest.raises(InvalidInput) as caught:
        validate_answers(asked, {question["id"]: value})

    assert str(caught.value) == f'answers["{question["id"]}"] {reason}'
    assert caught.value.field == "answers"


@pytest.mark.parametrize(
    ("answers", "message"),
    [
        ({"colour": ["red"]}, 'answers["colour"] is not a question of this card'),
        ([], "answers must be an object of string arrays"),
        ({str(index): list[Json]() for index in range(101)}, "answers must name at most 100 questions"),
    ],
    ids=lambda value: str(value)[:40],
)
def test_answers_to_something_else_are_refused(answers: Json, message: str) -> None:
    with pytest.raises(InvalidInput) as caught:
        validate_answers(parse_question_set({"questions": [PICK]}), answers)
    assert str(caught.value) == message


def test_a_required_question_without_defaults_cannot_be_left_out() -> None:
    asked = parse_question_set({"questions": [typed("text", required=True)]})

    with pytest.raises(InvalidInput, match='answers\\["q"\\] is required'):
        validate_answers(asked, {})


@pytest.mark.parametrize(
    ("question", "value", "kept"),
    [
        (PICK, ["l"], ("l",)),
        (PICK, [], ()),
        ({**PICK, "multiple": True}, ["s", "l", "s"], ("s", "l")),
        ({**PICK, "allowFreeText": True}, ["extra large"], ("extra large",)),
        (typed("number"), ["-1.50"], ("-1.50",)),
        (typed("date"), ["2026-02-01"], ("2026-02-01",)),
        (typed("text"), [""], ()),
        (typed("text"), ["a\ud800"], ("a\ufffd",)),
        (typed("email"), ["ana@example.org"], ("ana@example.org",)),
        (typed("url"), ["https://example.org/a?b"], ("https://example.org/a?b",)),
    ],
    ids=lambda value: ascii(value)[:40],
)
def test_a_right_answer_is_kept(question: dict[str, Any], value: list[Json], kept: tuple[str, ...]) -> None:
    asked = parse_question_set({"questions": [question]})

    answers = validate_answers(asked, {question["id"]: value})

    assert answers.values == {question["id"]: kept}
    assert answers.defaulted == ()


def test_what_is_left_out_takes_its_defaults_and_none_does_not() -> None:
    asked = parse_question_set({"questions": [PICK, {**PICK, "id": "other"}, typed("text")]})

    outcome = answered(asked, validate_answers(asked, {"other": []}), by="ana", via="web")

    assert outcome.as_json() == {
        "answers": {"size": ["s"], "other": [], "q": []},
        "skipped": False,
        "defaulted": ["size", "q"],
        "summary": "Which size?: Small\nWhich size?: (none)\n?: (none)",
        "answeredBy": "ana",
        "answeredVia": "web",
    }


def test_a_skip_defaults_every_question() -> None:
    asked = parse_question_set({"questions": [PICK, typed("text", required=True)]})

    outcome = skipped(asked, by="ana", via="web")

    assert (outcome.skipped, outcome.defaulted) == (True, ("size", "q"))
    assert outcome.answers == {"size": ("s",), "q": ()}


def test_an_outcome_reads_back() -> None:
    asked = parse_question_set({"questions": [PICK]})
    outcome = answered(asked, validate_answers(asked, {"size": ["l"]}), by=None, via=None)

    assert Outcome.from_json(outcome.as_json()) == outcome
