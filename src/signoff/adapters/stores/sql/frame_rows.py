"""Frames of live streams (`ports.store.Tx`). One row holds all frames of one emit."""

from collections.abc import Sequence

from sqlalchemy import Connection, bindparam, delete, literal_column, select, update

from signoff.adapters.stores.sql.schema import frames, streams, withdrawals
from signoff.adapters.stores.sql.statement import Statement, parameters
from signoff.domain.frame import Frame, NumberedFrame
from signoff.errors import StreamReset
from signoff.ports.store import Emission

# One statement numbers any amount of frames; its row lock keeps the numbers of concurrent emits in commit order.
_NUMBER = Statement(
    lambda insert: (
        insert(streams)
        .values(id=bindparam("stream_id"), last_seq=bindparam("count"))
        .on_conflict_do_update(index_elements=["id"], set_={"last_seq": streams.c.last_seq + bindparam("count")})
        .returning(streams.c.last_seq)
    )
)
_LAST = Statement(select(streams.c.last_seq).where(streams.c.id == bindparam("stream_id")))
_LOCK = Statement(select(streams.c.last_seq).where(streams.c.id == bindparam("stream_id")).with_for_update())
_SET_LAST = Statement(
    update(streams).where(streams.c.id == bindparam("stream_id")).values(parameters(streams, ("last_seq",)))
)
_STORE = Statement(lambda insert: insert(frames).values(parameters(frames, frames.c.keys())))

_BEHIND = (frames.c.stream_id == bindparam("of_stream"), frames.c.last_seq > bindparam("after"))
_ROWS = select(frames.c.first_seq, frames.c.last_seq, frames.c.body).where(*_BEHIND).order_by(frames.c.last_seq)
_FRAMES = Statement(_ROWS.limit(bindparam("row_limit")))
_FIRST = Statement(_ROWS.limit(1))
_DELETE = Statement(delete(frames).where(*_BEHIND))

_WITHDRAW = Statement(lambda insert: insert(withdrawals).values(parameters(withdrawals, withdrawals.c.keys())))
_IS_WITHDRAWN = Statement(
    select(literal_column("1"))
    .select_from(withdrawals)
    .where(
        withdrawals.c.stream_id == bindparam("of_stream"),
        withdrawals.c.seq > bindparam("after"),
        withdrawals.c.from_seq <= bindparam("after"),
    )
    .limit(1)
)


class FrameRows:
    """The part of `Tx` that keeps what watchers see. `emitted` collects what readers are to hear of."""

    connection: Connection
    emitted: list[Emission]

    def emit(self, stream_id: str, frames: Sequence[Frame]) -> int:
        if not frames:
            last = _LAST.one(self.connection, stream_id=stream_id)
            return 0 if last is None else int(last[0])
        numbered = _NUMBER.one(self.connection, stream_id=stream_id, count=len(frames))
        assert numbered is not None
        last_seq = int(numbered[0])
        first_seq = last_seq - len(frames) + 1
        self._store(stream_id, first_seq, frames)
        self.emitted.append(Emission(stream_id=stream_id, first_seq=first_seq, last_seq=last_seq, frames=frames))
        return last_seq

    def withdraw(self, stream_id: str, *, from_seq: int) -> None:
        locked = _LOCK.one(self.connection, stream_id=stream_id)
        row = _FIRST.one(self.connection, of_stream=stream_id, after=from_seq - 1)
        if locked is None or row is None:
            return
        first_seq, _, body = row
        _DELETE.run(self.connection, of_stream=stream_id, after=from_seq - 1)
        if first_seq < from_seq:
            self._store(stream_id, first_seq, body[: from_seq - first_seq])
        # The `withdrawn` frame itself is never read, so its number and range are all that is kept.
        seq = int(locked[0]) + 1
        _SET_LAST.run(self.connection, stream_id=stream_id, last_seq=seq)
        _WITHDRAW.run(self.connection, stream_id=stream_id, seq=seq, from_seq=max(first_seq, from_seq))
        self.emitted.append(Emission(stream_id=stream_id, first_seq=seq, last_seq=seq, frames=None))

    def frames(self, stream_id: str, *, after: int, limit: int) -> list[NumberedFrame]:
        if after > 0 and _IS_WITHDRAWN.one(self.connection, of_stream=stream_id, after=after) is not None:
            raise StreamReset(stream_id)
        rows = _FRAMES.all(self.connection, of_stream=stream_id, after=after, row_limit=limit)
        numbered: list[NumberedFrame] = []
        for first_seq, _, body in rows:
            for seq, frame in enumerate(body, first_seq):
                if seq > after:
                    numbered.append(NumberedFrame(seq=seq, frame=frame))
            if len(numbered) >= limit:
                break
        return numbered[:limit]

    def _store(self, stream_id: str, first_seq: int, body: Sequence[Frame]) -> None:
        last_seq = first_seq + len(body) - 1
        _STORE.run(self.connection, stream_id=stream_id, first_seq=first_seq, last_seq=last_seq, body=list(body))
