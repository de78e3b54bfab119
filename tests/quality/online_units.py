"""The EventTree as the daemon runs it: session after session into units that grow, compacted when they are due."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

import numpy as np

from events.eventtree import UnitId
from projections.eventtree.merging import UnitNodes
from projections.eventtree.online import Arrival, UnitSize, due_units, plan_unit, plan_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode, UnitSums, directions_of
from tests.quality.compression import Compress
from tests.quality.compression_inputs import Inputs
from tests.quality.compression_scores import Groups


def grow_online(parameters: EventTreeParameters) -> Compress:
    """After each session its memories are placed and the units that are due planned. Nothing in it is random."""

    def compress(inputs: Inputs, ratio: float, _seed: int) -> Groups:
        units = _Units(replace(parameters, ratio=ratio))
        for _, inside in groupby(range(len(inputs)), key=inputs.sessions.__getitem__):
            units.add(inputs, list(inside))
        return units.groups()

    return compress


class _Units:
    """The nodes of each unit, as they were recorded; a fact is called by its number."""

    def __init__(self, parameters: EventTreeParameters) -> None:
        self._parameters = parameters
        self._sums = UnitSums()
        self._nodes: dict[UnitId, tuple[UnitNode, ...]] = {}

    def add(self, inputs: Inputs, numbers: Sequence[int]) -> None:
        """Place the memories of a session and compact what is due then."""
        positions = inputs.positions
        arrivals = [Arrival(_name(n), inputs.vectors[n], positions[n]) for n in numbers]
        plan = plan_units(arrivals, self._sums, self._nodes.__getitem__, self._parameters)
        for unit, nodes in plan.standing.items():
            self._put(unit, nodes)
        in_vain: set[UnitId] = set()
        while due := [unit for unit in due_units(self._sizes(in_vain), self._parameters) if unit not in in_vain]:
            for unit in due:
                if not self._compact(unit):
                    in_vain.add(unit)

    def groups(self) -> Groups:
        """Every node with its memories, in order."""
        return sorted(
            tuple(sorted(int.from_bytes(fact, "big") for fact in node.facts))
            for nodes in self._nodes.values()
            for node in nodes
        )

    def _sizes(self, left_out: set[UnitId]) -> list[UnitSize]:
        return [
            UnitSize(unit, sum(len(node.facts) for node in nodes), len(nodes))
            for unit, nodes in self._nodes.items()
            if unit not in left_out
        ]

    def _compact(self, unit: UnitId) -> bool:
        """Merge what the plan of one unit says; False when it says nothing."""
        nodes = self._nodes[unit]
        planned = UnitNodes(
            directions_of(nodes).astype(np.float32),
            [node.position for node in nodes],
            [node.facts[0] for node in nodes],
            [0] * len(nodes),
            [len(node.facts) for node in nodes],
        )
        groups = plan_unit(planned, self._parameters).groups
        gone = {index for group in groups for index in group}
        left = [node for index, node in enumerate(nodes) if index not in gone]
        made = [_merge([nodes[index] for index in group]) for group in groups]
        self._put(unit, tuple(sorted([*left, *made], key=lambda node: (node.position, node.facts))))
        return bool(groups)

    def _put(self, unit: UnitId, nodes: Sequence[UnitNode]) -> None:
        self._nodes[unit] = tuple(nodes)
        self._sums.put(unit, nodes)


def _merge(nodes: Sequence[UnitNode]) -> UnitNode:
    vector = np.sum([node.vector for node in nodes], axis=0)
    facts = tuple(sorted(fact for node in nodes for fact in node.facts))
    return UnitNode(facts, vector, max(node.position for node in nodes))


def _name(number: int) -> bytes:
    return number.to_bytes(4, "big")
