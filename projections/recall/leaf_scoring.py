"""How the leaves that a way down the trees reached are ranked. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.recall.scoring import Leading, Scores


def score_leaves(scores: Scores, rows: NDArray[np.intp], count: int) -> Leading:
    """The `count` best of these rows (ascending, each may answer) by s, on the scale of all rows.

    So a leaf scores what it would score without trees, and answers of several modes can be compared.
    """
    return scores.best(count, rows)
