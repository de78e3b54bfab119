"""BM25 over one user's rows, in memory: exact statistics of the live rows alone, and real removal.

It keeps no words: a term is a 64-bit hash under the user's key. Nothing of a removed row stays, neither a
posting nor a hash that only it had, and what is left is what an index built from the surviving rows would hold.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.keyed import hash_terms
from projections.recall.postings import COUNT_MAX, ROWS_MAX, Postings, unpack
from projections.recall.state import LexicalState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Scores = NDArray[np.float64]
    Rows = NDArray[np.intp]


def add_up(rows: Rows, shares: Scores, size: int) -> Scores:
    """The sum of the shares of each of the rows 0 .. size - 1, added in their order."""
    return np.bincount(rows, shares, minlength=size).astype(np.float64, copy=False)


# What these take together fits the processor's cache, which is worth a third of the time.
_ENTRIES_AT_ONCE: Final = 16_384


def _pieces(entries: int) -> Iterator[slice]:
    return (slice(start, start + _ENTRIES_AT_ONCE) for start in range(0, entries, _ENTRIES_AT_ONCE))


@dataclass(frozen=True, slots=True, eq=False)
class Entries:
    """Which rows hold some terms, term by term, and how often; `holders` rows hold each term."""

    rows: Rows
    counts: Scores
    holders: list[int]


class LexicalIndex:
    """BM25 (Robertson and Zaragoza 2009), its idf never negative: ln(1 + (N - n + .5) / (n + .5)).

    Rows are the caller's numbers, small and dense. Every score, to the last bit, depends on which rows are live
    and on their terms, not on how they came to be; all counts are whole numbers.
    """

    def __init__(self, key: bytes = b"", *, k1: float = 1.2, b: float = 0.75) -> None:
        """`k1` says how soon a repeated term stops counting, `b` how much long rows are held back."""
        if k1 < 0 or not 0 <= b <= 1:
            raise ValueError("k1 must not be negative, b lies between 0 and 1")
        self._key = key
        self._k1 = k1
        self._b = b
        self._postings = Postings()
        # The numbers of each row's distinct terms, uint32; None where none is live.
        self._terms_of: list[bytes | None] = []
        self._lengths = array("i")  # terms of each row; 0 where none is live
        self._live = 0
        self._length_total = 0
        self._penalties: Scores | None = None  # of each row; None after a change

    def __len__(self) -> int:
        """How many rows are live."""
        return self._live

    def __contains__(self, row: int) -> bool:
        """Whether the row is live."""
        return 0 <= row < len(self._terms_of) and self._terms_of[row] is not None

    @property
    def vocabulary(self) -> frozenset[int]:
        """The hashes of the live rows' terms: all that this index knows of anybody's words."""
        return frozenset(self._postings.hashes())

    @property
    def size_bytes(self) -> int:
        """About what the index takes."""
        return self._postings.size_bytes + 4 * len(self._postings) + 58 * len(self._terms_of)

    def knows(self, term: str) -> bool:
        """Whether a live row holds the term."""
        return any(self._postings.find(each) is not None for each in hash_terms(self._key, (term,)))

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Index a row under its terms, repetitions counted. ValueError if the row is live or no row number."""
        counts = Counter(terms)
        self.add_hashed(row, dict(zip(hash_terms(self._key, counts), counts.values(), strict=True)))

    def add_hashed(self, row: int, counts: Mapping[int, int]) -> None:
        """Index a row under hashes of terms and how often it holds each. ValueError as for `add`."""
        if row in self:
            raise ValueError(f"row {row} is live already")
        if not 0 <= row < ROWS_MAX:
            raise ValueError("a row is not negative, and below 2 ** 27")
        if row >= len(self._lengths):
            missing = row + 1 - len(self._lengths)
            self._lengths.extend([0] * missing)
            self._terms_of.extend([None] * missing)
        add = self._postings.add
        numbers = array("I", [add(term, row, count) for term, count in counts.items()])
        length = sum(counts.values())
        self._terms_of[row] = numbers.tobytes()
        self._lengths[row] = length
        self._length_total += length
        self._live += 1
        self._penalties = None

    def remove(self, row: int) -> None:
        """Take a row out of every posting it is in. KeyError if it is not live.

        Costs a bisection and a shift of the later entries for each distinct term of the row.
        """
        for number in self._numbers_of(row):
            self._postings.remove(number, row)
        self._terms_of[row] = None
        self._length_total -= self._lengths[row]
        self._lengths[row] = 0
        self._live -= 1
        self._penalties = None

    def counts_of(self, row: int) -> dict[int, int]:
        """The hashes of a live row's terms, and how often it holds each. KeyError if it is not live."""
        postings = self._postings
        return {postings.hash_of(number): postings.count(number, row) for number in self._numbers_of(row)}

    def terms_of(self, row: int) -> tuple[int, ...]:
        """The hashes of a live row's terms, repeated as often as it holds them. KeyError if it is not live."""
        return tuple(Counter(self.counts_of(row)).elements())

    def scores(self, query_terms: Iterable[str], size: int) -> Scores:
        """The BM25 score of rows 0 .. size - 1, shape (size,); 0 where a row is not live or shares no term.

        A repeated query term counts once: questions repeat names, not needs. Terms are added in the order of
        their hashes, so that the sum does not depend on how the question was put.
        """
        rows, shares = self.hits(query_terms)
        return add_up(rows, shares, max(size, len(self._lengths)))[:size]

    def hits(self, query_terms: Iterable[str]) -> tuple[Rows, Scores]:
        """What each term gives each row that holds it, term by term: rows and shares of their scores.

        A row's score is the sum of its shares in this order (`add_up`). The arrays are the caller's own: later
        changes of the index do not touch them.
        """
        return self.weigh(self.find(query_terms))

    def find(self, query_terms: Iterable[str]) -> Entries:
        """Where the terms stand, in the order of their hashes; those that no row holds are left out."""
        hashes = sorted(set(hash_terms(self._key, query_terms)))
        found = [number for number in map(self._postings.find, hashes) if number is not None]
        if not found:
            return Entries(np.empty(0, dtype=np.intp), np.empty(0), [])
        holders = [self._postings.holders(number) for number in found]
        entries = np.concatenate([self._postings.entries(number) for number in found])
        rows, counts = np.empty(len(entries), dtype=np.intp), np.empty(len(entries))
        for piece in _pieces(len(entries)):
            unpack(entries[piece], rows[piece], counts[piece])
        for place in np.flatnonzero(counts == COUNT_MAX).tolist() if self._postings.overflows else ():
            number = found[int(np.searchsorted(np.cumsum(holders), place, side="right"))]
            counts[place] = self._postings.count(number, int(rows[place]))
        return Entries(rows, counts, holders)

    def weigh(self, entries: Entries) -> tuple[Rows, Scores]:
        """The rows of these entries, and what each gives its row."""
        shares = np.repeat([self._weight(each) for each in entries.holders], entries.holders)
        for piece in _pieces(len(shares)):
            shares[piece] *= self._shares(entries.rows[piece], entries.counts[piece])
        return entries.rows, shares

    @property
    def lengths(self) -> NDArray[np.int32]:
        """How many terms each row has, 0 where none is live. Read them before the next change."""
        return np.frombuffer(self._lengths, dtype=np.int32)

    def shares(self, terms: Sequence[str], rows: Sequence[int]) -> tuple[list[int], Scores]:
        """How many rows hold each term, and what it gives each of these rows, shape (terms, rows)."""
        numbers = [self._postings.find(each) for each in hash_terms(self._key, terms)]
        holders = [0 if number is None else self._postings.holders(number) for number in numbers]
        counts = np.array(
            [[0 if number is None else self._postings.count(number, row) for row in rows] for number in numbers],
            dtype=np.float64,
        ).reshape(len(terms), len(rows))
        # As if a term were there once where it is not, so that with k1 = 0 nothing is divided by nothing.
        shares = self._shares(np.array(rows, dtype=np.intp), np.maximum(counts, 1.0))
        shares *= np.array([self._weight(each) for each in holders]).reshape(-1, 1)
        shares[counts == 0] = 0.0
        return holders, shares

    def held(self, terms: Sequence[str], rows: Sequence[int]) -> tuple[list[int], NDArray[np.bool_]]:
        """How many rows hold each term, and whether each of these rows does, shape (terms, rows)."""
        numbers = [self._postings.find(each) for each in hash_terms(self._key, terms)]
        holders = [0 if number is None else self._postings.holders(number) for number in numbers]
        asked, held = np.array(rows, dtype=np.uint32), np.zeros((len(terms), len(rows)), dtype=np.bool_)
        for place, number in enumerate(numbers):
            if number is not None:
                self._postings.hold(number, asked, out=held[place])
        return holders, held

    def freeze(self) -> LexicalState:
        """All of it."""
        sizes = np.array([-1 if each is None else len(each) // 4 for each in self._terms_of], dtype=np.int32)
        row_terms = b"".join(each for each in self._terms_of if each is not None)
        return LexicalState(self._postings.freeze(), sizes.tobytes(), row_terms, self._lengths.tobytes())

    @classmethod
    def thaw(cls, state: LexicalState, key: bytes) -> LexicalIndex:
        """What `freeze` gave, under the key that it was filled with, with the default `k1` and `b`."""
        index, start = cls(key), 0
        index._postings = Postings.thaw(state.postings)
        for size in np.frombuffer(state.row_sizes, dtype=np.int32).tolist():
            index._terms_of.append(None if size < 0 else state.row_terms[start : start + 4 * size])
            start += 4 * max(size, 0)
        index._lengths = array("i", state.lengths)
        index._length_total = sum(index._lengths)
        index._live = sum(each is not None for each in index._terms_of)
        return index

    def _shares(self, rows: Rows, counts: Scores) -> Scores:
        """count / (count + k1 (1 - b + b length / mean length))"""
        if self._penalties is None:
            by_length = self._k1 * self._b * self._live / max(1, self._length_total)
            self._penalties = self.lengths.astype(np.float64) * by_length + self._k1 * (1 - self._b)
        penalties: Scores = self._penalties.take(rows) + counts
        return np.divide(counts, penalties, out=penalties)

    def _numbers_of(self, row: int) -> array[int]:
        terms = self._terms_of[row] if row in self else None
        if terms is None:
            raise KeyError(row)
        return array("I", terms)

    def _weight(self, holders: int) -> float:
        return (self._k1 + 1) * math.log1p((self._live - holders + 0.5) / (holders + 0.5))
