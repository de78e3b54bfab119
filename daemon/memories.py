"""Memories by user: loaded on first use from a snapshot and the log, followed as it grows, bounded in bytes.

Folding runs on the loop in short slices, so a query never waits for it longer than one of them.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial

import anyio

from daemon.folding import fold, fold_from_nothing
from daemon.held import Held
from daemon.logs import Report
from daemon.snapshots import Snapshots
from events.envelope import Reference
from events.errors import LogDamaged, StoreUnusable
from events.log import EventLog
from events.reading import read_after
from projections.memory import Memory, MemoryParameters

# What Memories may take; the least recently used one goes first. One that is gone is loaded again; the last one
# stays, however large: it would be folded anew for each piece of work, and what is planned of it begins anew.
MEMORIES_BYTES = 512 << 20
# However small they are: each has tables of its own.
MEMORIES_MAX = 10_000
MOMENT_S = 0.25
# Events that are folded in a second or two: so many are worth a snapshot, which takes a twentieth of that.
SNAPSHOT_EVENTS = 1_000
# While a user grows without a pause there is a snapshot whenever it has grown by this share.
SNAPSHOT_SHARE = 0.25
# How often is looked for Memories that are worth one; a user who was quiet for so long has paused.
SNAPSHOTS_EVERY_S = 5.0
# A user whose events cannot be folded is not tried again sooner.
BROKEN_PAUSE_S = 30.0


class Memories:
    """The Memories of a store. `use` one; `follow` keeps those in memory up to the log's end."""

    def __init__(
        self,
        log: EventLog,
        parameters: MemoryParameters,
        report: Report,
        memories_max: int = MEMORIES_MAX,
        *,
        bytes_max: int = MEMORIES_BYTES,
        snapshots: Snapshots | None = None,
        snapshot_events: int = SNAPSHOT_EVENTS,
        furnish: Callable[[Memory], Awaitable[None]] | None = None,
    ) -> None:
        """Without `snapshots` the log is folded from nothing each time a Memory is loaded.

        `furnish` gives a Memory that was begun what no fold can: its vectors. It answers when that is done.
        """
        self.parameters = parameters
        self.log = log
        self._report = report
        self._held: OrderedDict[Reference, Held] = OrderedDict()
        self._memories_max = memories_max
        self._bytes_max = bytes_max
        self._snapshots = snapshots
        self._snapshot_events = snapshot_events
        self._furnish = furnish
        # Called with a user whose Memory goes to make room, and with one of whom something was undone, so that
        # nothing that was made of it is kept beside.
        self.on_let_go: Callable[[Reference], None] = lambda _: None
        self.on_undone: Callable[[Reference], None] = lambda _: None
        # What all of them take.
        self.size_bytes = 0
        # Set when Memories have to go that are worth a snapshot first, and whether somebody makes these.
        self._crowded = anyio.Event()
        self._keeping = False
        # Set at the next change of any Memory, and then replaced.
        self.changed = anyio.Event()
        self._changed_users: set[Reference] = set()

    @asynccontextmanager
    async def use(self, user: Reference) -> AsyncGenerator[Memory]:
        """The Memory of a user, pinned while in use. Folds it first when it is not here yet."""
        held = self._held.get(user)
        if held is None:
            held = self._held[user] = Held()
        self._held.move_to_end(user)
        held.pins += 1
        try:
            if held.memory is None:
                await self._catch_up(user, held)
            assert held.memory is not None
            yield held.memory
        finally:
            held.pins -= 1
            self._weigh(held)
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
            return await self._catch_up(user, self._held[user])

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

    async def _follow_user(self, user: Reference, held: Held) -> None:
        """Catch up; events that cannot be folded stop their own user and nobody else."""
        try:
            while (await self._catch_up(user, held)).needs_rebuild:
                pass
        except (LogDamaged, StoreUnusable) as error:
            self._report("memory.fold_failed", reason=str(error))

    def hide(self, user: Reference, session: Reference) -> None:
        """Show nothing of a session from this moment on. Call it once its SessionForgotten is durable."""
        self.on_undone(user)
        held = self._held.get(user)
        if held is not None:  # a Memory that is not here learns it from the log
            held.hidden.add(session)
            held.broken = None  # what could not be folded may be what is forgotten
            held.hide()

    def hide_turn(self, user: Reference, turn: Reference) -> None:
        """Show nothing of a turn from this moment on. Call it once its TurnRetracted is durable."""
        self.on_undone(user)
        held = self._held.get(user)
        if held is not None:
            held.hidden_turns.add(turn)
            held.hide()

    def hide_user(self, user: Reference) -> None:
        """Show nothing of a user from this moment on. Call it once its UserForgotten is durable."""
        self.on_undone(user)
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

    def peek(self, user: Reference) -> Memory | None:
        """The Memory of a user as far as it is here."""
        held = self._held.get(user)
        return None if held is None else held.memory

    def loaded(self) -> dict[Reference, Memory]:
        """The Memories that are here."""
        return {user: held.memory for user, held in self._held.items() if held.memory is not None}

    def take_changed(self) -> set[Reference]:
        """The users whose log grew since this was last asked."""
        users, self._changed_users = self._changed_users, set()
        return users

    async def keep_snapshots(self, every_s: float = SNAPSHOTS_EVERY_S) -> None:
        """Leave snapshots of Memories that grew, and let go of those there is no room for, for ever."""
        if self._snapshots is None:
            return
        self._keeping = True
        try:
            while True:
                with anyio.move_on_after(every_s):
                    await self._crowded.wait()
                self._crowded = anyio.Event()
                crowded = self._is_crowded()
                quiet_since = time.monotonic() - every_s
                for user, held in list(self._held.items()):
                    grown = held.unsaved_events >= SNAPSHOT_SHARE * held.snapshot_seq
                    if crowded or grown or held.grown_at <= quiet_since:
                        await self._leave_snapshot(held)
                    if crowded:
                        self._let_go(user)
                        crowded = self._is_crowded()
        finally:
            self._keeping = False

    async def leave_snapshots(self, within_s: float) -> None:
        """Leave snapshots of what is here, as many as there is time for; for the end of the daemon."""
        with anyio.move_on_after(within_s):
            for held in reversed(list(self._held.values())):
                await self._leave_snapshot(held)

    async def _leave_snapshot(self, held: Held) -> None:
        """Leave a snapshot of a Memory that is worth one."""
        if self._snapshots is None or held.unsaved_events < self._snapshot_events:
            return
        async with held.folding:
            memory = held.memory
            if memory is not None and not memory.needs_rebuild:
                await self._snapshots.leave(memory)
                # Also when it could not be frozen: it is tried again when it has grown.
                held.snapshot_seq = memory.user_seq

    async def _catch_up(self, user: Reference, held: Held) -> Memory:
        async with held.folding:
            held.queued = False
            if held.broken is not None and time.monotonic() - held.broken_at < BROKEN_PAUSE_S:
                raise LogDamaged(str(held.broken))
            seen, seen_to = held.memory, held.memory.user_seq if held.memory else 0
            memory = held.memory or await self._begin(user, held)
            # Also after the first fold: `follow` passes over a user until its Memory is here.
            begun = 0
            while not await self._fold_on(memory, held) or (memory.needs_rebuild and not begun):
                memory = await self._begin(user, held)
                begun += 1
            if memory is not seen and self._furnish is not None:
                await self._furnish(memory)  # what came after its snapshot
            if memory.user_seq > seen_to:
                held.grown_at = time.monotonic()
            self._weigh(held)
        # A Memory that was only fetched back tells nobody: nothing happened to it.
        if seen is not None and (memory is not seen or memory.user_seq > seen_to):
            self._tell([user])
        return memory

    async def _begin(self, user: Reference, held: Held) -> Memory:
        """Take a snapshot up, or fold from nothing: always when there is one that has to be folded again.

        Until then queries go on with the old one, which hides what was forgotten. A fold goes on where one was
        given up, and knows nothing of what was forgotten since it began.
        """
        if held.memory is not None and held.begun.memory is None:
            held.hidden -= held.memory.hidden
            held.hidden_turns.clear()
            held.hidden_whole = False
        try:
            memory = await self._take_up(user, held)
            if memory is None:
                memory = await fold_from_nothing(self.log, user, self.parameters, begun=held.begun)
        except LogDamaged as error:
            held.memory = None  # it may hold half an event
            self.on_undone(user)
            held.broken, held.broken_at = error, time.monotonic()
            raise
        held.broken = None
        if self._furnish is not None:
            await self._furnish(memory)
        if held.memory is not None:
            self.on_undone(user)
        held.show(memory)
        return memory

    async def _take_up(self, user: Reference, held: Held) -> Memory | None:
        """The Memory of a user as its snapshot has it, when it is not here and there is a snapshot."""
        held.snapshot_seq = 0
        if self._snapshots is None or held.memory is not None or held.begun.memory is not None:
            return None
        memory = await self._snapshots.take_up(user)
        if memory is not None:
            held.snapshot_seq = memory.user_seq
        return memory

    async def _fold_on(self, memory: Memory, held: Held) -> bool:
        """Fold what came since; False when the Memory may hold half an event and must be folded from nothing."""
        read_to = self.log.head, memory
        if read_to == held.read_to:
            return True  # most look again because they cannot know
        held.read_to = None
        try:
            await fold(self.log, memory)
        except LogDamaged:
            return False  # perhaps of words that were erased before they were folded; if not, it will be raised
        held.read_to = read_to
        return True

    def _tell(self, users: list[Reference] | dict[Reference, None]) -> None:
        self._changed_users.update(users)
        self.changed.set()
        self.changed = anyio.Event()

    def _weigh(self, held: Held) -> None:
        parts = (held.memory, held.begun.memory)
        size_bytes = sum(memory.size_bytes for memory in parts if memory is not None)
        self.size_bytes += size_bytes - held.size_bytes
        held.size_bytes = size_bytes

    def _is_crowded(self) -> bool:
        return len(self._held) > self._memories_max or self.size_bytes > self._bytes_max

    def _shrink(self) -> None:
        """Let go of those that were used least recently; of what is worth a snapshot once it has one.

        There may be twice as much for that long, and not more.
        """
        for user in list(self._held) if self._is_crowded() else ():
            held = self._held[user]
            if (
                self._keeping
                and held.unsaved_events >= self._snapshot_events
                and self.size_bytes <= 2 * self._bytes_max
            ):
                self._crowded.set()
            else:
                self._let_go(user)
            if not self._is_crowded():
                return

    def _let_go(self, user: Reference) -> None:
        """Forget the Memory of a user, unless it was used last, or somebody uses it or will fold into it."""
        held = self._held.get(user)
        if held is None or user == next(reversed(self._held)):
            return
        if not (held.pins or held.queued or held.folding.locked()):
            del self._held[user]
            self.size_bytes -= held.size_bytes
            self.on_let_go(user)
