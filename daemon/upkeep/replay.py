"""Replay: fold a user's log into a scratch Memory to look, event by event, at what each one changed.

Reads through a read-only connection, beside the daemon or without one, and never asks a model: an answer that is
not in the log is named as missing. What stands no more (forgotten, retracted, revised by then) changes nothing.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from daemon.asking.history import locate
from daemon.folding import PAGE_EVENTS
from events.envelope import Keys, RecordedEvent, Reference
from events.errors import LogDamaged, MemForestError
from events.hindsight import Hindsight, read_hindsight
from events.log import LogReader
from events.reading import read_user
from events.registry import knows_session, knows_user, read_user_references
from projections.changes import Changes
from projections.digests import MemoryDigest, digest_memory
from projections.facts.scopes import Scope
from projections.memory import Memory, MemoryParameters
from projections.watching import Watch


class NothingToReplay(MemForestError):
    """There is no such user or session in this store."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Span:
    """What to show: events from one user_seq on, up to a position, of one session or of all."""

    first: int = 1
    to: int | str | None = None
    session: Reference | None = None

    def shows(self, recorded: RecordedEvent) -> bool:
        """Whether an event is in it: of this session, or with its words in it."""
        if recorded.user_seq < self.first:
            return False
        return self.session is None or self.session == recorded.session or self.session in recorded.lineage


@dataclass(frozen=True, slots=True)
class Step:
    """One event and what it changed. `voided`: it stands no more; of a turn its last wording was taken."""

    memory: Memory
    recorded: RecordedEvent
    voided: bool
    changes: Changes


@dataclass(frozen=True, slots=True)
class Missing:
    """An answer that the log does not have: what is to be asked, about what (ids in hex), and in which scope."""

    task: str
    about: str
    scope: Scope | None = None


@dataclass(frozen=True, slots=True)
class Replayed:
    """The end of a replay. `dirty` counts nodes without a text, those that wait for others below them included."""

    memory: Memory
    events: int
    shown: int
    missing: tuple[Missing, ...]
    dirty: int
    digest: MemoryDigest


async def find_users(log: LogReader, user_id: str | None, session_id: str | None) -> list[tuple[Reference, Span]]:
    """Whose events to replay, and the session asked for, by its reference under each user.

    Raises `NothingToReplay`.
    """

    def find(connection: sqlite3.Connection) -> list[tuple[Reference, Span]]:
        (secret,) = connection.execute("SELECT secret FROM store").fetchone()
        keys = Keys(secret)
        if user_id is not None:
            user = keys.user(user_id)
            users = [(user, user_id)] if knows_user(connection, user) else []
        else:
            users = [(user, _name_of(connection, user)) for user in read_user_references(connection)]
        if session_id is None:
            return [(user, Span()) for user, _ in users]
        spans = [(user, Span(session=keys.session(name, session_id))) for user, name in users]
        return [(user, span) for user, span in spans if span.session and knows_session(connection, span.session)]

    found = await log.read(find)
    if not found and (user_id is not None or session_id is not None):
        raise NothingToReplay
    return found


def _name_of(connection: sqlite3.Connection, user: Reference) -> str:
    row = connection.execute("SELECT text FROM names WHERE reference = ?", (user,)).fetchone()
    return "" if row is None or row[0] is None else str(row[0].decode())


async def replay(
    log: LogReader,
    user: Reference,
    parameters: MemoryParameters,
    span: Span,
    show: Callable[[Step], Awaitable[None]],
    progress: Callable[[int, int], None] = lambda done, total: None,
) -> Replayed:
    """Fold a user's events up to the span's end; `show` gets those in it, `progress` counts all of them.

    Raises `LogDamaged` naming the first event that does not continue the chain or cannot be folded, and
    `InvalidInput` for a position that the log does not have.
    """
    to, hindsight = await log.read(partial(_read_end, user=user, span=span))
    memory = Memory(user, parameters, hindsight)
    watch = Watch(memory)
    shown = 0
    while memory.user_seq < to:
        limit = min(PAGE_EVENTS, to - memory.user_seq)
        page = await log.read(partial(read_user, user=user, after=memory.user_seq, limit=limit))
        if not page:
            raise LogDamaged(f"the event at user_seq {memory.user_seq + 1} is missing")
        for recorded in page:
            step = _take(memory, watch, recorded)
            if span.shows(recorded):
                shown += 1
                await show(step)
        progress(memory.user_seq, to)
    missing = tuple(find_missing(memory, span.session))
    return Replayed(memory, memory.user_seq, shown, missing, memory.forest.dirty_count(), digest_memory(memory))


def _read_end(connection: sqlite3.Connection, user: Reference, span: Span) -> tuple[int, Hindsight]:
    (head,) = connection.execute(
        "SELECT coalesce(max(user_seq), 0) FROM events WHERE user = ?", (user,)
    ).fetchone()
    to = head if span.to is None else locate(connection, user, span.to)
    return to, read_hindsight(connection, user, to)


def _take(memory: Memory, watch: Watch, recorded: RecordedEvent) -> Step:
    try:
        memory.apply(recorded)
        changes = watch.look(recorded)
    except LogDamaged:
        raise
    except Exception as error:  # whatever it is, the event is named and its words are not
        raise LogDamaged(f"the event at seq {recorded.seq} cannot be folded ({type(error).__name__})") from error
    voided = memory.is_forgotten(recorded) or recorded.seq in memory.hindsight.voids
    return Step(memory, recorded, voided, changes)


def find_missing(memory: Memory, session: Reference | None = None) -> list[Missing]:
    """The answers that were not in the log by now, of one session or of all, in an order that stays."""
    missing = [
        Missing("extract", key.hex())
        for key, chunk in memory.waiting_chunks.items()
        if session in (None, chunk.session)
    ]
    missing += [
        Missing("admit", f"{pointer.seq}/{pointer.n}")
        for pointer, occurrence in sorted(memory.canon.waiting.items())
        if session in (None, occurrence.session)
    ]
    if memory.promoted is not None:  # else it is of before there were scenes
        missing += [
            Missing("route", fact.hex())
            for fact in memory.placement.scenes.unrouted
            if session is None or session in memory.canon.facts[fact].sessions
        ]
    missing += [
        Missing("summarise", work.digest.hex(), work.scope)
        for work in memory.forest.plan_summaries()
        if session is None or session in work.lineage
    ]
    return missing
