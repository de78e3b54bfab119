"""The paper's progressive merging word for word (Eq. 5-8): preset "paper", and oracle of `merging.plan_groups`."""

from __future__ import annotations

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from projections.eventtree.merging import Nodes, UnitNodes, unit_trees
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats, TreeEdges, edge_weights, rescore, tree_degrees

# Eq. 8's E(F(c_i, c_j)): the unit vector of two nodes fused, the earlier one first. Nodes are numbered as
# they are given, from 0; the node made by merge k (from 0) is n + k.
FuseNodes: TypeAlias = Callable[[int, int], NDArray[np.floating[Any]]]


@dataclass(frozen=True, slots=True)
class PairwiseMerges:
    """The literal run: the pairs as they were taken, numbered as for `FuseNodes`, the earlier node first.

    `positions[k]` is the time of the node made by merge k, the later of the two (Eq. 8). `groups` and `cut`
    are as in `MergePlan`.
    """

    pairs: tuple[tuple[int, int], ...]
    positions: tuple[int, ...]
    groups: tuple[tuple[int, ...], ...]
    cut: float


def merge_pairwise(nodes: UnitNodes, parameters: EventTreeParameters, fuse: FuseNodes) -> PairwiseMerges:
    """Eq. 5-8 to the letter: score every edge, fuse the best pair, contract, begin again, up to the ratio.

    One call of `fuse` a merge, each after the one before; time is the square of the edges of all units. For
    reproduction (preset "paper": no caps, no bonus, a quota per unit) and as oracle, which is why it follows
    caps, bonus and budget when the parameters have them.
    """
    steps = step_pairwise(nodes, parameters)
    try:
        pair = next(steps)
        while True:
            pair = steps.send(fuse(*pair))
    except StopIteration as done:
        merged: PairwiseMerges = done.value
        return merged


def step_pairwise(
    nodes: UnitNodes, parameters: EventTreeParameters
) -> Generator[tuple[int, int], NDArray[np.floating[Any]], PairwiseMerges]:
    """`merge_pairwise` merge by merge, for a `fuse` that takes its time.

    Yields the pair to fuse next, is sent the unit vector of the fused node, and returns what was done. Each step
    takes a scan of all edges: run it in a thread.
    """
    run = Nodes(nodes, parameters)
    edges = unit_trees(nodes, parameters)
    rows: list[Floats] = [row.astype(np.float64) for row in nodes.vectors]
    pairs: list[tuple[int, int]] = []
    while (best := _best_edge(edges, run, parameters.eta)) is not None:
        pair = run.by_time(*edges.ends[best].tolist())
        rows.append(np.asarray((yield pair), dtype=np.float64))
        merged = run.join(*pair)
        ends = np.delete(edges.ends, best, axis=0)
        weights = np.delete(edges.weights, best)
        ends[np.isin(ends, pair)] = merged
        for edge in np.flatnonzero((ends == merged).any(axis=1)).tolist():
            one, other = int(ends[edge, 0]), int(ends[edge, 1])
            cosine = np.array([np.dot(rows[one], rows[other])])
            gap = np.array([run.positions[one] - run.positions[other]], dtype=np.int64)
            weights[edge] = edge_weights(cosine, gap, parameters.time_bonus)[0]
        edges = TreeEdges(ends, weights)
        pairs.append(pair)
    return PairwiseMerges(
        tuple(pairs), tuple(run.positions[len(nodes.ids) :]), tuple(run.groups().values()), run.cut()
    )


def _best_edge(edges: TreeEdges, run: Nodes, eta: float) -> int | None:
    """Eq. 7 over every edge that may still be taken; equal scores go by (smaller id, larger id)."""
    scores = rescore(edges, tree_degrees(edges, len(run.ranks)), eta).tolist()
    allowed = [
        (-score, *run.by_id(one, other), edge)
        for edge, (score, (one, other)) in enumerate(zip(scores, edges.ends.tolist(), strict=True))
        if run.may_join(one, other)
    ]
    return min(allowed)[-1] if allowed else None
