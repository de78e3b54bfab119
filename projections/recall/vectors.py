"""The vectors of a node set: one a row, and those of groups, which are made of their members'.

Most are ours. Those of another system's space, which compare with no others, are kept by space.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np

from projections.recall.graph import CHURN_MAX, Graph
from projections.recall.rooms import Room, SearchOptions
from projections.recall.slab import Quantised, Slab, SlabPicture, VectorRefused, quantise, restore
from projections.recall.spaces import SpacePicture, SpaceVectors

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]


class NodeVectors:
    """Vectors by row. Those of members of a group are held until all are here, and then let go of.

    A group's vector is the normalised sum of its members', in the order of their ids, whoever came first. One
    whose members are of several spaces has none: it is found by words alone.
    """

    def __init__(self, options: SearchOptions | None = None) -> None:
        self._options = options or SearchOptions()
        self._slab: Slab | None = None
        # Members of each group, ascending, and the group of each.
        self._members: dict[bytes, tuple[bytes, ...]] = {}
        self._group_of: dict[bytes, bytes] = {}
        # By member, with the number of its space.
        self._held: dict[bytes, tuple[int, Quantised]] = {}
        # Groups whose members are of several spaces.
        self._mixed: set[bytes] = set()
        # Other spaces than ours, by number.
        self._others: dict[int, SpaceVectors] = {}
        self._graph: Graph | None = None
        self._changed: tuple[int, Rows] = -1, np.empty(0, dtype=np.intp)

    @property
    def size_bytes(self) -> int:
        """What the vectors take, in memory or in their file."""
        others = sum(each.size_bytes for each in self._others.values())
        return (self._slab.size_bytes if self._slab else 0) + others

    @property
    def members(self) -> Mapping[bytes, tuple[bytes, ...]]:
        """The members of each group."""
        return self._members

    def put(
        self, ids: Sequence[bytes], vectors: NDArray[np.floating[Any]], row_of: Mapping[bytes, int], space: int = 0
    ) -> None:
        """Unit vectors of nodes and of members of groups, in one space (0: ours); those of others are dropped.

        Raises `VectorRefused`, and then nothing is changed.
        """
        if vectors.ndim != 2 or len(vectors) != len(ids):
            raise VectorRefused("vectors come as one row for each id")
        if not len(ids):
            return
        quantised = self._check(vectors, space)
        places = [place for place, each in enumerate(ids) if each in row_of and each not in self._members]
        rows = np.array([row_of[ids[place]] for place in places], dtype=np.intp)
        self._put(rows, quantised if len(rows) == len(ids) else quantised.take(places), space)
        if not self._group_of:
            return
        grown = dict.fromkeys(self._group_of[each] for each in ids if each in self._group_of)
        for place, each in enumerate(ids):
            if each in self._group_of:
                self._held[each] = space, quantised.take([place])
        self._complete(grown, row_of)

    def begin_group(self, group: bytes, members: Iterable[bytes], row_of: Mapping[bytes, int]) -> None:
        """A group that has its row stands for these members, whose vectors may be held already."""
        self._members[group] = tuple(sorted(members))
        for member in self._members[group]:
            self._group_of[member] = group
        self._complete((group,), row_of)

    def end_group(self, group: bytes) -> None:
        """A group stands for nobody any more."""
        self._mixed.discard(group)
        for member in self._members.pop(group, ()):
            del self._group_of[member]

    def hold(self, member: bytes, row: int) -> None:
        """Keep the vector of a node, if it has one, while its row goes."""
        if self._slab is not None and self._slab.has(row):
            self._held[member] = 0, self._slab.read(row)
        for number, other in self._others.items():
            if other.has(row):
                self._held[member] = number, other.take(row)

    def give_back(self, member: bytes, row: int) -> None:
        """The node that was held has a row again."""
        held = self._held.pop(member, None)
        if held is not None:
            self._put(np.array([row]), held[1], held[0])

    def clear(self, row: int) -> None:
        """Overwrite the vector of a row."""
        if self._slab is not None:
            self._slab.clear(row)
        for other in self._others.values():
            other.clear(row)

    def move(self, row: int, gap: int) -> None:
        """The node of a row is in another one, which was free, from now on."""
        if self._slab is not None and self._slab.has(row):
            self._slab.put(np.array([gap]), self._slab.read(row))
        for other in self._others.values():
            if other.has(row):
                other.put([gap], other.take(row))
        self.clear(row)

    def shrink(self, size: int) -> None:
        """Let go of the rows from this one on, none of which has a vector."""
        if self._slab is not None:
            self._slab.shrink(size)

    def filled(self, size: int) -> NDArray[np.bool_]:
        """Whether each of the rows 0 .. size - 1 has a vector, in whichever space."""
        filled = self._slab.filled(size) if self._slab else np.zeros(size, dtype=np.bool_)
        for other in self._others.values():
            filled[other.rows()] = True
        return filled

    def wanted(self, row_of: Mapping[bytes, int]) -> list[bytes]:
        """Members whose vectors a group still waits for, by group."""
        open_groups = (each for each in self._members if each not in self._mixed and not self._has(row_of[each]))
        return [member for group in open_groups for member in self._members[group] if member not in self._held]

    def plan_graph(self, size: int) -> Callable[[], Graph] | None:
        """What builds a graph, in any thread, when one is due: the set is big enough and it has none that fits."""
        slab, least = self._slab, self._options.graph_from_nodes
        if slab is None or not least or size < least:
            return None
        if self._graph is not None and len(self.changed()) <= CHURN_MAX * size:
            return None
        slab.track(slab.written if self._graph is None else self._graph.written)
        return partial(Graph, slab.picture(size), slab.written)

    def use_graph(self, graph: Graph) -> None:
        """Ask this one from now on."""
        assert self._slab is not None
        self._graph = graph
        self._slab.track(graph.written)
        self._changed = -1, self._changed[1]

    @property
    def graph(self) -> Graph | None:
        """The graph that is asked, when there is one."""
        return self._graph

    def changed(self) -> Rows:
        """The rows that were written to since the graph was planned; ascending."""
        if self._slab is None or self._graph is None:
            return np.empty(0, dtype=np.intp)
        if self._changed[0] != self._slab.written:
            self._changed = self._slab.written, self._slab.changed(self._graph.written)
        return self._changed[1]

    def picture(self, size: int) -> SlabPicture | None:
        """The vectors of rows 0 .. size - 1 as they stand; None when there is none at all."""
        return self._slab.picture(size) if self._slab else None

    def ask(self, query: NDArray[np.floating[Any]]) -> Quantised:
        """A unit query of shape (dimensions,), as it is compared. Raises `VectorRefused`."""
        one = query.reshape(1, -1)
        return self._slab.check(one) if self._slab else quantise(one)

    def ask_others(self, queries: Mapping[int, NDArray[np.floating[Any]]]) -> tuple[SpacePicture, ...]:
        """The same in other spaces, by number, with their vectors; without those where there are none."""
        asked: list[SpacePicture] = []
        for number in sorted(queries.keys() & self._others.keys()):
            rows, picture = self._others[number].picture()
            if picture.size:
                query = self._others[number].check(queries[number].reshape(1, -1))
                asked.append(SpacePicture(picture, query, rows))
        return tuple(asked)

    def _check(self, vectors: NDArray[np.floating[Any]], space: int) -> Quantised:
        """Vectors as they are kept in a space, which begins with the first ones."""
        width = vectors.shape[1]
        if space:
            other = self._others.get(space) or SpaceVectors(width, self._options)
            quantised = other.check(vectors)
            self._others[space] = other
            return quantised
        slab = self._slab or Slab(width, Room(self._options))
        quantised = slab.check(vectors)
        self._slab = slab
        return quantised

    def _put(self, rows: Rows, quantised: Quantised, space: int) -> None:
        if space:
            self._others[space].put(rows.tolist(), quantised)
        elif self._slab is not None:
            self._slab.put(rows, quantised)

    def _has(self, row: int) -> bool:
        in_ours = self._slab is not None and self._slab.has(row)
        return in_ours or any(other.has(row) for other in self._others.values())

    def _complete(self, groups: Iterable[bytes], row_of: Mapping[bytes, int]) -> None:
        for group in groups:
            members = self._members[group]
            if self._has(row_of[group]) or not self._held.keys() >= set(members):
                continue
            if len({self._held[member][0] for member in members}) > 1:
                self._mixed.add(group)
                continue
            space = self._held[members[0]][0]
            total = np.sum([restore(self._held[member][1])[0] for member in members], axis=0)
            length = float(np.linalg.norm(total))
            if length:  # members that cancel each other out have no common direction
                self._put(np.array([row_of[group]]), quantise((total / length).reshape(1, -1)), space)
            for member in members:
                del self._held[member]
