"""Sweeps of the trees: target branching, concatenation budget, and when they are refreshed.

One growth a conversation serves them all; a row adds up its conversations.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Final, TypeAlias

import numpy as np

from daemon.offline.language_model import OfflineLanguageModel
from events.memory import ExtractedFact, Mention
from projections.memory import MemoryParameters
from projections.memtree.items import Leaf
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.ports import ChunkText, FactsRead
from tests.quality.growing import Grown, Step, grow_trees
from tests.quality.locomo import Conversation
from tests.quality.refreshes import Refreshed, figure_of, nodes_by_appending, nodes_by_inserting, refresh_all
from tests.quality.tables import Cell, Table
from tests.stub_models.sentences import Said, facts_of

TARGETS: Final = (4, 6, 8, 10, 12, 16)
BUDGETS: Final = (0, 200, 400, 800, 1200, 1600)
SHAPE: Final = MemoryParameters().shape
BUDGET: Final = MemoryParameters().concatenation_max
# Where nodes begin and end hangs on the nonces of a log. Figures are means over so many growths at least:
# conversations, each with as many sets of nonces as it takes.
GROWTHS: Final = 5
# The input of the write path's bars (performance.md, at the end): that many sessions of the first conversation.
WRITE_PATH_SESSIONS: Final = 8
# Trees on which inserts are counted: several levels, not a root alone.
DIRT_LEAVES_MIN: Final = 100


class SentenceModel(OfflineLanguageModel):
    """Extracts as the stub server of the write path's benchmark does: a fact for each sentence of five words."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        """The facts in the order of their turns, each at the time of its turn."""
        said = [Said(n, turn.speaker or turn.role, turn.text) for n, turn in enumerate(chunk.turns)]
        facts = [
            ExtractedFact(
                text=fact.text,
                turns=(position,),
                time_start=turn.said_at,
                time_end=turn.said_at,
                mentions=tuple(Mention(label) for label in fact.entities),
            )
            for position, turn in enumerate(chunk.turns)
            for fact in facts_of((said[position],))
        ]
        return FactsRead(tuple(facts))


async def grow_all(conversations: Iterable[Conversation]) -> tuple[Grown, ...]:
    """Each conversation grown with the offline model."""
    return tuple([await grow_trees(each) for each in conversations])


async def grow_inputs(conversations: Sequence[Conversation]) -> dict[str, tuple[Grown, ...]]:
    """What budgets and schedules are swept over, by name."""
    first = replace(conversations[0], sessions=conversations[0].sessions[:WRITE_PATH_SESSIONS])
    whole = await grow_all(conversations)
    return {
        "write path, stub's facts": (await grow_trees(first, model=SentenceModel()),),
        "write path, offline facts": await grow_all((first,)),
        f"{len(conversations)} conversations, offline facts": whole,
    }


def sweep_targets(grown: Sequence[Grown], targets: Iterable[int] = TARGETS) -> Table:
    """How the trees look under each target branching, and what keeping them costs."""
    headings = (
        "k",
        "least-most",
        "height",
        "nodes",
        "children",
        "calls a new fact",
        f"concatenated up to {BUDGET}",
        "chain",
        "made new by an append",
        "by an insert",
        "p99",
    )
    rows = [_target_row(grown, TreeShape(target)) for target in targets]
    return Table("Target branching, session by session", headings, rows)


