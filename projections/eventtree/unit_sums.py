"""Where the units of one user are: what a new node is compared with, a row a unit instead of a row a node."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from events.eventtree import UnitId
from events.memory import FactId
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats, Integers, on_grid
from projections.ports import Vectors

AnyVector: TypeAlias = NDArray[np.floating[Any]]

# Rows are scanned in float32, and what comes that close to the best is compared in float64, so that equals tie.
_MARGIN: Final = 1e-5
# Rows that the first unit makes room for; then there are twice as many whenever they are full.
_ROWS_MIN: Final = 16


@dataclass(frozen=True, slots=True, eq=False)
class UnitNode:
    """A fact of a unit, or a group as a whole.

    `vector` (d,) is the sum of the unit vectors of its facts: of a fact its own, of a group not normalised, so
    that merging moves no unit. `position` is the place of its source turn in time order, of a group the last.
    """

    facts: tuple[FactId, ...]
    vector: AnyVector
    position: int


class UnitSums:
    """The sum of the vectors of each unit and the position of its centre node, the one nearest to that sum.

    What is held of a unit follows from its nodes alone, whichever way they came there. It holds a float32 row a
    unit and nothing of the nodes: 8 MB for 5,000 units (100,000 facts) of 384 dimensions.
    """

    def __init__(self) -> None:
        self._rows: Vectors = np.empty((0, 0), dtype=np.float32)
        # 1 / length of each sum; 0 of one that cancelled out, which is similar to nothing.
        self._scales: Floats = np.empty(0)
        self._places: Integers = np.empty(0, dtype=np.int64)
        self._ids: list[UnitId] = []
        self._row_of: dict[UnitId, int] = {}

    def __len__(self) -> int:
        """Units."""
        return len(self._ids)

    def __contains__(self, unit: object) -> bool:
        return unit in self._row_of

    def __iter__(self) -> Iterator[UnitId]:
        """The units, in no order that means anything."""
        return iter(self._ids)

    @property
    def size_bytes(self) -> int:
        """What the rows take."""
        return self._rows.nbytes + self._scales.nbytes + self._places.nbytes

    def put(self, unit: UnitId, nodes: Sequence[UnitNode]) -> None:
        """These are the nodes of a unit now, in time order; without any, there is no such unit."""
        if not nodes:
            self._drop(unit)
            return
        total = sum_up(nodes)
        row = self._row_of.get(unit)
        if row is None:
            row = self._row_of[unit] = len(self._ids)
            self._ids.append(unit)
            self._make_room(len(total))
        self._rows[row] = total
        length = float(np.linalg.norm(total))
        self._scales[row] = 1 / length if length else 0.0
        self._places[row] = nodes[centre_of(nodes)].position

    def copy(self) -> UnitSums:
        """The same units, to try something with."""
        other, count = UnitSums(), len(self._ids)
        other._rows = np.empty_like(self._rows)
        other._rows[:count] = self._rows[:count]
        other._scales, other._places = self._scales.copy(), self._places.copy()
        other._ids, other._row_of = self._ids.copy(), self._row_of.copy()
        return other

    def best_unit(
        self, node: UnitNode, parameters: EventTreeParameters, cosines: Vectors | None = None
    ) -> UnitId | None:
        """The unit of the highest u (Eq. 2-4); None when there is no unit.

        Equal ones go by the position of their centres, then by id. `cosines` are what `compare` gives, if known.
        """
        if not self._ids:
            return None
        beta, count, vector = parameters.beta, len(self._ids), direction_of(node.vector)
        if cosines is None:
            cosines = self.compare(vector.astype(np.float32))
        local = (1 - beta) * (np.abs(self._places[:count] - node.position) <= parameters.window)
        rough = beta * cosines + local
        close = np.flatnonzero(rough >= rough.max() - _MARGIN)
        scores = on_grid(beta * self._cosines(close, vector) + local[close])
        return self._ids[self._first(close, scores, 1)[0]]

    def compare(self, directions: Vectors, unit: UnitId | None = None) -> Vectors:
        """Cosines with all units as they are iterated, or with one, as exact as float32 is.

        `directions` are one unit vector (d,) or columns (d, n); so many columns come back.
        """
        rows = slice(len(self._ids)) if unit is None else slice(self._row_of[unit], self._row_of[unit] + 1)
        dots: Vectors = self._rows[rows] @ directions
        scales = self._scales[rows].astype(np.float32)
        return dots * (scales if directions.ndim == 1 else scales[:, None])

    def scores(
        self, nodes: Sequence[UnitNode], units: Sequence[UnitId], parameters: EventTreeParameters
    ) -> Floats:
        """u (Eq. 3) of each node in each of the units, shape (nodes, units)."""
        rows = np.array([self._row_of[unit] for unit in units], dtype=np.int64)
        beta = parameters.beta
        middles = (self._rows[rows].astype(np.float64).T) * self._scales[rows]
        positions = np.array([node.position for node in nodes], dtype=np.int64)[:, None]
        local = np.abs(positions - self._places[rows]) <= parameters.window
        return on_grid(beta * (directions_of(nodes) @ middles) + (1 - beta) * local)

    def nearest_units(self, unit: UnitId, count: int) -> tuple[UnitId, ...]:
        """So many other units whose sums are most alike, nearest first; equal ones as in `best_unit`."""
        own = self._row_of[unit]
        count = min(count, len(self._ids) - 1)
        if count < 1:
            return ()
        vector = direction_of(self._rows[own])
        rough = self.compare(vector.astype(np.float32))
        rough[own] = -np.inf
        close = np.flatnonzero(rough >= np.partition(rough, -count)[-count] - _MARGIN)
        return tuple(self._ids[row] for row in self._first(close, on_grid(self._cosines(close, vector)), count))

    def _cosines(self, rows: Integers, vector: Floats) -> Floats:
        """Cosines of some units in float64, each by itself, so that they do not depend on the others."""
        dots = [float(np.dot(self._rows[row].astype(np.float64), vector)) for row in rows.tolist()]
        return np.array(dots) * self._scales[rows]

    def _first(self, rows: Integers, scores: Floats, count: int) -> list[int]:
        ranked = sorted(
            zip((-scores).tolist(), self._places[rows].tolist(), rows.tolist(), strict=True),
            key=lambda entry: (entry[0], entry[1], self._ids[entry[2]]),
        )
        return [row for _, _, row in ranked[:count]]

    def _make_room(self, dimensions: int) -> None:
        if len(self._ids) <= len(self._rows):
            return
        rows = max(_ROWS_MIN, 2 * len(self._rows))
        grown = np.zeros((rows, dimensions), dtype=np.float32)
        grown[: len(self._rows)] = self._rows.reshape(len(self._rows), dimensions)
        self._rows = grown
        self._scales = np.resize(self._scales, rows)
        self._places = np.resize(self._places, rows)

    def _drop(self, unit: UnitId) -> None:
        """The last row takes the place of the one that is gone."""
        row = self._row_of.pop(unit, None)
        if row is None:
            return
        last = self._ids.pop()
        if last != unit:
            self._ids[row], self._row_of[last] = last, row
            end = len(self._ids)
            self._rows[row], self._scales[row] = self._rows[end], self._scales[end]
            self._places[row] = self._places[end]


class Newcomers:
    """Nodes to come, compared with all units at once, and again with each unit that changes while they come.

    One matrix product reads the sums once, not once a node: a quarter of the time at 5,000 units.
    """

    def __init__(self, nodes: Sequence[UnitNode], sums: UnitSums) -> None:
        self._nodes = nodes
        self._sums = sums
        self._directions: Vectors = np.ascontiguousarray(directions_of(nodes).T, dtype=np.float32)
        self._row_of = {unit: row for row, unit in enumerate(sums)}
        self._cosines: Vectors = (
            sums.compare(self._directions) if len(sums) else np.empty((0, len(nodes)), dtype=np.float32)
        )

    def note(self, unit: UnitId) -> None:
        """A unit is new or has changed."""
        cosines = self._sums.compare(self._directions, unit)
        row = self._row_of.setdefault(unit, len(self._row_of))
        if row == len(self._cosines):
            self._cosines = np.concatenate((self._cosines, cosines))
        self._cosines[row] = cosines[0]

    def best_unit(self, index: int, parameters: EventTreeParameters) -> UnitId | None:
        """That of `UnitSums`."""
        return self._sums.best_unit(self._nodes[index], parameters, self._cosines[:, index])


def direction_of(vector: AnyVector) -> Floats:
    """The unit vector of that direction; nothing of nothing."""
    exact = vector.astype(np.float64)
    length = float(np.sqrt(np.dot(exact, exact)))
    return exact / length if length else exact


def sum_up(nodes: Sequence[UnitNode]) -> Vectors:
    """The sum of the vectors of all facts of these nodes."""
    total: Floats = stack(nodes).sum(axis=0)
    return total.astype(np.float32)


def centre_of(nodes: Sequence[UnitNode]) -> int:
    """Which node is nearest to the sum of all, of equally near ones the first."""
    return int(np.argmax(on_grid(directions_of(nodes) @ direction_of(sum_up(nodes)))))


def stack(nodes: Sequence[UnitNode]) -> Floats:
    """The vectors of nodes as rows."""
    return np.array([node.vector for node in nodes], dtype=np.float64)


def directions_of(nodes: Sequence[UnitNode]) -> Floats:
    """The unit vectors of nodes as rows; nothing of nothing."""
    rows = stack(nodes)
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    return rows / np.where(lengths > 0, lengths, 1.0)
