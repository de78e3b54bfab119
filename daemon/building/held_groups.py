"""The groups of a user that are planned and not fused: held until they are done, and not planned otherwise."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import anyio

from daemon.building.fusing import Merge, plan_merge, plan_trajectory
from daemon.building.unit_plans import PlannedGroup
from events.eventtree import UnitId
from events.memory import FactId
from projections.eventtree.units import make_group_id
from projections.memory import Memory


@dataclass(frozen=True, slots=True)
class Held:
    """A planned group; a trajectory is in no unit."""

    group: PlannedGroup
    unit: UnitId | None

    @property
    def facts(self) -> tuple[FactId, ...]:
        """The facts of its nodes."""
        return tuple(fact for node in self.group.nodes for fact in node.members)

    @property
    def request(self) -> bytes:
        """The id of the group that is to be made, which is the request of its merge."""
        return make_group_id(self.facts)

    def make(self, memory: Memory) -> Merge | None:
        """The work of fusing it; None when a fact of it is gone."""
        if self.unit is None:
            return plan_trajectory(memory, self.group.nodes)
        return plan_merge(memory, self.group.nodes, self.unit, self.group.loss)


@dataclass(slots=True)
class HeldGroups:
    """What is planned, and what was begun, whatever became of its plan: no other plan takes their nodes."""

    planned: dict[bytes, Held] = field(default_factory=dict[bytes, Held])
    begun: dict[bytes, tuple[FactId, ...]] = field(default_factory=dict[bytes, tuple[FactId, ...]])
    # The facts of both, without those of trajectories, with all facts of the group.
    bound: dict[FactId, tuple[FactId, ...]] = field(default_factory=dict[FactId, tuple[FactId, ...]])
    # Since when something is planned without a pause, on the loop's clock.
    since: float | None = None
    # How many groups of a unit are planned, and units of which one was dropped.
    _left_of: Counter[UnitId] = field(default_factory=Counter[UnitId])
    _broken: set[UnitId] = field(default_factory=set[UnitId])

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self.planned or self.begun)

    @property
    def has_unbegun(self) -> bool:
        """Whether something is planned that is not being fused."""
        return not self.planned.keys() <= self.begun.keys()

    def hold(self, held: Held) -> None:
        """A group is planned."""
        request = held.request
        if request in self.planned or request in self.begun:
            return
        self.planned[request] = held
        self.since = self.since or anyio.current_time()
        if held.unit is not None:
            self._left_of[held.unit] += 1
            self.bound.update(dict.fromkeys(held.facts, held.facts))

    def begin(self, work: Merge) -> None:
        """The model is asked for a group."""
        is_trajectory = any(node.until is not None for node in work.nodes)
        facts = self.begun[work.request] = () if is_trajectory else work.facts
        self.bound.update(dict.fromkeys(facts, facts))

    def end(self, request: bytes) -> None:
        """The model is asked no more."""
        facts = self.begun.pop(request, ())
        if request not in self.planned:
            self._release(facts)

    def drop(self, request: bytes, *, is_recorded: bool) -> tuple[UnitId | None, bool]:
        """A group is planned no more: its unit if that was its last one, and whether all of them were recorded."""
        held = self.planned.pop(request)
        if not self.planned:
            self.since = None
        if held.unit is None:
            return None, False
        self._release(held.facts)
        self._left_of[held.unit] -= 1
        if not is_recorded:
            self._broken.add(held.unit)
        if self._left_of[held.unit]:
            return None, False
        del self._left_of[held.unit]
        is_whole = held.unit not in self._broken
        self._broken.discard(held.unit)
        return held.unit, is_whole

    def clear(self) -> None:
        """Nothing is planned any more; what was begun goes on."""
        self.planned.clear()
        self._left_of.clear()
        self._broken.clear()
        self.since = None
        self.bound.clear()
        for facts in self.begun.values():
            self.bound.update(dict.fromkeys(facts, facts))

    def _release(self, facts: tuple[FactId, ...]) -> None:
        for fact in facts:
            self.bound.pop(fact, None)
