"""Compaction of one user: plan groups on vectors, fuse each group with one model call, record both.

The plan costs no call; a crash or a forgotten session in the middle leaves the groups that were fused, and
asking again goes on from there (algorithms.md 2, way 2).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np

from daemon.building.engine import RETRY_MIN_S, BudgetSpent
from daemon.building.fusing import Merge, decide, plan_merge
from daemon.building.live_nodes import LiveNode, copy_standing, count_nodes, find_mergeable, may_be_merged
from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.vector_source import VectorSource, Wanted
from events.appending import Batch
from events.envelope import NewEvent, Reference
from events.errors import MemForestError, StaleDecision
from events.faults import fault_point
from events.log import EventLog
from events.memory import FactId, NodesMerged, UnitId, UnitsPartitioned
from projections.eventtree.merging import MergePlan, UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import Partition, partition_nodes
from projections.ports import Embedder, ModelUnavailable, VectorCache, Vectors
from projections.texts import name_text

# Texts handed to the embedder at once.
EMBED_TEXTS_MAX = 256
# Groups recorded in one transaction.
GROUPS_AT_ONCE = 64
# How long somebody who asked for a compaction waits for a model that is not there; then they are told what waits.
PATIENCE_S = 60.0


class CompactionRunning(MemForestError):
    """A compaction of this user is running already; wait until it is done."""

    code = "busy"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did. Nodes are facts and groups; `groups` are those it made.

    `cut` is the share of facts no longer searched alone; `loss_bound` is that of the plan. Of the groups that are
    planned and not made, `parked` were given up (`parked.retry` has them tried again), and `waiting` wait for the
    model, because of what `waits_for` says: compacting again goes on with them.
    """

    facts: int
    nodes_before: int
    nodes_after: int
    cut: float
    groups: int
    units: int
    loss_bound: float
    parked: int = 0
    waiting: int = 0
    waits_for: str | None = None


@dataclass(frozen=True, slots=True)
class _Planned:
    """The outcome of the planning, off the loop."""

    partition: Partition
    plan: MergePlan


@dataclass(frozen=True, slots=True)
class _Fused:
    """A group with its text, before it is recorded."""

    work: Merge
    merged: NodesMerged


@dataclass(frozen=True, slots=True)
class _Group:
    """Nodes that are to be fused, and the unit they are in."""

    nodes: tuple[LiveNode, ...]
    unit: UnitId


@dataclass(slots=True)
class _Run:
    """The groups of one compaction that are still to be asked for, and what became of the others."""

    left: deque[_Group]
    fused: list[_Fused] = field(default_factory=list[_Fused])
    failures: list[Exception] = field(default_factory=list[Exception])
    parked: int = 0
    waiting: int = 0
    waits_for: str | None = None
    # On the loop's clock: the model answered last, or the run began.
    answered_at: float = field(default_factory=anyio.current_time)


