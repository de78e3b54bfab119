"""The demo's questions through the product's own fold and recall, in this process: the daemon's demo is this over
a bus and a socket.
"""

from __future__ import annotations

import tempfile
from datetime import datetime
from pathlib import Path

import anyio
import msgspec
import pytest

from daemon.building.worker import Worker
from daemon.offline.language_model import OfflineLanguageModel
from daemon.upkeep.demo import PLACES, judge, meets
from daemon.upkeep.demo_conversation import DEMO_USER_ID, QUESTIONS, DemoQuestion, load_conversation
from events.log import EventLog
from memforest.types import Answer
from memforest.wire import read_as
from projections.memory import MemoryParameters
from tests.builders import SECRET, ManualClock, a_batch, a_closing, a_turn, seeded_nonces
from tests.daemon.parts_in_use import QUICK, Parts, build_parts, running

# By how much of a score the last memory that is expected stands before the first that is not shown. With less the
# demo fails on the next small change of the recipe.
MARGIN = 0.08


@pytest.fixture(scope="module")
def answers() -> dict[str, Answer]:
    """What each question of the demo is answered with, by its id."""
    return anyio.run(_ask_everything)


async def _ask_everything() -> dict[str, Answer]:
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        clock = ManualClock()
        log = await EventLog.open(Path(folder) / "events.db", clock, seeded_nonces(1), SECRET)
        try:
            parts = build_parts(log, clock, memory=MemoryParameters())
            parts.worker = Worker(log, parts.memories, OfflineLanguageModel(), QUICK, clock, parts.reported)
            async with running(parts):
                await _say_everything(parts)
                return {
                    each.id: _as_received(await parts.ask(each.text, DEMO_USER_ID, k=PLACES, explain=True))
                    for each in QUESTIONS
                }
        finally:
            await log.close()


async def _say_everything(parts: Parts) -> None:
    for turn in load_conversation():
        user_id, session_id = turn["user_id"], turn["session_id"]
        if turn["type"] == "session.close":
            await parts.log.append_event(a_closing(session_id, user_id=user_id))
            continue
        happened_at = round(datetime.fromisoformat(turn["timestamp"]).timestamp() * 1000)
        event = a_turn(
            turn["content"],
            user_id=user_id,
            session_id=session_id,
            turn_id=turn["id"],
            role=turn["role"],
            name=turn["name"],
            happened_at=happened_at,
        )
        await parts.log.append(a_batch(event))
    await parts.memory(DEMO_USER_ID)
    await parts.until_done()


def _as_received(answer: object) -> Answer:
    return read_as(Answer, msgspec.to_builtins(answer))


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_question_of_the_demo_passes(question: DemoQuestion, answers: dict[str, Answer]) -> None:
    assert judge(question, answers[question.id], forgotten=False) is None


@pytest.mark.parametrize("question", [each for each in QUESTIONS if each.expects], ids=lambda each: each.id)
def test_what_is_expected_stands_clearly_before_what_is_not_shown(
    question: DemoQuestion, answers: dict[str, Answer]
) -> None:
    answer = answers[question.id]
    expected = [next(each for each in answer.memories if meets(each, evidence)) for evidence in question.expects]
    assert answer.explanation is not None
    beaten = [each.score for each in answer.explanation.candidates if each.dropped == "rank"]

    assert min(each.score for each in expected) >= max(beaten) + MARGIN


def test_no_question_that_has_an_answer_is_said_to_have_none(answers: dict[str, Answer]) -> None:
    flagged = [question.id for question in QUESTIONS if question.expects and answers[question.id].insufficient]

    assert flagged == []


def test_the_question_about_what_is_nowhere_in_the_year_is_said_to_have_no_answer(
    answers: dict[str, Answer],
) -> None:
    assert answers["never-saxophone"].insufficient
