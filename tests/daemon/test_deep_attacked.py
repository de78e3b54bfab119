"""Mode `deep` and answers in words under attack: what is filtered out or forgotten, and questions without end."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any

import anyio
import anyio.lowlevel
import pytest

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.deep.deepening import Deepening
from daemon.asking.fallen import find_fallen, while_it_stands
from daemon.asking.recalling import Recalling
from daemon.models.budget import Budget
from daemon.models.query_tasks import QueryTask
from daemon.tree_vectors import TreeVectorFiller
from daemon.vector_source import VectorSource
from daemon.vectors import VectorFiller
from events.envelope import RecordedEvent
from events.log import EventLog
from events.reading import read_user
from projections.ports import Vectors
from projections.recall.agpr import ANY_EMBEDDER
from tests.builders import KEYS, ManualClock, a_forgetting
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.daemon.scripted_asking import ScriptedAsker
from tests.daemon.test_deep import TOWNS, ask, fill, filled, shown_texts
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

PLAN, RANK, CHECK = QueryTask.PLAN, QueryTask.RANK, QueryTask.CHECK

FILTERS: list[dict[str, Any]] = [
    {"filters": {"sessions": "s2"}},
    {"filters": {"not_sessions": ["s1", "s3", "s4"]}},
    {"filters": {"sessions": "s2"}, "vectors": False},
    {"filters": {"sessions": "s2"}, "browse": "emb"},
    {"filters": {"sessions": "s2"}, "planner": False, "families": ["entity"]},
]


@asynccontextmanager
async def with_vectors(
    log: EventLog, clock: ManualClock, asker: ScriptedAsker, embedder: ScriptedEmbedder
) -> AsyncGenerator[Parts]:
    """The store that is filled, with vectors for all there is."""
    parts = build_parts(log, clock, asks=asker, agpr=ANY_EMBEDDER, embedder=embedder)
    await fill(parts)
    source = VectorSource(log, embedder)
    vectors = VectorFiller(parts.memories, embedder, source, parts.reported)
    nodes = TreeVectorFiller(parts.memories, source, vectors, eager=True)
    asking = (KEYS, log, parts.memories, embedder, ANY_EMBEDDER, lambda _: 0, clock)

    def deepen(recalling: Recalling) -> Deepening:
        return Deepening(log, log, recalling, asker, Budget(0, 0, clock))

    parts.answerer = Answerer(*asking, vectors=source, trees=nodes, make_deepening=deepen)
    async with running(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(vectors.run)
        tasks.start_soon(nodes.run)
        await wait_until(lambda: not vectors.count_waiting() and not nodes.count_waiting())
        yield parts
        tasks.cancel_scope.cancel()


@pytest.mark.parametrize("options", FILTERS)
async def test_what_filters_leave_out_goes_to_no_model(
    log: EventLog, clock: ManualClock, options: dict[str, Any]
) -> None:
    asker = ScriptedAsker()
    answer = await ask(await filled(log, clock, asker), "Where did Ann paint a harbour?", **options)

    _has_town_of_s2_alone(asker, answer)


async def test_what_filters_leave_out_goes_to_no_model_where_vectors_lead(
    log: EventLog, clock: ManualClock
) -> None:
    asker = ScriptedAsker()
    async with with_vectors(log, clock, asker, ScriptedEmbedder()) as parts:
        for options in FILTERS:
            asker.asked.clear()
            answer = await ask(parts, "Where did Ann paint a harbour?", **options)

            _has_town_of_s2_alone(asker, answer)


def _has_town_of_s2_alone(asker: ScriptedAsker, answer: Answer) -> None:
    shown = " ".join(text for _, body in asker.asked for text in shown_texts(body))

    assert [each.sessions for each in answer.memories] == [["s2"]] * len(answer.memories)
    assert answer.memories
    assert asker.asked
    assert not [town for town in TOWNS if town in shown and town != TOWNS[1]]


async def test_a_long_question_in_another_script_is_sent_once_in_a_prompt(
    log: EventLog, clock: ManualClock
) -> None:
    asker = ScriptedAsker()
    parts = await filled(log, clock, asker)
    question = "安住在京都还是都灵？" * 800
    await ask(parts, question)

    assert len(question) == 8_000
    assert asker.bodies(RANK)
    for asked in asker.questions:
        sent = "".join(content for _, content in asked.prompt.messages)
        assert len(sent.encode()) < 2 * len(question.encode())


class Forgets(ScriptedEmbedder):
    """Before it embeds what was written by a model something is forgotten."""

    forget: Callable[[], Awaitable[object]] | None = None

    async def embed_question(self, text: str) -> Vectors:
        if self.questions and self.forget is not None:
            await self.forget()
        return await super().embed_question(text)


async def test_what_a_model_wrote_of_a_session_is_in_no_answer_once_it_is_forgotten_while_that_is_embedded(
    log: EventLog, clock: ManualClock
) -> None:
    asker = ScriptedAsker()
    asker.always[CHECK] = '{"enough": false, "query": "a secret of Kyoto"}'

    embedder = Forgets()
    async with with_vectors(log, clock, asker, embedder) as parts:
        embedder.forget = partial(parts.forgetter.forget, "alice", "s3")
        answer = await ask(parts, "Who came to see her?", explain=True)

    assert embedder.questions[1:] == ["a secret of Kyoto"]
    assert answer.explanation is not None
    assert answer.explanation.deep is not None
    assert answer.explanation.deep.sub_queries == []
    assert answer.explanation.deep.searched_again is None
    assert "Kyoto" not in repr(answer)


async def _events(log: EventLog) -> dict[int, RecordedEvent]:
    return {event.seq: event for event in await log.read(lambda db: read_user(db, ALICE))}


async def test_nothing_is_asked_of_what_fell_before_though_something_newer_stands(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    await parts.say("I moved to Davis.", session_id="s1")
    await log.append_event(a_forgetting("s1"))
    await parts.say("It rained.", session_id="s2")
    asked: list[str] = []

    async def ask_model() -> None:
        asked.append("asked")

    await while_it_stands(log, ALICE, await _events(log), ask_model)

    assert asked == []


async def test_what_stands_is_asked_about_after_others_were_forgotten(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    await parts.say("I moved to Davis.", session_id="s1")
    await parts.say("It rained.", session_id="s2")
    recorded = {seq: event for seq, event in (await _events(log)).items() if event.session_id == "s2"}
    await log.append_event(a_forgetting("s1"))
    asked: list[str] = []

    async def ask_model() -> None:
        asked.append("asked")

    await while_it_stands(log, ALICE, recorded, ask_model)

    assert asked == ["asked"]


async def test_more_events_than_a_statement_takes_variables_are_looked_up(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    await parts.say("I moved to Davis.", session_id="s1")
    (turn,) = [event for event in (await _events(log)).values() if event.session_id == "s1"][-1:]
    await log.append_event(a_forgetting("s1"))
    many = dict.fromkeys(range(turn.seq, turn.seq + 300_000), turn)
    fallen = await log.read(lambda db: find_fallen(db, ALICE, many))

    assert turn.seq in fallen


def test_the_bodies_are_read_as_they_are_sent() -> None:
    """`shown_texts` finds what a model reads, or the tests above prove nothing."""
    body = json.loads('{"roots":[{"text":"a"}],"evidence":[{"text":"b"}],"trees":[{"texts":[{"text":"c"}]}]}')

    assert shown_texts(body) == ["a", "b", "c"]


async def test_a_crowd_passes_the_budget_by_no_more_than_what_was_out(log: EventLog, clock: ManualClock) -> None:
    asker, budget = ScriptedAsker(), Budget(0, 1_000, clock, questions_max=2)
    parts = await filled(log, clock, asker, budget=budget)
    answers: list[Answer] = []

    async def wait(_: QueryTask) -> None:
        await anyio.lowlevel.checkpoint()

    async def ask_once() -> None:
        answers.append(await ask(parts))

    asker.before = wait
    async with anyio.create_task_group() as tasks:
        for _ in range(32):
            tasks.start_soon(ask_once)

    assert budget.spent(ALICE) <= 1_000 + 2 * 2 * 110  # a round has two calls at most
    assert len(answers) == 32
    assert {answer.fell_back for answer in answers} <= {None, "budget"}
    assert all(answer.memories for answer in answers)
