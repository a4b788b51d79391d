"""The superset for older clients (WIRE 8)."""

from signoff.domain import frame
from signoff.domain.call import ToolKind
from signoff.domain.frame import Frame, NumberedFrame
from signoff.http.adonis import superset
from signoff.http.sse import native


def blocks_of(value: Frame) -> str:
    return superset(NumberedFrame(seq=3, frame=value))


def test_text_also_carries_delta() -> None:
    assert blocks_of(frame.text("hi")) == 'id: 3\ndata: {"kind":"text","text":"hi","delta":"hi"}\n\n'


def test_argument_deltas_are_not_sent() -> None:
    assert blocks_of(frame.tool_input_delta(call_id="c", delta='{"k')) == ""


def test_an_approval_is_followed_by_an_unnumbered_block_without_kind() -> None:
    asked: Frame = {
        "kind": "approval-requested",
        "id": "c",
        "approver": "finance",
        "runId": "r",
        "toolName": "refund",
        "input": {"cents": 1},
    }

    first, second, end = blocks_of(asked).split("\n\n")

    assert first + "\n\n" == native(NumberedFrame(seq=3, frame=asked))
    assert second == 'event: approval\ndata: {"runId":"r","id":"c","toolName":"refund","input":{"cents":1}}'
    assert end == ""


def test_a_question_set_is_followed_by_an_unnumbered_block_without_kind() -> None:
    asked: Frame = {"kind": "elicitation", "id": "c", "runId": "r", "request": {"questions": []}}

    _, second, _ = blocks_of(asked).split("\n\n")

    assert second == 'event: elicitation\ndata: {"runId":"r","id":"c","request":{"questions":[]}}'


def test_other_frames_are_native() -> None:
    available = frame.tool_input_available(call_id="c", name="t", arguments={"delta": "x"}, kind=ToolKind.READ)

    assert blocks_of(available) == native(NumberedFrame(seq=3, frame=available))
