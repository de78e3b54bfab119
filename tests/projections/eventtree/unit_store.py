"""A stand-in for what is recorded of units: deltas are applied to it, and nodes are put together of it."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from events.eventtree import UnitId
from events.memory import FactId
from projections.eventtree.merging import UnitNodes
from projections.eventtree.online import Arrival, UnitsPlan, plan_unit, plan_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats
from projections.eventtree.unit_sums import AnyVector, UnitNode, UnitSums
from projections.ports import Vectors

SMALL = EventTreeParameters(unit_cap=8)
WITHOUT_SPLITS = EventTreeParameters(unit_cap=10_000)


def made_up_rows(seed: int, count: int, *, tie_heavy: bool = False) -> Vectors:
    """Facts of a few topics, the next one mostly of the same."""
    print("seed", seed)
    rng = np.random.default_rng(seed)
    if tie_heavy:
        drawn = rng.integers(0, 4, count)
        return np.array([[1, 0], [0, 1], [0.6, 0.8], [-0.8, 0.6]], dtype=np.float32)[drawn]
    topics = rng.normal(size=(max(3, count // 10), 8))
    about = np.repeat(rng.integers(0, len(topics), count), 2)[:count]
    rows = topics[about] + 0.7 * rng.normal(size=(count, 8))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def at_degrees(*degrees: float) -> Vectors:
    return np.array([(math.cos(math.radians(d)), math.sin(math.radians(d))) for d in degrees], np.float32)


def nodes_at(*degrees: float, first: int = 0) -> list[UnitNode]:
    return [UnitNode((b"f%03d" % number,), row, number) for number, row in enumerate(at_degrees(*degrees), first)]


def direction(vector: AnyVector) -> Floats:
    exact = vector.astype(np.float64)
    length = float(np.linalg.norm(exact))
    return exact / length if length else exact


@dataclass
class Store:
    """The unit of each fact and the groups. Nodes are put together of it whenever they are asked for."""

    rows: Vectors
    parameters: EventTreeParameters
    positions: list[int]
    names: list[FactId]
    unit_of: dict[FactId, UnitId] = field(default_factory=dict[FactId, UnitId])
    groups: list[frozenset[FactId]] = field(default_factory=list[frozenset[FactId]])
    sums: UnitSums = field(default_factory=UnitSums)
    fetched: list[UnitId] = field(default_factory=list[UnitId])

    def __post_init__(self) -> None:
        self.number = {name: number for number, name in enumerate(self.names)}

    def node(self, facts: Sequence[FactId]) -> UnitNode:
        numbers = sorted((self.positions[self.number[fact]], self.number[fact]) for fact in facts)
        total = self.rows[[number for _, number in numbers]].sum(axis=0, dtype=np.float64)
        return UnitNode(tuple(self.names[number] for _, number in numbers), total, numbers[-1][0])

    def nodes(self, unit: UnitId) -> list[UnitNode]:
        inside = [fact for fact in self.names if self.unit_of.get(fact) == unit]
        group_of = {fact: group for group in self.groups for fact in group}
        nodes = {group_of.get(fact, frozenset({fact})): None for fact in inside}
        made = [self.node(sorted(facts)) for facts in nodes]
        return sorted(made, key=lambda node: (node.position, self.number[node.facts[-1]]))

    def fetch(self, unit: UnitId) -> list[UnitNode]:
        self.fetched.append(unit)
        return self.nodes(unit)

    def arrive(self, numbers: Sequence[int]) -> UnitsPlan:
        arrivals = [Arrival(self.names[n], self.rows[n], self.positions[n]) for n in numbers]
        self.fetched.clear()
        plan = plan_units(arrivals, self.sums, self.fetch, self.parameters)
        self.unit_of.update((fact, each.unit) for each in plan.moved for fact in each.facts)
        for unit, nodes in plan.standing.items():
            self.sums.put(unit, nodes)
        return plan

    def compact(self, unit: UnitId) -> None:
        nodes = self.nodes(unit)
        for group in plan_unit(as_one_unit(nodes), self.parameters).groups:
            facts = frozenset(fact for index in group for fact in nodes[index].facts)
            self.groups = [each for each in self.groups if not each <= facts] + [facts]
        self.sums.put(unit, self.nodes(unit))

    def units(self) -> dict[UnitId, list[UnitNode]]:
        return {unit: self.nodes(unit) for unit in dict.fromkeys(self.unit_of.values())}


def as_one_unit(nodes: Sequence[UnitNode]) -> UnitNodes:
    return UnitNodes(
        np.array([direction(node.vector) for node in nodes], dtype=np.float32),
        [node.position for node in nodes],
        [index.to_bytes(4, "big") for index in range(len(nodes))],
        [0] * len(nodes),
        [len(node.facts) for node in nodes],
    )


def a_store(rows: Vectors, parameters: EventTreeParameters = SMALL, names: list[FactId] | None = None) -> Store:
    count = len(rows)
    return Store(rows, parameters, list(range(count)), names or [b"f%04d" % n for n in range(count)])


def live_through(store: Store, seed: int) -> None:
    """Sessions of a few facts; now and then a unit is compacted."""
    chance, at = random.Random(seed), 0
    while at < len(store.rows):
        end = min(len(store.rows), at + chance.randrange(1, 9))
        store.arrive(range(at, end))
        at = end
        if chance.random() < 0.7:
            store.compact(chance.choice(list(dict.fromkeys(store.unit_of.values()))))
