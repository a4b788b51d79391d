"""The audit chain finds what somebody did to it, in real databases."""

import asyncio
import json
import sqlite3
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from signoff.adapters.stores.sql import SqlStore
from signoff.cli import app
from signoff.domain.audit import AuditEntry, AuditHead, AuditKind, expected_hash
from signoff.domain.jsonvalue import JsonObject
from signoff.errors import InvalidInput
from signoff.governance.audit import PAGE, ProblemKind, check_chain, verify
from signoff.testing.clock import START


def audit(path: Path, *arguments: str) -> Result:
    """`signoff audit …` in this process."""
    return CliRunner().invoke(app, ["audit", *arguments, "--database", f"sqlite:///{path}"])


@pytest.fixture
async def database(tmp_path: Path) -> Path:
    """Ten rows of acme and three of another tenant."""
    path = tmp_path / "signoff.db"
    store = SqlStore(f"sqlite:///{path}")
    await store.open()
    for number in range(10):
        await append(store, "acme", {"tool": "refund", "n": number, "odd": "\u202e\x00é", "float": 0.1})
    for number in range(3):
        await append(store, "zeta", {"n": number})
    await store.close()
    return path


async def append(store: SqlStore, tenant: str, data: JsonObject) -> AuditEntry:
    return await store.transact(
        "append",
        lambda tx: tx.append_audit(
            tenant=tenant,
            at=START,
            kind=AuditKind.APPROVED,
            run_id="run_1",
            call_id=None,
            actor_id="ana",
            data=data,
        ),
    )


def tamper(path: Path, *statements: str) -> None:
    connection = sqlite3.connect(path)
    with connection:
        for statement in statements:
            connection.execute(statement)
    connection.close()


def verified(path: Path, *arguments: str) -> tuple[int, list[dict[str, Any]]]:
    done = audit(path, "verify", "--json", *arguments)
    return done.exit_code, json.loads(done.stdout)


def problems(path: Path) -> list[tuple[str, int]]:
    code, reports = verified(path, "--tenant", "acme")
    [report] = reports
    assert code == (1 if report["problems"] else 0)
    return [(problem["kind"], problem["seq"]) for problem in report["problems"]]


def test_an_untouched_chain_is_fine(database: Path) -> None:
    code, reports = verified(database)
    assert code == 0
    assert [(report["tenant"], report["rows"], report["problems"]) for report in reports] == [
        ("acme", 10, []),
        ("zeta", 3, []),
    ]


@pytest.mark.parametrize(
    ("statements", "found"),
    [
        (["UPDATE audit SET actor_id = 'bo' WHERE tenant = 'acme' AND seq = 4"], [("changed", 4)]),
        (["UPDATE audit SET data = '{}' WHERE tenant = 'acme' AND seq = 10"], [("changed", 10)]),
        (["UPDATE audit SET at = at + 1 WHERE tenant = 'acme' AND seq = 1"], [("changed", 1)]),
        (["DELETE FROM audit WHERE tenant = 'acme' AND seq = 5"], [("missing", 5)]),
        (["DELETE FROM audit WHERE tenant = 'acme' AND seq <= 2"], [("missing", 1)]),
        (["DELETE FROM audit WHERE tenant = 'acme' AND seq >= 9"], [("missing", 9)]),
        (["DELETE FROM audit WHERE tenant = 'acme'"], [("missing", 1)]),
        (["DELETE FROM audit_heads WHERE tenant = 'acme'"], [("missing", 10)]),
        (["UPDATE audit_heads SET seq = 8 WHERE tenant = 'acme'"], [("changed", 8)]),
        (["UPDATE audit_heads SET hash = 'x' WHERE tenant = 'acme'"], [("changed", 10)]),
        (
            [
                "UPDATE audit SET seq = 99 WHERE tenant = 'acme' AND seq = 3",
                "UPDATE audit SET seq = 3 WHERE tenant = 'acme' AND seq = 4",
                "UPDATE audit SET seq = 4 WHERE tenant = 'acme' AND seq = 99",
            ],
            [("changed", 3), ("changed", 4), ("reordered", 5)],
        ),
        (["UPDATE audit SET data = 'no json' WHERE tenant = 'acme' AND seq = 6"], [("unreadable", 6)]),
        (["UPDATE audit SET kind = 'blessed' WHERE tenant = 'acme' AND seq = 6"], [("unreadable", 6)]),
        (["UPDATE audit SET at = 'yesterday' WHERE tenant = 'acme' AND seq = 6"], [("unreadable", 6)]),
    ],
)
def test_what_was_done_to_the_rows_is_found(
    database: Path, statements: list[str], found: list[tuple[str, int]]
) -> None:
    tamper(database, *statements)
    assert problems(database) == found


def test_a_row_with_a_new_hash_breaks_the_link_to_the_next(database: Path) -> None:
    rewrite(database, seq=4)
    assert problems(database) == [("reordered", 5)]


