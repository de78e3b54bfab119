"""What a compaction would do to the EventTree nodes of a user as they stand: units and groups, planned on vectors.

No model is asked and nothing is recorded. It takes seconds for ten thousand nodes, so it runs in a thread, on a
copy of what it needs of a Memory.
"""

from __future__ import annotations

from collections import OrderedDict, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeAlias

import numpy as np

from daemon.building.compacted import LOSS_UNIT
from daemon.building.live_nodes import (
    LiveNode,
    Mergeable,
    MergeRules,
    Standing,
    Stays,
    copy_standing,
    sort_out,
)
from daemon.building.unit_watch import make_rules
from events.envelope import Reference
from events.eventtree import UnitId, UnitMembers
from events.memory import FactId
from events.time import Instant
from projections.eventtree.merging import MergePlan, UnitNodes, plan_groups
from projections.eventtree.online import Arrival, bootstrap_units, plan_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import partition_nodes
from projections.eventtree.unit_sums import UnitNode, UnitSums
from projections.memory import Memory
from projections.ports import Vectors
from projections.spaces import OURS
from projections.texts import FactText

# Trees that are grown of what the caps left over, so that who asks for half gets half where that is allowed. The
# fourth hardly ever finds anything.
TREES_MAX: Final = 8

# Users whose last dry run is remembered: some hundred bytes a group.
TOLD_MAX: Final = 8

# Texts handed to the embedder at once.
EMBED_TEXTS_MAX: Final = 256


@dataclass(frozen=True, slots=True)
class Copied:
    """What `find_starts` needs of a Memory. `spaces` has the facts whose vectors are another system's."""

    standing: Standing
    unit_of: Mapping[FactId, UnitId]
    spaces: Mapping[FactId, int]


