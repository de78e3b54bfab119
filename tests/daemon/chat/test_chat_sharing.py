"""Answers are for who asked, and what decides an answer has a name."""

from __future__ import annotations

import anyio

from events.memory import Task
from projections.ports import FactsRead
from tests.daemon.chat.asking import (
    a_chunk,
    asking,
    facts,
)
from tests.openai_stub import OpenAiStub
from tests.waiting import wait_until

MOVED = "I moved to Oslo with my cat."
FACT = "Ann moved to Oslo with her cat."
CHUNK = a_chunk(MOVED, "Great, tell me about the cat and the flat!", previous="Where do you live?")


async def test_two_people_who_say_the_same_at_the_same_time_share_no_answer(stub: OpenAiStub) -> None:
    stub.chat = lambda _: facts(FACT)
    stub.hold()
    reads: list[FactsRead] = []
    async with asking(stub) as model, anyio.create_task_group() as tasks:
        await model.extract_facts(a_chunk("Hi!"))  # the rules are there then

        async def read() -> None:
            reads.append(await model.extract_facts(CHUNK))

        tasks.start_soon(read)
        tasks.start_soon(read)
        await wait_until(lambda: stub.in_flight == 2)
        stub.let_go.set()

    assert [each.usage.calls for each in reads] == [1, 1]


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
    assert [one == two for one, two in zip(first, plain, strict=True)] == [False, False, True, True]
