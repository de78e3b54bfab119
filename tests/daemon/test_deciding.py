"""Deciding on facts in the running daemon: what goes on without vectors, what waits for them, and what is kept."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

import anyio
import numpy as np
import pytest

from daemon.building.comparing import COMPARED_AT_ONCE_MAX
from daemon.building.deciding import DecidingParameters
from daemon.offline.embedder import HashingEmbedder
from events.appending import Batch, Outcome
from events.decisions import FactsRouted, GenerationPromoted
from events.envelope import NewEvent, RecordedEvent
from events.log import EventLog
from events.memory import FactsAdmitted, FactsExtracted, Task
from events.reading import read_user
from events.session import MemoryImported
from projections.memory import Memory
from projections.ports import EmbedderUnavailable, TextRefused, Vectors
from tests.builders import KEYS, SECRET, ManualClock, a_forgetting, a_partition, a_turn, seeded_nonces
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, event_types, running
from tests.scripted_models import ScriptedModel
from tests.waiting import wait_until

# Nothing but its sentence is like it.
REFUSED = "unspeakable"


class ScriptedComparer:
    """The built-in embedder's vectors under another name: held back, failing, or refusing a text when told."""

    ranks = False
    trouble: str | None = None

    def __init__(self, name: str = "scripted-1", *, held: bool = False, away: bool = False) -> None:
        self.name = name
        self.away = away
        self.texts: list[str] = []
        self.calls = 0
        self._hashing = HashingEmbedder(256)
        self.dimensions = 256
        self._let_go = anyio.Event()
        if not held:
            self._let_go.set()

    def release(self) -> None:
        """Answer what waits, and hold nothing back from now on."""
        self._let_go.set()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.calls += 1
        if self.away:
            raise EmbedderUnavailable("it is away")
        if any(REFUSED in text for text in texts):
            raise TextRefused("not this one")
        await self._let_go.wait()
        self.texts += texts
        return self._hashing.rows(texts)

    async def embed_question(self, text: str) -> Vectors:
        row: Vectors = (await self.embed([text]))[0]
        return row


class MeddlingLog(EventLog):
    """Lets somebody else decide something just before the first routes are written."""

    meddle: Callable[[], NewEvent] | None = None
    refused = 0

    async def append(self, batch: Batch) -> tuple[Outcome, ...]:
        if self.meddle is not None and any(isinstance(each.event, FactsRouted) for each in batch.events):
            event, self.meddle = self.meddle(), None
            await super().append(Batch(events=(event,)))
            self.refused += 1
        return await super().append(batch)


@pytest.fixture
async def meddling(log_path: Path, clock: ManualClock) -> AsyncIterator[MeddlingLog]:
    log = await MeddlingLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, MeddlingLog)
    yield log
    await log.close()


async def events_of(log: EventLog) -> list[RecordedEvent]:
    return await log.read(lambda db: read_user(db, ALICE, limit=10_000))


async def decided(log: EventLog, kind: type[object]) -> list[RecordedEvent]:
    return [each for each in await events_of(log) if isinstance(each.event, kind)]


def routed(memory: Memory) -> int:
    """Facts that are in a scene."""
    return sum(bool(scenes) for _, scenes in memory.placement.scenes.routes())


def waiting_in(memory: Memory) -> int:
    """What is pending but for summaries."""
    return memory.pending() - memory.forest.dirty_count()


def has_facts(parts: Parts, count: int) -> Callable[[], bool]:
    def look() -> bool:
        memory = parts.memories.loaded().get(ALICE)
        return memory is not None and len(memory.canon.facts) >= count

    return look


async def until_decided(parts: Parts) -> None:
    """Return once nothing is left to extract, to admit and to route; summaries are another matter."""

    def is_decided() -> bool:
        memory = parts.memories.loaded().get(ALICE)
        return (
            memory is not None
            and memory.user_seq == parts.log.head
            and not (memory.needs_rebuild or waiting_in(memory))
        )

    await wait_until(is_decided, message="not all facts are decided on")