@dataclass(frozen=True, slots=True)
class Start:
    """What a compaction starts from: the nodes of one space that may be merged, and where they are now.

    `torn` are the facts of these nodes, as if no group had been made of them. `unit_of` has the unit of every fact
    that is in one, `losses` what each group costs already.
    """

    mergeable: Mergeable
    torn: Mergeable
    unit_of: Mapping[FactId, UnitId]
    losses: Mapping[bytes, int]
    space: int = OURS


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Nodes that are to be fused, the unit they are in, and what the group costs in hundred-thousandths."""

    nodes: tuple[LiveNode, ...]
    unit: UnitId
    loss: int


@dataclass(frozen=True, slots=True)
class Plan:
    """The groups to fuse, in time order, and the facts whose unit changes."""

    groups: tuple[PlannedGroup, ...]
    moved: tuple[UnitMembers, ...]


@dataclass(frozen=True, slots=True)
class Basis:
    """What a plan is made of: while nothing of it changes, neither does the plan."""

    user_seq: int
    parameters: EventTreeParameters
    rules: MergeRules
    reindex: bool


# A plan, and how many nodes stay as they are, and why.
Planned: TypeAlias = tuple[Plan, Mapping[Stays, int]]


class ToldPlans:
    """Plans of dry runs, for the runs that follow them: to plan takes as long as a wave of calls.

    They hold ids, and no words; a few are kept, each until it is asked for.
    """

    def __init__(self) -> None:
        self._by_user: OrderedDict[Reference, tuple[Basis, Planned]] = OrderedDict()

    def keep(self, user: Reference, basis: Basis, planned: Planned) -> None:
        """Keep a plan in place of the one of before."""
        self._by_user[user] = basis, planned
        self._by_user.move_to_end(user)
        if len(self._by_user) > TOLD_MAX:
            self._by_user.popitem(last=False)

    def take(self, user: Reference, basis: Basis) -> Planned | None:
        """The plan that was kept, if it is still the one."""
        told = self._by_user.pop(user, None)
        return told[1] if told is not None and told[0] == basis else None


@dataclass(frozen=True, slots=True, eq=False)
class Placed:
    """Nodes in time order with their unit rows (n, d), positions and units."""

    nodes: Sequence[LiveNode]
    vectors: Vectors
    positions: Sequence[int]
    units: Sequence[UnitId]

    def as_unit_nodes(self) -> UnitNodes:
        """As the planning takes them; equal edges go by time."""
        numbers = {unit: number for number, unit in enumerate(dict.fromkeys(self.units))}
        ids = [index.to_bytes(4, "big") for index in range(len(self.nodes))]
        labels = [numbers[unit] for unit in self.units]
        return UnitNodes(self.vectors, self.positions, ids, labels, [len(node.members) for node in self.nodes])


def rules_of(parameters: EventTreeParameters, now: Instant) -> MergeRules:
    """Who may be merged when somebody asks for a compaction: what was taken apart by an undo, too."""
    return replace(make_rules(parameters, now), spares_apart=False)


def copy_start(memory: Memory, space_of: Callable[[FactId], int]) -> Copied:
    """A copy that does not change any more: some milliseconds for ten thousand facts.

    `space_of` gives the number of the space that a fact's vector is in.
    """
    facts = memory.canon.facts if memory.spaces.known else ()
    spaces = {fact: space for fact in facts if (space := space_of(fact)) != OURS}
    return Copied(copy_standing(memory), dict(memory.units.unit_of), spaces)


def find_starts(copied: Copied, rules: MergeRules) -> tuple[list[Start], Mapping[Stays, int]]:
    """The nodes that may be merged now, space by space, and how many others stay as they are, and why."""
    found = sort_out(copied.standing, rules)
    spaces = sorted({copied.spaces.get(node.members[0], OURS) for node in found.nodes}) or [OURS]
    return [_find_start(copied, rules, found, space) for space in spaces], found.stays


def _find_start(copied: Copied, rules: MergeRules, found: Mergeable, space: int) -> Start:
    standing, at = copied.standing, zip(found.nodes, found.positions, strict=True)
    inside = [each for each in at if copied.spaces.get(each[0].members[0], OURS) == space]
    mergeable = Mergeable([node for node, _ in inside], [position for _, position in inside])
    members = {member for node in mergeable.nodes for member in node.members}
    facts = {fact: first for fact, first in standing.facts.items() if fact in members}
    torn = sort_out(replace(standing, facts=facts, groups=(), live=members), rules)
    losses = {group.id: group.loss for group in standing.groups}
    return Start(mergeable, torn, copied.unit_of, losses, space)


def plan_compaction(
    start: Start, rows: Mapping[FactText, int], vectors: Vectors, parameters: EventTreeParameters, *, reindex: bool
) -> Plan:
    """Units and groups to the end. `rows` says which row of `vectors` is each fact's.

    A compaction that was interrupted goes on with its own plan: it is found again from the facts alone, when every
    group that stands is one of it.
    """
    nodes = start.mergeable.nodes
    at_places = zip(nodes, start.mergeable.positions, strict=True)
    unit_nodes = [UnitNode(node.members, _sum(node, rows, vectors), at) for node, at in at_places]
    unit_of, moved = place_nodes(unit_nodes, start.unit_of, parameters, reindex=reindex)
    placed = _place(start.mergeable, unit_of, rows, vectors)
    standing = {frozenset(node.members): node.id for node in nodes if len(node.members) > 1}
    if standing:
        from_facts = _place(start.torn, unit_of, rows, vectors)
        plan = plan_groups(from_facts.as_unit_nodes(), parameters, trees_max=TREES_MAX)
        planned = {frozenset(from_facts.nodes[index].id for index in group) for group in plan.groups}
        if standing.keys() <= planned:
            return Plan(_name_groups(from_facts, plan, {}, skipped=standing), moved)
    plan = plan_groups(placed.as_unit_nodes(), parameters, trees_max=TREES_MAX)
    return Plan(_name_groups(placed, plan, start.losses), moved)


def place_nodes(
    nodes: Sequence[UnitNode],
    unit_of: Mapping[FactId, UnitId],
    parameters: EventTreeParameters,
    *,
    reindex: bool,
) -> tuple[dict[FactId, UnitId], tuple[UnitMembers, ...]]:
    """The unit of each fact afterwards, and what of that is new. Nodes are in time order.

    Units stay where they are and new facts join them, unless there is none or they are to be made anew (KMeans).
    Preset "paper" knows no other way than to make them anew.
    """
    placed: defaultdict[UnitId, list[UnitNode]] = defaultdict(list)
    arrivals: list[UnitNode] = []
    for node in nodes:
        unit = next((unit_of[fact] for fact in node.facts if fact in unit_of), None)
        if unit is None:
            arrivals.append(node)
        else:
            placed[unit].append(node)
    changed: tuple[UnitMembers, ...] = ()
    if parameters.preset == "paper" and (reindex or arrivals):
        changed = _partition(nodes, parameters)
    elif nodes and (reindex or not placed):
        changed = bootstrap_units(nodes, parameters).moved
    elif arrivals:
        changed = _join_units(arrivals, placed, parameters)
    found = {node.facts[0]: unit for unit, inside in placed.items() for node in inside}
    found.update((fact, each.unit) for each in changed for fact in each.facts)
    # A group goes as a whole, wherever its first fact does.
    after = {fact: found[node.facts[0]] for node in nodes for fact in node.facts}
    moved: defaultdict[UnitId, list[FactId]] = defaultdict(list)
    for fact, unit in after.items():
        if unit_of.get(fact) != unit:
            moved[unit].append(fact)
    return after, tuple(UnitMembers(unit, tuple(facts)) for unit, facts in moved.items())


def _join_units(
    arrivals: Sequence[UnitNode], placed: Mapping[UnitId, Sequence[UnitNode]], parameters: EventTreeParameters
) -> tuple[UnitMembers, ...]:
    """What changes when nodes that are in no unit join the units there are; each is named by its first fact."""
    sums = UnitSums()
    for unit, inside in placed.items():
        sums.put(unit, inside)
    new = [Arrival(node.facts[0], node.vector, node.position) for node in arrivals]
    return plan_units(new, sums, lambda unit: placed[unit], parameters).moved


def _partition(nodes: Sequence[UnitNode], parameters: EventTreeParameters) -> tuple[UnitMembers, ...]:
    """The paper's own units (Eq. 1-4), each named by a fact of its centre node."""
    vectors = np.stack([_normalise(node.vector) for node in nodes])
    ids = [index.to_bytes(4, "big") for index in range(len(nodes))]
    partition = partition_nodes(vectors, [node.position for node in nodes], ids, parameters)
    inside: list[list[FactId]] = [[] for _ in partition.centres]
    for node, number in zip(nodes, partition.labels, strict=True):
        inside[number].append(node.facts[0])
    centres = [nodes[centre].facts[0] for centre in partition.centres]
    return tuple(UnitMembers(unit, tuple(facts)) for unit, facts in zip(centres, inside, strict=True))


