"""The trees of a Memory, laid out for browsing and kept until it changes; which of them a question may recall."""

from __future__ import annotations

from collections.abc import Collection, Generator
from dataclasses import dataclass, field
from itertools import repeat
from typing import TYPE_CHECKING, Final, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from anyio import to_thread

from daemon.asking.modes import Family
from daemon.asking.tree_nodes import may_be_shown
from daemon.folding import in_slices
from projections.facts.chunking import make_chunk_key
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.items import Item, Leaf
from projections.recall.forest_columns import ForestColumns, TreeLayout
from projections.recall.forest_ranking import NodeVectors, Trees
from projections.recall.nodes import NodeKind
from projections.recall.slab import quantise
from projections.texts import TurnsText

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from daemon.tree_vectors import TreeVectorFiller
    from projections.memory import Memory
    from projections.recall.answering import Prepared

    Vector = NDArray[np.floating]
    Rows = NDArray[np.intp]
    # A tree, its items, and the row of each.
    _Part = tuple[Scope, TreeLayout, Rows]

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


class _LaidTree(NamedTuple):
    """A tree with this digest of its root: its items, and by place what tells the row of a leaf.

    Of a fact that is the key of its leaf, of a chunk its id.
    """

    digest: bytes
    layout: TreeLayout
    names: tuple[bytes, ...]


@dataclass(slots=True)
class _Laid:
    """The trees of a Memory as they were laid out last. A tree whose root has the same digest is the same tree."""

    state: object = None
    columns: ForestColumns = field(default_factory=lambda: ForestColumns.join(()))
    trees: dict[Scope, _LaidTree] = field(default_factory=dict[Scope, "_LaidTree"])
    # Ids of chunks by the keys of their leaves, which stay as they are.
    chunks: dict[bytes, bytes] = field(default_factory=dict[bytes, bytes])
    # How often vectors had come or gone, and where those of the nodes were.
    vectors_at: object = None
    vector_rows: Rows | None = None


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
        laid = self._laid.setdefault(memory, _Laid())
        for left in reversed(range(_TRIES)):
            state = _state_of(memory)
            if laid.state == state:
                break
            steps = _lay_out(memory, laid)
            parts = await in_slices(steps) if left else _at_once(steps)
            if left and len(parts) > _JOINED_ON_LOOP_MAX:
                columns = await to_thread.run_sync(ForestColumns.join, parts)
            else:
                columns = ForestColumns.join(parts)
            if _state_of(memory) == state:
                laid.state, laid.columns, laid.vectors_at = state, columns, None
        return laid.columns

    def look(
        self,
        memory: Memory,
        prepared: Prepared,
        families: Collection[Family],
        vector: Vector | None,
        *,
        apart: bool = False,
    ) -> Trees:
        """What a question may recall of the trees that `columns` gave; `families`: those that count.

        `apart`: trees of sessions are recalled by themselves, so that those of facts, which are many more, do not
        crowd them out.
        What stands in no tree answers only beside all of them.
        """
        columns, all_of_them = self._laid[memory].columns, len(families) == len(Family)
        allowed = np.ones(len(columns.entries), dtype=np.bool_)
        if not all_of_them:
            wanted = np.array([_FAMILY_OF[scope.kind] in families for scope in columns.scopes], dtype=np.bool_)
            allowed = wanted[columns.entry_trees]
        return Trees(
            columns=columns,
            allowed=allowed,
            vectors=None if vector is None else self._place_vectors(memory, vector),
            kinds=_leaf_rows(memory, prepared.rows, families),
            loose=all_of_them,
            apart=self._of_sessions(columns) if apart else None,
        )

    def _of_sessions(self, columns: ForestColumns) -> NDArray[np.bool_]:
        of = np.array([scope.kind is ScopeKind.SESSION for scope in columns.scopes], dtype=np.bool_)
        return of[columns.entry_trees]

    def _place_vectors(self, memory: Memory, vector: Vector) -> NodeVectors | None:
        """Where the vectors of the nodes are; looked up again when vectors came or went."""
        laid, vectors = self._laid[memory], memory.tree_vectors
        if laid.vectors_at != vectors.changes:
            columns = laid.columns
            nodes = np.flatnonzero(columns.count)
            found = vectors.rows_of([each.digest for layout in columns.layouts for each in layout.nodes()])
            laid.vector_rows = np.full(columns.size, vectors.blank_row, dtype=np.intp)
            laid.vector_rows[nodes] = found
            laid.vectors_at = vectors.changes
        picture = vectors.picture()
        if picture is None or laid.vector_rows is None or picture.dimensions != len(vector):
            return None
        return NodeVectors(picture, laid.vector_rows, quantise(vector.reshape(1, -1)))


