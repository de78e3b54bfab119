"""A call that always fails where all others are answered: it does not wait for ever, nor keep others waiting."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from itertools import pairwise

import anyio
import pytest

from daemon.building.worker import Worker
from daemon.chat.calls import make_easy_call
from daemon.chat.model import EndpointLanguageModel
from daemon.models.circuit import FAILURES_MAX, OPEN_MAX_S, Circuit
from daemon.models.embedding import EndpointEmbedder
from daemon.models.endpoint import TRIES_MAX, CallFailed, Endpoint, EndpointKeys, EndpointUnavailable, Patience
from daemon.models.prices import Prices
from daemon.vector_source import VectorSource
from daemon.vectors import VectorFiller
from events.log import EventLog
from events.memory import FactsExtracted, ParkReason, Task, WorkParked
from events.reading import read_user
from projections.ports import EmbedderUnavailable, TextRefused
from tests.builders import ManualClock
from tests.daemon.parts_in_use import ALICE, QUICK, build_parts, running, running_forgetter
from tests.openai_stub import Answers, Asked, Fault, Mangles, OpenAiStub
from tests.waiting import wait_until

PATH = "/chat/completions"
KEYS = EndpointKeys("models.chat_url", "models.chat_model")
SOON = Patience(0.5, 2.0)
POISON = "Quetzaltenango"
BROKEN = Answers(500, body=b"")


@asynccontextmanager
async def asking(stub: OpenAiStub) -> AsyncGenerator[Endpoint]:
    """An endpoint that is left alone for hundredths of a second."""
    easy, circuit = make_easy_call("m", {}), Circuit(open_s=0.01)
    endpoint = Endpoint(stub.url, "k", KEYS, concurrency=4, easy=easy, circuit=circuit)
    endpoint._budget.saved_max = 0  # none is asked twice: that takes a second
    try:
        yield endpoint
    finally:
        await endpoint.close()


def broken_by(word: str) -> Callable[[Asked], Fault | None]:
    """Status 500 for whatever has this word in it."""
    return lambda asked: BROKEN if word in str(asked.body) else None


async def failures(endpoint: Endpoint, calls: int) -> list[type[Exception]]:
    """What becomes of so many calls, one after the other, each when it may go out."""
    kinds: list[type[Exception]] = []
    body = {"model": "m", "messages": [{"role": "user", "content": POISON}]}
    for _ in range(calls):
        endpoint.circuit._open_until = 0.0  # some seconds later
        with pytest.raises((CallFailed, EndpointUnavailable)) as raised:
            await endpoint.post(PATH, body, lambda answer: answer, patience=SOON)
        kinds.append(raised.type)
    return kinds


async def test_the_only_call_there_is_fails_by_its_own_fault_once_others_are_seen_to_be_answered(
    stub: OpenAiStub,
) -> None:
    stub.judge = broken_by(POISON)
    async with asking(stub) as endpoint:
        kinds = await failures(endpoint, FAILURES_MAX + TRIES_MAX)
        state = endpoint.state

    assert kinds == [
        *[CallFailed] * (FAILURES_MAX - 1),
        *[EndpointUnavailable] * TRIES_MAX,
        CallFailed,
    ]
    assert (state.circuit, state.failed, state.in_flight) == ("closed", FAILURES_MAX + TRIES_MAX, 0)
    assert sum(POISON not in str(asked.body) for asked in stub.asked) == 1


async def test_a_server_that_answers_nobody_is_at_fault_however_often_it_is_tried(stub: OpenAiStub) -> None:
    stub.always = BROKEN
    async with asking(stub) as endpoint:
        kinds = await failures(endpoint, FAILURES_MAX + 3 * TRIES_MAX)
        state = endpoint.state

    assert kinds[FAILURES_MAX - 1 :] == [EndpointUnavailable] * (1 + 3 * TRIES_MAX)
    assert (state.circuit, state.in_flight) == ("open", 0)
    assert sum(POISON not in str(asked.body) for asked in stub.asked) == 3


async def test_a_server_that_is_away_is_not_asked_whether_others_are_answered(stub: OpenAiStub) -> None:
    stub.judge = lambda asked: Answers(503) if POISON in str(asked.body) else None
    async with asking(stub) as endpoint:
        kinds = await failures(endpoint, FAILURES_MAX + 2 * TRIES_MAX)

    assert set(kinds) == {EndpointUnavailable}
    assert all(POISON in str(asked.body) for asked in stub.asked)


async def test_every_chunk_ends_extracted_or_parked_also_one_that_fails_when_nothing_else_is_asked(
    log: EventLog, clock: ManualClock, stub: OpenAiStub
) -> None:
    stub.judge = broken_by(POISON)
    async with asking(stub) as endpoint:
        model = EndpointLanguageModel(endpoint, "m", json_mode="text", prices=Prices(()), timeout_s=2.0)
        parts = build_parts(log, clock)
        parts.worker = Worker(log, parts.memories, model, QUICK, clock, parts.reported)
        async with running(parts):
            await parts.say("The dog is Rex.", "He is nine years old.")
            await wait_until(lambda: bool(stub.asked) and not parts.worker.in_flight)
            await parts.say(f"I moved to {POISON} in 1990.", "It rains there.")
            await parts.close()
            await parts.until_done()
    events = [each.event for each in await log.read(lambda db: read_user(db, ALICE, limit=100))]
    parked = [each for each in events if isinstance(each, WorkParked)]

    assert sum(isinstance(each, FactsExtracted) for each in events) == 1
    # The chunk, and the summary that its words would have been in.
    assert {each.task: each.reason for each in parked} == {
        Task.EXTRACT: ParkReason.MODEL_FAILED,
        Task.SUMMARISE: ParkReason.MODEL_FAILED,
    }


async def test_a_text_that_breaks_the_model_keeps_no_other_from_its_vector(
    log: EventLog, clock: ManualClock, stub: OpenAiStub
) -> None:
    stub.judge = broken_by(POISON)
    embedder = EndpointEmbedder(stub.url, "m")
    parts = build_parts(log, clock, embedder=embedder)
    filler = VectorFiller(parts.memories, embedder, VectorSource(log, embedder, None))
    again: list[bool] = []
    try:
        async with running_forgetter(parts), anyio.create_task_group() as tasks:
            tasks.start_soon(filler.run)
            await parts.say("The dog is Rex.", f"I moved to {POISON}.", "Alma is 7.", "Olaf is 8.", "Ida is 9.")
            await parts.memory()
            await wait_until(lambda: filler.count_waiting() == 1 and len(stub.asked) > 3)
            asked = len(stub.asked)
            await parts.say("Pia is 10.")
            await wait_until(lambda: len(stub.asked) > asked and filler.count_waiting() == 1)
            again += [POISON in str(each.body) for each in stub.asked[asked:]]
            tasks.cancel_scope.cancel()
    finally:
        await embedder.close()

    assert not any(again)
    assert embedder.trouble is None


async def test_a_text_is_refused_only_where_others_are_answered(stub: OpenAiStub) -> None:
    embedder = EndpointEmbedder(stub.url, "m", stored=SOON, question=SOON)
    try:
        stub.judge = broken_by(POISON)
        await embedder.embed(["hello"])
        with pytest.raises(TextRefused):
            await embedder.embed(["hello", POISON])
        stub.judge = lambda _: Mangles(lambda _: [])
        with pytest.raises(EmbedderUnavailable) as raised:
            await embedder.embed(["hello"])
    finally:
        await embedder.close()

    assert not isinstance(raised.value, TextRefused)


def test_a_server_that_comes_back_stands_idle_for_no_more_than_some_seconds() -> None:
    circuit, now, tried = Circuit(), 0.0, [0.0]
    for _ in range(FAILURES_MAX):
        circuit.note_failure("it is starting", now)
    while now < 600:
        now += 1
        if circuit.lets_through(now):
            circuit.note_failure("it is starting", now)
            tried.append(now)

    assert tried[:5] == [0, 5, 15, 35, 55]
    assert max(after - before for before, after in pairwise(tried)) == OPEN_MAX_S == 20
