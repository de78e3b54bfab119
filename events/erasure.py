"""Erasing what a forgotten session left: rows of words and names, and its dead letters. Nothing else.

Done in slices, each its own transaction, so that turns keep coming in between; a restart goes on where it
stopped. What the chain covers is never touched (design 3.1).
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass

from events.envelope import Reference

# Events a slice; some ten milliseconds of the writer's time.
SLICE_EVENTS = 200


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
               WHERE l.session = ?1 AND l.seq < s.forgotten_seq
                   AND (EXISTS (SELECT 1 FROM words w WHERE w.seq = l.seq)
                        OR EXISTS (SELECT 1 FROM names n WHERE n.reference = e.key))
               ORDER BY l.seq LIMIT ?2""",
            (session, SLICE_EVENTS),
        ).fetchall()
        words = _delete(connection, "DELETE FROM words WHERE seq = ?", [(seq,) for seq, _ in voided])
        names = _delete(connection, "DELETE FROM names WHERE reference = ?", [(key,) for _, key in voided])
        done = len(voided) < SLICE_EVENTS
        letters = 0
        if done:
            letters = connection.execute("DELETE FROM dead_letters WHERE session = ?", (session,)).rowcount
            names += _erase_own_names(connection, session)
        connection.execute(
            """UPDATE sessions SET words_erased = words_erased + ?, names_erased = names_erased + ?,
                   dead_letters_erased = dead_letters_erased + ?, bytes = 0, first_at = NULL, last_at = NULL
               WHERE session = ?""",
            (words, names, letters, session),
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
        """SELECT s.forgotten, (SELECT count(*) FROM lineage l WHERE l.session = s.session AND l.seq < s.forgotten_seq),
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
    return _delete(connection, "DELETE FROM names WHERE reference = ?", [(session,), (key,)])


def _delete(connection: sqlite3.Connection, statement: str, rows: list[tuple[object, ...]]) -> int:
    return max(0, connection.executemany(statement, rows).rowcount) if rows else 0
