"""Tombstones: what says that something was forgotten when the thing itself is gone, here and in other stores.

They are keyed references under the store's secret, never names, so they may travel: to the bucket on the bus, in
receipts, into a restored backup.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from events.database import immediate
from events.envelope import NewEvent, Reference
from events.session import SessionForgotten, UserForgotten
from events.time import Instant


@dataclass(frozen=True, slots=True)
class Tombstone:
    """Tells that a session of a user was forgotten; without one, the user as a whole. References, never names."""

    session: Reference | None
    user: Reference
    forgotten_at: Instant

    @property
    def subject(self) -> Reference:
        """What was forgotten."""
        return self.session or self.user


def read_tombstone(connection: sqlite3.Connection, subject: Reference) -> Tombstone:
    """The tombstone of something that this store was told to forget: since when, by our clock or the bus's."""
    user, at = connection.execute(
        """SELECT r.user, max(e.recorded_at, e.happened_at)
           FROM erasures r JOIN events e ON e.seq = r.forgotten_seq WHERE r.subject = ?""",
        (subject,),
    ).fetchone()
    return Tombstone(None if subject == user else subject, user, at)


def read_own_tombstones(connection: sqlite3.Connection) -> tuple[Tombstone, ...]:
    """The tombstones of everything this store was told to forget, or was told of."""
    rows = connection.execute(
        """SELECT r.subject, r.user, max(e.recorded_at, e.happened_at)
           FROM erasures r JOIN events e ON e.seq = r.forgotten_seq
           UNION SELECT session, user, forgotten_at FROM tombstones"""
    )
    return tuple(Tombstone(None if subject == user else subject, user, at) for subject, user, at in rows)


def plant_tombstones(connection: sqlite3.Connection, tombstones: Sequence[Tombstone]) -> int:
    """Take over what another source says was forgotten; how many this store did not know."""
    with immediate(connection):
        planted = connection.executemany(
            """INSERT OR IGNORE INTO tombstones SELECT ?1, ?2, ?3
               WHERE NOT EXISTS (SELECT 1 FROM erasures WHERE subject IN (?1, ?2))""",
            [(each.subject, each.user, each.forgotten_at) for each in tombstones],
        )
    return max(0, planted.rowcount)


def read_tombstones_of(
    connection: sqlite3.Connection, subjects: Iterable[Reference | None]
) -> tuple[Tombstone, ...]:
    """What another source says of these sessions and users that is not recorded here."""
    rows = [
        row
        for subject in subjects
        for row in connection.execute("SELECT * FROM tombstones WHERE session = ?", (subject,))
    ]
    return tuple(Tombstone(None if subject == user else subject, user, at) for subject, user, at in rows)


def forget_as_told(tombstone: Tombstone) -> NewEvent:
    """The event by which a forgetting that another source tells of becomes one of this log."""
    return NewEvent(
        user_id=None,
        session_id=None,
        event=UserForgotten() if tombstone.session is None else SessionForgotten(),
        key=f"tombstone/{tombstone.subject.hex()}",
        happened_at=tombstone.forgotten_at,
        user=tombstone.user,
        session=tombstone.session,
        time_assigned=True,
    )


def read_planted(connection: sqlite3.Connection) -> tuple[Tombstone, ...]:
    """Tombstones from elsewhere of what is still known here: these are to be forgotten, too.

    A session belongs to whom this store says it does, and users come first: what is theirs goes with them.
    """
    rows = connection.execute(
        """SELECT t.session, t.session, t.forgotten_at FROM tombstones t
               WHERE t.session IN (SELECT user FROM users UNION SELECT user FROM dead_letters)
           UNION ALL SELECT t.session, s.user, t.forgotten_at
               FROM tombstones t JOIN sessions s ON s.session = t.session
               WHERE NOT EXISTS (SELECT 1 FROM erasures r WHERE r.subject = s.user AND r.reopened = 0)
           UNION ALL SELECT t.session, l.user, t.forgotten_at
               FROM tombstones t JOIN dead_letters l ON l.session = t.session
               WHERE NOT EXISTS (SELECT 1 FROM sessions s WHERE s.session = t.session) GROUP BY t.session"""
    )
    return tuple(Tombstone(None if subject == user else subject, user, at) for subject, user, at in rows)
