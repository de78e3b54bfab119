"""The vectors of one user: int8 codes that are scanned whole, and what they leave out, to score the leading rows.

A unit vector comes in as float16, and everything follows from that, so a cached vector answers like a new one.
Each component is a whole number of its row's steps, cut in two bytes: v = 256 high + low. Products of whole
numbers are exact in any order and on any processor; so scores are the same on every machine, and a scan of the
high bytes reads a quarter of what numpy's product of float32 reads (performance.md 1).
"""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np

from events.errors import InvalidInput
from projections.recall.products import integer_products, side_by_side
from projections.recall.rooms import Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from numpy.typing import NDArray

    Column = NDArray[np.float32]
    Codes = NDArray[np.int8]
    Rows = NDArray[np.intp]

# Rows of a block: big enough that a call for each costs nothing, small enough to be copied in a moment.
BLOCK_ROWS: Final = 4096
_FIRST_ROWS = 64
# What these take as they are quantised fits the processor's cache.
_ROWS_AT_ONCE = 128
# So many rows are read in their order: that is faster than as they come.
_SORTED_FROM = 64
# The largest v whose high byte, rounded, is still an int8.
_STEPS: Final = 127 * 256 + 127
# What the products of the query's two bytes with the high byte of a row count, and those with the low one.
_OF_HIGH: Final = np.array([65536.0, 256.0])
_OF_LOW: Final = np.array([256.0, 1.0])
# Cosines are told to this many decimals; steps and float16 are about as fine.
COSINE_DECIMALS: Final = 6


class VectorRefused(InvalidInput):
    """A vector cannot be searched: another number of dimensions, all zeros, or not finite."""


@dataclass(frozen=True, slots=True)
class Quantised:
    """Vectors as whole steps: `high` and `low` bytes (rows, dimensions), and `steps` (rows,), how long each is."""

    high: Codes
    low: Codes
    steps: Column

    def take(self, places: Sequence[int]) -> Quantised:
        """Some of them, in this order."""
        chosen = np.array(places, dtype=np.intp)
        return Quantised(self.high[chosen], self.low[chosen], self.steps[chosen])


def quantise(vectors: NDArray[np.floating]) -> Quantised:
    """Unit vectors of shape (rows, dimensions), rounded to float16 first. Raises `VectorRefused`."""
    if len(vectors) <= _ROWS_AT_ONCE:
        return _quantise(vectors)
    parts = [_quantise(vectors[at : at + _ROWS_AT_ONCE]) for at in range(0, len(vectors), _ROWS_AT_ONCE)]
    high, low = np.concatenate([each.high for each in parts]), np.concatenate([each.low for each in parts])
    return Quantised(high, low, np.concatenate([each.steps for each in parts]))


def _quantise(vectors: NDArray[np.floating]) -> Quantised:
    if vectors.dtype != np.float16:
        with np.errstate(over="ignore"):  # what is too large becomes infinite, and is refused
            vectors = vectors.astype(np.float16)
    halves = vectors.astype(np.float32)
    largest = np.maximum.reduce(np.abs(halves), axis=1, initial=0.0)
    if not np.maximum.reduce(largest, initial=0.0) < np.inf:  # or not a number
        raise VectorRefused("a vector has a component that is not a finite number")
    if not largest.all():
        raise VectorRefused("a vector is all zeros, and has no direction to compare by")
    steps = largest / np.float32(_STEPS)
    halves /= steps[:, None]
    whole = np.rint(halves, out=halves).astype(np.int16)
    low = whole.astype(np.int8)  # the lower byte, with its sign
    whole += np.int16(128)
    whole >>= np.int16(8)
    return Quantised(whole.astype(np.int8), low, steps)


def restore(quantised: Quantised) -> NDArray[np.float64]:
    """The vectors again, to a step."""
    whole = quantised.high * 256.0 + quantised.low
    vectors: NDArray[np.float64] = whole * quantised.steps.astype(np.float64)[:, None]
    return vectors


@dataclass(frozen=True, slots=True)
class _Block:
    """Codes of so many rows; a row without a vector has step 0."""

    high: Codes
    low: Codes
    steps: Column

    @classmethod
    def empty(cls, room: Room, rows: int, dimensions: int, held: int) -> _Block:
        high, low = (room.zeros(rows * dimensions, held).reshape(rows, dimensions) for _ in range(2))
        return cls(high, low, np.zeros(rows, dtype=np.float32))

    def copy_to(self, other: _Block) -> None:
        rows = len(self.steps)
        other.high[:rows], other.low[:rows], other.steps[:rows] = self.high, self.low, self.steps