class Compactor:
    """Compacts users, one run a user at a time."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        embedder: Embedder,
        parameters: EventTreeParameters,
        cache: VectorCache | None = None,
        patience_s: float = PATIENCE_S,
    ) -> None:
        # Groups that are planned and not fused yet, by user: part of `pending`.
        self.planned: dict[Reference, int] = {}
        self._log = log
        self._memories = memories
        self._worker = worker
        self._engine = worker.engine
        self._patience_s = patience_s
        self._embedder = embedder
        self._source = VectorSource(log, embedder, cache)
        self._parameters = parameters

    def count_planned(self, user: Reference) -> int:
        """Groups of a user that are planned and not fused yet."""
        return self.planned.get(user, 0)

    async def compact(self, user: Reference, ratio: float | None = None) -> CompactionResult:
        """Merge nodes until the ratio is reached or no merge is allowed any more.

        A model that is not there is waited for a while, and then the result says what waits; nobody waits for a
        budget. Raises `CompactionRunning`, and what the embedder or the log raises: then the groups that it did
        make stay, and the next run goes on from there.
        """
        if user in self.planned:
            raise CompactionRunning
        self.planned[user] = 0
        try:
            parameters = self._parameters if ratio is None else replace(self._parameters, ratio=ratio)
            return await self._compact(user, parameters)
        finally:
            del self.planned[user]

    async def _compact(self, user: Reference, parameters: EventTreeParameters) -> CompactionResult:
        memory = await self._memories.catch_up(user)
        groups_before = set(memory.units.groups)
        nodes_before = count_nodes(memory)
        nodes, positions = await anyio.to_thread.run_sync(find_mergeable, copy_standing(memory))
        rows = await self._embed_members(user, nodes)
        planned = await anyio.to_thread.run_sync(_plan, nodes, positions, rows, parameters)
        placed = memory.units.unit_of.keys()
        if not planned.plan.groups and all(fact in placed for node in nodes for fact in node.members):
            units = []  # nothing to merge: the units stay as they are, or each run would move them about
        else:
            units = await self._record_partition(user, nodes, planned.partition)
        run = _Run(deque())
        for group in planned.plan.groups:
            unit = units[planned.partition.labels[group[0]]]
            run.left.append(_Group(tuple(nodes[index] for index in group), unit))
        self.planned[user] = len(run.left)
        async with anyio.create_task_group() as fusing:
            for _ in range(min(len(run.left), self._engine.slots.limit)):
                fusing.start_soon(self._fuse_for_ever, user, run, name="compaction.fuse")
        if run.failures:
            raise run.failures[0]
        memory = await self._memories.catch_up(user)
        facts, after = len(memory.canon.facts), count_nodes(memory)
        return CompactionResult(
            facts=facts,
            nodes_before=nodes_before,
            nodes_after=after,
            cut=1 - after / facts if facts else 0.0,
            groups=len(memory.units.groups.keys() - groups_before),
            units=len({unit for fact, unit in memory.units.unit_of.items() if fact in memory.canon.facts}),
            loss_bound=planned.plan.loss_bound,
            parked=run.parked,
            waiting=run.waiting,
            waits_for=run.waits_for,
        )

    async def _embed_members(self, user: Reference, nodes: Sequence[LiveNode]) -> list[Vectors]:
        """The vectors of the members of all nodes, in order, in pieces of at most `EMBED_TEXTS_MAX` rows."""
        refs = [ref for node in nodes for ref in node.member_refs]
        rows: list[Vectors] = []
        for at in range(0, len(refs), EMBED_TEXTS_MAX):
            some = [Wanted(ref, name_text(ref)) for ref in refs[at : at + EMBED_TEXTS_MAX]]
            rows.append(await self._source.find(user, some))
        # An endpoint tells how wide they are with the first ones.
        return rows or [np.zeros((0, self._embedder.dimensions), dtype=np.float32)]

    async def _record_partition(
        self, user: Reference, nodes: Sequence[LiveNode], partition: Partition
    ) -> list[UnitId]:
        """Record which facts are in which unit, one event a unit, each with the lineage of its own facts."""
        units = [nodes[centre].id for centre in partition.centres]
        facts: list[list[FactId]] = [[] for _ in units]
        for node, number in zip(nodes, partition.labels, strict=True):
            facts[number].extend(node.members)
        while units:
            async with self._worker.planner(user):
                memory = await self._memories.catch_up(user)
                events: list[NewEvent] = []
                for unit, in_unit in zip(units, facts, strict=True):
                    # All of them together take tens of milliseconds. What changes meanwhile, the gate finds.
                    await anyio.lowlevel.checkpoint()
                    members = tuple(fact for fact in in_unit if fact in memory.canon.facts)
                    if any(memory.units.unit_of.get(fact) != unit for fact in members):
                        event = UnitsPartitioned(memory.parameters.generation, unit, members)
                        events.append(decide(memory, event))
                try:
                    await self._log.append(Batch(events=tuple(events)))
                except StaleDecision:
                    continue
            break
        return units

    async def _fuse_for_ever(self, user: Reference, run: _Run) -> None:
        """Fuse one group after the other until none is left, or what is left has to wait."""
        while run.left:
            group = run.left.popleft()
            try:
                await self._fuse(user, group, run)
            except ModelUnavailable as error:
                await self._put_off(group, run, error)
                continue
            except Exception as error:  # the other groups' calls are paid for and go on
                run.failures.append(error)
            self.planned[user] -= 1

    async def _fuse(self, user: Reference, group: _Group, run: _Run) -> None:
        """Have one text made for a group and record it, unless its members changed meanwhile."""
        memory = await self._memories.catch_up(user)
        work = plan_merge(memory, group.nodes, group.unit)
        if work is None:
            return
        if work.request in memory.units.parked:
            run.parked += 1
            return
        event = await self._engine.answer(user, work)
        run.answered_at = anyio.current_time()
        if event is None:
            return
        if isinstance(event.event, NodesMerged):
            run.fused.append(_Fused(work, event.event))
            await self._record_groups(user, run.fused)
        else:
            run.parked += 1
            await self._engine.record(work, event)

    async def _put_off(self, group: _Group, run: _Run, error: ModelUnavailable) -> None:
        """Wait for the model, or give all that is left up for this run once it is clear that it does not come."""
        waited_s = anyio.current_time() - run.answered_at
        if isinstance(error, BudgetSpent) or waited_s >= self._patience_s:
            run.waiting += 1 + len(run.left)
            run.left.clear()
            run.waits_for = error.reason
            return
        run.left.appendleft(group)
        await anyio.sleep(min(max(error.retry_in_s, RETRY_MIN_S), self._patience_s - waited_s))

    async def _record_groups(self, user: Reference, fused: list[_Fused]) -> None:
        """Record what is fused by now, in one transaction: the first to come takes the others' along."""
        async with self._worker.planner(user):
            while fused:
                memory = await self._memories.catch_up(user)
                taken = fused[:GROUPS_AT_ONCE]
                events = [
                    decide(memory, each.merged)
                    for each in taken
                    # A member that was forgotten, retracted or grouped otherwise, or is to stay as it is.
                    if all(may_be_merged(memory, node) for node in each.work.nodes)
                ]
                try:
                    fault_point("answer.before_append")
                    await self._log.append(Batch(events=tuple(events)))
                except StaleDecision:
                    continue
                del fused[: len(taken)]


def _plan(
    nodes: Sequence[LiveNode], positions: list[int], rows: Sequence[Vectors], parameters: EventTreeParameters
) -> _Planned:
    """Partition and plan; on a thread, since KMeans and the trees take their time. `rows` are of the members."""
    vectors = _sum_rows(nodes, np.concatenate(rows))
    ids = [index.to_bytes(4, "big") for index in range(len(nodes))]
    partition = partition_nodes(vectors, positions, ids, parameters)
    counts = [len(node.members) for node in nodes]
    unit_nodes = UnitNodes(vectors, positions, ids, partition.labels, counts)
    return _Planned(partition, plan_groups(unit_nodes, parameters))


def _sum_rows(nodes: Sequence[LiveNode], rows: Vectors) -> Vectors:
    """One unit row a node: a group's is the normalised sum of its members' rows."""
    vectors = np.zeros((len(nodes), rows.shape[1]), dtype=np.float32)
    at = 0
    for index, node in enumerate(nodes):
        total = rows[at : at + len(node.members)].sum(axis=0)
        vectors[index] = total / max(float(np.linalg.norm(total)), 1e-9)
        at += len(node.members)
    return vectors
