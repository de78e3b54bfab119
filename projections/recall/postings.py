"""Which rows hold a term, and how often: 4 bytes an entry, and no Python object for a term of one row."""

from __future__ import annotations

from array import array
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from projections.recall.state import PostingsState

if TYPE_CHECKING:
    from numpy.typing import NDArray

# The number of a term, and how many rows hold it.
Held: TypeAlias = tuple[int, int]

# An entry: the row above, the count in the lowest bits; a greater count stands apart.
_COUNT_BITS: Final = 5
COUNT_MAX: Final = (1 << _COUNT_BITS) - 1
ROWS_MAX: Final = 1 << (32 - _COUNT_BITS)

_FIRST_SLOTS: Final = 256
_EMPTY: Final = -1
_DELETED: Final = -2


def unpack(entries: NDArray[np.uint32], rows: NDArray[np.intp], counts: NDArray[np.float64]) -> None:
    """Write rows and counts of entries there; a count of `COUNT_MAX` stands for that and more."""
    rows[:] = entries >> np.uint32(_COUNT_BITS)
    counts[:] = entries & np.uint32(COUNT_MAX)


class Postings:
    """Terms by 64-bit hash, each with a number for as long as a row holds it.

    The table from hashes to numbers probes the next places when one is taken: the hashes are spread evenly
    already. A dict would take five times the room.
    """

    def __init__(self) -> None:
        self._slots = array("i", [_EMPTY]) * _FIRST_SLOTS
        self._slots_used = 0  # deleted ones included
        self._hashes = array("Q")  # by number
        # A term of one row has its entry here, another one its entries there.
        self._single = array("I")
        self._many: list[array[int] | None] = []
        self._free: list[int] = []
        self._entries = 0
        self._counts: dict[tuple[int, int], int] = {}  # of COUNT_MAX and more, by number and row

    def find(self, term: int) -> int | None:
        """The number of a term that a row holds."""
        mask = len(self._slots) - 1
        slot = term & mask
        while (number := self._slots[slot]) != _EMPTY:
            if number >= 0 and self._hashes[number] == term:
                return number
            slot = (slot + 1) & mask
        return None

    def look_up(self, terms: Iterable[int]) -> dict[int, Held]:
        """By its hash, each of these terms that a row holds: its number, and how many rows do."""
        slots, hashes, many = self._slots, self._hashes, self._many
        mask = len(slots) - 1
        found: dict[int, Held] = {}
        for term in terms:
            slot = term & mask
            while (number := slots[slot]) != _EMPTY:
                if number >= 0 and hashes[number] == term:
                    entries = many[number]
                    found[term] = number, 1 if entries is None else len(entries)
                    break
                slot = (slot + 1) & mask
        return found

    def hash_of(self, number: int) -> int:
        """The hash of a number's term."""
        return self._hashes[number]

    def hashes(self) -> Iterator[int]:
        """The hashes of all terms that a row holds."""
        return (self._hashes[number] for number in self._slots if number >= 0)

    def holders(self, number: int) -> int:
        """How many rows hold a term."""
        many = self._many[number]
        return 1 if many is None else len(many)

    def entries(self, numbers: Sequence[int]) -> NDArray[np.uint32]:
        """The entries of these terms, one term behind the other, those of each ascending."""
        single, many = self._single, self._many
        parts = (many[number] or single[number : number + 1] for number in numbers)
        return np.frombuffer(b"".join(parts), dtype=np.uint32)

    def count(self, number: int, row: int) -> int:
        """How often a row holds a term."""
        many = self._many[number]
        if many is None:
            entry = self._single[number]
        else:
            place = bisect_left(many, row << _COUNT_BITS)
            entry = many[place] if place < len(many) else 0
        if entry >> _COUNT_BITS != row:
            return 0
        count = entry & COUNT_MAX
        return self._counts[number, row] if count == COUNT_MAX else count

    def add(self, term: int, row: int, count: int) -> int:
        """A row that did not hold a term does; the term's number."""
        self._entries += 1
        entry = row << _COUNT_BITS | min(count, COUNT_MAX)
        number = self.find(term)
        if number is None:
            number = self._take_number(term, entry)
        else:
            many = self._many[number]
            if many is None:
                self._many[number] = array("I", sorted((self._single[number], entry)))
            elif many[-1] < entry:
                many.append(entry)
            else:
                many.insert(bisect_left(many, entry), entry)
        if count >= COUNT_MAX:
            self._counts[number, row] = count
        return number

    def remove(self, number: int, row: int) -> int:
        """A row that held a term does no more; how often it held it.

        Costs a bisection and a shift of the later entries.
        """
        self._entries -= 1
        many = self._many[number]
        if many is None:
            entry = self._single[number]
            self._give_number_back(number)
        else:
            entry = many.pop(bisect_left(many, row << _COUNT_BITS))
            if len(many) == 1:
                self._single[number] = many[0]
                self._many[number] = None
        count = entry & COUNT_MAX
        return self._counts.pop((number, row)) if count == COUNT_MAX else count

    def move(self, number: int, row: int, to: int) -> None:
        """Another row, which did not hold a term, holds it in place of one that did."""
        many, further = self._many[number], (to - row) << _COUNT_BITS
        if many is None:
            entry = self._single[number] = self._single[number] + further
        else:
            entry = many.pop(bisect_left(many, row << _COUNT_BITS)) + further
            many.insert(bisect_left(many, entry), entry)
        if entry & COUNT_MAX == COUNT_MAX:
            self._counts[number, to] = self._counts.pop((number, row))

    @property
    def size_bytes(self) -> int:
        """About what the postings take, told without looking at each: half the terms are in one row only."""
        return 4 * self._entries + 64 * len(self._hashes) + 4 * len(self._slots) + 150 * len(self._counts)

    @property
    def overflows(self) -> bool:
        """Whether some count is COUNT_MAX or more."""
        return bool(self._counts)

    def __len__(self) -> int:
        """How many entries there are."""
        return self._entries

    def freeze(self) -> PostingsState:
        """All of it."""
        alive = np.zeros(len(self._hashes), dtype=np.bool_)
        slots = np.frombuffer(self._slots, dtype=np.int32)
        alive[slots[slots >= 0]] = True
        counted = np.array([0 if each is None else len(each) for each in self._many], dtype=np.int32)
        return PostingsState(
            self._hashes.tobytes(),
            alive.tobytes(),
            self._single.tobytes(),
            counted.tobytes(),
            b"".join(each.tobytes() for each in self._many if each is not None),
            list(self._free),
            [(number, row, count) for (number, row), count in self._counts.items()],
        )

    @classmethod
    def thaw(cls, state: PostingsState) -> Postings:
        """What `freeze` gave."""
        postings, start = cls(), 0
        postings._hashes, postings._single = array("Q", state.hashes), array("I", state.single)
        for count in np.frombuffer(state.counted, dtype=np.int32).tolist():
            many = array("I", state.entries[start : start + 4 * count]) if count else None
            postings._many.append(many)
            start += 4 * count
        postings._free = list(state.free)
        postings._counts = {(number, row): count for number, row, count in state.counts}
        alive = np.flatnonzero(np.frombuffer(state.alive, dtype=np.bool_))
        postings._lay_out(alive)
        counted = np.frombuffer(state.counted, dtype=np.int32)
        postings._entries = int(np.maximum(counted[alive], 1).sum())
        return postings

    def _take_number(self, term: int, entry: int) -> int:
        if 2 * (self._slots_used + 1) > len(self._slots):
            slots = np.frombuffer(self._slots, dtype=np.int32)
            self._lay_out(slots[slots >= 0].astype(np.intp))
        if self._free:
            number = self._free.pop()
            self._hashes[number], self._single[number] = term, entry
        else:
            number = len(self._hashes)
            self._hashes.append(term)
            self._single.append(entry)
            self._many.append(None)
        mask = len(self._slots) - 1
        slot = term & mask
        while self._slots[slot] >= 0:
            slot = (slot + 1) & mask
        self._slots_used += self._slots[slot] == _EMPTY
        self._slots[slot] = number
        return number

    def _give_number_back(self, number: int) -> None:
        mask = len(self._slots) - 1
        slot = self._hashes[number] & mask
        while self._slots[slot] != number:
            slot = (slot + 1) & mask
        self._slots[slot] = _DELETED
        self._hashes[number] = self._single[number] = 0
        self._free.append(number)

    def _lay_out(self, numbers: NDArray[np.intp]) -> None:
        """A new table for these numbers, at most a third full: all first choices at once, the rest by turns."""
        size = _FIRST_SLOTS
        while size < 3 * len(numbers):
            size *= 2
        slots = np.full(size, _EMPTY, dtype=np.int32)
        hashes = np.frombuffer(self._hashes, dtype=np.uint64)[numbers]
        places = (hashes & np.uint64(size - 1)).astype(np.intp)
        waiting = numbers
        while waiting.size:
            open_places = slots[places] == _EMPTY
            slots[places[open_places]] = waiting[open_places]
            left = slots[places] != waiting
            waiting, places = waiting[left], (places[left] + 1) & (size - 1)
        self._slots = array("i", slots.tobytes())
        self._slots_used = len(numbers)
