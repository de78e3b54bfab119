"""The gate of the append transaction: what may become an event, decided before anything is written.

Design 3.2. A late answer about a forgotten session never touches the disk; a decision made on facts that
have changed since is planned again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from events.codec import Event, decode_event
from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, ScenesMerged
from events.envelope import NewEvent, Reference, commit_to
from events.errors import StaleDecision
from events.eventtree import CompactionUndone, NodesMerged, PolicyChanged, UnitsPartitioned
from events.ledger import is_parked
from events.memory import FactCorrected, FactPinned, FactRetracted, FactsAdmitted, WorkResumed
from events.session import (
    MemoryImported,
    SessionErased,
    SessionForgotten,
    SessionReplayed,
    TurnConflicted,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserErased,
    UserForgotten,
)
from events.time import Instant
from events.withdrawal import MEMORY_ROW, faint_sources_of, sources_of

# Decided on the fold: valid only while no other event that changes facts, scopes or units came between.
DECISIONS = (
    FactsAdmitted,
    FactsRouted,
    ScenesMerged,
    FactsSuperseded,
    GenerationPromoted,
    UnitsPartitioned,
    NodesMerged,
    CompactionUndone,
    FactCorrected,
    FactRetracted,
    FactPinned,
    SessionReplayed,
)
# What changes facts, scopes or units. Turns, extractions and summaries do not.
CHANGES_FACTS = (
    *DECISIONS,
    PolicyChanged,
    MemoryImported,
    TurnRevised,
    TurnRetracted,
    SessionForgotten,
    UserForgotten,
)
# The wish to forget and its receipt pass where nothing else of a session or user does.
FORGETTING = (SessionForgotten, SessionErased, UserForgotten, UserErased)


class Verdict(StrEnum):
    """What became of an event that was handed to the log."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"  # the key is known, with the same content
    CONFLICTING = "conflicting"  # the key is known, with other content
    REFUSED = "refused"  # what it comes from was forgotten, retracted or revised, or is parked no more


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict; the seq of the event that holds the key, if one does; what was forgotten, if that is why."""

    verdict: Verdict
    holder: int | None = None
    subject: Reference | None = None


def judge(
    connection: sqlite3.Connection, new: NewEvent, user: Reference, session: Reference | None, key: Reference
) -> Judgement:
    """Whether `new` may be written now.

    Raises `StaleDecision` when it was decided on facts, scopes or units that have changed since.
    """
    if isinstance(new.event, SessionForgotten | UserForgotten):
        judgement = _judge_forgetting(connection, new, user, session)
        if judgement is not None:
            return judgement
    if not isinstance(new.event, FORGETTING):
        forgotten = _find_forgotten(connection, new, user)
        if forgotten is not None:
            return Judgement(Verdict.REFUSED, subject=forgotten)
        if _is_retracted(connection, new.event, key):
            return Judgement(Verdict.REFUSED)
    holder = connection.execute("SELECT seq FROM events WHERE key = ?", (key,)).fetchone()
    if holder is not None:
        former = _find_former_life(connection, holder[0], user, session)
        if former is not None:
            return Judgement(Verdict.REFUSED, subject=former)
        same = _says_the_same(connection, holder[0], new)
        return Judgement(Verdict.DUPLICATE if same else Verdict.CONFLICTING, holder[0])
    other = _find_other_kind(connection, new.event, key)
    if other is not None:
        return Judgement(Verdict.CONFLICTING, other)
    if _reads_what_fell(connection, new.event):
        return Judgement(Verdict.REFUSED)
    if isinstance(new.event, WorkResumed) and not is_parked(connection, user, new.event.parked):
        return Judgement(Verdict.REFUSED)
    return Judgement(Verdict.RECORDED)


def is_moot(connection: sqlite3.Connection, new: NewEvent, user: Reference) -> bool:
    """Whether this would be refused by now: what it comes from was forgotten, retracted or revised.

    Asked before a model is: nothing of that may be sent to it, and its answer would be dropped.
    """
    return _find_forgotten(connection, new, user) is not None or _reads_what_fell(connection, new.event)


def check_decision(connection: sqlite3.Connection, new: NewEvent, user: Reference) -> None:
    """Raise `StaleDecision` unless `new` still stands on the facts it was decided on.

    Asked once for a batch, before its first event is written: its own events do not make it stale.
    """
    if not isinstance(new.event, DECISIONS) or new.basis is None:
        return
    row = connection.execute("SELECT decided FROM users WHERE user = ?", (user,)).fetchone()
    if row is not None and row[0] > new.basis:
        raise StaleDecision


def _judge_forgetting(
    connection: sqlite3.Connection, new: NewEvent, user: Reference, session: Reference | None
) -> Judgement | None:
    """Forgotten once is enough, unless it began anew since; an older wish that is delivered again is that one.

    None when it was never forgotten.
    """
    judgement = None
    for subject in (user, session):
        known = _read_forgetting(connection, subject)
        if known is None or known.seq is None:
            continue
        published = None if new.bus is None else new.bus.at
        if not known.reopened or (published is not None and published <= known.at):
            return Judgement(Verdict.DUPLICATE, known.seq, subject)
        judgement = Judgement(Verdict.RECORDED)
    return judgement


@dataclass(frozen=True, slots=True)
class _Forgetting:
    """When a subject was forgotten. `seq` and `user_seq` are None when only a tombstone from elsewhere tells."""

    seq: int | None
    user_seq: int | None
    at: Instant
    reopened: bool


def _read_forgetting(connection: sqlite3.Connection, subject: Reference | None) -> _Forgetting | None:
    # A wish from the bus has the bus's time, which messages are compared by: our own clock may be behind it.
    row = connection.execute(
        """SELECT r.forgotten_seq, r.forgotten, max(e.recorded_at, e.happened_at), r.reopened
           FROM erasures r JOIN events e ON e.seq = r.forgotten_seq WHERE r.subject = ?1
           UNION ALL SELECT NULL, NULL, forgotten_at, 0 FROM tombstones WHERE session = ?1""",
        (subject,),
    ).fetchone()
    return None if row is None else _Forgetting(row[0], row[1], row[2], bool(row[3]))


def is_forgotten(connection: sqlite3.Connection, subject: Reference, published_at: Instant | None) -> bool:
    """Whether a message of then belongs to a session or user that was forgotten, here or in another store.

    Once a subject began anew, that is so of messages from before its forgetting only.
    """
    known = _read_forgetting(connection, subject)
    return known is not None and not (known.reopened and published_at is not None and published_at > known.at)


def _find_forgotten(connection: sqlite3.Connection, new: NewEvent, user: Reference) -> Reference | None:
    """Its user, or the session of its lineage, that was forgotten.

    Then all is refused but what begins the subject anew. After that what came or was planned before is refused:
    a fold that stands behind the forgetting names nothing of then.
    """
    for subject in (user, *new.lineage):
        known = _read_forgetting(connection, subject)
        if known is None:
            continue
        late = new.bus is not None and (new.bus.at is None or new.bus.at <= known.at)
        stale = new.basis is not None and known.user_seq is not None and new.basis < known.user_seq
        if late or stale or not (known.reopened or (new.reopens and new.bus is not None)):
            return subject
    return None


def _find_former_life(
    connection: sqlite3.Connection, holder: int, user: Reference, session: Reference | None
) -> Reference | None:
    """The session, or user, that began anew and that the event holding the key is from the time before of.

    Its words cannot be compared any more, and a turn that comes under an old id is most likely an old one.
    """
    for subject in (session, user):
        known = _read_forgetting(connection, subject)
        if known is not None and known.seq is not None and holder < known.seq:
            return subject
    return None


def _is_retracted(connection: sqlite3.Connection, event: Event, key: Reference) -> bool:
    """Whether a turn was retracted, in whatever revision, before or after it came."""
    if not isinstance(event, TurnRecorded | TurnRevised | MemoryImported):
        return False
    turn = event.turn if isinstance(event, TurnRevised) else key
    return connection.execute("SELECT 1 FROM retractions WHERE turn = ?", (turn,)).fetchone() is not None


def _find_other_kind(connection: sqlite3.Connection, event: Event, key: Reference) -> int | None:
    """The seq of the turn whose id a memory comes under, or of the memory whose id an edit of a turn has."""
    row = None
    if isinstance(event, MemoryImported):
        row = connection.execute("SELECT seq FROM turns WHERE turn = ?", (key,)).fetchone()
    elif isinstance(event, TurnRevised):
        query = "SELECT seq FROM turns WHERE turn = ? AND closing = ?"
        row = connection.execute(query, (event.turn, MEMORY_ROW)).fetchone()
    return None if row is None else int(row[0])


def _reads_what_fell(connection: sqlite3.Connection, event: Event) -> bool:
    """Whether something that an answer or a correction was made of stands no more."""
    if isinstance(event, TurnConflicted):
        return False  # a conflict with a wording that was revised since is still worth keeping
    fallen = "SELECT 1 FROM voids WHERE seq = ?"
    return any(connection.execute(fallen, (each,)).fetchone() for each in sources_of(event)) or any(
        connection.execute(f"{fallen} AND erases > 0", (each,)).fetchone() for each in faint_sources_of(event)
    )


def _says_the_same(connection: sqlite3.Connection, holder: int, new: NewEvent) -> bool:
    """Compare with the event that holds the key, in today's version. Erased words cannot differ any more."""
    kind, version, body, happened_at, commitment = connection.execute(
        "SELECT type, version, body, happened_at, commitment FROM events WHERE seq = ?", (holder,)
    ).fetchone()
    words = connection.execute(
        "SELECT text FROM words WHERE seq = ? AND text IS NOT NULL ORDER BY n", (holder,)
    ).fetchall()
    if not words and commitment != commit_to(b"", ()):
        return True
    if happened_at != new.happened_at and not new.time_assigned:
        return False
    return decode_event(kind, version, body, [text.decode() for (text,) in words]) == new.event
