"""What a compaction starts from: the EventTree nodes of a user as they stand."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

from events.memory import FactId
from events.time import Instant
from projections.eventtree.units import Group
from projections.facts.canonical import Occurrence
from projections.memory import Memory
from projections.texts import FactText, TextRef, WrittenText
from projections.transcript import TurnKept


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A fact, or a group that replaced several, with the interval it speaks of.

    `member_refs` are the texts of the members, of which its vector is made. `place` orders nodes by what was said,
    not by their ids, which differ from store to store: the same conversation is compacted the same way everywhere.
    """

    id: bytes
    members: tuple[FactId, ...]
    member_refs: tuple[FactText, ...]
    ref: TextRef
    said_at: Instant
    time_start: Instant
    time_end: Instant
    place: tuple[int, int, int, int]


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts, groups and turns of a Memory at one moment, none of which can change any more.

    To make nodes of ten thousand facts takes longer than the loop may be held; so this is copied there, and the
    nodes are made of it on a thread while the Memory goes on.
    """

    facts: Mapping[FactId, Occurrence]  # the first one, which speaks for the fact
    groups: Sequence[Group]
    turns: Sequence[TurnKept]
    movable: Set[bytes]  # ids of nodes that recall knows and that need not stay


def copy_standing(memory: Memory) -> Standing:
    """What the nodes of a Memory are made of; some 4 ms for ten thousand facts.

    A tuple of occurrences for each fact would be simpler; so many new ones set off the collection of garbage.
    """
    firsts: dict[FactId, Occurrence] = {}
    movable = set(memory.nodes.row_of)
    for fact_id, fact in memory.canon.facts.items():
        firsts[fact_id] = first = fact.occurrences[0]
        if first.pinned or (len(fact.occurrences) > 1 and fact.pinned):
            movable.discard(fact_id)
    movable.difference_update(memory.placement.validity.changing())
    return Standing(firsts, list(memory.units.groups.values()), list(memory.turns.values()), movable)


def live_nodes(standing: Standing) -> list[LiveNode]:
    """Groups, and facts that are in none; in time order."""
    facts = standing.facts
    grouped = {member for group in standing.groups for member in group.members}
    nodes = [_fact_node(fact, first) for fact, first in facts.items() if fact not in grouped]
    nodes += [_group_node(group, [facts[member] for member in group.members]) for group in standing.groups]
    return sorted(nodes, key=lambda node: node.place)


def find_mergeable(standing: Standing) -> tuple[list[LiveNode], list[int]]:
    """The nodes that may be merged, in time order, and where each one's turn stands among all turns."""
    nodes = [node for node in live_nodes(standing) if node.id in standing.movable]
    instants = sorted({turn.said_at for turn in standing.turns})
    place = {instant: index for index, instant in enumerate(instants)}
    return nodes, [place[node.said_at] for node in nodes]


def count_nodes(memory: Memory) -> int:
    """How many live nodes there are."""
    return len(memory.canon.facts) - len(memory.units.group_of) + len(memory.units.groups)


def may_be_merged(memory: Memory, node: LiveNode) -> bool:
    """Whether a node stands as it was, and need not stay so.

    A state that another one may end stays by itself: a group of three homes would hold at all times.
    """
    fact = memory.canon.facts.get(node.id)
    stays = fact is not None and (fact.pinned or memory.placement.validity.may_change(fact.id))
    return node.id in memory.nodes.row_of and not stays


def _fact_node(fact: FactId, first: Occurrence) -> LiveNode:
    ref, times = FactText(first.pointer), (first.said_at, first.time_start, first.time_end)
    return LiveNode(fact, (fact,), (ref,), ref, *times, _place(first))


def _group_node(group: Group, firsts: Sequence[Occurrence]) -> LiveNode:
    last = max(firsts, key=_place)
    return LiveNode(
        id=group.id,
        members=group.members,
        member_refs=tuple(FactText(first.pointer) for first in firsts),
        ref=WrittenText(group.seq),
        said_at=last.said_at,
        time_start=min(first.time_start for first in firsts),
        time_end=max(first.time_end for first in firsts),
        place=_place(last),
    )


def _place(first: Occurrence) -> tuple[int, int, int, int]:
    """Time, turn, number and event: where a fact was said. No two facts share a place.

    The event tells a corrected fact, whose number is 0, from the first one that was extracted of its turns.
    """
    return first.said_at, first.turns[-1], first.pointer.n, first.pointer.seq
