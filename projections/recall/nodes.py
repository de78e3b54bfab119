"""The node set of one user: what a query searches, as columns whose rows are used again (design 3.4).

Chunks (the open one of each session included), and facts or the groups that replaced them. A row holds
structure only; its text stays in the log.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from events.time import Instant, to_datetime
from projections.recall.columns import Columns, Shared
from projections.recall.graph import Graph
from projections.recall.keyed import MarkHash
from projections.recall.lexical import LexicalIndex
from projections.recall.marks import MarkIndex
from projections.recall.node_columns import NodeColumns
from projections.recall.rooms import SearchOptions
from projections.recall.rows import KIND_CODE, NodeKind, NodeRows, SearchNode
from projections.recall.scoring import View
from projections.recall.sessions import SessionTable, make_table
from projections.recall.state import Aside, AsideState, Marks, NodeSetState
from projections.recall.tokens import terms
from projections.recall.vectors import NodeVectors
from projections.recall.vocabulary import Vocabulary
from projections.steps import Steps
from projections.texts import name_text

__all__ = ["Aside", "NodeKind", "NodeSet", "SearchNode", "View", "format_date", "indexed_text"]

# Nodes moved at once by `close_gaps`: a group takes the places of at most so many.
_GAPS_CLOSED_AT_ONCE: Final = 8

Rows = NDArray[np.intp]
# Numbers of spaces; None: all.
Spaces = Collection[int] | None


class NodeSet(NodeColumns):
    """Rows of live nodes; removing one takes its words and its vector with it, and its row is used again."""

    def __init__(self, key: bytes = b"", options: SearchOptions | None = None) -> None:
        """`key`: the user's reference, under which words and marks are hashed."""
        super().__init__()
        # What stands for a mark in this user's index: `mark(kind, *parts)`. `("session", hex)` is put in here.
        self.mark = MarkHash(key)
        self.lexical = LexicalIndex(key)
        self.marks = MarkIndex()
        # Live nodes that a person had a say in.
        self.stated: dict[bytes, SearchNode] = {}
        self._aside: dict[bytes, Aside] = {}
        # The marks of each row that its caller gave it, as a number of `_mark_sets`.
        self._marks_of = Columns({"marks": "i4"})
        self._mark_sets: Shared[Marks] = Shared()
        self._vectors = NodeVectors(options)
        # The words of nodes, for questions in other words; whoever asks fills it, and what goes is gone at once.
        self.words: Vocabulary | None = None
        self._sessions: SessionTable | None = None  # None after a change
        # user_seq of the Memory when no node wanted a vector any more; of those that were brought, the second.
        self.settled_at = self.brought_at = -1

    def add(self, node: SearchNode, text: str, marks: Iterable[int] = ()) -> None:
        """Index a node under its text, which is not kept, and these marks besides those of its sessions."""
        self.lexical.add(self._add(node, marks), terms(indexed_text(text, node.said_at)))

    def add_group(
        self, node: SearchNode, members: Sequence[bytes], marks: Iterable[int] = (), text: str | None = None
    ) -> None:
        """Index a group that stands for nodes set aside: by their vectors, and its text or else their words."""
        if text is None:
            counts = [self._aside[each].counts for each in members]
            self.lexical.add_together(self._add(node, marks), counts)
        else:
            self.add(node, text, marks)
        self._vectors.begin_group(node.id, tuple(members), self.row_of)

    def replace(self, node: SearchNode, marks: Iterable[int] | None = None) -> None:
        """Other sources for a node whose text and time stay as they are; None leaves its marks as they are."""
        row = self.row_of[node.id]
        given = self._take_marks(row, self.node(row))
        self._rows.replace(row, node)
        self._sessions = None
        self._put_marks(row, node, given if marks is None else marks)
        self._note_stated(node)

    def add_marks(self, node_id: bytes, marks: Iterable[int]) -> None:
        """Put more marks on a node, if it is here; those it carries already change nothing."""
        row = self.row_of.get(node_id)
        if row is not None:
            number = int(self._marks_of["marks"][row])
            given = self._mark_sets[number]
            more = set(marks).difference(given)
            if more:
                self.marks.add(row, more)
                self._marks_of.set("marks", row, self._mark_sets.take(tuple(sorted({*given, *more}))))
                self._mark_sets.give_back(number)

    def remove(self, node_id: bytes) -> None:
        """Take a node out of the search."""
        self._remove(self.row_of[node_id])

    def set_aside(self, node_id: bytes) -> None:
        """Take a node out of the search for as long as another one stands for it."""
        row = self.row_of[node_id]
        self._vectors.hold(node_id, row)
        self._aside[node_id] = self._remove(row)

    def replace_aside(self, node: SearchNode, marks: Iterable[int]) -> None:
        """Other sources for a node that is set aside, as by `replace`."""
        self._aside[node.id] = Aside(node, self._aside[node.id].counts, tuple(sorted(set(marks))))

    def bring_back(self, node: SearchNode, marks: Iterable[int] | None = None) -> None:
        """Search a node again that was set aside; its text and time are as they were, and its marks for None."""
        aside = self._aside.pop(node.id)
        row = self._add(node, aside.marks if marks is None else marks)
        self.lexical.add_hashed(row, aside.counts)
        self._vectors.give_back(node.id, row)

    def close_gaps(self) -> None:
        """When many rows are free, move the last nodes into a few of them, and let go of the rows behind.

        What is scanned is then as short as what there is.
        """
        if not self._rows.has_gaps:
            return
        for row, gap in self._rows.find_gaps(_GAPS_CLOSED_AT_ONCE):
            self._move(row, gap)
        size = self._rows.shrink()
        for each in (self._marks_of, self.lexical, self._vectors):
            each.shrink(size)
        self._sessions = None

    def inside(self, group: bytes) -> list[Aside]:
        """The nodes that a group stands for."""
        return [self._aside[each] for each in self._vectors.members.get(group, ()) if each in self._aside]

    def set_vectors(self, ids: Sequence[bytes], vectors: NDArray[np.floating[Any]], space: int = 0) -> None:
        """Unit vectors of a space, shape (len(ids), width), of nodes or members of groups; others are dropped.

        Raises `VectorRefused` for a vector that is zero, not finite, or of another width, and changes nothing.
        """
        self._vectors.put(ids, vectors, self.row_of, space)

    def without_vectors(self, limit: int, spaces: Spaces = None) -> list[SearchNode]:
        """Up to `limit` nodes whose vectors are wanted: live ones in row order, then members of groups.

        Of these spaces alone, by number; None: of all.
        """
        nodes = self._rows.nodes(self._rows_without_vectors(spaces)[:limit].tolist())
        if len(nodes) < limit:
            members = self._members_without_vectors(spaces)[: limit - len(nodes)]
            nodes += [self._aside[each].node for each in members]
        return nodes

    def ids_without_vectors(self, spaces: Spaces = None) -> list[bytes]:
        """The ids of all those nodes that are no groups, in the same order."""
        rows = self._rows_without_vectors(spaces)
        is_group = self._rows.columns["kind"][rows] == KIND_CODE[NodeKind.GROUP]
        members = self._members_without_vectors(spaces)
        return self._rows.ids(rows[~is_group]) + [
            each for each in members if self._aside[each].node.kind is not NodeKind.GROUP
        ]

    def name_texts(self, ids: Sequence[bytes]) -> dict[bytes, bytes]:
        """The names of these nodes' texts, by id; without those that are neither live nor set aside."""
        found = {each: row for each in ids if (row := self.row_of.get(each)) is not None}
        rows = np.array(list(found.values()), dtype=np.intp)
        names = dict(zip(found, self._rows.text_names(rows), strict=True))
        if len(names) < len(ids):
            names.update((each, name_text(self._aside[each].node.ref)) for each in ids if each in self._aside)
        return names

    def count_without_vectors(self, spaces: Spaces = None) -> int:
        """How many nodes `without_vectors` would name without a limit."""
        return self._rows_without_vectors(spaces).size + len(self._members_without_vectors(spaces))

    def cosines(self, query: NDArray[np.floating[Any]]) -> NDArray[np.float64]:
        """Cosine of each row with a unit query, shape (size,); 0 for rows without a vector."""
        picture = self._vectors.picture(self.size)
        if picture is None:
            return np.zeros(self.size)
        return picture.cosines(np.arange(self.size), self._vectors.ask(query))

    def view(
        self,
        query: NDArray[np.floating[Any]] | None = None,
        others: Mapping[int, NDArray[np.floating[Any]]] | None = None,
    ) -> View:
        """The columns as they stand, for scoring in any thread while the fold goes on; nothing big is copied.

        `query` is a question's vector in our space, `others` those in other spaces, by number.
        """
        (ids,) = self._rows.columns.lend("id")
        asked = None if query is None else self._vectors.ask(query)
        vectors = self._vectors
        others_asked = vectors.ask_others(others or {})
        # Where there are several spaces, nearness is told on the scale of all, also when one alone is asked.
        apart = bool(others_asked) or bool(self._rows.columns["space"].any())
        slab, graph = vectors.picture(self.size), vectors.graph
        return View(*self._rows.links(), ids, slab, asked, graph, vectors.changed(), others_asked, apart)

    def plan_graph(self) -> Callable[[], Graph] | None:
        """What builds a graph of the vectors, in another thread, when a new one is due; then `use_graph`."""
        return self._vectors.plan_graph(self.size)

    def use_graph(self, graph: Graph) -> None:
        """Let this graph, which was planned here, propose rows from now on."""
        self._vectors.use_graph(graph)

    def session_table(self) -> SessionTable:
        """The rows' sessions as they stand; made anew after a change only."""
        if self._sessions is None:
            # An empty row has the number of a chunk and no words.
            chunks = self._rows.columns["kind"] == KIND_CODE[NodeKind.CHUNK]
            self._sessions = make_table(self._rows.first_sessions(), chunks, self.lexical.lengths[: self.size])
        return self._sessions

    @property
    def vector_bytes(self) -> int:
        """What the vectors take, in memory or in their file."""
        return self._vectors.size_bytes

    @property
    def size_bytes(self) -> int:
        """About what all of this takes."""
        marks = self.marks.size_bytes + 4 * self.size
        aside = 1_500 * len(self._aside)
        words = 0 if self.words is None else self.words.size_bytes
        return self._rows.size_bytes + self.lexical.size_bytes + self._vectors.size_bytes + marks + aside + words

    def freeze(self) -> Steps[NodeSetState]:
        """All but the vectors, without a word; in steps of some milliseconds, between which nothing may change."""
        rows = self._rows.freeze()
        yield
        lexical = self.lexical.freeze()
        yield
        marks = self.marks.freeze()
        yield
        mark_sets = [None if each is None else list(each) for each in self._mark_sets.values]
        yield
        aside = yield from AsideState.of(self._aside.values())
        yield
        members = {group: list(members) for group, members in self._vectors.members.items()}
        free, marks_of = list(self._mark_sets.free), self._marks_of.freeze()["marks"]
        return NodeSetState(rows, lexical, marks, mark_sets, free, marks_of, aside, members)

    @classmethod
    def thaw(cls, state: NodeSetState, key: bytes, options: SearchOptions | None = None) -> NodeSet:
        """What `freeze` gave under this key: the same in all it does from here on, but for the vectors."""
        nodes = cls(key, options)
        nodes._rows = NodeRows.thaw(state.rows)
        nodes.lexical = LexicalIndex.thaw(state.lexical, key)
        nodes.marks = MarkIndex.thaw(state.marks)
        nodes._marks_of.thaw({"marks": state.marks_of})
        live = nodes.live_rows()
        nodes._mark_sets.thaw(
            (None if each is None else tuple(each) for each in state.mark_sets),
            state.mark_sets_free,
            nodes._marks_of["marks"][live],
        )
        nodes._aside = {each.node.id: each for each in state.aside.read()}
        stated = live[nodes._rows.columns["stated"][live]]
        nodes.stated = {node.id: node for node in nodes.nodes_at(stated.tolist())}
        for group, members in state.groups.items():
            nodes._vectors.begin_group(group, members, nodes.row_of)
        return nodes

    def _rows_without_vectors(self, spaces: Spaces) -> Rows:
        missing = self._rows.columns["live"] & ~self._vectors.filled(self.size)
        if spaces is not None:
            missing &= np.isin(self._rows.columns["space"], list(spaces))
        for group in self._vectors.members:
            missing[self.row_of[group]] = False
        return np.flatnonzero(missing)

    def _members_without_vectors(self, spaces: Spaces) -> list[bytes]:
        return [
            each
            for each in self._vectors.wanted(self.row_of)
            if each in self._aside and (spaces is None or self._aside[each].node.space in spaces)
        ]

    def _add(self, node: SearchNode, marks: Iterable[int]) -> int:
        row = self._rows.add(node)
        self._sessions = None
        while self._marks_of.size <= row:
            self._marks_of.append()
        self._put_marks(row, node, marks)
        self._note_stated(node)
        if self.words is not None:
            self.words.missing.add(node.id)
        return row

    def _remove(self, row: int) -> Aside:
        """Empty a row; what its node is searched by again."""
        node = self._rows.remove(row)
        self._sessions = None
        self.stated.pop(node.id, None)
        if self.words is not None:
            self.words.remove(node.id)
        self._vectors.end_group(node.id)
        self._vectors.clear(row)
        return Aside(node, self.lexical.remove(row), self._take_marks(row, node))

    def _move(self, row: int, gap: int) -> None:
        node, given = self._rows.move(row, gap), int(self._marks_of["marks"][row])
        marks = {*self._mark_sets[given], *self._session_marks(node)}
        self.marks.remove(row, marks)
        self.marks.add(gap, marks)
        self._marks_of.set("marks", gap, given)
        self._marks_of.set("marks", row, 0)
        self.lexical.move(row, gap)
        self._vectors.move(row, gap)

    def _put_marks(self, row: int, node: SearchNode, marks: Iterable[int]) -> None:
        given = tuple(sorted(set(marks)))
        self._marks_of.set("marks", row, self._mark_sets.take(given))
        self.marks.add(row, given)
        self.marks.add(row, self._session_marks(node))

    def _take_marks(self, row: int, node: SearchNode) -> Marks:
        number = int(self._marks_of["marks"][row])
        given = self._mark_sets[number]
        self.marks.remove(row, {*given, *self._session_marks(node)})
        self._mark_sets.give_back(number)
        return given

    def _session_marks(self, node: SearchNode) -> set[int]:
        return {self.mark("session", each.hex()) for each in node.sessions}

    def _note_stated(self, node: SearchNode) -> None:
        if node.stated:
            self.stated[node.id] = node
        else:
            self.stated.pop(node.id, None)


def indexed_text(text: str, said_at: Instant) -> str:
    """What is searched: the text behind its date, so that a question can ask for a day (quality.md 1)."""
    return f"{format_date(said_at)} {text}"


def format_date(at: Instant) -> str:
    """`[8 May 2023]`, in UTC."""
    when = to_datetime(at)
    return f"[{when.day} {when:%B %Y}]"
