"""Compaction of one user: plan groups on vectors, fuse each group with one model call, record both.

The plan costs no call; a crash or a forgotten session in the middle leaves the groups that were fused, and
asking again goes on from there (algorithms.md 2, way 2).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import anyio
import numpy as np

from daemon.building.work import AnswerInvalid
from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.texts import read_texts
from daemon.vector_source import VectorSource, Wanted, name_text
from events.appending import Batch
from events.envelope import NewEvent, Reference, identify
from events.errors import MemForestError, StaleDecision
from events.log import EventLog
from events.memory import FactId, NodesMerged, UnitId, UnitsPartitioned
from projections.eventtree.merging import MergePlan, UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import Partition, partition_nodes
from projections.facts.canonical import Fact
from projections.memory import Memory
from projections.ports import Embedder, LanguageModel, MemberText, VectorCache, Vectors
from projections.texts import FactText, TextRef, WrittenText, events_behind

# Texts handed to the embedder at once.
EMBED_TEXTS_MAX = 256
# Groups recorded in one transaction.
GROUPS_AT_ONCE = 64


class CompactionRunning(MemForestError):
    """A compaction of this user is running already; wait until it is done."""

    code = "busy"


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did. Nodes are facts and groups; `groups` are those it made.

    `cut` is the share of facts no longer searched alone; `loss_bound` is that of the plan.
    """

    facts: int
    nodes_before: int
    nodes_after: int
    cut: float
    groups: int
    units: int
    loss_bound: float


@dataclass(frozen=True, slots=True)
class _LiveNode:
    """A fact, or a group that replaced several: what a compaction starts from.

    `place` orders nodes by what was said, not by their ids, which differ from store to store: the same
    conversation is compacted the same way everywhere.
    """

    id: bytes
    members: tuple[FactId, ...]
    ref: TextRef
    said_at: int
    place: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class _Planned:
    """The outcome of the planning, off the loop."""

    partition: Partition
    plan: MergePlan


@dataclass(frozen=True, slots=True)
class _Fused:
    """A group with its text, before it is recorded."""

    members: list[_LiveNode]
    unit: UnitId
    text: str


@dataclass(frozen=True, slots=True)
class _Run:
    """What the model calls of one compaction came to so far."""

    fused: list[_Fused] = field(default_factory=list[_Fused])
    failures: list[Exception] = field(default_factory=list[Exception])


