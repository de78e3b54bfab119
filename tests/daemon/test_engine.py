"""The engine: what is asked once, what waits and for what, what is parked and why, and who comes first."""

from __future__ import annotations

import os
import random
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from itertools import product
from pathlib import Path

import anyio

from daemon.models.budget import Budget
from daemon.models.limiter import PRIORITY
from events.envelope import NewEvent, Reference
from events.ledger import DAY_MS, read_tokens_by_user
from events.log import EventLog
from events.memory import FactsExtracted, ParkReason, Task, Usage, WorkParked, WorkResumed
from events.reading import read_user
from projections.ports import AnswerUnusable, ChunkText, ModelFailed, ModelUnavailable
from tests.builders import KEYS, MONDAY, SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import ALICE, QUICK, Parts, build_parts, event_types, running
from tests.scripted_models import Call, ScriptedModel
from tests.waiting import wait_until

SEED = int(os.environ.get("SIMULATION_SEED", "0")) or random.randrange(1, 2**31)
BOB = KEYS.user("bob")
ONE_CALL = Usage(calls=1, prompt_tokens=60, completion_tokens=40, latency_ms=5)
AWAY = "the endpoint is away"


def first_line(call: Call) -> str:
    """What the first turn of an extraction says; nothing for other tasks."""
    return call.question.turns[0].text if isinstance(call.question, ChunkText) else ""


async def say_chunk(parts: Parts, user_id: str = "alice", session_id: str = "s1") -> None:
    await parts.say("The dog is Rex.", "He is old.", user_id=user_id, session_id=session_id)


async def parked_of(log: EventLog, user: Reference = ALICE) -> list[WorkParked]:
    events = await log.read(lambda db: read_user(db, user, limit=1000))
    return [each.event for each in events if isinstance(each.event, WorkParked)]


async def answers_of(log: EventLog, user: Reference = ALICE) -> list[FactsExtracted]:
    events = await log.read(lambda db: read_user(db, user, limit=1000))
    return [each.event for each in events if isinstance(each.event, FactsExtracted)]


# What an exception means.


async def test_work_that_has_to_wait_for_the_model_is_not_parked_and_its_tries_do_not_count(parts: Parts) -> None:
    away = [ModelUnavailable(AWAY, 0.02)] * 5
    parts.model.queue.extend([ModelFailed("x", ONE_CALL), *away, ModelFailed("x", ONE_CALL), *away])
    parts.model.usage = ONE_CALL
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    (answer,) = await answers_of(parts.log)

    assert [each["tries"] for each in parts.reported.fields("worker.question_failed")] == [1, 2]
    assert await parked_of(parts.log) == []
    assert answer.usage == ONE_CALL + ONE_CALL + ONE_CALL, "what the tries before it took is counted with it"
    assert parts.worker.waiting_for_model == 0


async def test_an_answer_that_cannot_be_used_is_parked_at_once_with_all_that_it_took(parts: Parts) -> None:
    parts.model.queue.extend([ModelFailed("x", ONE_CALL), AnswerUnusable(ParkReason.ANSWER_CUT, ONE_CALL)])
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    (parked,) = await parked_of(parts.log)

    assert (parked.task, parked.reason, parked.usage) == (Task.EXTRACT, ParkReason.ANSWER_CUT, ONE_CALL + ONE_CALL)
    assert len(parts.model.calls) == 2
    assert parts.worker.engine.questions_failed == 2


async def test_what_fails_three_times_is_parked_with_all_that_it_took(parts: Parts) -> None:
    parts.model.queue.extend([ModelFailed("x", ONE_CALL), RuntimeError("x"), ModelFailed("x", ONE_CALL)])
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    (parked,) = await parked_of(parts.log)

    assert (parked.reason, parked.usage) == (ParkReason.MODEL_FAILED, ONE_CALL + ONE_CALL)


