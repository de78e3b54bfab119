"""The worker: what goes out at once, what waits for what, what is asked again and what never."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.building.worker import STARTED_PER_SLOT, WorkerParameters
from events.log import EventLog
from events.memory import ExtractedFact, Task
from events.reading import read_user
from projections.facts.scopes import Scope, ScopeKind
from projections.ports import ChunkText, IntervalText
from tests.builders import KEYS, MONDAY, SECRET, ManualClock, a_forgetting, seeded_nonces
from tests.daemon.parts_in_use import ALICE, QUICK, Parts, build_parts, event_types, running, unwritable
from tests.scripted_models import UNREADABLE, Call, ModelFailed, ScriptedModel
from tests.stored import stored_bytes, stored_rows
from tests.waiting import HANGS_AFTER_S, wait_until


def first_line(call: Call) -> str:
    """What the first turn of an extraction says."""
    assert isinstance(call.question, ChunkText)
    return call.question.turns[0].text


def is_of_session(call: Call, session_id: str) -> bool:
    """Whether a summary is of turns of `say_chunks` in this session alone."""
    assert isinstance(call.question, IntervalText)
    return all(session_id in child.text for child in call.question.children)


def tasks_of(calls: list[Call]) -> list[Task | None]:
    return [call.task for call in calls]


async def say_chunks(parts: Parts, count: int, session_id: str = "s1", user_id: str = "alice") -> None:
    """So many closed chunks of two turns."""
    for number in range(count):
        await parts.say(
            f"{session_id} fact {number}.", f"{session_id} more {number}.", session_id=session_id, user_id=user_id
        )


async def test_turns_become_facts_trees_and_nothing_is_pending(parts: Parts) -> None:
    async with running(parts):
        await say_chunks(parts, 4)
        await parts.close()
        await parts.until_done()
        memory = await parts.memory()
        answer = await parts.ask("fact 2")

    assert len(memory.canon.facts) == 8
    assert (memory.pending(), answer.watermark.pending) == (0, 0)
    assert memory.forest.root_refs(Scope(ScopeKind.SESSION, KEYS.session("alice", "s1").hex()))
    assert "s1 fact 2." in answer.context


async def test_all_chunks_of_a_session_go_out_at_once_up_to_the_limit(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=5))
    await say_chunks(parts, 12)
    async with running(parts):
        await parts.until_asked(5)
        started = len(parts.worker.in_flight)
        asked = [first_line(call) for call in parts.model.waiting()]
        parts.model.release()
        await wait_until(lambda: len(parts.model.calls) >= 12)

    assert asked == [f"s1 fact {number}." for number in range(5)], "the oldest first, no more than the limit"
    assert started == 5 * STARTED_PER_SLOT, "what is started beyond the limit is bounded, too"


async def test_a_node_is_asked_as_soon_as_its_own_children_are_ready(log: EventLog, clock: ManualClock) -> None:
    """Paper B: a node waits for its children, not for a level and not for another tree."""
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=64))
    for session in ("slow", "fast"):
        await say_chunks(parts, 16, session)
        await parts.close(session)

    async def answer_all_but(kept: list[Call]) -> None:
        while True:
            for call in parts.model.waiting():
                if call.task is Task.SUMMARISE and is_of_session(call, "slow"):
                    kept.append(call)
                elif call not in kept:
                    call.answer()
            await anyio.sleep(0.01)

    hanging: list[Call] = []
    fast = Scope(ScopeKind.SESSION, KEYS.session("alice", "fast").hex())
    async with running(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(answer_all_but, hanging)
        memory = await parts.memory()
        await wait_until(lambda: bool(memory.forest.root_refs(fast)))
        height = memory.forest.trees[fast].height
        tasks.cancel_scope.cancel()

    assert height >= 2, "the tree has levels to wait for"
    assert hanging, "the other tree's calls hung all the while"


async def test_turns_and_queries_go_on_while_every_call_hangs(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=2))
    async with running(parts):
        await say_chunks(parts, 8)
        await parts.until_asked(2)
        with anyio.fail_after(30):  # what hangs is never released meanwhile
            await parts.say("The new dog is called Rex.", session_id="s2")
            answer = await parts.ask("Rex", wait_for=parts.log.head)
            await log.write(lambda db: db.execute("SELECT 1").fetchone())

    assert answer.memories[0].text == "Alice: The new dog is called Rex."


async def test_a_user_who_found_no_room_gets_the_next_free_place(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=1))
    async with running(parts):
        await say_chunks(parts, 10, user_id="alice")
        await parts.until_asked(1)
        await say_chunks(parts, 1, session_id="b1", user_id="bob")
        await parts.close("b1", "bob")
        await wait_until(lambda: KEYS.user("bob") in parts.memories.loaded())
        answered = 0
        while not any(first_line(call).startswith("b1") for call in parts.model.calls):
            await parts.until_asked(1)
            parts.model.waiting()[0].answer()
            answered += 1
            await anyio.sleep(0.02)

    assert answered <= 3 * STARTED_PER_SLOT, "bob does not wait behind everything that alice ever said"


async def test_a_call_is_tried_again_and_then_parked_with_its_reason(parts: Parts) -> None:
    parts.model.queue.extend([ModelFailed("Rex"), ModelFailed("Rex"), ModelFailed("Rex")])
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.until_done()
        memory = await parts.memory()
        texts = await parts.texts("Rex")

    failed = [{"task": Task.EXTRACT, "tries": n, "code": "ModelFailed"} for n in (1, 2, 3)]
    assert parts.reported.fields("worker.question_failed") == failed
    assert parts.reported.fields("worker.work_parked") == [{"task": Task.EXTRACT, "reason": "model_failed"}]
    assert memory.pending() == 0, "parked work does not count as pending"
    assert texts == ["Alice: The dog is Rex.\nAlice: He is old."], "the chunk stays searchable"


async def test_a_call_that_fails_once_is_answered_the_second_time(parts: Parts) -> None:
    parts.model.queue.append(ModelFailed())
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.until_done()

    types = await event_types(parts.log)

    assert types[:4] == ["turn.recorded", "turn.recorded", "facts.extracted", "facts.admitted"]
    assert types.count("facts.extracted") == 1


@pytest.mark.parametrize(
    "facts",
    [
        (ExtractedFact("x", (), MONDAY, MONDAY),),
        (ExtractedFact("x", (2,), MONDAY, MONDAY),),
        (ExtractedFact("x", (-1,), MONDAY, MONDAY),),
        (ExtractedFact("x", (0,), MONDAY, MONDAY - 1),),
        (ExtractedFact("x", (0,), MONDAY, 10**18),),
        (ExtractedFact("\ud800", (0,), MONDAY, MONDAY),),
    ],
)
async def test_an_answer_that_says_what_cannot_be_is_parked(
    parts: Parts, facts: tuple[ExtractedFact, ...]
) -> None:
    parts.model.queue.extend([facts, facts, facts])
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.until_done()

    assert parts.reported.fields("worker.work_parked") == [{"task": Task.EXTRACT, "reason": "answer_invalid"}]
    assert (await event_types(parts.log))[2:] == ["work.parked"]


async def test_a_summary_that_is_empty_or_cannot_be_stored_is_parked_and_its_tree_goes_without(
    parts: Parts,
) -> None:
    async with running(parts):
        await parts.say(f"{UNREADABLE} one", "a", "b", "c", "d", "e", "f", "g")
        await parts.close()
        await parts.until_done()
        memory = await parts.memory()

    assert "work.parked" in await event_types(parts.log)
    assert memory.pending() == 0


async def test_an_answer_about_a_session_that_was_forgotten_meanwhile_never_reaches_the_disk(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True))
    late = (ExtractedFact("Zanzibar is late.", (0,), MONDAY, MONDAY),)
    parts.model.queue.append(late)
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.until_asked(1)
        await parts.forgetter.forget("alice", "s1")
        parts.model.release()
        await wait_until(lambda: not parts.worker.in_flight)

    assert parts.reported.fields("worker.answer_dropped") == [{"task": Task.EXTRACT}]
    assert b"Zanzibar" not in stored_bytes(log_path)
    assert "facts.extracted" not in await event_types(log)


async def test_nothing_is_planned_on_a_memory_that_holds_a_forgotten_session(
    log: EventLog, clock: ManualClock
) -> None:
    """Such work would have a basis behind the forgetting: the gate would take it, and its words would stay."""
    parts = build_parts(log, clock)
    await parts.say("The dog is Rex.", "He is old.")
    memory = await parts.memory()
    await log.append_event(a_forgetting())
    (forgotten,) = await log.read(lambda db: read_user(db, ALICE, after=2))
    memory.apply(forgotten)  # and now it waits for the fold that replaces it

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.worker.run)
        await wait_until(lambda: parts.memories.loaded()[ALICE] is not memory and parts.is_done())
        tasks.cancel_scope.cancel()

    assert memory.needs_rebuild, "this is the Memory that had passed the forgetting and still held the session"
    assert parts.model.calls == []


async def test_a_restart_finds_what_was_left_undone(log_path: Path, clock: ManualClock) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock, model=ScriptedModel(held=True))
    async with running(parts):
        await say_chunks(parts, 4)
        await parts.close()
        await parts.until_asked(4)
        for call in parts.model.waiting()[:2]:
            call.answer()
        await wait_until(
            lambda: len(stored_rows(log_path, "SELECT 1 FROM events WHERE type = 'facts.extracted'")) == 2
        )
    await log.close()

    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    later = build_parts(log, clock)
    async with running(later):
        await later.until_done()
        memory = await later.memory()
    await log.close()

    assert tasks_of(later.model.calls).count(Task.EXTRACT) == 2, "a recorded answer is never paid for twice"
    assert len(memory.canon.facts) == 8


async def test_a_third_run_asks_nothing_at_all(log_path: Path, clock: ManualClock) -> None:
    calls: list[int] = []
    for _ in range(2):
        log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
        parts = build_parts(log, clock)
        async with running(parts):
            if not log.head:
                await say_chunks(parts, 6)
                await parts.close()
            await parts.until_done()
        calls.append(len(parts.model.calls))
        await log.close()

    assert calls[0] > 6
    assert calls[1] == 0


async def test_an_answer_that_cannot_be_written_is_kept_and_not_asked_for_again(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True))
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.until_asked(1)
        with unwritable(log_path):
            parts.model.release()
            await wait_until(lambda: len(parts.reported.fields("worker.write_failed")) >= 2)
            with anyio.fail_after(HANGS_AFTER_S):
                texts = await parts.texts("Rex")
        await parts.until_done()
        memory = await parts.memory()

    assert texts == ["Alice: The dog is Rex.\nAlice: He is old."], "reading goes on"
    assert tasks_of(parts.model.calls) == [Task.EXTRACT]
    assert len(memory.canon.facts) == 2


async def test_a_session_that_fell_quiet_gets_its_chunk_closed_by_the_clock_it_was_given(
    parts: Parts, clock: ManualClock
) -> None:
    async with running(parts):
        await parts.say("Only one turn.")
        memory = await parts.memory()
        clock.advance(29_999)
        await anyio.sleep(QUICK.tick_s * 3)
        still_open = memory.open_chunk(KEYS.session("alice", "s1"))
        clock.advance(1)
        await wait_until(lambda: parts.log.head >= 4)

    assert still_open == (1,)
    assert (await event_types(parts.log))[:4] == [
        "turn.recorded",
        "chunk.closed",
        "facts.extracted",
        "facts.admitted",
    ]


def refreshing(idle_s: float, refresh_age_s: float) -> WorkerParameters:
    return replace(QUICK, idle_s=idle_s, refresh_age_s=refresh_age_s)


async def test_refresh_waits_while_turns_keep_coming_and_is_due_when_the_session_closes(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, worker=refreshing(idle_s=30, refresh_age_s=600))
    async with running(parts):
        await say_chunks(parts, 6)
        await wait_until(lambda: len(parts.model.calls) == 6 and not parts.worker.in_flight)
        await anyio.sleep(QUICK.tick_s * 3)
        before = tasks_of(parts.model.calls)
        await parts.close()
        await parts.until_done()

    assert before == [Task.EXTRACT] * 6, "the trees wait: many turns cost one path"
    assert Task.SUMMARISE in tasks_of(parts.model.calls)


@pytest.mark.parametrize(("idle_s", "refresh_age_s"), [(30.0, 1e6), (1e6, 600.0)])
async def test_refresh_is_due_when_all_is_quiet_or_the_oldest_waits_too_long(
    log: EventLog, clock: ManualClock, idle_s: float, refresh_age_s: float
) -> None:
    parts = build_parts(log, clock, worker=refreshing(idle_s, refresh_age_s))
    async with running(parts):
        await say_chunks(parts, 6)
        await wait_until(lambda: len(parts.model.calls) == 6 and not parts.worker.in_flight)
        clock.advance(int(min(idle_s, refresh_age_s) * 1000))
        await wait_until(lambda: Task.SUMMARISE in tasks_of(parts.model.calls))


async def test_a_second_session_is_refreshed_at_its_close_also_after_the_first_was_forgotten(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        for session in ("s1", "s2"):
            await say_chunks(parts, 6, session)
            await parts.close(session)
        await parts.until_done()
        await parts.forgetter.forget("alice", "s1")
        await parts.say("still talking", session_id="other")
        await say_chunks(parts, 6, "s3")
        await parts.close("s3")
        await parts.until_done()

        memory = await parts.memory()
        assert memory.forest.root_refs(Scope(ScopeKind.SESSION, KEYS.session("alice", "s3").hex()))
