"""Parked work is not planned until it is resumed, whether a Memory grew, was folded anew, or had a snapshot."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from events.codec import Event
from events.envelope import NewEvent, RecordedEvent
from events.eventtree import NodesMerged
from events.memory import FactsExtracted, IntervalSummarised, ParkReason, Task, WorkParked, WorkResumed
from events.session import ReplayStarted
from projections.digests import digest_memory
from projections.eventtree.units import PARKED_MERGES_MAX, Units, make_group_id
from projections.facts.admission import plan_admissions
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.snapshot import freeze
from tests.builders import KEYS, MONDAY, a_turn, an_extraction, an_id, as_recorded, lineage_of
from tests.projections.thawing import drain, thawed

ALICE = KEYS.user("alice")
PARAMETERS = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=0)
SESSIONS = ("s1", "s2", "s3")
NAMES = {KEYS.session("alice", session): session for session in SESSIONS} | {ALICE: "alice"}
MERGES = tuple(an_id(f"merge {n}") for n in range(5))
SEEDS = range(6)
STEPS = 150


@dataclass
class Told:
    """A Memory with the log it was folded from, and what is parked according to the simplest model."""

    memory: Memory = field(default_factory=lambda: Memory(ALICE, PARAMETERS))
    log: list[RecordedEvent] = field(default_factory=list[RecordedEvent])
    parked: dict[int, WorkParked] = field(default_factory=dict[int, WorkParked])

    def tell(self, event: Event | NewEvent, session: str = "s1") -> int:
        new = event
        if not isinstance(event, NewEvent):
            new = NewEvent(
                "alice", session, event, f"event/{len(self.log)}", MONDAY, lineage_of([session]), basis=0
            )
        assert isinstance(new, NewEvent)
        recorded = as_recorded(new, len(self.log) + 1)
        self.log.append(recorded)
        self.memory.apply(recorded)
        return recorded.seq

    def say(self, session: str = "s1", turns: int = 2) -> None:
        for _ in range(turns):
            n = len(self.log)
            self.tell(a_turn(f"Turn {n}.", session_id=session, turn_id=f"t{n}", happened_at=MONDAY + n))

    def park(self, task: Task, request: bytes, turns: tuple[int, ...] = (), session: str = "s1") -> int:
        event = WorkParked(task, request, ParkReason.ANSWER_CUT, turns, turns)
        seq = self.tell(event, session)
        self.parked[seq] = event
        return seq

    def resume(self, seq: int) -> None:
        event = self.parked.pop(seq)
        self.tell(WorkResumed(seq, event.task, event.request, event.turns, event.covers))

    def extract(self, turns: tuple[int, ...], session: str) -> None:
        new = an_extraction(turns, (f"Fact {len(self.log)}.",), session_id=session)
        chunk = next(key for key, each in self.memory.chunks.items() if each.turns == turns)
        assert isinstance(new.event, FactsExtracted)
        self.tell(replace(new, event=replace(new.event, chunk=chunk), key=f"extraction/{len(self.log)}"))

    def requests(self, task: Task) -> set[bytes]:
        return {each.request for each in self.parked.values() if each.task is task}


def planned(memory: Memory) -> dict[str, Any]:
    """What a worker would do next."""
    return {
        "extractions": [chunk.turns for chunk in memory.waiting_chunks.values()],
        "again": {
            session: list(memory.replays.remaining(session, memory.chunks)) for session in memory.replays.running
        },
        "summaries": sorted(work.digest for work in memory.forest.plan_summaries()),
        "no merges": list(memory.units.parked),
        "pending": memory.pending(),
        "digest": digest_memory(memory),
    }


def anew(told: Told) -> Memory:
    memory = Memory(ALICE, PARAMETERS)
    for recorded in told.log:
        memory.apply(recorded)
    return memory


def random_step(told: Told, chance: random.Random) -> None:
    """Something that happens, if it can happen now."""
    memory = told.memory
    waiting = list(memory.waiting_chunks.values())
    works = list(memory.forest.plan_summaries())
    read = [each.session_id or "" for each in told.log if isinstance(each.event, FactsExtracted)][3:]
    again = [request for _, _, request in remaining(memory)]
    match chance.choices(range(10), [20, 12, 12, 10, 8, 8, 5, 20, 3, 12])[0]:
        case 0:
            told.say(chance.choice(SESSIONS), chance.randint(1, 4))
        case 1 if waiting:
            chunk = chance.choice(waiting)
            told.extract(chunk.turns, NAMES[chunk.session])
        case 2 if waiting:
            chunk = chance.choice(waiting)
            told.park(Task.EXTRACT, chunk.key, chunk.turns, NAMES[chunk.session])
        case 3 if works:
            told.tell(IntervalSummarised(1, chance.choice(works).digest, (), "offline", "A summary."))
        case 4 if works:
            told.park(Task.SUMMARISE, chance.choice(works).digest)
        case 5 if set(MERGES) - memory.units.parked.keys():
            told.park(Task.MERGE, chance.choice([each for each in MERGES if each not in memory.units.parked]))
        case 6 if read:
            told.tell(ReplayStarted(), chance.choice(read))
        case 7 if told.parked:
            told.resume(chance.choice(sorted(told.parked)))
        case 8 if memory.canon.waiting:
            for event, _ in plan_admissions(memory.canon, 1):
                told.tell(event)
        case 9 if again:
            told.park(Task.EXTRACT, chance.choice(again))
        case _:
            pass


def remaining(memory: Memory) -> Iterator[tuple[Any, int, bytes]]:
    for session in memory.replays.running:
        yield from memory.replays.remaining(session, memory.chunks)


@pytest.mark.parametrize("seed", SEEDS)
def test_live_anew_and_from_a_snapshot_the_same_work_waits(seed: int) -> None:
    print("seed", seed)
    chance, told = random.Random(seed), Told()
    content, user_seq = b"", 0
    tasks: set[tuple[Task, bool]] = set()
    for step in range(STEPS):
        random_step(told, chance)
        tasks |= {(each.task, bool(each.covers)) for each in told.parked.values()}
        now = planned(told.memory)

        taken = {turn for each in told.parked.values() for turn in each.turns}
        assert not taken & {turn for turns in now["extractions"] for turn in turns}
        assert not told.requests(Task.SUMMARISE) & set(now["summaries"])
        assert not told.requests(Task.EXTRACT) & {request for _, _, request in remaining(told.memory)}
        assert told.requests(Task.MERGE) == set(now["no merges"])
        if content:
            again = thawed(told.memory, told.log, content)
            for recorded in told.log[user_seq:]:
                again.apply(recorded)
            assert planned(again) == now
        if chance.random() < 0.1:
            content, user_seq = drain(freeze(told.memory)), told.memory.user_seq
        if step % 10 == 0:
            assert planned(anew(told)) == now
    for seq in sorted(told.parked):
        told.resume(seq)
    extracted = {turn for each in told.log if isinstance(each.event, FactsExtracted) for turn in each.event.turns}
    closed = {turn for chunk in told.memory.chunks.values() for turn in chunk.turns}

    now = planned(told.memory)
    assert {turn for turns in now["extractions"] for turn in turns} == closed - extracted
    assert now["no merges"] == []
    assert planned(anew(told)) == now
    assert tasks == {(Task.EXTRACT, True), (Task.EXTRACT, False), (Task.SUMMARISE, False), (Task.MERGE, False)}


def test_a_resumed_chunk_waits_for_its_extraction() -> None:
    told = Told()
    told.say()
    (chunk,) = told.memory.chunks.values()
    seq = told.park(Task.EXTRACT, chunk.key, chunk.turns)
    assert (told.memory.pending(), list(told.memory.waiting_chunks)) == (0, [])
    told.resume(seq)

    assert (told.memory.pending(), list(told.memory.waiting_chunks)) == (1, [chunk.key])


def test_a_resumed_summary_is_written_and_so_is_the_one_above_it() -> None:
    told = Told()
    for _ in range(4):  # two levels of nodes above four chunks
        told.say()
    for chunk in list(told.memory.chunks.values()):
        told.extract(chunk.turns, "s1")
    below, *_ = told.memory.forest.plan_summaries()
    pending = told.memory.forest.dirty_count()
    seq = told.park(Task.SUMMARISE, below.digest)
    parked = told.memory.forest.dirty_count()
    told.resume(seq)

    assert pending > parked
    assert told.memory.forest.dirty_count() == pending
    assert below in list(told.memory.forest.plan_summaries())


def test_what_a_replay_could_not_read_is_read_once_it_is_resumed() -> None:
    told = Told()
    told.say()
    (chunk,) = told.memory.chunks.values()
    told.extract(chunk.turns, "s1")
    told.tell(ReplayStarted())
    ((_, replaces, request),) = remaining(told.memory)
    seq = told.park(Task.EXTRACT, request)
    assert list(remaining(told.memory)) == []
    assert told.memory.waiting_chunks == {}, "its old facts stand"
    told.resume(seq)

    assert list(remaining(told.memory)) == [(chunk, replaces, request)]
    assert told.memory.waiting_chunks == {}


def test_a_group_that_was_made_after_all_is_parked_no_more() -> None:
    told = Told()
    told.say()
    (chunk,) = told.memory.chunks.values()
    told.extract(chunk.turns, "s1")
    for event, _ in plan_admissions(told.memory.canon, 1):
        told.tell(event)
    facts = tuple(told.memory.canon.facts)
    told.park(Task.MERGE, make_group_id(facts))
    told.park(Task.MERGE, MERGES[1])
    told.tell(NodesMerged(1, an_id("unit"), facts, (), "offline", "One text.", request=an_id("asked")))

    assert list(told.memory.units.parked) == [MERGES[1]]


def test_of_very_many_parked_merges_the_oldest_are_tried_again() -> None:
    units = Units()
    for n in range(PARKED_MERGES_MAX + 2):
        units.note_parked(n.to_bytes(8, "big"))

    assert len(units.parked) == PARKED_MERGES_MAX
    assert [n for n in range(4) if n.to_bytes(8, "big") not in units.parked] == [0, 1]
