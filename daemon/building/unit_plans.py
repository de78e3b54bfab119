"""The plan of one unit on the vectors of its nodes; one that was broken off goes on as it began."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from daemon.building.compacted import LOSS_UNIT
from daemon.building.live_nodes import LiveNode
from daemon.building.unit_vectors import Row
from events.memory import FactId, Pointer
from projections.eventtree.merging import UnitNodes
from projections.eventtree.online import plan_unit
from projections.eventtree.parameters import EventTreeParameters


@dataclass(frozen=True, slots=True)
class PlannedGroup:
    """Nodes that are to be fused, and what that costs in hundred-thousandths (Eq. 15)."""

    nodes: tuple[LiveNode, ...]
    loss: int


class Said(NamedTuple):
    """When a fact was said: its place among all turns, and what puts facts of one place in order."""

    position: int
    order: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class UnitStanding:
    """The nodes of a unit that may be merged, in time order, and of each of their facts when it was said.

    `fresh` are those of them that are groups made since the user's last fact was read. It was due before these
    were made; with `is_due` it is also as it stands.
    """

    nodes: Sequence[LiveNode]
    said: Mapping[FactId, Said]
    fresh: frozenset[bytes]
    is_due: bool


def plan_groups_of(
    standing: UnitStanding, rows: Mapping[Pointer, Row], parameters: EventTreeParameters
) -> list[PlannedGroup]:
    """The groups that are to be made of a due unit, in time order; a millisecond for forty nodes.

    Where fresh groups are all of the plan of the unit as it stood before them, that plan was broken off and goes
    on: what was begun ends as it would have. Where they are of another plan, the unit is planned as it stands, if
    it is due so.
    """
    if standing.fresh:
        whole = _plan(_open(standing), standing, rows, parameters)
        made = {frozenset(node.members) for node in standing.nodes if node.id in standing.fresh}
        if made <= {_members(group) for group, _ in whole}:
            return [_name(group, loss) for group, loss in whole if _members(group) not in made]
        if not standing.is_due:
            return []
    parts = [_Part(node.members, node) for node in standing.nodes]
    return [_name(group, loss) for group, loss in _plan(parts, standing, rows, parameters)]


@dataclass(frozen=True, slots=True)
class _Part:
    """A node of a plan; None where it is but a member of a fresh group."""

    members: tuple[FactId, ...]
    node: LiveNode | None


def _open(standing: UnitStanding) -> list[_Part]:
    """The nodes with the fresh groups opened, in time order."""
    parts: list[_Part] = []
    for node in standing.nodes:
        if node.id in standing.fresh:
            parts += [_Part((member,), None) for member in node.members]
        else:
            parts.append(_Part(node.members, node))
    return sorted(parts, key=lambda part: max(standing.said[member].order for member in part.members))


def _plan(
    parts: Sequence[_Part],
    standing: UnitStanding,
    rows: Mapping[Pointer, Row],
    parameters: EventTreeParameters,
) -> list[tuple[tuple[_Part, ...], float]]:
    """Groups of parts with what each costs."""
    refs = {
        member: ref.occurrence
        for node in standing.nodes
        for member, ref in zip(node.members, node.member_refs, strict=True)
    }
    width = next((len(row) for row in rows.values()), 0)
    vectors = np.zeros((len(parts), width), dtype=np.float32)
    for at, part in enumerate(parts):
        for member in part.members:
            if refs[member] in rows:
                vectors[at] += rows[refs[member]]
        vectors[at] /= max(float(np.linalg.norm(vectors[at])), 1e-9)
    nodes = UnitNodes(
        vectors,
        [max(standing.said[member].position for member in part.members) for part in parts],
        [at.to_bytes(4, "big") for at in range(len(parts))],
        [0] * len(parts),
        [len(part.members) for part in parts],
    )
    plan = plan_unit(nodes, parameters)
    return [(tuple(parts[at] for at in group), loss) for group, loss in zip(plan.groups, plan.losses, strict=True)]


def _members(group: Sequence[_Part]) -> frozenset[FactId]:
    return frozenset(member for part in group for member in part.members)


def _name(group: Sequence[_Part], loss: float) -> PlannedGroup:
    nodes = tuple(part.node for part in group if part.node is not None)
    return PlannedGroup(nodes, round(loss * LOSS_UNIT))
