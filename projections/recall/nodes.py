"""The node set of one user: what a query searches, as columns whose rows are used again (design 3.4).

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
    stated: bool = False  # a person had a say in it; it is shown though its turns are


class NodeSet:
    """Rows of live nodes; removing one takes its words and its vector with it, and its row is used again."""

    def __init__(self) -> None:
        self.lexical = LexicalIndex()
        self.nodes: list[SearchNode | None] = []
        self.row_of: dict[bytes, int] = {}
        # Live nodes that a person had a say in.
        self.stated: dict[bytes, SearchNode] = {}
        self._free: list[int] = []
        # The terms of nodes that others stand for, so that they can come back without their text.
        self._aside: dict[bytes, tuple[str, ...]] = {}
        self._said_at = np.zeros(64, dtype=np.int64)
        self._live = np.zeros(64, dtype=np.bool_)
        self._ids = np.zeros(64, dtype="S32")  # in hex: a trailing zero byte would be cut off
        self._previous = np.full(64, -1, dtype=np.intp)
        self._next = np.full(64, -1, dtype=np.intp)
        self._last_chunk: dict[Reference, int] = {}
        # Made with the first vectors: (rows, dimensions), 0 where a row has none.
        self._vectors: Vectors | None = None
        self._has_vector = np.zeros(64, dtype=np.bool_)

    def __len__(self) -> int:
        return len(self.row_of)

    def add(self, node: SearchNode, text: str) -> None:
        """Index a node under its text, which is not kept."""
        self._add(node, terms(indexed_text(text, node.said_at)))

    def replace(self, node: SearchNode) -> None:
        """Other sources for a node whose text and time stay as they are."""
        self.nodes[self.row_of[node.id]] = node
        self._note_stated(node)

    def remove(self, node_id: bytes) -> None:
        """Take a node out of the search."""
        row = self.row_of.pop(node_id)
        self.stated.pop(node_id, None)
        node = self._at(row)
        self.nodes[row] = None
        self._live[row] = False
        self.lexical.remove(row)
        if self._vectors is not None:
            self._vectors[row] = 0
        self._has_vector[row] = False
        if node.kind is NodeKind.CHUNK:
            self._unlink_chunk(row, node)
        self._free.append(row)

    def set_aside(self, node_id: bytes) -> None:
        """Take a node out of the search for as long as another one stands for it."""
        self._aside[node_id] = self.lexical.terms_of(self.row_of[node_id])
        self.remove(node_id)

    def bring_back(self, node: SearchNode) -> None:
        """Search a node again that was set aside; its text and time are as they were."""
        self._add(node, self._aside.pop(node.id))

    def set_vectors(self, ids: Sequence[bytes], vectors: Vectors) -> None:
        """Unit vectors of nodes, shape (len(ids), dimensions); of nodes that are gone they are dropped."""
        if self._vectors is None:
            self._vectors = np.zeros((len(self._live), vectors.shape[1]), dtype=np.float32)
        for each, vector in zip(ids, vectors, strict=True):
            row = self.row_of.get(each)
            if row is not None:
                self._vectors[row] = vector
                self._has_vector[row] = True

    def without_vectors(self, limit: int) -> list[SearchNode]:
        """Up to `limit` live nodes that have no vector yet, in row order."""
        size = len(self.nodes)
        rows = np.flatnonzero(self._live[:size] & ~self._has_vector[:size])
        return [self._at(row) for row in rows[:limit].tolist()]

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
        if self._vectors is None:
            return np.zeros(len(self.nodes))
        # One matrix-vector product a query: in a batched one the last bits would differ (design 3.3).
        return (self._vectors[: len(self.nodes)] @ query).astype(np.float64)

    def ties(self, rows: NDArray[np.intp]) -> NDArray[np.bytes_]:
        """Ids of these rows: between equal scores the smaller one comes first."""
        return self._ids[rows]

    def node(self, row: int) -> SearchNode:
        """The live node of a row."""
        return self._at(row)

    def _at(self, row: int) -> SearchNode:
        node = self.nodes[row]
        assert node is not None
        return node

    def _add(self, node: SearchNode, indexed: Sequence[str]) -> None:
        row = self._take_row()
        self.nodes[row] = node
        self.row_of[node.id] = row
        self._said_at[row] = node.said_at
        self._live[row] = True
        self._ids[row] = node.id.hex().encode()
        self.lexical.add(row, indexed)
        self._note_stated(node)
        if node.kind is NodeKind.CHUNK:
            self._link_chunk(row, node)

    def _note_stated(self, node: SearchNode) -> None:
        if node.stated:
            self.stated[node.id] = node
        else:
            self.stated.pop(node.id, None)

    def _take_row(self) -> int:
        if self._free:
            return self._free.pop()
        if len(self.nodes) == len(self._live):
            self._grow()
        self.nodes.append(None)
        return len(self.nodes) - 1

    def _grow(self) -> None:
        size = len(self._live)
        self._said_at = np.concatenate((self._said_at, np.zeros(size, dtype=np.int64)))
        self._live = np.concatenate((self._live, np.zeros(size, dtype=np.bool_)))
        self._ids = np.concatenate((self._ids, np.zeros(size, dtype="S32")))
        self._previous = np.concatenate((self._previous, np.full(size, -1, dtype=np.intp)))
        self._next = np.concatenate((self._next, np.full(size, -1, dtype=np.intp)))
        self._has_vector = np.concatenate((self._has_vector, np.zeros(size, dtype=np.bool_)))
        if self._vectors is not None:
            self._vectors = np.concatenate((self._vectors, np.zeros_like(self._vectors)))

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
        self._previous[row] = self._next[row] = -1


def indexed_text(text: str, said_at: Instant) -> str:
    """What is searched: the text behind its date, so that a question can ask for a day (quality.md 1)."""
    return f"{format_date(said_at)} {text}"


def format_date(at: Instant) -> str:
    """`[8 May 2023]`, in UTC."""
    when = to_datetime(at)
    return f"[{when.day} {when:%B %Y}]"
