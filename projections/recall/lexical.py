"""BM25 over one user's rows, in memory: exact statistics of the live rows alone, and real removal.

Nothing of a removed row stays, neither a posting nor a word that only it had, and what is left is what an
index built from the surviving rows would hold. It is never saved: the words are in the log.
"""

from __future__ import annotations

import math
from array import array
from bisect import bisect_left
from collections import Counter
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Iterable

    from numpy.typing import NDArray

    Scores = NDArray[np.float64]


class _Posting:
    """The rows that hold a term, ascending, and how often each does."""

    __slots__ = ("counts", "rows")

    def __init__(self) -> None:
        self.rows = array("i")
        self.counts = array("i")


class LexicalIndex:
    """BM25 (Robertson and Zaragoza 2009), its idf never negative: ln(1 + (N - n + .5) / (n + .5)).

    Rows are the caller's numbers, small and dense. Every score, to the last bit, depends on which rows are live
    and on their terms, not on how they came to be; all counts are whole numbers.
    """

    def __init__(self, *, k1: float = 1.2, b: float = 0.75) -> None:
        """`k1` says how soon a repeated term stops counting, `b` how much long rows are held back."""
        if k1 < 0 or not 0 <= b <= 1:
            raise ValueError("k1 must not be negative, b lies between 0 and 1")
        self._k1 = k1
        self._b = b
        self._postings: dict[str, _Posting] = {}
        self._terms_of: dict[int, tuple[str, ...]] = {}
        self._lengths = array("i")  # terms of each row; 0 where none is live
        self._length_total = 0
        self._penalties: Scores | None = None  # of each row's length; None after a change

    def __len__(self) -> int:
        """How many rows are live."""
        return len(self._terms_of)

    def __contains__(self, row: int) -> bool:
        """Whether the row is live."""
        return row in self._terms_of

    @property
    def vocabulary(self) -> frozenset[str]:
        """The terms of the live rows: what this index knows of anybody's words."""
        return frozenset(self._postings)

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Index a row under its terms, repetitions counted. ValueError if the row is live or negative."""
        if row < 0 or row in self._terms_of:
            raise ValueError(f"row {row} is live already" if row >= 0 else "a row is not negative")
        counts = Counter(terms)
        length = counts.total()
        if row >= len(self._lengths):
            self._lengths.extend([0] * (row + 1 - len(self._lengths)))
        for term, count in counts.items():
            posting = self._postings.get(term)
            if posting is None:
                posting = self._postings[term] = _Posting()
            if not posting.rows or posting.rows[-1] < row:
                posting.rows.append(row)
                posting.counts.append(count)
            else:
                place = bisect_left(posting.rows, row)
                posting.rows.insert(place, row)
                posting.counts.insert(place, count)
        self._terms_of[row] = tuple(counts)
        self._lengths[row] = length
        self._length_total += length
        self._penalties = None

    def remove(self, row: int) -> None:
        """Take a row out of every posting it is in. KeyError if it is not live.

        Costs a bisection and a shift of the later entries for each distinct term of the row.
        """
        for term in self._terms_of.pop(row):
            posting = self._postings[term]
            place = bisect_left(posting.rows, row)
            del posting.rows[place]
            del posting.counts[place]
            if not posting.rows:
                del self._postings[term]
        self._length_total -= self._lengths[row]
        self._lengths[row] = 0
        self._penalties = None

    def terms_of(self, row: int) -> tuple[str, ...]:
        """The terms of a live row, repeated as often as it holds them. KeyError if it is not live."""
        found: list[str] = []
        for term in self._terms_of[row]:
            posting = self._postings[term]
            found += [term] * posting.counts[bisect_left(posting.rows, row)]
        return tuple(found)

    def scores(self, query_terms: Iterable[str], size: int) -> Scores:
        """The BM25 score of rows 0 .. size - 1, shape (size,); 0 where a row is not live or shares no term.

        A repeated query term counts once: questions repeat names, not needs. Terms are added in sorted order,
        so that the sum does not depend on how the question was put.
        """
        total = np.zeros(max(size, len(self._lengths)))
        for term in sorted(set(query_terms)):
            posting = self._postings.get(term)
            if posting is None:
                continue
            rows = np.frombuffer(posting.rows, dtype=np.intc)
            counts = np.frombuffer(posting.counts, dtype=np.intc).astype(np.float64)
            shares = self._length_penalties().take(rows)
            shares += counts
            np.divide(counts, shares, out=shares)
            shares *= self._weight(len(rows))
            np.add.at(total, rows, shares)
        return total[:size]

    def _weight(self, holders: int) -> float:
        live = len(self._terms_of)
        return (self._k1 + 1) * math.log1p((live - holders + 0.5) / (holders + 0.5))

    def _length_penalties(self) -> Scores:
        """k1 (1 - b + b length / mean length) of each row, shape (rows,), made once between two changes."""
        if self._penalties is None:
            mean = self._length_total / len(self._terms_of)
            lengths = np.frombuffer(self._lengths, dtype=np.intc)
            self._penalties = self._k1 * (1 - self._b + self._b * (lengths / mean))
        return self._penalties
