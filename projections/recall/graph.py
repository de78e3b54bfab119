"""A graph over very many vectors (usearch's HNSW): it proposes rows to score exactly, and decides nothing.

It is built in one thread, since with several other neighbours are found every time and some rows never
(unum-cloud/usearch#735), and never saved or changed: a saved one keeps vectors that were removed, and one that
is changed finds less and less (performance.md 1d). Rows written since it was built are compared one by one; when
they are a fifth, it is built anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.slab import Quantised, SlabPicture, restore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]

# performance.md 1b: .988 of the top 40 at 100,000 rows.
_CONNECTIVITY: Final = 32
_EXPANSION: Final = 256
_BATCH_ROWS: Final = 1024
# Share of the rows that may have been written since the graph was built.
CHURN_MAX: Final = 0.2
# Rows whose cosines tell how low cosines are.
_SAMPLE_ROWS: Final = 4096
# Rows proposed by vectors, and by words, for each that is asked for.
_PROPOSED: Final = 6


class Graph:
    """The rows of a picture of a slab that have a vector."""

    def __init__(self, picture: SlabPicture, written: int) -> None:
        """Takes a millisecond a row: in a thread of its own. `written`: how often the slab had been written to."""
        # Loaded when the first one is built: most stores never have one.
        from usearch.index import Index

        self.written = written
        self.size = picture.size
        self._index = Index(
            ndim=picture.dimensions,
            metric="ip",
            dtype="bf16",
            connectivity=_CONNECTIVITY,
            expansion_add=_EXPANSION,
            expansion_search=_EXPANSION,
        )
        for start in range(0, picture.size, _BATCH_ROWS):
            rows = np.arange(start, min(start + _BATCH_ROWS, picture.size))
            taken = picture.take(rows)
            rows = rows[taken.steps > 0]
            vectors = restore(taken)[taken.steps > 0].astype(np.float32)
            if rows.size:
                self._index.add(rows.astype(np.uint64), vectors, threads=1)

    def propose(self, query: Quantised, count: int) -> Rows:
        """About the `count` nearest rows, in no order."""
        if not len(self._index):
            return np.empty(0, dtype=np.intp)
        found = self._index.search(restore(query)[0].astype(np.float32), min(count, len(self._index)), threads=1)
        rows: Rows = np.asarray(found.keys).astype(np.intp)
        return rows


def propose_cosines(
    graph: Graph,
    picture: SlabPicture,
    changed: Rows,
    query: Quantised,
    lexical: NDArray[np.float64],
    count: int,
) -> NDArray[np.float32]:
    """The cosine of each row that has a chance, and the lowest of a sample for all others, shape (size,).

    A chance have what the graph proposes, what was written since, and what words speak for.
    """
    near = graph.propose(query, _PROPOSED * count)
    spoken = np.flatnonzero(lexical)
    if spoken.size > _PROPOSED * count:
        spoken = spoken[np.argpartition(-lexical[spoken], _PROPOSED * count)[: _PROPOSED * count]]
    rows = np.unique(np.concatenate((near[near < picture.size], changed[changed < picture.size], spoken)))
    sample = picture.cosines(np.arange(min(_SAMPLE_ROWS, picture.size)), query)
    cosines = np.full(picture.size, sample.min(), dtype=np.float32)
    cosines[rows] = picture.cosines(rows, query)
    return cosines
