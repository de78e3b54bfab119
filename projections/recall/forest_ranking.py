"""Mode `forest`: from the scores of all rows to the leaves of the trees that a question recalls.

Pure functions over a View and columns of trees, in any thread. With a vector of the question a node is as near
as its summary's vector says, and trees are recalled by cosines alone; without one a node scores as its best leaf
does. Leaves are ranked by s, as without trees: words and meaning together.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from projections.recall.agpr import SCORE_DECIMALS
from projections.recall.forest_recall import BEAM, FACTS_MAX, Browse, RecalledTree, browse, keep_best, recall_trees
from projections.recall.leaf_scoring import score_leaves
from projections.recall.slab import compare

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.forest_columns import ForestColumns
    from projections.recall.forest_recall import Frontier
    from projections.recall.scoring import Leading, Scores
    from projections.recall.slab import Quantised, SlabPicture

    Column = NDArray[np.float64]
    Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class NodeVectors:
    """The vectors of the nodes of trees, by place: `rows` in `picture`; and the question's.

    Nodes without one, and leaves, have the last row, which is empty. `entries`: those of the entries side by side,
    since every question is compared with all of them.
    """

    picture: SlabPicture
    rows: Rows
    entries: Quantised
    query: Quantised

    def cosines(self, places: Rows) -> Column:
        """The cosine of each with the question; 0 where there is no vector."""
        return self.picture.cosines(self.rows[places], self.query)

    def entry_cosines(self) -> Column:
        """The cosine of each entry with the question; -inf where there is no vector."""
        cosines = compare(self.entries, self.query)
        cosines[self.entries.steps == 0] = -np.inf
        return cosines


@dataclass(frozen=True, slots=True, eq=False)
class Trees:
    """The trees that a question may recall: `allowed` by entry. Without `vectors` words decide.

    `kinds`: for each kind of leaf the rows (ascending) that are of it and may answer; the best of each kind recall
    trees. `loose`: what stands in no tree (yet) may answer, too.
    """

    columns: ForestColumns
    allowed: NDArray[np.bool_]
    vectors: NodeVectors | None
    kinds: Sequence[Rows]
    loose: bool = True
    beam: int = BEAM
    # Entries whose trees are recalled by themselves, as many as of all others; None: all are recalled together.
    apart: NDArray[np.bool_] | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ForestFound:
    """The leading leaves, and how they were found.

    `trees`: best first, and of how many leaves each was seen down to them; `levels`: that were ranked. `leaves`
    and `loose` count the rows that were reached, and those of them in no tree.
    """

    leading: Leading
    trees: list[RecalledTree]
    reached: list[int] = field(default_factory=list[int])
    levels: int = 0
    leaves: int = 0
    loose: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class RecalledForest:
    """Which trees a question recalls, and what browsing goes by.

    `by_row`: s of each row, -inf for one that may not answer, and for one more, which stands for none. `below`: by
    words, and by place, what is best below. `facts`: the places that trees were recalled by.
    """

    trees: list[RecalledTree]
    by_row: NDArray[np.float32]
    below: Column | None
    facts: Rows
    columns: ForestColumns

    def score(self, places: Rows) -> Column:
        """s of leaves; of nodes, by words, what is best below."""
        return _rounded(self.by_row[self.columns.rows[places]]) if self.below is None else self.below[places]


def recall_forest(scores: Scores, trees: Trees) -> RecalledForest:
    """Recall by roots and by facts."""
    columns = trees.columns
    by_row = np.full(scores.view.size + 1, -np.inf, dtype=np.float32)
    by_row[scores.rows] = scores.rough[scores.rows]
    below = None
    if trees.vectors is None:
        below = columns.best_below(_rounded(by_row[columns.rows]))
        roots = below[columns.entries]
    else:
        roots = trees.vectors.entry_cosines()
    facts, near = _find_facts(scores, trees)
    groups = (
        (trees.allowed,) if trees.apart is None else (trees.allowed & trees.apart, trees.allowed & ~trees.apart)
    )
    return RecalledForest(recall_trees(columns, groups, roots, facts, near), by_row, below, facts, columns)


def rank_forest(scores: Scores, trees: Trees, count: int) -> ForestFound:
    """The `count` best leaves of the trees that a question recalls."""
    recalled, columns = recall_forest(scores, trees), trees.columns

    def rank(frontier: Frontier) -> Rows:
        values = recalled.score(frontier.places)
        if trees.vectors is not None:
            inner = np.flatnonzero(~frontier.is_leaf)
            values[inner] = trees.vectors.cosines(frontier.places[inner])
        kept = keep_best(frontier, values, trees.beam)
        return kept[np.isfinite(values[kept])]

    way = browse(columns, [each.place for each in recalled.trees], rank)
    return gather_leaves(scores, trees, recalled, way, count)


def gather_leaves(scores: Scores, trees: Trees, recalled: RecalledForest, way: Browse, count: int) -> ForestFound:
    """The `count` best of what a way down reached, of the facts that recalled its trees, and of what has none."""
    columns = trees.columns
    places, of = way.reached()
    entered = np.zeros(len(columns.entries), dtype=np.bool_)
    entered[columns.entry_of[[each.place for each in recalled.trees]]] = True
    led = recalled.facts[entered[columns.entry_of[recalled.facts]]]
    rows = columns.rows[np.concatenate((places, led))]
    rows = rows[rows >= 0]
    rows = rows[np.isfinite(recalled.by_row[rows])]
    loose = _find_loose(scores, columns, trees.beam) if trees.loose else rows[:0]
    found = np.zeros(scores.view.size, dtype=np.bool_)  # many times as fast as np.union1d
    found[rows] = found[loose] = True
    rows = np.flatnonzero(found)
    reached = np.bincount(of, minlength=len(recalled.trees)).tolist()
    leading = score_leaves(scores, rows, count)
    return ForestFound(leading, recalled.trees, reached, way.levels, rows.size, loose.size)


def _find_facts(scores: Scores, trees: Trees) -> tuple[Rows, Column]:
    """Where the best rows of each kind stand as leaves, and how near each is on the scale of roots."""
    columns = trees.columns
    score_of = np.full(scores.view.size, -np.inf)
    best = np.concatenate([scores.rows[:0], *(scores.lead_nearly(FACTS_MAX, rows) for rows in trees.kinds)])
    near = scores.rough[best].astype(np.float64) if trees.vectors is None else scores.view.cosines(best)
    score_of[best] = 0.0 if near is None else np.round(near, SCORE_DECIMALS)
    values = score_of[columns.leaf_rows]
    led = np.flatnonzero(values > -np.inf)
    return columns.leaves[led], values[led]


def _rounded(scores: NDArray[np.float32]) -> Column:
    wide: Column = scores.astype(np.float64)
    return np.round(wide, SCORE_DECIMALS)


def _find_loose(scores: Scores, columns: ForestColumns, count: int) -> Rows:
    """The best rows that stand in no tree: what was said just now, and what is about nothing that has one."""
    placed = np.zeros(scores.view.size, dtype=np.bool_)
    placed[columns.leaf_rows] = True
    loose = scores.rows[~placed[scores.rows]]
    return np.sort(scores.lead_nearly(count, loose))
