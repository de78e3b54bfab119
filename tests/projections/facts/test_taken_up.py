"""A fact that another one takes up goes from wherever it stands, and is back when that decision falls."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from events.decisions import JudgedPair, PairsJudged, PairVerdict, Route
from events.memory import ParkReason, Pointer, Task, WorkParked
from events.schema import open_writer
from projections.digests import digest_memory
from projections.facts.near import Nearness
from projections.facts.scopes import Scope, ScopeKind
from projections.watching import Watch
from tests.builders import KEYS, MONDAY, SECRET, a_closing, a_forgetting, an_id
from tests.projections.facts.fact_world import FactWorld
from tests.projections.facts.planning import pairs_to_judge, plan_near
from tests.projections.thawing import thawed

DRIVES, DRIVING = "Ann drives to Oslo.", "Ann is driving to Oslo."
S1, S2 = (KEYS.session("alice", name) for name in ("s1", "s2"))


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FactWorld]:
    """Two facts that say nearly the same, each from its session, in scenes; one of them is in a group."""
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        world = FactWorld(connection)
        world.learn(DRIVES, "Bob owns a van.", session="s1")
        world.learn(DRIVING, "Cid likes cars.", session="s2")
        for session in ("s1", "s2"):
            world.write(a_closing(session))
        world.route(Route(world.fact(DRIVES).id, (an_id("a"),)), Route(world.fact(DRIVING).id, (an_id("b"),)))
        world.merge(world.fact(DRIVING).id, world.fact("Cid likes cars.").id)
        yield world


def test_what_one_fact_stood_for_the_other_stands_for(world: FactWorld) -> None:
    guest, host, liked = world.fact(DRIVING), world.fact(DRIVES), world.fact("Cid likes cars.")
    said = {*host.turns, *guest.turns}
    world.compare()
    memory = world.memory
    node = memory.nodes.node(memory.nodes.row_of[host.id])

    assert world.known() == [DRIVES, "Bob owns a van.", "Cid likes cars."]
    assert (set(node.turns), set(node.sessions)) == (said, {S1, S2})
    assert guest.id not in memory.nodes.row_of
    assert liked.id in memory.nodes.row_of, "the group that held it is gone"
    assert (memory.units.groups, guest.id in memory.units.unit_of) == ({}, False)
    assert not any(guest.id in members for members in memory.members.values())
    assert Scope(ScopeKind.SCENE, an_id("b").hex()) not in memory.forest.trees
    assert guest.id not in memory.placement.scenes.unrouted
    assert digest_memory(world.rebuilt()) == digest_memory(memory) == digest_memory(thawed(memory, world.events))


def test_a_fact_that_was_taken_up_is_back_when_the_other_ones_session_is_forgotten(world: FactWorld) -> None:
    guest = world.fact(DRIVING).id
    world.compare()
    world.write(a_forgetting("s1"))

    assert (world.fact(DRIVING).id, set(world.fact(DRIVING).sessions)) == (guest, {S2})
    assert guest in world.memory.placement.scenes.members[an_id("b")]
    assert not world.memory.canon.waiting


def test_what_was_taken_up_goes_with_its_session_alone(world: FactWorld) -> None:
    world.compare()
    world.write(a_forgetting("s2"))

    assert world.fact(DRIVES).sessions == {S1}
    assert world.known() == [DRIVES, "Bob owns a van."]


def test_whoever_watches_sees_the_fact_go_and_the_other_one_grow(world: FactWorld) -> None:
    guest, host = world.fact(DRIVING).id, world.fact(DRIVES).id
    watch = Watch(world.memory)
    world.compare()
    changes = watch.look(world.events[-1])

    assert (changes.facts_founded, changes.facts_joined, changes.facts_gone) == ((), (host,), (guest,))
    assert len(changes.groups_undone) == 1


def judged(world: FactWorld, one: Pointer, other: Pointer) -> None:
    event = PairsJudged(1, (JudgedPair(one, other, PairVerdict.SAME),), (one.seq, other.seq), "m")
    world.write(world._decided(event, {S1, S2}))


def test_verdicts_and_what_was_given_up_are_in_a_snapshot(world: FactWorld) -> None:
    one, other = world.fact(DRIVING).first.pointer, world.fact(DRIVES).first.pointer
    parked = WorkParked(Task.JUDGE, an_id("request"), ParkReason.REFUSED, (other.seq, one.seq))
    world.write(world._decided(parked, {S1, S2}, n=1))
    judged(world, one, other)
    memory = thawed(world.memory, world.events)

    assert memory.canon.verdicts == world.memory.canon.verdicts == {(one, other): PairVerdict.SAME}
    assert memory.canon.given_up == world.memory.canon.given_up == {(other.seq, one.seq): None}
    assert digest_memory(memory) == digest_memory(world.memory) == digest_memory(world.rebuilt())
    assert plan_near(memory.canon, Nearness({}, 1.0)) == plan_near(world.memory.canon, Nearness({}, 1.0))


def test_a_verdict_goes_with_the_words_it_is_about(world: FactWorld) -> None:
    judged(world, world.fact(DRIVING).first.pointer, world.fact(DRIVES).first.pointer)
    world.write(a_forgetting("s1"))

    assert world.memory.canon.verdicts == {}
    assert pairs_to_judge(world.memory.canon, Nearness({}, 0.9, judged=True)) == ()
