"""Random histories against the real log, fold, worker, compactor and forgetter, each from a seed.

Model answers come in any order, sessions are forgotten in the middle of everything, the daemon is stopped
whenever. SIMULATION_SEED=n runs the one history of that seed.
"""

from __future__ import annotations

import os
import random
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import pytest

from events.appending import Batch
from events.envelope import NewEvent, RecordedEvent, Reference
from events.gate import Verdict
from events.log import EventLog
from events.memory import FactsExtracted, Task, WorkParked
from events.reading import read_events
from events.registry import read_tombstones
from events.session import ChunkClosed, SessionClosed, TurnRecorded
from projections.digests import digest_memory
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from tests.builders import (
    KEYS,
    MONDAY,
    SECRET,
    ManualClock,
    a_closed_chunk,
    a_closing,
    a_forgetting,
    a_turn,
    seeded_nonces,
)
from tests.scripted_models import UNREADABLE, ModelFailed
from tests.simulation.world import Daemon, running
from tests.stored import stored_bytes, stored_rows

SEEDS = [int(os.environ["SIMULATION_SEED"])] if "SIMULATION_SEED" in os.environ else list(range(40))
USERS = ("alice", "bob")
SESSIONS_PER_USER = 5
LIVES = 3
STEPS_PER_LIFE = 9
HOUR_MS = 3_600_000
QUESTIONS = ("What does Nate like?", "Who was in Miami on day 3?", "Rex")
# Said in several sessions, so that facts are shared and entities become active.
SHARED = (
    "Nate likes Miami.",
    "We saw Rex in Miami on day {day}.",
    "Nate met Rex on day {day}.",
    "Oslo is far, says Nate.",
    "They rex the nate.",
    "Miami has rain, says Rex.",
)


def marker_of(user_id: str, number: int) -> str:
    """A session's id, and a word that is said in this session alone."""
    return f"q{user_id}{number}q"


