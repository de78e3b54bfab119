"""`parked.*`: look at work that was given up, and have it tried again."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial

from daemon.asking.answer_types import Source
from daemon.asking.listings import find_user
from daemon.asking.spent import SpentShown, show_usage
from daemon.asking.words import is_gone, read_with_hindsight, source_of, text_of
from daemon.untrusted import Params, check_limit
from events.appending import Batch
from events.envelope import NewEvent, RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError
from events.gate import Verdict
from events.ledger import is_parked, read_parked
from events.log import EventLog
from events.memory import WorkParked, WorkResumed
from events.names import read_names
from events.reading import read_events
from events.session import MemoryImported, TurnRecorded, TurnRevised
from events.time import Instant, to_iso

LIMIT_DEFAULT = 100
# What SQLite takes for a row's id.
ID_MAX = 2**63 - 1
# Of work that was to be made of more events, a list names so many; `parked.get` shows more.
NAMED_MAX = 20
SHOWN_MAX = 200
# Resumed in one transaction, so that turns come in between.
RESUMED_AT_ONCE = 100


class ParkedUnknown(MemForestError):
    """No work was parked under this id; `parked.list` names what stands parked."""

    code = "not_found"


class ParkedNoMore(MemForestError):
    """This work stands parked no more: it was resumed or done, or what it was about is gone or was edited."""

    code = "conflict"


class ParkedListParams(Params, frozen=True, kw_only=True):
    """Parameters of `parked.list`: of one user, or of all. `after` is the `next` of the page before."""

    user_id: str | None = None
    limit: int = LIMIT_DEFAULT
    after: int = 0


class ParkedParams(Params, frozen=True, kw_only=True):
    """Parameters of `parked.get`: the id is that of the list."""

    user_id: str
    id: int


class ResumeParams(Params, frozen=True, kw_only=True):
    """Parameters of `parked.retry`: one piece of work of a user, all of a user, or all there is."""

    user_id: str | None = None
    id: int | None = None


@dataclass(frozen=True, slots=True)
class ParkedShown:
    """Work that stands parked. `id` is the user_seq of the event that put it aside.

    `session_id` is null when its words come from several; `turns` are those it was to be made of, at most twenty,
    and `spent` is what its tries took.
    """

    user_id: str | None
    id: int
    task: str
    reason: str
    at: str
    session_id: str | None
    turns: list[Source]
    spent: SpentShown


@dataclass(frozen=True, slots=True)
class ParkedPage:
    """Parked work, newest first; `next` is the `after` to go on from, null on the last page."""

    parked: list[ParkedShown]
    next: int | None


@dataclass(frozen=True, slots=True)
class ToAsk:
    """One text that the model was to be given: a turn, or what was made of turns; null once it is gone."""

    user_seq: int
    type: str
    source: Source
    said_at: str
    text: str | None


@dataclass(frozen=True, slots=True)
class ParkedContent:
    """Parked work with what the model would be asked about, in order; `left_off` texts are not shown."""

    parked: ParkedShown
    asked: list[ToAsk]
    left_off: int


@dataclass(frozen=True, slots=True)
class Resumed:
    """How many pieces of work wait for the model again."""

    resumed: int


class Parked:
    """Lists and resumes parked work."""

    def __init__(self, log: EventLog, clock: Callable[[], Instant]) -> None:
        self._log = log
        self._clock = clock

    async def list(self, params: ParkedListParams) -> ParkedPage:
        """A page of parked work, newest first. Raises `InvalidInput`, `UserUnknown`."""
        check_limit(params.limit)
        user = None if params.user_id is None else await find_user(self._log, params.user_id)
        before = params.after if 0 < params.after <= ID_MAX else None
        return await self._log.read(partial(_read_page, user=user, before=before, limit=params.limit))

    async def get(self, params: ParkedParams) -> ParkedContent:
        """One piece with what it was to be made of. Raises `UserUnknown`, `ParkedUnknown`, `ParkedNoMore`."""
        user = await find_user(self._log, params.user_id)
        return await self._log.read(partial(_read_content, user=user, user_seq=params.id))

    async def retry(self, params: ResumeParams) -> Resumed:
        """Have work tried again, in its turn; a merge is with the next compaction.

        Raises `InvalidInput`, `UserUnknown`; of a single piece `ParkedUnknown` and `ParkedNoMore`.
        """
        if params.id is not None:
            if params.user_id is None:
                raise InvalidInput("an id is one of a user: give user_id, too")
            user = await find_user(self._log, params.user_id)
            recorded = await self._log.read(partial(_find, user=user, user_seq=params.id))
            if not await self._resume((recorded,)):
                raise ParkedNoMore
            return Resumed(1)
        user_or_all = None if params.user_id is None else await find_user(self._log, params.user_id)
        before, resumed = self._log.head + 1, 0  # what is parked meanwhile is left alone, or this might never end
        while True:
            read = partial(read_parked, user=user_or_all, before=before, limit=RESUMED_AT_ONCE)
            seqs = await self._log.read(read)
            if not seqs:
                return Resumed(resumed)
            events = await self._log.read(partial(read_events, seqs=seqs))
            resumed += await self._resume([events[seq] for seq in seqs])
            before = seqs[-1]

    async def _resume(self, parked: Sequence[RecordedEvent]) -> int:
        """Record that this work is to be tried again; how much of it still stood parked."""
        events = tuple(_resume(each, self._clock()) for each in parked)
        outcomes = await self._log.append(Batch(events))
        return sum(outcome.verdict is Verdict.RECORDED for outcome in outcomes)


def _resume(recorded: RecordedEvent, now: Instant) -> NewEvent:
    parked = recorded.event
    assert isinstance(parked, WorkParked)
    return NewEvent(
        user_id=recorded.user_id,
        session_id=recorded.session_id,
        event=WorkResumed(recorded.seq, parked.task, parked.request, parked.turns, parked.covers),
        key=f"resumed/{recorded.seq}",
        happened_at=now,
        lineage=recorded.lineage,
        caused_by=recorded.seq,
        user=recorded.user,
        session=recorded.session,
        time_assigned=True,
    )


def _find(connection: sqlite3.Connection, user: Reference, user_seq: int) -> RecordedEvent:
    """The event that put work aside which still stands parked; raises `ParkedUnknown`, `ParkedNoMore`."""
    row = None
    if 0 < user_seq <= ID_MAX:
        query = "SELECT seq FROM events WHERE user = ? AND user_seq = ? AND type = 'work.parked'"
        row = connection.execute(query, (user, user_seq)).fetchone()
    if row is None:
        raise ParkedUnknown
    if not is_parked(connection, user, row[0]):
        raise ParkedNoMore
    return read_events(connection, row)[row[0]]


def _read_page(
    connection: sqlite3.Connection, user: Reference | None, before: int | None, limit: int
) -> ParkedPage:
    seqs = read_parked(connection, user, before, limit + 1)
    page = seqs[:limit]
    events = read_events(connection, page)
    named = {turn for each in events.values() for turn in _sources(each)[:NAMED_MAX]}
    sources = read_events(connection, named)
    names = _read_sessions(connection, events.values())
    shown = [_show(events[seq], sources, names) for seq in page]
    return ParkedPage(shown, page[-1] if len(seqs) > limit else None)


def _read_content(connection: sqlite3.Connection, user: Reference, user_seq: int) -> ParkedContent:
    recorded = _find(connection, user, user_seq)
    wanted = _sources(recorded)
    sources, hindsight = read_with_hindsight(connection, user, wanted[:SHOWN_MAX])
    asked = [
        ToAsk(
            user_seq=each.user_seq,
            type=each.type,
            source=source_of(each),
            said_at=to_iso(each.happened_at),
            text=None if each.event is None or is_gone(each, hindsight) else text_of(each.event),
        )
        for each in (sources[seq] for seq in wanted[:SHOWN_MAX] if seq in sources)
    ]
    shown = _show(recorded, sources, _read_sessions(connection, (recorded,)))
    return ParkedContent(shown, asked, len(wanted) - len(asked))


def _sources(recorded: RecordedEvent) -> tuple[int, ...]:
    return recorded.event.turns if isinstance(recorded.event, WorkParked) else ()


def _read_sessions(connection: sqlite3.Connection, parked: Iterable[RecordedEvent]) -> dict[Reference, str]:
    """The ids of the sessions that some of these are about alone."""
    return read_names(connection, [each.lineage[0] for each in parked if len(each.lineage) == 1])


def _show(
    recorded: RecordedEvent, sources: Mapping[int, RecordedEvent], names: Mapping[Reference, str]
) -> ParkedShown:
    parked = recorded.event
    assert isinstance(parked, WorkParked)
    events = [sources[seq] for seq in parked.turns[:NAMED_MAX] if seq in sources]
    return ParkedShown(
        user_id=recorded.user_id,
        id=recorded.user_seq,
        task=parked.task,
        reason=parked.reason,
        at=to_iso(recorded.recorded_at),
        session_id=names.get(recorded.lineage[0]) if len(recorded.lineage) == 1 else None,
        turns=[
            source_of(each)
            for each in events
            if isinstance(each.event, TurnRecorded | TurnRevised | MemoryImported)
        ],
        spent=show_usage(parked.usage),
    )
