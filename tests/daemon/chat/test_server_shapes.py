"""Servers of OpenAI's API as they really answer: each ends in facts, in waiting with a reason, or parked with one.

Their words are from their documentation and issue trackers (deploy/MODELS.md).
"""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from events.memory import ParkReason
from projections.ports import AnswerUnusable, FactsRead, ModelFailed, ModelUnavailable
from tests.daemon.chat.asking import a_chunk, asking, facts, is_repair, question_of
from tests.openai_stub import Answers, Asked, Item, OpenAiStub, a_completion

FACT = "Ann moved to Oslo with her cat."
ANSWER = facts(FACT)
CHUNK = a_chunk("I moved to Oslo with my cat.", "Great, tell me about the cat and the flat!")
# OpenAI, "Structured outputs": what a strict schema may consist of.
STRICT_KEYWORDS: Final = {"type", "properties", "required", "additionalProperties", "items", "enum"}


def message(**fields: object) -> Item:
    """A completion whose message has these fields."""
    content = fields.pop("content", None)
    return a_completion(content, "stop", **fields)


def choice(content: object, finish_reason: str, **fields: object) -> Item:
    completion = a_completion(content, finish_reason)
    completion["choices"][0].update(fields)
    return completion


def error(http_status: int, text: str, **fields: object) -> Answers:
    return Answers(http_status, body=json.dumps({"error": {"message": text, **fields}}).encode())


async def read(stub: OpenAiStub, completion: Item | Answers) -> FactsRead:
    """What comes of the chunk when the server always answers so."""
    if isinstance(completion, Answers):
        stub.always = completion
    else:
        stub.chat = lambda _: completion
    async with asking(stub, timeout_s=1.0) as model:
        return await model.extract_facts(CHUNK)


ODD: Final[dict[str, Item | Answers]] = {
    "no usage": {"choices": a_completion(ANSWER)["choices"]},
    "vLLM with a reasoning parser and no thinking": message(reasoning_content=ANSWER),
    "Magistral": message(
        content=[
            {"type": "thinking", "thinking": [{"type": "text", "text": '{"facts": []}'}]},
            {"type": "text", "text": ANSWER},
        ]
    ),
    "thoughts in parts": message(
        content=[{"type": "reasoning", "text": '{"facts": []} '}, {"type": "text", "text": ANSWER}]
    ),
    "a gateway that wraps the schema in a function": message(
        tool_calls=[{"type": "function", "function": {"name": "facts", "arguments": ANSWER}}]
    ),
    "lines to keep the connection open": Answers(body=b"\n\n\n" + json.dumps(a_completion(ANSWER)).encode()),
    "a byte order mark": Answers(body=b"\xef\xbb\xbf" + json.dumps(a_completion(ANSWER)).encode()),
    "NaN": Answers(body=json.dumps({**a_completion(ANSWER), "logprobs": float("nan")}).encode()),
    "half an emoji": Answers(body=json.dumps({**a_completion(ANSWER), "id": "\ud83d"}).encode()),
}


@pytest.mark.parametrize("completion", ODD.values(), ids=ODD)
async def test_an_odd_but_honest_server_is_understood(stub: OpenAiStub, completion: Item | Answers) -> None:
    read_facts = await read(stub, completion)

    assert [fact.text for fact in read_facts.facts] == [FACT]
    assert read_facts.usage.calls == 1


WAITS: Final[dict[str, tuple[Answers | Item, str]]] = {
    "llama.cpp loads": (error(503, "Loading model", code=503, type="unavailable_error"), "loading its model"),
    "OpenRouter 429 under 200": (error(200, "Rate limit exceeded: free-models-per-min", code=429), "429"),
    "OpenRouter 402 under 200": (error(200, "Insufficient credits", code=402), "quota"),
    "a choice with an error": (
        choice("", "error", error={"code": 502, "message": "Upstream error"}),
        "status 502",
    ),
    "a queue that is full": (error(503, "maximum number of concurrent requests exceeded"), "503"),
    "LM Studio unloaded it": (
        error(400, "No models loaded. Please load a model in the developer page.", param="model"),
        "models.chat_model",
    ),
    "Gemini's 401": (error(400, "API key not valid. Please pass a valid API key.", code=400), "models.api_key"),
    "no such model": (error(400, "Model does not exist.", code="model_not_found"), "models.chat_model"),
}


@pytest.mark.parametrize(("answer", "reason"), WAITS.values(), ids=WAITS)
async def test_what_passes_or_is_configured_wrongly_lets_the_work_wait(
    stub: OpenAiStub, answer: Answers | Item, reason: str
) -> None:
    with pytest.raises(ModelUnavailable) as raised:
        await read(stub, answer)

    assert reason in raised.value.reason


BROKEN: Final[dict[str, Answers | Item]] = {
    "OpenRouter": choice('{"facts": [', "error"),
    "DeepSeek": choice('{"facts": [', "insufficient_system_resource"),
    "vLLM": choice("", "abort"),
    "a deadline": error(500, "context deadline exceeded"),
    "a token": error(500, "unexpected token at line 1"),
}


@pytest.mark.parametrize("answer", BROKEN.values(), ids=BROKEN)
async def test_what_a_server_broke_off_is_no_fault_of_the_question(
    stub: OpenAiStub, answer: Answers | Item
) -> None:
    with pytest.raises(ModelFailed):
        await read(stub, answer)


