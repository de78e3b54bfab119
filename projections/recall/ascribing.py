"""Whose doings a question asks about, and whose the memories tell: the same words may be said of somebody else.

Words alone do not tell who did what. A fact names whom it is about; where facts about others hold more of the
question than facts about whom it names, it likely mistakes one for the other. Pure.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from projections.recall.rows import NodeKind

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.recall.nodes import NodeSet
    from projections.recall.term_scores import Holding

    Rows = NDArray[np.intp]

# Of a question's candidates the first so many are looked at; more of them tell it less well.
CANDIDATES: Final = 25
# What more of all rows hold is no doing: the names of those who talk, mostly.
HELD_SHARE_MAX: Final = 1 / 8


def ascribe(nodes: NodeSet, holding: Holding, rows: Rows, named: NDArray[np.float32] | None) -> float:
    """How much more of a question the best fact holds that names all whom it names than the best that names none.

    From -1 to 1; 0 when it names nobody. `rows`: the candidates, best first; `named`: of each row of all, above 0
    where it names one of them, and most where it names all.
    """
    if named is None or not rows.size:
        return 0.0
    facts = rows[:CANDIDATES]
    facts = facts[nodes.of_kinds(facts, (NodeKind.FACT, NodeKind.GROUP))]
    if not facts.size:
        return 0.0
    shares = holding.shares(facts.tolist(), HELD_SHARE_MAX * len(nodes))
    most, theirs, others = float(named.max()), 0.0, 0.0
    for share, of_fact in zip(shares, named[facts].tolist(), strict=True):
        if of_fact == most:
            theirs = max(theirs, share)
        elif not of_fact:
            others = max(others, share)
    return theirs - others
