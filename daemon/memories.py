"""Memories by user: loaded by folding the log on first use, followed as it grows, bounded in number.

Folding runs on the loop in short slices, so a query never waits for it longer than one of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import partial

import anyio
import anyio.lowlevel

from daemon.logs import Report
from events.envelope import RecordedEvent, Reference
from events.errors import LogDamaged, StoreUnusable
from events.hindsight import read_hindsight
from events.log import EventLog, LogReader
from events.reading import read_after, read_user
from projections.memory import Memory, MemoryParameters

# Memories kept at once; the least recently used one goes first. A Memory that is gone is folded again.
MEMORIES_MAX = 256
# Events read at once, and how long the loop may be held while folding them.
PAGE_EVENTS = 256
SLICE_S = 0.004
MOMENT_S = 0.25
# A user whose events cannot be folded is not tried again sooner.
BROKEN_PAUSE_S = 30.0


async def fold(log: LogReader, memory: Memory, to_user_seq: int | None = None) -> None:
    """Apply a user's events to a Memory until the log's end, or up to a user_seq.

    Raises `LogDamaged` at the first event that does not continue the chain or cannot be folded; the Memory may
    then hold half of that event.
    """
    started = time.perf_counter()
    while to_user_seq is None or memory.user_seq < to_user_seq:
        limit = PAGE_EVENTS if to_user_seq is None else min(PAGE_EVENTS, to_user_seq - memory.user_seq)
        page = await log.read(partial(read_user, user=memory.user, after=memory.user_seq, limit=limit))
        for recorded in page:
            _apply(memory, recorded)
            if time.perf_counter() - started > SLICE_S:
                await anyio.lowlevel.checkpoint()
                started = time.perf_counter()
        if len(page) < limit:
            return


def _apply(memory: Memory, recorded: RecordedEvent) -> None:
    try:
        memory.apply(recorded)
    except LogDamaged:
        raise
    except Exception as error:  # whatever it is, it concerns this user alone and must not stop the others
        raise LogDamaged(f"the event at seq {recorded.seq} cannot be folded ({type(error).__name__})") from error


async def fold_from_nothing(
    log: LogReader, user: Reference, parameters: MemoryParameters, to_user_seq: int | None = None
) -> Memory:
    """The Memory of a user as the log alone tells it, without what was forgotten or retracted since.

    Up to a user_seq, or to where the log stands as this begins: what comes later may undo what is folded by then,
    and one that waited for the end of the edits might wait for ever. Raises `LogDamaged`.
    """
    hindsight = await log.read(partial(read_hindsight, user=user, to_user_seq=to_user_seq))
    while True:
        memory = Memory(user, parameters, hindsight)
        try:
            await fold(log, memory, hindsight.user_seq)
        except LogDamaged:
            # Words may have been erased since the hindsight was read.
            known = hindsight
            hindsight = await log.read(partial(read_hindsight, user=user, to_user_seq=to_user_seq))
            if hindsight == known:
                raise
        else:
            return memory


@dataclass(eq=False, slots=True)
class _Held:
    """A Memory in use: one task at a time folds into it, several may read it."""

    memory: Memory | None = None
    folding: anyio.Lock = field(default_factory=anyio.Lock)
    pins: int = 0
    queued: bool = False
    # When its events could not be folded last (monotonic), and why.
    broken_at: float = 0.0
    broken: LogDamaged | None = None
    # Sessions forgotten and turns retracted that may not be known to the Memory yet.
    hidden: set[Reference] = field(default_factory=set[Reference])
    hidden_turns: set[Reference] = field(default_factory=set[Reference])
    # The user was forgotten.
    hidden_whole: bool = False

    def show(self, memory: Memory) -> None:
        """From now on this Memory answers, without what was forgotten meanwhile."""
        self.memory = memory
        self.hide()

    def hide(self) -> None:
        """Keep from the Memory's answers what it may still hold."""
        if self.memory is not None:
            for session in self.hidden:
                self.memory.forget_session(session)
            for turn in self.hidden_turns:
                self.memory.withdraw_turn(turn)
            if self.hidden_whole:
                self.memory.forget_user()