@dataclass(frozen=True, slots=True, eq=False, weakref_slot=True)
class SlabPicture:
    """The slab as it stood: nothing that is written later shows in it. Reading it is for any thread.

    It copies nothing: whoever writes to a block that a living picture holds, writes to a copy of that block.
    """

    size: int
    _blocks: Sequence[_Block]

    @property
    def dimensions(self) -> int:
        """How many components a vector has."""
        return int(self._blocks[0].high.shape[1])

    def filled(self) -> NDArray[np.bool_]:
        """Whether each row has a vector."""
        filled: NDArray[np.bool_] = np.concatenate([block.steps for block in self._blocks])[: self.size] != 0
        return filled

    def holds(self, number: int, block: _Block) -> bool:
        """Whether this very block is part of the picture."""
        return number < len(self._blocks) and self._blocks[number] is block

    def scan(self, query: Quantised) -> Column:
        """The approximate cosine of each row with a query, shape (size,); 0 for rows without a vector."""
        found = np.empty((1, self.size), dtype=np.float32)
        start, factor = 0, np.float32(65536.0 * query.steps[0])
        for block in self._blocks:
            end = min(start + len(block.steps), self.size)
            integer_products(query.high, block.high[: end - start], found[:, start:end])
            found[0, start:end] *= block.steps[: end - start] * factor  # while it is in the processor's cache
            start = end
        cosines: Column = found[0]
        return cosines

    def error(self, query: Quantised) -> float:
        """How far an approximate cosine may be off: six times the standard deviation of what two roundings to 127
        steps make of rows whose largest component is like the query's."""
        return 0.02 * _STEPS * float(query.steps[0])

    def cosines(self, rows: Rows, query: Quantised) -> NDArray[np.float64]:
        """The exact cosines of some rows with a query, in their order; 0 for rows without a vector."""
        if len(rows) >= _SORTED_FROM and not (rows[1:] >= rows[:-1]).all():
            order = np.argsort(rows)
            cosines: NDArray[np.float64] = np.empty(len(rows))
            cosines[order] = self.cosines(rows[order], query)
            return cosines
        return compare(self.take(rows), query)

    def take(self, rows: Rows) -> Quantised:
        """The codes of some rows, in their order."""
        if len(self._blocks) == 1:
            (only,) = self._blocks
            return Quantised(only.high[rows], only.low[rows], only.steps[rows])
        dimensions = self._blocks[0].high.shape[1]
        high, low = np.empty((2, len(rows), dimensions), dtype=np.int8)
        steps = np.empty(len(rows), dtype=np.float32)
        for number, here in _by_block(rows):
            block, inside = self._blocks[number], rows[here] - number * BLOCK_ROWS
            if isinstance(here, slice):  # three times faster than by indices; all of them are in range
                block.high.take(inside, axis=0, out=high[here], mode="clip")
                block.low.take(inside, axis=0, out=low[here], mode="clip")
            else:
                high[here], low[here] = block.high[inside], block.low[inside]
            steps[here] = block.steps[inside]
        return Quantised(high, low, steps)


def compare(codes: Quantised, query: Quantised) -> NDArray[np.float64]:
    """The exact cosines of some codes with a query, shape (rows,); 0 for those without a vector."""
    bytes_asked = np.concatenate((query.high, query.low))
    # Whole numbers far below 2 ** 53, however they are added.
    whole = side_by_side(bytes_asked, codes.high) @ _OF_HIGH + side_by_side(bytes_asked, codes.low) @ _OF_LOW
    exact: NDArray[np.float64] = np.round(
        whole * (codes.steps.astype(np.float64) * float(query.steps[0])), COSINE_DECIMALS
    )
    return exact


def _by_block(rows: Rows) -> Iterator[tuple[int, slice | Rows]]:
    """The blocks that hold some of these rows, and which of them; slices when the rows ascend."""
    if len(rows) == 1:
        yield int(rows[0]) // BLOCK_ROWS, slice(0, 1)
        return
    numbers = rows // BLOCK_ROWS
    if (rows[1:] >= rows[:-1]).all():
        starts = [0, *(np.flatnonzero(numbers[1:] != numbers[:-1]) + 1).tolist(), len(rows)]
        for start, end in pairwise(starts):
            if start < end:
                yield int(numbers[start]), slice(start, end)
        return
    for number in np.flatnonzero(np.bincount(numbers)).tolist():
        yield number, np.flatnonzero(numbers == number)