def _target_row(grown: Sequence[Grown], shape: TreeShape) -> list[Cell]:
    # An insert is counted for every leaf, which is enough of them in one log.
    sets = [leaves for each in grown for leaves in each.final_leaves().values() if leaves]
    large: list[Sequence[Leaf]] = [*(leaves for leaves in sets if len(leaves) >= DIRT_LEAVES_MIN)] or [*sets]
    appended = [made for leaves in large for made in nodes_by_appending(leaves, shape)]
    inserted = [made for leaves in large for made in nodes_by_inserting(leaves, shape)]
    in_logs = _in_logs(grown)
    trees = [MemTree.build(leaves, shape) for each in in_logs for leaves in each.final_leaves().values() if leaves]
    figure = figure_of(trees)
    plain, short = (_Costs.of(in_logs, Grown.by_session, shape, budget) for budget in (0, BUDGET))
    return [
        shape.target,
        f"{shape.least}-{shape.most}",
        figure.height,
        figure.nodes * len(grown) / len(in_logs),
        figure.children,
        plain.calls_per_fact,
        short.calls_per_fact,
        plain.chain,
        fmean(appended),
        fmean(inserted),
        float(np.quantile(inserted, 0.99, method="higher")),
    ]


def sweep_budgets(inputs: Mapping[str, Sequence[Grown]], budgets: Iterable[int] = BUDGETS) -> Table:
    """What the concatenation of short nodes saves, and what it costs in the length of roots."""
    headings = ("input", "characters", *_COSTS, "saved")
    rows: list[Sequence[Cell]] = []
    for name, grown in inputs.items():
        in_logs = _in_logs(grown)
        costs = {budget: _Costs.of(in_logs, Grown.by_session, SHAPE, budget) for budget in (0, *budgets)}
        for budget in budgets:
            saved = 1 - costs[budget].calls / costs[0].calls if costs[0].calls else 0.0
            rows.append((name, budget, *costs[budget].cells(len(grown)), f"{100 * saved:.0f} %"))
    return Table("Concatenation budget, session by session", headings, rows)


def sweep_refreshes(inputs: Mapping[str, Sequence[Grown]]) -> Table:
    """Refreshing after every chunk, after every session, and once when all is there."""
    schedules: dict[str, _StepsOf] = {
        "every chunk": lambda grown: grown.steps,
        "every session": Grown.by_session,
        "once": Grown.at_once,
    }
    rows = [
        (name, when, budget, *_Costs.of(_in_logs(grown), steps_of, SHAPE, budget).cells(len(grown)))
        for name, grown in inputs.items()
        for when, steps_of in schedules.items()
        for budget in (0, BUDGET)
    ]
    return Table("When trees are refreshed", ("input", "refreshed", "concatenated up to", *_COSTS), rows)


_StepsOf: TypeAlias = Callable[[Grown], Sequence[Step]]
_COSTS: Final = ("calls", "a new fact", "tokens read", "characters of a root", "chain", "longest")


@dataclass(frozen=True, slots=True)
class _Costs:
    """What the refreshes of some growths ask for, all together."""

    done: tuple[Refreshed, ...]
    facts: int

    @classmethod
    def of(cls, grown: Sequence[Grown], steps_of: _StepsOf, shape: TreeShape, budget: int) -> _Costs:
        """Refresh each growth after each of its steps."""
        done = tuple(refresh_all(steps_of(each), each.lengths, shape, budget) for each in grown)
        return cls(done, sum(each.facts for each in grown))

    @property
    def calls(self) -> int:
        """Summaries that a model wrote."""
        return sum(each.calls for each in self.done)

    @property
    def calls_per_fact(self) -> float:
        """The same over the facts."""
        return self.calls / self.facts

    @property
    def chain(self) -> float:
        """Calls of a conversation that wait for each other."""
        return fmean(each.depth for each in self.done)

    def cells(self, conversations: int) -> tuple[Cell, ...]:
        """A row of `_COSTS`; calls and tokens of so many conversations in one log."""
        share = conversations / len(self.done)
        return (
            self.calls * share,
            self.calls_per_fact,
            sum(each.tokens for each in self.done) * share,
            fmean(each.root_characters for each in self.done),
            self.chain,
            max(refresh.depth for each in self.done for refresh in each.refreshes),
        )


def _in_logs(grown: Sequence[Grown]) -> list[Grown]:
    logs = -(-GROWTHS // len(grown))
    return [each.rekeyed(seed) for seed in range(logs) for each in grown]
