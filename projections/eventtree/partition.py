"""Which unit a node belongs to: by what it says and by when it was said (paper A, Eq. 1-4).

The batch form, for bootstrap and explicit re-indexing. It takes seconds of processor time at 10,000 nodes:
run it in a thread, not on the loop.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats, Integers, on_grid, order_by_id
from projections.ports import Vectors

# Rows (or centroids) compared at once. The whole score matrix, N x alpha N, would be 4 GB at 100,000 nodes.
_BLOCK: Final = 64


@dataclass(frozen=True, slots=True)
class Partition:
    """`labels[j]` is the unit of node j, `centres[k]` the node in the centre of unit k.

    Units are numbered by the time of their centre nodes, so that a number does not depend on KMeans' order.
    """

    labels: tuple[int, ...]
    centres: tuple[int, ...]


def partition_nodes(
    vectors: Vectors, positions: Sequence[int], ids: Sequence[bytes], parameters: EventTreeParameters
) -> Partition:
    """Put every node into one of ceil(alpha N) units (Eq. 1-4).

    `vectors` (n, d) are unit rows, `positions` their places in time order. `ids` decide ties, so the order in
    which nodes are given changes nothing. Raises `ValueError` when lengths differ or an id occurs twice.
    """
    if not len(vectors) == len(positions) == len(ids):
        raise ValueError("vectors, positions and ids are of different lengths")
    if not ids:
        return Partition((), ())
    order = order_by_id(ids)
    rows = np.ascontiguousarray(np.asarray(vectors, dtype=np.float32)[order])
    places = np.asarray(positions, dtype=np.int64)[order]
    centroids = _centroids(rows, parameters.unit_count(len(rows)))
    centres = _centre_nodes(rows, centroids)
    centres = centres[np.lexsort((centres, places[centres]))]
    sorted_labels = _assign(rows, places, centres, parameters)
    labels = np.empty_like(sorted_labels)
    labels[order] = sorted_labels
    return Partition(tuple(labels.tolist()), tuple(order[centres].tolist()))


def _centroids(rows: NDArray[np.float32], units: int) -> Floats:
    """Eq. 1: the centres of KMeans, shape (units, d)."""
    # Imported here: loading scikit-learn takes a second, and a daemon that only adds nodes never needs it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # A second OpenMP thread on a loaded machine made the same call 11 times slower.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Fewer distinct rows than units is no fault: the next free nodes become centres.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Any: scikit-learn ships no types.
        model: Any = KMeans
        model = model(n_clusters=units, n_init=1, random_state=0).fit(rows)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def _centre_nodes(rows: NDArray[np.float32], centroids: Floats) -> Integers:
    """For each centroid the nearest node that is not a centre yet; equally near, the smaller id."""
    exact = rows.astype(np.float64)
    squares = np.einsum("ij,ij->i", exact, exact)
    free = np.ones(len(rows), dtype=np.bool_)
    centres = np.empty(len(centroids), dtype=np.int64)
    for start in range(0, len(centroids), _BLOCK):
        # |x - c|^2 without |c|^2, which is the same for every node.
        far = on_grid(squares - 2.0 * (centroids[start : start + _BLOCK] @ exact.T))
        for offset, distances in enumerate(far):
            nearest = int(np.argmin(np.where(free, distances, np.inf)))
            free[nearest] = False
            centres[start + offset] = nearest
    return centres


def _assign(
    rows: NDArray[np.float32], places: Integers, centres: Integers, parameters: EventTreeParameters
) -> Integers:
    """Eq. 2-4: each node joins the unit of the highest u, the lowest such unit; a centre stays in its own."""
    centre_rows = rows[centres].astype(np.float64).T
    centre_places = places[centres]
    labels = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        global_similarity = rows[block].astype(np.float64) @ centre_rows
        local_continuity = np.abs(places[block, None] - centre_places) <= parameters.window
        scores = parameters.beta * global_similarity + (1 - parameters.beta) * local_continuity
        labels[block] = np.argmax(on_grid(scores), axis=1)
    labels[centres] = np.arange(len(centres))
    return labels
