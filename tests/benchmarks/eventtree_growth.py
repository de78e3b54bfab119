"""What units that grow with a memory ask of a model and keep of its facts, against batches; one more session."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from statistics import fmean, median

import numpy as np

from daemon.config_values import ConfigInvalid
from events.eventtree import UnitId
from events.memory import FactId
from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.online import (
    Arrival,
    UnitSize,
    bootstrap_units,
    due_units,
    plan_unit,
    plan_units,
)
from projections.eventtree.parameters import EventTreeParameters, one_cap
from projections.eventtree.partition import partition_nodes
from projections.eventtree.spanning_tree import Floats
from projections.eventtree.unit_sums import UnitNode, UnitSums, directions_of
from projections.ports import Vectors
from tests.benchmarks.measuring import Figure, Row, Watch, ms, sized, spend
from tests.quality.compression_inputs import Embedding, Kind, load_inputs
from tests.quality.locomo import locomo_file

SIZES = (4_000, 10_000)
BATCH = 4_000
SESSION_SIZES = (10_000, 100_000)
SESSIONS = 12
SESSION_FACTS = 20
DIMENSIONS = 384
# A session is about so many of all topics; the next fact is mostly of the same as the last.
SESSION_TOPICS = 4

ONLINE = EventTreeParameters()
PAPER = EventTreeParameters(preset="paper")


@dataclass(frozen=True, slots=True, eq=False)
class Facts:
    """Unit rows in order of time, the places of their turns, and the facts of each session."""

    vectors: Vectors
    positions: Sequence[int]
    sessions: Sequence[Sequence[int]]

    def __len__(self) -> int:
        return len(self.positions)

    def name(self, number: int) -> FactId:
        """The id of a fact."""
        return number.to_bytes(8, "big")

    def node(self, numbers: Sequence[int]) -> UnitNode:
        """Some facts as one node."""
        total = self.vectors[list(numbers)].sum(axis=0, dtype=np.float64)
        return UnitNode(tuple(map(self.name, numbers)), total, max(self.positions[n] for n in numbers))


@dataclass(slots=True)
class Growth:
    """A memory as the daemon keeps it, without the daemon: units, groups, and how often a model was asked."""

    facts: Facts
    parameters: EventTreeParameters = ONLINE
    sums: UnitSums = field(default_factory=UnitSums)
    units: dict[UnitId, list[UnitNode]] = field(default_factory=dict[UnitId, list[UnitNode]])
    sizes: dict[UnitId, UnitSize] = field(default_factory=dict[UnitId, UnitSize])
    calls: int = 0

    def add(self, numbers: Sequence[int]) -> None:
        """A session's facts find their units, and what is due is compacted."""
        facts = self.facts
        arrivals = [Arrival(facts.name(n), facts.vectors[n], facts.positions[n]) for n in numbers]
        plan = plan_units(arrivals, self.sums, lambda unit: self.units.get(unit, ()), self.parameters)
        for unit, nodes in plan.standing.items():
            self.put(unit, list(nodes))
        self.compact_due()

    def compact_due(self) -> int:
        """Compact all units that are due; how many groups that made."""
        before = self.calls
        for unit in due_units(list(self.sizes.values()), self.parameters):
            self.compact(unit)
        return self.calls - before

    def compact(self, unit: UnitId) -> None:
        """Merge in one unit down to its target."""
        nodes = self.units[unit]
        plan = plan_unit(as_unit(nodes), self.parameters)
        merged = {index for group in plan.groups for index in group}
        made = [self.join([nodes[index] for index in group]) for group in plan.groups]
        left = [node for index, node in enumerate(nodes) if index not in merged]
        self.calls += len(made)
        self.put(unit, sorted([*left, *made], key=lambda node: node.position))

    def join(self, nodes: Sequence[UnitNode]) -> UnitNode:
        """Some nodes as one."""
        facts = tuple(fact for node in nodes for fact in node.facts)
        return UnitNode(facts, np.sum([node.vector for node in nodes], axis=0), nodes[-1].position)

    def put(self, unit: UnitId, nodes: list[UnitNode]) -> None:
        """These are the nodes of a unit now."""
        self.units[unit] = nodes
        self.sizes[unit] = UnitSize(unit, sum(len(node.facts) for node in nodes), len(nodes))
        self.sums.put(unit, nodes)

    @property
    def cut(self) -> float:
        """The share of facts without a node of their own."""
        nodes = sum(size.nodes for size in self.sizes.values())
        return 1 - nodes / sum(size.facts for size in self.sizes.values())

    @property
    def groups(self) -> list[list[int]]:
        """The facts of each group."""
        nodes = (node for inside in self.units.values() for node in inside if len(node.facts) > 1)
        return [[int.from_bytes(fact, "big") for fact in node.facts] for node in nodes]


