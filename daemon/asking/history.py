"""Past Memories: what was known of a user at a user_seq or an instant, folded from the log when it is asked for.

Few are held. A later position is folded on from an earlier one, or from a copy that was put aside on the way; both
serve only as long as nothing of what they were folded from was forgotten, retracted or revised.
"""

from __future__ import annotations

import io
import pickle
import sqlite3
import zlib
from collections import OrderedDict
from collections.abc import AsyncGenerator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import Any

import anyio
from anyio import to_thread

from daemon.folding import fold, in_slices
from events.envelope import Reference
from events.errors import InvalidInput, LogDamaged, StoreUnusable
from events.hindsight import Hindsight, read_hindsight
from events.log import EventLog, LogReader
from events.time import Instant, from_datetime
from projections.memory import Memory, MemoryParameters

# Past Memories at once, of all users: each is as large as a live one.
PAST_MAX = 4
# A copy is put aside this far, and then half as far again as the last one: making copies costs about half of the
# folding, and going on from one saves two thirds of it. Copies take 0.4 kB an event.
COPY_FROM_EVENTS = 2_000
COPY_GROWTH = 1.5
COPY_BYTES_MAX = 64 << 20
# How often it is looked whether something was forgotten of what is held.
SWEEP_S = 1.0


def agree(one: Hindsight, other: Hindsight) -> bool:
    """Whether two say the same, wherever they were read: what was folded with one may go on with the other."""
    return replace(one, user_seq=0) == replace(other, user_seq=0)


def parse_position(text: str) -> int | str:
    """A position as people write it: all digits are a user_seq, anything else is an instant."""
    return int(text) if text.isascii() and text.isdecimal() else text


def locate(connection: sqlite3.Connection, user: Reference, position: int | str) -> int:
    """The user_seq of a position: itself, or the last one recorded by an instant (ISO 8601 with its offset).

    0 is before the first event. Raises `InvalidInput` for a position beyond the last event.
    """
    if isinstance(position, str):
        row = connection.execute(
            "SELECT user_seq FROM events WHERE user = ? AND recorded_at <= ? ORDER BY user_seq DESC LIMIT 1",
            (user, _parse_instant(position)),
        ).fetchone()
        return int(row[0]) if row else 0
    row = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
    if not 0 <= position <= (row[0] if row else 0):
        raise InvalidInput(
            "there is no event at this user_seq yet; `status` with the user_id says how far the log is"
        )
    return position


def read_moment(connection: sqlite3.Connection, user: Reference, user_seq: int) -> Instant | None:
    """When the event at a user_seq was recorded; None where there is none."""
    row = connection.execute(
        "SELECT recorded_at FROM events WHERE user = ? AND user_seq = ?", (user, user_seq)
    ).fetchone()
    return None if row is None else int(row[0])