class Compactor:
    """Compacts users, one run a user at a time."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        model: LanguageModel,
        embedder: Embedder,
        parameters: EventTreeParameters,
        cache: VectorCache | None = None,
    ) -> None:
        # Groups that are planned and not fused yet, by user: part of `pending`.
        self.planned: dict[Reference, int] = {}
        self._log = log
        self._memories = memories
        self._worker = worker
        self._model = model
        self._embedder = embedder
        self._source = VectorSource(log, embedder, cache)
        self._parameters = parameters

    def count_planned(self, user: Reference) -> int:
        """Groups of a user that are planned and not fused yet."""
        return self.planned.get(user, 0)

    async def compact(self, user: Reference, ratio: float | None = None) -> CompactionResult:
        """Merge nodes until the ratio is reached or no merge is allowed any more.

        Raises `CompactionRunning`, and whatever the embedder or the model raises: then the groups that it did
        fuse stay, and the next run goes on from there.
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
        live = live_nodes(memory)
        nodes = [node for node in live if _may_be_merged(memory, node)]
        positions = _positions(memory, nodes)
        vectors = await self._embed_nodes(memory, nodes)
        planned = await anyio.to_thread.run_sync(_plan, nodes, positions, vectors, parameters)
        placed = memory.units.unit_of.keys()
        if not planned.plan.groups and all(fact in placed for node in nodes for fact in node.members):
            units = []  # nothing to merge: the units stay as they are, or each run would move them about
        else:
            units = await self._record_partition(user, nodes, planned.partition)
        self.planned[user] = len(planned.plan.groups)
        run = _Run()
        async with anyio.create_task_group() as fusing:
            for group in planned.plan.groups:
                members = [nodes[index] for index in group]
                unit = units[planned.partition.labels[group[0]]]
                fusing.start_soon(self._fuse, user, members, unit, run, name="compaction.fuse")
        if run.failures:
            raise run.failures[0]
        memory = await self._memories.catch_up(user)
        facts, after = len(memory.canon.facts), len(live_nodes(memory))
        return CompactionResult(
            facts=facts,
            nodes_before=len(live),
            nodes_after=after,
            cut=1 - after / facts if facts else 0.0,
            groups=len(memory.units.groups.keys() - groups_before),
            units=len({unit for fact, unit in memory.units.unit_of.items() if fact in memory.canon.facts}),
            loss_bound=planned.plan.loss_bound,
        )

    async def _embed_nodes(self, memory: Memory, nodes: Sequence[_LiveNode]) -> Vectors:
        """One unit row a node: a group's is the normalised sum of its members' rows."""
        facts = [memory.canon.facts[fact] for node in nodes for fact in node.members]
        rows = await self._embed_facts(memory.user, facts)
        vectors = np.zeros((len(nodes), rows.shape[1]), dtype=np.float32)
        at = 0
        for index, node in enumerate(nodes):
            total = rows[at : at + len(node.members)].sum(axis=0)
            vectors[index] = total / max(float(np.linalg.norm(total)), 1e-9)
            at += len(node.members)
        return vectors

    async def _embed_facts(self, user: Reference, facts: Sequence[Fact]) -> Vectors:
        rows: list[Vectors] = []
        for at in range(0, len(facts), EMBED_TEXTS_MAX):
            some = facts[at : at + EMBED_TEXTS_MAX]
            refs = [FactText(fact.first.pointer) for fact in some]
            rows.append(await self._source.find(user, [Wanted(ref, name_text(ref)) for ref in refs]))
        # An endpoint tells how wide they are with the first ones.
        return np.concatenate(rows) if rows else np.zeros((0, self._embedder.dimensions), dtype=np.float32)

    async def _record_partition(
        self, user: Reference, nodes: Sequence[_LiveNode], partition: Partition
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
                    members = tuple(fact for fact in in_unit if fact in memory.canon.facts)
                    if any(memory.units.unit_of.get(fact) != unit for fact in members):
                        event = UnitsPartitioned(memory.parameters.generation, unit, members)
                        events.append(_decision(memory, event))
                try:
                    await self._log.append(Batch(events=tuple(events)))
                except StaleDecision:
                    continue
            break
        return units

    async def _fuse(self, user: Reference, members: list[_LiveNode], unit: UnitId, run: _Run) -> None:
        """Ask for one text for a group and record it, unless its members changed meanwhile."""
        try:
            refs = [node.ref for node in members]
            async with self._worker.slots:
                texts = await read_texts(self._log, refs)
                if None in texts:
                    return
                async with self._memories.use(user) as memory:
                    times = [memory.nodes.node(memory.nodes.row_of[node.id]) for node in members
                             if node.id in memory.nodes.row_of]  # fmt: skip
                if len(times) < len(members):
                    return
                text = await self._model.merge(
                    [
                        MemberText(text or "", node.time_start, node.time_end)
                        for text, node in zip(texts, times, strict=True)
                    ]
                )
            if not text.strip():
                raise AnswerInvalid("the text of a group is empty")
            run.fused.append(_Fused(members, unit, text))
            await self._record_groups(user, run.fused)
        except Exception as error:  # the other groups' calls are paid for and go on
            run.failures.append(error)
        finally:
            self.planned[user] -= 1

    async def _record_groups(self, user: Reference, fused: list[_Fused]) -> None:
        """Record what is fused by now, in one transaction: the first to come takes the others' along."""
        async with self._worker.planner(user):
            while fused:
                memory = await self._memories.catch_up(user)
                taken = fused[:GROUPS_AT_ONCE]
                events = [
                    _decision(memory, self._merged(memory, each))
                    for each in taken
                    # A member that was forgotten, retracted or grouped otherwise, or is to stay as it is.
                    if all(_may_be_merged(memory, node) for node in each.members)
                ]
                try:
                    await self._log.append(Batch(events=tuple(events)))
                except StaleDecision:
                    continue
                del fused[: len(taken)]

    def _merged(self, memory: Memory, fused: _Fused) -> NodesMerged:
        facts = tuple(fact for node in fused.members for fact in node.members)
        sources = tuple(sorted(events_behind(node.ref for node in fused.members)))
        return NodesMerged(memory.parameters.generation, fused.unit, facts, sources, self._model.name, fused.text)


def live_nodes(memory: Memory) -> list[_LiveNode]:
    """The EventTree nodes of a user: groups, and facts that are in none; in time order."""
    nodes = [
        _LiveNode(fact.id, (fact.id,), FactText(fact.first.pointer), fact.first.said_at, _place(fact))
        for fact in memory.canon.facts.values()
        if fact.id not in memory.units.group_of
    ]
    for group in memory.units.groups.values():
        facts = [memory.canon.facts[member] for member in group.members]
        last = max(facts, key=_place)
        text = WrittenText(group.seq)
        nodes.append(_LiveNode(group.id, group.members, text, last.first.said_at, _place(last)))
    return sorted(nodes, key=lambda node: node.place)


def _may_be_merged(memory: Memory, node: _LiveNode) -> bool:
    fact = memory.canon.facts.get(node.id)
    return node.id in memory.nodes.row_of and not (fact is not None and fact.pinned)


def _place(fact: Fact) -> tuple[int, int, int, int]:
    """Time, turn, number and event: where a fact was said. No two facts share a place.

    The event tells a corrected fact, whose number is 0, from the first one that was extracted of its turns.
    """
    return fact.first.said_at, fact.first.turns[-1], fact.first.pointer.n, fact.first.pointer.seq


def _positions(memory: Memory, nodes: list[_LiveNode]) -> list[int]:
    """Where each node's source turn stands among all turns in time order."""
    instants = sorted({turn.said_at for turn in memory.turns.values()})
    place = {instant: index for index, instant in enumerate(instants)}
    return [place[node.said_at] for node in nodes]


def _plan(
    nodes: list[_LiveNode], positions: list[int], vectors: Vectors, parameters: EventTreeParameters
) -> _Planned:
    """Partition and plan; on a thread, since KMeans and the trees take their time."""
    ids = [index.to_bytes(4, "big") for index in range(len(nodes))]
    partition = partition_nodes(vectors, positions, ids, parameters)
    counts = [len(node.members) for node in nodes]
    unit_nodes = UnitNodes(vectors, positions, ids, partition.labels, counts)
    return _Planned(partition, plan_groups(unit_nodes, parameters))


def _decision(memory: Memory, event: UnitsPartitioned | NodesMerged) -> NewEvent:
    """An event about facts, with the sessions their words come from as lineage."""
    firsts = [memory.canon.facts[fact].first for fact in event.members]
    basis = memory.user_seq
    what = identify(b"mf.decision", event.unit, *event.members, basis.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=event,
        key=f"{event.wire_name}/{what}",
        happened_at=max(first.said_at for first in firsts),
        lineage=tuple(sorted({first.session for first in firsts})),
        basis=basis,
    )