def test_a_whole_chain_that_was_rewritten_is_found_by_an_anchor(database: Path) -> None:
    """Who owns the database can rewrite all of it; what was noted down elsewhere tells."""
    _, [report] = verified(database, "--tenant", "acme")
    anchor = f"{report['head']['seq']}:{report['head']['hash']}"
    assert verified(database, "--tenant", "acme", "--anchor", anchor)[0] == 0

    rewrite(database, seq=4, and_the_rest=True)
    assert problems(database) == []
    code, [report] = verified(database, "--tenant", "acme", "--anchor", anchor)
    assert code == 1
    assert [(problem["kind"], problem["seq"]) for problem in report["problems"]] == [("changed", 10)]

    tamper(
        database,
        "DELETE FROM audit WHERE tenant = 'acme'",
        "DELETE FROM audit_heads WHERE tenant = 'acme'",
    )
    code, [report] = verified(database, "--tenant", "acme", "--anchor", anchor)
    assert [(problem["kind"], problem["seq"]) for problem in report["problems"]] == [("missing", 10)]


def rewrite(path: Path, *, seq: int, and_the_rest: bool = False) -> None:
    """What a careful forger does: another actor in row `seq`, with the right hash for it."""

    async def read() -> list[AuditEntry]:
        store = SqlStore(f"sqlite:///{path}")
        await store.open()
        rows = await store.read(lambda tx: tx.audit(tenant="acme"))
        await store.close()
        return rows

    rows = asyncio.run(read())
    previous = rows[seq - 1].previous
    connection = sqlite3.connect(path)
    with connection:
        for row in rows[seq - 1 :] if and_the_rest else rows[seq - 1 : seq]:
            forged = replace(row, actor_id="bo" if row.seq == seq else row.actor_id, previous=previous)
            previous = expected_hash(forged)
            connection.execute(
                "UPDATE audit SET actor_id = ?, previous = ?, hash = ? WHERE tenant = 'acme' AND seq = ?",
                (forged.actor_id, forged.previous, previous, row.seq),
            )
        if and_the_rest:
            connection.execute("UPDATE audit_heads SET hash = ? WHERE tenant = 'acme'", (previous,))
    connection.close()


def test_the_lines_for_people(database: Path) -> None:
    tamper(database, "DELETE FROM audit WHERE tenant = 'acme' AND seq IN (5, 6)")
    command = [sys.executable, "-m", "signoff", "audit", "verify"]
    done = subprocess.run(command, cwd=database.parent, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stderr) == (1, "")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("tenant 'acme': 8 rows, 10:")
    assert lines[0].endswith(": 1 problems")
    assert lines[1] == "  missing: rows 5 to 6 are missing"
    assert lines[2].endswith(": ok")


def test_export_is_the_rows_one_a_line(database: Path) -> None:
    done = audit(database, "export")
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [(row["tenant"], row["seq"]) for row in rows] == [("acme", n) for n in range(1, 11)] + [
        ("zeta", n) for n in range(1, 4)
    ]
    assert rows[0]["data"] == {"tool": "refund", "n": 0, "odd": "\u202e\x00é", "float": 0.1}

    done = audit(database, "export", "--tenant", "acme", "--after", "8")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [9, 10]


@pytest.mark.parametrize(
    "arguments",
    [
        ("verify", "--anchor", "1:aa"),
        ("verify", "--tenant", "acme", "--anchor", "nonsense"),
        ("export", "--after", "3"),
    ],
)
def test_a_mistake_is_told_as_one(database: Path, arguments: tuple[str, ...]) -> None:
    assert isinstance(audit(database, *arguments).exception, InvalidInput)


def test_a_damaged_row_ends_an_export(database: Path) -> None:
    tamper(database, "UPDATE audit SET data = 'no json' WHERE tenant = 'acme' AND seq = 6")
    done = audit(database, "export")
    assert [json.loads(line)["seq"] for line in done.stdout.splitlines()] == [1, 2, 3, 4, 5]
    assert "row 6 of tenant 'acme' cannot be read" in str(done.exception)


def test_verify_on_rows_in_hand() -> None:
    rows = [_row(1, "")]
    for seq in (2, 3, 4):
        rows.append(_row(seq, rows[-1].hash))
    head = AuditHead(tenant="acme", seq=4, hash=rows[-1].hash)
    assert verify(rows, head=head) == []
    assert [(item.kind, item.seq) for item in verify([rows[0], rows[2], rows[1], rows[3]], head=head)] == [
        (ProblemKind.MISSING, 2),
        (ProblemKind.REORDERED, 2),
        (ProblemKind.MISSING, 3),
    ]
    assert [(item.kind, item.seq) for item in verify(rows[:3], head=head)] == [(ProblemKind.MISSING, 4)]


def _row(seq: int, previous: str) -> AuditEntry:
    row = AuditEntry(
        tenant="acme",
        seq=seq,
        at=START,
        kind=AuditKind.VOTED,
        run_id=None,
        call_id=None,
        actor_id=None,
        data={"n": seq},
        previous=previous,
        hash="",
    )
    return replace(row, hash=expected_hash(row))


async def test_a_chain_longer_than_a_page_is_checked_while_it_grows(tmp_path: Path) -> None:
    store = SqlStore(f"sqlite:///{tmp_path}/signoff.db")
    await store.open()
    try:
        await asyncio.gather(*(append(store, "acme", {"n": number}) for number in range(PAGE + 20)))
        growing = asyncio.gather(*(append(store, "acme", {"n": number}) for number in range(200)))
        report = await check_chain(store, "acme")
        await growing
        assert report.problems == []
        assert report.rows >= PAGE + 20
    finally:
        await store.close()
