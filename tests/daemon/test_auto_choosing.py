"""Mode `auto` of a real Memory: the mode it takes, why, and what that costs."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from dataclasses import replace

import msgspec
import pytest

from daemon.asking.answer_types import Answer
from daemon.asking.auto_mode import WhyMode
from daemon.asking.modes import Mode
from daemon.chat.model import EndpointLanguageModel
from events.log import EventLog
from tests.builders import ManualClock
from tests.daemon.chat.asking import asking
from tests.daemon.parts_in_use import Parts, build_parts, running
from tests.openai_stub import Answers, OpenAiStub
from tests.stub_models.reading import read_prompt, right_content

PLAIN, LIST, UNSAID = "Who swims in Oslo?", "Which cities did Alice visit?", "Is the xylophone of zinc?"


@pytest.fixture
async def model(stub: OpenAiStub) -> AsyncGenerator[EndpointLanguageModel]:
    stub.chat = lambda asked: right_content(read_prompt(dict(asked.body)))
    async with asking(stub) as model:
        yield model


async def say_much(parts: Parts) -> None:
    """Twenty chunks and their facts."""
    cities = ("Oslo", "Rome", "Bern", "Riga", "Kyiv")
    async with running(parts):
        for n in range(4):
            session = f"s{n}"
            for city in cities:
                await parts.say(
                    f"I visited {city} in week {n}.", f"Bob swims in {city}, lane {n}.", session_id=session
                )
            await parts.close(session)
        await parts.until_done()


def bare(answer: Answer) -> bytes:
    """An answer without why its mode was chosen."""
    return msgspec.json.encode(replace(answer, why_mode=None))


async def test_without_a_model_a_lookup_is_agpr_and_a_list_is_forest(parts: Parts) -> None:
    await say_much(parts)
    plain, listed, unsaid = [await parts.ask(each, mode="auto") for each in (PLAIN, LIST, UNSAID)]

    assert (plain.mode, plain.why_mode) == (Mode.AGPR, WhyMode.PLAIN)
    assert (listed.mode, listed.why_mode) == (Mode.FOREST, WhyMode.LIST)
    assert (unsaid.mode, unsaid.why_mode, unsaid.insufficient) == (Mode.AGPR, WhyMode.NO_MODEL, True)


async def test_it_answers_as_the_mode_that_it_chose(parts: Parts) -> None:
    await say_much(parts)
    for question, mode in ((PLAIN, "agpr"), (LIST, "forest")):
        named = await parts.ask(question, mode=mode)

        assert bare(await parts.ask(question, mode="auto")) == bare(named)
        assert named.why_mode is None


async def test_of_a_few_memories_each_is_weighed_by_itself(parts: Parts) -> None:
    await parts.say("I visited Oslo.", "I visited Rome.")
    answer = await parts.ask(LIST, mode="auto")

    assert (answer.mode, answer.why_mode) == (Mode.AGPR, WhyMode.SMALL)


async def test_of_an_unknown_user_nothing_is_weighed(parts: Parts) -> None:
    auto, forest = [await parts.ask(LIST, "nobody", mode=mode) for mode in ("auto", "forest")]

    assert (auto.mode, auto.why_mode, forest.mode) == (Mode.AGPR, WhyMode.SMALL, Mode.FOREST)


async def test_a_model_looks_further_only_where_the_first_recall_is_not_sure(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    parts = build_parts(log, clock, asks=model)
    await say_much(parts)
    plain = await parts.ask(PLAIN, mode="auto")
    asked_for_plain = len(stub.asked)
    unsaid = await parts.ask(UNSAID, mode="auto")

    assert (plain.mode, plain.why_mode, asked_for_plain) == (Mode.AGPR, WhyMode.PLAIN, 0)
    assert (unsaid.mode, unsaid.why_mode) == (Mode.DEEP, WhyMode.UNSURE)
    assert unsaid.calls == len(stub.asked)
    assert len(stub.asked) > 0


async def test_a_cap_that_leaves_no_room_for_a_model_is_kept(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    parts = build_parts(log, clock, asks=model)
    await say_much(parts)
    answer = await parts.ask(UNSAID, mode="auto", calls_max=1)

    assert (answer.mode, answer.why_mode) == (Mode.AGPR, WhyMode.CAPPED)
    assert not stub.asked


async def test_a_model_that_is_away_costs_no_answer(
    log: EventLog, clock: ManualClock, model: EndpointLanguageModel, stub: OpenAiStub
) -> None:
    parts = build_parts(log, clock, asks=model)
    await say_much(parts)
    stub.always = Answers(401)
    answer = await parts.ask(UNSAID, mode="auto")

    assert (answer.mode, answer.why_mode, answer.fell_back) == (Mode.DEEP, WhyMode.UNSURE, "model_away")
    assert answer.memories
