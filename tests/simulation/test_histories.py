"""Random histories against the real log, fold, worker, compactor and forgetter, each from a seed.

Turns come in any order, twice, in later and in older wordings; model answers come in any order, turns are taken
back and sessions forgotten in the middle of everything, the daemon is stopped whenever. SIMULATION_SEED=n runs the
one history of that seed, SIMULATION_HISTORIES=n that many of them.
"""

from __future__ import annotations

import os
import random
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from daemon.parked import ResumeParams
from events.envelope import NewEvent, RecordedEvent, Reference
from events.gate import Verdict
from events.log import EventLog
from events.memory import FactId, FactsExtracted, Task, WorkParked, WorkResumed
from events.reading import read_events
from events.session import ChunkClosed, SessionClosed
from projections.digests import digest_memory
from projections.facts.scenes import scene_scope
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from tests.builders import KEYS, SECRET, ManualClock, a_closed_chunk, seeded_nonces
from tests.simulation.history import QUESTIONS, SESSIONS_PER_USER, USERS, History, marker_of
from tests.simulation.regrouping import check_nothing_waited_for, check_snapshot, check_units
from tests.simulation.world import PARAMETERS, Daemon, running
from tests.stored import stored_bytes, stored_rows

HISTORIES = int(os.environ.get("SIMULATION_HISTORIES", "20"))
SEEDS = [int(os.environ["SIMULATION_SEED"])] if "SIMULATION_SEED" in os.environ else list(range(HISTORIES))
LIVES = 3
STEPS_PER_LIFE = 9


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happened_the_memory_is_that_of_a_store_which_never_saw_what_was_forgotten(
    seed: int, tmp_path: Path
) -> None:
    print("SIMULATION_SEED", seed)
    history = History(seed, random.Random(seed), corrects=seed % 3 == 0)
    path = tmp_path / "events.db"
    online = seed % 4 == 1
    for _ in range(LIVES):
        async with running(path, history.clock, held=True, online=online) as daemon:
            for _ in range(STEPS_PER_LIFE):
                await history.step(daemon)
                await daemon.check()
                await check_groups(daemon, history)
            assert "memory.fold_failed" not in daemon.reports.names
    async with running(path, history.clock, held=False, online=online) as daemon:
        await finish(daemon, history)
        await daemon.check()
        memories = {user: await daemon.memories.catch_up(user) for user in await daemon.users()}
        for user, memory in memories.items():
            assert_scenes_hold_all(memory)
            check_units(memory)
            await check_nothing_waited_for(daemon, user)
        inputs = await surviving_inputs(daemon, path, memories)
        await assert_what_stands_is_searched(daemon, history, memories)
        await assert_nothing_left(daemon, history, memories)
        # What was said of a fact depends on what was known then, so no other store comes to the same.
        said = None if history.corrects else await facts_said(daemon, memories)

    assert_not_in_files(path, history)
    if said is None:
        return
    await play(inputs, tmp_path / "innocent.db", history.clock)
    async with running(tmp_path / "innocent.db", history.clock, held=False) as innocent:
        await innocent.build()
        expected = {user: await innocent.memories.catch_up(user) for user in await innocent.users()}

        assert said == await facts_said(innocent, expected)
        for user, memory in expected.items():
            assert_same(memories[user], memory)


async def check_groups(daemon: Daemon, history: History) -> None:
    """Whatever was planned, undone and forgotten: of one user by lot also as a snapshot has it."""
    for user in await daemon.users():
        check_units(await daemon.memories.catch_up(user))
    await check_snapshot(daemon, KEYS.user(history.chance.choice(USERS)))


async def finish(daemon: Daemon, history: History) -> None:
    """Close every session, so that all is due, and wait until all is built and erased."""
    for user_id in USERS:
        for number in range(SESSIONS_PER_USER):
            session_id = marker_of(user_id, number)
            if session_id in history.said and not history.is_forgotten(user_id, session_id):
                await history.close_session(daemon, user_id, session_id, "last")
    for user_id, session_id in sorted(history.forgotten):
        await daemon.forget(user_id, session_id)
    await daemon.build()
    await daemon.parked.retry(ResumeParams())  # what is given up again, nobody can read
    await daemon.build()
    for user_id in USERS:
        answers = [await daemon.ask(user_id, question) for question in QUESTIONS]
        assert {(each.watermark.pending, each.watermark.lag_s) for each in answers} == {(0, 0.0)}


