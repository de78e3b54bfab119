"""How benchmarks measure: ratios within one run, interleaved repeats, medians, CPU time where it is what matters.

Wall time on a shared machine says more about its neighbours than about us, so a figure alone is never the result.
"""

from __future__ import annotations

import platform
import sqlite3
import time
from collections.abc import AsyncGenerator, Callable, Coroutine, Generator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from os import sched_getaffinity
from statistics import median
from types import coroutine
from typing import Any, NamedTuple, TypeVar

import anyio
import numpy as np

T = TypeVar("T")

# How often the heartbeat asks whether the loop is free.
BEAT_S = 0.001


class Figure(NamedTuple):
    """A raw figure behind a ratio; the name ends with the unit."""

    name: str
    value: float


@dataclass(frozen=True, slots=True)
class Row:
    """One result: how many times the one is the other. `goal` is the ratio that is aimed at, if there is one."""

    name: str
    ratio: float
    against: str
    figures: tuple[Figure, ...]
    goal: float | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What a stretch of work took: wall time, CPU of the whole process, and CPU of the calling thread."""

    wall_s: float
    cpu_s: float
    thread_s: float


class Watch:
    """Runs from its making on; `read` says what was spent since."""

    def __init__(self) -> None:
        self._began = _clocks()

    def read(self) -> Spent:
        """What was spent since the watch was made."""
        return Spent(*(now - then for now, then in zip(_clocks(), self._began, strict=True)))


def _clocks() -> tuple[float, float, float]:
    return time.perf_counter(), time.process_time(), time.thread_time()


def spend(work: Callable[[], object]) -> Spent:
    """What one call of `work` takes."""
    watch = Watch()
    work()
    return watch.read()


def percentile(samples: Sequence[float], share: float) -> float:
    """The sample below which so large a share lies; the largest for a share of 1."""
    return float(np.quantile(np.asarray(samples), share, method="higher"))


def median_wall(spent: Sequence[Spent]) -> float:
    """The median of the wall times, in seconds."""
    return median(each.wall_s for each in spent)


def median_cpu(spent: Sequence[Spent]) -> float:
    """The median of the process's CPU times, in seconds."""
    return median(each.cpu_s for each in spent)


def median_thread(spent: Sequence[Spent]) -> float:
    """The median of the calling thread's CPU times, in seconds."""
    return median(each.thread_s for each in spent)


class StepTimer:
    """Adds up the CPU of the steps of coroutines, without what runs while they wait."""

    def __init__(self) -> None:
        self.cpu_s = 0.0

    async def time(self, work: Coroutine[Any, Any, T]) -> T:
        """What `work` returns."""
        return await self._step(work)

    @coroutine
    def _step(self, work: Coroutine[Any, Any, T]) -> Generator[Any, Any, T]:
        resume: Callable[[Any], Any] = work.send
        argument: Any = None
        while True:
            began = time.thread_time()
            try:
                waited_for = resume(argument)
            except StopIteration as done:
                result: T = done.value
                return result
            finally:
                self.cpu_s += time.thread_time() - began
            try:
                argument, resume = (yield waited_for), work.send
            except BaseException as error:
                argument, resume = error, work.throw


@dataclass(slots=True)
class Beats:
    """What passed between two turns of a task that only wants its turn: CPU of the loop's thread, and wall."""

    cpu_s: list[float] = field(default_factory=list[float])
    wall_s: list[float] = field(default_factory=list[float])


@asynccontextmanager
async def heartbeat() -> AsyncGenerator[Beats]:
    """Beats while the body runs. Their longest pause in CPU is the longest stall that is our own doing."""
    beats = Beats()

    async def beat() -> None:
        watch = Watch()
        while True:
            await anyio.sleep(BEAT_S)
            spent, watch = watch.read(), Watch()
            beats.cpu_s.append(spent.thread_s)
            beats.wall_s.append(spent.wall_s)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(beat)
        yield beats
        tasks.cancel_scope.cancel()


def sized(full: int, share: float, least: int = 1) -> int:
    """A share of the full size of a benchmark, for a quick look."""
    return max(least, round(full * share))


def ms(seconds: float) -> float:
    """Seconds in milliseconds."""
    return seconds * 1e3


def us(seconds: float) -> float:
    """Seconds in microseconds."""
    return seconds * 1e6


def machine() -> str:
    """The class of machine and the versions that matter."""
    cores = len(sched_getaffinity(0))
    versions = f"Python {platform.python_version()}, SQLite {sqlite3.sqlite_version}, numpy {np.__version__}"
    return f"{cores} cores ({platform.machine()}), {versions}"
