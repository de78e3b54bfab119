"""`answer: true`: answered from the memories and citing them, or not at all; the memories come all the same."""

from __future__ import annotations

import json
import time
from collections.abc import AsyncGenerator
from typing import Any

import anyio
import pytest

from daemon.asking.answer_types import Answer, MemoryShown, Unanswered
from daemon.asking.deep.params import ModelNotConfigured
from daemon.asking.fallen import find_fallen
from daemon.asking.grounded import FRAME_CHARS, choose_evidence
from daemon.asking.query_params import QueryParams
from daemon.chat.model import EndpointLanguageModel
from daemon.config_query import Query
from daemon.models.budget import Budget
from events.log import EventLog
from events.reading import read_events
from events.time import to_iso
from projections.ports import MemberText
from tests.builders import MONDAY, ManualClock, a_batch, a_forgetting, a_retraction
from tests.daemon.chat.asking import asking
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running, running_forgetter
from tests.openai_stub import Answers, Asked, Hangs, OpenAiStub
from tests.waiting import wait_until

QUESTION = "Where did Alice move?"
MOVED = "I moved to Davis last week."
# Longer than any test waits: what ends sooner was ended.
PATIENCE_S = 100.0


def says(text: str, *cites: int) -> str:
    return json.dumps({"answer": text, "cites": cites})


def asked_of(asked: Asked) -> dict[str, Any]:
    return dict(json.loads(asked.prompt))


def cite(asked: Asked, word: str) -> str:
    """The right answer: the memories with this word."""
    numbers = [each["n"] for each in asked_of(asked)["memories"] if word in each["text"]]
    return says(word, *numbers) if numbers else says("")


@pytest.fixture
async def model(stub: OpenAiStub) -> AsyncGenerator[EndpointLanguageModel]:
    stub.chat = lambda asked: cite(asked, "Davis")
    async with asking(stub, timeout_s=PATIENCE_S) as model:
        yield model


@pytest.fixture
def parts(log: EventLog, clock: ManualClock, model: EndpointLanguageModel) -> Parts:
    return build_parts(log, clock, answers_by=model, asking=Query(timeout_s=PATIENCE_S))


async def say_all(parts: Parts) -> None:
    await parts.say("I lived in Boston.", "It rained there.", session_id="s1")
    await parts.say(MOVED, "My cat came along.", session_id="s2")


