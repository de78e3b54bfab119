"""A language model at a stub over real HTTP, and what the tests of its answers need."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from daemon.chat.model import EndpointLanguageModel
from daemon.models.endpoint import Endpoint, EndpointKeys
from daemon.models.prices import Price, Prices
from events.memory import ParkReason
from events.time import Instant, from_datetime
from projections.ports import AnswerUnusable, ChunkText, MemberText, TurnText
from tests.openai_stub import Answers, Asked, OpenAiStub

HOUR_MS = 3_600_000
PRICES = Prices((Price("some-model", prompt=1.0, cached=0.5, completion=2.0),))
# 60 of 100 prompt tokens at 1, 40 cached ones at 0.5, 20 completion tokens at 2, a million each.
COST_NANO = 60_000 + 20_000 + 40_000


@asynccontextmanager
async def asking(
    stub: OpenAiStub, json_mode: str = "json_schema", **more: Any
) -> AsyncGenerator[EndpointLanguageModel]:
    """A model at the stub; by default in a mode that needs no probe."""
    keys = EndpointKeys("models.chat_url", "models.chat_model")
    endpoint = Endpoint(stub.url, "sk-Xylophon", keys, concurrency=8)
    options: dict[str, Any] = {"json_mode": json_mode, "prices": PRICES, "timeout_s": 5.0, **more}
    model = EndpointLanguageModel(endpoint, "some-model", **options)
    try:
        yield model
    finally:
        await endpoint.close()


def at(day: int, hour: int = 9) -> Instant:
    return from_datetime(datetime(2023, 5, day, hour, tzinfo=UTC))


def a_chunk(*texts: str, previous: str | None = None) -> ChunkText:
    turns = tuple(TurnText("user", "Ann", at(8) + n * HOUR_MS, text) for n, text in enumerate(texts))
    return ChunkText(turns, None if previous is None else TurnText("assistant", "Bot", at(8, 8), previous))


def members_of(*texts: str) -> tuple[MemberText, ...]:
    return tuple(MemberText(text, at(n), at(n)) for n, text in enumerate(texts, start=1))


def facts(*texts: str, turn: int = 1) -> str:
    """An answer with these facts of one turn."""
    return json.dumps({"facts": [{"text": text, "turns": [turn], "role": "event"} for text in texts]})


def question_of(asked: Asked) -> dict[str, Any]:
    """The JSON object that a request asks about."""
    question: dict[str, Any] = json.loads(asked.messages[1]["content"])
    return question


def turn_texts(asked: Asked) -> list[str]:
    return [turn["text"] for turn in question_of(asked)["turns"]]


def is_repair(asked: Asked) -> bool:
    return len(asked.messages) > 2


def echo(asked: Asked) -> str:
    """A fact for each turn, with all its words."""
    turns = question_of(asked)["turns"]
    return json.dumps({"facts": [{"text": turn["text"], "turns": [turn["n"]]} for turn in turns]})


def refuse_longer_than(characters: int) -> Callable[[Asked], Answers | None]:
    """A server whose context holds so many characters."""
    too_long = b'{"error": {"message": "maximum context length is 10", "code": "context_length_exceeded"}}'

    def judge(asked: Asked) -> Answers | None:
        length = sum(len(message["content"]) for message in asked.messages[1:])
        return Answers(400, body=too_long) if length > characters else None

    return judge


def refusing(parameter: str, code: str = "unsupported_parameter") -> Answers:
    """What a server says that does not know a parameter."""
    error = {"message": f"Unsupported parameter: '{parameter}'", "code": code, "param": parameter}
    return Answers(400, body=json.dumps({"error": error}).encode())


async def reason_of(model: EndpointLanguageModel, chunk: ChunkText) -> AnswerUnusable:
    with pytest.raises(AnswerUnusable) as raised:
        await model.extract_facts(chunk)
    assert isinstance(raised.value.reason, ParkReason)
    return raised.value
