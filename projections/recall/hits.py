"""Where the terms of a question stand, and what they give the rows that hold them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from numpy.typing import NDArray

    Scores = NDArray[np.float64]
    Rows = NDArray[np.intp]


def add_up(rows: NDArray[np.integer[Any]], shares: Scores, size: int) -> Scores:
    """The sum of the shares of each of the rows 0 .. size - 1, added in their order."""
    return np.bincount(rows, shares, minlength=size).astype(np.float64, copy=False)


# What these take together fits the processor's cache, which is worth a third of the time.
_ENTRIES_AT_ONCE: Final = 16_384


def pieces_of(entries: int) -> Iterator[slice]:
    """Slices of so many entries that what they take fits the cache."""
    return (slice(start, start + _ENTRIES_AT_ONCE) for start in range(0, entries, _ENTRIES_AT_ONCE))


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Which rows hold some terms, and how often: one term after the other, in the order of their hashes.

    `numbers`: of the terms; `holders` rows hold each of them; `loud` are those that most rows hold. `columns`:
    what a loud term gives each row, None for the others and while it is not known; `rows` and `counts` are of all
    without one. `unpack` gives those of any: call it before the next change.
    """

    numbers: list[int]
    holders: list[int]
    loud: list[bool]
    columns: list[Scores | None]
    rows: Rows
    counts: Scores
    unpack: Callable[[Sequence[int]], tuple[Rows, Scores]]

    @property
    def quiet(self) -> list[int]:
        """How many rows hold each term without a column."""
        return [held for held, column in zip(self.holders, self.columns, strict=True) if column is None]


@dataclass(frozen=True, slots=True, eq=False)
class Hits:
    """What some terms give the rows that hold them, in the order of the terms; nothing in it changes any more.

    `steps`: a piece of `rows` and `shares`, or a column.
    """

    rows: Rows
    shares: Scores
    steps: list[slice | Scores]

    def add_up(self, size: int) -> Scores:
        """The sum of the shares of each of the rows 0 .. size - 1, added in this order."""
        total: Scores | None = None
        for step in self.steps:
            if isinstance(step, slice):
                rows, shares = self.rows[step], self.shares[step]
                if total is None:
                    total = add_up(rows, shares, size)
                else:
                    np.add.at(total, rows, shares)
            elif total is None:
                total = np.zeros(size)
                total[: len(step)] = step
            else:
                total[: len(step)] += step
        return np.zeros(size) if total is None else total
