"""Erasing what a forgotten session left: the texts of words and names, and its dead letters. Nothing else.

Rows are emptied in place and never deleted, or copies of them would stay in the file (see schema.py).

Done in slices, each its own transaction, so that turns keep coming in between; a restart goes on where it
stopped. What the chain covers is never touched (design 3.1).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from events.envelope import Reference

# Events a slice; some ten milliseconds of the writer's time.
SLICE_EVENTS = 200

# A row that shrinks stays on its page, whose freed bytes secure_delete clears.
_EMPTY_WORDS = "UPDATE words SET nonce = x'', text = NULL WHERE seq = ? AND text IS NOT NULL"
_EMPTY_NAME = "UPDATE names SET text = NULL WHERE reference = ? AND text IS NOT NULL"
_EMPTY_LETTERS = """UPDATE letters SET subject = x'', payload = NULL, message_id = NULL
    WHERE session = ? AND payload IS NOT NULL"""


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """What is gone so far, and the user_seq of the SessionForgotten it follows."""

    forgotten: int
    events_voided: int
    words_erased: int
    names_erased: int
    dead_letters_erased: int


def read_unerased(connection: sqlite3.Connection) -> tuple[tuple[bytes, bytes], ...]:
    """Forgotten sessions whose SessionErased is still missing: (user, session)."""
    return tuple(
        connection.execute(
            "SELECT user, session FROM sessions WHERE forgotten IS NOT NULL AND erased IS NULL"
        ).fetchall()
    )


def erase_slice(connection: sqlite3.Connection, session: Reference) -> bool:
    """Erase the words and keys of some voided events; True when nothing of the session is left.

    Raises sqlite3.Error and changes nothing when the slice could not be written.
    """
    connection.execute("BEGIN IMMEDIATE")
    try:
        voided = connection.execute(
            """SELECT l.seq, e.key FROM lineage l JOIN sessions s ON s.session = l.session
                   JOIN events e ON e.seq = l.seq
               WHERE l.session = ?1 AND l.seq > s.erased_to AND l.seq < s.forgotten_seq
               ORDER BY l.seq LIMIT ?2""",
            (session, SLICE_EVENTS),
        ).fetchall()
        words = _empty(connection, _EMPTY_WORDS, [(seq,) for seq, _ in voided])
        names = _empty(connection, _EMPTY_NAME, [(key,) for _, key in voided])
        done = len(voided) < SLICE_EVENTS
        letters = 0
        if done:
            letters = _empty(connection, _EMPTY_LETTERS, [(session,)])
            names += _erase_own_names(connection, session)
        connection.execute(
            """UPDATE sessions SET erased_to = max(erased_to, ?), words_erased = words_erased + ?,
                   names_erased = names_erased + ?, dead_letters_erased = dead_letters_erased + ?,
                   bytes = 0, first_at = NULL, last_at = NULL
               WHERE session = ?""",
            (voided[-1][0] if voided else 0, words, names, letters, session),
        )
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    return done


def count_erased(connection: sqlite3.Connection, session: Reference) -> ErasureCounts:
    """What erasing the session took so far."""
    row = connection.execute(
        """SELECT s.forgotten,
               (SELECT count(*) FROM lineage l WHERE l.session = s.session AND l.seq < s.forgotten_seq),
               s.words_erased, s.names_erased, s.dead_letters_erased
           FROM sessions s WHERE s.session = ?""",
        (session,),
    ).fetchone()
    return ErasureCounts(*row)


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Move everything into the main file and empty the write-ahead log; False while a reader holds it.

    Until then erased bytes still stand in `events.db-wal` (engineering.md D4).
    """
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy == 0)


def _erase_own_names(connection: sqlite3.Connection, session: Reference) -> int:
    """The session's id, and the key of its SessionForgotten, which spells it."""
    (key,) = connection.execute(
        "SELECT e.key FROM events e JOIN sessions s ON s.forgotten_seq = e.seq WHERE s.session = ?",
        (session,),
    ).fetchone()
    return _empty(connection, _EMPTY_NAME, [(session,), (key,)])


def _empty(connection: sqlite3.Connection, statement: str, rows: list[tuple[object, ...]]) -> int:
    return max(0, connection.executemany(statement, rows).rowcount) if rows else 0
