"""EventTree units and their groups as they are listed: figures from a Memory, then texts from the log."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from daemon.building.compacted import LOSS_UNIT, ProgressShown
from events.envelope import RecordedEvent
from events.eventtree import UnitId
from events.time import Instant, to_iso
from projections.eventtree.units import Group
from projections.memory import Memory
from projections.steps import Steps, each_of
from projections.texts import TextRef, WrittenText, compose


@dataclass(frozen=True, slots=True)
class UnitShown:
    """A unit: how many nodes it has, of how many facts, in how many groups.

    `loss_bound` is the most that its merges cost together in similarity to a query; so many of its groups are
    `extractive`, put together of their members' own texts.
    """

    id: str
    nodes: int
    facts: int
    groups: int
    loss_bound: float = 0.0
    extractive: int = 0


@dataclass(frozen=True, slots=True)
class GroupShown:
    """A group of a unit with the ids of the facts that were merged into it.

    A `trajectory` holds the values of one state that ended, one after the other.
    """

    id: str
    unit: str
    text: str
    members: list[str]
    time_start: str
    time_end: str
    loss_bound: float = 0.0
    extractive: bool = False
    trajectory: bool = False


@dataclass(frozen=True, slots=True)
class UnitPage:
    """Units with their groups; `next` is the `after` to go on from, null on the last page.

    `facts`, the `nodes` that they are in and `loss_bound` are of all units of the user together, and of what is in
    none. `compaction`: the one that somebody asked for and that runs now. Each page is as things stand by then: a
    group that goes into another unit between two pages may be on both of them, or on neither.
    """

    units: list[UnitShown]
    groups: list[GroupShown]
    next: str | None
    facts: int = 0
    nodes: int = 0
    loss_bound: float = 0.0
    compaction: ProgressShown | None = None


@dataclass(frozen=True, slots=True)
class _GroupSeen:
    """A group as a Memory knows it."""

    group: Group
    unit: UnitId
    time_start: Instant
    time_end: Instant
    trajectory: bool


@dataclass(frozen=True, slots=True)
class UnitsSeen:
    """A page before its texts are read."""

    units: list[UnitShown]
    groups: list[_GroupSeen]
    next: str | None
    facts: int
    nodes: int
    loss_bound: float

    @property
    def refs(self) -> list[TextRef]:
        """The texts of its groups."""
        return [WrittenText(each.group.seq) for each in self.groups]

    def show(self, recorded: Mapping[int, RecordedEvent], compaction: ProgressShown | None) -> Steps[UnitPage]:
        """The page with its texts, in small steps."""
        return UnitPage(
            units=self.units,
            groups=(yield from each_of(self.groups, lambda each: _show_group(each, recorded))),
            next=self.next,
            facts=self.facts,
            nodes=self.nodes,
            loss_bound=self.loss_bound,
            compaction=compaction,
        )


def look_at_units(memory: Memory, limit: int, after: bytes | None) -> Steps[UnitsSeen]:
    """The units behind `after` in the order of their ids, `limit` of them; no group while something is hidden.

    In small steps. The Memory must not change in between.
    """
    known, facts = memory.units, Counter[UnitId]()
    for fact, unit in known.unit_of.items():
        facts[unit] += fact in memory.canon.facts
        yield
    standing = [] if memory.needs_rebuild else sorted(known.groups.values(), key=lambda each: each.id)
    yield
    by_unit: defaultdict[UnitId, list[Group]] = defaultdict(list)
    for group in standing:
        by_unit[_unit_of(memory, group)].append(group)
        yield
    # A trajectory is a unit by itself, which no fact has to be in.
    ids = sorted(unit for unit in {*+facts, *by_unit} if after is None or unit > after)
    page = ids[:limit]
    yield
    units = yield from each_of(page, lambda unit: _show_unit(unit, facts[unit], by_unit[unit]))
    shown = (group for unit in page for group in by_unit[unit])
    return UnitsSeen(
        units=units,
        groups=(yield from each_of(shown, partial(_look_at_group, memory))),
        next=page[-1].hex() if len(ids) > limit else None,
        facts=len(memory.canon.facts),
        nodes=len(memory.canon.facts) - sum(len(group.members) for group in standing) + len(standing),
        loss_bound=sum(group.loss for group in standing) / LOSS_UNIT,
    )


def _unit_of(memory: Memory, group: Group) -> UnitId:
    """The unit that a group's facts are in by now; the one that it was made in, where they are in none."""
    return memory.units.unit_of.get(group.members[0], group.unit)


def _show_unit(unit: UnitId, facts: int, groups: list[Group]) -> UnitShown:
    inside = sum(len(group.members) for group in groups)
    # What a trajectory gathers may be in several units, or in none.
    facts = max(facts, inside)
    return UnitShown(
        id=unit.hex(),
        nodes=facts - inside + len(groups),
        facts=facts,
        groups=len(groups),
        loss_bound=sum(group.loss for group in groups) / LOSS_UNIT,
        extractive=sum(group.extractive for group in groups),
    )


def _look_at_group(memory: Memory, group: Group) -> _GroupSeen:
    node = memory.nodes.node(memory.nodes.row_of[group.id])
    unit = _unit_of(memory, group)
    return _GroupSeen(group, unit, node.time_start, node.time_end, is_trajectory(memory, group))


def is_trajectory(memory: Memory, group: Group) -> bool:
    """Whether a group holds states that ended: these are merged with nothing else."""
    return all(member in memory.placement.validity.superseded for member in group.members)


def _show_group(seen: _GroupSeen, recorded: Mapping[int, RecordedEvent]) -> GroupShown:
    group = seen.group
    return GroupShown(
        id=group.id.hex(),
        unit=seen.unit.hex(),
        text=compose(WrittenText(group.seq), recorded) or "",
        members=[member.hex() for member in group.members],
        time_start=to_iso(seen.time_start),
        time_end=to_iso(seen.time_end),
        loss_bound=group.loss / LOSS_UNIT,
        extractive=group.extractive,
        trajectory=seen.trajectory,
    )
