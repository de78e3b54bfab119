"""The gate of the append transaction: what may become an event, decided before anything is written.

Design 3.2. A late answer about a forgotten session never touches the disk; a decision made on facts that
have changed since is planned again.
"""

from __future__ import annotations

import sqlite3
from dataclasses import dataclass
from enum import StrEnum

from events.codec import decode_event
from events.envelope import NewEvent, Reference, commit_to
from events.errors import StaleDecision
from events.memory import FactsAdmitted, NodesMerged, UnitsPartitioned
from events.session import SessionForgotten

# Decided on the fold: valid only while no other event that changes facts, scopes or units came between.
DECISIONS = (FactsAdmitted, UnitsPartitioned, NodesMerged)
# What changes facts, scopes or units. Turns, extractions and summaries do not.
CHANGES_FACTS = (*DECISIONS, SessionForgotten)


class Verdict(StrEnum):
    """What became of an event that was handed to the log."""

    RECORDED = "recorded"
    DUPLICATE = "duplicate"  # the key is known, with the same content
    CONFLICTING = "conflicting"  # the key is known, with other content
    REFUSED = "refused"  # a session it comes from was forgotten


@dataclass(frozen=True, slots=True)
class Judgement:
    """A verdict, and the seq of the event that already holds the key, if one does."""

    verdict: Verdict
    holder: int | None = None


def judge(connection: sqlite3.Connection, new: NewEvent, session: Reference | None, key: Reference) -> Judgement:
    """Whether `new` may be written now.

    Raises `StaleDecision` when it was decided on facts, scopes or units that have changed since.
    """
    holder = connection.execute("SELECT seq FROM events WHERE key = ?", (key,)).fetchone()
    if holder is not None:
        same = _says_the_same(connection, holder[0], new)
        return Judgement(Verdict.DUPLICATE if same else Verdict.CONFLICTING, holder[0])
    if isinstance(new.event, SessionForgotten):
        return _judge_forgetting(connection, session)
    if _is_forgotten(connection, new):
        return Judgement(Verdict.REFUSED)
    return Judgement(Verdict.RECORDED)


def check_decision(connection: sqlite3.Connection, new: NewEvent, user: Reference) -> None:
    """Raise `StaleDecision` unless `new` still stands on the facts it was decided on.

    Asked once for a batch, before its first event is written: its own events do not make it stale.
    """
    if not isinstance(new.event, DECISIONS) or new.basis is None:
        return
    row = connection.execute("SELECT decided FROM users WHERE user = ?", (user,)).fetchone()
    if row is not None and row[0] > new.basis:
        raise StaleDecision


def _judge_forgetting(connection: sqlite3.Connection, session: Reference | None) -> Judgement:
    row = connection.execute("SELECT forgotten_seq FROM sessions WHERE session = ?", (session,)).fetchone()
    if row is not None and row[0] is not None:
        return Judgement(Verdict.DUPLICATE, row[0])
    return Judgement(Verdict.RECORDED)


def _is_forgotten(connection: sqlite3.Connection, new: NewEvent) -> bool:
    """Whether a session of its lineage was forgotten, whatever the event was planned from.

    A fold that stands behind the forgetting names the session no more, so nothing true is refused.
    """
    for session in new.lineage:
        row = connection.execute("SELECT forgotten FROM sessions WHERE session = ?", (session,)).fetchone()
        if row is not None and row[0] is not None:
            return True
    return False


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