async def surviving_inputs(
    daemon: Daemon, path: Path, memories: dict[Reference, Memory]
) -> list[tuple[int, NewEvent]]:
    """What was not decided here, in log order with its seq: turns, closings, and what models read in chunks.

    Each turn says from the start what it says in the end. One that was taken back is left out; where its chunk
    ended the chunk is closed.
    """
    events = await daemon.log.read(partial(read_events, seqs=range(1, daemon.log.head + 1)))
    placed = {each.place: each for memory in memories.values() for each in memory.transcript.placed.values()}
    last_turn = {
        chunk.places[-1]: chunk.turns[-1]
        for memory in memories.values()
        for chunk in memory.chunks.values()
        if len(chunk.turns) < PARAMETERS.chunk_turns
    }
    resumed = {each.event.parked for each in events.values() if isinstance(each.event, WorkResumed)}
    inputs: list[tuple[int, NewEvent]] = []
    for recorded in events.values():
        memory = memories.get(recorded.user)
        if memory is None or memory.is_forgotten(recorded):
            continue
        event = recorded.event
        parked = isinstance(event, WorkParked) and event.task is Task.EXTRACT and recorded.seq not in resumed
        if recorded.seq in placed:
            standing = placed[recorded.seq].seq
            said = replace(as_new(events[standing], path), happened_at=memory.turns[standing].said_at)
            inputs.append((standing, said))
        elif isinstance(event, SessionClosed) or (
            (isinstance(event, FactsExtracted) or parked) and recorded.seq not in memory.hindsight.voids
        ):
            inputs.append((recorded.seq, as_new(recorded, path)))
        if recorded.seq in last_turn:
            assert recorded.user_id is not None
            assert recorded.session_id is not None
            closed = a_closed_chunk(last_turn[recorded.seq], recorded.session_id, user_id=recorded.user_id)
            inputs.append((-recorded.seq, closed))
    return inputs


def as_new(recorded: RecordedEvent, path: Path) -> NewEvent:
    """The event as it was before it had a place in the log; its key says how it was named."""
    ((key,),) = stored_rows(path, "SELECT text FROM names WHERE reference = ?", recorded.key)
    assert recorded.user_id is not None
    assert recorded.event is not None
    return NewEvent(
        user_id=recorded.user_id,
        session_id=recorded.session_id,
        event=recorded.event,
        key=key.decode(),
        happened_at=recorded.happened_at,
        lineage=recorded.lineage,
        basis=None if recorded.basis is None else 0,
    )


async def play(inputs: list[tuple[int, NewEvent]], path: Path, clock: ManualClock) -> None:
    """Put the same into another store, where events stand at other places and are all decided on at once."""
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    place: dict[int, int] = {}
    for seq, new in inputs:
        event = new.event
        if isinstance(event, FactsExtracted | WorkParked):
            turns = tuple(place[turn] for turn in event.turns)
            event = replace(event, turns=turns, covers=turns)
        if isinstance(event, FactsExtracted):
            event = replace(event, context=tuple(place[turn] for turn in event.context))
        elif isinstance(event, ChunkClosed):
            event = replace(event, last_turn=place[event.last_turn])
        outcome = await log.append_event(replace(new, event=event))

        assert outcome.verdict is Verdict.RECORDED
        assert outcome.seq is not None
        place[seq] = outcome.seq
    await log.close()


async def facts_said(daemon: Daemon, memories: dict[Reference, Memory]) -> dict[Reference, list[object]]:
    """Text, times and sources of every fact, as a reader is told them; without users of whom nothing is left."""
    said: dict[Reference, list[object]] = {}
    for user, memory in memories.items():
        occurrences = [each for fact in memory.canon.facts.values() for each in fact.occurrences]
        events = await daemon.log.read(partial(read_events, seqs={each.pointer.seq for each in occurrences}))
        turns = {seq: turn.key for seq, turn in memory.turns.items()}
        listed: list[object] = []
        for each in occurrences:
            event = events[each.pointer.seq].event
            assert isinstance(event, FactsExtracted)
            sources = [turns[seq] for seq in each.turns]
            listed.append((event.facts[each.pointer.n].text, each.time_start, each.time_end, sources))
        if memory.turns:
            said[user] = sorted(listed, key=repr)
    return said


def assert_same(memory: Memory, innocent: Memory) -> None:
    """Facts, scopes, trees and summaries agree; what compaction did is a matter of history, and so are scenes."""
    roots, expected_roots = roots_of(memory), roots_of(innocent)

    assert roots == expected_roots
    assert digest_memory(memory).facts == digest_memory(innocent).facts
    assert members_of(memory) == members_of(innocent)
    assert summarised_of(memory) == summarised_of(innocent)
    assert set(memory.chunks) == set(innocent.chunks)


