"""`sessions.replay`: a session is extracted again, and nobody sees half of the old and half of the new."""

from __future__ import annotations

from dataclasses import replace

import anyio
import pytest

from daemon.building.replaying import Replaying, ReplayParams, ReplayState
from daemon.erasure.receipts import SessionUnknown
from daemon.folding import fold_from_nothing
from daemon.texts import read_texts
from events.log import EventLog
from events.memory import ExtractedFact, FactsExtracted, Task, Usage
from events.reading import read_user
from events.session import Replacement, SessionReplayed
from projections.digests import digest_memory
from projections.memory import Memory
from projections.texts import FactText
from tests.builders import MONDAY, ManualClock
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, event_types, running
from tests.scripted_models import ModelFailed
from tests.waiting import wait_until

S1 = ReplayParams(user_id="alice", session_id="s1")


def reading(text: str) -> tuple[ExtractedFact, ...]:
    """What a better model reads in a chunk."""
    return (ExtractedFact(text, (0,), MONDAY, MONDAY),)


def replaying(parts: Parts, wait_s: float = 20.0) -> Replaying:
    return Replaying(parts.log, parts.memories, parts.model, parts.clock, wait_s)


async def facts_of(parts: Parts) -> set[str]:
    facts = (await parts.memory()).canon.facts.values()
    texts = await read_texts(parts.log, [FactText(fact.first.pointer) for fact in facts])
    return {text for text in texts if text is not None}


async def build(parts: Parts) -> None:
    """Two chunks of s1, read once."""
    await parts.say("I moved to Miami.", "It is hot.", "I sail.", "I like it.")
    await parts.close()
    await parts.until_done()
    parts.model.prompts += 1  # what was answered to the old ones is not taken for an answer to the new ones


async def assert_equal_to_a_fold_from_nothing(parts: Parts) -> None:
    live = await parts.memory()
    folded = await fold_from_nothing(parts.log, ALICE, SMALL)

    assert digest_memory(folded) == digest_memory(live)