class Slab:
    """Vectors by row. Taking one out overwrites it; putting one in costs its own size."""

    def __init__(self, dimensions: int, room: Room | None = None) -> None:
        self.dimensions = dimensions
        self._room = room or Room()
        self._blocks = [_Block.empty(self._room, _FIRST_ROWS, dimensions, 0)]
        self._pictures: weakref.WeakSet[SlabPicture] = weakref.WeakSet()
        # How often it was written to, and, once that is tracked, the last time of each row.
        self.written = 0
        self._tracks = False
        self._writes: dict[int, int] = {}

    @property
    def size_bytes(self) -> int:
        """What the codes take, in memory or in its file."""
        return sum(each.high.nbytes + each.low.nbytes + each.steps.nbytes for each in self._blocks)

    def put(self, rows: Rows, quantised: Quantised) -> None:
        """Give each of these rows its vector."""
        for number, here in _by_block(rows):
            block, _ = self._writable(int(rows[here].max()))
            inside = rows[here] - number * BLOCK_ROWS
            block.high[inside], block.low[inside] = quantised.high[here], quantised.low[here]
            block.steps[inside] = quantised.steps[here]
        self._note(rows.tolist())

    def clear(self, row: int) -> None:
        """Overwrite the vector of a row, if it has one."""
        if self.has(row):
            block, inside = self._writable(row)
            block.high[inside], block.low[inside], block.steps[inside] = 0, 0, 0
            self._note((row,))

    def changed(self, since: int) -> Rows:
        """The rows that were written to after the slab had been written to so often; ascending."""
        return np.array(sorted(row for row, at in self._writes.items() if at > since), dtype=np.intp)

    def track(self, since: int | None) -> None:
        """From now on writes are noted, those before `since` no more; None stops it."""
        self._tracks = since is not None
        self._writes = {row: at for row, at in self._writes.items() if since is not None and at > since}

    def has(self, row: int) -> bool:
        """Whether a row has a vector."""
        number, inside = divmod(row, BLOCK_ROWS)
        if number >= len(self._blocks) or inside >= len(self._blocks[number].steps):
            return False
        return bool(self._blocks[number].steps[inside])

    def read(self, row: int) -> Quantised:
        """The codes of a row that has a vector, as an array of one; a copy."""
        number, inside = divmod(row, BLOCK_ROWS)
        block, one = self._blocks[number], slice(inside, inside + 1)
        return Quantised(block.high[one].copy(), block.low[one].copy(), block.steps[one].copy())

    def filled(self, size: int) -> NDArray[np.bool_]:
        """Whether each of the rows 0 .. size - 1 has a vector."""
        filled = np.zeros(size, dtype=np.bool_)
        for number, block in enumerate(self._blocks):
            inside = filled[number * BLOCK_ROWS :][: len(block.steps)]
            inside[:] = block.steps[: len(inside)] != 0
        return filled

    def shrink(self, size: int) -> None:
        """Let go of the rows from this one on, as far as blocks can be shorter."""
        del self._blocks[max(1, -(-size // BLOCK_ROWS)) :]
        last, rows, wanted = self._blocks[-1], _FIRST_ROWS, size - (len(self._blocks) - 1) * BLOCK_ROWS
        while rows < wanted:
            rows *= 2
        if rows < len(last.steps):
            self._blocks[-1] = shorter = self._empty(rows)
            _Block(last.high[:rows], last.low[:rows], last.steps[:rows]).copy_to(shorter)

    def picture(self, size: int) -> SlabPicture:
        """Rows 0 .. size - 1 as they stand now."""
        self._reach(size)
        taken = SlabPicture(size, tuple(self._blocks))
        self._pictures.add(taken)
        return taken

    def check(self, vectors: NDArray[np.floating]) -> Quantised:
        """Vectors of shape (rows, dimensions) as they are kept. Raises `VectorRefused`."""
        if vectors.ndim != 2 or vectors.shape[1] != self.dimensions:
            raise VectorRefused(f"vectors have {vectors.shape[-1]} dimensions where others have {self.dimensions}")
        return quantise(vectors)

    def _note(self, rows: Iterable[int]) -> None:
        self.written += 1
        if self._tracks:
            self._writes.update(dict.fromkeys(rows, self.written))

    def _reach(self, size: int) -> None:
        """Have room for so many rows: blocks begin small and grow by doubling."""
        while len(self._blocks) * BLOCK_ROWS < size:
            self._grow_last(BLOCK_ROWS)
            self._blocks.append(self._empty(_FIRST_ROWS))
        self._grow_last(size - (len(self._blocks) - 1) * BLOCK_ROWS)

    def _empty(self, rows: int) -> _Block:
        return _Block.empty(self._room, rows, self.dimensions, self.size_bytes)

    def _grow_last(self, rows: int) -> None:
        last = self._blocks[-1]
        if len(last.steps) < rows:
            size = len(last.steps)
            while size < rows:
                size *= 2
            self._blocks[-1] = self._empty(size)
            last.copy_to(self._blocks[-1])

    def _writable(self, row: int) -> tuple[_Block, int]:
        """The block of a row and its place in it; a copy of the block if a picture that lives holds it."""
        self._reach(row + 1)
        number, inside = divmod(row, BLOCK_ROWS)
        block = self._blocks[number]
        if self._pictures and any(
            picture.size > number * BLOCK_ROWS and picture.holds(number, block) for picture in self._pictures
        ):
            copied = self._empty(len(block.steps))
            block.copy_to(copied)
            self._blocks[number] = block = copied
        return block, inside
