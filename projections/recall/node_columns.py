"""What can be read of the rows of a node set, column by column."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from projections.recall.rows import KINDS, NodeKind, NodeRows, Outline, SearchNode

Rows = NDArray[np.intp]


class NodeColumns:
    """The rows of live nodes, and what is known of them."""

    def __init__(self) -> None:
        self._rows = NodeRows()

    def __len__(self) -> int:
        return len(self._rows.row_of)

    @property
    def size(self) -> int:
        """How many rows there are, free ones included: the length of every column."""
        return self._rows.columns.size

    @property
    def row_of(self) -> dict[bytes, int]:
        """The row of each live node, by id."""
        return self._rows.row_of

    def node(self, row: int) -> SearchNode:
        """The live node of a row. KeyError if there is none."""
        return self._rows.nodes((row,))[0]

    def nodes_at(self, rows: Iterable[int]) -> list[SearchNode]:
        """The live nodes of these rows, faster than one by one. KeyError if one of them is not live."""
        return self._rows.nodes(rows)

    def ids(self, rows: Rows) -> list[bytes]:
        """The ids of these live rows, in their order."""
        return self._rows.ids(rows)

    def outlines(self, rows: Rows) -> list[Outline]:
        """What decides whether an answer shows these live rows."""
        return self._rows.outlines(rows)

    def shown(self, rows: Rows, hidden: frozenset[Reference]) -> NDArray[np.bool_]:
        """Whether each of these live rows is from no session in `hidden`."""
        return self._rows.shown(rows, hidden)

    def live_rows(self, hidden: frozenset[Reference] = frozenset()) -> Rows:
        """The rows that may answer: live, and from no session in `hidden`; ascending."""
        return self._rows.live(hidden)

    def said_at(self, rows: Rows) -> NDArray[np.int64]:
        """When the source turns of these rows were said."""
        said_at: NDArray[np.int64] = self._rows.columns["said_at"][rows]
        return said_at

    def time_start(self, rows: Rows) -> NDArray[np.int64]:
        """Where the time begins that these rows are about."""
        starts: NDArray[np.int64] = self._rows.columns["time_start"][rows]
        return starts

    def time_end(self, rows: Rows) -> NDArray[np.int64]:
        """Where the time ends that these rows are about; the instant itself belongs to it."""
        ends: NDArray[np.int64] = self._rows.columns["time_end"][rows]
        return ends

    def valid_end(self, rows: Rows) -> NDArray[np.int64]:
        """The last instant at which what these rows say holds; for all but states their `time_end`."""
        until: NDArray[np.int64] = self._rows.columns["holds_until"][rows]
        return np.where(until, until - 1, self.time_end(rows))

    def of_kinds(self, rows: Rows, kinds: Collection[NodeKind]) -> NDArray[np.bool_]:
        """Whether each of these rows is of one of the kinds."""
        found, chosen = self._rows.columns["kind"][rows], np.zeros(len(rows), dtype=np.bool_)
        for number, kind in enumerate(KINDS):
            if kind in kinds:  # many times as fast as a look into a table for each row
                chosen |= found == number
        return chosen

    def neighbours(self) -> tuple[Rows, Rows]:
        """Rows of the previous and the next chunk of the session for every row, -1 where there is none."""
        previous, following = (self._rows.columns[name].astype(np.intp) for name in ("previous", "next"))
        return previous, following

    def ties(self, rows: Rows) -> NDArray[np.bytes_]:
        """Ids of these rows: between equal scores the smaller one comes first."""
        ids: NDArray[np.bytes_] = self._rows.columns["id"][rows]
        return ids

    def count_by_space(self) -> dict[int, int]:
        """How many live nodes there are in each space, by its number."""
        live = self._rows.live(frozenset())
        counts = np.bincount(self._rows.columns["space"][live])
        return {number: count for number, count in enumerate(counts.tolist()) if count}