def _place(
    mergeable: Mergeable, unit_of: Mapping[FactId, UnitId], rows: Mapping[FactText, int], vectors: Vectors
) -> Placed:
    """Nodes with their vectors: a group's is the normalised sum of its members' rows."""
    units = [unit_of[node.members[0]] for node in mergeable.nodes]
    made = np.zeros((len(units), vectors.shape[1]), dtype=np.float32)
    for index, node in enumerate(mergeable.nodes):
        made[index] = _normalise(_sum(node, rows, vectors))
    return Placed(mergeable.nodes, made, mergeable.positions, units)


def _sum(node: LiveNode, rows: Mapping[FactText, int], vectors: Vectors) -> Vectors:
    """The sum of the rows of a node's members."""
    total: Vectors = vectors[[rows[ref] for ref in node.member_refs]].sum(axis=0)
    return total


def _normalise(row: Vectors) -> Vectors:
    unit: Vectors = row / max(float(np.linalg.norm(row)), 1e-9)
    return unit


def _name_groups(
    placed: Placed, plan: MergePlan, losses: Mapping[bytes, int], skipped: Mapping[frozenset[FactId], bytes] = {}
) -> tuple[PlannedGroup, ...]:
    """The groups of a plan with their nodes, but for those that stand; `losses` are of the groups in them."""
    named: list[PlannedGroup] = []
    for group, loss in zip(plan.groups, plan.losses, strict=True):
        nodes = tuple(placed.nodes[index] for index in group)
        if frozenset(fact for node in nodes for fact in node.members) in skipped:
            continue
        before = sum(losses.get(node.id, 0) for node in nodes)
        named.append(PlannedGroup(nodes, placed.units[group[0]], round(loss * LOSS_UNIT) + before))
    return tuple(named)
