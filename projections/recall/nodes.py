"""The node set of one user: what a query searches, as columns that grow by rows (design 3.4).

Chunks (the open one of each session included), and facts or the groups that replaced them. A row holds
structure only; its text stays in the log.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from events.time import Instant, to_datetime
from projections.ports import Vectors
from projections.recall.lexical import LexicalIndex
from projections.recall.tokens import terms
from projections.texts import TextRef


class NodeKind(StrEnum):
    """What a node is, as an answer says it."""

    CHUNK = "chunk"
    FACT = "fact"
    GROUP = "group"


@dataclass(frozen=True, slots=True)
class SearchNode:
    """One row: where its text stands, which turns it carries, when they were said and what time it is about."""

    id: bytes
    kind: NodeKind
    ref: TextRef
    turns: tuple[int, ...]
    sessions: frozenset[Reference]
    said_at: Instant
    time_start: Instant
    time_end: Instant
    length: int


class NodeSet:
    """Rows of live nodes; removing one takes its words and its vector with it."""

    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.nodes: list[SearchNode | None] = []
        self.row_of: dict[bytes, int] = {}
        self._said_at = np.zeros(64, dtype=np.int64)
        self._live = np.zeros(64, dtype=np.bool_)
        self._previous = np.full(64, -1, dtype=np.intp)
        self._next = np.full(64, -1, dtype=np.intp)
        self._last_chunk: dict[Reference, int] = {}
        self._vectors: dict[bytes, NDArray[np.float32]] = {}

    def __len__(self) -> int:
        return len(self.row_of)

    def add(self, node: SearchNode, text: str) -> None:
        """Index a node under its text, which is not kept."""
        row = len(self.nodes)
        self.nodes.append(node)
        self.row_of[node.id] = row
        if row >= len(self._live):
            self._grow()
        self._said_at[row] = node.said_at
        self._live[row] = True
        self.lexical.add(row, terms(indexed_text(text, node.said_at)))
        if node.kind is NodeKind.CHUNK:
            self._link_chunk(row, node)

    def replace(self, node: SearchNode) -> None:
        """Other sources for a node whose text and time stay as they are."""
        self.nodes[self.row_of[node.id]] = node

    def remove(self, node_id: bytes) -> None:
        """Take a node out of the search."""
        row = self.row_of.pop(node_id)
        node = self.nodes[row]
        self.nodes[row] = None
        self._live[row] = False
        self.lexical.remove(row)
        self._vectors.pop(node_id, None)
        if node is not None and node.kind is NodeKind.CHUNK:
            self._unlink_chunk(row, node)

    def set_vectors(self, ids: Sequence[bytes], vectors: Vectors) -> None:
        """Unit vectors of nodes, shape (len(ids), dimensions); of nodes that are gone they are dropped."""
        self._vectors.update((each, row) for each, row in zip(ids, vectors, strict=True) if each in self.row_of)

    def without_vectors(self) -> list[SearchNode]:
        """The live nodes that have no vector yet, in row order."""
        return [node for node in self.nodes if node is not None and node.id not in self._vectors]

    def live_rows(self, hidden: frozenset[Reference] = frozenset()) -> NDArray[np.intp]:
        """The rows that may answer: live, and from no session in `hidden`."""
        rows = np.flatnonzero(self._live[: len(self.nodes)])
        if not hidden:
            return rows
        kept = [row for row in rows.tolist() if not (self._at(row).sessions & hidden)]
        return np.array(kept, dtype=np.intp)

    def said_at(self, rows: NDArray[np.intp]) -> NDArray[np.int64]:
        """When the source turns of these rows were said."""
        return self._said_at[rows]

    def neighbours(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Rows of the previous and the next chunk of the session for every row, -1 where there is none."""
        size = len(self.nodes)
        return self._previous[:size], self._next[:size]

    def cosines(self, query: NDArray[np.float32]) -> NDArray[np.float64]:
        """Cosine of each row with a unit query, shape (rows,); 0 for rows without a vector."""
        scores = np.zeros(len(self.nodes))
        rows = [self.row_of[each] for each in self._vectors]
        if rows:
            scores[rows] = np.stack(list(self._vectors.values())) @ query
        return scores

    def ties(self, rows: NDArray[np.intp]) -> NDArray[np.bytes_]:
        """Ids of these rows: between equal scores the smaller one comes first."""
        return np.array([self._at(row).id.hex() for row in rows.tolist()], dtype=np.bytes_)

    def node(self, row: int) -> SearchNode:
        """The live node of a row."""
        return self._at(row)

    def _at(self, row: int) -> SearchNode:
        node = self.nodes[row]
        assert node is not None
        return node

    def _grow(self) -> None:
        size = len(self._live)
        self._said_at = np.concatenate((self._said_at, np.zeros(size, dtype=np.int64)))
        self._live = np.concatenate((self._live, np.zeros(size, dtype=np.bool_)))
        self._previous = np.concatenate((self._previous, np.full(size, -1, dtype=np.intp)))
        self._next = np.concatenate((self._next, np.full(size, -1, dtype=np.intp)))

    def _link_chunk(self, row: int, node: SearchNode) -> None:
        (session,) = node.sessions
        before = self._last_chunk.get(session, -1)
        self._previous[row] = before
        if before >= 0:
            self._next[before] = row
        self._last_chunk[session] = row

    def _unlink_chunk(self, row: int, node: SearchNode) -> None:
        (session,) = node.sessions
        before, behind = int(self._previous[row]), int(self._next[row])
        if before >= 0:
            self._next[before] = behind
        if behind >= 0:
            self._previous[behind] = before
        if self._last_chunk.get(session) == row:
            self._last_chunk[session] = before


def indexed_text(text: str, said_at: Instant) -> str:
    """What is searched: the text behind its date, so that a question can ask for a day (quality.md 1)."""
    return f"{format_date(said_at)} {text}"


def format_date(at: Instant) -> str:
    """`[8 May 2023]`, in UTC."""
    when = to_datetime(at)
    return f"[{when.day} {when:%B %Y}]"