@dataclass
class History:
    """What a seed says: the next step, and what was forgotten so far."""

    seed: int
    chance: random.Random
    clock: ManualClock = field(default_factory=ManualClock)
    turns: dict[str, int] = field(default_factory=dict[str, int])
    forgotten: set[tuple[str, str]] = field(default_factory=set[tuple[str, str]])
    failed: set[str] = field(default_factory=set[str])

    async def step(self, daemon: Daemon) -> None:
        """Do one thing, drawn by lot."""
        self.clock.advance(self.chance.randrange(HOUR_MS))
        steps = {
            self.say: 34, self.close: 8, self.close_chunk: 6, self.answer: 40, self.fail: 4,
            self.compact: 6, self.forget: 6, self.ask: 6,
        }  # fmt: skip
        (step,) = self.chance.choices(list(steps), list(steps.values()))
        await step(daemon)
        if self.chance.random() < 0.6:
            await daemon.settle()

    def a_session(self) -> tuple[str, str]:
        (user_id,) = self.chance.choices(USERS, [3, 1])
        return user_id, marker_of(user_id, self.chance.randrange(SESSIONS_PER_USER))

    async def say(self, daemon: Daemon) -> None:
        """Some turns of a session in one batch; one may come twice, and once more with other content."""
        user_id, session_id = self.a_session()
        events = [self.a_new_turn(user_id, session_id) for _ in range(self.chance.randint(1, 8))]
        if self.chance.random() < 0.2:
            events.append(events[0])
            assert isinstance(events[0].event, TurnRecorded)
            other = replace(events[0].event, content=f"Not so, {session_id}.")
            events.append(replace(events[0], event=other))
        outcomes = await daemon.log.append(Batch(tuple(events)))

        refused = {each.verdict is Verdict.REFUSED for each in outcomes}
        assert refused == {(user_id, session_id) in self.forgotten}

    def a_new_turn(self, user_id: str, session_id: str) -> NewEvent:
        number = self.turns[session_id] = self.turns.get(session_id, 0) + 1
        shared, more = (self.chance.choice(SHARED).format(day=self.chance.randint(1, 2)) for _ in range(2))
        own = f"I kept {session_id} in number {number}."
        bad = f"{UNREADABLE} noise from {session_id}."
        contents = [shared, own, f"{shared} {own}", f"{own} {shared}", f"{shared} {more}", bad]
        return a_turn(
            self.chance.choices(contents, [4, 2, 4, 2, 4, 1])[0],
            user_id=user_id,
            session_id=session_id,
            turn_id=str(number),
            role=self.chance.choice(["user", "user", "assistant"]),
            name=self.chance.choices([user_id.title(), f"Guest {session_id}", None], [12, 1, 4])[0],
            happened_at=MONDAY + self.chance.randrange(24) * HOUR_MS,
        )

    async def close(self, daemon: Daemon) -> None:
        user_id, session_id = self.a_session()
        await daemon.log.append_event(a_closing(session_id, user_id=user_id, key=str(self.clock.now)))

    async def close_chunk(self, daemon: Daemon) -> None:
        """What the worker does with a session that went quiet."""
        user_id, session_id = self.a_session()
        memory = await daemon.memories.catch_up(KEYS.user(user_id))
        turns = memory.open_chunk(KEYS.session(user_id, session_id))
        if turns:
            quiet = a_closed_chunk(turns[-1], session_id, user_id=user_id, basis=memory.user_seq)
            await daemon.log.append_event(quiet)

    async def answer(self, daemon: Daemon) -> None:
        """Let some of the waiting calls have their answers, in any order."""
        lots = [self.chance.random() for _ in range(self.chance.randint(1, 10))]
        for lot in lots:
            waiting = daemon.model.waiting()
            if waiting:
                waiting[int(lot * len(waiting))].answer()

    async def fail(self, daemon: Daemon) -> None:
        """A call comes to nothing, once a question: it is asked again. A failed merge would end its run."""
        lot = self.chance.random()
        waiting = [
            call
            for call in daemon.model.waiting()
            if call.task is not Task.MERGE and call.order not in self.failed
        ]
        if waiting:
            call = waiting[int(lot * len(waiting))]
            self.failed.add(call.order)
            call.fail(ModelFailed())

    async def compact(self, daemon: Daemon) -> None:
        daemon.compact_soon(self.chance.choice(USERS))

    async def forget(self, daemon: Daemon) -> None:
        """Over the socket, waiting or not; over the bus; or with a stop before anybody took notice."""
        user_id, session_id = self.a_session()
        way = self.chance.randrange(4)
        if way == 0:
            if await daemon.forget(user_id, session_id):
                self.forgotten.add((user_id, session_id))
            await self.ask(daemon)
            return
        self.forgotten.add((user_id, session_id))
        await daemon.log.append_event(a_forgetting(session_id, user_id=user_id))
        if way == 1:
            daemon.memories.hide(KEYS.user(user_id), KEYS.session(user_id, session_id))
            await self.ask(daemon)
        elif way == 2:
            daemon.forget_soon(user_id, session_id)

    async def ask(self, daemon: Daemon) -> None:
        """An answer speaks of nothing that was forgotten, whatever is under way."""
        user_id = self.chance.choice(USERS)
        hidden = await self.known_as_forgotten(daemon, user_id)
        answer = await daemon.ask(user_id, self.chance.choice(QUESTIONS))

        shown = answer.context + " ".join(f"{each.text} {each.sessions}" for each in answer.memories)
        assert not [session_id for session_id in hidden if session_id in shown]

    async def known_as_forgotten(self, daemon: Daemon, user_id: str) -> list[str]:
        """The forgotten sessions of a user that its Memory hides or never held."""
        async with daemon.memories.use(KEYS.user(user_id)) as memory:
            shown = set(memory.session_ids) - memory.hidden
        of_user = [session_id for owner, session_id in self.forgotten if owner == user_id]
        return [session_id for session_id in of_user if KEYS.session(user_id, session_id) not in shown]


@pytest.mark.parametrize("seed", SEEDS)
async def test_whatever_happened_the_memory_is_that_of_a_store_which_never_saw_what_was_forgotten(
    seed: int, tmp_path: Path
) -> None:
    print("SIMULATION_SEED", seed)
    history = History(seed, random.Random(seed))
    path = tmp_path / "events.db"
    for _ in range(LIVES):
        async with running(path, history.clock, held=True) as daemon:
            for _ in range(STEPS_PER_LIFE):
                await history.step(daemon)
                await daemon.check()
            assert "memory.fold_failed" not in daemon.reports.names
    async with running(path, history.clock, held=False) as daemon:
        await finish(daemon, history)
        await daemon.check()
        inputs = await surviving_inputs(daemon, path)
        memories = {user: await daemon.memories.catch_up(user) for user in await daemon.users()}
        await assert_nothing_left(daemon, history, memories)
        said = await facts_said(daemon, memories)

    assert_not_in_files(path, history)
    await play(inputs, tmp_path / "innocent.db", history.clock)
    async with running(tmp_path / "innocent.db", history.clock, held=False) as innocent:
        await innocent.build()
        expected = {user: await innocent.memories.catch_up(user) for user in await innocent.users()}

        assert said == await facts_said(innocent, expected)
        for user, memory in expected.items():
            assert_same(memories[user], memory)


