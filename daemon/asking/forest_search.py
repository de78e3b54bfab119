"""The trees of a Memory, laid out for browsing and kept until it changes; which of them a question may recall."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from itertools import islice
from operator import is_
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from anyio import to_thread

from daemon.asking.modes import Family
from daemon.asking.passing import Passing
from daemon.asking.tree_nodes import may_be_shown
from daemon.folding import in_slices, state_of
from projections.facts.chunking import make_chunk_key
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.items import Item
from projections.recall.filters import NO_FILTERS, Filters
from projections.recall.forest_columns import ForestColumns, TreeLayout
from projections.recall.forest_ranking import NodeVectors, Trees
from projections.recall.nodes import NodeKind
from projections.steps import Steps, at_once
from projections.texts import TurnsText

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from daemon.tree_vectors import TreeVectorFiller
    from projections.memory import Memory
    from projections.recall.answering import Prepared
    from projections.recall.slab import Quantised

    Rows = NDArray[np.intp]
    # The trees of a Memory, and by the number of a leaf the row that it is found by.
    _Looked = tuple[dict[Scope, "_LaidTree"], Rows]

# The owner is one of the entities: with a tree like any other, which is recalled like any other.
_FAMILY_OF: Final = {
    ScopeKind.SESSION: Family.SESSION,
    ScopeKind.ENTITY: Family.ENTITY,
    ScopeKind.USER: Family.ENTITY,
    ScopeKind.SCENE: Family.SCENE,
}
# A Memory that changes while its trees are laid out is laid out again, and the last time in one go.
_TRIES: Final = 3
# Trees whose columns are put together in a millisecond or two; of more, in another thread.
_JOINED_ON_LOOP_MAX: Final = 100
# Leaves that are looked up between two chances for others to run: a fraction of a millisecond.
_LEAVES_AT_ONCE: Final = 256
# About what is kept of an item of a tree, of a tree, and of a leaf, in bytes.
_ITEM_BYTES: Final = 150
_TREE_BYTES: Final = 2_000
_LEAF_BYTES: Final = 200


class _LaidTree(NamedTuple):
    """A tree with this digest of its root: its items, and by place the number of a leaf, of a node 0."""

    digest: bytes
    layout: TreeLayout
    leaves: Rows


@dataclass(slots=True)
class _Laid:
    """The trees of a Memory as they were laid out last. A tree whose root has the same digest is the same tree."""

    state: object = None
    columns: ForestColumns = field(default_factory=lambda: ForestColumns.join(()))
    trees: dict[Scope, _LaidTree] = field(default_factory=dict[Scope, "_LaidTree"])
    # A number for every leaf, from 1 on, by its key; and by these numbers the leaf at each place of the columns.
    numbers: dict[bytes, int] = field(default_factory=dict[bytes, int])
    leaves: Rows = field(default_factory=lambda: np.zeros(0, dtype=np.intp))
    # Ids of chunks by the numbers of their leaves, which stay as they are.
    chunks: dict[int, bytes] = field(default_factory=dict[int, bytes])
    # How often vectors had come or gone, where those of the nodes were, and those of the entries themselves.
    vectors_at: object = None
    vector_rows: Rows | None = None
    entry_codes: Quantised | None = None
    # Which entries are of trees of sessions; None when the columns are new.
    of_sessions: NDArray[np.bool_] | None = None

    @property
    def size_bytes(self) -> int:
        """About what all of this takes; items stand in the trees anyway."""
        trees = _ITEM_BYTES * self.columns.size + _TREE_BYTES * len(self.trees)
        codes = 0 if self.entry_codes is None else 2 * self.entry_codes.high.nbytes
        return trees + codes + _LEAF_BYTES * len(self.numbers)


class ForestSearch:
    """Lays out the trees of Memories that are loaded, past ones too.

    Looked for anew after each event of the user: what did not change costs a look at its root and its leaves.
    """

    def __init__(self, tree_vectors: TreeVectorFiller | None = None) -> None:
        """`tree_vectors` gives nodes the vectors that are missing, as far as that takes no call."""
        self._tree_vectors = tree_vectors
        self._laid: WeakKeyDictionary[Memory, _Laid] = WeakKeyDictionary()

    async def columns(self, memory: Memory, *, by_vectors: bool) -> ForestColumns:
        """The trees as they stand. Nothing may be awaited between this and what they are compared with."""
        if by_vectors and self._tree_vectors is not None:
            await self._tree_vectors.ready(memory)
        laid = self._laid.get(memory)
        if laid is None:
            laid = self._laid[memory] = _Laid()
        for left in reversed(range(_TRIES)):
            state = state_of(memory)
            if laid.state == state:
                break
            steps = _lay_out(memory, laid)
            trees, row_of = await in_slices(steps) if left else at_once(steps)
            columns, leaves = laid.columns, laid.leaves
            are_same = _are_same(columns, trees)
            if not are_same:
                parts = [(scope, each.layout, each.leaves) for scope, each in trees.items()]
                if left and len(parts) > _JOINED_ON_LOOP_MAX:
                    columns = await to_thread.run_sync(ForestColumns.join, parts)
                else:
                    columns = ForestColumns.join(parts)
                leaves = columns.rows
            if state_of(memory) == state:
                laid.state, laid.columns, laid.leaves = state, columns.with_rows(row_of[leaves]), leaves
                if not are_same:
                    laid.vectors_at = laid.of_sessions = None
                memory.laid_bytes = laid.size_bytes
        return laid.columns

    def look(
        self,
        memory: Memory,
        prepared: Prepared,
        families: Collection[Family],
        filters: Filters,
        *,
        apart: bool = False,
    ) -> Trees:
        """What a question may recall of the trees that `columns` gave; `families`: those that count.

        `filters`: those by which it was `prepared`. `apart`: trees of sessions are recalled by themselves, so that
        those of facts, which are many more, do not crowd them out. What stands in no tree answers only beside all
        of them.
        """
        columns, all_of_them = self._columns_passing(memory, prepared, filters), len(families) == len(Family)
        query = prepared.view.query
        allowed = np.ones(len(columns.entries), dtype=np.bool_)
        if not all_of_them:
            wanted = np.array([_FAMILY_OF[scope.kind] in families for scope in columns.scopes], dtype=np.bool_)
            allowed = wanted[columns.entry_trees]
        if filters != NO_FILTERS:
            allowed &= _have_passing(columns, prepared)
        return Trees(
            columns=columns,
            allowed=allowed,
            vectors=None if query is None else self._place_vectors(memory, query),
            kinds=_leaf_rows(memory, prepared.rows, families),
            loose=all_of_them,
            apart=self._of_sessions(memory) if apart else None,
        )

    def _columns_passing(self, memory: Memory, prepared: Prepared, filters: Filters) -> ForestColumns:
        """The trees, whose leaves are found by no row where their own words do not pass."""
        laid = self._laid[memory]
        known = [laid.numbers.get(key, 0) for key in Passing.of(memory, filters).leaves_left_out(prepared.rows)]
        if not known:
            return laid.columns
        left_out = np.zeros(len(laid.numbers) + 1, dtype=np.bool_)
        left_out[known] = True
        left_out[0] = False  # stands for all nodes
        return laid.columns.with_rows(np.where(left_out[laid.leaves], -1, laid.columns.rows))

    def _of_sessions(self, memory: Memory) -> NDArray[np.bool_]:
        laid = self._laid[memory]
        if laid.of_sessions is None:
            columns = laid.columns
            of = np.array([scope.kind is ScopeKind.SESSION for scope in columns.scopes], dtype=np.bool_)
            laid.of_sessions = of[columns.entry_trees]
        return laid.of_sessions

    def _place_vectors(self, memory: Memory, query: Quantised) -> NodeVectors | None:
        """Where the vectors of the nodes are; looked up again when vectors came or went."""
        laid, vectors = self._laid[memory], memory.tree_vectors
        picture = vectors.picture()
        if laid.vectors_at != vectors.changes:
            columns = laid.columns
            nodes = np.flatnonzero(columns.count)
            found = vectors.rows_of([each.digest for layout in columns.layouts for each in layout.nodes()])
            laid.vector_rows = np.full(columns.size, vectors.blank_row, dtype=np.intp)
            laid.vector_rows[nodes] = found
            laid.entry_codes = None if picture is None else picture.take(laid.vector_rows[columns.entries])
            laid.vectors_at = vectors.changes
        if picture is None or laid.vector_rows is None or laid.entry_codes is None:
            return None
        if picture.dimensions != query.high.shape[1]:
            return None
        return NodeVectors(picture, laid.vector_rows, laid.entry_codes, query)


def _have_passing(columns: ForestColumns, prepared: Prepared) -> NDArray[np.bool_]:
    """For each entry, whether its tree has a leaf that may answer; of any other not even the name may be told."""
    may = np.zeros(prepared.view.size, dtype=np.bool_)
    may[prepared.rows] = True
    found = np.zeros(len(columns.layouts), dtype=np.bool_)
    found[columns.entry_trees[columns.entry_of[columns.leaves[may[columns.leaf_rows]]]]] = True
    return found[columns.entry_trees]


def _are_same(columns: ForestColumns, trees: Mapping[Scope, _LaidTree]) -> bool:
    """Whether columns are joined of these trees, all as they are."""
    layouts = [each.layout for each in trees.values()]
    return len(layouts) == len(columns.layouts) and all(map(is_, layouts, columns.layouts))


def _lay_out(memory: Memory, laid: _Laid) -> Steps[_Looked]:
    """The trees that may be shown, and the rows of leaves, in small steps; what is the same stays laid out."""
    forest = memory.forest
    trees: dict[Scope, _LaidTree] = {}
    for scope in sorted(forest.trees, key=lambda scope: (scope.kind, scope.name)):
        tree = forest.trees.get(scope)
        if tree is None or tree.root is None or not may_be_shown(memory, scope):
            continue
        laid_tree = laid.trees.get(scope)
        if laid_tree is None or laid_tree.digest != tree.root.digest:
            laid_tree = yield from _lay_out_tree(memory, scope, tree.root, laid)
        trees[scope] = laid_tree
        yield
    laid.trees = trees
    return trees, (yield from _rows_of_leaves(memory, laid))


def _lay_out_tree(memory: Memory, scope: Scope, root: Item, laid: _Laid) -> Steps[_LaidTree]:
    """One tree; its leaves get numbers as far as they have none, and chunks their ids."""
    layout = yield from TreeLayout.in_steps(root)
    numbers, of_session = laid.numbers, scope.kind is ScopeKind.SESSION
    leaves = np.zeros(len(layout.items), dtype=np.intp)
    for n, place in enumerate(np.flatnonzero(layout.count == 0).tolist()):
        if not n % _LEAVES_AT_ONCE:
            yield
        key = layout.items[place].digest
        number = numbers.setdefault(key, len(numbers) + 1)
        if of_session and number not in laid.chunks:
            ref = memory.forest.leaf_ref(key)
            if not isinstance(ref, TurnsText):
                continue
            turns = (memory.turns[seq].key for seq in ref.turns if seq in memory.turns)
            laid.chunks[number] = make_chunk_key(turns)
        leaves[place] = number
    return _LaidTree(root.digest, layout, leaves)


def _rows_of_leaves(memory: Memory, laid: _Laid) -> Steps[Rows]:
    """By its number, the row that each leaf is found by: of a chunk its own, of a fact that or its group's."""
    row_of, group_of, number_of = memory.nodes.row_of, memory.units.group_of, laid.numbers.get
    rows = [-1] * (len(laid.numbers) + 1)
    known = len(rows)
    chunks, facts = iter(tuple(laid.chunks.items())), iter(tuple(memory.canon.facts.values()))
    while some := list(islice(chunks, _LEAVES_AT_ONCE)):
        for number, chunk in some:
            if number < known:
                rows[number] = row_of.get(chunk, -1)
        yield
    while several := list(islice(facts, _LEAVES_AT_ONCE)):
        for fact in several:
            number = number_of(fact.occurrences[0].leaf_key, known)
            if number < known:
                rows[number] = row_of.get(group_of.get(fact.id, fact.id), -1)
        yield
    return np.array(rows, dtype=np.intp)


def _leaf_rows(memory: Memory, rows: Rows, families: Collection[Family]) -> list[Rows]:
    """The rows that may answer, apart for each kind of leaf that trees of these families have."""
    kinds: list[tuple[NodeKind, ...]] = []
    if Family.ENTITY in families or Family.SCENE in families:
        kinds.append((NodeKind.FACT, NodeKind.GROUP))
    if Family.SESSION in families:
        kinds.append((NodeKind.CHUNK,))
    return [rows[memory.nodes.of_kinds(rows, each)] for each in kinds]