async def test_all_new_extractions_take_the_place_of_the_old_ones_at_once(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        parts.model.queue.extend([reading("Alice lives in Miami."), reading("Alice sails.")])
        state = await replaying(parts).replay(S1)
        await parts.until_done()
        memory = await parts.memory()
        texts = await facts_of(parts)

    assert (state.chunks, state.done, state.complete) == (2, 2, True)
    assert texts == {"Alice lives in Miami.", "Alice sails."}
    assert (memory.pending(), memory.replays.running) == (0, {})
    await assert_equal_to_a_fold_from_nothing(parts)


async def test_until_all_chunks_are_read_again_the_old_facts_stand(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        before = await facts_of(parts)
        parts.model.held = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replaying(parts).replay, S1)
            await parts.until_asked(2)
            parts.model.waiting()[0].answer()
            await wait_until(lambda: any(each.answered for each in parts.model.calls[-2:]))
            await wait_until(lambda: len(parts.worker.in_flight) == 1)
            half_way = await facts_of(parts)
            parts.model.release()
        await parts.until_done()

    assert half_way == before
    await assert_equal_to_a_fold_from_nothing(parts)


async def test_a_replay_goes_on_after_a_restart_and_pays_for_no_chunk_twice(
    log: EventLog, clock: ManualClock, parts: Parts
) -> None:
    async with running(parts):
        await build(parts)
        parts.model.held = True
        await replaying(parts, wait_s=0).replay(S1)
        await parts.until_asked(2)
        parts.model.waiting()[0].answer()
        await wait_until(lambda: len(parts.worker.in_flight) == 1)
    again = build_parts(log, clock)
    again.model.prompts = parts.model.prompts
    async with running(again):
        await again.memory()
        await wait_until(lambda: not again.memories.loaded()[ALICE].replays.running)
        await again.until_done()

    assert [call.task for call in again.model.calls].count(Task.EXTRACT) == 1
    assert (await event_types(log, ALICE)).count("session.replayed") == 1


async def test_the_event_at_the_end_says_what_took_the_place_of_what(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        await replaying(parts).replay(S1)
        await parts.until_done()
    events = await parts.log.read(lambda db: read_user(db, ALICE))
    again = [(each.event.replaces, each.seq) for each in events if isinstance(each.event, FactsExtracted)]
    (done,) = [each.event for each in events if isinstance(each.event, SessionReplayed)]

    assert [replaced for replaced, _ in again] == [None, None, again[2][0], again[3][0]]
    assert done.replaced == tuple(Replacement(old, new) for old, new in sorted(again[2:]) if old is not None)
    assert {old for old, _ in done.replaced} == {seq for _, seq in again[:2]}


async def test_under_unchanged_models_and_prompts_a_replay_asks_nothing_and_changes_no_fact(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        parts.model.prompts -= 1
        before, calls = await facts_of(parts), len(parts.model.calls)
        first = await replaying(parts).replay(S1)
        second = await replaying(parts).replay(S1)
        await parts.until_done()
        after = await facts_of(parts)
    events = await parts.log.read(lambda db: read_user(db, ALICE))
    answers = [each.event for each in events if isinstance(each.event, FactsExtracted)]

    assert (first.done, first.complete, second.done, second.complete) == (2, True, 2, True)
    assert [call.task for call in parts.model.calls[calls:]] == [], "recorded answers were taken"
    assert parts.worker.engine.recorded == 4
    assert after == before
    assert [answer.usage for answer in answers[2:]] == [Usage()] * 4
    requests = [answer.request for answer in answers]
    assert sorted(requests[2:]) == sorted(requests[:2] * 2)
    await assert_equal_to_a_fold_from_nothing(parts)


async def test_a_dry_run_tells_what_it_costs_and_changes_nothing(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        head = parts.log.head
        dry = ReplayParams(user_id="alice", session_id="s1", dry_run=True)
        state = await replaying(parts).replay(dry)
        parts.model.prompts -= 1
        with_old_prompts = await replaying(parts).replay(dry)

    characters = len("Alice: I moved to Miami.\nAlice: It is hot.") + len("Alice: I sail.\nAlice: I like it.")
    assert replace(state, prompt_tokens=None) == ReplayState(2, characters, 0, False, None, recorded=0)
    assert state.prompt_tokens is not None
    assert 2 * 300 < state.prompt_tokens < 2 * 800, "the instruction counts for each chunk"
    assert with_old_prompts == ReplayState(2, characters, 0, False, None, recorded=2, prompt_tokens=0)
    assert parts.log.head == head


async def test_a_chunk_that_cannot_be_read_again_keeps_its_old_facts(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        parts.model.queue.extend([ModelFailed()] * 3)
        parts.model.held = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(replaying(parts).replay, S1)
            await parts.until_asked(2)
            parts.model.release()
        await parts.until_done()
        memory = await parts.memory()

    assert len(memory.canon.facts) == 4
    assert (memory.waiting_chunks, memory.replays.running) == ({}, {})
    await assert_equal_to_a_fold_from_nothing(parts)


async def test_other_sessions_keep_their_facts_and_a_fact_of_both_stays(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        await parts.say("I sail.", "I ski.", session_id="s2")
        await parts.close("s2")
        await parts.until_done()
        parts.model.queue.extend([reading("Alice lives in Miami."), reading("Alice has a boat.")])
        await replaying(parts).replay(S1)
        await parts.until_done()
        texts = await facts_of(parts)

    assert texts == {"Alice lives in Miami.", "Alice has a boat.", "I sail.", "I ski."}
    await assert_equal_to_a_fold_from_nothing(parts)


async def test_forgetting_ends_the_replay_of_its_session(parts: Parts) -> None:
    async with running(parts):
        await build(parts)
        parts.model.held = True
        await replaying(parts, wait_s=0).replay(S1)
        await parts.until_asked(2)
        await parts.forgetter.forget("alice", "s1")
        parts.model.release()
        await parts.until_done()
        memory: Memory = await parts.memory()

    assert (memory.canon.facts, memory.replays.running) == ({}, {})
    with pytest.raises(SessionUnknown):
        await replaying(parts).replay(S1)


async def test_an_unknown_session_is_named_as_such(parts: Parts) -> None:
    with pytest.raises(SessionUnknown):
        await replaying(parts).replay(ReplayParams(user_id="alice", session_id="nowhere"))
