"""Units and groups as recorded: which unit a fact belongs to, and which group replaced it in recall."""

from __future__ import annotations

from dataclasses import dataclass

from events.envelope import RecordedEvent, identify
from events.memory import FactId, NodesMerged, UnitId, UnitsPartitioned

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


class Units:
    """The EventTree state of one user, folded from its events."""

    def __init__(self) -> None:
        self.unit_of: dict[FactId, UnitId] = {}
        self.groups: dict[bytes, Group] = {}
        self.group_of: dict[FactId, bytes] = {}
        # Ids of groups whose merge is not tried again until it is resumed, oldest first.
        self.parked: dict[bytes, None] = {}

    def apply_partition(self, event: UnitsPartitioned) -> None:
        """Facts move into a unit."""
        self.unit_of.update((fact, event.unit) for fact in event.members)

    def apply_merge(self, recorded: RecordedEvent, event: NodesMerged) -> tuple[Group, list[Group]]:
        """A group replaces its members, and the smaller groups whose members it took: (new, replaced)."""
        held = dict.fromkeys(self.group_of[fact] for fact in event.members if fact in self.group_of)
        replaced = [self.undo_group(group) for group in held]
        made = Group(make_group_id(event.members), event.unit, event.members, recorded.seq, len(event.text))
        self.groups[made.id] = made
        self.parked.pop(made.id, None)
        self.group_of.update((fact, made.id) for fact in made.members)
        return made, replaced

    def note_parked(self, group_id: bytes) -> None:
        """A merge was given up."""
        self.parked.pop(group_id, None)
        self.parked[group_id] = None
        if len(self.parked) > PARKED_MERGES_MAX:
            del self.parked[next(iter(self.parked))]

    def note_resumed(self, group_id: bytes) -> None:
        """A merge is to be tried again."""
        self.parked.pop(group_id, None)

    def undo_group(self, group_id: bytes) -> Group:
        """A group stands for its members no more."""
        group = self.groups.pop(group_id)
        for fact in group.members:
            del self.group_of[fact]
        return group


def make_group_id(members: tuple[FactId, ...]) -> bytes:
    """The id of the group of these facts, whatever their order."""
    return identify(b"mf.group", *sorted(members))
