"""The EventTree with one of its parts taken out (paper A, 5.3 and D.1-D.2), on the nodes of one conversation.

Plain and literal: every edge is looked at again after each merge, which also makes it a check of `plan_groups`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats, Integers, edge_weights
from projections.ports import Vectors
from tests.quality.merging_baselines import Groups, in_order, unit_rows

# A.3: "a window size of 5. If the average embedding similarity between two adjacent windows exceeds 0.5 ..."
WINDOW_NODES: Final = 5
WINDOW_COSINE: Final = 0.5


def units_of_windows(
    vectors: Vectors, positions: Sequence[int], size: int = WINDOW_NODES, threshold: float = WINDOW_COSINE
) -> tuple[int, ...]:
    """Without g: nodes in time order in windows; neighbours that are alike are one unit, else a new one begins.

    Two windows are alike when the mean cosine of a node of the one and a node of the other is above `threshold`.
    """
    order = sorted(range(len(positions)), key=lambda node: (positions[node], node))
    windows = [order[at : at + size] for at in range(0, len(order), size)]
    means = [vectors[window].astype(np.float64).mean(axis=0) for window in windows]
    # The mean of all cosines of two windows is the product of their mean vectors.
    begins = [True, *(float(one @ other) <= threshold for one, other in pairwise(means))]
    labels = [0] * len(order)
    for window, unit in zip(windows, np.cumsum(begins).tolist(), strict=False):
        for node in window:
            labels[node] = unit - 1
    return tuple(labels)


@dataclass(eq=False, slots=True)
class Forest:
    """Nodes that are being merged along edges inside their units; a merged node keeps the number of one of two.

    `sums` (n, d) are sums of member vectors, `ends` (m, 2) the edges left, `weights` (m,) those of Eq. 5.
    """

    sums: Floats
    places: Integers
    members: list[list[int]]
    ends: Integers
    weights: Floats
    time_bonus: float

    def counts(self) -> Integers:
        """Facts a node; 0 for one that was merged into another."""
        return np.array([len(inside) for inside in self.members], dtype=np.int64)

    def degrees(self) -> Integers:
        """deg(.) of Eq. 6."""
        return np.bincount(self.ends.ravel(), minlength=len(self.members)).astype(np.int64)

    def merge(self, edge: int) -> None:
        """Make one node of the ends of an edge, which takes the later time (Eq. 8), and weigh its edges anew."""
        one, other = self.ends[edge].tolist()
        self.sums[one] += self.sums[other]
        self.places[one] = max(self.places[one], self.places[other])
        self.members[one] += self.members[other]
        self.members[other] = []
        self.ends[self.ends == other] = one
        left = self.ends[:, 0] != self.ends[:, 1]
        self.ends, self.weights = self.ends[left], self.weights[left]
        touched = np.flatnonzero((self.ends == one).any(axis=1))
        self.weights[touched] = self._weigh(self.ends[touched])

    def _weigh(self, ends: Integers) -> Floats:
        rows = [unit_rows(self.sums[ends[:, side]]) for side in (0, 1)]
        gaps = self.places[ends[:, 0]] - self.places[ends[:, 1]]
        return edge_weights(np.einsum("ij,ij->i", *rows), gaps, self.time_bonus)


# The edge to take next, of those that may be taken.
Pick: TypeAlias = Callable[[Forest, NDArray[np.int64]], int]


def units_of(labels: Sequence[int]) -> list[tuple[int, ...]]:
    """The nodes of each unit, in order of the labels."""
    inside: defaultdict[int, list[int]] = defaultdict(list)
    for node, label in enumerate(labels):
        inside[label].append(node)
    return [tuple(inside[label]) for label in sorted(inside)]


def merge_along(
    vectors: Vectors,
    positions: Sequence[int],
    labels: Sequence[int],
    parameters: EventTreeParameters,
    edges_of: Callable[[Floats, tuple[int, ...]], Iterable[tuple[int, int]]],
    pick: Pick,
) -> Groups:
    """Merge the edge that `pick` names of those `edges_of` lays in each unit, until ratio or cap end it.

    `edges_of` gets all pairs' weights (Eq. 5) and the nodes of a unit. Caps, bonus and budget are as given.
    """
    rows, places = vectors.astype(np.float64), np.array(positions, dtype=np.int64)
    weights = edge_weights(rows @ rows.T, places[:, None] - places, parameters.time_bonus)
    units = units_of(labels)
    pools = units if parameters.budget == "unit" else [tuple(range(len(labels)))]
    forest = Forest(rows.copy(), places, [[node] for node in range(len(rows))], *_nothing(), parameters.time_bonus)
    for pool in pools:
        inside = [unit for unit in units if unit[0] in pool]
        forest.ends = np.array([each for unit in inside for each in edges_of(weights, unit)], dtype=np.int64)
        forest.ends = forest.ends.reshape(-1, 2)
        forest.weights = weights[forest.ends[:, 0], forest.ends[:, 1]]
        for _ in range(len(pool) - parameters.live_target(len(pool))):
            allowed = _allowed(forest, parameters.member_cap)
            if not len(allowed):
                break
            forest.merge(pick(forest, allowed))
    return in_order(inside for inside in forest.members if inside)


def _nothing() -> tuple[Integers, Floats]:
    return np.empty((0, 2), dtype=np.int64), np.empty(0)


def _allowed(forest: Forest, cap: int | None) -> NDArray[np.int64]:
    if cap is None:
        return np.arange(len(forest.ends))
    return np.flatnonzero(forest.counts()[forest.ends].sum(axis=1) <= cap)


def all_pairs(_weights: Floats, unit: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """Every two nodes of a unit: no tree."""
    return combinations(unit, 2)


def minimum_tree(weights: Floats, unit: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """The minimum spanning tree of a unit: the maximum one of the weights turned round."""
    return maximum_tree(-weights, unit)


def maximum_tree(weights: Floats, unit: tuple[int, ...]) -> Iterable[tuple[int, int]]:
    """The maximum spanning tree of a unit by Kruskal's algorithm, equal edges by (smaller, larger) number."""
    pairs = sorted(combinations(unit, 2), key=lambda pair: (-weights[pair], pair))
    root = {node: node for node in unit}
    for one, other in pairs:
        if root[one] != root[other]:
            gone = root[other]
            root = {node: root[one] if at == gone else at for node, at in root.items()}
            yield one, other


def pick_best(eta: float, sign: float = 1.0) -> Pick:
    """The highest w' of Eq. 6; with sign -1 of weights turned round. Equal ones by the place of the edge."""

    def pick(forest: Forest, allowed: NDArray[np.int64]) -> int:
        hubs = forest.degrees()[forest.ends[allowed]].sum(axis=1)
        scores = eta * sign * forest.weights[allowed] - (1 - eta) * hubs
        return int(allowed[int(scores.argmax())])

    return pick


def pick_randomly(seed: int) -> Pick:
    """Any edge, each as likely as the others."""
    random = np.random.default_rng(seed)

    def pick(_forest: Forest, allowed: NDArray[np.int64]) -> int:
        return int(random.choice(allowed))

    return pick