async def test_work_that_is_parked_from_a_later_state_is_parked_anew(parts: Parts) -> None:
    """What was resumed and fails again must not be taken for the parking before."""
    parts.model.queue.append(AnswerUnusable(ParkReason.REFUSED))
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    first = (await parts.log.read(lambda db: read_user(db, ALICE)))[-1]
    assert isinstance(first.event, WorkParked)
    parked = first.event
    resumed = NewEvent(
        user_id="alice",
        session_id="s1",
        event=WorkResumed(first.seq, parked.task, parked.request, parked.turns, parked.covers),
        key="resumed",
        happened_at=MONDAY,
        lineage=first.lineage,
        basis=first.user_seq,
    )
    parts.model.queue.append(AnswerUnusable(ParkReason.TOO_LONG))
    async with running(parts):
        await parts.log.append_event(resumed)
        await parts.until_done()

    assert [each.reason for each in await parked_of(parts.log)] == [ParkReason.REFUSED, ParkReason.TOO_LONG]


# Waiting.


async def test_while_the_model_is_away_nobody_asks_and_nothing_is_held(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=2))
    parts.model.queue.extend([ModelUnavailable(AWAY, 60)] * 2)
    async with running(parts):
        for number in range(6):
            await say_chunk(parts, session_id=f"s{number}")
        await wait_until(lambda: parts.worker.waiting_for_model > 0 and not parts.worker.in_flight)
        await say_chunk(parts, "bob")
        await wait_until(lambda: BOB in parts.memories.loaded())
        texts = await parts.texts("Rex")
        asked = len(parts.model.calls)

    assert 1 <= asked <= 2, "those that were out when it went away"
    assert parts.worker.engine.away == AWAY
    assert texts, "turns are stored and found meanwhile"
    assert await parked_of(log) == []


async def test_for_a_model_that_has_slots_of_its_own_some_questions_are_got_ready_and_no_more(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=2, ahead=1))
    async with running(parts):
        await say_chunk(parts)
        await say_chunk(parts, session_id="s2")
        await parts.until_asked(2)
        was_short = parts.worker.engine.is_short
        for number in range(3, 7):
            await say_chunk(parts, session_id=f"s{number}")
        await wait_until(lambda: parts.worker.engine.slots.waiting > 0)
        asked, is_short = len(parts.model.waiting()), parts.worker.engine.is_short
        parts.model.release()
        await parts.until_done()

    assert (was_short, is_short) == (False, True)
    assert asked == 3
    assert len(await answers_of(log)) == 6


async def test_once_the_model_answers_again_all_that_waits_goes_on_at_once(parts: Parts) -> None:
    parts.model.held = True
    async with running(parts):
        await say_chunk(parts, session_id="s1")
        await say_chunk(parts, session_id="s2")
        await parts.until_asked(2)
        parts.model.waiting()[0].fail(ModelUnavailable(AWAY, 3600))
        await wait_until(lambda: parts.worker.waiting_for_model == 1)
        parts.model.release()
        await parts.until_done()

    assert len(await answers_of(parts.log)) == 2
    assert parts.worker.waiting_for_model == 0


async def test_what_was_forgotten_while_it_waited_is_never_sent(parts: Parts) -> None:
    parts.model.queue.append(ModelUnavailable(AWAY, 0.3))
    async with running(parts):
        await say_chunk(parts)
        await wait_until(lambda: parts.worker.waiting_for_model == 1)
        await parts.forgetter.forget("alice", "s1")
        await say_chunk(parts, session_id="s2")
        await parts.until_done()

    assert [first_line(call) for call in parts.model.calls] == ["The dog is Rex."] * 2
    assert len(await answers_of(parts.log)) == 1


# Budgets.


