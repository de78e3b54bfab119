"""Vectors of other systems' spaces beside ours: kept by space, and their cosines brought on one scale.

Each space has a slab of its own, with places for its own rows alone: a few memories of 3,072 numbers must not cost
such a row for every node there is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from projections.recall.rooms import Room, SearchOptions
from projections.recall.slab import COSINE_DECIMALS, Quantised, Slab, SlabPicture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]
    Column = NDArray[np.float64]

# What lies closer together says nothing: two memories that are about as far off are not at both ends of a scale.
_DEVIATION_MIN: Final = 0.02


class SpaceVectors:
    """The vectors of one space, by row of the node set."""

    def __init__(self, width: int, options: SearchOptions) -> None:
        self._slab = Slab(width, Room(options))
        self._places: dict[int, int] = {}
        self._rows: list[int] = []  # -1: free
        self._free: list[int] = []
        self._row_of_place: Rows | None = None  # the same as an array; None after a change

    @property
    def width(self) -> int:
        """How many numbers a vector has."""
        return self._slab.dimensions

    @property
    def size_bytes(self) -> int:
        """About what they take."""
        return self._slab.size_bytes + 100 * len(self._rows)

    def check(self, vectors: NDArray[np.floating[Any]]) -> Quantised:
        """Vectors of shape (rows, width) as they are kept. Raises `VectorRefused`."""
        return self._slab.check(vectors)

    def put(self, rows: Sequence[int], quantised: Quantised) -> None:
        """Give each of these rows its vector."""
        places = np.array([self._place(row) for row in rows], dtype=np.intp)
        self._row_of_place = None
        if len(places):
            self._slab.put(places, quantised)

    def clear(self, row: int) -> None:
        """Overwrite the vector of a row, if it has one."""
        place = self._places.pop(row, None)
        if place is not None:
            self._slab.clear(place)
            self._rows[place] = -1
            self._free.append(place)
            self._row_of_place = None

    def has(self, row: int) -> bool:
        """Whether a row has a vector."""
        return row in self._places

    def rows(self) -> Rows:
        """The rows that have a vector, in no order."""
        return np.array(list(self._places), dtype=np.intp)

    def take(self, row: int) -> Quantised:
        """The vector of a row that has one."""
        place = self._places[row]
        return self._slab.picture(place + 1).take(np.array([place]))

    def picture(self) -> tuple[Rows, SlabPicture]:
        """The row of each place (-1: of none), and the vectors by place, as they stand."""
        if self._row_of_place is None:
            self._row_of_place = np.array(self._rows, dtype=np.intp)
        return self._row_of_place, self._slab.picture(len(self._rows))

    def _place(self, row: int) -> int:
        place = self._places.get(row)
        if place is None:
            place = self._free.pop() if self._free else len(self._rows)
            if place == len(self._rows):
                self._rows.append(row)
            self._rows[place] = row
            self._places[row] = place
        return place


@dataclass(frozen=True, slots=True, eq=False)
class SpacePicture:
    """The vectors of one space as they stood and a question's vector there; `rows` None: a place is its row."""

    slab: SlabPicture
    query: Quantised
    rows: Rows | None = None


@dataclass(frozen=True, slots=True)
class _Scale:
    """What a space's cosines are like: their mean, and how far they are from it."""

    mean: float
    deviation: float

    @classmethod
    def over(cls, cosines: NDArray[np.float32]) -> _Scale:
        if not cosines.size:
            return cls(0.0, 1.0)
        # Rounded: the last bits of a sum depend on the machine.
        mean = round(float(cosines.mean(dtype=np.float64)), COSINE_DECIMALS)
        deviation = round(float(cosines.std(dtype=np.float64)), COSINE_DECIMALS)
        return cls(mean, max(deviation, _DEVIATION_MIN))


@dataclass(frozen=True, slots=True, eq=False)
class Blend:
    """Nearness to a question in several spaces on one scale: how far a cosine stands out of those of its space.

    Models differ in what they give to everything (.1 or .8), so cosines of two of them cannot be compared; that
    one node is three deviations above what its space has for this question, and another one a half, can. A node
    without a vector in any of them is at the mean, 0: words alone decide on it, and nothing sinks it.
    `near`: approximate, shape (size,); `error`: how far it is off.
    """

    near: NDArray[np.float32]
    error: float
    _parts: tuple[tuple[SpacePicture, _Scale], ...]

    @classmethod
    def over(cls, spaces: Sequence[SpacePicture], size: int, own: Rows) -> Blend:
        """For a node set of this size; each space's scale is that of those of its rows in `own`."""
        allowed = np.zeros(size, dtype=np.bool_)
        allowed[own] = True
        near = np.zeros(size, dtype=np.float32)
        parts: list[tuple[SpacePicture, _Scale]] = []
        error = 0.0
        for space in spaces:
            places = np.flatnonzero(space.slab.filled())
            rows = places if space.rows is None else space.rows[places]
            cosines = space.slab.scan(space.query)[places]
            scale = _Scale.over(cosines[allowed[rows]])
            near[rows] = (cosines - np.float32(scale.mean)) / np.float32(scale.deviation)
            error = max(error, space.slab.error(space.query) / scale.deviation)
            parts.append((space, scale))
        return cls(near, error, tuple(parts))

    def measure(self, rows: Rows) -> tuple[Column, Column]:
        """The exact cosines of some rows, 0 where there is no vector, and the same on the common scale."""
        cosines, near = np.zeros(len(rows)), np.zeros(len(rows))
        for space, scale in self._parts:
            place_of = np.full(len(self.near), -1, dtype=np.intp)
            filled = np.flatnonzero(space.slab.filled())
            place_of[filled if space.rows is None else space.rows[filled]] = filled
            at = np.flatnonzero(place_of[rows] >= 0)
            cosines[at] = space.slab.cosines(place_of[rows[at]], space.query)
            near[at] = (cosines[at] - scale.mean) / scale.deviation
        return cosines, near
