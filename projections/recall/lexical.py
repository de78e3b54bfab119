"""BM25 over one user's rows, in memory: exact statistics of the live rows alone, and real removal.

It keeps no words: a term is a 64-bit hash under the user's key. Nothing of a removed row stays, neither a
posting nor a hash that only it had, and what is left is what an index built from the surviving rows would hold.
"""

from __future__ import annotations

import math
from array import array
from collections import Counter
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.hits import Entries, Hits, add_up, pieces_of
from projections.recall.keyed import hash_terms
from projections.recall.postings import COUNT_MAX, ROWS_MAX, Held, Postings, unpack
from projections.recall.state import LexicalState

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from numpy.typing import NDArray

    Scores = NDArray[np.float64]
    Rows = NDArray[np.intp]


# Terms that at least this share of many rows holds are loud, such as the name of one of two who talk: what they
# give is kept as a column of all rows from the second question on until the next change, of so few of them.
_LOUD_SHARE: Final = 1 / 4
_LOUD_ROWS_MIN: Final = 4_096
_LOUD_MAX: Final = 4


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
        # What loud terms give each row, by number, None for those asked for once. Empty after a change.
        self._columns: dict[int, Scores | None] = {}

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
        columns = sum(each.nbytes for each in self._columns.values() if each is not None)
        return self._postings.size_bytes + 4 * len(self._postings) + 58 * len(self._terms_of) + columns

    def knows(self, term: str) -> bool:
        """Whether a live row holds the term."""
        return any(self._postings.find(each) is not None for each in hash_terms(self._key, (term,)))

    def add(self, row: int, terms: Iterable[str]) -> None:
        """Index a row under its terms, repetitions counted. ValueError if the row is live or no row number."""
        counts = Counter(terms)
        self.add_hashed(row, dict(zip(hash_terms(self._key, counts), counts.values(), strict=True)))

    def add_together(self, row: int, texts: Sequence[Mapping[int, int]]) -> None:
        """Index a row that stands for several texts (as for `add_hashed`) and scores about as the best of them.

        It holds each term as often as the text that has it most, and is as long as they are on average: all their
        words in one row would be held back for their number (LoCoMo at half its facts: R@10 .9 points lower).
        """
        counts: Counter[int] = Counter()
        for each in texts:
            counts |= Counter(each)
        self.add_hashed(row, counts, round(sum(sum(each.values()) for each in texts) / len(texts)))

    def add_hashed(self, row: int, counts: Mapping[int, int], length: int | None = None) -> None:
        """Index a row under hashes of terms and how often it holds each. ValueError as for `add`.

        `length` is how many terms it counts for, where that is not their sum.
        """
        if row in self:
            raise ValueError(f"row {row} is live already")
        if not 0 <= row < ROWS_MAX:
            raise ValueError("a row is not negative, and below 2 ** 27")
        if row >= len(self._lengths):
            missing = row + 1 - len(self._lengths)
            self._lengths.extend([0] * missing)
            self._terms_of.extend([None] * missing)
        numbers = array("I", [self._postings.add(term, row, count) for term, count in counts.items()])
        length = sum(counts.values()) if length is None else length
        self._terms_of[row] = numbers.tobytes()
        self._lengths[row] = length
        self._length_total += length
        self._live += 1
        self._note_change()

    def remove(self, row: int) -> dict[int, int]:
        """Take a row out of every posting it is in; what `counts_of` said of it. KeyError if it is not live."""
        postings = self._postings
        counts = {postings.hash_of(number): postings.remove(number, row) for number in self._numbers_of(row)}
        self._length_total -= self._lengths[row]
        self._terms_of[row], self._lengths[row] = None, 0
        self._live -= 1
        self._note_change()
        return counts

    def move(self, row: int, gap: int) -> None:
        """What is known of a live row is from now on of one before it that is not. KeyError if it is not live."""
        for number in self._numbers_of(row):
            self._postings.move(number, row, gap)
        self._terms_of[gap], self._terms_of[row] = self._terms_of[row], None
        self._lengths[gap], self._lengths[row] = self._lengths[row], 0
        self._note_change()

    def shrink(self, size: int) -> None:
        """Let go of the rows from this one on, none of which is live."""
        del self._terms_of[size:], self._lengths[size:]
        self._note_change()

    def counts_of(self, row: int) -> dict[int, int]:
        """The hashes of a live row's terms, and how often it holds each. KeyError if it is not live."""
        postings = self._postings
        return {postings.hash_of(number): postings.count(number, row) for number in self._numbers_of(row)}

    def scores(self, query_terms: Iterable[str], size: int) -> Scores:
        """The BM25 score of rows 0 .. size - 1, shape (size,); 0 where a row is not live or shares no term.

        A repeated query term counts once: questions repeat names, not needs. Terms are added in the order of
        their hashes, so that the sum does not depend on how the question was put.
        """
        return self.hits(query_terms).add_up(max(size, len(self._lengths)))[:size]

    def hits(self, query_terms: Iterable[str]) -> Hits:
        """What each term gives each row that holds it. Later changes of the index do not touch it."""
        return self.weigh(self.find(query_terms))

    def find(self, query_terms: Iterable[str]) -> Entries:
        """Where the terms stand; those that no row holds are left out."""
        return self.entries(self.look_up(sorted(set(self.hash(query_terms)))).values())

    def hash(self, terms: Iterable[str]) -> Iterator[int]:
        """The terms as they are known here."""
        return hash_terms(self._key, terms)

    def look_up(self, hashes: Iterable[int]) -> dict[int, Held]:
        """By its hash, each of these terms that a row holds: for `entries`, and how many rows hold it."""
        return self._postings.look_up(hashes)

    def entries(self, held: Iterable[Held]) -> Entries:
        """Where these terms stand, which are in the order of their hashes."""
        numbers, holders = list[int](), list[int]()
        for number, count in held:
            numbers.append(number)
            holders.append(count)
        least = _LOUD_SHARE * max(self._live, _LOUD_ROWS_MIN)
        loud = [each >= least for each in holders]
        columns = [self._columns.get(number) for number in numbers]
        quiet = [number for number, column in zip(numbers, columns, strict=True) if column is None]
        return Entries(numbers, holders, loud, columns, *self._unpack(quiet), self._unpack)

    def _unpack(self, numbers: Sequence[int]) -> tuple[Rows, Scores]:
        """The rows that hold the terms of these numbers, term by term, and how often."""
        if not numbers:
            return np.empty(0, dtype=np.intp), np.empty(0)
        entries = self._postings.entries(numbers)
        rows, counts = np.empty(len(entries), dtype=np.intp), np.empty(len(entries))
        for piece in pieces_of(len(entries)):
            unpack(entries[piece], rows[piece], counts[piece])
        for place in np.flatnonzero(counts == COUNT_MAX).tolist() if self._postings.overflows else ():
            ends = np.cumsum([self._postings.holders(each) for each in numbers])
            number = numbers[int(np.searchsorted(ends, place, side="right"))]
            counts[place] = self._postings.count(number, int(rows[place]))
        return rows, counts

    def weigh(self, entries: Entries) -> Hits:
        """What these entries give their rows."""
        quiet = entries.quiet
        weights = {held: self._weight(held) for held in set(quiet)}  # many terms are held by as many rows
        shares = np.repeat([weights[held] for held in quiet], quiet) if quiet else np.empty(0)
        for piece in pieces_of(len(shares)):
            shares[piece] *= self._shares(entries.rows[piece], entries.counts[piece])
        steps: list[slice | Scores] = []
        start = end = 0
        for place, column in enumerate(entries.columns):
            if column is None:
                held = slice(end, end + entries.holders[place])
                end = held.stop
                if entries.loud[place]:
                    self._keep_column(entries.numbers[place], entries.rows[held], shares[held])
                continue
            if start < end:
                steps.append(slice(start, end))
                start = end
            steps.append(column)
        if start < end:
            steps.append(slice(start, end))
        return Hits(entries.rows, shares, steps)

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

    def number(self, terms: Iterable[str]) -> tuple[list[int | None], list[int]]:
        """The number of each term, for `held`, None where no row holds it; and how many rows do."""
        numbers = [self._postings.find(each) for each in hash_terms(self._key, terms)]
        return numbers, [0 if number is None else self._postings.holders(number) for number in numbers]

    def held(self, numbers: Sequence[int | None], rows: Iterable[int]) -> list[list[bool]]:
        """By row, whether it holds each term of these numbers."""
        of_rows = [frozenset(array("I", self._terms_of[row] or b"") if row in self else ()) for row in rows]
        return [[number in held for number in numbers] for held in of_rows]

    def weights(self, terms: Iterable[str]) -> dict[int, float]:
        """How much each term says, by its hash, in the order of the hashes; also one that no row holds."""
        hashes = sorted(set(hash_terms(self._key, terms)))
        numbers = [self._postings.find(each) for each in hashes]
        held = (0 if number is None else self._postings.holders(number) for number in numbers)
        return dict(zip(hashes, map(self._weight, held), strict=True))

    def score_counts(self, weights: Mapping[int, float], counts: Mapping[int, int]) -> float:
        """The BM25 score of a text that is no row, of which so many terms are known."""
        by_length = self._k1 * self._b * self._live / max(1, self._length_total)
        penalty = by_length * sum(counts.values()) + self._k1 * (1 - self._b)
        return sum(
            weight * counts[term] / (counts[term] + penalty) for term, weight in weights.items() if term in counts
        )

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

    def _keep_column(self, number: int, rows: Rows, shares: Scores) -> None:
        if number in self._columns:
            self._columns[number] = add_up(rows, shares, len(self._lengths))
            return
        # Writes and questions that take turns would pay for columns that nobody asks for again.
        if len(self._columns) == _LOUD_MAX:
            del self._columns[next(iter(self._columns))]
        self._columns[number] = None

    def _note_change(self) -> None:
        self._penalties = None
        self._columns.clear()

    def _numbers_of(self, row: int) -> array[int]:
        terms = self._terms_of[row] if row in self else None
        if terms is None:
            raise KeyError(row)
        return array("I", terms)

    def _weight(self, holders: int) -> float:
        return (self._k1 + 1) * math.log1p((self._live - holders + 0.5) / (holders + 0.5))
