"""A whole run for the tables, put together from its log."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING

from memforest.bench.records import Built, Run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from memforest.bench.flow import Plan
    from memforest.bench.log import Known


def run_of(
    plan: Plan, known: Known, daemons: Sequence[str], categories: Sequence[str], notes: Sequence[str] = ()
) -> Run:
    """Everything that was built and asked, in the order of rows and daemons."""
    return Run(
        data_set=plan.data_set,
        rows=tuple(row.name for row in plan.rows),
        daemons=tuple(daemons),
        categories=tuple(categories),
        k=plan.k,
        samples=plan.samples,
        judged=plan.judge,
        built=_sum_conversations(known.built),
        asked=tuple(known.asked.values()),
        notes=tuple(notes),
    )


def _sum_conversations(built: Mapping[tuple[str, str, int], Built]) -> tuple[Built, ...]:
    """One for each daemon and conversation, whose stages go on from each other."""
    stages: dict[tuple[str, str], list[Built]] = defaultdict(list)
    for (daemon, conversation_id, _), each in sorted(built.items()):
        stages[daemon, conversation_id].append(each)
    return tuple(_sum(each) for each in stages.values())


def _sum(stages: Sequence[Built]) -> Built:
    return replace(
        stages[-1],  # sessions and facts are counted over all of the conversation each time
        turns=sum(each.turns for each in stages),
        wall_s=sum(each.wall_s for each in stages),
        calls=sum(each.calls for each in stages),
        tokens=sum(each.tokens for each in stages),
        cost=sum(each.cost for each in stages),
        resumed=any(each.resumed for each in stages),
    )