async def test_an_answer_cites_memories_of_the_same_answer(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    answer = await parts.ask(QUESTION, answer=True)
    cited = [memory.text for memory in answer.memories if memory.id in (answer.citations or ())]

    assert answer.answer == "Davis"
    assert cited == [f"Alice: {MOVED}\nAlice: My cat came along."]
    assert (answer.abstained, answer.unanswered) == (False, None)
    assert answer.answered_by is not None
    assert answer.answered_by.model == "endpoint-some-model"
    assert answer.answered_by.prompt.startswith("answer-")
    assert (answer.answered_by.spent.calls, answer.answered_by.spent.completion_tokens) == (1, 20)
    assert len(stub.asked) == 1


async def test_without_the_wish_no_model_is_asked_and_nothing_is_said_of_answers(
    parts: Parts, stub: OpenAiStub
) -> None:
    await say_all(parts)
    answer = await parts.ask(QUESTION)

    assert not stub.asked
    assert (answer.answer, answer.citations, answer.abstained, answer.answered_by) == (None, None, None, None)


async def test_the_memories_are_those_of_the_same_question_without_the_wish(parts: Parts) -> None:
    await say_all(parts)
    plain, worded = await parts.ask(QUESTION), await parts.ask(QUESTION, answer=True)

    assert (worded.memories, worded.context) == (plain.memories, plain.context)


async def test_without_a_model_the_wish_is_refused_before_anything_is_looked_up(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    with pytest.raises(ModelNotConfigured, match=r"models\.chat_model") as refused:
        await parts.ask(QUESTION, answer=True, wait_for=10**9)

    assert refused.value.code == "invalid"


async def test_what_the_memories_do_not_say_is_no_answer(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    stub.chat = lambda _: says("")
    answer = await parts.ask("What is the name of her car?", answer=True)

    assert (answer.answer, answer.citations, answer.abstained, answer.unanswered) == (None, [], True, None)
    assert answer.memories


async def test_an_answer_that_rests_on_nothing_is_none(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    stub.chat = lambda _: says("Paris, as everybody knows.", 99)
    answer = await parts.ask(QUESTION, answer=True)

    assert (answer.answer, answer.abstained) == (None, True)
    assert answer.answered_by is not None
    assert answer.answered_by.spent.calls == 2


async def test_where_nothing_is_known_nobody_is_asked(parts: Parts, stub: OpenAiStub) -> None:
    unknown = await parts.ask(QUESTION, "nobody", answer=True)
    await say_all(parts)
    filtered = await parts.ask(QUESTION, answer=True, filters={"sessions": "s9"})

    assert [(each.abstained, each.memories) for each in (unknown, filtered)] == [(True, [])] * 2
    assert not stub.asked


async def test_a_question_goes_out_with_its_day_and_with_memories_in_the_order_of_time(
    parts: Parts, stub: OpenAiStub
) -> None:
    await say_all(parts)
    await parts.ask(QUESTION, answer=True)
    asked = asked_of(stub.asked[0])

    assert asked["question"] == QUESTION
    assert asked["asked"][:10] == to_iso(parts.clock())[:10]
    assert [each["text"].split(".")[0] for each in asked["memories"]] == [
        "Alice: I lived in Boston",
        "Alice: I moved to Davis last week",
    ]


@pytest.mark.parametrize(
    ("fault", "expected"),
    [
        (Answers(500), Unanswered.MODEL_FAILED),
        (Answers(401), Unanswered.MODEL_AWAY),
        (Answers(body=b"<html>"), Unanswered.MODEL_FAILED),
        (Hangs(), Unanswered.TIMEOUT),
    ],
)
async def test_whatever_becomes_of_the_model_the_memories_come(
    log: EventLog,
    clock: ManualClock,
    model: EndpointLanguageModel,
    stub: OpenAiStub,
    fault: Any,
    expected: Unanswered,
) -> None:
    parts = build_parts(
        log, clock, answers_by=model, asking=Query(timeout_s=0.4 if isinstance(fault, Hangs) else PATIENCE_S)
    )
    await say_all(parts)
    stub.always = fault
    answer = await parts.ask(QUESTION, answer=True)

    assert len(answer.memories) == 2
    assert (answer.answer, answer.citations, answer.abstained) == (None, [], False)
    assert answer.unanswered is expected


async def test_garbage_twice_is_a_failure_of_the_model_and_no_abstention(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    stub.chat = lambda _: "Davis!"
    answer = await parts.ask(QUESTION, answer=True)

    assert (answer.unanswered, answer.abstained) == (Unanswered.MODEL_FAILED, False)
    assert answer.answered_by is not None
    assert answer.answered_by.spent.calls == 2


async def test_answers_are_on_the_budget_and_end_with_it(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    budget = Budget(0, 150, clock)
    parts = build_parts(log, clock, answers_by=model, budget=budget)
    await say_all(parts)
    answers = [await parts.ask(QUESTION, answer=True) for _ in range(3)]

    # 120 tokens a call: the second one still begins within the 150.
    assert [each.unanswered for each in answers] == [None, None, Unanswered.BUDGET]
    assert budget.spent(ALICE) == 240
    assert len(answers[2].memories) == 2
    assert len(stub.asked) == 2


async def test_a_callers_cap_of_tokens_is_kept(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    answer = await parts.ask(QUESTION, answer=True, model_tokens_max=300)

    assert answer.unanswered is Unanswered.CAPPED
    assert not stub.asked


@pytest.mark.parametrize("way", ["session", "turn", "user"])
async def test_what_is_forgotten_while_the_model_answers_is_in_nothing_that_is_given_out(
    parts: Parts, stub: OpenAiStub, way: str
) -> None:
    await say_all(parts)
    stub.hold()
    answers: list[Answer] = []
    async with running_forgetter(parts), anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await parts.ask(QUESTION, answer=True))

        tasks.start_soon(ask)
        await wait_until(lambda: stub.in_flight == 1)
        match way:
            case "session":
                await parts.forgetter.forget("alice", "s2")
            case "turn":
                await parts.log.append(a_batch(a_retraction("t3", session_id="s2")))
            case _:
                await parts.forgetter.forget_user("alice")
        # The call is broken off, though the model never answers.
        await wait_until(lambda: bool(answers))
        stub.let_go.set()
    (answer,) = answers

    assert answer.unanswered is Unanswered.FORGOTTEN
    assert (answer.answer, answer.citations) == (None, [])
    assert "Davis" not in repr(answer)
    assert ("Boston" in answer.context) == (way != "user")


async def test_what_a_model_planned_goes_with_what_is_forgotten_while_it_answers(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    parts = build_parts(log, clock, answers_by=model, asks=model, asking=Query(timeout_s=PATIENCE_S))
    await say_all(parts)
    answering = anyio.Event()

    def chat(asked: Asked) -> str:
        question = asked_of(asked)
        if "memories" in question:
            answering.set()
            stub.hold()  # all that comes after this answer, which is late enough
        if "evidence" in question:
            return json.dumps({"enough": False, "query": "Davis or Sacramento"})
        return json.dumps({"queries": [], "best": [1], "answer": "Davis", "cites": [9]})

    stub.chat = chat
    answers: list[Answer] = []
    async with running_forgetter(parts), anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await parts.ask(QUESTION, mode="deep", answer=True, explain=True))

        tasks.start_soon(ask)
        await answering.wait()
        await parts.forgetter.forget("alice", "s2")
        await wait_until(lambda: bool(answers))
        stub.let_go.set()
    (answer,) = answers

    assert answer.unanswered is Unanswered.FORGOTTEN
    assert answer.explanation is not None
    assert answer.explanation.deep is not None
    assert answer.explanation.deep.enough is False
    assert "Davis" not in repr(answer)


async def test_what_was_forgotten_of_others_ends_no_answer(parts: Parts, stub: OpenAiStub) -> None:
    await say_all(parts)
    await parts.say("Unrelated.", session_id="s3", user_id="bob")
    await parts.say("Lunch was late.", session_id="s4")
    stub.hold()
    answers: list[Answer] = []
    async with running_forgetter(parts), anyio.create_task_group() as tasks:

        async def ask() -> None:
            answers.append(await parts.ask(QUESTION, answer=True, filters={"sessions": ["s1", "s2"]}))

        tasks.start_soon(ask)
        await wait_until(lambda: stub.in_flight == 1)
        await parts.forgetter.forget("bob", "s3")
        await parts.forgetter.forget("alice", "s4")
        stub.let_go.set()

    assert [each.answer for each in answers] == ["Davis"]


async def test_the_past_answers_from_the_past(parts: Parts, stub: OpenAiStub) -> None:
    await parts.say("I lived in Boston.", session_id="s1")
    parts.clock.advance(86_400_000)
    await parts.say(MOVED, session_id="s2")
    stub.chat = lambda asked: cite(asked, "Boston")
    answer = await parts.ask(QUESTION, answer=True, as_of=1)
    asked = asked_of(stub.asked[0])

    assert answer.answer == "Boston"
    assert [memory.id for memory in answer.memories] == answer.citations
    assert "Davis" not in stub.asked[0].prompt
    assert asked["asked"][:10] == to_iso(parts.clock() - 86_400_000)[:10]


async def test_what_falls_with_a_session_are_its_turns_alone(parts: Parts) -> None:
    await say_all(parts)
    fallen = await parts.log.read(lambda db: find_fallen(db, ALICE, read_events(db, (1, 2, 3))))
    await parts.log.append_event(a_forgetting("s1"))
    after = await parts.log.read(lambda db: find_fallen(db, ALICE, read_events(db, (1, 2, 3))))

    assert not fallen
    assert after == {1, 2}


async def test_our_own_answer_is_no_memory_when_it_comes_back(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    parts = build_parts(log, clock, answers_by=model)
    sentence = "She moved to Davis last week, and her cat came along."
    stub.chat = lambda _: says(sentence, 1)
    await say_all(parts)
    await parts.ask(QUESTION, answer=True)
    async with running(parts):
        await parts.say(sentence, session_id="s3", role="assistant")
        await parts.close("s3")
        await parts.until_done()

    assert not any(
        sentence in fact.text for fact in (await parts.ask("Davis", k=50, filters={"kinds": "fact"})).memories
    )


@pytest.mark.parametrize(
    ("params", "waits_s"),
    [
        ({}, 0.0),
        ({"mode": "forest"}, 0.0),
        ({"answer": True}, PATIENCE_S),
        ({"mode": "deep"}, PATIENCE_S),
        ({"mode": "auto", "answer": True}, 2 * PATIENCE_S),
        ({"mode": "auto", "answer": True, "timeout_s": 3.0}, 6.0),
        ({"answer": True, "timeout_s": float("nan")}, PATIENCE_S),
        ({"answer": True, "timeout_s": -1.0}, PATIENCE_S),
    ],
)
def test_a_query_may_take_longer_by_what_it_waits_for_models(
    parts: Parts, params: dict[str, Any], waits_s: float
) -> None:
    assert parts.answerer.time_for_models(QueryParams(user_id="alice", query="?", **params)) == waits_s


def a_memory(n: int, text: str, **more: Any) -> MemoryShown:
    at = to_iso(MONDAY - n * 86_400_000)
    return MemoryShown(f"{n:02}", "chunk", text, at, at, at, 1.0, 1.0, 0.0, ["s"], [], [], **more)


def test_the_best_that_fit_are_shown_in_the_order_of_time() -> None:
    memories = [a_memory(n, "x" * 100) for n in range(10)]
    tokens = 3 * (100 + FRAME_CHARS) // 4

    assert [each.id for each in choose_evidence(memories, {}, tokens)] == ["02", "01", "00"]


def test_of_the_best_one_there_is_at_least_the_beginning() -> None:
    (shown,) = choose_evidence([a_memory(0, "word " * 1_000)], {}, 100)

    assert shown.said.member.text
    assert len(shown.said.member.text) <= 400


def test_a_turn_of_a_megabyte_takes_no_longer_than_the_part_of_it_that_is_shown() -> None:
    def took_s(characters: int) -> float:
        memories = [a_memory(n, "湖に住む " * (characters // 5)) for n in range(3)]
        runs: list[float] = []
        for _ in range(3):
            started = time.thread_time()
            choose_evidence(memories, {}, 1_000)
            runs.append(time.thread_time() - started)
        return min(runs)

    assert took_s(1_000_000) < 10 * took_s(5_000)


def test_states_that_ended_take_room_as_well() -> None:
    state = MemberText("x" * 300, MONDAY, MONDAY, MONDAY + 1)
    memories = [a_memory(n, "x" * 100) for n in range(3)]

    assert [len(choose_evidence(memories, ended, 200)) for ended in ({}, {"00": (state,)})] == [3, 2]
