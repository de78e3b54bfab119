"""Equal questions share an answer, and what decides an answer has a name."""

from __future__ import annotations

from collections.abc import AsyncGenerator

import anyio
import pytest

from events.memory import Task, Usage
from projections.ports import AnswerUnusable, FactsRead
from tests.daemon.models.asking import (
    a_chunk,
    asking,
    facts,
)
from tests.openai_stub import OpenAiStub, a_completion, running_stub
from tests.waiting import wait_until

MOVED = "I moved to Oslo with my cat."
FACT = "Ann moved to Oslo with her cat."
CHUNK = a_chunk(MOVED, "Great, tell me about the cat and the flat!", previous="Where do you live?")


@pytest.fixture
async def stub() -> AsyncGenerator[OpenAiStub]:
    async with running_stub() as stub:
        yield stub


async def test_equal_questions_share_one_call_and_its_cost_counts_once(stub: OpenAiStub) -> None:
    stub.chat = lambda _: facts(FACT)
    stub.hold()
    reads: list[FactsRead] = []
    async with asking(stub) as model, anyio.create_task_group() as tasks:
        await model.extract_facts(a_chunk("Hi!"))  # the rules are there then

        async def read() -> None:
            reads.append(await model.extract_facts(CHUNK))

        for _ in range(5):
            tasks.start_soon(read)
        await wait_until(lambda: stub.in_flight == 1)
        await anyio.wait_all_tasks_blocked()
        stub.let_go.set()

    assert len(stub.asked) == 1
    assert sorted(each.usage.calls for each in reads) == [0, 0, 0, 0, 1]
    assert {each.facts for each in reads} == {reads[0].facts}


async def test_when_the_one_who_asked_is_cancelled_another_asks(stub: OpenAiStub) -> None:
    stub.chat = lambda _: facts(FACT)
    stub.hold()
    reads: list[FactsRead] = []
    async with asking(stub) as model, anyio.create_task_group() as tasks:
        await model.extract_facts(a_chunk("Hi!"))  # the rules are there then
        first = anyio.CancelScope()

        async def ask_in_vain() -> None:
            with first:
                await model.extract_facts(CHUNK)

        async def read() -> None:
            reads.append(await model.extract_facts(CHUNK))

        tasks.start_soon(ask_in_vain)
        await wait_until(lambda: stub.in_flight == 1)
        tasks.start_soon(read)
        await anyio.wait_all_tasks_blocked()
        first.cancel()
        await wait_until(lambda: len(stub.asked) == 2)
        stub.let_go.set()

    assert [len(each.facts) for each in reads] == [1]


async def test_a_failure_is_shared_and_its_cost_counts_once(stub: OpenAiStub) -> None:
    stub.chat = lambda _: a_completion(None, refusal="no")
    stub.hold()
    usages: list[Usage] = []
    async with asking(stub) as model, anyio.create_task_group() as tasks:
        await model.extract_facts(a_chunk("Hi!"))  # the rules are there then

        async def fail() -> None:
            with pytest.raises(AnswerUnusable) as raised:
                await model.extract_facts(CHUNK)
            usages.append(raised.value.usage)

        tasks.start_soon(fail)
        tasks.start_soon(fail)
        await wait_until(lambda: stub.in_flight == 1)
        await anyio.wait_all_tasks_blocked()
        stub.let_go.set()

    assert sorted(usage.calls for usage in usages) == [0, 1]


async def test_the_version_tells_all_that_decides_an_answer(stub: OpenAiStub) -> None:
    tasks = list(Task)

    async def versions(json_mode: str = "auto", **more: object) -> list[str]:
        async with asking(stub, json_mode, **more) as model:
            assert model.name == "endpoint-some-model"
            return [model.version_of(task) for task in tasks]

    first, again, other, plain = (
        await versions(),
        await versions(),
        await versions(extra_body={"x": 1}),
        await versions("text"),
    )

    assert first == again
    assert len({*first, *other}) == 2 * len(tasks)
    assert [one == two for one, two in zip(first, plain, strict=True)] == [False, True, True]