PARKED: Final[dict[str, tuple[Answers | Item, ParkReason]]] = {
    "gpt-5 that thought for ever": (choice("", "length", refusal=None), ParkReason.ANSWER_CUT),
    "Mistral's context": (choice('{"facts": [', "model_length"), ParkReason.ANSWER_CUT),
    "Gemini's limit": (choice(None, "MAX_TOKENS"), ParkReason.ANSWER_CUT),
    "thoughts and nothing else": (message(reasoning_content="Ann moved."), ParkReason.ANSWER_INVALID),
    "Gemini's filter": (choice(None, "SAFETY"), ParkReason.REFUSED),
    "Azure's filter": (
        choice("", "content_filter", content_filter_results={"hate": {"filtered": True}}),
        ParkReason.REFUSED,
    ),
    "OpenRouter's moderation": (error(403, "Input was flagged", code=403), ParkReason.REFUSED),
    "llama.cpp's context": (
        error(400, "the request exceeds the available context size", type="exceed_context_size_error"),
        ParkReason.TOO_LONG,
    ),
    "OpenRouter's context under 200": (
        error(200, "This endpoint's maximum context length is 10 tokens", code=400),
        ParkReason.TOO_LONG,
    ),
}


@pytest.mark.parametrize(("answer", "reason"), PARKED.values(), ids=PARKED)
async def test_what_no_try_mends_is_parked_with_its_reason(
    stub: OpenAiStub, answer: Answers | Item, reason: ParkReason
) -> None:
    with pytest.raises(AnswerUnusable) as raised:
        await read(stub, answer)

    assert raised.value.reason is reason


@pytest.mark.parametrize(
    "says",
    [
        "System role not supported",
        "Conversation roles must alternate user/assistant/user/assistant/...",
        "Unsupported value: 'messages[0].role' does not support 'system' with this model.",
        "Developer instruction is not enabled for models/gemma-3-27b-it",
    ],
)
async def test_a_model_without_a_system_role_gets_the_instruction_before_the_question(
    stub: OpenAiStub, says: str
) -> None:
    stub.judge = lambda asked: error(400, says) if asked.messages[0]["role"] == "system" else None
    stub.chat = lambda asked: "no" if len(asked.messages) == 1 else ANSWER
    async with asking(stub) as model:
        read_facts = await model.extract_facts(CHUNK)

    assert [fact.text for fact in read_facts.facts] == [FACT]
    assert [len(asked.messages) for asked in stub.asked] == [2, 1, 3]
    assert [each["role"] for each in stub.asked[2].messages] == ["user", "assistant", "user"]
    assert stub.asked[1].messages[0]["content"].endswith(stub.asked[0].messages[1]["content"])


async def test_json_that_the_server_refuses_by_itself_is_asked_for_by_the_prompt_alone(stub: OpenAiStub) -> None:
    refused = error(400, "Failed to generate JSON. See 'failed_generation'.", code="json_validate_failed")
    stub.judge = lambda asked: refused if "response_format" in asked.body else None
    stub.chat = lambda _: ANSWER
    async with asking(stub) as model:
        read_facts = await model.extract_facts(CHUNK)
        mode = model.mode

    assert [fact.text for fact in read_facts.facts] == [FACT]
    assert mode == "json_schema"  # the next question has it again
    assert len(stub.asked) == 2


async def test_too_much_room_for_a_second_try_does_not_make_all_later_answers_short(stub: OpenAiStub) -> None:
    """A server with 8,192 tokens for question and answer, and a model that thought too long once."""

    def judge(asked: Asked) -> Answers | None:
        tokens = sum(len(each["content"]) for each in asked.messages) // 4 + asked.body["max_tokens"]
        return error(400, "This model's maximum context length is 8192 tokens.") if tokens > 8_192 else None

    stub.judge = judge
    stub.chat = lambda asked: a_completion("", "length") if len(stub.asked) == 1 else ANSWER
    async with asking(stub) as model:
        await model.extract_facts(CHUNK)
        await model.extract_facts(a_chunk("I moved to Oslo with my cat today."))

    assert [asked.body["max_tokens"] for asked in stub.asked] == [3_000, 12_000, 3_000, 3_000]


async def test_a_limit_that_is_too_high_is_lowered_and_not_left_out(stub: OpenAiStub) -> None:
    refused = error(400, "Invalid max_tokens value, the valid range of max_tokens is [1, 8192]")
    stub.judge = lambda asked: refused if asked.body["max_tokens"] > 8_192 else None
    stub.chat = lambda asked: a_completion("", "length") if len(stub.asked) == 1 else ANSWER
    async with asking(stub) as model:
        await model.extract_facts(CHUNK)

    assert [asked.body["max_tokens"] for asked in stub.asked] == [3_000, 12_000, 3_000]


def test_the_schema_is_one_that_strict_modes_take() -> None:
    from daemon.chat.prompts import FACTS_SCHEMA

    def check(node: dict[str, Any], depth: int) -> None:
        assert node.keys() <= STRICT_KEYWORDS
        assert depth <= 5
        if node["type"] == "object":
            assert node["additionalProperties"] is False
            assert node["required"] == list(node["properties"])
            for child in node["properties"].values():
                check(child, depth + 1)
        if node["type"] == "array":
            check(node["items"], depth + 1)

    check(FACTS_SCHEMA.schema, 1)


async def test_the_instruction_is_the_same_to_the_byte_in_every_call(stub: OpenAiStub) -> None:
    """Also in repairs and second looks: providers bill what they find in their caches at a fraction."""
    stub.chat = lambda asked: "no" if not is_repair(asked) and "missing" not in question_of(asked) else ANSWER
    async with asking(stub) as model:
        await model.extract_facts(a_chunk("I paid 450 euros to Doctor Grünberg.", previous="x"))
        await model.extract_facts(CHUNK)
    beginnings = {json.dumps([asked.body["model"], asked.messages[0]]) for asked in stub.asked}

    assert len(stub.asked) == 5
    assert len(beginnings) == 1
