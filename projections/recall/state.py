"""What a snapshot holds of a node set: numbers, ids and hashes, and not a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from projections.recall.kept_rows import RowsState
from projections.recall.rows import NodeRows, SearchNode


class PostingsState(msgspec.Struct, frozen=True, array_like=True):
    """Arrays as bytes, by number of the term: its hash, whether a row holds it, its entry if there is one only,
    how many there are otherwise; those entries; numbers to use again; and counts that an entry has no room for."""

    hashes: bytes
    alive: bytes
    single: bytes
    counted: bytes
    entries: bytes
    free: list[int]
    counts: list[tuple[int, int, int]]


class LexicalState(msgspec.Struct, frozen=True, array_like=True):
    """Postings; and by row, as bytes of arrays: how many distinct terms it has (-1 where none is live), their
    numbers, and how many terms with repetitions."""

    postings: PostingsState
    row_sizes: bytes
    row_terms: bytes
    lengths: bytes


class MarksState(msgspec.Struct, frozen=True, array_like=True):
    """Arrays as bytes: marks, how many rows each has, and the rows."""

    marks: bytes
    counts: bytes
    rows: bytes


class AsideState(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that others stand for: as rows of their own, with the counts of their terms and their marks."""

    rows: RowsState
    ids: list[bytes]
    counts: list[dict[int, int]]
    marks: list[list[int]]

    @classmethod
    def of(cls, aside: Iterable[tuple[SearchNode, dict[int, int], tuple[int, ...]]]) -> AsideState:
        """These nodes in this order."""
        rows, listed = NodeRows(), list(aside)
        for node, _, _ in listed:
            rows.add(node)
        ids, counts = [node.id for node, _, _ in listed], [dict(each) for _, each, _ in listed]
        return cls(rows.freeze(), ids, counts, [list(marks) for _, _, marks in listed])

    def read(self) -> Iterator[tuple[SearchNode, dict[int, int], tuple[int, ...]]]:
        """The nodes in the order they were given."""
        rows = NodeRows.thaw(self.rows)
        nodes = rows.nodes([rows.row_of[each] for each in self.ids])
        return zip(nodes, self.counts, map(tuple, self.marks), strict=True)


class NodeSetState(msgspec.Struct, frozen=True, array_like=True):
    """A node set without its vectors, which have a cache of their own."""

    rows: RowsState
    lexical: LexicalState
    marks: MarksState
    mark_sets: list[list[int] | None]
    mark_sets_free: list[int]
    marks_of: bytes
    aside: AsideState
    groups: dict[bytes, list[bytes]]
