"""Groups in a whole daemon when what they rest on is undone: forgotten, edited, extracted again, taken apart."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from daemon.asking.differences import Differences, DiffParams
from daemon.asking.history import History
from daemon.asking.structures import PageParams, Structures
from daemon.building.corrections import Corrections, PinParams
from daemon.building.fusing import decide, plan_merge, plan_trajectory
from daemon.building.live_nodes import copy_standing, due_trajectories, live_nodes, may_be_merged
from daemon.building.replaying import Replaying, ReplayParams
from daemon.folding import fold_from_nothing
from events.envelope import Reference
from events.eventtree import NodesMerged, UnitId
from events.log import EventLog
from events.memory import FactId
from events.schema import open_writer
from events.session import TurnRevised
from events.withdrawal import sources_of
from projections.digests import digest_memory
from projections.memory import Memory
from projections.texts import events_behind
from tests.builders import KEYS, MONDAY, SECRET, ManualClock, a_retraction, a_revision
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, SMALL, Parts, build_parts, running
from tests.projections.facts.state_world import StateWorld
from tests.stored import stored_rows

SESSIONS = ("s1", "s2", "s3")
TURNS = 10
BOSTON, DAVIS, MIAMI = "Alice moved to Boston.", "Alice moved to Davis.", "Alice moved to Miami."


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock)


async def learn(parts: Parts) -> None:
    """Ten facts of each of three sessions about the same things, and groups of them."""
    for session in SESSIONS:
        contents = [f"Thing {n} is of {session}." for n in range(TURNS)]
        await parts.say(*contents, session_id=session)
        await parts.close(session)
    await parts.until_done()
    await parts.compactor.compact(ALICE)


def groups_of(memory: Memory) -> set[tuple[FactId, ...]]:
    return {group.members for group in memory.units.groups.values()}


def in_session(memory: Memory, session: str, facts: Iterable[FactId]) -> bool:
    """Whether one of these was first read there."""
    wanted: Reference = KEYS.session("alice", session)
    return any(memory.canon.facts[fact].first.session == wanted for fact in facts)


def units_without(memory: Memory, session: str) -> dict[FactId, UnitId]:
    return {fact: unit for fact, unit in memory.units.unit_of.items() if not in_session(memory, session, (fact,))}


async def assert_as_folded(parts: Parts) -> None:
    calls = len(parts.model.calls)
    live = await parts.memory()
    folded = await fold_from_nothing(parts.log, ALICE, SMALL)

    assert digest_memory(folded) == digest_memory(live)
    assert len(parts.model.calls) == calls


@pytest.mark.parametrize("session", ["s1", "s2"])
async def test_all_groups_are_listed_that_have_nothing_of_the_forgotten_session_and_all_facts_stay_in_units(
    parts: Parts, session: str
) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        expected = {each for each in groups_of(before) if not in_session(before, session, each)}
        places, seqs = units_without(before, session), [each.seq for each in before.units.groups.values()]
        fallen = [each.seq for each in before.units.groups.values() if in_session(before, session, each.members)]
        await parts.forgetter.forget("alice", session)
        await parts.until_done()
        after = await parts.memory()
        page = await Structures(parts.log, parts.memories).units(PageParams(user_id="alice", limit=1_000))

    assert 0 < len(expected) < len(seqs)
    assert groups_of(after) == expected
    assert {tuple(bytes.fromhex(each) for each in group.members) for group in page.groups} == expected
    assert after.units.unit_of == places
    assert list(after.units.unplaced) == []
    for seq in fallen:
        assert stored_rows(parts.log.path, "SELECT n FROM words WHERE seq = ? AND text IS NOT NULL", seq) == []
    await assert_as_folded(parts)


async def test_after_an_edit_the_groups_of_its_chunk_fall_and_what_is_read_anew_waits_for_a_unit(
    parts: Parts,
) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        standing = groups_of(before)
        turn = KEYS.key(f"turn/alice/s2/t{TURNS + 1}/0")
        place = before.transcript.placed[turn].seq
        (chunk,) = (each for each in before.chunks.values() if place in each.turns)
        read = {fact.id for fact in before.canon.facts.values() if set(fact.turns) & set(chunk.turns)}
        revision = a_revision(
            "Thing 0 is another one now.",
            session_id="s2",
            turn_id=f"t{TURNS + 1}",
            happened_at=MONDAY + (TURNS + 1) * MINUTE_MS,
        )
        await parts.log.append_event(revision)
        await parts.until_done()
        after = await parts.memory()

    assert groups_of(after) == {group for group in standing if read.isdisjoint(group)} != set()
    assert after.units.unit_of == {fact: unit for fact, unit in before.units.unit_of.items() if fact not in read}
    assert set(after.units.unplaced) == after.canon.facts.keys() - before.canon.facts.keys()
    assert len(after.units.unplaced) == len(read)
    await assert_as_folded(parts)


async def test_after_a_retraction_nothing_of_the_group_is_left_in_the_store(parts: Parts) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        turn = before.transcript.placed[KEYS.key("turn/alice/s1/t1/0")].seq
        (fact,) = (each.id for each in before.canon.facts.values() if turn in each.turns)
        group = before.units.groups[before.units.group_of[fact]]
        await parts.log.append_event(a_retraction("t1", "s1"))
        await parts.until_done()
        after = await parts.memory()

    assert fact not in after.canon.facts
    assert group.id not in after.units.groups
    await assert_as_folded(parts)


async def test_a_session_that_is_extracted_again_gets_new_facts_and_only_its_own_groups_fall(
    parts: Parts,
) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        standing = groups_of(before)
        parts.model.prompts += 1
        replaying = Replaying(parts.log, parts.memories, parts.model, parts.clock, 20.0)
        await replaying.replay(ReplayParams(user_id="alice", session_id="s1"))
        await parts.until_done()
        after = await parts.memory()

    assert groups_of(after) == {each for each in standing if not in_session(before, "s1", each)} != set()
    assert after.units.unit_of == units_without(before, "s1")
    assert len(after.units.unplaced) == TURNS
    await assert_as_folded(parts)


async def test_a_text_that_comes_after_its_group_was_taken_apart_is_not_recorded(parts: Parts) -> None:
    async with running(parts):
        await learn(parts)
        memory = await parts.memory()
        group = next(iter(memory.units.groups.values()))
        nodes = [node for node in live_nodes(copy_standing(memory)) if node.id in memory.nodes.row_of]
        node = next(each for each in nodes if each.id == group.id)
        other = next(each for each in nodes if each.id != group.id)
        work = plan_merge(memory, (node, other), group.unit)
        assert work is not None
        answer = await parts.worker.engine.answer(ALICE, work)
        assert answer is not None
        undone = await parts.compactor.undo(ALICE, [group.id.hex()])
        await parts.worker.recorder.record(work, answer)
        after = await parts.memory()

    assert (undone.groups, undone.facts) == (1, len(group.members))
    assert work.request not in after.units.groups
    assert list(after.units.apart) == list(group.members)
    await assert_as_folded(parts)


@pytest.mark.parametrize("first", ["undo", "forget"])
async def test_undone_and_forgotten_in_any_order_nothing_comes_back(parts: Parts, first: str) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        standing = groups_of(before)
        for step in ("undo", "forget") if first == "undo" else ("forget", "undo"):
            if step == "undo":
                await parts.compactor.undo(ALICE)
            else:
                await parts.forgetter.forget("alice", "s1")
                await parts.until_done()
        after = await parts.memory()

    assert after.units.groups == {}
    grouped = {
        fact
        for group in standing
        for fact in group
        if not in_session(before, "s1", group if first == "forget" else (fact,))
    }
    assert after.units.apart.keys() == grouped
    await assert_as_folded(parts)


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StateWorld]:
    """Alice lived in three towns, one after the other; the first two are one trajectory."""
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        world = StateWorld(connection)
        for text, at, session in ((BOSTON, "2022-03-01", "s1"), (DAVIS, "2023-05-01", "s2")):
            world.live(text, at, session)
        world.live(MIAMI, "2024-07-01", "s3")
        (states,) = due_trajectories(world.memory)
        work = plan_trajectory(world.memory, states)
        assert work is not None
        told = tuple(sorted({*work.ends, *events_behind(node.ref for node in states)}))
        merged = NodesMerged(
            1, work.unit, work.facts, told, "a model", "Boston, until May 2023; Davis, until July."
        )
        world.write(decide(world.memory, merged))
        yield world


def test_a_trajectory_rests_on_what_tells_that_its_last_state_ended(world: StateWorld) -> None:
    (group,) = world.memory.units.groups.values()
    (recorded,) = (each for each in world.events if each.seq == group.seq)
    assert recorded.event is not None
    told = [world.fact(text).first.pointer.seq for text in (BOSTON, DAVIS, MIAMI)]

    assert group.members == (world.id(BOSTON), world.id(DAVIS))
    assert list(sources_of(recorded.event)) == told
    assert set(recorded.lineage) == {KEYS.session("alice", session) for session in SESSIONS}


def test_a_trajectory_falls_when_the_turn_is_edited_that_told_its_last_end(world: StateWorld) -> None:
    told = world.fact(MIAMI).first.turns[0]
    (turn,) = (key for key, placed in world.memory.transcript.placed.items() if placed.seq == told)
    world.write(replace(a_revision("I stayed in Davis.", session_id="s3"), event=another_wording(turn)))

    assert world.memory.units.groups == {}
    assert {world.text_of(fact) for fact in world.memory.canon.facts.values()} == {BOSTON, DAVIS}
    assert world.memory.placement.validity.until(world.id(DAVIS)) is None


def another_wording(turn: Reference) -> TurnRevised:
    event = a_revision("I stayed in Davis.").event
    assert isinstance(event, TurnRevised)
    return replace(event, turn=turn)


def test_a_trajectory_falls_when_what_ended_it_is_denied_and_is_due_when_it_ends_again(world: StateWorld) -> None:
    before = len(world.memory.units.groups)
    world.retract(MIAMI)
    left = len(world.memory.units.groups)
    world.live("Alice moved to Oslo.", "2024-09-01", "s4")
    (again,) = due_trajectories(world.memory)

    assert (before, left) == (1, 0)
    assert [node.id for node in again] == [world.id(BOSTON), world.id(DAVIS)]
    assert all(may_be_merged(world.memory, node) for node in again)
    assert digest_memory(world.rebuilt()) == digest_memory(world.memory)


async def test_a_difference_tells_of_a_group_that_came_back(parts: Parts) -> None:
    async with running(parts):
        await learn(parts)
        memory = await parts.memory()
        group = next(iter(memory.units.groups.values()))
        fact = group.members[0].hex()
        listings = Structures(parts.log, parts.memories)
        corrections = Corrections(parts.log, parts.memories, parts.worker, listings, parts.clock)
        start = parts.log.head
        await corrections.pin(PinParams(user_id="alice", fact_id=fact, pinned=True))
        pinned = parts.log.head
        await corrections.pin(PinParams(user_id="alice", fact_id=fact, pinned=False))
        await parts.until_done()
        differences = Differences(parts.log, History(parts.log, SMALL))
        fell = await differences.diff(DiffParams(user_id="alice", a=start, b=pinned))
        came = await differences.diff(DiffParams(user_id="alice", a=pinned))

    assert [each.id for each in fell.groups_undone] == [group.id.hex()]
    assert came.groups_made == fell.groups_undone
    assert came.groups_made[0].text
    assert (fell.groups_made, came.groups_undone) == ([], [])
