"""Compression that throws nodes away: the pruning baselines of paper A (A.1), on the vectors of one conversation.

Each keeps ceil((1 - ratio) n) nodes and gives them in ascending order; `vectors` (n, d) are unit rows.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from sklearn.cluster import KMeans
from sklearn.exceptions import ConvergenceWarning
from threadpoolctl import threadpool_limits

from projections.eventtree.parameters import whole_ceil
from projections.eventtree.spanning_tree import Floats, Integers
from projections.ports import Vectors

# DART: "we randomly select 2 % of tokens as pivot tokens".
PIVOT_SHARE: Final = 0.02
# StreamMeCo, published code: clusters a node among those of one clip, and the weight of entity importance.
CLUSTER_SHARE: Final = 0.05
IMPORTANCE_WEIGHT: Final = 0.1


def kept_count(nodes: int, ratio: float) -> int:
    """How many of so many nodes are left: ceil((1 - ratio) n), as the EventTree counts."""
    return whole_ceil((1 - ratio) * nodes)


def prune_randomly(nodes: int, ratio: float, seed: int) -> tuple[int, ...]:
    """Random Pruning: any nodes, each as likely as the others."""
    kept = np.random.default_rng(seed).permutation(nodes)[: kept_count(nodes, ratio)]
    return _ascending(kept)


def prune_by_kmeans(vectors: Vectors, ratio: float, seed: int) -> tuple[int, ...]:
    """KMeans: as many clusters as nodes are kept; of each the node closest to the centroid."""
    keep = kept_count(len(vectors), ratio)
    if not keep:
        return ()
    labels, centroids = cluster(vectors, keep, seed)
    far = np.linalg.norm(vectors.astype(np.float64) - centroids[labels], axis=1)
    nearest: dict[int, int] = {}
    # The closest first, and of equally close ones the earlier.
    for node in np.argsort(far, kind="stable").tolist():
        nearest.setdefault(int(labels[node]), node)
    return _ascending(np.array(_filled(list(nearest.values()), len(vectors), keep), dtype=np.int64))


def prune_by_pivots(vectors: Vectors, ratio: float, seed: int) -> tuple[int, ...]:
    """DART: a few random pivots, which stay, and of the others those least similar to them all together."""
    count, keep = len(vectors), kept_count(len(vectors), ratio)
    order = np.random.default_rng(seed).permutation(count)
    pivots = order[: min(whole_ceil(PIVOT_SHARE * count), keep)]
    exact = vectors.astype(np.float64)
    similar = (exact @ exact[pivots].T).sum(axis=1)
    similar[pivots] = -np.inf
    return _ascending(np.argsort(similar, kind="stable")[:keep])


def prune_by_graph(
    vectors: Vectors, sessions: Sequence[int], links: Sequence[int], ratio: float, seed: int
) -> tuple[int, ...]:
    """StreamMeCo: nodes that are linked to no entity by sampling, the others by importance and similarity.

    `links` counts the entities each node is linked to. In M3-Agent these are faces and voices, and a clip is
    what a session is here. Each branch keeps its share; its code rounds up in each clip, which would leave more
    nodes than any other method has, so the shares are cut to the same total here.
    """
    keep = kept_count(len(vectors), ratio)
    isolated = [node for node, degree in enumerate(links) if not degree]
    connected = [node for node, degree in enumerate(links) if degree]
    keep_isolated = min(round(keep * len(isolated) / max(len(links), 1)), len(isolated))
    clips: defaultdict[int, list[int]] = defaultdict(list)
    for node in isolated:
        clips[sessions[node]].append(node)
    kept: list[int] = []
    for inside, share in zip(
        clips.values(), shares([len(each) for each in clips.values()], keep_isolated), strict=True
    ):
        kept += _sample_clip(vectors, inside, share, seed)
    kept += _best_connected(vectors, connected, [links[node] for node in connected], keep - keep_isolated)
    return _ascending(np.array(kept, dtype=np.int64))


def cluster(vectors: Vectors, count: int, seed: int) -> tuple[Integers, Floats]:
    """KMeans: the cluster of each row and the centroids. One thread: see `projections.eventtree.partition`."""
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Fewer distinct rows than clusters is no fault here.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Any: scikit-learn ships no types.
        model: Any = KMeans
        model = model(n_clusters=count, n_init=1, random_state=seed).fit(vectors)
    return np.asarray(model.labels_, dtype=np.int64), np.asarray(model.cluster_centers_, dtype=np.float64)


def shares(sizes: Sequence[int], total: int) -> list[int]:
    """`total` places over groups of these sizes, in proportion; what is left goes to the largest remainders."""
    whole = sum(sizes)
    if not whole:
        return [0] * len(sizes)
    exact = [size * total / whole for size in sizes]
    given = [int(each) for each in exact]
    by_remainder = sorted(range(len(sizes)), key=lambda n: (given[n] - exact[n], n))
    for group in by_remainder[: total - sum(given)]:
        given[group] += 1
    return given


def _sample_clip(vectors: Vectors, nodes: list[int], keep: int, seed: int) -> list[int]:
    """Edge-free sampling: clusters of a clip, and in each the most central node, then ever the farthest."""
    if keep >= len(nodes):
        return nodes
    rows = vectors[nodes].astype(np.float64)
    labels, centroids = cluster(vectors[nodes], max(1, whole_ceil(CLUSTER_SHARE * len(nodes))), seed)
    kept: list[int] = []
    inside = [np.flatnonzero(labels == label) for label in range(len(centroids))]
    for label, share in enumerate(shares([len(each) for each in inside], keep)):
        members = inside[label]
        kept += [nodes[members[n]] for n in farthest_first(rows[members], centroids[label], share)]
    return kept


def farthest_first(rows: Floats, centre: Floats, count: int) -> list[int]:
    """The row nearest to the centre, then always the one whose nearest chosen row is farthest away."""
    if not count:
        return []
    chosen = [int(np.argmax(rows @ centre))]
    nearest = rows @ rows[chosen[0]]
    while len(chosen) < count:
        nearest[chosen] = np.inf
        chosen.append(int(np.argmin(nearest)))
        nearest = np.maximum(nearest, rows @ rows[chosen[-1]])
    return chosen


def _best_connected(vectors: Vectors, nodes: list[int], links: Sequence[int], keep: int) -> list[int]:
    """Edge-aware pruning: importance and unlikeness, each stretched to 0 .. 1; the higher stay."""
    if not nodes:
        return []
    rows = vectors[nodes].astype(np.float64)
    alike = rows @ rows.sum(axis=0)
    importance = _stretched(np.array(links, dtype=np.float64))
    scores = IMPORTANCE_WEIGHT * importance + (1 - IMPORTANCE_WEIGHT) * (1 - _stretched(alike))
    return [nodes[n] for n in np.argsort(-scores, kind="stable")[:keep].tolist()]


def _stretched(values: Floats) -> Floats:
    """To 0 .. 1; all 1 when they are all the same (as the published code does)."""
    low, high = float(values.min()), float(values.max())
    return (values - low) / (high - low) if high > low else np.ones_like(values)


def _filled(kept: list[int], nodes: int, keep: int) -> list[int]:
    """With equal vectors some clusters are empty: the earliest nodes left out take their places."""
    held = set(kept)
    return [*kept, *[node for node in range(nodes) if node not in held][: keep - len(kept)]]


def _ascending(nodes: Integers) -> tuple[int, ...]:
    return tuple(sorted(nodes.tolist()))
