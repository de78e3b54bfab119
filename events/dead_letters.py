"""Dead letters: input that could not be decoded, kept with its reason until someone deals with it.

A letter is emptied in place and its row stays, so that a redelivery of its message is not kept again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from events.bus_copies import note_unwanted
from events.envelope import BusPosition, Keys
from events.gate import is_forgotten
from events.names import write_names
from events.time import Instant

_COLUMNS = """l.id, l.received_at, u.text, s.text, l.subject, l.payload, l.message_id, l.published_at,
    l.reason, l.bus_stream, l.bus_epoch, l.bus_seq"""
_TABLES = """dead_letters l LEFT JOIN names u ON u.reference = l.user
    LEFT JOIN names s ON s.reference = l.session"""


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Input that could not be decoded, with the reason; user and session are those of its subject."""

    subject: str
    payload: bytes
    reason: str
    bus: BusPosition
    user_id: str | None = None
    session_id: str | None = None
    key: str | None = None  # of the message, when it could be told: `wait_for` then answers at once
    turn: str | None = None  # the key of the turn's first revision, when it could be told
    published_at: Instant = 0
    message_id: str | None = None  # its Nats-Msg-Id


@dataclass(frozen=True, slots=True)
class StoredLetter:
    """A message that could not be decoded, byte for byte, and why."""

    id: int
    received_at: Instant
    user_id: str | None
    session_id: str | None
    subject: str
    payload: bytes
    message_id: str | None
    published_at: Instant
    reason: str
    bus: BusPosition


def read_letters(connection: sqlite3.Connection, after: int = 0, limit: int = 100) -> list[StoredLetter]:
    """Up to `limit` letters with an id above `after`, oldest first."""
    query = f"SELECT {_COLUMNS} FROM {_TABLES} WHERE l.id > ? ORDER BY l.id LIMIT ?"
    return [_letter(row) for row in connection.execute(query, (after, limit))]


def read_letter(connection: sqlite3.Connection, letter: int) -> StoredLetter | None:
    """One letter; None when there is none of this id any more."""
    row = connection.execute(f"SELECT {_COLUMNS} FROM {_TABLES} WHERE l.id = ?", (letter,)).fetchone()
    return None if row is None else _letter(row)


def drop_letter(connection: sqlite3.Connection, letter: int) -> bool:
    """Empty a letter; False when there is none of this id."""
    done = connection.execute(
        """UPDATE letters SET subject = x'', payload = NULL, message_id = NULL
           WHERE id = ? AND payload IS NOT NULL""",
        (letter,),
    )
    return done.rowcount == 1


def _letter(row: tuple[object, ...]) -> StoredLetter:
    identity, received_at, user, session, subject, payload, message, published_at, reason, *bus = row
    return StoredLetter(
        id=int(str(identity)),
        received_at=int(str(received_at)),
        user_id=_text(user),
        session_id=_text(session),
        subject=_text(subject) or "",
        payload=payload if isinstance(payload, bytes) else b"",
        message_id=_text(message),
        published_at=int(str(published_at)),
        reason=str(reason),
        bus=BusPosition(str(bus[0]), str(bus[1]), int(str(bus[2]))),
    )


def _text(stored: object) -> str | None:
    return stored.decode() if isinstance(stored, bytes) else None


def store_letter(connection: sqlite3.Connection, letter: DeadLetter, keys: Keys, now: Instant) -> None:
    """Keep a dead letter, unless its session was forgotten: then only the checkpoint moves on."""
    user = session = None
    if letter.user_id is not None:
        user = keys.user(letter.user_id)
        if letter.session_id is not None:
            session = keys.session(letter.user_id, letter.session_id)
        published_at = letter.published_at or None
        for subject in (user, session):
            if subject is not None and is_forgotten(connection, subject, published_at):
                note_unwanted(connection, letter.bus, subject)
                return
    turn = None if letter.turn is None else keys.key(letter.turn)
    if connection.execute("SELECT 1 FROM retractions WHERE turn = ?", (turn,)).fetchone() is not None:
        note_unwanted(connection, letter.bus, None)
        return
    names = [(user, "user", letter.user_id), (session, "session", letter.session_id)]
    write_names(
        connection,
        [(reference, kind, name.encode()) for reference, kind, name in names if reference and name is not None],
    )
    connection.execute(
        """INSERT OR IGNORE INTO letters (received_at, user, session, subject, payload, message_id,
               published_at, reason, key, turn, bus_stream, bus_epoch, bus_seq)
           VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)""",
        (
            now,
            user,
            session,
            letter.subject.encode(),
            letter.payload,
            None if letter.message_id is None else letter.message_id.encode(),
            int(letter.published_at),
            letter.reason,
            None if letter.key is None else keys.key(letter.key),
            turn,
            letter.bus.stream,
            letter.bus.epoch,
            letter.bus.seq,
        ),
    )
