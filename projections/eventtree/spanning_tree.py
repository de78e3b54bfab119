"""The tree of a unit: a maximum spanning tree of its complete cosine graph, and the scores that order merges.

Paper A, Eq. 5 and 6. Equal edges go by (smaller id, larger id), which orders all edges, so there is exactly
one tree whichever algorithm finds it and in whatever order the nodes come.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from projections.ports import Vectors

Floats: TypeAlias = NDArray[np.float64]
Integers: TypeAlias = NDArray[np.int64]

# Kruskal sorts n^2 / 2 edges, Prim goes row by row: as fast at 100 nodes, four times as fast at 1,000.
KRUSKAL_NODES_MAX: Final = 100

# BLAS sums a row and a matrix in different orders. In float64 the two differ by 1e-15, so on this grid an
# edge has one weight whoever computes it, and equal vectors tie. The float32 rows are good to 1e-7.
_STEPS_PER_UNIT: Final = 1e6


@dataclass(frozen=True, slots=True, eq=False)
class TreeEdges:
    """Edges of a tree or forest: `ends` (m, 2) are node indices, `weights` (m,) those of Eq. 5."""

    ends: Integers
    weights: Floats


def order_by_id(ids: Sequence[bytes]) -> Integers:
    """Node indices in ascending order of id; work done in this order does not depend on the order given.

    Raises `ValueError` when an id occurs twice: nothing could then break a tie.
    """
    if len(set(ids)) != len(ids):
        raise ValueError("two nodes have the same id")
    return np.array(sorted(range(len(ids)), key=ids.__getitem__), dtype=np.int64)


def on_grid(scores: Floats) -> Floats:
    """Scores to six decimals, so that equal means equal."""
    return np.rint(scores * _STEPS_PER_UNIT) / _STEPS_PER_UNIT


def edge_weights(cosines: Floats, gaps: Integers, time_bonus: float) -> Floats:
    """Eq. 5 plus our bonus for closeness in time: w_ij = cosine + bonus exp(-|position_i - position_j| / 2).

    `gaps` are differences of positions, their sign does not matter.
    """
    if not time_bonus:
        return on_grid(cosines)
    return on_grid(cosines + time_bonus * np.exp(np.abs(gaps) / -2.0))


def maximum_spanning_tree(
    vectors: Vectors, positions: Sequence[int], ids: Sequence[bytes], time_bonus: float = 0.0
) -> TreeEdges:
    """The maximum spanning tree of one unit (section 3.3).

    `vectors` (n, d) are unit rows. The n - 1 edges come in order of (smaller id, larger id), the end with the
    smaller id first. Raises `ValueError` when an id occurs twice.
    """
    order = order_by_id(ids)
    rows = np.asarray(vectors, dtype=np.float64)[order]
    places = np.asarray(positions, dtype=np.int64)[order]
    grow = kruskal if len(order) <= KRUSKAL_NODES_MAX else prim
    tree = grow(rows, places, time_bonus)
    return TreeEdges(order[tree.ends], tree.weights)


def kruskal(rows: Floats, places: Integers, time_bonus: float) -> TreeEdges:
    """The tree by sorting every edge; rows in ascending order of id. Time n^2 (d + log n), memory n^2."""
    count = len(rows)
    low, high = np.triu_indices(count, 1)
    weights = edge_weights((rows @ rows.T)[low, high], places[low] - places[high], time_bonus)
    root = list(range(count))

    def find(node: int) -> int:
        while root[node] != node:
            root[node] = root[root[node]]
            node = root[node]
        return node

    taken: list[int] = []
    # The pairs already come by (low, high), so a stable sort leaves ties in the order of ids.
    for edge in np.argsort(-weights, kind="stable").tolist():
        one, other = find(int(low[edge])), find(int(high[edge]))
        if one != other:
            root[other] = one
            taken.append(edge)
            if len(taken) == count - 1:
                break
    chosen = np.array(sorted(taken), dtype=np.int64)
    return TreeEdges(np.stack((low[chosen], high[chosen]), axis=1).astype(np.int64), weights[chosen])


def prim(rows: Floats, places: Integers, time_bonus: float) -> TreeEdges:
    """The same tree grown from one node; rows in ascending order of id. Time n^2 d, memory n."""
    count = len(rows)
    # For each node still outside: its best edge into the tree.
    best = np.full(count, -np.inf)
    parent = np.zeros(count, dtype=np.int64)
    outside = np.ones(count, dtype=np.bool_)
    ends = np.empty((max(count - 1, 0), 2), dtype=np.int64)
    weights = np.empty(max(count - 1, 0))
    newest = 0
    for step in range(count - 1):
        outside[newest] = False
        best[newest] = -np.inf
        offered = edge_weights(rows @ rows[newest], places - places[newest], time_bonus)
        # Of two equal edges at one outside node the one into the smaller id has the smaller (low, high).
        better = outside & ((offered > best) | ((offered == best) & (newest < parent)))
        best[better] = offered[better]
        parent[better] = newest
        chosen = np.flatnonzero(best == best.max())
        low, high = np.minimum(chosen, parent[chosen]), np.maximum(chosen, parent[chosen])
        first = int(np.lexsort((high, low))[0]) if len(chosen) > 1 else 0
        newest = int(chosen[first])
        ends[step] = low[first], high[first]
        weights[step] = best[newest]
    by_id = np.lexsort((ends[:, 1], ends[:, 0]))
    return TreeEdges(ends[by_id], weights[by_id])


def tree_degrees(edges: TreeEdges, nodes: int) -> Integers:
    """deg(.) of Eq. 6 for so many nodes."""
    return np.bincount(edges.ends.ravel(), minlength=nodes).astype(np.int64)


def rescore(edges: TreeEdges, degrees: Integers, eta: float) -> Floats:
    """Eq. 6: w'_ij = eta w_ij - (1 - eta)(deg i + deg j), one for each edge. `degrees` is indexed by node."""
    scores: Floats = eta * edges.weights - (1.0 - eta) * degrees[edges.ends].sum(axis=1)
    return scores
