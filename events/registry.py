"""The session registry: rows that say which events belong to which session and which turns still wait.

Written in the transaction of the events they index, so they are never behind. Forgetting and the planning
of extraction start here; neither needs a user's whole Memory.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import IntEnum

from events.codec import Event
from events.envelope import RecordedEvent, Reference
from events.erasure import index_forgetting
from events.ledger import index_answer
from events.memory import FactsExtracted, WorkParked, WorkResumed
from events.session import (
    ChunkClosed,
    MemoryImported,
    SessionClosed,
    SessionErased,
    SessionForgotten,
    TurnRecorded,
    TurnRevised,
    UserErased,
    UserForgotten,
)
from events.time import LATEST, Instant
from events.withdrawal import index_withdrawal, place_memory, place_turn


class RowKind(IntEnum):
    """What a row of `turns` is."""

    TURN = 0
    SESSION_CLOSED = 1
    CHUNK_CLOSED = 2


@dataclass(frozen=True, slots=True)
class SessionRow:
    """A turn, or an event that closes chunks, as cutting needs it. `last_turn` belongs to CHUNK_CLOSED."""

    seq: int
    kind: RowKind
    last_turn: int | None
    recorded_at: Instant


@dataclass(frozen=True, slots=True)
class SessionSummary:
    """One session as the registry knows it. `session_id` is None once its name is erased."""

    user_id: str | None
    session_id: str | None
    state: str
    turns: int
    waiting_turns: int
    bytes: int
    first_at: Instant | None
    last_at: Instant | None


@dataclass(frozen=True, slots=True)
class UserSummary:
    """One user as the registry knows it."""

    user_id: str | None
    user_seq: int
    sessions: int
    turns: int


@dataclass(frozen=True, slots=True)
class WaitingSession:
    """A session with turns that no extraction covers yet."""

    user: Reference
    user_id: str
    session: Reference
    session_id: str
    first_turn: int


def index_event(connection: sqlite3.Connection, recorded: RecordedEvent, event: Event) -> None:
    """Write the registry rows of an event that was just appended."""
    for session in recorded.lineage:
        connection.execute("INSERT OR IGNORE INTO lineage VALUES (?, ?)", (session, recorded.seq))
    index_answer(connection, recorded, event)
    match event:
        case TurnRecorded() | TurnRevised():
            _index_turn(connection, recorded, event)
        case MemoryImported(content=content):
            _ensure_session(connection, recorded)
            place_memory(connection, recorded)
            _count_turn(connection, recorded, content)
        case SessionClosed():
            _ensure_session(connection, recorded)
            _insert_row(connection, recorded, RowKind.SESSION_CLOSED, None)
            connection.execute("UPDATE sessions SET closed = 1 WHERE session = ?", (recorded.session,))
        case ChunkClosed(last_turn=last_turn):
            _insert_row(connection, recorded, RowKind.CHUNK_CLOSED, last_turn)
        case FactsExtracted(covers=covers) | WorkParked(covers=covers):
            index_withdrawal(connection, recorded, event)
            if isinstance(event, FactsExtracted) and event.replaces is not None:
                return  # it covers nothing before its replay is complete
            connection.executemany(
                "UPDATE turns SET extraction = ? WHERE seq = ?", [(recorded.seq, place) for place in covers]
            )
        case WorkResumed(parked=parked):
            index_withdrawal(connection, recorded, event)
            connection.execute("UPDATE turns SET extraction = NULL WHERE extraction = ?", (parked,))
        case SessionForgotten():
            _ensure_session(connection, recorded)
            connection.execute(
                "UPDATE sessions SET forgotten = ? WHERE session = ?", (recorded.user_seq, recorded.session)
            )
            index_forgetting(connection, recorded, recorded.session or b"")
        case UserForgotten():
            forgotten = (recorded.user_seq, recorded.user)
            connection.execute("UPDATE users SET forgotten = ? WHERE user = ?", forgotten)
            connection.execute("UPDATE sessions SET forgotten = ? WHERE user = ? AND forgotten IS NULL", forgotten)
            index_forgetting(connection, recorded, recorded.user)
        case SessionErased(forgotten=forgotten) | UserErased(forgotten=forgotten):
            # It may have begun anew and be forgotten once more by now: that is another erasing.
            connection.execute(
                "UPDATE erasures SET erased = ? WHERE subject = ? AND forgotten = ?",
                (recorded.user_seq, recorded.session or recorded.user, forgotten),
            )
        case _:
            index_withdrawal(connection, recorded, event)


def _ensure_session(connection: sqlite3.Connection, recorded: RecordedEvent) -> None:
    connection.execute(
        "INSERT OR IGNORE INTO sessions (session, user, turns, bytes, closed) VALUES (?, ?, 0, 0, 0)",
        (recorded.session, recorded.user),
    )


def _index_turn(connection: sqlite3.Connection, recorded: RecordedEvent, turn: TurnRecorded | TurnRevised) -> None:
    _ensure_session(connection, recorded)
    new = place_turn(connection, recorded, turn)
    if not new:  # an edit is no sign of life: the session stays closed, and ends when it ended
        size = len(turn.content.encode())
        connection.execute("UPDATE sessions SET bytes = bytes + ? WHERE session = ?", (size, recorded.session))
        return
    connection.execute("UPDATE sessions SET closed = 0 WHERE session = ?", (recorded.session,))
    _count_turn(connection, recorded, turn.content)


def _count_turn(connection: sqlite3.Connection, recorded: RecordedEvent, content: str) -> None:
    connection.execute(
        """UPDATE sessions SET turns = turns + 1, bytes = bytes + ?2,
               first_at = min(coalesce(first_at, ?3), ?3), last_at = max(coalesce(last_at, ?3), ?3)
           WHERE session = ?1""",
        (recorded.session, len(content.encode()), recorded.happened_at),
    )


def _insert_row(
    connection: sqlite3.Connection, recorded: RecordedEvent, kind: RowKind, last_turn: int | None
) -> None:
    connection.execute(
        "INSERT INTO turns (seq, session, closing, last_turn) VALUES (?, ?, ?, ?)",
        (recorded.seq, recorded.session, int(kind), last_turn),
    )


def read_session_rows(connection: sqlite3.Connection, session: Reference) -> tuple[SessionRow, ...]:
    """Turns and closings of a session in log order, from its first turn that no extraction covers.

    An extraction covers whole chunks, so the first waiting turn begins a chunk.
    """
    rows = connection.execute(
        """SELECT t.seq, t.closing, t.last_turn, e.recorded_at FROM turns t JOIN events e ON e.seq = t.seq
           JOIN sessions s ON s.session = t.session AND s.forgotten IS NULL
           WHERE t.session = ?1 AND t.extraction IS NULL AND t.seq >= (
               SELECT min(seq) FROM turns WHERE session = ?1 AND closing = 0 AND extraction IS NULL)
           ORDER BY t.seq""",
        (session,),
    )
    return tuple(SessionRow(seq, RowKind(kind), last, at) for seq, kind, last, at in rows)


def read_waiting_sessions(
    connection: sqlite3.Connection,
    *,
    quiet_since: Instant = LATEST,
    ahead_from: Instant = LATEST,
    after: int = 0,
    limit: int = -1,
) -> tuple[WaitingSession, ...]:
    """Sessions with turns that no extraction covers, by the first of these.

    Only those whose last such turn was recorded by `quiet_since`, and whose first stands behind seq `after`. One
    recorded after `ahead_from` is of a clock that was set back since: nobody knows when that was, so it counts.
    """
    rows = connection.execute(
        """SELECT s.user, u.text, s.session, n.text, w.first FROM
               (SELECT session, min(seq) AS first, max(seq) AS last FROM turns
                WHERE closing = 0 AND extraction IS NULL AND standing IS NOT NULL GROUP BY session) w
           JOIN sessions s ON s.session = w.session AND s.forgotten IS NULL
           JOIN users o ON o.user = s.user AND o.forgotten IS NULL JOIN events e ON e.seq = w.last
           JOIN names u ON u.reference = s.user JOIN names n ON n.reference = s.session
           WHERE (e.recorded_at <= ? OR e.recorded_at > ?) AND w.first > ? ORDER BY w.first LIMIT ?""",
        (quiet_since, ahead_from, after, limit),
    )
    return tuple(WaitingSession(u, uid.decode(), s, sid.decode(), first) for u, uid, s, sid, first in rows)


def read_sessions(
    connection: sqlite3.Connection, user: Reference, session: Reference | None = None
) -> tuple[SessionSummary, ...]:
    """The sessions of a user, oldest first; or the one asked for."""
    rows = connection.execute(
        """SELECT u.text, n.text, s.forgotten, s.closed, s.turns, s.bytes, s.first_at, s.last_at,
               (SELECT count(*) FROM turns t
                WHERE t.session = s.session AND t.closing = 0 AND t.extraction IS NULL AND t.standing IS NOT NULL
                    AND s.forgotten IS NULL)
           FROM sessions s LEFT JOIN names u ON u.reference = s.user
               LEFT JOIN names n ON n.reference = s.session
           WHERE s.user = ?1 AND (?2 IS NULL OR s.session = ?2)
           ORDER BY s.first_at, s.session""",
        (user, session),
    )
    return tuple(
        SessionSummary(
            user_id=_text(uid),
            session_id=_text(sid),
            state="forgotten" if forgotten is not None else "closed" if closed else "open",
            turns=turns,
            waiting_turns=waiting,
            bytes=size,
            first_at=first_at,
            last_at=last_at,
        )
        for uid, sid, forgotten, closed, turns, size, first_at, last_at, waiting in rows
    )


def read_users(connection: sqlite3.Connection) -> tuple[UserSummary, ...]:
    """Every user of the store, by name."""
    rows = connection.execute(
        """SELECT n.text, u.user_seq, count(s.session), coalesce(sum(s.turns), 0)
           FROM users u LEFT JOIN names n ON n.reference = u.user
               LEFT JOIN sessions s ON s.user = u.user AND s.forgotten IS NULL
           WHERE u.forgotten IS NULL GROUP BY u.user ORDER BY n.text"""
    )
    return tuple(UserSummary(_text(uid), seq, sessions, turns) for uid, seq, sessions, turns in rows)


def read_user_references(connection: sqlite3.Connection) -> tuple[Reference, ...]:
    """Every user by reference, the one with the latest event first."""
    rows = connection.execute(
        """SELECT u.user FROM users u JOIN events e ON e.user = u.user AND e.user_seq = u.user_seq
           WHERE u.forgotten IS NULL ORDER BY e.seq DESC"""
    )
    return tuple(user for (user,) in rows)


def knows_user(connection: sqlite3.Connection, user: Reference) -> bool:
    """Whether anything of a user is here that was not forgotten: events, or a dead letter."""
    known = """SELECT 1 FROM users WHERE user = ?1 AND forgotten IS NULL
        UNION ALL SELECT 1 FROM dead_letters WHERE user = ?1"""
    return connection.execute(known, (user,)).fetchone() is not None


def knows_session(connection: sqlite3.Connection, session: Reference) -> bool:
    """Whether anything of a session is here: a row of it, an event that names it, or a dead letter."""
    known = """SELECT 1 FROM sessions WHERE session = ?1 UNION ALL SELECT 1 FROM dead_letters WHERE session = ?1
               UNION ALL SELECT 1 FROM lineage WHERE session = ?1"""
    return connection.execute(known, (session,)).fetchone() is not None


def read_tombstones(connection: sqlite3.Connection, user: Reference) -> dict[Reference, int]:
    """Forgotten sessions of a user, by reference, to the user_seq of their SessionForgotten.

    The user itself stands among them once it is forgotten as a whole.
    """
    rows = connection.execute("SELECT subject, forgotten FROM erasures WHERE user = ?", (user,))
    return dict(rows.fetchall())


def _text(stored: bytes | None) -> str | None:
    return None if stored is None else stored.decode()