async def test_a_user_over_budget_waits_for_midnight_and_takes_no_room_from_others(
    log: EventLog, clock: ManualClock
) -> None:
    budget = Budget(0, 100, clock)
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=1), budget=budget)
    parts.model.usage = ONE_CALL
    async with running(parts):
        for number in range(5):
            await say_chunk(parts, session_id=f"s{number}")
        await wait_until(lambda: budget.blocked(ALICE) is not None and not parts.worker.in_flight)
        spent = budget.spent(ALICE)
        await say_chunk(parts, "bob", "b1")
        await wait_until(lambda: budget.spent(BOB) == 100)
        over = await answers_of(log), await answers_of(log, BOB)
        texts = await parts.texts("Rex")
        clock.advance((MONDAY // DAY_MS + 1) * DAY_MS - clock() - 1)
        await anyio.sleep(QUICK.tick_s * 3)
        before_midnight = len(await answers_of(log))
        clock.advance(1)
        await wait_until(lambda: budget.spent(ALICE) > 0 and not parts.worker.in_flight)
        after_midnight = len(await answers_of(log))

    assert spent == 100, "what was out when the budget was reached, and nothing after it"
    assert [len(each) for each in over] == [1, 1]
    assert len(texts) == 5, "all turns are stored and found meanwhile"
    assert (before_midnight, after_midnight) == (1, 2), "one a day is what the budget has room for"
    assert await parked_of(log) == []


async def test_no_more_than_what_is_out_is_spent_beyond_a_budget(log: EventLog, clock: ManualClock) -> None:
    budget = Budget(150, 0, clock)
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=3), budget=budget)
    parts.model.usage = ONE_CALL
    async with running(parts):
        for number in range(20):
            await say_chunk(parts, session_id=f"s{number}")
        await wait_until(lambda: budget.blocked() is not None and not parts.worker.in_flight)

    assert 150 <= budget.spent() < 150 + 3 * 100
    assert len(parts.model.calls) == len(await answers_of(log)) < 20


async def test_calls_that_fail_are_spent_whatever_becomes_of_their_question(parts: Parts) -> None:
    budget = parts.worker.engine.budget
    parts.model.held = True
    async with running(parts):
        await say_chunk(parts)
        await parts.until_asked(1)
        parts.model.waiting()[0].fail(ModelFailed("x", ONE_CALL))
        await parts.until_asked(1)
        await parts.forgetter.forget("alice", "s1")
        await wait_until(lambda: not parts.worker.in_flight)

    assert await answers_of(parts.log) == []
    assert budget.spent(ALICE) == 100


async def test_what_a_question_took_before_the_model_went_away_is_in_the_budget_and_in_its_answer(
    log: EventLog, clock: ManualClock
) -> None:
    budget = Budget(0, 1000, clock)
    parts = build_parts(log, clock, budget=budget)
    parts.model.usage = ONE_CALL
    parts.model.queue.append(ModelUnavailable(AWAY, 0.02, ONE_CALL))
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    (answer,) = await answers_of(log)

    assert answer.usage == ONE_CALL + ONE_CALL
    assert budget.spent(ALICE) == 200


