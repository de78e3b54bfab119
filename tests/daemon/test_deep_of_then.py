"""Modes `deep` and `auto` of the past: they answer, and ask a model, as they did when that was the present."""

from __future__ import annotations

import random
from dataclasses import dataclass
from itertools import product
from typing import Any

import pytest

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.auto_mode import WhyMode
from daemon.asking.deep.deepening import Deepening
from daemon.asking.modes import Mode
from daemon.asking.query_params import QueryParams
from daemon.asking.recalling import Recalling
from daemon.models.budget import Budget
from daemon.models.query_tasks import QueryTask
from events.envelope import Reference
from events.log import EventLog
from events.time import to_iso
from projections.recall.agpr import AgprParameters
from tests.builders import KEYS, ManualClock
from tests.daemon.chat.asking import asking
from tests.daemon.lived import DAY_MS, QUESTIONS, Life, comparable
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.daemon.scripted_asking import ScriptedAsker
from tests.daemon.test_deep import (
    QUESTION,
    TOWNS,
    ask,
    fill,
    filled,
    ids_of,
    shown_texts,
    waits_for_summaries_alone,
)
from tests.daemon.test_grounded import asked_of, cite
from tests.daemon.test_validity import Rules
from tests.openai_stub import OpenAiStub
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

PLAN, RANK, CHECK = QueryTask.PLAN, QueryTask.RANK, QueryTask.CHECK
SEED, POSITIONS, STEPS = 0, 5, 3
MODES = ("deep", "auto")
MISSING = '{"enough": false, "query": "Rex in Oslo"}'


@dataclass(frozen=True)
class Asked:
    """A question, its answer, and what a model was shown for it."""

    position: int
    params: QueryParams
    answer: Answer
    bodies: list[dict[str, Any]]
    always: dict[QueryTask, str | Exception]


async def ask_by_words(parts: Parts, asker: ScriptedAsker, params: QueryParams) -> Asked:
    asker.asked.clear()
    answer = await parts.answerer.query(params)
    return Asked(answer.watermark.user_seq, params, answer, [body for _, body in asker.asked], dict(asker.always))


async def test_deep_and_auto_answer_as_of_a_position_as_they_did_there(log: EventLog, clock: ManualClock) -> None:
    """By the same answers of the model, whose prompts are the same; also where it says that this is not enough."""
    print(f"seed {SEED}")
    asker = ScriptedAsker()
    parts = build_parts(log, clock, model=Rules(), asks=asker)
    life = Life(parts, clock, random.Random(SEED))
    await life.live(6, undoing=True)
    then: list[Asked] = []
    for number in range(POSITIONS):
        asker.always = {CHECK: MISSING} if number % 2 else {}
        await life.live(STEPS)
        await parts.memory()
        for mode, question in product(MODES, life.chance.sample(QUESTIONS, 3)):
            params = QueryParams(user_id="alice", query=question, mode=mode, vectors=False, k=8)
            then.append(await ask_by_words(parts, asker, params))
    life.chance.shuffle(then)
    for each in then:
        asker.always = each.always
        params = QueryParams(
            user_id="alice", query=each.params.query, mode=each.params.mode, k=8, as_of=each.position
        )
        now = await ask_by_words(parts, asker, params)

        assert comparable(now.answer) == comparable(each.answer), (each.position, params.mode, params.query)
        assert now.bodies == each.bodies
        assert now.position == each.position
    assert len({each.position for each in then}) == POSITIONS
    assert {each.answer.mode for each in then if each.params.mode == "auto"} > {Mode.DEEP}
    assert sum(bool(each.bodies) for each in then) > len(then) // 2


async def test_a_model_is_shown_nothing_that_was_said_or_summarised_later(
    log: EventLog, clock: ManualClock
) -> None:
    asker = ScriptedAsker()
    parts = build_parts(log, clock, asks=asker)
    await fill(parts, 2)
    position, then = log.head, await ask(parts, vectors=False)
    bodies = [body for _, body in asker.asked]
    clock.advance(30 * DAY_MS)
    await fill(parts, 4)
    asker.asked.clear()
    past = await ask(parts, as_of=position, answer=False)

    assert [body for _, body in asker.asked] == bodies
    assert not any(town in text for body in bodies for text in shown_texts(body) for town in TOWNS[2:])
    assert comparable(past) == comparable(then)


async def test_nothing_that_was_forgotten_since_is_shown_to_anybody(log: EventLog, clock: ManualClock) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    position = log.head
    before = await ask(parts, as_of=position)
    shown_before = "".join(text for _, body in asker.asked for text in shown_texts(body))
    async with running(parts):
        await parts.forgetter.forget("alice", "s3")
    asker.asked.clear()
    after = await ask(parts, as_of=position, explain=True)
    shown = "".join(text for _, body in asker.asked for text in shown_texts(body))

    assert "Kyoto" in shown_before
    assert any("Kyoto" in memory.text for memory in before.memories)
    assert asker.asked
    assert "Kyoto" not in shown
    assert after.memories
    assert not any("Kyoto" in memory.text for memory in after.memories)
    assert (before.redacted, after.fell_back) == (0, None)
    assert after.redacted


