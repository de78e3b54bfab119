"""What questions took of the model: by task, today and ever, and kept in the store.

Kept a little later and many at once, so that no question waits for the disk. A process that is killed loses what
was spent within the last second or so; one that is stopped loses nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Final

import anyio

from daemon.models.query_tasks import QueryTask
from events.envelope import Reference
from events.errors import LogClosed, StoreUnusable
from events.ledger import day_of
from events.log import EventLog
from events.memory import NOTHING_SPENT, Usage
from events.query_usage import NOBODY, Spent, add_query_usage, read_query_usage
from events.time import Instant

# From what was spent first to its transaction: an fsync for all questions of a second is nothing to the writer.
KEEP_AFTER_S: Final = 1.0
# Until the next try when the disk takes nothing.
PAUSE_S: Final = 5.0
# Sums that wait while the disk takes nothing: some megabytes. Of whoever comes then it counts for all alone.
WAITING_MAX: Final = 10_000


@dataclass(frozen=True, slots=True)
class QueryTotals:
    """The sums, for every task; repairs and splits are not summed."""

    today: Mapping[QueryTask, Usage]
    in_all: Mapping[QueryTask, Usage]


class QuerySpending:
    """Counts what questions took, and keeps it. `keep_on` is a task of the daemon, `leave` its last word."""

    def __init__(
        self,
        log: EventLog,
        clock: Callable[[], Instant],
        keep_after_s: float = KEEP_AFTER_S,
        pause_s: float = PAUSE_S,
    ) -> None:
        self._log, self._clock = log, clock
        self._keep_after_s, self._pause_s = keep_after_s, pause_s
        self._waiting: dict[Spent, Usage] = {}  # for the disk
        # By day and task; None until the store was read. A few numbers a day: little, also after years.
        self._sums: dict[tuple[int, str], Usage] | None = None
        self._in_all = dict.fromkeys(QueryTask, NOTHING_SPENT)
        self._grown = anyio.Event()
        # Reading while something is written would count it twice, or not at all.
        self._turn = anyio.Lock()

    def note(self, user: Reference | None, task: QueryTask, usage: Usage) -> None:
        """So much was spent for a user, or for nobody that this daemon knows."""
        if usage == NOTHING_SPENT:
            return
        day = day_of(self._clock())
        self._wait(Spent(NOBODY if user is None else user, day, task.value), usage)
        self._count(day, task.value, usage)
        self._grown.set()

    async def read(self) -> QueryTotals:
        """The sums as they are now, what is not kept yet among them. Raises `StoreUnusable`."""
        if self._sums is None:
            async with self._turn:
                await self._load()
        sums: Mapping[tuple[int, str], Usage] = self._sums or {}
        day = day_of(self._clock())
        today = {task: sums.get((day, task.value), NOTHING_SPENT) for task in QueryTask}
        return QueryTotals(today, dict(self._in_all))

    async def keep_on(self) -> None:
        """Keep what is spent, a moment after it was."""
        while True:
            await self._grown.wait()
            await anyio.sleep(self._keep_after_s)
            try:
                await self.keep()
            except StoreUnusable:  # the log knows why, and `readyz` says it
                await anyio.sleep(self._pause_s)

    async def keep(self) -> None:
        """Keep what was spent until now. Raises `StoreUnusable`, and nothing is lost."""
        async with self._turn:
            spent, self._waiting, self._grown = self._waiting, {}, anyio.Event()
            if not spent:
                return
            try:
                # The room that is reserved on a full disk is for what takes something back.
                if self._log.reserved:
                    raise StoreUnusable("the disk is full")
                await self._log.write(partial(add_query_usage, spent=spent), urgent=False)
            except BaseException:
                for of, usage in spent.items():
                    self._wait(of, usage)
                self._grown.set()
                raise

    async def leave(self) -> None:
        """Keep what there is before the log is closed; a full disk must not keep the daemon from ending."""
        with suppress(StoreUnusable, LogClosed):
            await self.keep()

    async def _load(self) -> None:
        if self._sums is not None:
            return
        kept = await self._log.read(read_query_usage)
        self._sums = {}
        for (day, task), usage in kept.items():
            self._count(day, task, usage)
        for of, usage in self._waiting.items():
            self._count(of.day, of.task, usage)

    def _count(self, day: int, task: str, usage: Usage) -> None:
        if self._sums is None or task not in _TASKS:
            return  # before the store was read, which counts it then; of another release
        self._sums[day, task] = self._sums.get((day, task), NOTHING_SPENT) + usage
        self._in_all[QueryTask(task)] += usage

    def _wait(self, of: Spent, usage: Usage) -> None:
        if of not in self._waiting and len(self._waiting) >= WAITING_MAX:
            of = of._replace(user=NOBODY)
        self._waiting[of] = self._waiting.get(of, NOTHING_SPENT) + usage


_TASKS: Final = frozenset(task.value for task in QueryTask)
