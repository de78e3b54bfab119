"""The shape of a table, and how the questions of a row become its figures. Pure."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, TypeAlias

from memforest.bench.records import Asked, Run, Worded
from memforest.bench.scoring import Figure, figure_of

# The floors that every figure of ours stands beside, and so come first.
BASELINES: Final = ("BM25", "hybrid")


class Unit(Enum):
    """What the figures of a column are in, and so how they are written."""

    PERCENT = "%"
    MS = "ms"
    SECONDS = "s"
    COUNT = "count"
    SHARE = "share"


Cell: TypeAlias = Figure | None


@dataclass(frozen=True, slots=True)
class Column:
    """A column: its short name, its unit, and ("AD: adversarial") what it means where that is not plain.

    `interval`: the interval of a figure is written beside it; JSON has all of them.
    """

    name: str
    unit: Unit = Unit.PERCENT
    explained: str = ""
    interval: bool = False


@dataclass(frozen=True, slots=True)
class Row:
    """A row: whose daemon, which way of asking, and a figure for each column (None: not measured)."""

    daemon: str
    name: str
    cells: tuple[Cell, ...]


@dataclass(frozen=True, slots=True)
class Table:
    """A table. `key` is its name in JSON."""

    key: str
    title: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""

    @property
    def is_measured(self) -> bool:
        """Whether anything in it was."""
        return any(cell is not None for row in self.rows for cell in row.cells)


@dataclass(frozen=True, slots=True)
class Answers:
    """All questions of one row of one daemon."""

    daemon: str
    name: str
    asked: tuple[Asked, ...]

    @property
    def whole(self) -> tuple[Asked, ...]:
        """Those that the daemon did not refuse."""
        return tuple(each for each in self.asked if each.fault is None)


# What a question counts for; None where that was not measured.
Measure: TypeAlias = Callable[[Asked], float | None]
# A column, what fills it, and what that is multiplied by.
Measured: TypeAlias = tuple[Column, Measure, float]


def rows_of(run: Run) -> tuple[Answers, ...]:
    """The rows in which anything was asked: daemon by daemon, in each the baselines first."""
    names = sorted(run.rows, key=lambda name: BASELINES.index(name) if name in BASELINES else len(BASELINES))
    by_row: dict[tuple[str, str], list[Asked]] = {}
    for each in run.asked:
        by_row.setdefault((each.daemon, each.row), []).append(each)
    places = [(daemon, name) for daemon in run.daemons or ("",) for name in names]
    return tuple(Answers(*place, tuple(by_row[place])) for place in places if place in by_row)


def figure_over(asked: Iterable[Asked], measure: Measure, scale: float = 1.0) -> Cell:
    """The mean over the questions that it was measured of."""
    values = [value * scale for each in asked if (value := measure(each)) is not None]
    return figure_of(values)


def mean_of_answers(read: Callable[[Worded], float | None]) -> Measure:
    """The mean over the samples of a question: what several answers count for one."""

    def of(asked: Asked) -> float | None:
        values = [value for worded in asked.worded if (value := read(worded)) is not None]
        return math.fsum(values) / len(values) if values else None

    return of


def of_columns(key: str, title: str, rows: Sequence[Answers], columns: Sequence[Measured]) -> Table:
    """A table of columns that do not go by category."""
    filled = tuple(
        Row(row.daemon, row.name, tuple(figure_over(row.whole, measure, scale) for _, measure, scale in columns))
        for row in rows
    )
    return Table(key, title, tuple(column for column, *_ in columns), filled)


def bare(value: float | None, n: int, scale: float = 1.0) -> Cell:
    """A figure without an interval: it is no mean over questions."""
    return None if value is None else Figure(value * scale, n, value * scale, value * scale)
