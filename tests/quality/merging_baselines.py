"""Compression that makes one node of several without trees: merging baselines of paper A (A.1), and neighbours.

Each gives every node that is left as the ascending indices of its members, in order of the first. `vectors` (n, d)
are unit rows in the order in which the nodes came; a merged node's vector is the normalised sum of its members'.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from projections.eventtree.spanning_tree import Floats
from projections.ports import Vectors
from tests.quality.pruning import kept_count, shares

Groups: TypeAlias = list[tuple[int, ...]]


def merge_randomly(nodes: int, ratio: float, seed: int) -> Groups:
    """Random Merging: as many random nodes as shall be left; each of the others joins a random one of them."""
    random = np.random.default_rng(seed)
    order = random.permutation(nodes).tolist()
    keep = kept_count(nodes, ratio)
    joined: dict[int, list[int]] = {node: [node] for node in order[:keep]}
    for node, target in zip(order[keep:], random.integers(0, max(keep, 1), nodes - keep).tolist(), strict=True):
        joined[order[target]].append(node)
    return in_order(joined.values())


def merge_halves(vectors: Vectors, ratio: float) -> Groups:
    """ToMe: every other node into the most similar of those between, the most similar pairs first.

    A step removes at most half of the nodes; with less left to remove than that, it takes the best pairs only.
    A node goes on where its node of the second half stood. Nothing in it is random.
    """
    keep = kept_count(len(vectors), ratio)
    groups: Groups = [(node,) for node in range(len(vectors))]
    sums = vectors.astype(np.float64)
    while len(groups) > keep:
        first, second = range(0, len(groups), 2), range(1, len(groups), 2)
        rows = unit_rows(sums)
        cosines = rows[first] @ rows[second].T
        best = cosines.argmax(axis=1)
        order = np.argsort(-cosines[np.arange(len(first)), best], kind="stable").tolist()
        # Of an odd number the first half has one more; one node alone has nobody to join.
        taken = order[: min(len(groups) - keep, len(groups) // 2)]
        into = {first[n]: second[int(best[n])] for n in taken}
        for gone, stays in into.items():
            sums[stays] += sums[gone]
            groups[stays] += groups[gone]
        left = [place for place in range(len(groups)) if place not in into]
        groups, sums = [groups[place] for place in left], sums[left]
    return in_order(groups)


def merge_neighbours(vectors: Vectors, sessions: Sequence[int], ratio: float, cap: int) -> Groups:
    """Adjacency: of all neighbours in a session the most similar become one, if they are at most `cap` together.

    Neighbours of a merged node are those of its ends, and its similarity is that of its sum. Stops where the cap
    allows nothing more, so the cut may be less than asked for. Nothing in it is random.
    """
    count = len(vectors)
    # One place between every two nodes: are they one already, and how similar are the runs on both sides.
    joined = np.zeros(max(count - 1, 0), dtype=np.bool_)
    cosines = np.array([_similarity(vectors, *_runs(joined, gap), sessions, cap) for gap in range(count - 1)])
    for _ in range(count - kept_count(count, ratio)):
        best = int(cosines.argmax()) if len(cosines) else 0
        if not len(cosines) or cosines[best] == -np.inf:
            break
        joined[best], cosines[best] = True, -np.inf
        begin, _, end = _runs(joined, best)
        for gap in (begin - 1, end - 1):
            if 0 <= gap < count - 1:
                cosines[gap] = _similarity(vectors, *_runs(joined, gap), sessions, cap)
    ends = [0, *(np.flatnonzero(~joined) + 1).tolist(), count]
    return [tuple(range(begin, end)) for begin, end in pairwise(ends) if end > begin]


def _runs(joined: NDArray[np.bool_], gap: int) -> tuple[int, int, int]:
    """Where the run before the gap begins, where it ends and the next one begins, and where that one ends."""
    begin, end = gap, gap + 2
    while begin and joined[begin - 1]:
        begin -= 1
    while end <= len(joined) and joined[end - 1]:
        end += 1
    return begin, gap + 1, end


def _similarity(vectors: Vectors, begin: int, middle: int, end: int, sessions: Sequence[int], cap: int) -> float:
    """The cosine of two runs; -inf when they may not become one."""
    if sessions[middle - 1] != sessions[middle] or end - begin > cap:
        return -np.inf
    runs = (vectors[begin:middle], vectors[middle:end])
    one, other = unit_rows(np.stack([run.sum(axis=0, dtype=np.float64) for run in runs]))
    return float(one @ other)


def merge_evenly(sessions: Sequence[int], ratio: float) -> Groups:
    """Adjacency without vectors: each session cut into runs as even as can be, to the very ratio.

    Every session keeps its share and at least one node. Nothing in it is random.
    """
    inside: defaultdict[int, list[int]] = defaultdict(list)
    for node, session in enumerate(sessions):
        inside[session].append(node)
    kept = shares([len(nodes) for nodes in inside.values()], kept_count(len(sessions), ratio))
    return in_order(
        tuple(run.tolist())
        for nodes, share in zip(inside.values(), kept, strict=True)
        for run in np.array_split(nodes, max(share, 1))
    )


def unit_rows(sums: Floats) -> Floats:
    """Each row at length 1; a row of zeros stays one."""
    lengths = np.linalg.norm(sums, axis=1, keepdims=True)
    rows: Floats = np.divide(sums, lengths, out=np.zeros_like(sums), where=lengths > 0)
    return rows


def in_order(groups: Iterable[Iterable[int]]) -> Groups:
    """Members ascending, groups by their first."""
    return sorted(tuple(sorted(group)) for group in groups)