async def finish(daemon: Daemon, history: History) -> None:
    """Close every session, so that all is due, and wait until all is built and erased."""
    for user_id in USERS:
        for number in range(SESSIONS_PER_USER):
            session_id = marker_of(user_id, number)
            if session_id in history.turns and (user_id, session_id) not in history.forgotten:
                await daemon.log.append_event(a_closing(session_id, user_id=user_id, key="last"))
    for user_id, session_id in sorted(history.forgotten):
        await daemon.forget(user_id, session_id)
    await daemon.build()
    for user_id in USERS:
        answers = [await daemon.ask(user_id, question) for question in QUESTIONS]
        assert {(each.watermark.pending, each.watermark.lag_s) for each in answers} == {(0, 0.0)}


async def surviving_inputs(daemon: Daemon, path: Path) -> list[tuple[int, NewEvent]]:
    """What was not decided here, in log order with its seq: turns, closings, and what models read in chunks."""
    events = await daemon.log.read(partial(read_events, seqs=range(1, daemon.log.head + 1)))
    voided: dict[Reference, int] = {}
    for user in await daemon.users():
        voided |= await daemon.log.read(partial(read_tombstones, user=user))
    return [
        (recorded.seq, as_new(recorded, path))
        for recorded in events.values()
        if isinstance(recorded.event, TurnRecorded | SessionClosed | ChunkClosed | FactsExtracted)
        or (isinstance(recorded.event, WorkParked) and recorded.event.task is Task.EXTRACT)
        if not voided.keys() & set(recorded.lineage)
    ]


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
            event = replace(event, turns=tuple(place[turn] for turn in event.turns))
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
    """Facts, scopes, trees and summaries agree; only what compaction did is a matter of history."""
    ours, theirs = digest_memory(memory), digest_memory(innocent)
    roots, expected_roots = roots_of(memory), roots_of(innocent)

    assert roots == expected_roots
    assert (ours.facts, ours.scopes, ours.trees) == (theirs.facts, theirs.scopes, theirs.trees)
    assert set(memory.chunks) == set(innocent.chunks)


def roots_of(memory: Memory) -> dict[Scope, bytes]:
    return {scope: tree.root.digest for scope, tree in memory.forest.trees.items() if tree.root is not None}


async def assert_nothing_left(daemon: Daemon, history: History, memories: dict[Reference, Memory]) -> None:
    """No part of a Memory, and nothing that can be asked for, knows a forgotten session."""
    for user_id, session_id in history.forgotten:
        memory = memories[KEYS.user(user_id)]
        session = KEYS.session(user_id, session_id)
        answers = [await daemon.ask(user_id, question) for question in (*QUESTIONS, session_id)]

        assert not memory.hidden
        assert session not in memory.session_ids
        assert all(turn.session != session for turn in memory.turns.values())
        assert all(session not in fact.sessions for fact in memory.canon.facts.values())
        assert Scope(ScopeKind.SESSION, session.hex()) not in memory.forest.trees
        assert all(session_id not in scope.name for scope in memory.members)
        assert session_id not in memory.nodes.lexical.vocabulary
        assert session_id not in repr(answers)


def assert_not_in_files(path: Path, history: History) -> None:
    """Neither as rows nor in the bytes of the closed files."""
    words = stored_rows(path, "SELECT text FROM words WHERE text IS NOT NULL")
    names = stored_rows(path, "SELECT text FROM names WHERE text IS NOT NULL")
    text = b"\n".join(row for (row,) in words + names)
    data = stored_bytes(path)
    for _, session_id in history.forgotten:
        assert session_id.encode() not in text
        assert session_id.encode() not in data
