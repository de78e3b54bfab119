"""Folding the log of one user into a Memory, on the loop in short slices: no query waits longer than one."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress
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
from projections.steps import Steps, at_once

T = TypeVar("T")

# Events read at once, and how long the loop may be held while folding them.
PAGE_EVENTS = 256
SLICE_S = 0.004
# How often a Memory that changes meanwhile is read anew before it is read in one go.
READS_MAX = 8


@dataclass(slots=True)
class Begun:
    """A fold that somebody began. Whoever comes after one that was cancelled goes on from here."""

    memory: Memory | None = None


async def fold(log: LogReader, memory: Memory, to_user_seq: int | None = None) -> None:
    """Apply a user's events to a Memory until the log's end, or up to a user_seq.

    Raises `LogDamaged` at the first event that does not continue the chain or cannot be folded; the Memory may
    then hold half of that event.
    """
    slices, is_long = Slices(), False
    while to_user_seq is None or memory.user_seq < to_user_seq:
        limit = PAGE_EVENTS if to_user_seq is None else min(PAGE_EVENTS, to_user_seq - memory.user_seq)
        page = await log.read(partial(read_user, user=memory.user, after=memory.user_seq, limit=limit))
        for recorded in page:
            _apply(memory, recorded)
            is_long |= await slices.give_way()
        if len(page) < limit:
            break
    if is_long:  # else there is little to find for who asks next
        await in_slices(memory.forest.look_in_steps())


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


class NotStanding(Exception):
    """What was being read has changed."""


class Slices:
    """For work that holds the loop for a slice at most, and then lets others run."""

    def __init__(self) -> None:
        self._began_s = time.perf_counter()

    @property
    def is_over(self) -> bool:
        """Whether it is the others' turn."""
        return time.perf_counter() - self._began_s > SLICE_S

    async def give_way(self) -> bool:
        """Let others run if a slice is over; whether it was."""
        if not self.is_over:
            return False
        await anyio.lowlevel.checkpoint()
        self._began_s = time.perf_counter()
        return True


async def in_slices(steps: Steps[T], stands: Callable[[], bool] = lambda: True) -> T:
    """What some steps return, with a chance for others to run whenever a slice is over.

    Raises `NotStanding` when what they go on no longer `stands` after that.
    """
    slices = Slices()
    while True:
        try:
            next(steps)
        except StopIteration as done:
            result: T = done.value
            return result
        if slices.is_over and await slices.give_way() and not stands():
            raise NotStanding


async def read_in_slices(memory: Memory, look: Callable[[], Steps[T]]) -> T:
    """What some steps read of a Memory, all of it as it stood at one moment; begun anew when it changed meanwhile.

    Of one that changes all the time it is read in one go in the end.
    """
    for _ in range(READS_MAX):
        state = state_of(memory)
        with suppress(NotStanding):
            return await in_slices(look(), lambda: state_of(memory) == state)  # noqa: B023
    return at_once(look())


def state_of(memory: Memory) -> object:
    """What changes whenever something else may be read of a Memory: by its events, and by what is hidden."""
    return memory.user_seq, memory.hidden, memory.hidden_turns