class Memories:
    """The Memories of a store. `use` one; `follow` keeps those in memory up to the log's end."""

    def __init__(
        self,
        log: EventLog,
        parameters: MemoryParameters,
        report: Report,
        memories_max: int = MEMORIES_MAX,
    ) -> None:
        self.parameters = parameters
        self.log = log
        self._report = report
        self._held: OrderedDict[Reference, _Held] = OrderedDict()
        self._memories_max = memories_max
        # Set at the next change of any Memory, and then replaced.
        self.changed = anyio.Event()
        self._changed_users: set[Reference] = set()

    @asynccontextmanager
    async def use(self, user: Reference) -> AsyncGenerator[Memory]:
        """The Memory of a user, pinned while in use. Folds it first when it is not here yet."""
        held = self._held.setdefault(user, _Held())
        self._held.move_to_end(user)
        held.pins += 1
        try:
            if held.memory is None:
                await self._catch_up(user, held)
            assert held.memory is not None
            yield held.memory
        finally:
            held.pins -= 1
            self._shrink()

    async def catch_up(self, user: Reference) -> Memory:
        """Fold everything that is in the log of a user by now, and return the Memory.

        While turns are edited faster than they are folded this goes on; `advance` does not.
        """
        while True:
            memory = await self.advance(user)
            if not memory.needs_rebuild:
                return memory

    async def advance(self, user: Reference) -> Memory:
        """Fold on, from nothing once at most. A Memory that still needs it hides what was undone meanwhile."""
        async with self.use(user):
            await self._catch_up(user, self._held[user])
            memory = self._held[user].memory
            assert memory is not None
            return memory

    async def follow(self) -> None:
        """Keep the Memories that are here up to date, for ever. Others only tell that they grew."""
        seq = self.log.head
        async with anyio.create_task_group() as folds:
            while True:
                await self.log.wait_past(seq)
                rows = await self.log.read(partial(read_after, seq=seq))
                seq = rows[-1][0]
                users = dict.fromkeys(user for _, user in rows)
                for user in users:
                    held = self._held.get(user)
                    # One that waits for its turn will read to the end anyway.
                    if held is not None and held.memory is not None and not held.queued:
                        held.queued = True
                        folds.start_soon(self._follow_user, user, held, name="memories.follow_user")
                self._tell(users)

    async def _follow_user(self, user: Reference, held: _Held) -> None:
        """Catch up; events that cannot be folded stop their own user and nobody else."""
        try:
            await self._catch_up(user, held)
            while held.memory is not None and held.memory.needs_rebuild:
                await self._catch_up(user, held)
        except (LogDamaged, StoreUnusable) as error:
            self._report("memory.fold_failed", reason=str(error))

    def hide(self, user: Reference, session: Reference) -> None:
        """Show nothing of a session from this moment on. Call it once its SessionForgotten is durable."""
        held = self._held.get(user)
        if held is not None:  # a Memory that is not here learns it from the log
            held.hidden.add(session)
            held.broken = None  # what could not be folded may be what is forgotten
            held.hide()

    def hide_turn(self, user: Reference, turn: Reference) -> None:
        """Show nothing of a turn from this moment on. Call it once its TurnRetracted is durable."""
        held = self._held.get(user)
        if held is not None:
            held.hidden_turns.add(turn)
            held.hide()

    def hide_user(self, user: Reference) -> None:
        """Show nothing of a user from this moment on. Call it once its UserForgotten is durable."""
        held = self._held.get(user)
        if held is not None:
            held.hidden_whole = True
            held.broken = None
            held.hide()

    async def wait_a_moment(self, changed: anyio.Event) -> None:
        """Return after the next change, or soon, for what changes without an event."""
        with anyio.move_on_after(MOMENT_S):
            await changed.wait()

    def count_broken(self) -> int:
        """Users whose events could not be folded when that was tried last."""
        return sum(held.broken is not None for held in self._held.values())

    def holds(self, user: Reference) -> bool:
        """Whether the Memory of a user is here."""
        held = self._held.get(user)
        return held is not None and held.memory is not None

    def loaded(self) -> dict[Reference, Memory]:
        """The Memories that are here."""
        return {user: held.memory for user, held in self._held.items() if held.memory is not None}

    def take_changed(self) -> set[Reference]:
        """The users whose log grew since this was last asked."""
        users, self._changed_users = self._changed_users, set()
        return users

    async def _catch_up(self, user: Reference, held: _Held) -> None:
        async with held.folding:
            held.queued = False
            if held.broken is not None and time.monotonic() - held.broken_at < BROKEN_PAUSE_S:
                raise LogDamaged(str(held.broken))
            seen, seen_to = held.memory, held.memory.user_seq if held.memory else 0
            memory = held.memory or await self._begin(user, held)
            # Also after the first fold: `follow` passes over a user until its Memory is here.
            begun = 0
            while not await self._fold_on(memory) or (memory.needs_rebuild and not begun):
                memory = await self._begin(user, held)
                begun += 1
        # A Memory that was only fetched back tells nobody: nothing happened to it.
        if seen is not None and (memory is not seen or memory.user_seq > seen_to):
            self._tell([user])

    async def _begin(self, user: Reference, held: _Held) -> Memory:
        """Fold from nothing. Until then queries go on with the old one, which hides what was forgotten."""
        if held.memory is not None:
            held.hidden -= held.memory.hidden
            held.hidden_turns.clear()
            held.hidden_whole = False
        try:
            memory = await fold_from_nothing(self.log, user, self.parameters)
        except LogDamaged as error:
            held.memory = None  # it may hold half an event
            held.broken, held.broken_at = error, time.monotonic()
            raise
        held.broken = None
        held.show(memory)
        return memory

    async def _fold_on(self, memory: Memory) -> bool:
        """Fold what came since; False when the Memory may hold half an event and must be folded from nothing."""
        try:
            await fold(self.log, memory)
        except LogDamaged:
            return False  # perhaps of words that were erased before they were folded; if not, it will be raised
        return True

    def _tell(self, users: list[Reference] | dict[Reference, None]) -> None:
        self._changed_users.update(users)
        self.changed.set()
        self.changed = anyio.Event()

    def _shrink(self) -> None:
        for user in list(self._held):
            if len(self._held) <= self._memories_max:
                return
            if not self._held[user].pins and not self._held[user].folding.locked():
                del self._held[user]
