"""The paper's own way of compacting (preset "paper"): one pair after the other, each text embedded anew.

Every merge waits for the one before it, and is recorded before the next is asked for; so a run that is broken off
has done what it did, and the next one goes on from the nodes that stand (paper A, section 3.3; algorithms.md 2,
way 1).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias

import anyio
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from daemon.building.compacted import LOSS_UNIT, Counts, Progress
from daemon.building.compaction_plans import EMBED_TEXTS_MAX, Start
from daemon.building.engine import RETRY_MIN_S, BudgetSpent
from daemon.building.fusing import Merge, plan_merge
from daemon.building.live_nodes import LiveNode, MergeRules, Stays, may_be_merged, nodes_of
from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.vector_source import VectorSource, Wanted
from events.envelope import NewEvent, Reference
from events.eventtree import NodesMerged, UnitId
from projections.eventtree.literal import PairwiseMerges, step_pairwise
from projections.eventtree.merging import UnitNodes
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory
from projections.ports import ModelUnavailable, Vectors
from projections.spaces import OURS
from projections.texts import name_text

Row: TypeAlias = NDArray[np.floating[Any]]
Steps: TypeAlias = Generator[tuple[int, int], Row, PairwiseMerges]
# What a run starts from, by the Memory of then.
LoadStarts: TypeAlias = Callable[[Memory, MergeRules], Awaitable[tuple[list[Start], Mapping[Stays, int]]]]


class _Changed(Exception):
    """A node of the chain is not there any more, or is to stay: what follows was planned on it."""


class _Ended(Exception):
    """A merge was given up or has to wait, and all that would follow with it."""


@dataclass(slots=True, eq=False)
class _Chain:
    """The nodes by number, those given and those made, with their rows and what they cost so far."""

    nodes: list[LiveNode]
    units: list[UnitId]
    rows: list[Row]
    losses: list[int]

    def add(self, node: LiveNode, unit: UnitId, row: Row, loss: int) -> None:
        """The next node, made of two others."""
        self.nodes.append(node)
        self.units.append(unit)
        self.rows.append(row)
        self.losses.append(loss)

    def cost_of(self, one: int, other: int) -> int:
        """What the two cost as one: (1 - mix) sqrt(2 - 2 rho) for the lighter one (Eq. 15), and what they did."""
        rho = float(np.dot(self.rows[one], self.rows[other]))
        counts = len(self.nodes[one].members), len(self.nodes[other].members)
        loss = max(counts) / sum(counts) * math.sqrt(max(0.0, 2 - 2 * rho))
        return round(loss * LOSS_UNIT) + self.losses[one] + self.losses[other]


@dataclass(slots=True)
class Pairwise:
    """Compacts one user pair by pair."""

    memories: Memories
    worker: Worker
    source: VectorSource
    patience_s: float
    counts: Counts = field(default_factory=Counts)

    async def run(
        self,
        user: Reference,
        parameters: EventTreeParameters,
        rules: MergeRules,
        progress: Progress,
        load: LoadStarts,
    ) -> Counts:
        """Merge until each unit has reached the ratio. Raises what the embedder or the log raises.

        When a node goes meanwhile, it is planned again from those that stand. Memories of other systems are left
        as they are: nobody here can embed a text as their model would.
        """
        while True:
            memory = await self.memories.catch_up(user)
            starts, _ = await load(memory, rules)
            start = next((each for each in starts if each.space == OURS), None)
            if start is None:
                return self.counts
            chain = await self._begin(memory, start)
            progress.groups = progress.done + _count_merges(chain, parameters)
            try:
                await self._follow(user, chain, start, parameters, rules, progress)
            except _Changed:
                continue
            except _Ended:
                self.counts.waiting += progress.left - self.counts.parked
            return self.counts

    async def _begin(self, memory: Memory, start: Start) -> _Chain:
        """The nodes that stand, facts and groups, each with the vector of its own text."""
        unit_of = memory.units.unit_of
        nodes = [node for node in start.mergeable.nodes if node.members[0] in unit_of]
        wanted = [Wanted(node.ref, name_text(node.ref)) for node in nodes]
        rows: list[Row] = []
        for at in range(0, len(wanted), EMBED_TEXTS_MAX):
            rows += list(await self.source.find(memory.user, wanted[at : at + EMBED_TEXTS_MAX]))
        units = [unit_of[node.members[0]] for node in nodes]
        return _Chain(nodes, units, rows, [start.losses.get(node.id, 0) for node in nodes])

    async def _follow(
        self,
        user: Reference,
        chain: _Chain,
        start: Start,
        parameters: EventTreeParameters,
        rules: MergeRules,
        progress: Progress,
    ) -> None:
        """Fuse the pairs in their order."""
        place = {node.id: at for node, at in zip(start.mergeable.nodes, start.mergeable.positions, strict=True)}
        steps = step_pairwise(_as_unit_nodes(chain, [place[node.id] for node in chain.nodes]), parameters)
        row: Row | None = None
        while (pair := await anyio.to_thread.run_sync(_step, steps, row)) is not None:
            one, other = pair
            nodes = chain.nodes[one], chain.nodes[other]
            loss = chain.cost_of(one, other)
            made = await self._fuse(user, nodes, chain.units[one], loss, rules)
            progress.done += 1
            progress.fused += 1
            written: Row = (await self.source.find(user, [Wanted(made.ref, name_text(made.ref))]))[0]
            chain.add(made, chain.units[one], written, loss)
            row = written

    async def _fuse(
        self, user: Reference, nodes: tuple[LiveNode, ...], unit: UnitId, loss: int, rules: MergeRules
    ) -> LiveNode:
        """Have one text made for two nodes, record it, and return the node that stands for them."""
        memory = await self.memories.catch_up(user)
        work = plan_merge(memory, nodes, unit, loss)
        if work is None or not all(may_be_merged(memory, node, rules) for node in work.nodes):
            raise _Changed
        if work.request in memory.units.parked:
            self.counts.parked += 1
            raise _Ended
        event = await self._ask(user, work)
        if not isinstance(event.event, NodesMerged):
            self.counts.parked += 1
            await self.worker.engine.record(work, event)
            raise _Ended
        self.counts.take(event.event)
        await self.worker.recorder.record(work, event)
        made = nodes_of(await self.memories.catch_up(user), work.facts, rules)
        if [node.id for node in made] != [work.request]:
            raise _Changed
        return made[0]

    async def _ask(self, user: Reference, work: Merge) -> NewEvent:
        """The answer, once the model is there. Raises `_Changed` when there is nothing to ask any more."""
        since = anyio.current_time()
        while True:
            try:
                event = await self.worker.engine.answer(user, work)
            except ModelUnavailable as error:
                waited_s = anyio.current_time() - since
                if isinstance(error, BudgetSpent) or waited_s >= self.patience_s:
                    self.counts.waits_for = error.reason
                    raise _Ended from None
                await anyio.sleep(min(max(error.retry_in_s, RETRY_MIN_S), self.patience_s - waited_s))
                continue
            if event is None:
                raise _Changed
            return event


def _step(steps: Steps, row: Row | None) -> tuple[int, int] | None:
    """The next pair, given the row of the last; None at the end."""
    try:
        return next(steps) if row is None else steps.send(row)
    except StopIteration:
        return None


def _as_unit_nodes(chain: _Chain, positions: Sequence[int]) -> UnitNodes:
    numbers = {unit: number for number, unit in enumerate(dict.fromkeys(chain.units))}
    ids = [index.to_bytes(4, "big") for index in range(len(chain.nodes))]
    width = len(chain.rows[0]) if chain.rows else 0
    vectors: Vectors = np.array(chain.rows, dtype=np.float32).reshape(len(chain.rows), width)
    counts = [len(node.members) for node in chain.nodes]
    return UnitNodes(vectors, positions, ids, [numbers[unit] for unit in chain.units], counts)


def _count_merges(chain: _Chain, parameters: EventTreeParameters) -> int:
    """How many merges bring every unit to the ratio."""
    live = Counter(chain.units)
    facts: Counter[UnitId] = Counter()
    for node, unit in zip(chain.nodes, chain.units, strict=True):
        facts[unit] += len(node.members)
    return sum(max(0, live[unit] - parameters.live_target(facts[unit])) for unit in live)
