"""Modes `forest` and `roots`: the memories for a question, found through the trees of a Memory that is loaded."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, TypeVar

import numpy as np
from anyio import to_thread
from msgspec.structs import replace as replace_struct

from daemon.asking.answer_types import Browsed, TreeRecalled
from daemon.asking.passing import Passing
from daemon.asking.tree_nodes import may_be_shown, scope_name, tree_id
from projections.memtree.items import Leaf
from projections.recall.answering import Prepared, RecallRequest, Recollection, choose, prepare, score_all
from projections.recall.filters import NO_FILTERS
from projections.recall.forest_ranking import ForestFound, Trees, rank_forest
from projections.recall.root_recall import RootFound, find_roots
from projections.recall.rows import NodeKind, SearchNode
from projections.recall.selecting import Recalled
from projections.texts import FactText, TurnsText

if TYPE_CHECKING:
    from collections.abc import Collection

    from daemon.asking.explanations import Stopwatch
    from daemon.asking.forest_search import ForestSearch
    from daemon.asking.modes import Family
    from daemon.asking.word_search import WordSearch
    from projections.memory import Memory
    from projections.recall.forest_recall import RecalledTree
    from projections.recall.scoring import Leading, Scores
    from projections.texts import TextRef

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Looked:
    """What recall found; `together` and `browsed` as in `Found`."""

    recollection: Recollection
    together: Mapping[bytes, tuple[TextRef, ...]] = field(default_factory=dict[bytes, "tuple[TextRef, ...]"])
    browsed: Browsed | None = None


@dataclass(frozen=True, slots=True)
class ForestRecalling:
    """Goes down the trees of a Memory; from `nodes_on_loop_max` nodes on in another thread."""

    search: ForestSearch
    nodes_on_loop_max: int
    words: WordSearch | None = None

    async def look(
        self,
        memory: Memory,
        request: RecallRequest,
        families: Collection[Family],
        watch: Stopwatch,
        *,
        explains: bool,
    ) -> Looked:
        """The leaves of the trees that a question recalls (mode `forest`); `explains`: and how they were found."""
        prepared, trees = await self.prepare(memory, request, families, watch, apart=True)
        found, leading = await self.run(memory, partial(_rank, prepared, request, trees))
        watch.lap("score")
        # Something may have been forgotten meanwhile.
        recollection = choose(memory.nodes, replace(request, hidden=memory.hidden), prepared, leading)
        watch.lap("rank")
        if not explains:
            return Looked(recollection)
        shown = list(zip(found.trees, found.reached, strict=True))
        return Looked(recollection, browsed=show_browsed(memory, trees, shown, found))

    async def look_at_roots(
        self, memory: Memory, request: RecallRequest, families: Collection[Family], watch: Stopwatch
    ) -> Looked:
        """The summaries of the trees that a question recalls (mode `roots`), the best k that are written."""
        prepared, trees = await self.prepare(memory, request, families, watch)
        is_filtered = prepared.rows.size < len(memory.nodes) or request.filters != NO_FILTERS
        scores, roots = await self.run(memory, partial(_find_roots, prepared, request, trees, is_filtered))
        watch.lap("score")
        found = [each for each in roots if _has_text(memory, trees, each)][: request.k]
        # How sure the answer is follows from the best leaves below: words of summaries are in no index.
        below = np.unique(np.concatenate([each.rows for each in found])) if found else prepared.rows[:0]
        below = below[np.isin(below, prepared.rows)]
        judged = choose(memory.nodes, request, prepared, scores.best(request.candidates, below))
        passing = Passing.of(memory, request.filters)
        memories = [_remember(passing, each) for each in found]
        recollection = replace(
            judged, memories=memories, ranked=(), selected=[], inside={}, narrowed=frozenset[bytes]()
        )
        watch.lap("rank")
        together = {
            recalled.node.id: memory.forest.refs_of(each.item)
            for each, recalled in zip(found, memories, strict=True)
        }
        shown = [(each.tree, 0) for each in roots]
        return Looked(recollection, together, show_browsed(memory, trees, shown, None))

    async def prepare(
        self,
        memory: Memory,
        request: RecallRequest,
        families: Collection[Family],
        watch: Stopwatch,
        *,
        apart: bool = False,
    ) -> tuple[Prepared, Trees]:
        """What a question needs of the nodes and trees of a Memory as they stand; `apart` as of `ForestSearch`.

        With vectors also by words that are related to those of the question, where there are vectors of words.
        """
        related = None
        if self.words is not None and request.query_vector is not None:
            related = await self.words.find(memory, request.question)
            watch.lap("words")
        await self.search.columns(memory, by_vectors=request.query_vector is not None)
        watch.lap("trees")
        prepared = prepare(memory.nodes, replace(request, hidden=memory.hidden, related=related))
        trees = self.search.look(memory, prepared, families, request.filters, apart=apart)
        watch.lap("filter")
        return prepared, trees

    async def run(self, memory: Memory, rank: Callable[[], T]) -> T:
        """What takes long for many nodes, elsewhere then."""
        if memory.nodes.size <= self.nodes_on_loop_max:
            return rank()
        return await to_thread.run_sync(rank, abandon_on_cancel=True)


def _rank(prepared: Prepared, request: RecallRequest, trees: Trees) -> tuple[ForestFound, Leading]:
    scores = score_all(prepared, request)
    found = rank_forest(scores, trees, request.candidates)
    if prepared.time is None:
        return found, found.leading
    return found, prepared.time.arrange(scores, found.leading, request.candidates)


def _find_roots(
    prepared: Prepared, request: RecallRequest, trees: Trees, is_filtered: bool
) -> tuple[Scores, list[RootFound]]:
    scores = score_all(prepared, request)
    return scores, find_roots(scores, trees, is_filtered=is_filtered)


def _has_text(memory: Memory, trees: Trees, root: RootFound) -> bool:
    """Whether a root is written, and its tree may be shown; both may have changed while another thread ranked."""
    if not may_be_shown(memory, trees.columns.scopes[root.tree.tree]):
        return False
    if isinstance(root.item, Leaf):
        return bool(root.rows.size) and memory.forest.leaf_ref(root.item.key) is not None
    return memory.forest.has_text(root.item)


def _remember(passing: Passing, root: RootFound) -> Recalled:
    """A root as a memory of an answer; that of a tree with one leaf is what the leaf stands for."""
    memory, nodes, item, rows = passing.memory, passing.memory.nodes, root.item, root.rows
    score, refs = root.tree.score, memory.forest.refs_of(item)
    if isinstance(item, Leaf):
        # Its row may be that of a group, which rests on more and was said later.
        turns = _turns_in(passing, refs[0])
        said_at = max(memory.turns[turn].said_at for turn in turns)
        told = replace_struct(nodes.node(int(rows[0])), turns=turns, said_at=said_at)
        return Recalled(told, score, score, 0.0)
    node = SearchNode(
        id=item.digest,
        kind=NodeKind.SUMMARY,
        ref=refs[0],
        turns=tuple(sorted({turn for ref in refs for turn in _turns_in(passing, ref)})),
        sessions=frozenset(),
        said_at=int(nodes.said_at(rows).max(initial=item.time_start)),
        time_start=item.time_start,
        time_end=item.time_end,
        length=memory.forest.length_of(item),
    )
    return Recalled(node, score, score, 0.0)


def _turns_in(passing: Passing, ref: TextRef) -> tuple[int, ...]:
    """The turns whose words are in a text. In one that was written about many nobody knows whose are."""
    if isinstance(ref, TurnsText):
        return ref.turns
    fact = passing.memory.canon.holder(ref.occurrence) if isinstance(ref, FactText) else None
    return () if fact is None else passing.fact(fact).turns


def show_browsed(
    memory: Memory, trees: Trees, recalled: Sequence[tuple[RecalledTree, int]], found: ForestFound | None
) -> Browsed:
    """The way down, for people; each recalled tree with how many of its leaves were reached.

    Without trees of which something was forgotten since they were laid out.
    """
    return Browsed(
        by="words" if trees.vectors is None else "vectors",
        trees=[
            _show_tree(memory, trees, tree, leaves)
            for tree, leaves in recalled
            if may_be_shown(memory, trees.columns.scopes[tree.tree])
        ],
        levels=0 if found is None else found.levels,
        leaves=0 if found is None else found.leaves,
        loose=0 if found is None else found.loose,
    )


def _show_tree(memory: Memory, trees: Trees, recalled: RecalledTree, leaves: int) -> TreeRecalled:
    columns = trees.columns
    scope = columns.scopes[recalled.tree]
    is_root = recalled.place == int(columns.starts[recalled.tree])
    return TreeRecalled(
        id=tree_id(memory.user, scope),
        kind=scope.kind,
        scope=scope_name(memory, scope),
        score=recalled.score,
        by_root=recalled.by_root,
        by_fact=recalled.by_fact,
        node=None if is_root else columns.item(recalled.place).digest.hex(),
        leaves=leaves,
    )
