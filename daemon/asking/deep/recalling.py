"""Mode `deep`, its last step: the memories for a question from what a model led to, as a Memory is by then."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from daemon.asking.deep.browse import Deepened, join_leading, rank_reached
from daemon.asking.forest_recalling import ForestRecalling, Looked, show_browsed
from projections.recall.answering import Prepared, RecallRequest, choose, prepare, score_all
from projections.recall.forest_ranking import ForestFound, Trees, rank_forest, recall_forest
from projections.recall.temporal import TimeStep

if TYPE_CHECKING:
    from daemon.asking.explanations import Stopwatch
    from daemon.asking.modes import Family
    from projections.memory import Memory
    from projections.recall.nodes import NodeSet
    from projections.recall.scoring import Leading

# What is searched in the second place: what is asked, prepared, with its trees.
_Second = tuple[RecallRequest, Prepared, Trees]


async def look_at_reached(
    forest: ForestRecalling,
    memory: Memory,
    request: RecallRequest,
    families: Collection[Family],
    deepened: Deepened,
    watch: Stopwatch,
) -> Looked:
    """The memories that a model led to and that are still there, and what is found for what it says is missing."""
    request = replace(request, time=request.time or deepened.time)
    prepared, trees = await forest.prepare(memory, request, families, watch)
    second: _Second | None = None
    if deepened.again is not None:
        again = replace(
            request,
            question=deepened.again,
            query_vector=deepened.again_vector,
            elsewhere={},
            hidden=memory.hidden,
        )
        # At once, so that both are of one state of the Memory.
        own = prepare(memory.nodes, again)
        second = again, own, forest.search.look(memory, own, families, request.filters)
    rank = partial(_rank, memory.nodes, (request, prepared, trees), second, deepened)
    found, leading = await forest.run(memory, rank)
    watch.lap("score")
    recollection = choose(memory.nodes, replace(request, hidden=memory.hidden), prepared, leading)
    watch.lap("rank")
    scopes = trees.columns.scopes
    shown = [(each, deepened.reached.leaves.get(scopes[each.tree], 0)) for each in found.trees]
    browsed = show_browsed(memory, trees, shown, found)
    return Looked(recollection, browsed=replace(browsed, by="model") if deepened.reached.chosen else browsed)


def _rank(
    nodes: NodeSet, first: _Second, second: _Second | None, deepened: Deepened
) -> tuple[ForestFound, Leading]:
    request, prepared, trees = first
    scores = score_all(prepared, request)
    recalled = recall_forest(scores, trees)
    leading = rank_reached(nodes, scores, trees, recalled, deepened.reached, request.candidates)
    if second is not None:
        again, own, own_trees = second
        more = rank_forest(score_all(own, again), own_trees, again.candidates).leading
        leading = join_leading(leading, more, scores, request.candidates)
    leaves = leading.rows.size
    found = ForestFound(leading, recalled.trees, [], deepened.reached.levels, leaves, 0)
    time: TimeStep | None = prepared.time
    return found, leading if time is None else time.arrange(scores, leading, request.candidates)
