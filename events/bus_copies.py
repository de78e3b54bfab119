"""Messages on the bus that hold words which stand in the log as well: which must go when those go.

An event knows its own message. Here are the others: redeliveries, refused ones, and what is still to be deleted.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence

from events.database import immediate
from events.envelope import BusPosition, Reference

# Whose erasing a message belongs to: the last one that wants it gone, so that its receipt counts it.
OWNED_BY_LAST = "ON CONFLICT (stream, epoch, seq) DO UPDATE SET subject = coalesce(excluded.subject, subject)"
_WANT_GONE = f"""INSERT INTO unwanted
    SELECT * FROM (
        SELECT bus_stream, bus_epoch, bus_seq, ?2 FROM events WHERE seq = ?1 AND bus_seq IS NOT NULL
        UNION SELECT stream, epoch, seq, ?2 FROM copies WHERE event = ?1) WHERE true {OWNED_BY_LAST}"""


def note_copy(connection: sqlite3.Connection, place: BusPosition, holder: int) -> None:
    """Remember a message that repeats what the event `holder` (a seq) says."""
    connection.execute(
        """INSERT OR IGNORE INTO copies SELECT ?1, ?2, ?3, ?4 WHERE NOT EXISTS (
               SELECT 1 FROM events WHERE seq = ?4 AND bus_stream = ?1 AND bus_epoch = ?2 AND bus_seq = ?3)""",
        (place.stream, place.epoch, place.seq, holder),
    )


def note_unwanted(connection: sqlite3.Connection, place: BusPosition, subject: Reference | None) -> None:
    """Remember a message that must go: it belongs to a forgotten subject, or (None) to a retracted turn."""
    connection.execute(
        f"INSERT INTO unwanted VALUES (?, ?, ?, ?) {OWNED_BY_LAST}",
        (place.stream, place.epoch, place.seq, subject),
    )


def want_gone(connection: sqlite3.Connection, seqs: Sequence[int], subject: Reference | None) -> None:
    """The messages of these events, and all copies of them, must go."""
    connection.executemany(_WANT_GONE, [(seq, subject) for seq in seqs])


def read_unwanted(
    connection: sqlite3.Connection,
    subject: Reference | None,
    after: BusPosition | None = None,
    limit: int = 1000,
) -> list[BusPosition]:
    """Messages on the bus that must go, behind a position: of one subject, or (None) of retracted turns."""
    behind = ("", "", 0) if after is None else (after.stream, after.epoch, after.seq)
    rows = connection.execute(
        """SELECT stream, epoch, seq FROM unwanted
           WHERE subject IS ? AND (stream, epoch, seq) > (?, ?, ?) ORDER BY stream, epoch, seq LIMIT ?""",
        (subject, *behind, limit),
    )
    return [BusPosition(*row) for row in rows]


def count_unwanted(connection: sqlite3.Connection) -> int:
    """Messages that must go and that no erasing under way takes care of: retracted, refused, or left before."""
    (count,) = connection.execute(
        """SELECT count(*) FROM unwanted u LEFT JOIN erasures e ON e.subject = u.subject
           WHERE e.subject IS NULL OR e.erased IS NOT NULL"""
    ).fetchone()
    return int(count)


def read_unwanted_subjects(connection: sqlite3.Connection) -> list[Reference]:
    """What has messages on the bus and no erasing under way: those were left, or came late.

    Of what another store forgot and this one never knew there is no erasing at all.
    """
    rows = connection.execute(
        """SELECT DISTINCT u.subject FROM unwanted u LEFT JOIN erasures e ON e.subject = u.subject
           WHERE u.subject IS NOT NULL AND (e.subject IS NULL OR e.erased IS NOT NULL)"""
    )
    return [subject for (subject,) in rows]


def settle_unwanted(
    connection: sqlite3.Connection, subject: Reference | None, gone: Sequence[BusPosition]
) -> None:
    """Note that these messages are on the bus no more."""
    with immediate(connection):
        connection.executemany(
            "DELETE FROM unwanted WHERE stream = ? AND epoch = ? AND seq = ?",
            [(each.stream, each.epoch, each.seq) for each in gone],
        )
        connection.execute(
            "UPDATE erasures SET bus_erased = bus_erased + ? WHERE subject IS ?", (len(gone), subject)
        )
