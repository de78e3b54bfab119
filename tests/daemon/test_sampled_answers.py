"""`temperature` of an answer in words, which lets several answers to one question differ; and the time it took."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from daemon.chat.model import EndpointLanguageModel
from events.errors import InvalidInput
from events.log import EventLog
from tests.builders import ManualClock
from tests.daemon.chat.asking import asking
from tests.daemon.parts_in_use import Parts, build_parts
from tests.openai_stub import OpenAiStub

ANSWER = json.dumps({"answer": "Davis", "cites": [1]})


@pytest.fixture
async def model(stub: OpenAiStub) -> AsyncGenerator[EndpointLanguageModel]:
    stub.chat = lambda _: ANSWER
    async with asking(stub) as model:
        yield model


@pytest.fixture
async def parts(log: EventLog, clock: ManualClock, model: EndpointLanguageModel) -> Parts:
    parts = build_parts(log, clock, answers_by=model)
    await parts.say("I moved to Davis.")
    return parts


async def ask(parts: Parts, **more: Any) -> None:
    await parts.ask("Where did Alice move?", answer=True, **more)


async def test_answers_are_asked_for_at_the_temperature_that_is_given_and_else_at_0(
    parts: Parts, stub: OpenAiStub
) -> None:
    await ask(parts)
    await ask(parts, temperature=0.7)

    assert [asked.body["temperature"] for asked in stub.asked] == [0, 0.7]


async def test_an_answer_that_is_mended_is_mended_at_the_same_temperature(parts: Parts, stub: OpenAiStub) -> None:
    stub.chat = lambda asked: ANSWER if len(asked.messages) > 2 else "no JSON"
    await ask(parts, temperature=0.7)

    assert [asked.body["temperature"] for asked in stub.asked] == [0.7, 0.7]


@pytest.mark.parametrize("temperature", [-0.1, 2.1, float("nan")])
async def test_a_temperature_that_no_server_takes_is_refused(
    parts: Parts, stub: OpenAiStub, temperature: float
) -> None:
    with pytest.raises(InvalidInput, match="temperature is from 0 to 2"):
        await ask(parts, temperature=temperature)

    assert stub.asked == []


async def test_without_an_answer_in_words_there_is_no_temperature(parts: Parts) -> None:
    with pytest.raises(InvalidInput, match="set answer to true"):
        await parts.ask("Where?", temperature=0.7)


async def test_the_explanation_says_how_long_the_wording_took(parts: Parts) -> None:
    answer = await parts.ask("Where did Alice move?", answer=True, explain=True)
    plain = await parts.ask("Where did Alice move?", explain=True)
    assert answer.explanation is not None
    assert plain.explanation is not None

    assert answer.explanation.timings_ms["answer"] > 0
    assert "answer" not in plain.explanation.timings_ms
