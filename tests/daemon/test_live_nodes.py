"""Who may be merged and why not, and states that ended as trajectories of their own."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from daemon.building.fusing import decide, plan_merge, plan_trajectory
from daemon.building.live_nodes import (
    LiveNode,
    MergeRules,
    Stays,
    copy_standing,
    due_trajectories,
    may_be_merged,
    nodes_of,
    sort_out,
    why_it_stays,
)
from events.eventtree import NodesMerged
from events.memory import FactRole
from events.schema import open_writer
from projections.memory import Memory
from tests.builders import KEYS, MONDAY, SECRET
from tests.projections.facts.fact_world import a_fact
from tests.projections.facts.state_world import StateWorld

BOSTON, DAVIS, MIAMI = "Alice lives in Boston.", "Alice moved to Davis.", "Alice lives in Miami."
RACE, BOAT, CAKE = "Alice won a race.", "Alice bought a boat.", "Alice ate a cake."
YOUNG = MergeRules(said_until=MONDAY)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StateWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield StateWorld(connection)


@pytest.fixture
def moved(world: StateWorld) -> StateWorld:
    """Alice lived in three towns, and did two things."""
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.live(MIAMI, "2024-07-01", "s3")
    world.learn(RACE, BOAT, session="s4")
    return world


def texts_of(world: StateWorld, nodes: list[LiveNode] | tuple[LiveNode, ...]) -> list[str]:
    return [world.text_of(world.memory.canon.facts[fact]) for node in nodes for fact in node.members]


def due(world: StateWorld, rules: MergeRules | None = None) -> list[list[str]]:
    return [texts_of(world, states) for states in due_trajectories(world.memory, rules or MergeRules())]


def fuse(world: StateWorld) -> None:
    """Record the trajectories that are due, as a daemon does."""
    memory = world.memory
    for states in due_trajectories(memory):
        work = plan_trajectory(memory, states)
        assert work is not None
        merged = NodesMerged(1, work.unit, work.facts, (1,), "offline", "All of it.", extractive=True)
        world.write(decide(memory, merged))


def check_one_by_one(memory: Memory, rules: MergeRules) -> None:
    """What is planned of a copy is what may be merged in the Memory, node by node."""
    found = sort_out(copy_standing(memory), rules)

    assert found.nodes == nodes_of(memory, memory.canon.facts, rules)
    assert all(may_be_merged(memory, node, rules) for node in found.nodes)


def test_states_stay_by_themselves_and_pinned_facts_too_and_each_is_counted(moved: StateWorld) -> None:
    moved.pin(BOAT)
    found = sort_out(copy_standing(moved.memory))

    assert texts_of(moved, found.nodes) == [RACE]
    assert found.stays == {Stays.STATE: 3, Stays.PINNED: 1}
    assert len(found.positions) == 1
    check_one_by_one(moved.memory, MergeRules())


def test_roles_that_are_never_merged_and_what_was_said_too_lately_stay(moved: StateWorld) -> None:
    never = MergeRules(never_merged=frozenset((FactRole.DETAIL,)))
    of_all = copy_standing(moved.memory)

    assert sort_out(of_all, never).stays == {Stays.STATE: 3, Stays.KIND: 2}
    assert sort_out(of_all, YOUNG).stays == {Stays.STATE: 3, Stays.YOUNG: 2}
    assert why_it_stays(moved.memory, moved.id(RACE), YOUNG) is Stays.YOUNG
    check_one_by_one(moved.memory, never)
    check_one_by_one(moved.memory, YOUNG)


def test_a_group_stays_by_what_any_of_its_members_is(moved: StateWorld) -> None:
    moved.learn(CAKE, session="s5")
    moved.merge(moved.id(RACE), moved.id(CAKE))
    between = MergeRules(said_until=moved.fact(RACE).first.said_at)

    assert sort_out(copy_standing(moved.memory), between).stays == {Stays.STATE: 3, Stays.YOUNG: 1}
    assert sorted(texts_of(moved, nodes_of(moved.memory, [moved.id(RACE)]))) == sorted([RACE, CAKE])
    check_one_by_one(moved.memory, between)


def test_what_an_undo_took_apart_is_merged_only_when_somebody_asks(moved: StateWorld) -> None:
    moved.merge(moved.id(RACE), moved.id(BOAT))
    moved.undo()
    background = MergeRules(spares_apart=True)

    assert sort_out(copy_standing(moved.memory), background).stays == {Stays.STATE: 3, Stays.APART: 2}
    assert len(sort_out(copy_standing(moved.memory)).nodes) == 2
    check_one_by_one(moved.memory, background)


def test_the_states_that_ended_are_due_in_order_and_the_one_that_holds_is_not(moved: StateWorld) -> None:
    assert due(moved) == [[BOSTON, DAVIS]]
    (states,) = due_trajectories(moved.memory)
    assert [node.until for node in states] == [
        moved.memory.placement.validity.until(moved.id(text)) for text in (BOSTON, DAVIS)
    ]
    assert all(may_be_merged(moved.memory, node) for node in states)


def test_a_trajectory_that_stands_is_due_no_more_until_another_state_ends(moved: StateWorld) -> None:
    fuse(moved)
    after, keys = due(moved), dict(moved.memory.placement.validity.resettled)
    moved.live("Alice moved to Oslo.", "2025-02-01", "s5")

    assert (after, keys) == ([], {}), "and its chain is not looked at again"
    assert due(moved) == [[BOSTON, DAVIS, MIAMI]]
    fuse(moved)
    assert [len(group.members) for group in moved.memory.units.groups.values()] == [3]
    assert due(moved) == []
    assert [texts_of(moved, states) for states in due_trajectories(moved.memory, every=True)] == []


def test_a_trajectory_is_merged_with_nothing_else(moved: StateWorld) -> None:
    fuse(moved)
    found = sort_out(copy_standing(moved.memory))

    assert sorted(texts_of(moved, found.nodes)) == sorted([RACE, BOAT])
    assert found.stays == {Stays.STATE: 2}, "the trajectory and the home of today"
    check_one_by_one(moved.memory, MergeRules())


def test_a_state_that_holds_again_takes_its_trajectory_apart(moved: StateWorld) -> None:
    fuse(moved)
    moved.retract(MIAMI)
    moved.supersede()

    assert moved.memory.units.groups == {}
    assert due(moved) == []


def test_a_state_that_is_corrected_takes_its_trajectory_apart_and_it_is_fused_again(moved: StateWorld) -> None:
    fuse(moved)
    moved.reword(DAVIS, "Alice moved to Fresno.")
    moved.supersede()

    assert moved.memory.units.groups == {}
    assert due(moved) == [[BOSTON, "Alice moved to Fresno."]]


def test_a_home_that_is_told_late_is_put_in_its_place(moved: StateWorld) -> None:
    fuse(moved)
    moved.live("Alice moved to Fresno.", "2022-09-01", "s5")
    taken_apart = moved.memory.units.groups == {}

    assert taken_apart, "Boston was left earlier than its text says"
    assert due(moved) == [[BOSTON, "Alice moved to Fresno.", DAVIS]]


def test_a_state_that_ends_otherwise_while_its_text_is_written_is_not_recorded(moved: StateWorld) -> None:
    (states,) = due_trajectories(moved.memory)
    moved.live("Alice moved to Fresno.", "2022-09-01", "s5")

    assert [may_be_merged(moved.memory, node) for node in states] == [False, True]


def test_pins_ages_and_undos_hold_for_trajectories_too(moved: StateWorld) -> None:
    assert due(moved, YOUNG) == []
    assert due(moved) == [[BOSTON, DAVIS]], "it is due once it is old enough"
    fuse(moved)
    moved.undo()
    background = MergeRules(spares_apart=True)
    assert due_trajectories(moved.memory, background, every=True) == []
    assert len(due_trajectories(moved.memory, every=True)) == 1
    moved.pin(BOSTON)
    assert due_trajectories(moved.memory, every=True) == [], "of two one is pinned"


def test_hobbies_that_ended_are_no_trajectory_of_what_was_never_left(world: StateWorld) -> None:
    world.live("Alice plays chess.", "2022-03-01", "s1", attribute="hobby")
    world.live("Alice paints.", "2023-03-01", "s2", attribute="hobby")

    assert due(world) == []


def test_the_lineage_of_a_trajectory_has_who_told_of_the_ends(moved: StateWorld) -> None:
    (states,) = due_trajectories(moved.memory)
    work, alone = (
        plan_trajectory(moved.memory, states),
        plan_merge(moved.memory, tuple(nodes_of(moved.memory, [moved.id(RACE)])), b"u"),
    )

    assert work is not None
    assert alone is not None
    assert set(work.lineage) == {KEYS.session("alice", name) for name in ("s1", "s2", "s3")}
    assert set(alone.lineage) == {KEYS.session("alice", "s4")}


def test_another_end_is_another_question(moved: StateWorld) -> None:
    (states,) = due_trajectories(moved.memory)
    before = plan_trajectory(moved.memory, states)
    moved.retract(MIAMI)
    moved.live("Alice moved to Oslo.", "2023-12-01", "s5")
    (states,) = due_trajectories(moved.memory)
    after = plan_trajectory(moved.memory, states)

    assert before is not None
    assert after is not None
    assert before.request == after.request, "the group of the same facts"
    assert list(before.inputs()) != list(after.inputs())


def test_a_copy_holds_the_loop_for_less_than_a_millisecond_a_thousand_facts(world: StateWorld) -> None:
    texts = [f"Alice saw thing {n}." for n in range(40)]
    for start in range(0, 1_000, 40):
        world.say("Hello.", "Well.")
        world.extract(*(a_fact(f"{text[:-1]} on day {start}.") for text in texts))
        world.admit()
    runs: list[float] = []
    for _ in range(10):
        started = time.thread_time()
        copy_standing(world.memory)
        runs.append(time.thread_time() - started)

    assert len(world.memory.canon.facts) == 1_000
    assert min(runs) < 0.003, "an eighth of that is usual"
