"""What a snapshot holds of a node set: numbers, ids and hashes, and not a word."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import msgspec

from projections.recall.kept_rows import RowsState
from projections.recall.rows import NodeRows, SearchNode
from projections.steps import Steps

Marks = tuple[int, ...]


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


@dataclass(frozen=True, slots=True)
class Aside:
    """A node that another one stands for: enough to search it again without its text, and to tell what it is."""

    node: SearchNode
    counts: dict[int, int]  # how often it holds each hash of a term
    marks: Marks  # but for those of its sessions


class AsideState(msgspec.Struct, frozen=True, array_like=True):
    """Nodes that others stand for: as rows of their own, with the counts of their terms and their marks."""

    rows: RowsState
    ids: list[bytes]
    counts: list[dict[int, int]]
    marks: list[list[int]]

    @classmethod
    def of(cls, aside: Iterable[Aside]) -> Steps[AsideState]:
        """These nodes in this order, one a step."""
        rows, listed = NodeRows(), list(aside)
        counts = list[dict[int, int]]()
        for each in listed:
            rows.add(each.node)
            counts.append(dict(each.counts))
            yield
        return cls(rows.freeze(), [each.node.id for each in listed], counts, [list(each.marks) for each in listed])

    def read(self) -> Iterator[Aside]:
        """The nodes in the order they were given."""
        rows = NodeRows.thaw(self.rows)
        nodes = rows.nodes([rows.row_of[each] for each in self.ids])
        return map(Aside, nodes, self.counts, map(tuple, self.marks))


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
