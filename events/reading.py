"""Rows to events: every read checks words against the commitment and, in order, the user's chain."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator
from typing import Any

from events.codec import decode_event
from events.envelope import GENESIS, REFERENCE_BYTES, RecordedEvent, Reference, commit_to, link
from events.errors import LogDamaged

_COLUMNS = """e.seq, e.user, e.user_seq, e.session, CAST(u.text AS BLOB), CAST(s.text AS BLOB), e.type,
    e.version, e.key, e.happened_at, e.recorded_at, e.caused_by, e.lineage, e.basis, e.bus_stream,
    e.bus_epoch, e.bus_seq, e.body, e.commitment, e.chain"""
_TABLES = """events e LEFT JOIN names u ON u.reference = e.user LEFT JOIN names s ON s.reference = e.session"""
# SQLite takes at most 32,766 variables in a statement; this keeps statements short, too.
_SEQS_AT_ONCE = 500


def read_user(
    connection: sqlite3.Connection, user: Reference, after: int = 0, limit: int = 256
) -> list[RecordedEvent]:
    """Up to `limit` events of a user behind user_seq `after`, in order.

    Raises `LogDamaged` naming the first event that does not continue the user's chain.
    """
    rows = connection.execute(
        f"SELECT {_COLUMNS} FROM {_TABLES} WHERE e.user = ? AND e.user_seq > ? ORDER BY e.user_seq LIMIT ?",
        (user, after, limit),
    ).fetchall()
    _check_chain(connection, user, after, rows)
    return _decode(connection, rows)


def read_after(connection: sqlite3.Connection, seq: int, limit: int = 256) -> list[tuple[int, Reference]]:
    """Which user each event behind `seq` belongs to, in log order: (seq, user)."""
    return connection.execute(
        "SELECT seq, user FROM events WHERE seq > ? ORDER BY seq LIMIT ?", (seq, limit)
    ).fetchall()


def read_events(connection: sqlite3.Connection, seqs: Iterable[int]) -> dict[int, RecordedEvent]:
    """The events at these seqs."""
    found: dict[int, RecordedEvent] = {}
    for some in _slices(sorted(set(seqs))):
        marks = ",".join("?" * len(some))
        rows = connection.execute(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE e.seq IN ({marks})", some).fetchall()
        found.update((event.seq, event) for event in _decode(connection, rows))
    return found


def chained_fields(row: tuple[Any, ...]) -> tuple[bytes | int | str | None, ...]:
    """The fields of a row that the chain covers, in order: everything but the names and the chain itself."""
    return (*row[:4], *row[6:19])


def _check_chain(connection: sqlite3.Connection, user: Reference, after: int, rows: list[tuple[Any, ...]]) -> None:
    previous = GENESIS
    if after:
        row = connection.execute(
            "SELECT chain FROM events WHERE user = ? AND user_seq = ?", (user, after)
        ).fetchone()
        if row is None:
            raise LogDamaged(f"the event at user_seq {after} is missing")
        previous = row[0]
    for expected, row in enumerate(rows, start=after + 1):
        if row[2] != expected:
            raise LogDamaged(f"the event at user_seq {expected} is missing")
        previous = link(previous, chained_fields(row))
        if previous != row[19]:
            raise LogDamaged(f"the event at seq {row[0]} (user_seq {row[2]}) does not match its chain")


def _decode(connection: sqlite3.Connection, rows: list[tuple[Any, ...]]) -> list[RecordedEvent]:
    words = _read_words(connection, [row[0] for row in rows])
    return [_decode_row(row, *words.get(row[0], (b"", []))) for row in rows]


def _read_words(connection: sqlite3.Connection, seqs: list[int]) -> dict[int, tuple[bytes, list[bytes]]]:
    """Nonce and words of each event that has any, in UTF-8: they are decoded once they match the commitment.

    As blobs, since the sqlite3 module puts a damaged text into the message of its error.
    """
    found: dict[int, tuple[bytes, list[bytes]]] = {}
    for some in _slices(seqs):
        marks = ",".join("?" * len(some))
        for seq, nonce, text in connection.execute(
            f"""SELECT seq, CAST(nonce AS BLOB), CAST(text AS BLOB) FROM words
                WHERE seq IN ({marks}) AND text IS NOT NULL ORDER BY seq, n""",
            some,
        ):
            found.setdefault(seq, (nonce, []))[1].append(text)
    return found


def _decode_row(row: tuple[Any, ...], nonce: bytes, words: list[bytes]) -> RecordedEvent:
    intact = commit_to(nonce, words) == row[18]
    if words and not intact:
        raise LogDamaged(f"the words of the event at seq {row[0]} do not match its commitment")
    return RecordedEvent(
        seq=row[0],
        user=row[1],
        user_seq=row[2],
        session=row[3],
        user_id=None if row[4] is None else row[4].decode(),
        session_id=None if row[5] is None else row[5].decode(),
        type=row[6],
        version=row[7],
        key=row[8],
        happened_at=row[9],
        recorded_at=row[10],
        caused_by=row[11],
        lineage=split_lineage(row[12]),
        basis=row[13],
        bus_stream=row[14],
        bus_seq=row[16],
        nonce=nonce,
        event=decode_event(row[6], row[7], row[17], [word.decode() for word in words]) if intact else None,
    )


def _slices(seqs: list[int]) -> Iterator[list[int]]:
    return (seqs[at : at + _SEQS_AT_ONCE] for at in range(0, len(seqs), _SEQS_AT_ONCE))


def split_lineage(packed: bytes) -> tuple[Reference, ...]:
    """References as stored, one behind the other."""
    return tuple(packed[at : at + REFERENCE_BYTES] for at in range(0, len(packed), REFERENCE_BYTES))