def roots_of(memory: Memory) -> dict[Scope, bytes]:
    return {
        scope: tree.root.digest
        for scope, tree in memory.forest.trees.items()
        if tree.root is not None and scope.kind is not ScopeKind.SCENE
    }


def members_of(memory: Memory) -> dict[Scope, set[FactId]]:
    return {scope: facts for scope, facts in memory.members.items() if scope.kind is not ScopeKind.SCENE}


def summarised_of(memory: Memory) -> dict[Scope, set[bytes]]:
    """The nodes of each tree that have a summary."""
    summaries = memory.forest.summaries
    return {
        scope: {node.digest for node in tree.nodes() if node.digest in summaries}
        for scope, tree in memory.forest.trees.items()
        if scope.kind is not ScopeKind.SCENE
    }


def assert_scenes_hold_all(memory: Memory) -> None:
    """Every fact was routed, to scenes that stand, and the tree of each holds its members and nothing else."""
    scenes, facts = memory.placement.scenes, memory.canon.facts

    assert not scenes.unrouted
    assert {fact for members in scenes.members.values() for fact in members} == facts.keys()
    for scene, members in scenes.members.items():
        assert scenes.resolve(scene) == scene
        assert all(scene in scenes.scenes_of(fact) for fact in members)
        leaves = {leaf.key for leaf in memory.forest.trees[scene_scope(scene)].leaves()}
        assert leaves == {facts[fact].first.leaf_key for fact in members}


async def assert_what_stands_is_searched(
    daemon: Daemon, history: History, memories: dict[Reference, Memory]
) -> None:
    """The chunks say what the simplest model of the turns says, and nothing speaks of another wording."""
    for user_id in USERS:
        if user_id in history.users_forgotten:
            continue
        memory = memories.get(KEYS.user(user_id))
        texts = {} if memory is None else await daemon.chunk_texts(memory)
        sessions = {
            session_id: session
            for session_id, session in history.said.items()
            if session_id.startswith(f"q{user_id}") and not history.is_forgotten(user_id, session_id)
        }
        expected = {KEYS.session(user_id, session_id): each.texts() for session_id, each in sessions.items()}

        assert texts == {session: lines for session, lines in expected.items() if lines}
        superseded = [mark for session in sessions.values() for mark in session.superseded()]
        assert memory is None or not any(memory.nodes.lexical.knows(mark) for mark in superseded)


async def assert_nothing_left(daemon: Daemon, history: History, memories: dict[Reference, Memory]) -> None:
    """No part of a Memory, and nothing that can be asked for, knows a forgotten session."""
    for user_id in history.users_forgotten:
        memory = await daemon.memories.catch_up(KEYS.user(user_id))

        left = (memory.turns, memory.canon.facts, memory.forest.trees, memory.session_ids, memory.nodes.row_of)
        assert left == ({}, {}, {}, {}, {})
        assert (await daemon.ask(user_id, QUESTIONS[0])).memories == []
    for user_id, session_id in history.forgotten:
        if user_id in history.users_forgotten:
            continue
        memory = memories[KEYS.user(user_id)]
        session = KEYS.session(user_id, session_id)
        answers = [await daemon.ask(user_id, question) for question in (*QUESTIONS, session_id)]

        assert not memory.hidden
        assert session not in memory.session_ids
        assert all(turn.session != session for turn in memory.turns.values())
        assert all(session not in fact.sessions for fact in memory.canon.facts.values())
        assert Scope(ScopeKind.SESSION, session.hex()) not in memory.forest.trees
        assert all(session_id not in scope.name for scope in memory.members)
        assert not memory.nodes.lexical.knows(session_id)
        assert session_id not in repr(answers)


def assert_not_in_files(path: Path, history: History) -> None:
    """Neither as rows nor in the bytes of the closed files."""
    words = stored_rows(path, "SELECT text FROM words WHERE text IS NOT NULL")
    names = stored_rows(path, "SELECT text FROM names WHERE text IS NOT NULL")
    text = b"\n".join(row for (row,) in words + names)
    data = stored_bytes(path)
    gone = {session_id for _, session_id in history.forgotten} | history.users_forgotten
    gone |= {mark for session in history.said.values() for mark in session.gone()}
    left = [each for each in sorted(gone) if each.encode() in text or each.encode() in data]
    assert left == []
