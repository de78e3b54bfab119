"""`sessions.events`: everything that happened in and because of a session, page by page or as it comes."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, TypeAlias

import anyio

from daemon.erasure.receipts import SessionUnknown
from daemon.serving.protocol import Params
from events.codec import Event
from events.envelope import RecordedEvent, Reference
from events.errors import InvalidInput
from events.hindsight import Hindsight
from events.log import EventLog
from events.reading import read_events
from events.registry import knows_session, read_tombstones
from events.time import to_iso
from events.withdrawal import read_voids

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
AFTER_MAX = 2**62  # of what SQLite can count to
# A long poll; longer ones are asked again, so that who went away is not waited for.
WAIT_MAX_S = 30.0
# Between two looks while the log grows fast: others' events wake us, too.
LOOK_AGAIN_S = 0.1

# What an event says besides its words, by field.
Numbers: TypeAlias = dict[str, int | bool | str]
# Fields that are places in the log, which nobody outside speaks of.
_PLACES = frozenset({"last_turn", "stands", "replaces"})
_TEXTS = frozenset({"text", "content"})


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

    async def events(self, params: SessionEventsParams) -> EventPage:
        """A page of a session's events. Raises `InvalidInput`, `SessionUnknown`."""
        if not 1 <= params.limit <= LIMIT_MAX:
            raise InvalidInput(f"limit is from 1 to {LIMIT_MAX}")
        if not 0 <= params.after <= AFTER_MAX:
            raise InvalidInput("after is the user_seq of an event, or 0")
        if not 0 <= params.wait_s <= WAIT_MAX_S:
            raise InvalidInput(f"wait_s is from 0 to {WAIT_MAX_S:g} seconds; then ask again")
        user = self._log.keys.user(params.user_id)
        session = self._log.keys.session(params.user_id, params.session_id)
        page = EventPage([], params.after, more=False)
        with anyio.move_on_after(params.wait_s):
            while True:
                head = self._log.head
                # Not given up half-way: the page that was read is the answer, however late.
                with anyio.CancelScope(shield=True):
                    page = await self._log.read(
                        lambda db, after=page.next: _read_page(db, user, session, after, params.limit)  # type: ignore[misc]
                    )
                if page.events or not params.wait_s:
                    return page
                await self._log.wait_past(head)
                await anyio.sleep(LOOK_AGAIN_S)
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
    recorded = read_events(connection, seqs)
    causes = _read_positions(connection, [each.caused_by for each in recorded.values() if each.caused_by])
    # Last, so that no word is shown that was forgotten meanwhile.
    hindsight = Hindsight(tombstones=read_tombstones(connection, user), voids=read_voids(connection, user))
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


def is_gone(recorded: RecordedEvent, hindsight: Hindsight) -> bool:
    """Whether the words of an event are erased, or will be: they are not shown any more."""
    void = hindsight.voids.get(recorded.seq)
    subjects = (recorded.user, *recorded.lineage)
    return (
        recorded.event is None
        or (void is not None and void.erases)
        or any(recorded.user_seq < hindsight.tombstones.get(subject, 0) for subject in subjects)
    )


def measure_event(event: Event) -> Numbers:
    """The numbers of an event: figures, ids in hex, how many entries lists have, how long texts are; no words."""
    return dict(_measure(event))


def _measure(part: Any) -> Iterator[tuple[str, int | bool | str]]:
    for field in dataclasses.fields(part):
        value: object = getattr(part, field.name)
        if isinstance(value, StrEnum):
            yield field.name, value.value
        elif isinstance(value, str):
            if field.name in _TEXTS:
                yield "characters", len(value)
        elif isinstance(value, bytes):
            yield field.name, value.hex()
        elif isinstance(value, tuple):
            if value:
                yield field.name, len(value)
        elif isinstance(value, int):
            if field.name not in _PLACES:
                yield field.name, value
        elif dataclasses.is_dataclass(value):
            yield from _measure(value)


def text_of(event: Event) -> str | None:
    """What was said or written in an event, one text a line; None when it has no text."""
    texts = list(_texts(event))
    return "\n".join(texts) if texts else None


def _texts(part: Any) -> Iterator[str]:
    for field in dataclasses.fields(part):
        value: object = getattr(part, field.name)
        if isinstance(value, str) and field.name in _TEXTS:
            speaker = (
                getattr(part, "name", None) or getattr(part, "role", None) if field.name == "content" else None
            )
            yield f"{speaker}: {value}" if speaker else value
        elif isinstance(value, tuple):
            for each in value:
                if dataclasses.is_dataclass(each):
                    yield from _texts(each)
        elif dataclasses.is_dataclass(value):
            yield from _texts(value)
