"""Erasing what was forgotten or retracted: the texts of words and names, and dead letters. Nothing else.

Rows are emptied in place and never deleted, or copies of them would stay in the file (see migrations.py).

Done in slices, each its own transaction, so that turns keep coming in between; a restart goes on where it
stopped. What the chain covers is never touched (design 3.1). The bus positions of what is erased are written
down as unwanted in the same slice, so that the copies on the bus are found when their names are gone.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass

from events.bus_copies import OWNED_BY_LAST, want_gone
from events.database import immediate
from events.envelope import RecordedEvent, Reference

# Events a slice; some ten milliseconds of the writer's time.
SLICE_EVENTS = 200

# A row that shrinks stays on its page, whose freed bytes secure_delete clears.
_EMPTY_WORDS = "UPDATE words SET nonce = x'', text = NULL WHERE seq = ? AND text IS NOT NULL"
_EMPTY_NAME = "UPDATE names SET text = NULL WHERE reference = ? AND text IS NOT NULL"
_EMPTY_LETTERS = """UPDATE letters SET subject = x'', payload = NULL, message_id = NULL
    WHERE {} = ? AND payload IS NOT NULL AND received_at <= ?"""
# Dead letters of turns that were taken back.
_RETRACTED_LETTERS = "FROM retractions r JOIN letters l ON l.turn = r.turn WHERE l.payload IS NOT NULL"
# The voided events of a session, and of a user, behind what is erased already.
_OF_SESSION = """SELECT l.seq, e.key FROM lineage l JOIN events e ON e.seq = l.seq
    WHERE l.session = ?1 AND l.seq > ?2 AND l.seq < ?3 ORDER BY l.seq LIMIT ?4"""
# Not all of them have a row in `sessions`: of some there came dead letters or retractions alone.
_SESSIONS_NAMED = """SELECT n.session FROM (
        SELECT session FROM events WHERE user = ?1 AND session IS NOT NULL
        UNION SELECT session FROM letters WHERE user = ?1 AND session IS NOT NULL) n
    LEFT JOIN sessions s ON s.session = n.session WHERE s.session IS NULL OR s.forgotten IS NOT NULL"""
_OF_USER = """SELECT seq, key FROM events
    WHERE user = ?1 AND user_seq > coalesce((SELECT user_seq FROM events WHERE seq = ?2), 0) AND seq < ?3
    ORDER BY user_seq LIMIT ?4"""


@dataclass(frozen=True, slots=True)
class Unerased:
    """A forgotten session, or a forgotten user (then subject = user), whose receipt is still missing."""

    user: Reference
    subject: Reference
    forgotten: int  # user_seq

    @property
    def is_user(self) -> bool:
        """Whether all of the user is forgotten."""
        return self.subject == self.user


@dataclass(frozen=True, slots=True)
class _Erasing:
    """A row of `erasures` that is being worked on."""

    subject: Reference
    user: Reference
    reached: int
    forgotten_seq: int
    reopened: int

    @property
    def owner(self) -> str:
        """The column that names the subject."""
        return "user" if self.subject == self.user else "session"


@dataclass(frozen=True, slots=True)
class ErasureCounts:
    """What is gone so far of one subject. `bus_left` counts messages that were not deleted yet."""

    words: int
    names: int
    dead_letters: int
    bus_erased: int
    bus_left: int


def index_forgetting(connection: sqlite3.Connection, recorded: RecordedEvent, subject: Reference) -> None:
    """Note that a subject was forgotten: from here on the gate refuses it, and its erasing is open."""
    connection.execute(
        """INSERT INTO erasures (subject, user, forgotten, forgotten_seq) VALUES (?1, ?2, ?3, ?4)
           ON CONFLICT (subject) DO UPDATE
           SET forgotten = ?3, forgotten_seq = ?4, erased = NULL, reopened = 0, words = 0, names = 0,
               dead_letters = 0, bus_erased = 0""",
        (subject, recorded.user, recorded.user_seq, recorded.seq),
    )
    connection.execute("DELETE FROM tombstones WHERE session = ?1 OR user = ?1", (subject,))


def reopen(connection: sqlite3.Connection, user: Reference, session: Reference | None) -> None:
    """A forgotten session, or user, begins anew with the message that is being written."""
    connection.execute("UPDATE erasures SET reopened = 1 WHERE subject IN (?, ?)", (user, session))
    connection.execute("UPDATE users SET forgotten = NULL WHERE user = ?", (user,))
    connection.execute(
        """UPDATE sessions SET forgotten = NULL, turns = 0, bytes = 0, first_at = NULL, last_at = NULL
           WHERE session = ? AND forgotten IS NOT NULL""",
        (session,),
    )


def read_unerased(connection: sqlite3.Connection) -> tuple[Unerased, ...]:
    """What is forgotten and has no receipt yet."""
    rows = connection.execute("SELECT user, subject, forgotten FROM erasures WHERE erased IS NULL")
    return tuple(Unerased(*row) for row in rows)


def erase_slice(connection: sqlite3.Connection, subject: Reference) -> bool:
    """Erase the words and keys of some voided events; True when nothing of the subject is left.

    Raises sqlite3.Error and changes nothing when the slice could not be written.
    """
    with immediate(connection):
        erasure = _Erasing(
            subject,
            *connection.execute(
                "SELECT user, reached, forgotten_seq, reopened FROM erasures WHERE subject = ?", (subject,)
            ).fetchone(),
        )
        reached, forgotten_seq = erasure.reached, erasure.forgotten_seq
        voided = connection.execute(
            _OF_USER if erasure.owner == "user" else _OF_SESSION, (subject, reached, forgotten_seq, SLICE_EVENTS)
        ).fetchall()
        words = _empty(connection, _EMPTY_WORDS, [(seq,) for seq, _ in voided])
        names = _empty(connection, _EMPTY_NAME, [(key,) for _, key in voided])
        want_gone(connection, [seq for seq, _ in voided], subject)
        done = len(voided) < SLICE_EVENTS
        letters = 0
        if done:
            letters = _erase_letters(connection, erasure)
            names += _erase_own_names(connection, erasure)
            want_gone(connection, [forgotten_seq], subject)
        connection.execute(
            """UPDATE erasures SET reached = ?, words = words + ?, names = names + ?,
                   dead_letters = dead_letters + ? WHERE subject = ?""",
            (voided[-1][0] if voided else reached, words, names, letters, subject),
        )
    return done


def erase_retracted(connection: sqlite3.Connection) -> int:
    """Erase what retractions put out of force; how many events' words and letters went, at most a slice.

    They may stand in the write-ahead log until `settle_retracted`.
    """
    with immediate(connection):
        voided = connection.execute(
            "SELECT v.seq, e.key FROM voids v JOIN events e ON e.seq = v.seq WHERE v.erases = 1 LIMIT ?",
            (SLICE_EVENTS,),
        ).fetchall()
        _empty(connection, _EMPTY_WORDS, [(seq,) for seq, _ in voided])
        _empty(connection, _EMPTY_NAME, [(key,) for _, key in voided])
        want_gone(connection, [seq for seq, _ in voided], None)
        connection.executemany("UPDATE voids SET erases = 2 WHERE seq = ?", [(seq,) for seq, _ in voided])
        letters = connection.execute(f"SELECT l.id {_RETRACTED_LETTERS} LIMIT ?", (SLICE_EVENTS,)).fetchall()
        connection.executemany(
            f"""INSERT INTO unwanted SELECT bus_stream, bus_epoch, bus_seq, NULL FROM letters
                WHERE id = ? {OWNED_BY_LAST}""",
            letters,
        )
        connection.executemany(
            "UPDATE letters SET subject = x'', payload = NULL, message_id = NULL WHERE id = ?", letters
        )
    return len(voided) + len(letters)


def settle_retracted(connection: sqlite3.Connection) -> int:
    """Note that what `erase_retracted` emptied stands in no file any more; of how many events."""
    return connection.execute("UPDATE voids SET erases = 3 WHERE erases = 2").rowcount


def has_emptied(connection: sqlite3.Connection) -> bool:
    """Whether words of retracted turns were erased and may still stand in the write-ahead log."""
    return connection.execute("SELECT 1 FROM voids WHERE erases = 2 LIMIT 1").fetchone() is not None


def has_retracted(connection: sqlite3.Connection) -> bool:
    """Whether words of retracted turns are still to be erased."""
    left = f"SELECT 1 FROM voids WHERE erases = 1 UNION ALL SELECT 1 {_RETRACTED_LETTERS} LIMIT 1"
    return connection.execute(left).fetchone() is not None


def count_erased(connection: sqlite3.Connection, subject: Reference) -> ErasureCounts:
    """What erasing the subject took so far."""
    row = connection.execute(
        """SELECT words, names, dead_letters, bus_erased,
               (SELECT count(*) FROM unwanted u WHERE u.subject = e.subject)
           FROM erasures e WHERE subject = ?""",
        (subject,),
    ).fetchone()
    return ErasureCounts(*row)


def count_voided(connection: sqlite3.Connection, erased: Unerased) -> dict[str, tuple[int, int, int]]:
    """The events that forgetting the subject voided, by type: how many, first and last user_seq."""
    events = "lineage l CROSS JOIN events e ON e.seq = l.seq WHERE l.session = ?1"
    if erased.is_user:
        events = "events e WHERE e.user = ?1"
    rows = connection.execute(
        f"SELECT type, count(*), min(user_seq), max(user_seq) FROM {events} AND user_seq < ?2 GROUP BY type",
        (erased.subject, erased.forgotten),
    )
    return {kind: (count, first, last) for kind, count, first, last in rows}


def read_words_to_erase(
    connection: sqlite3.Connection, subject: Reference, after: int, limit: int = SLICE_EVENTS
) -> tuple[list[bytes], int | None]:
    """The words of some events that are to be erased, behind seq `after`, and the seq to go on from, if any."""
    user, forgotten_seq = connection.execute(
        "SELECT user, forgotten_seq FROM erasures WHERE subject = ?", (subject,)
    ).fetchone()
    voided = connection.execute(
        _OF_USER if subject == user else _OF_SESSION, (subject, after, forgotten_seq, limit)
    ).fetchall()
    texts = [
        bytes(text)
        for seq, _ in voided
        for (text,) in connection.execute(
            "SELECT text FROM words WHERE seq = ? AND text IS NOT NULL ORDER BY n", (seq,)
        )
    ]
    return texts, voided[-1][0] if len(voided) == limit else None


def read_letters_to_erase(
    connection: sqlite3.Connection, subject: Reference, limit: int = SLICE_EVENTS
) -> list[bytes]:
    """The payloads of dead letters that are to be erased; of very many some."""
    rows = connection.execute(
        """SELECT payload FROM letters WHERE session = ?1 AND payload IS NOT NULL
           UNION ALL SELECT payload FROM letters WHERE user = ?1 AND payload IS NOT NULL LIMIT ?2""",
        (subject, limit),
    )
    return [bytes(payload) for (payload,) in rows]


def truncate_wal(connection: sqlite3.Connection) -> bool:
    """Move everything into the main file and empty the write-ahead log; False while a reader holds it.

    Until then erased bytes still stand in `events.db-wal` (engineering.md D4).
    """
    busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    return bool(busy == 0)


def _erase_letters(connection: sqlite3.Connection, erasure: _Erasing) -> int:
    """Those that came before the forgetting; later ones are of a subject that began anew."""
    (at,) = connection.execute("SELECT recorded_at FROM events WHERE seq = ?", (erasure.forgotten_seq,)).fetchone()
    connection.execute(
        f"""INSERT INTO unwanted SELECT bus_stream, bus_epoch, bus_seq, ?1 FROM letters
            WHERE {erasure.owner} = ?1 AND received_at <= ?2 {OWNED_BY_LAST}""",
        (erasure.subject, at),
    )
    return _empty(connection, _EMPTY_LETTERS.format(erasure.owner), [(erasure.subject, at)])


def _erase_own_names(connection: sqlite3.Connection, erasure: _Erasing) -> int:
    """The subject's id, and the key of the event that forgot it, which spells it; the ids of a user's sessions.

    What began anew meanwhile keeps its name.
    """
    subject, owner = erasure.subject, erasure.owner
    (key,) = connection.execute("SELECT key FROM events WHERE seq = ?", (erasure.forgotten_seq,)).fetchone()
    connection.execute(
        f"""DELETE FROM turns WHERE seq < ?2
            AND session IN (SELECT session FROM sessions WHERE {owner} = ?1)""",
        (subject, erasure.forgotten_seq),
    )
    names = [(key,)]
    if owner == "user":
        names += connection.execute(_SESSIONS_NAMED, (subject,)).fetchall()
        connection.execute("DELETE FROM digests WHERE user = ?", (subject,))
    connection.execute(
        f"""UPDATE sessions SET bytes = 0, first_at = NULL, last_at = NULL
            WHERE {owner} = ? AND forgotten IS NOT NULL""",
        (subject,),
    )
    if not erasure.reopened:
        names.append((subject,))
    return _empty(connection, _EMPTY_NAME, names)


def _empty(connection: sqlite3.Connection, statement: str, rows: Sequence[tuple[object, ...]]) -> int:
    return max(0, connection.executemany(statement, rows).rowcount) if rows else 0
