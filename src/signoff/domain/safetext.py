"""Arguments as text a person can trust: nothing in it is invisible, turned around or cut in silence (C53)."""

import json
import unicodedata
from collections.abc import Iterator

from signoff.domain.jsonvalue import Json

#: A longer text is shown by its head and its tail, with a count of what is between them.
HEAD_CHARS = 1500
TAIL_CHARS = 500
KEY_HEAD_CHARS = 60
KEY_TAIL_CHARS = 20
LINES_MAX = 200

#: Control, format (direction marks, joiners), line and paragraph separators, private, unassigned, surrogates.
_UNSEEN_CATEGORIES = frozenset({"Cc", "Cf", "Zl", "Zp", "Co", "Cn", "Cs"})
#: Fillers, blanks and variation selectors: letters and marks by category, and nothing to the eye.
_UNSEEN = frozenset("\u034f\u115f\u1160\u17b4\u17b5\u2800\u3164\uffa0").union(
    map(chr, range(0xFE00, 0xFE10)), map(chr, range(0xE0100, 0xE01F0))
)


def safe_text(arguments: Json) -> str:
    r"""A line for each value: ``items[0].name = "…"  (12 characters)``.

    Texts are JSON literals, so no value can pretend to be a line of its own, and a character that cannot be
    seen is written as its escape, e.g. ``\u202e``. Long texts and long lists are cut with a count.
    """
    lines = list(_lines(arguments, path=""))
    if len(lines) > LINES_MAX:
        lines = [*lines[:LINES_MAX], f"({len(lines) - LINES_MAX:,} more values are not shown)"]
    return "\n".join(lines)


def visible(text: str) -> str:
    r"""`text` on one line, with whatever cannot be seen written as its escape: for titles, reasons and names."""
    return "".join(map(_seen, text))


def _lines(value: Json, *, path: str) -> Iterator[str]:
    match value:
        case dict() if value:
            for key, item in value.items():
                yield from _lines(item, path=path + _step(key, first=not path))
        case list() if value:
            for index, item in enumerate(value):
                yield from _lines(item, path=f"{path}[{index}]")
        case str():
            yield f"{path or 'value'} = {_quoted(value, head=HEAD_CHARS, tail=TAIL_CHARS)}  ({len(value):,} characters)"
        case _:
            yield f"{path or 'value'} = {json.dumps(value)}"


def _step(key: str, *, first: bool) -> str:
    if key.isascii() and key.isidentifier() and len(key) <= KEY_HEAD_CHARS:
        return key if first else f".{key}"
    return f"[{_quoted(key, head=KEY_HEAD_CHARS, tail=KEY_TAIL_CHARS)}]"


def _quoted(text: str, *, head: int, tail: int) -> str:
    hidden = len(text) - head - tail
    if hidden <= 0:
        return _literal(text)
    return f"{_literal(text[:head])} ({hidden:,} characters are not shown) {_literal(text[-tail:])}"


def _literal(text: str) -> str:
    return "".join(map(_seen, json.dumps(text, ensure_ascii=False)))


def _seen(character: str) -> str:
    if character.isascii() and character.isprintable():
        return character
    category = unicodedata.category(character)
    if category in _UNSEEN_CATEGORIES or category == "Zs" or character in _UNSEEN:
        return json.dumps(character)[1:-1]
    return character