async def test_what_was_spent_before_a_restart_is_in_the_ledger(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    parts.model.usage = ONE_CALL
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    later = build_parts(log, clock, budget=Budget(0, 100, clock))
    async with running(later):
        await say_chunk(later, session_id="s2")
        await wait_until(lambda: ALICE in later.memories.loaded())
        await wait_until(lambda: later.worker.engine.blocks(ALICE))
    ledger = await log.read(lambda db: read_tokens_by_user(db, clock() // DAY_MS))

    assert later.model.calls == []
    assert ledger == {ALICE: 100}


# Who comes first.


async def test_fresh_turns_of_one_user_go_before_the_summaries_of_another(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=1))
    async with running(parts):
        for number in range(18):
            await parts.say(f"thing {number}.")
        await wait_until(lambda: len(parts.model.calls) == 9 and not parts.worker.in_flight)
        parts.model.held = True
        await parts.close()
        await parts.until_asked(1)
        await wait_until(lambda: len(parts.worker.in_flight) == 2)
        for number in range(3):
            await say_chunk(parts, "bob", f"b{number}")
        await wait_until(lambda: BOB in parts.worker._line.crowded_out[PRIORITY[Task.EXTRACT]])
        order: list[Task] = []
        for _ in range(6):
            await parts.until_asked(1)
            (call,) = parts.model.waiting()
            order.append(call.task)
            call.answer()
            await wait_until(lambda call=call: call.answered)  # type: ignore[misc]

    summary, extract = Task.SUMMARISE, Task.EXTRACT
    assert order[0] == summary, "what is out stays out"
    assert order.index(extract) <= 2, "no more summaries than had room already"
    assert order[order.index(extract) :][:3] == [extract] * 3
    assert order[5] == summary


# Once.


async def test_over_random_histories_nothing_is_asked_twice_at_once_and_every_chunk_ends(
    log: EventLog, clock: ManualClock
) -> None:
    print(f"seed {SEED}")
    chance = random.Random(SEED)
    parts = build_parts(log, clock, model=ScriptedModel(held=True), worker=replace(QUICK, concurrency=3))
    twice: list[str] = []
    troubles: list[Callable[[], Exception]] = [
        lambda: ModelUnavailable(AWAY, 0.01),
        lambda: ModelFailed("x"),
        lambda: RuntimeError("x"),
        lambda: AnswerUnusable(ParkReason.ANSWER_INVALID),
    ]

    async def answer_at_random() -> None:
        while True:
            waiting = parts.model.waiting()
            counted = Counter(call.order for call in waiting)
            twice.extend(order for order, count in counted.items() if count > 1)
            if waiting:
                call = chance.choice(waiting)
                if chance.random() < 0.3:
                    call.fail(chance.choice(troubles)())
                else:
                    call.answer()
            await anyio.sleep(0.001)

    async with running(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(answer_at_random)
        for number in range(25):
            user, session = chance.choice(["alice", "bob"]), f"s{chance.randrange(3)}"
            await parts.say(f"number {number} is said once.", "and more.", user_id=user, session_id=session)
            if chance.random() < 0.2:
                await parts.close(session, user)
        for user in ("alice", "bob"):
            await parts.say("the end.", "and more.", user_id=user, session_id="last")
        for user, session in product(("alice", "bob"), ("s0", "s1", "s2", "last")):
            await parts.close(session, user)  # so that nothing waits for the clock
        await parts.until_done()
        tasks.cancel_scope.cancel()
    answers = [*await answers_of(log), *await answers_of(log, BOB)]
    parked = [*await parked_of(log), *await parked_of(log, BOB)]
    covered = sum(len(each.turns) for each in answers) + sum(len(each.covers) for each in parked)

    assert twice == [], f"seed {SEED}"
    assert covered == 54, f"seed {SEED}: every chunk ended extracted or parked"


async def test_a_recorded_answer_is_not_paid_for_again_after_a_crash_between_two_tries(
    log_path: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    async with running(parts):
        await say_chunk(parts)
        await parts.until_done()
    await log.close()
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    later = build_parts(log, clock)
    async with running(later):
        await later.until_done()
        types = await event_types(log)
    await log.close()

    assert later.model.calls == []
    assert types.count("facts.extracted") == 1


async def test_a_chunk_in_which_nothing_is_said_needs_no_model_and_is_seen_as_skipped(parts: Parts) -> None:
    async with running(parts):
        await parts.say(" ", "\n")
        await parts.until_done()
    (answer,) = await answers_of(parts.log)

    assert parts.model.calls == []
    assert (answer.facts, answer.skipped, answer.usage) == ((), True, Usage())


async def test_what_our_own_answers_said_is_not_remembered_again(parts: Parts) -> None:
    async with running(parts):
        await parts.say("I moved to Miami last spring.", "It is hot there in summer.")
        await parts.until_done()
        context = (await parts.ask("Miami")).context
        await parts.say(context, session_id="s2", role="assistant")
        await parts.close("s2")
        await parts.until_done()
    _, again = await answers_of(parts.log)

    assert "Miami" in context
    assert (again.facts, again.skipped) == ((), True)
