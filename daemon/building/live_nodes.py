"""What a compaction starts from: the EventTree nodes of a user as they stand, and which of them may be merged."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field, replace
from enum import StrEnum

from events.memory import FactId, FactRole
from events.time import Instant
from projections.eventtree.trajectories import plan_trajectories
from projections.eventtree.units import Group
from projections.facts.canonical import Occurrence
from projections.facts.states import StateKey
from projections.memory import Memory
from projections.texts import FactText, TextRef, WrittenText
from projections.transcript import TurnKept


@dataclass(frozen=True, slots=True)
class LiveNode:
    """A fact, or a group that replaced several, with the interval it speaks of.

    `member_refs` are the texts of the members, of which its vector is made, and `member_starts` the times they
    begin at. `place` orders nodes by what was said, not by their ids, which differ from store to store: the same
    conversation is compacted the same way everywhere. `until`: of a state that is to join its trajectory, its end.
    """

    id: bytes
    members: tuple[FactId, ...]
    member_refs: tuple[FactText, ...]
    member_starts: tuple[Instant, ...]
    ref: TextRef
    said_at: Instant
    time_start: Instant
    time_end: Instant
    place: tuple[int, int, int, int]
    until: Instant | None = None


class Stays(StrEnum):
    """Why a node is merged with no other one."""

    PINNED = "pinned"  # somebody wants it to stay as it is
    STATE = "state"  # it may still end, or it ended and is merged in its trajectory alone
    KIND = "kind"  # of a role that is never merged
    YOUNG = "young"
    APART = "apart"  # a group of it was undone


@dataclass(frozen=True, slots=True)
class MergeRules:
    """What a policy says of who may be merged; as it stands, everybody.

    `said_until`: what was said later is too young. `spares_apart`: what an undo took apart stays so, as long as
    nobody asks for a compaction.
    """

    never_merged: frozenset[FactRole] = frozenset()
    said_until: Instant | None = None
    spares_apart: bool = False


EVERYBODY = MergeRules()


@dataclass(frozen=True, slots=True)
class Standing:
    """The facts, groups and turns of a Memory at one moment, none of which can change any more.

    To make nodes of ten thousand facts takes longer than the loop may be held; so this is copied there, and the
    nodes are made of it on a thread while the Memory goes on.
    """

    facts: Mapping[FactId, Occurrence]  # the first one, which speaks for the fact
    groups: Sequence[Group]
    turns: Sequence[TurnKept]
    live: Set[bytes]  # ids of nodes that recall knows
    pinned: Set[FactId]
    states: Set[FactId]  # that may change, or ended
    apart: Set[FactId]


@dataclass(frozen=True, slots=True)
class Mergeable:
    """The nodes that may be merged, in time order, where each one's turn stands among all turns, and the rest.

    `stays` counts the others by why they stay as they are.
    """

    nodes: list[LiveNode]
    positions: list[int]
    stays: Mapping[Stays, int] = field(default_factory=dict[Stays, int])


def copy_standing(memory: Memory) -> Standing:
    """What the nodes of a Memory are made of; some 4 ms for ten thousand facts.

    A tuple of occurrences for each fact would be simpler; so many new ones set off the collection of garbage.
    """
    firsts: dict[FactId, Occurrence] = {}
    pinned: set[FactId] = set()
    for fact_id, fact in memory.canon.facts.items():
        firsts[fact_id] = first = fact.occurrences[0]
        if first.pinned or (len(fact.occurrences) > 1 and fact.pinned):
            pinned.add(fact_id)
    validity = memory.placement.validity
    states = {*validity.changing(), *validity.superseded}
    groups, turns = list(memory.units.groups.values()), list(memory.turns.values())
    return Standing(firsts, groups, turns, set(memory.nodes.row_of), pinned, states, set(memory.units.apart))


def live_nodes(standing: Standing) -> list[LiveNode]:
    """Groups, and facts that are in none; in time order."""
    facts = standing.facts
    grouped = {member for group in standing.groups for member in group.members}
    nodes = [_fact_node(fact, first) for fact, first in facts.items() if fact not in grouped]
    nodes += [_group_node(group, [facts[member] for member in group.members]) for group in standing.groups]
    return sorted(nodes, key=lambda node: node.place)


def sort_out(standing: Standing, rules: MergeRules = EVERYBODY) -> Mergeable:
    """The nodes that may be merged, and how many stay as they are, and why."""
    nodes: list[LiveNode] = []
    stays: Counter[Stays] = Counter()
    for node in live_nodes(standing):
        why = _why(standing, node, rules)
        if why is not None:
            stays[why] += 1
        elif node.id in standing.live:
            nodes.append(node)
    instants = sorted({turn.said_at for turn in standing.turns})
    place = {instant: index for index, instant in enumerate(instants)}
    return Mergeable(nodes, [place[node.said_at] for node in nodes], stays)


def count_nodes(memory: Memory) -> int:
    """How many live nodes there are."""
    return len(memory.canon.facts) - len(memory.units.group_of) + len(memory.units.groups)


def nodes_of(memory: Memory, facts: Iterable[FactId], rules: MergeRules = EVERYBODY) -> list[LiveNode]:
    """The nodes that these facts are in and that may be merged, in time order; costs what these facts are."""
    units, known = memory.units, memory.canon.facts
    nodes: list[LiveNode] = []
    for node in dict.fromkeys(units.group_of.get(fact, fact) for fact in facts if fact in known):
        group = units.groups.get(node)
        if group is None:
            made = _fact_node(node, known[node].first)
        else:
            made = _group_node(group, [known[member].first for member in group.members])
        if may_be_merged(memory, made, rules):
            nodes.append(made)
    return sorted(nodes, key=lambda node: node.place)


def why_it_stays(memory: Memory, fact: FactId, rules: MergeRules = EVERYBODY) -> Stays | None:
    """Why a fact of a Memory is merged with no other one by these rules; None when it may be."""
    known, validity = memory.canon.facts[fact], memory.placement.validity
    if known.pinned:
        return Stays.PINNED
    if validity.may_change(fact) or fact in validity.superseded:
        return Stays.STATE
    if rules.spares_apart and fact in memory.units.apart:
        return Stays.APART
    return _by_rule(known.first, rules)


def may_be_merged(memory: Memory, node: LiveNode, rules: MergeRules = EVERYBODY) -> bool:
    """Whether a node stands as it was, and need not stay so.

    A state that another one may end stays by itself: a group of three homes would hold at all times. One that is
    to join its trajectory must have ended when it was said to.
    """
    facts = memory.canon.facts
    if any(member not in facts for member in node.members):
        return False
    if node.until is not None:
        fact = node.members[0]
        return not facts[fact].pinned and memory.placement.validity.until(fact) == node.until
    return node.id in memory.nodes.row_of and all(
        why_it_stays(memory, member, rules) is None for member in node.members
    )


def due_trajectories(
    memory: Memory, rules: MergeRules = EVERYBODY, *, every: bool = False
) -> list[tuple[LiveNode, ...]]:
    """The trajectories that are to be fused, each as the states in it, in order.

    Looks at chains in which something changed since it was asked last and nothing was to do (`every`: at all of
    those in which something ended), so what is asked for may be asked again until it stands.
    """
    validity, units = memory.placement.validity, memory.units
    keys = validity.ended_chains() if every else list(validity.resettled)
    due: list[tuple[LiveNode, ...]] = []
    for key in keys:
        ended, waits = _ended_states(memory, key, rules)
        runs = plan_trajectories([ended], units.groups)
        due += [tuple(_ended_node(memory, fact) for fact in run) for run in runs]
        if not runs and not waits:
            validity.resettled.pop(key, None)
    return due


def _ended_states(memory: Memory, key: StateKey, rules: MergeRules) -> tuple[list[FactId], bool]:
    """The states of a chain that ended and may be merged, in order; and whether one will be old enough later."""
    validity, facts, apart = memory.placement.validity, memory.canon.facts, memory.units.apart
    ended: list[FactId] = []
    waits = False
    for told in validity.states.get(key, ()):
        if validity.until(told.fact) is None or facts[told.fact].pinned:
            continue
        if rules.spares_apart and told.fact in apart:
            continue
        why = _by_rule(facts[told.fact].first, rules)
        waits |= why is Stays.YOUNG
        if why is None:
            ended.append(told.fact)
    return ended, waits


def _why(standing: Standing, node: LiveNode, rules: MergeRules) -> Stays | None:
    """Why a node of a copy stays as it is."""
    for reason, facts in ((Stays.PINNED, standing.pinned), (Stays.STATE, standing.states)):
        if any(member in facts for member in node.members):
            return reason
    if rules.spares_apart and any(member in standing.apart for member in node.members):
        return Stays.APART
    if not rules.never_merged and rules.said_until is None:
        return None
    reasons = (_by_rule(standing.facts[member], rules) for member in node.members)
    return next((reason for reason in reasons if reason is not None), None)


def _by_rule(first: Occurrence, rules: MergeRules) -> Stays | None:
    if first.role in rules.never_merged:
        return Stays.KIND
    if rules.said_until is not None and first.said_at > rules.said_until:
        return Stays.YOUNG
    return None


def _ended_node(memory: Memory, fact: FactId) -> LiveNode:
    """A state that ended, as it joins its trajectory: from when it held until when."""
    node = _fact_node(fact, memory.canon.facts[fact].first)
    return replace(node, until=memory.placement.validity.until(fact))


def _fact_node(fact: FactId, first: Occurrence) -> LiveNode:
    ref, times = FactText(first.pointer), (first.said_at, first.time_start, first.time_end)
    return LiveNode(fact, (fact,), (ref,), (first.time_start,), ref, *times, _place(first))


def _group_node(group: Group, firsts: Sequence[Occurrence]) -> LiveNode:
    last = max(firsts, key=_place)
    return LiveNode(
        id=group.id,
        members=group.members,
        member_refs=tuple(FactText(first.pointer) for first in firsts),
        member_starts=tuple(first.time_start for first in firsts),
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
