"""Forest recall: which trees a question recalls, and the way down from their roots (paper B, Eq. B7).

Pure. A tree is recalled by its root or by a fact in it, and scores by the better of the two. Browsing goes down
all recalled trees at once, a level a step: `frontier` is what a ranker looks at, `advance` what it lets go on. So
one call of a ranker is enough for a level of all trees; who ranks (vectors, words, a model) is up to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import isfinite
from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np

from projections.recall.agpr import SCORE_DECIMALS

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.forest_columns import ForestColumns

    Column = NDArray[np.float64]
    Places = NDArray[np.intp]

# Trees that are recalled by their roots, and as many by facts in them; the best facts that recall any.
TREES_MAX: Final = 10
FACTS_MAX: Final = 30
# How many children of a tree go on from one level to the next, nodes and leaves each; light: fewer.
BEAM: Final = 10
LIGHT_BEAM: Final = 3


@dataclass(frozen=True, slots=True)
class RecalledTree:
    """A tree that a question recalls: the place where it is entered, and how near its root and its best fact are.

    Both are on one scale, whichever of the two recalled it; None for a root without a vector, and where none of
    the best facts is in it.
    """

    place: int
    tree: int
    by_root: float | None
    by_fact: float | None

    @property
    def score(self) -> float:
        """The better of the two."""
        return max(each for each in (self.by_root, self.by_fact) if each is not None)


@dataclass(frozen=True, slots=True, eq=False)
class Frontier:
    """What may go on: items by their places in the columns, tree by tree, and which recalled tree each is in."""

    places: Places
    trees: Places
    is_leaf: NDArray[np.bool_]


# Which of a frontier go on, as positions in it; leaves among them are reached, nodes are opened.
Ranker: TypeAlias = Callable[[Frontier], "Places"]


class Browse:
    """The way down the recalled trees, a level of all of them at a time.

    `while not browse.done: browse.advance(rank(browse.frontier))`, with a call of a model for `rank` or without.
    """

    def __init__(self, columns: ForestColumns, entered: Sequence[int]) -> None:
        """`entered`: the place where each recalled tree is entered."""
        self._columns = columns
        self._reached: list[tuple[Places, Places]] = []
        self.levels = 0
        places = np.array(entered, dtype=np.intp)
        self.frontier = self._go_on(places, np.arange(len(places)))

    @property
    def done(self) -> bool:
        """Whether nothing is left to rank."""
        return not self.frontier.places.size

    def advance(self, kept: Places) -> None:
        """Let these positions of the frontier go on."""
        kept = np.sort(kept)
        self.levels += 1
        self.frontier = self._go_on(self.frontier.places[kept], self.frontier.trees[kept])

    def reached(self) -> tuple[Places, Places]:
        """The places of the leaves that were reached, and the recalled tree of each; some maybe more than once."""
        if not self._reached:
            return np.zeros(0, dtype=np.intp), np.zeros(0, dtype=np.intp)
        places, trees = zip(*self._reached, strict=True)
        return np.concatenate(places), np.concatenate(trees)

    def _go_on(self, places: Places, trees: Places) -> Frontier:
        leaf = self._columns.is_leaf(places)
        self._reached.append((places[leaf], trees[leaf]))
        children, of = self._columns.children(places[~leaf])
        return Frontier(children, trees[~leaf][of], self._columns.is_leaf(children))


def browse(columns: ForestColumns, entered: Sequence[int], rank: Ranker) -> Browse:
    """Go down to the leaves with a ranker that answers at once."""
    way = Browse(columns, entered)
    while not way.done:
        way.advance(rank(way.frontier))
    return way


def keep_best(frontier: Frontier, scores: Column, beam: int) -> Places:
    """The positions of each tree's best `beam` nodes and best `beam` leaves; between equal ones the earlier.

    Nodes and leaves apart: a summary and what somebody said are not on one scale, and a wide node has no more of
    a chance than a narrow one.
    """
    group = 2 * frontier.trees + frontier.is_leaf
    order = np.lexsort((frontier.places, -np.round(scores, SCORE_DECIMALS), group))
    of = group[order]
    kept = np.ones(order.size, dtype=np.bool_)
    kept[beam:] = of[beam:] != of[:-beam]  # else so many of its group stand before it
    best: Places = order[kept]
    return best


def recall_trees(
    columns: ForestColumns,
    groups: Sequence[NDArray[np.bool_]],
    root_scores: Column,
    facts: Places,
    near: Column,
) -> list[RecalledTree]:
    """The trees of a question, best first: of each group the best by their roots, and the best by facts in them.

    `groups` (no two share an entry) and `root_scores` by entry, -inf for one that has no score. `facts`: places of
    leaves and what each scores (`near`), on the scale of roots.
    """
    best_fact = np.full(len(columns.entries), -np.inf)
    np.maximum.at(best_fact, columns.entry_of[facts], near)
    best = [entry for group in groups for by in (root_scores, best_fact) for entry in _best(by, group, TREES_MAX)]
    chosen = np.array(list(dict.fromkeys(best)), dtype=np.intp)
    places = columns.entries[chosen]
    order = np.lexsort((places, -np.maximum(root_scores, best_fact)[chosen]))
    chosen = chosen[order]
    known = zip(
        places[order].tolist(),
        columns.entry_trees[chosen].tolist(),
        root_scores[chosen].tolist(),
        best_fact[chosen].tolist(),
        strict=True,
    )
    return [
        RecalledTree(place, tree, root if isfinite(root) else None, fact if isfinite(fact) else None)
        for place, tree, root, fact in known
    ]


def _best(scores: Column, group: NDArray[np.bool_], count: int) -> list[int]:
    among = np.flatnonzero(group & np.isfinite(scores))
    rounded = np.round(scores[among], SCORE_DECIMALS)
    best: list[int] = among[np.lexsort((among, -rounded))[:count]].tolist()
    return best