@pytest.mark.parametrize("task", [PLAN, RANK, CHECK])
async def test_what_is_forgotten_while_the_past_is_asked_is_in_no_later_prompt_and_in_no_answer(
    log: EventLog, clock: ManualClock, task: QueryTask
) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    asked_before: list[int] = []

    async def forget(each: QueryTask) -> None:
        if each is task and not asked_before:
            asked_before.append(len(asker.asked))
            await parts.forgetter.forget("alice", "s3")

    async with running(parts):
        asker.before = forget
        answer = await ask(parts, explain=True, as_of=log.head)
    together = 1 if task is PLAN else 0  # the first ranking was out by then
    later = [body for _, body in asker.asked[asked_before[0] + together :]]

    assert answer.memories
    assert "Kyoto" not in "".join(memory.text for memory in answer.memories)
    assert not any("Kyoto" in text for body in later for text in shown_texts(body))
    assert answer.fell_back == "forgotten"


async def test_the_day_that_a_model_is_told_is_that_of_then_unless_another_is_given(
    log: EventLog, clock: ManualClock
) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    position, day = log.head, to_iso(clock())[:10]
    clock.advance(30 * DAY_MS)
    days: list[set[str]] = []
    then: dict[str, Any] = {"as_of": position}
    for more in ({}, then, {**then, "reference_date": "2021-03-04"}):
        asker.asked.clear()
        await ask(parts, **more)
        days.append({body["asked"] for _, body in asker.asked})

    assert days == [{to_iso(clock())[:10]}, {day}, {"2021-03-04"}]


async def test_a_question_about_the_past_has_nothing_summarised(log: EventLog, clock: ManualClock) -> None:
    """One of today does: what wants a summary has one for the next."""
    asker, refreshed = ScriptedAsker(), list[Reference]()
    parts = build_parts(log, clock)
    async with running(parts):
        await parts.say(*(f"Ann sailed to isle {number}." for number in range(8)), session_id="s9")
        await wait_until(lambda: waits_for_summaries_alone(parts))

    def deepen(recalling: Recalling) -> Deepening:
        return Deepening(log, log, recalling, asker, Budget(0, 0, clock), refresh=refreshed.append)

    embedder = ScriptedEmbedder()
    parts.answerer = Answerer(
        KEYS, log, parts.memories, embedder, AgprParameters(), lambda _: 0, clock, make_deepening=deepen
    )
    await ask(parts, as_of=log.head)
    of_then = list(refreshed)
    await ask(parts)

    assert asker.asked
    assert (of_then, refreshed) == ([], [ALICE])


async def test_the_past_is_answered_in_words_from_what_a_model_found_there(
    log: EventLog, clock: ManualClock, stub: OpenAiStub
) -> None:
    asker = ScriptedAsker()
    stub.chat = lambda asked: cite(asked, "Kyoto")
    async with asking(stub) as model:
        parts = build_parts(log, clock, asks=asker, answers_by=model)
        await fill(parts, 3)
        position, day = log.head, to_iso(clock())[:10]
        clock.advance(30 * DAY_MS)
        await fill(parts, 4)
        answer = await ask(parts, as_of=position, answer=True)
    shown = asked_of(stub.asked[0])

    assert answer.answer == "Kyoto"
    assert answer.citations
    assert set(answer.citations) <= set(ids_of(answer))
    assert answer.calls == len(asker.asked) > 2
    assert shown["asked"][:10] == day
    assert "Turin" not in stub.asked[0].prompt.replace(QUESTION, "")


async def test_before_anything_was_said_no_model_is_asked(log: EventLog, clock: ManualClock) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    answer = await ask(parts, as_of=0)

    assert (answer.memories, answer.calls, asker.asked) == ([], 0, [])


async def test_auto_has_a_model_look_further_in_the_past_too(log: EventLog, clock: ManualClock) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    unsure = await ask(parts, "Is the xylophone of zinc?", mode="auto", as_of=log.head)
    asked = len(asker.asked)
    capped = await ask(parts, "Is the xylophone of zinc?", mode="auto", as_of=log.head, calls_max=1)

    assert (unsure.mode, unsure.why_mode, unsure.calls) == (Mode.DEEP, WhyMode.UNSURE, asked)
    assert (capped.mode, capped.why_mode) == (Mode.AGPR, WhyMode.CAPPED)
    assert asked == len(asker.asked)