def _state_of(memory: Memory) -> object:
    """What the layout depends on: events change trees and rows, and what is hidden opens groups."""
    return memory.user_seq, memory.hidden, memory.hidden_turns


def _at_once(steps: Generator[None, None, list[_Part]]) -> list[_Part]:
    while True:
        try:
            next(steps)
        except StopIteration as done:
            parts: list[_Part] = done.value
            return parts


def _lay_out(memory: Memory, laid: _Laid) -> Generator[None, None, list[_Part]]:
    """What columns are joined of: the trees that may be shown, in small steps; what is the same stays laid out."""
    forest, row_of = memory.forest, memory.nodes.row_of
    rows_of_facts = yield from _rows_of_facts(memory)
    trees: dict[Scope, _LaidTree] = {}
    parts: list[_Part] = []
    for scope in sorted(forest.trees, key=lambda scope: (scope.kind, scope.name)):
        tree = forest.trees.get(scope)
        if tree is None or tree.root is None or not may_be_shown(memory, scope):
            continue
        laid_tree = laid.trees.get(scope)
        if laid_tree is None or laid_tree.digest != tree.root.digest:
            laid_tree = yield from _lay_out_tree(memory, scope, tree.root, laid.chunks)
        trees[scope] = laid_tree
        known = row_of if scope.kind is ScopeKind.SESSION else rows_of_facts
        rows = map(known.get, laid_tree.names, repeat(-1))
        parts.append((scope, laid_tree.layout, np.fromiter(rows, dtype=np.intp, count=len(laid_tree.names))))
        yield
    laid.trees = trees
    return parts


def _lay_out_tree(
    memory: Memory, scope: Scope, root: Item, chunks: dict[bytes, bytes]
) -> Generator[None, None, _LaidTree]:
    """One tree; `chunks` are the ids of chunks by the keys of their leaves, and get those that are missing."""
    layout = TreeLayout.of(root)
    yield
    names = tuple(item.digest for item in layout.items)
    if scope.kind is ScopeKind.SESSION:
        yield from _look_up_chunks(memory, layout, chunks)
        names = tuple(chunks.get(name, b"") for name in names)
    return _LaidTree(root.digest, layout, names)


def _rows_of_facts(memory: Memory) -> Generator[None, None, dict[bytes, int]]:
    """By the key of its leaf, the row that each fact is found by: its own, or its group's."""
    row_of, group_of = memory.nodes.row_of, memory.units.group_of
    rows: dict[bytes, int] = {}
    for fact in tuple(memory.canon.facts.values()):
        rows[fact.occurrences[0].leaf_key] = row_of.get(group_of.get(fact.id, fact.id), -1)
        if not len(rows) % _LEAVES_AT_ONCE:
            yield
    return rows


def _look_up_chunks(memory: Memory, layout: TreeLayout, chunks: dict[bytes, bytes]) -> Generator[None, None, None]:
    """Add the ids of the chunks of a session's tree."""
    for n, item in enumerate(layout.items):
        if not isinstance(item, Leaf) or item.key in chunks:
            continue
        ref = memory.forest.leaf_ref(item.key)
        if isinstance(ref, TurnsText):
            chunks[item.key] = make_chunk_key(memory.turns[seq].key for seq in ref.turns if seq in memory.turns)
        if not n % _LEAVES_AT_ONCE:
            yield


def _leaf_rows(memory: Memory, rows: Rows, families: Collection[Family]) -> list[Rows]:
    """The rows that may answer, apart for each kind of leaf that trees of these families have."""
    kinds: list[tuple[NodeKind, ...]] = []
    if Family.ENTITY in families or Family.SCENE in families:
        kinds.append((NodeKind.FACT, NodeKind.GROUP))
    if Family.SESSION in families:
        kinds.append((NodeKind.CHUNK,))
    return [rows[memory.nodes.of_kinds(rows, each)] for each in kinds]