async def test_facts_are_admitted_and_found_while_the_embedder_hangs_and_nobody_waits(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedComparer(held=True)
    parts = build_parts(log, clock, compared_by=embedder)
    async with running(parts):
        await parts.say("The cat is called Rex.", "Paul went to Rome.")
        await wait_until(has_facts(parts, 2))
        await wait_until(lambda: embedder.calls > 0)
        await wait_until(lambda: not parts.worker.planner(ALICE).locked())
        with anyio.fail_after(30):  # what hangs is never released meanwhile
            await parts.say("A new turn comes.", session_id="s2")
            answer = await parts.ask("Rex", wait_for=parts.log.head)
        waiting = waiting_in(await parts.memory())
        embedder.release()
        await until_decided(parts)
        memory = await parts.memory()

    assert "The cat is called Rex." in answer.context
    assert waiting == 2, "facts that are in no scene yet are pending"
    assert (routed(memory), waiting_in(memory)) == (2, 0)


async def test_what_a_session_says_is_routed_in_one_event_and_promoted_once(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(parts):
        await parts.say("Rex likes long walks.", "Rex likes very long walks.")
        await until_decided(parts)
        await parts.say("Paul cooks soup.", "Ann reads.", session_id="s2")
        await until_decided(parts)
        promoted = await decided(log, GenerationPromoted)
        routes = await decided(log, FactsRouted)

    assert [each.lineage for each in promoted] == [()]
    event = promoted[0].event
    assert isinstance(event, GenerationPromoted)
    assert event.embedder == "scripted-1/1"
    assert [each.lineage for each in routes] == [(KEYS.session("alice", name),) for name in ("s1", "s2")]
    assert all(each.basis is not None for each in routes)


async def test_an_embedder_that_is_away_holds_up_scenes_alone_and_what_it_missed_is_made_up_for(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedComparer(away=True)
    soon = DecidingParameters(failed_pause_s=0.03)
    parts = build_parts(log, clock, compared_by=embedder, deciding=soon)
    async with running(parts):
        await parts.say("On day 3 the man Paul washed and fed dogs.", "On day 3 the man Paul fed and washed dogs.")
        await parts.say("Rex sleeps.", "Rex sleeps.", session_id="s2")
        await wait_until(has_facts(parts, 3))
        memory = await parts.memory()
        apart, pending, in_scenes = len(memory.canon.facts), memory.pending(), routed(memory)
        embedder.away = False
        await until_decided(parts)
        memory = await parts.memory()

    assert (apart, in_scenes) == (3, 0), "what says exactly the same is one fact, what nearly does is not"
    assert pending >= 3
    assert len(memory.canon.facts) == 2, "what is nearly the same was found when it could be compared"
    assert routed(memory) == 2


async def test_a_text_that_the_embedder_refuses_is_a_fact_in_no_scene(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedComparer()
    parts = build_parts(log, clock, compared_by=embedder)
    async with running(parts):
        await parts.say(f"The {REFUSED} one.", "Rex sleeps.", "Ann reads.", "Paul cooks.")
        await until_decided(parts)
        memory = await parts.memory()

    assert len(memory.canon.facts) == 4
    assert (routed(memory), waiting_in(memory)) == (3, 0)


async def test_no_text_is_embedded_twice_and_no_exact_duplicate_at_all(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedComparer()
    parts = build_parts(log, clock, compared_by=embedder)
    async with running(parts):
        for _ in range(3):
            await parts.say("Rex sleeps on day 3.", "Ann reads on day 3.")
            await until_decided(parts)
        memory = await parts.memory()

    mine = [text for text in embedder.texts if "on day 3" in text]
    assert sorted(mine) == ["Ann reads on day 3.", "Rex sleeps on day 3."]
    assert len(memory.canon.facts) == 2


async def test_with_another_embedder_thresholds_are_its_own_and_scenes_go_on(
    log: EventLog, clock: ManualClock
) -> None:
    first = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(first):
        await first.say("Rex likes walks.", "Ann reads books.")
        await until_decided(first)
        before = dict((await first.memory()).placement.scenes.routes())
    second = build_parts(log, clock, compared_by=ScriptedComparer("scripted-2"))
    second.turns = first.turns
    async with running(second):
        await second.say("Rex likes walks in rain.", "Paul cooks soup.", session_id="s2")
        await until_decided(second)
        memory = await second.memory()
        promoted = await decided(log, GenerationPromoted)

    names = [each.event.embedder for each in promoted if isinstance(each.event, GenerationPromoted)]
    assert names == ["scripted-1/1", "scripted-2/1"]
    after = dict(memory.placement.scenes.routes())
    assert {fact: after[fact] for fact in before} == before
    assert routed(memory) == 4


async def test_a_restart_before_the_vectors_came_loses_nothing(log: EventLog, clock: ManualClock) -> None:
    first = build_parts(log, clock, compared_by=ScriptedComparer(held=True))
    async with running(first):
        await first.say("The dog Rex likes walks.", "The girl Ann reads books.")
        await wait_until(has_facts(first, 2))
    second = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(second):
        await wait_until(has_facts(second, 2))
        await until_decided(second)
        memory = await second.memory()

    assert (routed(memory), waiting_in(memory)) == (2, 0)
    assert not second.model.calls or second.model.calls[0].task is not Task.EXTRACT, "no chunk is read again"


async def test_a_session_that_is_forgotten_before_the_vectors_came_is_routed_nowhere(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedComparer(held=True)
    parts = build_parts(log, clock, compared_by=embedder)
    async with running(parts):
        await parts.say("The dog Rex likes walks.", "The girl Ann reads books.")
        await parts.say("Old Paul cooks soup.", "Young Eve sings songs.", session_id="s2")
        await wait_until(has_facts(parts, 4))
        await wait_until(lambda: embedder.calls > 0)
        await log.append_event(a_forgetting("s1"))
        embedder.release()
        await until_decided(parts)
        memory = await parts.memory()
        routes = await decided(log, FactsRouted)

    assert {each.lineage for each in routes} == {(KEYS.session("alice", "s2"),)}
    assert (routed(memory), len(memory.canon.facts)) == (2, 2)


async def test_forgetting_a_session_takes_its_facts_out_of_scenes_and_leaves_the_others_there(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(parts):
        await parts.say("Rex likes walks.", "Rex likes long walks.")
        await until_decided(parts)
        await parts.say("Rex likes short walks.", "Rex likes no walks.", session_id="s2")
        await until_decided(parts)
        kept = {
            fact: (await parts.memory()).placement.scenes.scenes_of(fact)
            for fact, each in (await parts.memory()).canon.facts.items()
            if KEYS.session("alice", "s2") in each.sessions
        }
        await log.append_event(a_forgetting("s1"))
        await until_decided(parts)
        await parts.say("Rex likes walks at night.", "Ann reads.", session_id="s3")
        await until_decided(parts)
        memory = await parts.memory()

    assert kept
    assert {fact: memory.placement.scenes.scenes_of(fact) for fact in kept} == kept
    assert set().union(*memory.placement.scenes.members.values()) == set(memory.canon.facts)
    assert waiting_in(memory) == 0


async def test_a_plan_that_something_else_made_stale_is_made_again_without_another_question(
    meddling: MeddlingLog, clock: ManualClock
) -> None:
    model = ScriptedModel()
    parts = build_parts(meddling, clock, model=model, compared_by=ScriptedComparer())
    meddling.meddle = lambda: a_partition(basis=parts.memories.loaded()[ALICE].user_seq)
    async with running(parts):
        await parts.say("Rex likes walks.", "Ann reads books.")
        await until_decided(parts)
        memory = await parts.memory()

    assert meddling.refused == 1
    assert [call.task for call in model.calls].count(Task.EXTRACT) == 1
    assert (routed(memory), waiting_in(memory)) == (2, 0)
    assert (await event_types(meddling)).count("facts.routed") == 1


async def test_the_facts_of_a_long_extraction_are_routed_page_by_page(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer(), deciding=DecidingParameters(routed_max=8))
    async with running(parts):
        words = ["apple", "river", "stone", "cloud", "piano", "horse", "glass", "bread", "storm", "chair"]
        await parts.say(*(" ".join(f"{a} meets {b} today." for b in words[4:]) for a in words[:4]))
        await until_decided(parts)
        memory = await parts.memory()
        pages = await decided(log, FactsRouted)

    assert (len(memory.canon.facts), routed(memory)) == (24, 24)
    by_basis: dict[int | None, int] = {}
    for each in pages:
        assert isinstance(each.event, FactsRouted)
        by_basis[each.basis] = by_basis.get(each.basis, 0) + len(each.event.routes)
    assert max(by_basis.values()) <= 2 * 8
    assert len(by_basis) >= 3


async def test_scenes_are_the_ones_that_the_log_says_however_the_memory_came_to_be(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(parts):
        for number in range(6):
            await parts.say(f"Rex likes walk {number}.", f"Ann reads book {number}.", session_id=f"s{number}")
        await until_decided(parts)
        live = dict((await parts.memory()).placement.scenes.routes())
    fresh = build_parts(log, clock)

    assert dict((await fresh.memory()).placement.scenes.routes()) == live
    assert len(live) == 12


async def test_without_second_scenes_each_fact_is_in_one(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(
        log, clock, compared_by=ScriptedComparer(), deciding=DecidingParameters(second_scene=False)
    )
    async with running(parts):
        for number in range(8):
            await parts.say(f"Rex likes the walk {number}.", f"Rex likes the book {number}.")
        await until_decided(parts)
        memory = await parts.memory()

    assert {len(scenes) for _, scenes in memory.placement.scenes.routes()} == {1}


async def test_a_scene_takes_no_more_facts_than_it_may(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer(), deciding=DecidingParameters(scene_facts_max=3))
    async with running(parts):
        for number in range(6):
            await parts.say(f"Rex likes the walk {number}.", f"Rex liked the walk {number}.")
        await until_decided(parts)
        memory = await parts.memory()

    sizes = [len(facts) for facts in memory.placement.scenes.members.values()]
    assert max(sizes) <= 3
    assert set().union(*memory.placement.scenes.members.values()) == set(memory.canon.facts)


async def test_every_admission_and_extraction_is_there_once(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(parts):
        for number in range(10):
            await parts.say(f"Fact {number} is told.", f"Thing {number} is seen.", session_id=f"s{number % 3}")
        await until_decided(parts)
        admitted = await decided(log, FactsAdmitted)
        extracted = await decided(log, FactsExtracted)

    pointers = [
        each.occurrence
        for event in admitted
        if isinstance(event.event, FactsAdmitted)
        for each in event.event.admissions
    ]
    assert len(pointers) == len(set(pointers)) == 20
    assert len(extracted) == 10


class Undiscerning(ScriptedComparer):
    """To whom all texts are alike."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        return np.tile(np.eye(1, self.dimensions, dtype=np.float32), (len(texts), 1))


async def test_as_many_as_are_compared_on_a_thread_are_one_fact_and_what_comes_meanwhile_is_too(
    log: EventLog, clock: ManualClock
) -> None:
    texts = [f"Paul cooks{'.' * n}" for n in range(2 * COMPARED_AT_ONCE_MAX)]
    told = [
        replace(a_turn(session_id="import", turn_id=f"x{n}"), event=MemoryImported(text, f"x{n}"))
        for n, text in enumerate(texts)
    ]
    parts = build_parts(log, clock, compared_by=Undiscerning())
    async with running(parts):
        await log.append(Batch(tuple(told[1:])))
        await wait_until(lambda: bool(parts.memories.loaded()))
        await log.append(Batch(tuple(told[:1])))
        await wait_until(lambda: len(parts.memories.loaded()[ALICE].canon.facts) == 1)
        memory = await parts.memory()
        (fact,) = memory.canon.facts.values()

    assert len(fact.occurrences) == len(texts)
