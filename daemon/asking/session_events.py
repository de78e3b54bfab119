"""`sessions.events`: everything that happened in and because of a session, page by page or as it comes."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from dataclasses import dataclass

import anyio

from daemon.asking.words import Numbers, is_gone, measure_event, read_with_hindsight, text_of
from daemon.erasure.receipts import SessionUnknown
from daemon.untrusted import Params, check_limit
from events.envelope import RecordedEvent, Reference
from events.errors import InvalidInput
from events.hindsight import Hindsight
from events.log import EventLog
from events.registry import knows_session
from events.time import to_iso

LIMIT_DEFAULT = 100
AFTER_MAX = 2**62  # of what SQLite can count to
# A long poll; longer ones are asked again, so that who went away is not waited for.
WAIT_MAX_S = 30.0
# Between two looks while the log grows fast: others' events wake us, too.
LOOK_AGAIN_S = 0.1


class SessionEventsParams(Params, frozen=True, kw_only=True):
    """Parameters of `sessions.events`: at most `limit` events behind user_seq `after`.

    When there are none, wait for the next one up to `wait_s` seconds.
    """

    user_id: str
    session_id: str
    after: int = 0
    limit: int = LIMIT_DEFAULT
    wait_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EventShown:
    """One event. `words` is erased once nothing of them may be shown; `what` holds numbers and ids by field."""

    user_seq: int
    at: str
    type: str
    happened_at: str
    caused_by: int | None  # user_seq
    words: str
    what: Numbers
    text: str | None


@dataclass(frozen=True, slots=True)
class EventPage:
    """`next` is the `after` to go on from, also when there was nothing; `more` says that there is more now."""

    events: list[EventShown]
    next: int
    more: bool


class SessionEvents:
    """Reads the log for whoever wants to see how the memory of a session came to be."""

    def __init__(self, log: EventLog) -> None:
        self._log = log
        self._polls: set[anyio.CancelScope] = set()
        self._stopped = False

    def stop(self) -> None:
        """Answer every long poll now with what there is; nobody is kept waiting from here on."""
        self._stopped = True
        for poll in self._polls:
            poll.cancel()

    async def events(self, params: SessionEventsParams) -> EventPage:
        """A page of a session's events. Raises `InvalidInput`, `SessionUnknown`."""
        check_limit(params.limit)
        if not 0 <= params.after <= AFTER_MAX:
            raise InvalidInput("after is the user_seq of an event, or 0")
        if not 0 <= params.wait_s <= WAIT_MAX_S:
            raise InvalidInput(f"wait_s is from 0 to {WAIT_MAX_S:g} seconds; then ask again")
        user = self._log.keys.user(params.user_id)
        session = self._log.keys.session(params.user_id, params.session_id)
        page = EventPage([], params.after, more=False)
        with anyio.move_on_after(params.wait_s) as poll:
            self._polls.add(poll)
            try:
                while True:
                    head = self._log.head
                    # Not given up half-way: the page that was read is the answer, however late.
                    with anyio.CancelScope(shield=True):
                        page = await self._log.read(
                            lambda db, after=page.next: _read_page(db, user, session, after, params.limit)  # type: ignore[misc]
                        )
                    if page.events or not params.wait_s or self._stopped:
                        return page
                    await self._log.wait_past(head)
                    await anyio.sleep(LOOK_AGAIN_S)
            finally:
                self._polls.discard(poll)
        return page


def _read_page(
    connection: sqlite3.Connection, user: Reference, session: Reference, after: int, limit: int
) -> EventPage:
    if not knows_session(connection, session):
        raise SessionUnknown
    (head,) = connection.execute(
        "SELECT coalesce(max(user_seq), 0) FROM events WHERE user = ?", (user,)
    ).fetchone()
    rows = connection.execute(
        """SELECT e.seq FROM events e WHERE e.user = ?1 AND e.user_seq > ?2 AND e.user_seq <= ?3
               AND (e.session = ?4 OR EXISTS (SELECT 1 FROM lineage l WHERE l.session = ?4 AND l.seq = e.seq))
           ORDER BY e.user_seq LIMIT ?5""",
        (user, after, head, session, limit + 1),
    )
    seqs = [seq for (seq,) in rows]
    more, seqs = len(seqs) > limit, seqs[:limit]
    recorded, hindsight = read_with_hindsight(connection, user, seqs)
    causes = _read_positions(connection, [each.caused_by for each in recorded.values() if each.caused_by])
    events = [show_event(recorded[seq], hindsight, causes) for seq in seqs]
    return EventPage(events, events[-1].user_seq if more else max(after, head), more)


def _read_positions(connection: sqlite3.Connection, seqs: list[int]) -> dict[int, int]:
    """The user_seq of each of these events."""
    marks = ",".join("?" * len(seqs))
    return dict(connection.execute(f"SELECT seq, user_seq FROM events WHERE seq IN ({marks})", seqs).fetchall())


def show_event(recorded: RecordedEvent, hindsight: Hindsight, causes: Mapping[int, int]) -> EventShown:
    """An event for people and programs that look; `causes` gives the user_seq of its cause."""
    event = None if is_gone(recorded, hindsight) else recorded.event
    return EventShown(
        user_seq=recorded.user_seq,
        at=to_iso(recorded.recorded_at),
        type=recorded.type,
        happened_at=to_iso(recorded.happened_at),
        caused_by=None if recorded.caused_by is None else causes.get(recorded.caused_by),
        words="erased" if event is None else "kept",
        what={} if event is None else measure_event(event),
        text=None if event is None else text_of(event),
    )
