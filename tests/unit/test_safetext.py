"""What a person reads before saying yes (C53)."""

import pytest

from signoff.domain.jsonvalue import Json
from signoff.domain.safetext import LINES_MAX, safe_text


def test_a_line_for_each_value_with_its_path() -> None:
    arguments: Json = {
        "to": "Zoë",
        "cents": 5,
        "lines": [{"sku": "a b"}, {}],
        "odd key": None,
        "nested": {"ok": True, "x y": []},
    }

    assert safe_text(arguments).split("\n") == [
        'to = "Zoë"  (3 characters)',
        "cents = 5",
        'lines[0].sku = "a b"  (3 characters)',
        "lines[1] = {}",
        '["odd key"] = null',
        "nested.ok = true",
        'nested["x y"] = []',
    ]


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("gpj.exe\u202etxt", '"gpj.exe\\u202etxt"'),
        ("a\u200db\u200bc\ufeff", '"a\\u200db\\u200bc\\ufeff"'),
        ("a\u00a0b\u3164c\ufe0f", '"a\\u00a0b\\u3164c\\ufe0f"'),
        ("tag\U000e0041", '"tag\\udb40\\udc41"'),
        ("bell\x07 nul\0 del\x7f", '"bell\\u0007 nul\\u0000 del\\u007f"'),
        ('quote" back\\slash', '"quote\\" back\\\\slash"'),
        ("\\u202e", '"\\\\u202e"'),
        ("日本語 Привет", '"日本語 Привет"'),
    ],
)
def test_what_cannot_be_seen_is_written_out(text: str, shown: str) -> None:
    assert safe_text({"x": text}) == f"x = {shown}  ({len(text)} characters)"


@pytest.mark.parametrize("break_", ["\n", "\r\n", "\x85", "\u2028", "\u2029", "\x0b", "\x0c"])
def test_a_value_cannot_imitate_a_line(break_: str) -> None:
    assert len(safe_text({"note": f"hello{break_}cents = 1"}).splitlines()) == 1
    assert len(safe_text({f"note{break_}cents": 1}).splitlines()) == 1


def test_a_long_text_shows_its_tail_and_counts_what_is_missing() -> None:
    text = safe_text({"command": "echo " + "x" * 100_000 + "; rm -rf /"})

    assert text.startswith('command = "echo xxx')
    assert text.endswith('; rm -rf /"  (100,015 characters)')
    assert "(98,015 characters are not shown)" in text
    assert len(text) < 3000


def test_a_long_key_is_cut_with_a_count() -> None:
    assert safe_text({"k" * 1000: 1}) == f'["{"k" * 60}" (920 characters are not shown) "{"k" * 20}"] = 1'


def test_a_long_list_counts_what_is_missing() -> None:
    lines = safe_text(list(range(LINES_MAX + 50))).split("\n")

    assert lines[LINES_MAX:] == ["(50 more values are not shown)"]


def test_a_lone_value() -> None:
    assert safe_text("not even JSON {") == 'value = "not even JSON {"  (15 characters)'
