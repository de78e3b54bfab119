"""Questions that are with the model are broken off once their words are forgotten or edited."""

from __future__ import annotations

import anyio
import pytest

from daemon.building.compacted import CompactionResult
from daemon.models.budget import Budget
from events.envelope import NewEvent
from events.log import EventLog
from events.memory import Task, Usage
from projections.ports import ChunkText, ModelUnavailable
from tests.builders import ManualClock, a_forgetting, a_retraction, a_revision, a_user_forgetting
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, event_types, running
from tests.scripted_models import Call
from tests.waiting import wait_until

WISHES = {
    "session forgotten": a_forgetting(),
    "user forgotten": a_user_forgetting(),
    "turn retracted": a_retraction("t2"),
    "turn revised": a_revision("He is young.", turn_id="t2"),
}


def is_about(call: Call, word: str) -> bool:
    """Whether the words of an extraction have this one among them."""
    return isinstance(call.question, ChunkText) and any(word in turn.text for turn in call.question.turns)


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES)
async def test_what_is_asked_is_broken_off_once_its_words_are_forgotten_or_edited(
    wish: NewEvent, parts: Parts
) -> None:
    """An adapter may be waiting to send them again, and what it is answered would be dropped."""
    parts.model.held = True
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.")
        await parts.say("The cat is Tom.", "She is old.", session_id="s2", user_id="bob")
        await parts.until_asked(2)
        await parts.log.append_event(wish)
        await wait_until(lambda: parts.reported.fields("worker.answer_dropped") != [])
        old = [call for call in parts.model.waiting() if is_about(call, "Rex") and is_about(call, "old")]
        others = [call for call in parts.model.waiting() if is_about(call, "Tom")]
        parts.model.release()
        await wait_until(lambda: not parts.worker.in_flight)

    assert old == []
    assert len(others) == 1, "what others said is asked as before"
    assert parts.reported.fields("worker.answer_dropped") == [{"task": Task.EXTRACT}]
    assert parts.worker.engine.slots.in_flight == 0


async def test_a_group_whose_words_are_forgotten_meanwhile_is_left_alone_and_the_others_are_made(
    parts: Parts,
) -> None:
    async with running(parts):
        for session in ("s1", "s2", "s3"):
            for number in range(4):
                await parts.say(f"{session} dog {number} is Rex.", f"{session} cat is Tom.", session_id=session)
            await parts.close(session)
        await parts.until_done()
        parts.model.held = True
        results: list[CompactionResult] = []
        sent: list[Call] = []

        async def compact() -> None:
            results.append(await parts.compactor.compact(ALICE, ratio=0.5))

        async with anyio.create_task_group() as compacting:
            compacting.start_soon(compact)
            await wait_until(lambda: any(call.task is Task.MERGE for call in parts.model.waiting()))
            await parts.forgetter.forget("alice", "s1")
            sent += [call for call in parts.model.waiting() if "s1 " in repr(call.question)]
            parts.model.release()
        await parts.until_done()

    assert sent == []
    assert results[0].groups > 0
    assert "work.parked" not in await event_types(parts.log)


@pytest.mark.parametrize("wish", WISHES.values(), ids=WISHES)
async def test_what_waited_for_the_model_and_is_forgotten_or_edited_is_not_counted_as_waiting_any_more(
    wish: NewEvent, parts: Parts
) -> None:
    parts.model.held = True
    async with running(parts):
        await parts.say("The dog is Rex.", "He is old.", "He is big.", "He is brown.")
        await parts.say("The cat is Tom.", "She is old.", session_id="s2", user_id="bob")
        await parts.until_asked(3)
        for call in parts.model.waiting():
            if not is_about(call, "Tom"):
                call.fail(ModelUnavailable("the endpoint is away", 3600))
        await wait_until(lambda: parts.worker.waiting_for_model == 2)
        await parts.log.append_event(wish)
        parts.model.release()  # and so it is there again
        await parts.close()
        await parts.close("s2", "bob")
        await parts.until_done()

    assert parts.worker.waiting_for_model == 0


async def test_of_each_user_who_waits_for_a_budget_at_least_one_piece_is_counted(
    log: EventLog, clock: ManualClock
) -> None:
    budget = Budget(100, 0, clock)
    budget.spend(ALICE, Usage(prompt_tokens=100))
    parts = build_parts(log, clock, budget=budget)
    async with running(parts):
        for user in ("alice", "bob", "carol"):
            await parts.say("The dog is Rex.", "He is old.", user_id=user)
        await wait_until(lambda: parts.worker.waiting_for_model == 3)
        await log.append_event(a_forgetting())
        await wait_until(lambda: parts.worker.waiting_for_model == 2)
        budget.tokens_per_day = 0
        await parts.until_done()

    assert parts.worker.waiting_for_model == 0
    assert len(parts.model.calls) == 2