def measure(share: float) -> list[Row]:
    """Growth of made-up memories, and of LoCoMo's where it is; a batch; one more session of a large one."""
    rows = _measure_batch(sized(BATCH, share, 200))
    for size in SIZES:
        facts = make_facts(sized(size, share, 200), seed=1)
        rows += _measure_growth(f"{len(facts):,} made-up facts", [facts])
    rows += _measure_locomo()
    rows.append(_measure_session([sized(size, share, 200) for size in SESSION_SIZES], sized(SESSIONS, share, 2)))
    return rows


def make_facts(count: int, seed: int) -> Facts:
    """Made-up facts: a topic each, what all of its session have in common, and as much again of its own.

    There is a topic for every five facts, and they follow Zipf's law with an exponent of .7. Two facts of one
    topic and session have a cosine near .4; a fact and what a batch at 50 % makes of it one near .83.
    """
    rng = np.random.default_rng(seed)
    topics = _unit_rows(rng.normal(size=(max(SESSION_TOPICS, count // 5), DIMENSIONS)))
    likely = np.arange(1, len(topics) + 1) ** -0.7
    likely /= likely.sum()
    vectors = np.empty((count, DIMENSIONS), dtype=np.float32)
    sessions = [range(at, min(count, at + SESSION_FACTS)) for at in range(0, count, SESSION_FACTS)]
    for session in sessions:
        mine = rng.choice(len(topics), SESSION_TOPICS, p=likely)
        turns = rng.random(len(session)) > 0.7
        about = mine[rng.integers(0, SESSION_TOPICS, len(session))]
        for place in range(1, len(session)):
            about[place] = about[place] if turns[place] else about[place - 1]
        common = 0.35 * _unit_rows(rng.normal(size=(1, DIMENSIONS)))
        own = 1.3 * rng.normal(size=(len(session), DIMENSIONS)) / math.sqrt(DIMENSIONS)
        vectors[session.start : session.stop] = _unit_rows(topics[about] + common + own)
    return Facts(vectors, range(count), sessions)


def _unit_rows(rows: Floats) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def as_unit(nodes: Sequence[UnitNode]) -> UnitNodes:
    """The nodes of one unit, as a plan takes them."""
    ids = [index.to_bytes(4, "big") for index in range(len(nodes))]
    counts = [len(node.facts) for node in nodes]
    rows = directions_of(nodes).astype(np.float32)
    return UnitNodes(rows, [node.position for node in nodes], ids, [0] * len(nodes), counts)


def in_batch(facts: Facts, parameters: EventTreeParameters) -> UnitNodes:
    """The facts in the units of the batch."""
    ids = [index.to_bytes(4, "big") for index in range(len(facts))]
    labels = partition_nodes(facts.vectors, facts.positions, ids, parameters).labels
    return UnitNodes(facts.vectors, facts.positions, ids, labels)


def retention(facts: Facts, groups: Sequence[Sequence[int]]) -> float:
    """The mean cosine of a fact and what stands for it."""
    kept = np.ones(len(facts))
    for group in groups:
        rows = facts.vectors[list(group)].astype(np.float64)
        total = rows.sum(axis=0)
        kept[list(group)] = rows @ (total / np.linalg.norm(total))
    return float(kept.mean())


@dataclass(frozen=True, slots=True)
class _Compared:
    """One memory, grown and in batches."""

    facts: int
    growth: Growth
    cpu_s: float
    online: float
    literal: float
    capped: float
    capped_cut: float
    equal_cut: float


def _compare(facts: Facts) -> _Compared:
    growth = Growth(facts)
    cpu_s = sum(spend(partial(growth.add, session)).thread_s for session in facts.sessions)
    nodes = in_batch(facts, ONLINE)
    capped = plan_groups(nodes, ONLINE)
    equal = replace(ONLINE, ratio=growth.cut, member_caps=one_cap(ONLINE.member_cap or 0))
    return _Compared(
        len(facts),
        growth,
        cpu_s,
        retention(facts, growth.groups),
        retention(facts, plan_groups(nodes, PAPER).groups),
        retention(facts, capped.groups),
        capped.cut,
        retention(facts, plan_groups(nodes, equal).groups),
    )


def _measure_growth(what: str, memories: Sequence[Facts]) -> list[Row]:
    """Means over the memories."""
    found = [_compare(facts) for facts in memories]
    facts = sum(each.facts for each in found)
    calls = sum(each.growth.calls for each in found)
    online, literal = fmean(each.online for each in found), fmean(each.literal for each in found)
    capped, equal = fmean(each.capped for each in found), fmean(each.equal_cut for each in found)
    asked = (
        Figure("cut", fmean(each.growth.cut for each in found)),
        Figure("calls", calls),
        Figure("units", fmean(len(each.growth.sums) for each in found)),
        Figure("cpu_ms_per_fact", ms(sum(each.cpu_s for each in found) / facts)),
    )
    grown = "that of units that grew"
    kept = Figure("grown", online)
    batch_cut = Figure("batch_cut", fmean(each.capped_cut for each in found))
    return [
        Row(f"model calls while {what} came in sessions", calls / facts, "facts added", asked, 0.5),
        Row(
            f"retention of the literal batch, {what}",
            literal / online,
            grown,
            (kept, Figure("batch", literal)),
            1 / 0.99,
        ),
        Row(
            f"retention of the batch with the same cap, {what}",
            capped / online,
            grown,
            (kept, Figure("batch", capped), batch_cut),
            1 / 0.98,
        ),
        Row(
            f"retention of that batch at the same cut, {what}",
            equal / online,
            grown,
            (kept, Figure("batch", equal)),
        ),
    ]


def _measure_locomo() -> list[Row]:
    """LoCoMo's observations with the static embedder, means of the conversations; nothing where they are not."""
    path = locomo_file()
    if path is None:
        return []
    try:
        inputs = load_inputs(path, Kind.FACTS, Embedding.STATIC)
    except ConfigInvalid:
        return []
    memories: list[Facts] = []
    for each in inputs:
        sessions = [
            [n for n, s in enumerate(each.sessions) if s == session] for session in sorted(set(each.sessions))
        ]
        memories.append(Facts(each.vectors, each.positions, sessions))
    return _measure_growth(f"LoCoMo's {sum(map(len, memories)):,} observations", memories)


def _measure_batch(count: int) -> list[Row]:
    """One call a group against one a merge."""
    facts, rows = make_facts(count, seed=1), list[Row]()
    nodes = in_batch(facts, ONLINE)
    for what, caps, goal in (
        ("default caps", ONLINE.member_caps, 0.35),
        ("cap 8", one_cap(8), 0.35),
        ("no cap", (), None),
    ):
        plan = plan_groups(nodes, replace(ONLINE, member_caps=caps))
        figures = (
            Figure("cut", plan.cut),
            Figure("groups", len(plan.groups)),
            Figure("loss_bound", plan.loss_bound),
        )
        name = f"model calls for a batch of {count:,} facts, {what}"
        rows.append(Row(name, len(plan.groups) / max(plan.merges, 1), "nodes removed", figures, goal))
    return rows


def _measure_session(sizes: Sequence[int], sessions: int) -> Row:
    """What one more session costs in memories of two sizes, compaction and looking for what is due included."""
    grown: list[tuple[Growth, Sequence[Sequence[int]]]] = []
    bootstraps: list[float] = []
    for size in sizes:
        # They come after all others and are about the same.
        facts = make_facts(size + sessions * SESSION_FACTS, seed=3)
        growth = Growth(facts)
        singles = [facts.node([number]) for number in range(size)]
        watch = Watch()
        plan = bootstrap_units(singles, ONLINE)
        bootstraps.append(watch.read().thread_s)
        for unit, nodes in plan.standing.items():
            growth.put(unit, list(nodes))
        while growth.compact_due():
            pass
        late = [range(at, at + SESSION_FACTS) for at in range(size, len(facts), SESSION_FACTS)]
        grown.append((growth, late))
    spent: list[list[float]] = [[] for _ in sizes]
    for number in range(sessions):
        # In turns, so that both sizes see the same neighbours on a shared machine.
        for costs, (memory, coming) in zip(spent, grown, strict=True):
            costs.append(spend(partial(memory.add, coming[number])).thread_s)
    smaller, larger = (median(costs) for costs in spent)
    figures = (
        Figure("larger_cpu_ms", ms(larger)),
        Figure("smaller_cpu_ms", ms(smaller)),
        Figure("larger_units", len(grown[1][0].sums)),
        Figure("larger_cut", grown[1][0].cut),
        Figure("larger_sums_mb", grown[1][0].sums.size_bytes / 1e6),
        Figure("larger_bootstrap_cpu_s", bootstraps[1]),
        Figure("smaller_bootstrap_cpu_s", bootstraps[0]),
    )
    name = f"one more session of {SESSION_FACTS} facts at {sizes[1]:,}, CPU"
    return Row(name, larger / smaller, f"the same at {sizes[0]:,}", figures, 2.0)
