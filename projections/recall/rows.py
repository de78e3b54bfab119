"""The rows of a node set: what is known of each node, in columns, and which chunks stand side by side."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum
from heapq import nsmallest
from typing import Final

import msgspec
import numpy as np
from numpy.typing import NDArray

from events.envelope import REFERENCE_BYTES, Reference
from events.time import Instant
from projections.recall.columns import Columns, Shared
from projections.recall.kept_rows import OF_FACT, RowsState, keep_ref, read_ref, read_turns
from projections.texts import TextRef, name_fact, name_text


class NodeKind(StrEnum):
    """What a node is, as an answer says it."""

    CHUNK = "chunk"
    FACT = "fact"
    GROUP = "group"
    SUMMARY = "summary"  # of a tree; it has no row of its own


class SearchNode(msgspec.Struct, frozen=True, gc=False):
    """One row: where its text stands, which turns it carries, when they were said and what time it is about.

    A struct, because an answer makes dozens of them, five times faster than dataclasses.
    """

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
    holds_until: Instant | None = None  # of a state: not in it; None: it is of its own time alone
    space: int = 0  # whose vectors its own is compared with (`projections.spaces`)


class Outline(msgspec.Struct, frozen=True, gc=False):
    """What of a node decides whether an answer shows it."""

    id: bytes
    kind: NodeKind
    turns: tuple[int, ...]
    said_at: Instant
    length: int
    stated: bool


KINDS: Final = tuple(NodeKind)
KIND_CODE: Final = {kind: code for code, kind in enumerate(KINDS)}
# While more rows than this are free, and more than this share of all, the last nodes move into them.
_GAPS_MIN: Final = 64
_GAP_SHARE: Final = 1 / 64

_COLUMNS: Final = {
    "said_at": "i8",
    "time_start": "i8",
    "time_end": "i8",
    "holds_until": "i8",  # 0: as time_end
    "ref_seq": "i8",
    # Of texts made of turns: how many of the numbers kept in `turns` are the node's own.
    "ref_n": "i4",
    "length": "i4",
    "previous": "i4",
    "next": "i4",
    "sessions": "i4",
    "kind": "u1",
    "ref_kind": "u1",
    "space": "u1",
    "stated": "?",
    "live": "?",
    "id": f"S{REFERENCE_BYTES}",
}

# What a node is read from besides its id and turns, in the order of `NodeRows._read`.
_READ: Final = (
    "kind",
    "ref_kind",
    "ref_seq",
    "ref_n",
    "sessions",
    "said_at",
    "time_start",
    "time_end",
    "length",
    "stated",
    "holds_until",
    "space",
)


class NodeRows:
    """Nodes by row. A row that became free is used again, the last one first."""

    def __init__(self) -> None:
        self.row_of: dict[bytes, int] = {}
        self.columns = Columns(_COLUMNS)
        self.session_sets: Shared[frozenset[Reference]] = Shared()
        self._turns: list[bytes] = []
        self._free: list[int] = []
        self._last_chunk: dict[Reference, int] = {}
        self._live: NDArray[np.intp] | None = None  # after a change, as the links
        self._links: tuple[NDArray[np.intp], NDArray[np.intp]] | None = None

    def add(self, node: SearchNode) -> int:
        """Give a node a row. ValueError if one of its id has one."""
        if node.id in self.row_of or len(node.id) != REFERENCE_BYTES:
            raise ValueError("a node of this id is here already, or the id has not 16 bytes")
        row = self._free.pop() if self._free else self.columns.append()
        self._turns += [b""] * (row == len(self._turns))
        self.row_of[node.id] = row
        self._live = self._links = None
        self._write(row, node)
        for name in ("previous", "next"):
            self.columns.set(name, row, -1)
        if node.kind is NodeKind.CHUNK:
            self._link(row, node)
        return row

    def replace(self, row: int, node: SearchNode) -> None:
        """Another node of the same id and kind in a row."""
        self.session_sets.give_back(int(self.columns["sessions"][row]))
        self._write(row, node)

    def remove(self, row: int) -> SearchNode:
        """Empty a row; the node that it held."""
        (node,) = self.nodes((row,))
        if node.kind is NodeKind.CHUNK:
            self._unlink(row, node)
        del self.row_of[node.id]
        self.session_sets.give_back(int(self.columns["sessions"][row]))
        self._clear(row)
        return node

    def nodes(self, rows: Iterable[int]) -> list[SearchNode]:
        """The nodes of live rows, in their order. KeyError if a row is not live."""
        listed = np.array(list(rows), dtype=np.intp)
        if not self.columns["live"][listed].all():
            raise KeyError("a row holds no node")
        turns = [self._turns[row] for row in listed.tolist()]
        return list(map(self._read, self.ids(listed), turns, *self.columns.read(listed, *_READ)))

    def outlines(self, rows: NDArray[np.intp]) -> list[Outline]:
        """The outlines of live rows, in their order."""
        kept = [self._turns[row] for row in rows.tolist()]
        names = ("kind", "ref_kind", "ref_n", "said_at", "length", "stated")
        kinds, ref_kinds, ref_ns, *shown = self.columns.read(rows, *names)
        turns = list(map(read_turns, kept, ref_kinds, ref_ns))
        return list(map(Outline, self.ids(rows), map(KINDS.__getitem__, kinds), turns, *shown))

    def text_names(self, rows: NDArray[np.intp]) -> list[bytes]:
        """The names of the texts of live rows, in their order."""
        kinds, seqs, ns = self.columns.read(rows, "ref_kind", "ref_seq", "ref_n")
        # Facts are most of them: without an object for each.
        return [
            name_fact(seq, n) if kind == OF_FACT else name_text(read_ref(self._turns[row], kind, seq, n))
            for row, kind, seq, n in zip(rows.tolist(), kinds, seqs, ns, strict=True)
        ]

    def ids(self, rows: NDArray[np.intp]) -> list[bytes]:
        """The ids of live rows, in their order."""
        # Cut from one piece: by themselves numpy's bytes lose the zeros at their ends.
        together = self.columns["id"][rows].tobytes()
        return [together[start : start + REFERENCE_BYTES] for start in range(0, len(together), REFERENCE_BYTES)]

    def live(self, hidden: frozenset[Reference]) -> NDArray[np.intp]:
        """The rows that hold a node, without those of a session in `hidden`; ascending."""
        if self._live is None:
            self._live = np.flatnonzero(self.columns["live"])
            self._live.flags.writeable = False
        return self._live[self.shown(self._live, hidden)] if hidden and self._live.size else self._live

    def links(self) -> tuple[NDArray[np.intp], NDArray[np.intp]]:
        """Each row of a chunk that has a next one in its session, ascending, and the row of that one."""
        if self._links is None:
            before = np.flatnonzero(self.columns["next"] >= 0)
            self._links = before, self.columns["next"][before].astype(np.intp)
        return self._links

    def shown(self, rows: NDArray[np.intp], hidden: frozenset[Reference]) -> NDArray[np.bool_]:
        """Whether each of these rows is from no session in `hidden`."""
        shown = np.array([not (each and each & hidden) for each in self.session_sets.values], dtype=np.bool_)
        allowed: NDArray[np.bool_] = shown[self.columns["sessions"][rows]]
        return allowed

    def first_sessions(self) -> NDArray[np.int32]:
        """For each row the number of one session of its node: of several the one with the smallest reference.

        Read it before the next change.
        """
        sets, column = self.session_sets, self.columns["sessions"]
        several = [(number, min(each)) for number, each in enumerate(sets.values) if each and len(each) > 1]
        if not several:
            return column
        numbers = np.arange(len(sets.values), dtype=np.int32)
        for number, first in several:
            numbers[number] = sets.find(frozenset((first,)), number)
        return numbers.take(column)

    @property
    def size_bytes(self) -> int:
        """About what the rows take."""
        return self.columns.size_bytes + 210 * self.columns.size + 300 * len(self.session_sets.values)

    def freeze(self) -> RowsState:
        """All of it."""
        sets = [None if each is None else sorted(each) for each in self.session_sets.values]
        return RowsState(
            self.columns.freeze(),
            list(self._turns),
            sets,
            list(self.session_sets.free),
            list(self._free),
            dict(self._last_chunk),
        )

    @classmethod
    def thaw(cls, state: RowsState) -> NodeRows:
        """What `freeze` gave."""
        rows = cls()
        rows.columns.thaw(state.columns)
        live = np.flatnonzero(rows.columns["live"])
        rows.session_sets.thaw(
            (None if each is None else frozenset(each) for each in state.session_sets),
            state.session_sets_free,
            rows.columns["sessions"][live],
        )
        ids = state.columns["id"]
        rows.row_of = {ids[REFERENCE_BYTES * row : REFERENCE_BYTES * (row + 1)]: row for row in live.tolist()}
        rows._turns, rows._free = list(state.turns), list(state.free)
        rows._last_chunk = dict(state.last_chunk)
        return rows

    @property
    def has_gaps(self) -> bool:
        """Whether so many rows are free that it is worth a few moves."""
        return len(self._free) > max(_GAPS_MIN, _GAP_SHARE * self.columns.size)

    def find_gaps(self, count: int) -> list[tuple[int, int]]:
        """The last nodes' rows and free ones before them."""
        last = self.live(frozenset())[: -count - 1 : -1].tolist()
        return [(row, gap) for row, gap in zip(last, nsmallest(len(last), self._free), strict=False) if gap < row]

    def move(self, row: int, gap: int) -> SearchNode:
        """Put the node of a row into a free one; that node."""
        (node,) = self.nodes((row,))
        self._free.remove(gap)
        for name in _COLUMNS:
            self.columns.set(name, gap, self.columns[name][row])
        for name, back in (("previous", "next"), ("next", "previous")):
            if (beside := int(self.columns[name][row])) >= 0:
                self.columns.set(back, beside, gap)
        for session in node.sessions:
            if self._last_chunk.get(session) == row:
                self._last_chunk[session] = gap
        self._turns[gap], self.row_of[node.id] = self._turns[row], gap
        self._clear(row)
        return node

    def shrink(self) -> int:
        """Let go of the free rows at the end; how many rows are left."""
        size = int(self.live(frozenset())[-1]) + 1 if self.row_of else 0
        self._free = [row for row in self._free if row < size]
        self.columns.shrink(size)
        del self._turns[size:]
        self._live = self._links = None
        return size

    def _clear(self, row: int) -> None:
        self._live = self._links = None
        self._turns[row] = b""
        for name in _COLUMNS:
            self.columns.set(name, row, b"" if name == "id" else -1 if name in ("previous", "next") else 0)
        self._free.append(row)

    def _write(self, row: int, node: SearchNode) -> None:
        ref_kind, seq, n, self._turns[row] = keep_ref(node.ref, node.turns)
        values: dict[str, object] = {
            "said_at": node.said_at,
            "time_start": node.time_start,
            "time_end": node.time_end,
            "ref_seq": seq,
            "ref_n": n,
            "length": node.length,
            "sessions": self.session_sets.take(node.sessions),
            "kind": KIND_CODE[node.kind],
            "ref_kind": ref_kind,
            "stated": node.stated,
            "holds_until": node.holds_until or 0,
            "space": node.space,
            "live": True,
            "id": node.id,
        }
        for name, value in values.items():
            self.columns.set(name, row, value)

    def _read(
        self,
        node_id: bytes,
        numbers: bytes,
        kind: int,
        ref_kind: int,
        ref_seq: int,
        ref_n: int,
        sessions: int,
        said_at: Instant,
        time_start: Instant,
        time_end: Instant,
        length: int,
        stated: bool,
        holds_until: Instant,
        space: int,
    ) -> SearchNode:
        turns, ref = read_turns(numbers, ref_kind, ref_n), read_ref(numbers, ref_kind, ref_seq, ref_n)
        held = self.session_sets[sessions]
        told = said_at, time_start, time_end, length, stated, holds_until or None, space
        return SearchNode(node_id, KINDS[kind], ref, turns, held, *told)

    def _link(self, row: int, node: SearchNode) -> None:
        (session,) = node.sessions
        before = self._last_chunk.get(session, -1)
        self.columns.set("previous", row, before)
        if before >= 0:
            self.columns.set("next", before, row)
        self._last_chunk[session] = row

    def _unlink(self, row: int, node: SearchNode) -> None:
        (session,) = node.sessions
        before, behind = int(self.columns["previous"][row]), int(self.columns["next"][row])
        if before >= 0:
            self.columns.set("next", before, behind)
        if behind >= 0:
            self.columns.set("previous", behind, before)
        if self._last_chunk[session] == row:
            if before >= 0:
                self._last_chunk[session] = before
            else:
                del self._last_chunk[session]
