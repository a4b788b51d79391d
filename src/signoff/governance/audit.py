"""The audit chain: read as a stream, and checked row by row."""

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum

from signoff.domain.audit import AuditEntry, AuditHead, expected_hash
from signoff.ports.store import Store

PAGE = 500


class ProblemKind(StrEnum):
    """What is wrong with a chain."""

    CHANGED = "changed"
    MISSING = "missing"
    REORDERED = "reordered"
    UNREADABLE = "unreadable"


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    """One thing that is wrong; `seq` is the first row it concerns, `text` is for people."""

    kind: ProblemKind
    seq: int
    text: str


@dataclass(frozen=True, slots=True)
class Unreadable:
    """Stands for a row that the database holds but that cannot be read as one any more."""

    seq: int


class ChainCheck:
    """Checks the rows of one tenant in order, one at a time, so that a chain of any length fits into memory.

    `anchors` are hashes known from elsewhere (a note of an earlier run), by row: they find what somebody rewrote
    who could also rewrite all hashes after it, and the head. `last` is the last row seen, `rows` how many there were.
    """

    def __init__(self, anchors: Mapping[int, str] | None = None) -> None:
        self._anchors = dict(anchors or {})
        self._hash: str | None = ""
        self.last = 0
        self.rows = 0

    def add(self, entry: AuditEntry | Unreadable) -> Iterator[Problem]:
        """What is wrong with the next row, and between it and the one before."""
        if entry.seq > self.last + 1:
            yield _missing(self.last + 1, entry.seq - 1)
            self._hash = None  # nothing to compare the next row with
        elif entry.seq <= self.last:
            yield Problem(
                kind=ProblemKind.REORDERED, seq=entry.seq, text=f"row {entry.seq} comes behind row {self.last}"
            )
            self._hash = None
        if isinstance(entry, Unreadable):
            yield Problem(
                kind=ProblemKind.UNREADABLE, seq=entry.seq, text=f"row {entry.seq} cannot be read: it was damaged"
            )
            self._hash = None
        else:
            self.rows += 1
            yield from self._compare(entry)
            self._hash = entry.hash
        self.last = entry.seq

    def end(self, head: AuditHead | None) -> Iterator[Problem]:
        """What is wrong with the end of the chain; `head` is what the store keeps of it."""
        if head is None:
            if self.last:
                yield Problem(
                    kind=ProblemKind.MISSING, seq=self.last, text="the store's note of the chain's end is gone"
                )
        elif head.seq > self.last:
            yield _missing(self.last + 1, head.seq)
        elif head.seq < self.last:
            yield Problem(
                kind=ProblemKind.CHANGED,
                seq=head.seq,
                text=f"the store's note of the chain's end says {head.seq}, but there is a row {self.last}",
            )
        elif self._hash is not None and head.hash != self._hash:
            yield Problem(
                kind=ProblemKind.CHANGED, seq=head.seq, text=f"row {head.seq} is not the one the store noted as last"
            )
        for seq in sorted(self._anchors):
            yield Problem(kind=ProblemKind.MISSING, seq=seq, text=f"row {seq}, which you know, is not there")

    def _compare(self, entry: AuditEntry) -> Iterator[Problem]:
        if expected_hash(entry) != entry.hash:
            yield Problem(kind=ProblemKind.CHANGED, seq=entry.seq, text=f"row {entry.seq} was changed")
        elif self._hash is not None and entry.previous != self._hash:
            yield Problem(
                kind=ProblemKind.REORDERED,
                seq=entry.seq,
                text=f"row {entry.seq} does not follow on row {entry.seq - 1}: "
                "one of them was replaced, or they were reordered",
            )
        known = self._anchors.pop(entry.seq, None)
        if known is not None and known != entry.hash:
            yield Problem(
                kind=ProblemKind.CHANGED,
                seq=entry.seq,
                text=f"row {entry.seq} is not the one you know: the chain was rewritten",
            )


def verify(
    entries: Iterable[AuditEntry], *, head: AuditHead | None = None, anchors: Mapping[int, str] | None = None
) -> list[Problem]:
    """What is wrong with one tenant's rows, given in the order they have. `head` None: its end is not checked."""
    check = ChainCheck(anchors)
    problems = [problem for entry in entries for problem in check.add(entry)]
    last = check.end(head) if head is not None else ()
    return [*problems, *last]


async def read_chain(
    store: Store, tenant: str, *, after_seq: int = 0, up_to: int | None = None
) -> AsyncIterator[AuditEntry | Unreadable]:
    """The tenant's rows behind `after_seq`, page by page, `up_to` this one.

    A page that cannot be read is read row by row, so that one damaged row does not hide the others.
    """
    after, limit = after_seq, PAGE
    while up_to is None or after < up_to:
        page = await _page(store, tenant, after, limit)
        match page:
            case None if limit > 1:
                limit = 1
            case None:
                after += 1
                yield Unreadable(after)
            case []:
                return
            case _:
                for entry in page:
                    if up_to is not None and entry.seq > up_to:
                        return
                    yield entry
                after, limit = page[-1].seq, PAGE


async def _page(store: Store, tenant: str, after: int, limit: int) -> list[AuditEntry] | None:
    try:
        return await store.read(lambda tx: tx.audit(tenant=tenant, after_seq=after, limit=limit))
    except (ValueError, TypeError, OverflowError):  # what its columns hold is no longer JSON, an instant, a word
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class ChainReport:
    """What a check of one tenant's chain found. `head` is worth noting down elsewhere: it is an anchor."""

    tenant: str
    rows: int
    head: AuditHead | None
    problems: list[Problem]


async def check_chain(store: Store, tenant: str, *, anchors: Mapping[int, str] | None = None) -> ChainReport:
    """Read and check a tenant's whole chain, beside those who append to it."""
    check = ChainCheck(anchors)
    problems: list[Problem] = []
    async for entry in read_chain(store, tenant):
        problems += check.add(entry)
    head = await store.read(lambda tx: tx.audit_head(tenant))
    if head is not None:
        # Rows that were appended between the last page and the head.
        async for entry in read_chain(store, tenant, after_seq=check.last, up_to=head.seq):
            problems += check.add(entry)
    problems += check.end(head)
    return ChainReport(tenant=tenant, rows=check.rows, head=head, problems=problems)


def _missing(first: int, last: int) -> Problem:
    rows = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return Problem(kind=ProblemKind.MISSING, seq=first, text=f"{rows} missing")
