"""What one emission is in Redis: an entry of its stream, whose id is the number of its last frame."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from signoff.domain.frame import Frame
from signoff.domain.jsonvalue import decode, encode
from signoff.ports.store import Emission

#: Larger ones are not carried: their entry sends readers to the store. Bytes of JSON text (ASCII).
BODY_MAX = 64 * 1024

_FIRST = b"first"
_FRAMES = b"frames"


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Frames `first_seq` to `last_seq` of a stream. `frames` is None if readers have to look into the store."""

    first_seq: int
    last_seq: int
    frames: Sequence[Frame] | None


def entry_id(seq: int) -> str:
    """The id of the entry that ends with this number."""
    return f"{seq}-0"


def fields_of(emission: Emission) -> dict[bytes, bytes | int]:
    """What an emission's entry holds."""
    fields: dict[bytes, bytes | int] = {_FIRST: emission.first_seq}
    if emission.frames is not None:
        body = encode(list(emission.frames))
        if len(body) <= BODY_MAX:
            fields[_FRAMES] = body.encode("ascii")
    return fields


def read_entry(id_: bytes, fields: Mapping[bytes, bytes]) -> Entry:
    """The inverse of `entry_id` and `fields_of`. What cannot be read sends readers to the store."""
    last_seq = int(id_.partition(b"-")[0])
    try:
        first_seq = int(fields[_FIRST])
        body = fields.get(_FRAMES)
        frames = None if body is None else decode(body.decode("ascii"))
    except (KeyError, ValueError):
        return Entry(first_seq=last_seq, last_seq=last_seq, frames=None)
    is_whole = isinstance(frames, list) and len(frames) == last_seq - first_seq + 1
    carried = [frame for frame in frames if isinstance(frame, dict)] if isinstance(frames, list) and is_whole else None
    return Entry(first_seq=first_seq, last_seq=last_seq, frames=carried)
