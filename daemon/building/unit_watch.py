"""Which units of a user outgrew their target: looked at as they change, judged all together (algorithms.md 2)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import TypeAlias

from daemon.building.live_nodes import LiveNode, MergeRules, nodes_of
from daemon.building.unit_plans import Said, UnitStanding
from daemon.building.unit_vectors import Places, order_of
from events.eventtree import Policy, UnitId
from events.memory import FactId
from events.time import Instant
from projections.eventtree.online import UnitSize, due_units
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.units import Units
from projections.memory import Memory

# Facts that are in a group that is planned or being fused, with all facts of that group.
Together: TypeAlias = Mapping[FactId, tuple[FactId, ...]]
# Those of a unit's facts that are known and in its space.
FindAlike: TypeAlias = Callable[[Memory, Iterable[FactId]], list[FactId]]


@dataclass(frozen=True, slots=True)
class _Look:
    """A unit when it was looked at: what may be merged, with planned groups as one node each.

    `made`: the seqs of its groups that were young then, with how many nodes fewer each made. `is_planned`: some
    of its groups are.
    """

    size: UnitSize
    made: tuple[tuple[int, int], ...]
    is_planned: bool

    def before(self, seq: int) -> UnitSize:
        """As it stood before the groups behind a seq were made."""
        size, apart = self.size, sum(fewer for made_at, fewer in self.made if made_at > seq)
        return UnitSize(size.unit, size.facts, size.nodes + apart)


@dataclass(slots=True)
class UnitWatch:
    """The units of one Memory under one policy."""

    units: Units
    policy: Policy
    alike: FindAlike
    # How many changes of the units were looked at, and units to be looked at besides.
    seen: int = 0
    again: dict[UnitId, None] = field(default_factory=dict[UnitId, None])
    # How often something was looked at; whether all that was is judged, and the units that are due by that:
    # whether also as they stand.
    looks: int = 0
    is_judged: bool = False
    due: dict[UnitId, bool] = field(default_factory=dict[UnitId, bool])
    # When the first fact that is too young by now will be old enough.
    old_at: Instant | None = None
    # The event that the latest of the facts in units was read in.
    read_to: int = 0
    _looks: dict[UnitId, _Look] = field(default_factory=dict[UnitId, _Look])
    _young: dict[UnitId, Instant] = field(default_factory=dict[UnitId, Instant])
    # Units that were planned in vain, and after how many changes of theirs.
    _in_vain: dict[UnitId, int] = field(default_factory=dict[UnitId, int])

    @property
    def is_behind(self) -> bool:
        """Whether some unit is to be looked at."""
        return self.seen != self.units.changes or bool(self.again)

    def count_unseen(self) -> int:
        """Units that are to be looked at."""
        return len(self.again) + len(self.units.changed_since(self.seen))

    def look(
        self, memory: Memory, parameters: EventTreeParameters, now: Instant, together: Together, limit: int
    ) -> None:
        """Look at some units that changed, those first that changed first; a fifth of a millisecond each."""
        units = self.units
        if self.old_at is not None and self.old_at <= now:
            self.again.update((unit, None) for unit, at in self._young.items() if at <= now)
        changed = list(islice(reversed(units.changed_since(self.seen)), limit))
        wanted = dict.fromkeys((*islice(list(self.again), limit), *changed))
        for unit in wanted:
            self.again.pop(unit, None)
            self._look_at(memory, unit, parameters, now, together)
        if changed:
            self.seen = units.changed[changed[-1]]
        if wanted:
            self.looks += 1
            self.is_judged = False
            self.old_at = min(self._young.values(), default=None)

    def sizes(self) -> tuple[list[UnitSize], list[UnitSize]]:
        """All units as they were before the last round began, and as they stand."""
        looks = list(self._looks.values())
        return [look.before(self.read_to) for look in looks], [look.size for look in looks]

    def note_due(self, due: tuple[Sequence[UnitId], Sequence[UnitId]], parameters: EventTreeParameters) -> None:
        """What `judge` said of all `sizes`: which were due when the round began, and which are as they stand."""
        began, stand = due
        is_due = dict.fromkeys(began, False) | dict.fromkeys(stand, True)
        self.due = {unit: as_it_stands for unit, as_it_stands in is_due.items() if self._is_open(unit, parameters)}
        self.is_judged = True

    def stand(
        self, memory: Memory, unit: UnitId, rules: MergeRules, together: Together, places: Places
    ) -> UnitStanding:
        """How a unit stands, for its plan."""
        nodes, facts = _free_nodes(memory, unit, rules, together, self.alike)
        groups = memory.units.groups
        fresh = (node.id for node in nodes if node.id in groups and groups[node.id].seq > self.read_to)
        firsts = ((fact, memory.canon.facts[fact].first) for fact in facts)
        said = {fact: Said(places.place(first.said_at), order_of(first)) for fact, first in firsts}
        return UnitStanding(nodes, said, frozenset(fresh), self.due.get(unit, False))

    def note_in_vain(self, unit: UnitId, changes: int) -> None:
        """The plan of a unit came out empty; it is not planned again until it changes."""
        self._in_vain[unit] = changes
        self.due.pop(unit, None)

    def try_again(self, unit: UnitId) -> None:
        """Something may be done about a unit after all."""
        self._in_vain.pop(unit, None)
        self.again[unit] = None

    def _is_open(self, unit: UnitId, parameters: EventTreeParameters) -> bool:
        """Whether there may be something to merge in a unit, and nothing of it is planned."""
        look, is_vain = self._looks[unit], self._in_vain.get(unit) == self.units.changed.get(unit, 0)
        is_above = look.size.nodes > parameters.live_target(look.size.facts)
        return is_above and not (is_vain or look.is_planned)

    def _look_at(
        self, memory: Memory, unit: UnitId, parameters: EventTreeParameters, now: Instant, together: Together
    ) -> None:
        self._young.pop(unit, None)
        self.due.pop(unit, None)
        rules = make_rules(parameters, now)
        free, facts = _free_nodes(memory, unit, rules, together, self.alike)
        if not facts:
            self._looks.pop(unit, None)
            self._in_vain.pop(unit, None)
            return
        known, groups = memory.canon.facts, memory.units.groups
        self.read_to = max(self.read_to, *(known[fact].first.pointer.seq for fact in facts))
        if rules.said_until is not None:
            # Also of those that stay in any case: a state that ended joins its trajectory when it is old enough.
            said = (known[fact].first.said_at for fact in facts)
            young = min((at for at in said if at > rules.said_until), default=None)
            if young is not None:
                self._young[unit] = young + int(parameters.min_age_s * 1000) + 1
        planned = {together[fact] for fact in facts if fact in together}
        size = UnitSize(
            unit,
            sum(len(node.members) for node in free) + sum(map(len, planned)),
            len(free) + len(planned),
        )
        made = tuple((groups[each.id].seq, len(each.members) - 1) for each in free if each.id in groups)
        self._looks[unit] = _Look(size, tuple(each for each in made if each[0] > self.read_to), bool(planned))


def judge(
    sizes: tuple[Sequence[UnitSize], Sequence[UnitSize]], parameters: EventTreeParameters
) -> tuple[Sequence[UnitId], Sequence[UnitId]]:
    """Which units were due when the round began, and which are as they stand; some ms for thousands of units."""
    return due_units(sizes[0], parameters), due_units(sizes[1], parameters)


def make_rules(parameters: EventTreeParameters, now: Instant) -> MergeRules:
    """Who may be merged in the background."""
    said_until = now - int(parameters.min_age_s * 1000) if parameters.min_age_s else None
    return MergeRules(frozenset(parameters.never_merged), said_until, spares_apart=True)


def _free_nodes(
    memory: Memory, unit: UnitId, rules: MergeRules, together: Together, alike: FindAlike
) -> tuple[list[LiveNode], list[FactId]]:
    """The nodes of a unit that may be merged and are in no plan, and all its known facts that are in its space."""
    facts = alike(memory, memory.units.facts_of.get(unit, ()))
    inside = dict.fromkeys(facts)
    free: Iterable[LiveNode] = nodes_of(memory, (fact for fact in facts if fact not in together), rules)
    return [node for node in free if all(member in inside for member in node.members)], facts
