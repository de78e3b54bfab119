"""Folding the log of one user into a Memory, on the loop in short slices: no query waits longer than one."""

from __future__ import annotations

import time
from collections.abc import Generator
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

import anyio.lowlevel

from events.envelope import RecordedEvent, Reference
from events.errors import LogDamaged
from events.hindsight import read_hindsight
from events.log import LogReader
from events.reading import read_user
from projections.memory import Memory, MemoryParameters

T = TypeVar("T")

# Events read at once, and how long the loop may be held while folding them.
PAGE_EVENTS = 256
SLICE_S = 0.004


@dataclass(slots=True)
class Begun:
    """A fold that somebody began. Whoever comes after one that was cancelled goes on from here."""

    memory: Memory | None = None


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
    log: LogReader,
    user: Reference,
    parameters: MemoryParameters,
    to_user_seq: int | None = None,
    begun: Begun | None = None,
) -> Memory:
    """The Memory of a user as the log alone tells it, without what was forgotten or retracted since.

    Up to a user_seq, or to where the log stands as this begins: what comes later may undo what is folded by then,
    and one that waited for the end of the edits might wait for ever. Raises `LogDamaged`.
    """
    begun = begun or Begun()
    look_back = partial(read_hindsight, user=user, to_user_seq=to_user_seq)
    while True:
        memory = begun.memory or Memory(user, parameters, await log.read(look_back))
        begun.memory = memory
        try:
            await fold(log, memory, memory.hindsight.user_seq)
        except LogDamaged:
            begun.memory = None
            # Words may have been erased since the hindsight was read.
            if await log.read(look_back) == memory.hindsight:
                raise
        else:
            begun.memory = None
            return memory


async def in_slices(steps: Generator[None, None, T]) -> T:
    """What a generator returns, with a chance for others to run as often as it yields and a slice is over."""
    started = time.perf_counter()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if time.perf_counter() - started > SLICE_S:
            await anyio.lowlevel.checkpoint()
            started = time.perf_counter()
