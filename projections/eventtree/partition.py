"""Which unit a node belongs to: by what it says and by when it was said (paper A, Eq. 1-4).

The batch form, for bootstrap and explicit re-indexing. It takes seconds of processor time at 10,000 nodes and half
a minute at 100,000: run it in a thread, not on the loop.
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

# Rows compared at once: 5 MB of scores at 100,000 nodes, where all of them, N x alpha N, would be 2 GB.
_BLOCK: Final = 256
# Up to so many nodes KMeans runs over all of them, as published. It costs the square of their number: 1 s at 4,000
# nodes, 4 to 9 s at 10,000, a quarter of an hour at 100,000. More are first parted into regions.
KMEANS_NODES_MAX: Final = 10_000
_REGION_NODES: Final = 2_000
# The centres of regions are found among so many nodes, evenly picked.
_SAMPLE_NODES_MAX: Final = 10_000
# Within regions. To choose the first centres well takes four fifths of the time and gains nothing there.
_ROUNDS_MAX: Final = 30
# Scores within this of the best in float32 are compared again in float64, where equal ones tie.
_MARGIN: Final = 1e-5


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
    units = parameters.unit_count(len(rows))
    if len(rows) <= KMEANS_NODES_MAX or parameters.preset == "paper":
        centres = _centre_nodes(rows, _centroids(rows, units))
    else:
        centres = _centres_by_region(rows, units)
    centres = centres[np.lexsort((centres, places[centres]))]
    sorted_labels = _assign(rows, places, centres, parameters)
    labels = np.empty_like(sorted_labels)
    labels[order] = sorted_labels
    return Partition(tuple(labels.tolist()), tuple(order[centres].tolist()))


def _centroids(rows: NDArray[np.float32], units: int, *, cheap: bool = False) -> Floats:
    """Eq. 1: the centres of KMeans, shape (units, d); cheap ones begin anywhere and end soon."""
    # Imported here: loading scikit-learn takes a second, and a daemon that only adds nodes never needs it.
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    # A second OpenMP thread on a loaded machine made the same call 11 times slower.
    with threadpool_limits(limits=1), warnings.catch_warnings():
        # Fewer distinct rows than units is no fault: the next free nodes become centres.
        warnings.simplefilter("ignore", ConvergenceWarning)
        # Any: scikit-learn ships no types.
        model: Any = KMeans
        chosen = {"init": "random", "max_iter": _ROUNDS_MAX} if cheap else {}
        model = model(n_clusters=units, n_init=1, random_state=0, **chosen).fit(rows)
    return np.asarray(model.cluster_centers_, dtype=np.float64)


def _centres_by_region(rows: NDArray[np.float32], units: int) -> Integers:
    """Centre nodes of KMeans within regions, which themselves are KMeans clusters of a sample.

    Ours, for what KMeans cannot do in time: N times the nodes of a region. Nearly half of all nodes change their
    unit in Eq. 4 anyway, so cheap centres are enough. A region has its share of the units.
    """
    count = -(-len(rows) // _REGION_NODES)
    sample = np.linspace(0, len(rows) - 1, min(len(rows), _SAMPLE_NODES_MAX)).astype(np.int64)
    middles = _centroids(rows[sample], count, cheap=True)
    squares = np.einsum("ij,ij->i", middles, middles)
    nearest = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        nearest[block] = np.argmin(on_grid(squares - 2.0 * (rows[block].astype(np.float64) @ middles.T)), axis=1)
    centres: list[Integers] = []
    made = done = 0
    for region in range(count):
        inside = np.flatnonzero(nearest == region)
        done += len(inside)
        # Rounded over all regions so far, so that none loses its share and they add up.
        wanted = min(round(units * done / len(rows)) - made, len(inside))
        if wanted > 0:
            made += wanted
            centres.append(inside[_centre_nodes(rows[inside], _centroids(rows[inside], wanted, cheap=True))])
    return np.concatenate(centres)


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
    beta, exact = parameters.beta, rows.astype(np.float64)
    centre_rows = np.ascontiguousarray(rows[centres].T)
    centre_places = places[centres]
    labels = np.empty(len(rows), dtype=np.int64)
    for start in range(0, len(rows), _BLOCK):
        block = slice(start, start + _BLOCK)
        local = (1 - beta) * (np.abs(places[block, None] - centre_places) <= parameters.window)
        scores = beta * (rows[block] @ centre_rows) + local
        labels[block] = np.argmax(scores, axis=1)
        close = scores >= scores.max(axis=1, keepdims=True) - _MARGIN
        for offset in np.flatnonzero(close.sum(axis=1) > 1).tolist():
            some = np.flatnonzero(close[offset])
            cosines = exact[centres[some]] @ exact[start + offset]
            labels[start + offset] = some[np.argmax(on_grid(beta * cosines + local[offset, some]))]
    labels[centres] = np.arange(len(centres))
    return labels
