"""What a fold must know of the end of a user's log before it begins: what was forgotten, retracted or reworded.

With it one pass gives the Memory as it is now: a turn that was edited is read in its last wording at its place,
and what was made of the older one is passed over (design 3.2).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass, field

from events.envelope import RecordedEvent, Reference
from events.reading import read_events
from events.registry import read_tombstones
from events.session import TurnRevised
from events.withdrawal import Void, read_voids


@dataclass(frozen=True, slots=True)
class Hindsight:
    """Read at `user_seq`; a fold that goes further meets news, and begins again where these undo something."""

    user_seq: int = 0
    # Forgotten session (or the user itself) to the user_seq of the event that forgot it.
    tombstones: Mapping[Reference, int] = field(default_factory=dict[Reference, int])
    # Events that stand no more, by seq.
    voids: Mapping[int, Void] = field(default_factory=dict[int, Void])
    # Places of retracted turns, by seq: they still count when chunks are cut.
    holes: frozenset[int] = frozenset()
    # The last wording of each revised turn.
    wordings: Mapping[Reference, RecordedEvent] = field(default_factory=dict[Reference, RecordedEvent])

    def undoes_after(self, user_seq: int) -> bool:
        """Whether an event behind a user_seq put something out of force that may be folded up to there."""
        return any(void.since > user_seq for void in self.voids.values()) or any(
            forgotten > user_seq for forgotten in self.tombstones.values()
        )


def read_hindsight(connection: sqlite3.Connection, user: Reference, to_user_seq: int | None = None) -> Hindsight:
    """What to know before folding a user's events up to a user_seq (None: all there are).

    Words that are erased are gone whatever the user_seq; revisions and the like count up to it only.
    """
    connection.execute("BEGIN")
    try:
        row = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
        head = 0 if row is None else int(row[0])
        voids = read_voids(connection, user, to_user_seq)
        holes = connection.execute(
            """SELECT t.seq FROM sessions s JOIN turns t ON t.session = s.session
               WHERE s.user = ? AND t.closing = 0 AND t.standing IS NULL""",
            (user,),
        )
        return Hindsight(
            user_seq=head if to_user_seq is None else min(head, to_user_seq),
            tombstones=read_tombstones(connection, user),
            voids=voids,
            holes=frozenset(seq for (seq,) in holes),
            wordings=_read_wordings(connection, user, voids, head if to_user_seq is None else to_user_seq),
        )
    finally:
        connection.execute("COMMIT")


def last_undoing(connection: sqlite3.Connection, user: Reference) -> int:
    """user_seq of the last event that took words away; a Memory from before it can be compared with no fold."""
    (last,) = connection.execute(
        """SELECT coalesce(max(user_seq), 0) FROM events
           WHERE user = ? AND type IN ('turn.retracted', 'session.forgotten', 'user.forgotten')""",
        (user,),
    ).fetchone()
    return int(last)


def _read_wordings(
    connection: sqlite3.Connection, user: Reference, voids: Mapping[int, Void], to_user_seq: int
) -> dict[Reference, RecordedEvent]:
    rows = connection.execute(
        "SELECT seq FROM events WHERE user = ? AND type = 'turn.revised' AND user_seq <= ? ORDER BY seq",
        (user, to_user_seq),
    ).fetchall()
    revised = read_events(connection, [seq for (seq,) in rows if seq not in voids])
    return {each.event.turn: each for each in revised.values() if isinstance(each.event, TurnRevised)}
