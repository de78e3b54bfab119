"""What the ledger adds up to: by task, today and in all, and what the extractions came to.

Rows are never changed in what is counted here, so a look reads only those behind the last one.
"""

from __future__ import annotations

import sqlite3
from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

import anyio

from daemon.zero_facts import RECENT, ZeroFacts, count_zero_facts
from events.ledger import USAGE_SUMS, day_of
from events.log import LogReader
from events.memory import NOTHING_SPENT, Task, Usage
from events.time import Instant


@dataclass(frozen=True, slots=True)
class ExtractionCounts:
    """Chunks that were read: each is with facts, of `zero` facts, or `skipped` (nothing to remember, by rule).

    `flagged`: no fact carries some detail. `asked`: those for which an endpoint was called, and those that were
    given up; `asked_zero` of them brought no fact.
    """

    answers: int = 0
    with_facts: int = 0
    zero: int = 0
    skipped: int = 0
    flagged: int = 0
    asked: int = 0
    asked_zero: int = 0

    def __add__(self, other: ExtractionCounts) -> ExtractionCounts:
        """Both together."""
        return ExtractionCounts(
            self.answers + other.answers,
            self.with_facts + other.with_facts,
            self.zero + other.zero,
            self.skipped + other.skipped,
            self.flagged + other.flagged,
            self.asked + other.asked,
            self.asked_zero + other.asked_zero,
        )


@dataclass(frozen=True, slots=True)
class Totals:
    """The sums, for every task; repairs and splits are not summed."""

    today: Mapping[Task, Usage]
    in_all: Mapping[Task, Usage]
    extractions: ExtractionCounts
    zero_facts: ZeroFacts


@dataclass(frozen=True, slots=True)
class _Added:
    """What is behind a row, up to row `to`. `recent`: of an endpoint's last chunks, which brought no fact."""

    to: int
    in_all: Mapping[Task, Usage]
    today: Mapping[Task, Usage]
    extractions: ExtractionCounts
    recent: tuple[bool, ...]


class LedgerTotals:
    """Adds up as it is asked."""

    def __init__(self, log: LogReader, clock: Callable[[], Instant]) -> None:
        self._log = log
        self._clock = clock
        self._counted_to = 0
        self._in_all = dict.fromkeys(Task, NOTHING_SPENT)
        self._extractions = ExtractionCounts()
        self._recent: deque[bool] = deque(maxlen=RECENT)
        # The day that is counted, and up to where; another one, also one that comes again, is counted anew.
        self._day = self._day_counted_to = 0
        self._today = dict.fromkeys(Task, NOTHING_SPENT)
        self._counting = anyio.Lock()

    async def read(self) -> Totals:
        """The sums as they are now. Raises `StoreUnusable`."""
        async with self._counting:
            today = day_of(self._clock())
            if today != self._day:
                self._day, self._day_counted_to, self._today = today, 0, dict.fromkeys(Task, NOTHING_SPENT)
            behind = partial(_read_behind, seq=self._counted_to, day=self._day, day_seq=self._day_counted_to)
            self._take(await self._log.read(behind))
            counts = self._extractions
            zero_facts = count_zero_facts(self._recent, counts.asked, counts.asked_zero)
            return Totals(dict(self._today), dict(self._in_all), counts, zero_facts)

    def _take(self, added: _Added) -> None:
        self._counted_to = self._day_counted_to = added.to
        for task in Task:
            self._in_all[task] += added.in_all[task]
            self._today[task] += added.today[task]
        self._extractions += added.extractions
        self._recent.extend(added.recent)


def _read_behind(connection: sqlite3.Connection, seq: int, day: int, day_seq: int) -> _Added:
    """The sums over the rows behind `seq`, and over those of a day behind `day_seq`.

    Rows behind a seq are found by the order of the table; the indexes that SQLite would choose are read whole.
    """
    (to,) = connection.execute("SELECT coalesce(max(seq), 0) FROM ledger").fetchone()
    behind = "FROM ledger NOT INDEXED WHERE seq > ? AND seq <= ?"
    in_all: dict[Task, Usage] = {}
    today: dict[Task, Usage] = {}
    # Task by task, for to group a million rows takes longer than to read them three times.
    for task in Task:
        sums = connection.execute(f"SELECT {USAGE_SUMS} {behind} AND task = ?", (seq, to, task.value))
        in_all[task] = Usage(*sums.fetchone())
        of_day = f"SELECT {USAGE_SUMS} FROM ledger WHERE day = ? AND seq > ? AND seq <= ? AND task = ?"
        today[task] = Usage(*connection.execute(of_day, (day, day_seq, to, task.value)).fetchone())
    # `facts` is null where an extraction was given up.
    counts = connection.execute(
        f"""SELECT count(facts), coalesce(sum(facts > 0), 0), coalesce(sum(facts = 0 AND NOT skipped), 0),
                   coalesce(sum(skipped), 0), coalesce(sum(missed > 0), 0), coalesce(sum(calls > 0), 0),
                   coalesce(sum(calls > 0 AND coalesce(facts, 0) = 0 AND NOT skipped), 0)
            {behind} AND task = 'extract'""",
        (seq, to),
    ).fetchone()
    newest_first = connection.execute(
        f"""SELECT coalesce(facts, 0) = 0 {behind} AND task = 'extract' AND skipped = 0 AND calls > 0
            ORDER BY seq DESC LIMIT ?""",
        (seq, to, RECENT),
    ).fetchall()
    recent = tuple(bool(is_zero) for (is_zero,) in reversed(newest_first))
    return _Added(int(to), in_all, today, ExtractionCounts(*counts), recent)
