"""What of the log stands no more, for whoever keeps something of its own that was made of it.

Vectors go with the words they were made of; a snapshot of a Memory is worthless once anything in it was undone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable

from events.envelope import Reference
from events.erasure import Unerased

# SQLite takes at most 32,766 variables in a statement; this keeps statements short, too.
_SEQS_AT_ONCE = 500
# Events a page.
_PAGE_EVENTS = 2_000


def last_undone(connection: sqlite3.Connection, user: Reference) -> int:
    """user_seq of the last event that put something out of force: an edit, a replay, a forgetting and the like."""
    (last,) = connection.execute(
        """SELECT max(coalesce((SELECT max(since) FROM voids WHERE user = ?1), 0),
                      coalesce((SELECT max(forgotten) FROM erasures WHERE user = ?1), 0))""",
        (user,),
    ).fetchone()
    return int(last)


def read_link(connection: sqlite3.Connection, user: Reference, user_seq: int) -> bytes | None:
    """The value of a user's chain at a user_seq: no other log has it there."""
    row = connection.execute(
        "SELECT chain FROM events WHERE user = ? AND user_seq = ?", (user, user_seq)
    ).fetchone()
    return None if row is None else bytes(row[0])


def read_link_at(connection: sqlite3.Connection, seq: int) -> bytes | None:
    """The value of the chain of the event at a seq."""
    row = connection.execute("SELECT chain FROM events WHERE seq = ?", (seq,)).fetchone()
    return None if row is None else bytes(row[0])


def find_erased(connection: sqlite3.Connection, seqs: Iterable[int]) -> set[int]:
    """Those of these events whose words are erased, or are to be: they were forgotten or retracted."""
    wanted = sorted(set(seqs))
    found: set[int] = set()
    for at in range(0, len(wanted), _SEQS_AT_ONCE):
        some = wanted[at : at + _SEQS_AT_ONCE]
        rows = connection.execute(
            f"""SELECT e.seq FROM events e WHERE e.seq IN ({",".join("?" * len(some))}) AND (
                    EXISTS (SELECT 1 FROM voids v WHERE v.seq = e.seq AND v.erases)
                    OR EXISTS (SELECT 1 FROM erasures x WHERE x.user = e.user AND e.seq < x.forgotten_seq
                        AND (x.subject = e.user OR EXISTS (
                            SELECT 1 FROM lineage l WHERE l.session = x.subject AND l.seq = e.seq))))""",
            some,
        )
        found.update(seq for (seq,) in rows)
    return found


def read_voided(connection: sqlite3.Connection, forgotten: Unerased, after: int) -> tuple[list[int], int | None]:
    """A page of the events that forgetting voided, behind seq `after`, and the seq to go on from, if any."""
    voided = "SELECT seq FROM lineage WHERE session = ?1"
    if forgotten.is_user:
        voided = "SELECT seq FROM events WHERE user = ?1"
    rows = connection.execute(
        f"""{voided} AND seq > ?2
            AND seq < (SELECT forgotten_seq FROM erasures WHERE subject = ?1) ORDER BY seq LIMIT ?3""",
        (forgotten.subject, after, _PAGE_EVENTS),
    ).fetchall()
    seqs = [seq for (seq,) in rows]
    return seqs, seqs[-1] if len(seqs) == _PAGE_EVENTS else None


def read_emptied(connection: sqlite3.Connection) -> dict[Reference, list[int]]:
    """By user: the retracted events whose words are gone from the tables, and not yet from every file."""
    found: dict[Reference, list[int]] = {}
    for seq, user in connection.execute("SELECT seq, user FROM voids WHERE erases = 2"):
        found.setdefault(user, []).append(seq)
    return found
