"""Units that grow with the memory: a new fact joins one, a full one is split, one that outgrew is planned.

A new fact costs a scan of the unit sums and one unit, where a batch (`partition`) costs the square of all. Pure:
no clock, no model; ties go by the order in which nodes are given, which is that of time.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

from events.envelope import identify
from events.eventtree import UnitId, UnitMembers
from events.memory import FactId
from projections.eventtree.merging import MergePlan, UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import partition_nodes
from projections.eventtree.spanning_tree import Floats, on_grid
from projections.eventtree.unit_sums import (
    AnyVector,
    Newcomers,
    UnitNode,
    UnitSums,
    centre_of,
    direction_of,
    directions_of,
    stack,
)

# The nodes of a unit in time order: what is fetched when a unit is touched. Called at most once a unit and plan.
FetchNodes: TypeAlias = Callable[[UnitId], Sequence[UnitNode]]

# Live nodes above the target that are left alone, however few the facts: the target of an average unit.
SLACK_NODES_MIN: Final = 10
# Fewer facts without a unit find one each within a second.
BOOTSTRAP_FACTS_MIN: Final = 1_000
# Two-means settles within a few rounds; what has not by then is no better for going on.
_ROUNDS_MAX: Final = 10
# The smaller half of a split has at least this share of the nodes: a unit of a few has nothing to merge.
_HALF_SHARE_MIN: Final = 0.25


@dataclass(frozen=True, slots=True, eq=False)
class Arrival:
    """A fact that is in no unit yet: its unit vector (d,) and the place of its source turn in time order."""

    fact: FactId
    vector: AnyVector
    position: int


@dataclass(frozen=True, slots=True, eq=False)
class UnitsPlan:
    """Where facts are to go.

    `moved` holds deltas only: each arrival once, and each fact whose unit changed, once; facts of a unit in time
    order. `standing` are all units that were touched, with their nodes as they are afterwards; once the deltas are
    recorded, each is `put` into the `UnitSums`.
    """

    moved: tuple[UnitMembers, ...]
    standing: Mapping[UnitId, tuple[UnitNode, ...]]


@dataclass(frozen=True, slots=True)
class UnitSize:
    """How many facts of a unit may be merged, and in how many live nodes they are."""

    unit: UnitId
    facts: int
    nodes: int


def plan_units(
    arrivals: Sequence[Arrival], sums: UnitSums, fetch: FetchNodes, parameters: EventTreeParameters
) -> UnitsPlan:
    """Put each arrival, given in time order, into the unit of the highest u (Eq. 2-4, g with the unit's sum).

    A unit of more than `unit_cap` nodes is split in two, and the nodes of the `reassign` nearest units are scored
    again (LIRE). A group is never torn. `sums` is left as it is. An arrival costs a scan of `sums` and one unit:
    run it in a thread; `fetch` is called there (`anyio.from_thread.run`).
    """
    if not arrivals:
        return UnitsPlan((), {})
    nodes = [UnitNode((arrival.fact,), arrival.vector, arrival.position) for arrival in arrivals]
    draft = _Draft(nodes, sums, fetch, parameters)
    for index in range(len(nodes)):
        draft.place(index)
    return draft.result()


class _Draft:
    """Units as they would be. What is recorded stays untouched until the caller has recorded this, too."""

    def __init__(
        self, arrivals: Sequence[UnitNode], sums: UnitSums, fetch: FetchNodes, parameters: EventTreeParameters
    ) -> None:
        self._arrivals = arrivals
        self._sums = sums.copy()
        self._newcomers = Newcomers(arrivals, self._sums)
        self._fetch = fetch
        self._parameters = parameters
        self._nodes: dict[UnitId, list[UnitNode]] = {}
        # Where the facts of the fetched units were.
        self._before: dict[FactId, UnitId] = {}

    def place(self, index: int) -> None:
        """Let an arrival join its best unit, or found the first one."""
        node = self._arrivals[index]
        unit = self._newcomers.best_unit(index, self._parameters)
        if unit is None:
            unit = name_unit([node], self._sums)
        nodes = self.nodes_of(unit)
        # Nearly always the last one; facts of an older session that was imported late come among the others.
        at = len(nodes)
        while at and nodes[at - 1].position > node.position:
            at -= 1
        nodes.insert(at, node)
        self._put(unit, nodes)
        if len(nodes) > self._parameters.unit_cap:
            self._split(unit)

    def nodes_of(self, unit: UnitId) -> list[UnitNode]:
        """The nodes of a unit as they would be."""
        if unit not in self._nodes:
            self._nodes[unit] = list(self._fetch(unit)) if unit in self._sums else []
            self._before.update((fact, unit) for node in self._nodes[unit] for fact in node.facts)
        return self._nodes[unit]

    def _split(self, unit: UnitId) -> None:
        """Make two of a unit, and more of a half that still is too large, as one that was bootstrapped may be."""
        beside = self._sums.nearest_units(unit, self._parameters.reassign)
        halves, whole = [unit], [unit]
        while halves:
            half = halves.pop()
            nodes = self._nodes[half]
            if len(nodes) <= self._parameters.unit_cap:
                continue
            stays, goes = split_nodes(nodes)
            self._put(half, stays)
            made = name_unit(goes, self._sums)
            self._put(made, goes)
            whole.append(made)
            halves += [half, made]
        self._score_again([*whole, *beside])

    def _score_again(self, units: Sequence[UnitId]) -> None:
        """Let the nodes of these units go where u is highest; as in the batch, a centre node stays in its own."""
        units = [unit for unit in units if self.nodes_of(unit)]
        old = {unit: self.nodes_of(unit) for unit in units}
        moves: list[tuple[float, int, int, int]] = []
        for home, unit in enumerate(units):
            scores = self._sums.scores(old[unit], units, self._parameters)
            gains = scores - scores[:, home : home + 1]
            centre = centre_of(old[unit])
            for index, target in enumerate(np.argmax(gains, axis=1).tolist()):
                if gains[index, target] > 0 and index != centre:
                    moves.append((-float(gains[index, target]), home, index, target))
        room = [self._parameters.unit_cap - len(old[unit]) for unit in units]
        gone: dict[tuple[int, int], int] = {}
        for _, home, index, target in sorted(moves):
            if room[target] > 0:
                room[target] -= 1
                room[home] += 1
                gone[home, index] = target
        inside: list[list[UnitNode]] = [[] for _ in units]
        for home, unit in enumerate(units):
            for index, node in enumerate(old[unit]):
                inside[gone.get((home, index), home)].append(node)
        for unit, nodes in zip(units, inside, strict=True):
            self._put(unit, sorted(nodes, key=lambda node: node.position))

    def _put(self, unit: UnitId, nodes: list[UnitNode]) -> None:
        self._nodes[unit] = nodes
        self._sums.put(unit, nodes)
        self._newcomers.note(unit)

    def result(self) -> UnitsPlan:
        """The deltas."""
        moved: list[UnitMembers] = []
        for unit, nodes in self._nodes.items():
            facts = tuple(fact for node in nodes for fact in node.facts if self._before.get(fact) != unit)
            if facts:
                moved.append(UnitMembers(unit, facts))
        return UnitsPlan(tuple(moved), {unit: tuple(nodes) for unit, nodes in self._nodes.items()})


def name_unit(nodes: Sequence[UnitNode], taken: Container[UnitId]) -> UnitId:
    """The hash of the fact in the centre; if a unit is called by it already, the hash of that name."""
    name = identify(b"mf.unit", nodes[centre_of(nodes)].facts[0])
    while name in taken:
        name = identify(b"mf.unit", name)
    return name


def split_nodes(nodes: Sequence[UnitNode]) -> tuple[list[UnitNode], list[UnitNode]]:
    """Two halves of a unit: (the one with more facts, the other), each in the order given.

    Two-means on directions. It begins with the node farthest from the sum and the one farthest from that; a node
    goes by how much nearer it is to the one than to the other, the first of equals first.
    """
    sums, rows = stack(nodes), directions_of(nodes)
    first = int(np.argmin(on_grid(rows @ direction_of(sums.sum(axis=0)))))
    other = int(np.argmin(on_grid(rows @ rows[first])))
    one_sum, other_sum = rows[first], rows[other]
    in_one = np.zeros(len(nodes), dtype=np.bool_)
    for _ in range(_ROUNDS_MAX):
        chosen = _nearer(rows, one_sum, other_sum)
        if (chosen == in_one).all():
            break
        in_one = chosen
        one_sum, other_sum = direction_of(sums[in_one].sum(axis=0)), direction_of(sums[~in_one].sum(axis=0))
    halves = (
        [node for node, inside in zip(nodes, in_one.tolist(), strict=True) if inside],
        [node for node, inside in zip(nodes, in_one.tolist(), strict=True) if not inside],
    )
    counts = [sum(len(node.facts) for node in half) for half in halves]
    return halves if counts[0] >= counts[1] else (halves[1], halves[0])


def _nearer(rows: Floats, one: Floats, other: Floats) -> NDArray[np.bool_]:
    """Which rows are in the first half, never too few and never too many."""
    margins = on_grid(rows @ one - rows @ other)
    least = max(1, int(_HALF_SHARE_MIN * len(rows)))
    count = min(max(int((margins > 0).sum()), least), len(rows) - least)
    inside = np.zeros(len(rows), dtype=np.bool_)
    inside[np.argsort(-margins, kind="stable")[:count]] = True
    return inside


def due_units(sizes: Sequence[UnitSize], parameters: EventTreeParameters) -> tuple[UnitId, ...]:
    """Which of all the units of a user are to be compacted now, the most overgrown first.

    A unit is due when its live nodes exceed its target by half (`overgrown`), and so many of the most overgrown
    are that all together exceed the user's target by `slack` at most: the budget is one. A few nodes too many are
    let be, whatever their share: in a memory of dozens the first merges are the worst. Equally overgrown: the
    larger, then the first given.

    A plan may still come out empty (caps): who asks again leaves out a unit of a size that was planned in vain.
    """
    facts = np.array([size.facts for size in sizes], dtype=np.int64)
    nodes = np.array([size.nodes for size in sizes], dtype=np.int64)
    # Of thousands of units there are few sizes.
    known, which = np.unique(facts, return_inverse=True)
    targets = np.array([parameters.live_target(count) for count in known.tolist()], dtype=np.int64)[which]
    excess = nodes - targets
    target = parameters.live_target(int(facts.sum()))
    over = int(nodes.sum()) - target - max(parameters.slack * target, SLACK_NODES_MIN)
    outgrew = (nodes > parameters.overgrown * targets) & (excess > SLACK_NODES_MIN)
    above = np.flatnonzero(excess > 0)
    above = above[np.lexsort((-facts[above], -excess[above]))]
    due: list[UnitId] = []
    for index in above.tolist():
        if over > 0 or outgrew[index]:
            due.append(sizes[index].unit)
            over -= int(excess[index])
    return tuple(due)


def plan_unit(nodes: UnitNodes, parameters: EventTreeParameters) -> MergePlan:
    """What to merge in one unit, all of whose live nodes these are; what was merged stays merged.

    It is `plan_groups` of that unit alone, down to its own target.
    """
    return plan_groups(nodes, parameters)


def needs_bootstrap(unplaced: int, placed: int) -> bool:
    """Whether so many facts without a unit are better partitioned at once, together with those that have one.

    So it is with a store from before there were units, or an import: many facts, and most of them without a unit.
    """
    return unplaced >= BOOTSTRAP_FACTS_MIN and unplaced > placed


def bootstrap_units(nodes: Sequence[UnitNode], parameters: EventTreeParameters) -> UnitsPlan:
    """Units of all nodes at once (Eq. 1-4, `partition_nodes`), those above `unit_cap` split.

    Half a minute of processor time at 100,000 nodes: in a thread. No unit from before stands beside these.
    """
    if not nodes:
        return UnitsPlan((), {})
    ids = [index.to_bytes(4, "big") for index in range(len(nodes))]
    vectors = directions_of(nodes).astype(np.float32)
    partition = partition_nodes(vectors, [node.position for node in nodes], ids, parameters)
    inside: list[list[UnitNode]] = [[] for _ in partition.centres]
    for node, label in zip(nodes, partition.labels, strict=True):
        inside[label].append(node)
    standing: dict[UnitId, tuple[UnitNode, ...]] = {}
    while inside:
        unit = inside.pop()
        if len(unit) > parameters.unit_cap:
            inside += split_nodes(unit)
        else:
            standing[name_unit(unit, standing)] = tuple(unit)
    moved = [
        UnitMembers(unit, tuple(fact for node in held for fact in node.facts)) for unit, held in standing.items()
    ]
    return UnitsPlan(tuple(moved), standing)
