"""Units of facts: what is planned of them beside everything else, what counts of a plan, what goes on of one."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from daemon.building.live_nodes import LiveNode
from daemon.building.partitioning import Partitioning, _User
from daemon.building.unit_plans import PlannedGroup, Said, UnitStanding, plan_groups_of
from daemon.building.unit_vectors import Places, Row
from events.eventtree import UnitMembers, UnitsPartitioned
from events.log import EventLog
from events.memory import FactId, Pointer
from events.reading import read_user
from projections.eventtree.online import BOOTSTRAP_FACTS_MIN, UnitsPlan
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode, UnitSums
from projections.eventtree.units import Units, make_group_id
from projections.memory import Memory
from projections.texts import FactText
from projections.transcript import TurnKept
from tests.builders import MONDAY, ManualClock, an_id
from tests.counting import count_calls
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.waiting import wait_until

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
TURN = TurnKept(ALICE, ALICE, 0)
# Units alone: nothing is ever over its target.
NO_MERGES = EventTreeParameters(ratio=0.0)
PARAMETERS = EventTreeParameters()


async def learn(parts: Parts, facts: int, session_id: str = "s1") -> None:
    await parts.say(*(f"thing {number} of {session_id}." for number in range(facts)), session_id=session_id)
    await parts.close(session_id)


async def until_placed(parts: Parts) -> Memory:
    def is_placed() -> bool:
        memory = parts.memories.loaded().get(ALICE)
        return parts.is_done() and memory is not None and not parts.worker.count_planned(ALICE)

    await wait_until(is_placed, timeout_s=60, message="facts are in no unit")
    return await parts.memory()


def partitioning_of(parts: Parts) -> Partitioning:
    assert parts.worker.deciding.partitioning is not None
    return parts.worker.deciding.partitioning


def turns_at(instants: Sequence[int]) -> Memory:
    """A Memory with turns of these instants, and nothing else."""
    memory = Memory(ALICE, SMALL)
    for seq, at in enumerate(instants, start=1):
        memory.turns[seq] = replace(TURN, said_at=at)
    return memory


def test_a_place_is_that_among_all_instants_however_turns_come() -> None:
    rng = random.Random(SEED)
    instants = [MONDAY + rng.randrange(200) for _ in range(300)]
    memory, places = turns_at(instants[:100]), Places()
    places.take(memory)
    for seq, at in enumerate(instants[100:], start=101):
        memory.turns[seq] = replace(TURN, said_at=at)
    places.take(memory)

    expected = sorted(set(instants))
    assert [places.place(at) for at in expected] == list(range(len(expected))), f"seed {SEED}"


async def test_sums_of_units_follow_what_is_in_them_and_are_made_again_when_missing(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=NO_MERGES)
    async with running(parts):
        await learn(parts, 30, "s1")
        await until_placed(parts)
        await learn(parts, 30, "s2")
        await until_placed(parts)
        await parts.forgetter.forget("alice", "s1")
        memory = await until_placed(parts)
        units = partitioning_of(parts).units
        kept, _ = await units.sums(memory)
        units.forget(ALICE)
        made, _ = await units.sums(memory)
        rows = await units.rows(memory, [fact.first.pointer for fact in memory.canon.facts.values()])

    assert set(kept) == set(made) == set(memory.units.facts_of)
    assert len(memory.canon.facts) == 30 == len(memory.units.unit_of)
    known, expected = memory.canon.facts, UnitSums()
    places = {at: n for n, at in enumerate(sorted({turn.said_at for turn in memory.turns.values()}))}
    nodes = {
        fact: UnitNode((fact,), rows[known[fact].first.pointer], places[known[fact].first.said_at])
        for fact in known
    }
    for unit, facts in memory.units.facts_of.items():
        expected.put(unit, sorted((nodes[fact] for fact in facts), key=lambda node: node.position))
    for node in nodes.values():
        best = expected.best_unit(node, PARAMETERS)
        assert kept.best_unit(node, PARAMETERS) == made.best_unit(node, PARAMETERS) == best


async def test_a_store_from_before_there_were_units_is_partitioned_at_once(
    log: EventLog, clock: ManualClock
) -> None:
    before = build_parts(log, clock)
    facts = BOOTSTRAP_FACTS_MIN + 10
    async with running(before):
        for name in ("s1", "s2"):
            await before.say(
                " ".join(f"Thing {number} is of {name}." for number in range(facts // 2)), session_id=name
            )
            await before.close(name)
        await wait_until(before.is_done, timeout_s=60)
    parts = build_parts(log, clock, online=NO_MERGES)
    async with running(parts):
        await parts.memory()
        memory = await until_placed(parts)

    assert len(memory.units.unit_of) == len(memory.canon.facts) == facts
    assert len(await _partitions(log)) == 2, "one event a session"
    assert max(map(len, memory.units.facts_of.values())) <= PARAMETERS.unit_cap


async def _partitions(log: EventLog) -> list[UnitsPartitioned]:
    events = await log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [each.event for each in events if isinstance(each.event, UnitsPartitioned)]


def test_a_plan_counts_as_long_as_no_unit_changed_that_it_touches() -> None:
    units = Units()
    for number in range(3):
        units.add_fact(an_id(f"f{number}"))
    units.apply_partition(_moved("u1", "f0"))
    seen = units.changes
    units.apply_partition(_moved("u2", "f1"))

    assert units.changed_since(seen) == [an_id("u2")]
    assert units.unplaced == {an_id("f2"): None}
    units.remove_fact(an_id("f1"))
    assert (units.changed_since(seen), set(units.facts_of)) == ([an_id("u2")], {an_id("u1")})


async def test_a_plan_that_empties_a_unit_is_stale_once_something_was_merged_there(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=NO_MERGES)
    async with running(parts):
        await learn(parts, 4)
        memory = await until_placed(parts)
        partitioning, units = partitioning_of(parts), memory.units
        plan = UnitsPlan((UnitMembers(an_id("made anew"), tuple(units.unit_of)),), {an_id("made anew"): ()})

        partitioning._users[ALICE] = _User(units, units.changes, plan)
        stands = await partitioning.decide(memory)
        partitioning._users[ALICE] = _User(units, units.changes, plan)
        left = next(iter(units.facts_of))
        units._touch(left)  # by a merge
        torn = await partitioning.decide(memory)

    assert len(stands) == 1
    assert torn == [], "the facts of the new group would be torn apart"


def test_facts_that_wait_in_vain_are_not_looked_through_again_and_again(parts: Parts) -> None:
    parts = build_parts(parts.log, parts.clock, online=NO_MERGES)
    memory, partitioning = Memory(ALICE, SMALL), partitioning_of(parts)
    facts = [an_id(f"f{number}") for number in range(1_000)]
    for fact in facts:
        memory.units.add_fact(fact)
    partitioning._users[ALICE] = _User(memory.units, left=set(facts))
    waits = partitioning.waits(memory)
    calls = count_calls(lambda: partitioning.waits(memory))
    memory.units.add_fact(an_id("another one"))

    assert not waits
    assert calls < 20
    assert partitioning.waits(memory)


def _moved(unit: str, *facts: str) -> UnitsPartitioned:
    return UnitsPartitioned(1, (UnitMembers(an_id(unit), tuple(map(an_id, facts))),))


def a_node(*numbers: int) -> LiveNode:
    """A fact, or a group of several, of turns a minute apart."""
    facts = tuple(an_id(f"f{number}") for number in numbers)
    refs = tuple(FactText(Pointer(number, 0)) for number in numbers)
    at = MONDAY + max(numbers)
    node = facts[0] if len(facts) == 1 else make_group_id(facts)
    return LiveNode(node, facts, refs, (at,) * len(facts), refs[0], at, at, at, (max(numbers), 0, 0, 0))


def stand(
    nodes: Sequence[LiveNode], fresh: frozenset[bytes] = frozenset(), *, is_due: bool = False
) -> UnitStanding:
    numbers = [ref.occurrence.seq for node in nodes for ref in node.member_refs]
    said = {an_id(f"f{number}"): Said(number, (number,)) for number in numbers}
    return UnitStanding(sorted(nodes, key=lambda node: node.place), said, fresh, is_due)


def members_of(groups: Sequence[PlannedGroup]) -> set[tuple[FactId, ...]]:
    return {tuple(member for node in group.nodes for member in node.members) for group in groups}


@pytest.mark.parametrize("share", [0.0, 0.3, 0.7, 1.0])
def test_a_plan_that_was_broken_off_goes_on_with_the_groups_that_are_left(share: float) -> None:
    rng = random.Random(SEED)
    rows = {Pointer(number, 0): _row(rng) for number in range(40)}
    singles = [a_node(number) for number in range(40)]
    whole = plan_groups_of(stand(singles, is_due=True), rows, PARAMETERS)
    made = [group for group in whole if rng.random() < share]
    numbers = [[ref.occurrence.seq for node in group.nodes for ref in node.member_refs] for group in made]
    groups = [a_node(*each) for each in numbers]
    gone = {number for each in numbers for number in each}
    nodes = [*groups, *(node for number, node in enumerate(singles) if number not in gone)]
    left = plan_groups_of(stand(nodes, frozenset(node.id for node in groups)), rows, PARAMETERS)

    assert members_of(left) == members_of(whole) - members_of(made), f"seed {SEED}"
    assert len(whole) > 5


def test_groups_of_no_plan_stay_and_the_rest_is_planned_only_if_it_is_due() -> None:
    rng = random.Random(SEED)
    rows = {Pointer(number, 0): _row(rng) for number in range(40)}
    singles = [a_node(number) for number in range(40)]
    whole = members_of(plan_groups_of(stand(singles, is_due=True), rows, PARAMETERS))
    strange = next(pair for pair in ((0, number) for number in range(39, 0, -1)) if _ids(pair) not in whole)
    group = a_node(*strange)
    nodes = [group, *(node for number, node in enumerate(singles) if number not in strange)]
    fresh = frozenset((group.id,))
    again = plan_groups_of(stand(nodes, fresh, is_due=True), rows, PARAMETERS)

    assert plan_groups_of(stand(nodes, fresh), rows, PARAMETERS) == []
    assert again
    for planned in again:
        assert group.id not in {node.id for node in planned.nodes} or len(planned.nodes) == 2


def _ids(numbers: Sequence[int]) -> tuple[FactId, ...]:
    return tuple(an_id(f"f{number}") for number in numbers)


def _row(rng: random.Random) -> Row:
    row = np.array([rng.gauss(0, 1) for _ in range(16)], dtype=np.float32)
    return row / np.float32(np.linalg.norm(row))