def _parse_instant(text: str) -> Instant:
    try:
        return from_datetime(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidInput(
            "a position is a user_seq, or an instant in ISO 8601 with its offset (2024-07-01T09:00:00Z)"
        ) from None


def count_redacted(connection: sqlite3.Connection, to_user_seq: int, hindsight: Hindsight) -> int:
    """How many events up to a position said something that is gone, or must not be shown any more."""
    redacted: set[int] = set()
    for subject, forgotten in hindsight.tombstones.items():
        rows = connection.execute(
            """SELECT e.seq FROM lineage l JOIN events e ON e.seq = l.seq
               WHERE l.session = ? AND e.user_seq <= ? AND e.user_seq < ?""",
            (subject, to_user_seq, forgotten),
        )
        redacted.update(seq for (seq,) in rows)
    redacted.update(seq for seq, void in hindsight.voids.items() if void.erases)
    # Rows of erased words stay, emptied; a decision has none, since it says nothing.
    said = """SELECT 1 FROM events e WHERE e.seq = ? AND e.user_seq <= ?
        AND EXISTS (SELECT 1 FROM words w WHERE w.seq = e.seq)"""
    return sum(connection.execute(said, (seq, to_user_seq)).fetchone() is not None for seq in redacted)


@dataclass(eq=False, slots=True)
class _Past:
    """A Memory at the position where it stands, and how many read it."""

    memory: Memory
    pins: int = 0

    @property
    def hindsight(self) -> Hindsight:
        """What it was folded without."""
        return self.memory.hindsight


@dataclass(frozen=True, slots=True)
class _Copy:
    """A Memory at a position, as bytes."""

    hindsight: Hindsight
    packed: bytes


class History:
    """The past Memories of a store. `at` gives one to read; `run` lets go of what was forgotten."""

    def __init__(
        self,
        log: LogReader,
        parameters: MemoryParameters,
        past_max: int = PAST_MAX,
        copy_from_events: int = COPY_FROM_EVENTS,
        copy_bytes_max: int = COPY_BYTES_MAX,
    ) -> None:
        """`log` is read page by page while folding; give one that no query waits for."""
        self._log = log
        self._parameters = parameters
        self._past_max = past_max
        self._copy_from_events = copy_from_events
        self._copy_bytes_max = copy_bytes_max
        self._past: OrderedDict[tuple[Reference, int], _Past] = OrderedDict()
        self._copies: OrderedDict[tuple[Reference, int], _Copy] = OrderedDict()
        # One fold at a time: they are for people who look, and take CPU from those who ask for today's memory.
        self._folding = anyio.Lock()
        self.events_folded = 0

    @asynccontextmanager
    async def at(self, user: Reference, user_seq: int) -> AsyncGenerator[Memory]:
        """The Memory as it was at a user_seq, which the log has.

        Whoever reads words afterwards compares its hindsight with `read_hindsight` in the same breath: they may
        have been forgotten meanwhile. Raises `LogDamaged`.
        """
        key = (user, user_seq)
        hindsight = await self._read_hindsight(user, user_seq)
        past = self._past.get(key)
        if past is None or not agree(past.hindsight, hindsight):
            async with self._folding:
                past = self._past[key] = await self._find(user, user_seq)
        past.pins += 1
        self._past.move_to_end(key)
        try:
            yield past.memory
        finally:
            past.pins -= 1
            self._shrink()

    async def run(self, log: EventLog) -> None:
        """For ever: let go of the Memories of users of whom something was forgotten, though nobody asks again."""
        while True:
            head = log.head
            for user, at in {*self._past, *self._copies}:
                try:
                    hindsight = await self._read_hindsight(user, at)
                except (LogDamaged, StoreUnusable):
                    hindsight = None  # nobody can tell: away with it
                self._drop((user, at), hindsight)
            await log.wait_past(head)
            await anyio.sleep(SWEEP_S)

    def held(self) -> list[tuple[Reference, int]]:
        """Which positions are here, the one that was not used for longest first."""
        return list(self._past)

    def copied(self) -> list[int]:
        """At which positions copies were put aside, the oldest first."""
        return [position for _, position in self._copies]

    async def _find(self, user: Reference, user_seq: int) -> _Past:
        while True:
            hindsight = await self._read_hindsight(user, user_seq)
            here = self._past.get((user, user_seq))
            if here is not None and agree(here.hindsight, hindsight):
                return here
            past = await self._nearest(user, user_seq, hindsight)
            try:
                await self._fold_to(past, user_seq)
                return past
            except LogDamaged:
                # Words may have been erased since the hindsight was read.
                if agree(hindsight, await self._read_hindsight(user, user_seq)):
                    raise

    async def _read_hindsight(self, user: Reference, user_seq: int) -> Hindsight:
        return await self._log.read(partial(read_hindsight, user=user, to_user_seq=user_seq))

    async def _nearest(self, user: Reference, user_seq: int, hindsight: Hindsight) -> _Past:
        """The latest Memory before a position that may be folded on: one that nobody uses, a copy, or nothing."""
        unused = [
            at
            for (owner, at), past in self._past.items()
            if owner == user and at < user_seq and not past.pins and agree(past.hindsight, hindsight)
        ]
        copies = [
            at
            for (owner, at), copy in self._copies.items()
            if owner == user and at <= user_seq and agree(copy.hindsight, hindsight)
        ]
        if unused and max(unused) >= max(copies, default=0):
            return self._past.pop((user, max(unused)))
        if copies:
            copy = self._copies[user, max(copies)]
            self._copies.move_to_end((user, max(copies)))
            return _Past(await to_thread.run_sync(_unpack, copy.packed))
        return _Past(Memory(user, self._parameters, hindsight))

    async def _fold_to(self, past: _Past, user_seq: int) -> None:
        """Fold on, with copies on the way. Cut short, it keeps what it has: asking again goes on from there."""
        memory = past.memory
        try:
            while memory.user_seq < user_seq:
                before = memory.user_seq
                await fold(self._log, memory, min(user_seq, self._next_copy(memory, past.hindsight)))
                self.events_folded += memory.user_seq - before
                if memory.user_seq == before:
                    raise LogDamaged(f"the event at user_seq {before + 1} is missing")
                if memory.user_seq < user_seq:
                    await self._put_aside(past)
        except LogDamaged:
            raise  # it may hold half an event
        except BaseException:
            self._past[memory.user, memory.user_seq] = past
            self._shrink()
            raise

    def _next_copy(self, memory: Memory, hindsight: Hindsight) -> int:
        """Where the next copy is due: behind the position, and beyond the last one that is there."""
        due = self._copy_from_events
        while due <= memory.user_seq or self._has_copy(memory.user, due, hindsight):
            due = int(due * COPY_GROWTH) + 1
        return due

    def _has_copy(self, user: Reference, at: int, hindsight: Hindsight) -> bool:
        copy = self._copies.get((user, at))
        return copy is not None and agree(copy.hindsight, hindsight)

    async def _put_aside(self, past: _Past) -> None:
        """Keep a copy, made on a thread, where it only takes turns with the loop."""
        # A look through the trees that was cut short cannot be copied.
        await in_slices(past.memory.forest.look_in_steps())
        packed = await to_thread.run_sync(_pack, past.memory)
        key = (past.memory.user, past.memory.user_seq)
        self._copies[key] = _Copy(past.hindsight, packed)
        self._copies.move_to_end(key)
        while sum(len(copy.packed) for copy in self._copies.values()) > self._copy_bytes_max:
            self._copies.popitem(last=False)

    def _drop(self, key: tuple[Reference, int], hindsight: Hindsight | None) -> None:
        """Let go of what holds words that are to be gone, or (None) may do."""
        past, copy = self._past.get(key), self._copies.get(key)
        if (
            past is not None
            and not past.pins
            and (hindsight is None or _taken(past.hindsight) != _taken(hindsight))
        ):
            del self._past[key]
        if copy is not None and (hindsight is None or _taken(copy.hindsight) != _taken(hindsight)):
            del self._copies[key]

    def _shrink(self) -> None:
        for key, past in list(self._past.items()):
            if len(self._past) <= self._past_max:
                return
            if not past.pins:
                del self._past[key]


def _taken(hindsight: Hindsight) -> tuple[Mapping[Reference, int], set[int]]:
    """What was forgotten or retracted by then: sessions, and single events."""
    return hindsight.tombstones, {seq for seq, void in hindsight.voids.items() if void.erases}


class _Pickler(pickle.Pickler):
    """Steps into Python at every object, where the interpreter lets the loop's thread have its turn."""

    def reducer_override(self, obj: object) -> Any:
        """Objects are written as they would be anyway."""
        return NotImplemented


def _pack(memory: Memory) -> bytes:
    """As bytes; compressed to a third, which takes no turn of the loop."""
    written = io.BytesIO()
    _Pickler(written, pickle.HIGHEST_PROTOCOL).dump(memory)
    return zlib.compress(written.getvalue(), 1)


def _unpack(packed: bytes) -> Memory:
    """Only ever given bytes that `_pack` made in this process."""
    memory: Memory = pickle.loads(zlib.decompress(packed))
    return memory
