"""Units and groups as recorded: which unit a fact belongs to, and which group replaced it in recall."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import takewhile

from events.envelope import RecordedEvent, identify
from events.eventtree import AS_CONFIGURED, CompactionUndone, NodesMerged, PolicyChanged, UnitId, UnitsPartitioned
from events.memory import FactId

# Of more parked merges the oldest are tried again: their members are most likely in other units by now.
PARKED_MERGES_MAX = 1_000


@dataclass(frozen=True, slots=True)
class Group:
    """Facts merged into one node. `members` are in time order; `seq` is the event with the text."""

    id: bytes
    unit: UnitId
    members: tuple[FactId, ...]
    seq: int
    length: int
    loss: int  # hundred-thousandths, Eq. 15 summed over its merges
    extractive: bool  # its text is its members'


class Units:
    """The EventTree state of one user, folded from its events."""

    def __init__(self) -> None:
        self.unit_of: dict[FactId, UnitId] = {}
        # The facts of each unit in the order in which they came, and those that are known and in none.
        self.facts_of: dict[UnitId, dict[FactId, None]] = {}
        self.unplaced: dict[FactId, None] = {}
        # Grows with every change of a unit or its groups; the units by their last change, the latest last. No part
        # of the fold: whoever plans knows from it what to look at again.
        self.changes = 0
        self.changed: dict[UnitId, int] = {}
        self.groups: dict[bytes, Group] = {}
        self.group_of: dict[FactId, bytes] = {}
        # Ids of groups whose merge is not tried again until it is resumed, oldest first.
        self.parked: dict[bytes, None] = {}
        self.policy = AS_CONFIGURED
        # Facts of groups that were undone, oldest first: no background compaction merges them.
        self.apart: dict[FactId, None] = {}

    def apply_partition(self, event: UnitsPartitioned) -> None:
        """Facts move into units, those that are known: a fact that stands no more is in none."""
        for unit, named in ((each.unit, each.facts) for each in event.units):
            facts = [fact for fact in named if fact in self.unit_of or fact in self.unplaced]
            for fact in facts:
                self._leave_unit(fact)
                self.unplaced.pop(fact, None)
            if facts:
                self.unit_of.update(dict.fromkeys(facts, unit))
                self.facts_of.setdefault(unit, {}).update(dict.fromkeys(facts))
                self._touch(unit)

    def add_fact(self, fact: FactId) -> None:
        """A fact was founded: it waits for a unit."""
        self.unplaced[fact] = None

    def remove_fact(self, fact: FactId) -> None:
        """A fact is known no more."""
        self.unplaced.pop(fact, None)
        self.apart.pop(fact, None)
        self._leave_unit(fact)

    def index(self, facts: Iterable[FactId]) -> None:
        """Know again what is in each unit and what in none, of all known facts; after `unit_of` was restored."""
        for fact, unit in self.unit_of.items():
            self.facts_of.setdefault(unit, {})[fact] = None
        self.unplaced.update((fact, None) for fact in facts if fact not in self.unit_of)
        for unit in self.facts_of:
            self._touch(unit)

    def changed_since(self, changes: int) -> list[UnitId]:
        """The units that changed after so many changes, the latest first."""
        return [unit for unit, _ in takewhile(lambda item: item[1] > changes, reversed(self.changed.items()))]

    def _leave_unit(self, fact: FactId) -> None:
        unit = self.unit_of.pop(fact, None)
        if unit is not None:
            members = self.facts_of[unit]
            del members[fact]
            if not members:
                del self.facts_of[unit]
            self._touch(unit)

    def _touch(self, unit: UnitId) -> None:
        self.changes += 1
        self.changed.pop(unit, None)
        self.changed[unit] = self.changes

    def _touch_all(self, facts: Iterable[FactId]) -> None:
        for unit in dict.fromkeys(self.unit_of[fact] for fact in facts if fact in self.unit_of):
            self._touch(unit)

    def apply_merge(self, recorded: RecordedEvent, event: NodesMerged) -> tuple[Group, list[Group]]:
        """A group replaces its members, and the smaller groups whose members it took: (new, replaced)."""
        held = dict.fromkeys(self.group_of[fact] for fact in event.members if fact in self.group_of)
        replaced = [self.undo_group(group) for group in held]
        group_id, length = make_group_id(event.members), len(event.text)
        made = Group(group_id, event.unit, event.members, recorded.seq, length, event.loss, event.extractive)
        self.groups[made.id] = made
        self.parked.pop(made.id, None)
        self.group_of.update((fact, made.id) for fact in made.members)
        for fact in made.members:
            self.apart.pop(fact, None)
        self._touch_all(made.members)
        return made, replaced

    def change_policy(self, event: PolicyChanged) -> None:
        """From now on this counts where it differs from the configuration."""
        self.policy = event.policy

    def note_parked(self, group_id: bytes) -> None:
        """A merge was given up."""
        self.parked.pop(group_id, None)
        self.parked[group_id] = None
        if len(self.parked) > PARKED_MERGES_MAX:
            del self.parked[next(iter(self.parked))]

    def note_resumed(self, group_id: bytes) -> None:
        """A merge is to be tried again."""
        self.parked.pop(group_id, None)

    def keep_apart(self, event: CompactionUndone) -> list[Group]:
        """The groups of these facts stand no more, and the facts are kept apart; the groups."""
        held = dict.fromkeys(self.group_of[fact] for fact in event.facts if fact in self.group_of)
        self.apart.update((fact, None) for fact in event.facts if fact in self.unit_of or fact in self.unplaced)
        return [self.undo_group(group) for group in held]

    def undo_group(self, group_id: bytes) -> Group:
        """A group stands for its members no more."""
        group = self.groups.pop(group_id)
        for fact in group.members:
            del self.group_of[fact]
        self._touch_all(group.members)
        return group


def make_group_id(members: tuple[FactId, ...]) -> bytes:
    """The id of the group of these facts, whatever their order."""
    return identify(b"mf.group", *sorted(members))
