"""What servers refuse: it is sent otherwise, in parts, or not at all, within bounds (row 29)."""

from __future__ import annotations

from itertools import count

import anyio
import pytest

from daemon.chat.calls import CALLS_MAX
from daemon.chat.model import READ_BYTES_MAX
from daemon.chat.questions import CHUNK_BYTES_MAX
from events.memory import ParkReason, Usage
from projections.ports import ModelFailed, ModelUnavailable
from tests.daemon.chat.asking import (
    COST_NANO,
    a_chunk,
    asking,
    echo,
    facts,
    reason_of,
    refuse_longer_than,
    refusing,
    turn_texts,
)
from tests.openai_stub import Answers, OpenAiStub, Resets, a_completion
from tests.waiting import wait_until

MOVED = "I moved to Oslo with my cat."
FACT = "Ann moved to Oslo with her cat."
CHUNK = a_chunk(MOVED, "Great, tell me about the cat and the flat!", previous="Where do you live?")


@pytest.mark.parametrize(
    "completion",
    [a_completion("", "content_filter"), a_completion(None, refusal="I cannot help with that.")],
)
async def test_a_refusal_is_final(stub: OpenAiStub, completion: dict[str, object]) -> None:
    stub.chat = lambda _: completion
    async with asking(stub) as model:
        error = await reason_of(model, CHUNK)

    assert (error.reason, error.usage.calls) == (ParkReason.REFUSED, 1)
    assert error.usage.cost_nano == COST_NANO


async def test_a_filter_of_the_server_is_a_refusal(stub: OpenAiStub) -> None:
    stub.always = Answers(400, body=b'{"error": {"message": "filtered", "code": "content_filter"}}')
    async with asking(stub) as model:
        assert (await reason_of(model, CHUNK)).reason is ParkReason.REFUSED


async def test_what_the_context_does_not_hold_is_halved_until_it_does(stub: OpenAiStub) -> None:
    stub.chat = echo
    stub.judge = refuse_longer_than(900)
    sentences = [f"Thing number {n} happened to Ann in the year of the fox." for n in range(40)]
    async with asking(stub) as model:
        read = await model.extract_facts(a_chunk(" ".join(sentences), "And then nothing more."))

    assert " ".join(fact.text for fact in read.facts) == " ".join([*sentences, "And then nothing more."])
    assert {fact.turns for fact in read.facts} == {(0,), (1,)}
    assert read.usage.repairs == 0
    assert read.usage.splits > 1
    # One call for each part, and one in which the room for the answer was lowered.
    assert read.usage.calls == len(stub.asked) == 2 * read.usage.splits + 2


async def test_a_context_that_does_not_hold_the_room_gets_less_room_from_then_on(stub: OpenAiStub) -> None:
    too_long = b'{"error": {"message": "maximum context length is 4096 tokens, 4500 were requested"}}'
    stub.chat = lambda _: facts(FACT)
    stub.judge = lambda asked: Answers(400, body=too_long) if asked.body["max_tokens"] > 2_000 else None
    async with asking(stub) as model:
        read = await model.extract_facts(CHUNK)
        await model.extract_facts(a_chunk("Another thing happened."))

    assert (read.usage.calls, read.usage.splits) == (2, 0)
    assert len(stub.asked) == 3


async def test_a_context_that_holds_nothing_ends_in_too_long_within_bounds(stub: OpenAiStub) -> None:
    stub.judge = refuse_longer_than(10)
    async with asking(stub) as model:
        error = await reason_of(model, a_chunk(*["word " * 3_000] * 64))

    assert error.reason is ParkReason.TOO_LONG
    assert len(stub.asked) < 10


async def test_no_work_takes_more_calls_than_are_allowed(stub: OpenAiStub) -> None:
    stub.chat = echo
    stub.judge = refuse_longer_than(1_700)
    async with asking(stub) as model:
        error = await reason_of(model, a_chunk(*["some word of it. " * 110] * 64))

    assert error.reason is ParkReason.TOO_LONG
    assert error.usage.calls == len(stub.asked) == CALLS_MAX


