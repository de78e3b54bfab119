"""Mode `roots`: the summaries of the trees that a question recalls, without a way down (paper B). Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from projections.recall.forest_ranking import recall_forest

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.memtree.items import Item
    from projections.recall.forest_ranking import Trees
    from projections.recall.forest_recall import RecalledTree
    from projections.recall.scoring import Scores

    Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class RootFound:
    """A root, or an interval of a large tree, that a question recalls, and the rows of the leaves below it."""

    tree: RecalledTree
    item: Item
    rows: Rows


def find_roots(scores: Scores, trees: Trees, *, is_filtered: bool) -> list[RootFound]:
    """The roots of the trees that a question recalls, best first.

    A summary tells of every leaf below it: where some rows may not answer, only those all of whose leaves may.
    """
    recalled, columns = recall_forest(scores, trees), trees.columns
    found: list[RootFound] = []
    for tree in recalled.trees:
        rows = columns.rows[columns.leaves_below(tree.place)]
        if not is_filtered or ((rows >= 0).all() and np.isfinite(recalled.by_row[rows]).all()):
            found.append(RootFound(tree, columns.item(tree.place), rows[rows >= 0]))
    return found