async def test_a_pasted_book_is_put_aside_unread(stub: OpenAiStub) -> None:
    async with asking(stub) as model:
        error = await reason_of(model, a_chunk("word " * (READ_BYTES_MAX // 5 + 1)))

    assert (error.reason, error.usage) == (ParkReason.TOO_LONG, Usage())
    assert stub.asked == []


async def test_a_long_text_is_asked_in_parts_unasked(stub: OpenAiStub) -> None:
    async with asking(stub) as model:
        read = await model.extract_facts(a_chunk("so it went on, and on. " * (CHUNK_BYTES_MAX // 20)))

    assert read.usage.calls == len(stub.asked) == 2
    assert all(len(turn_texts(asked)[0]) < CHUNK_BYTES_MAX for asked in stub.asked)


@pytest.mark.parametrize(
    ("parameter", "before", "after"),
    [
        ("temperature", {"temperature": 0}, {}),
        ("max_tokens", {"max_tokens": 0}, {"max_completion_tokens": 0}),
        ("response_format", {"type": "json_schema"}, {"type": "json_object"}),
    ],
)
async def test_a_parameter_that_is_refused_is_not_sent_again(
    stub: OpenAiStub, parameter: str, before: object, after: object
) -> None:
    stub.chat = lambda _: facts(FACT)
    stub.faults.append(refusing(parameter))
    async with asking(stub) as model:
        read = await model.extract_facts(CHUNK)
        await model.extract_facts(a_chunk("Another thing happened."))
        sent = [asked.body for asked in stub.asked]

    assert [fact.text for fact in read.facts] == [FACT]
    assert len(sent) == 3
    if parameter == "response_format":
        assert [body["response_format"]["type"] for body in sent] == ["json_schema", "json_object", "json_object"]
        assert model.mode == "json_object_schema"
    else:
        kept = [{name for name in body if name in (parameter, "max_completion_tokens")} for body in sent]
        assert kept == [set(before), set(after), set(after)]  # type: ignore[call-overload]


async def test_calls_that_are_refused_together_give_up_one_parameter_only(stub: OpenAiStub) -> None:
    stub.chat = echo
    stub.judge = lambda asked: refusing("max_tokens") if "max_tokens" in asked.body else None
    stub.hold()
    async with asking(stub) as model, anyio.create_task_group() as tasks:
        for n in range(6):
            tasks.start_soon(model.extract_facts, a_chunk(f"Thing number {n} happened."))
        await wait_until(lambda: stub.in_flight == 6)
        stub.let_go.set()

    assert len(stub.asked) == 12
    assert all("max_completion_tokens" in asked.body for asked in stub.asked[6:])
    assert all("temperature" in asked.body for asked in stub.asked)


async def test_a_server_that_refuses_everything_at_first_makes_the_work_wait(stub: OpenAiStub) -> None:
    stub.always = Answers(400, body=b'{"error": {"message": "no"}}')
    async with asking(stub) as model:
        with pytest.raises(ModelUnavailable) as raised:
            await model.extract_facts(CHUNK)
        stub.always, stub.chat = None, lambda _: facts(FACT)
        await model.extract_facts(CHUNK)
        stub.always = Answers(400, body=b'{"error": {"message": "no"}}')
        with pytest.raises(ModelFailed):
            await model.extract_facts(CHUNK)

    assert raised.value.retry_in_s > 0


async def test_a_refused_field_of_the_configuration_is_named(stub: OpenAiStub) -> None:
    stub.always = refusing("enable_thinking")
    async with asking(stub, extra_body={"enable_thinking": False}) as model:
        with pytest.raises(ModelUnavailable, match=r"models\.chat_extra_body"):
            await model.extract_facts(CHUNK)


async def test_an_endpoint_that_is_away_makes_the_work_wait_and_says_what_its_first_calls_took(
    stub: OpenAiStub,
) -> None:
    stub.chat = lambda _: "garbage"
    numbers = count()
    stub.judge = lambda _: Answers(401) if next(numbers) == 1 else None
    async with asking(stub) as model:
        with pytest.raises(ModelUnavailable) as raised:
            await model.extract_facts(CHUNK)
        stub.chat = lambda _: facts(FACT)
        read = await model.extract_facts(CHUNK)

    assert "models.api_key" in raised.value.reason
    assert (raised.value.usage.calls, raised.value.usage.prompt_tokens) == (2, 100)
    assert (read.usage.calls, read.usage.prompt_tokens) == (1, 100)


async def test_a_connection_that_breaks_is_tried_again_and_costs_no_answer(stub: OpenAiStub) -> None:
    stub.chat = lambda _: facts(FACT)
    stub.faults.append(Resets())
    async with asking(stub) as model:
        assert len((await model.extract_facts(CHUNK)).facts) == 1
