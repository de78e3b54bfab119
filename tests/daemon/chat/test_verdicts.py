"""Verdicts on pairs: asked in one question, read tolerantly, exactly one of each pair."""

from __future__ import annotations

import json

import pytest

from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.json_text import JsonUnusable
from daemon.chat.prompts import INSTRUCTIONS, VERDICTS_SCHEMA
from daemon.chat.verdict_answers import read_verdicts
from daemon.offline.language_model import OfflineLanguageModel
from events.decisions import PairVerdict
from events.memory import ParkReason, Task, Usage
from projections.ports import AnswerUnusable, PairsRead, PairText
from tests.daemon.chat.asking import COST_NANO, asking, is_repair, members_of, question_of, refuse_longer_than
from tests.openai_stub import Asked, OpenAiStub

SAME, SUPERSEDES, CONTRADICTS, DIFFERENT = PairVerdict
EARLIER, LATER = members_of("Ann lives in Oslo.", "Ann has moved to Bergen.")
PAIR = PairText(later=LATER, earlier=EARLIER)


def verdicts(*words: str) -> str:
    return json.dumps({"verdicts": [{"n": n, "verdict": word} for n, word in enumerate(words, start=1)]})


def all_different(asked: Asked) -> str:
    return verdicts(*["different"] * len(question_of(asked)["pairs"]))


async def test_pairs_are_numbered_data_and_come_back_as_verdicts_in_their_order(stub: OpenAiStub) -> None:
    stub.chat = lambda _: verdicts("supersedes", "same")
    async with asking(stub) as model:
        read = await model.judge([PAIR, PairText(EARLIER, EARLIER)])
    (asked,) = stub.asked

    assert read == PairsRead((SUPERSEDES, SAME), Usage(1, 100, 40, 20, COST_NANO, read.usage.latency_ms))
    assert asked.messages[0]["content"] == INSTRUCTIONS[Task.JUDGE]
    assert question_of(asked)["pairs"][0] == {
        "n": 1,
        "earlier": {"time": "2023-05-01", "text": "Ann lives in Oslo."},
        "later": {"time": "2023-05-02", "text": "Ann has moved to Bergen."},
    }
    assert asked.body["response_format"]["json_schema"]["schema"] == VERDICTS_SCHEMA.schema


@pytest.mark.parametrize(
    "answer",
    [
        verdicts("same", "different"),
        f"Here you are:\n```json\n{verdicts('same', 'different')}\n```",
        '[{"n": "pair 2", "verdict": "Different."}, {"pair": 1, "verdict": "SAME"}]',
        '{"verdicts": {"1": "same", "2": "different"}}',
        '{"1": {"verdict": "same"}, "2": {"verdict": "different"}}',
        '["same", "different"]',
        '{"results": [{"verdict": "same"}, {"verdict": "different"}]}',
        '[{"n": 1, "verdict": "same"}, {"n": 2, "verdict": "different"}, {"n": 1, "verdict": "same"}]',
    ],
)
def test_what_can_only_mean_one_thing_is_taken(answer: str) -> None:
    assert read_verdicts(answer, 2) == (SAME, DIFFERENT)


@pytest.mark.parametrize(
    ("answer", "fault"),
    [
        (verdicts("same"), "no verdict on pair 2"),
        (verdicts("same", "same", "same"), "not there"),
        (verdicts("same", "equal"), "none of same"),
        (
            '{"verdicts": [{"n": 1, "verdict": "same"}, {"n": 1, "verdict": "different"}]}',
            "two verdicts on pair 1",
        ),
        ('{"verdicts": [{"n": 1, "verdict": "same"}, {"verdict": "different"}]}', "has no n"),
        ('{"verdicts": [{"n": 0, "verdict": "same"}, {"n": 1, "verdict": "same"}]}', "not there"),
        ('{"verdicts": [{"n": 1}, {"n": 2}]}', "none of same"),
        ('{"verdicts": []}', "no verdict on pair 1"),
        ("They are the same.", "JSON"),
        ("", "it is empty"),
    ],
)
def test_what_may_mean_two_things_or_none_is_refused(answer: str, fault: str) -> None:
    with pytest.raises((AnswerInvalid, JsonUnusable), match=fault):
        read_verdicts(answer, 2)


async def test_a_wrong_answer_is_mended_once(stub: OpenAiStub) -> None:
    stub.chat = lambda asked: verdicts("contradicts") if is_repair(asked) else verdicts("maybe")
    async with asking(stub) as model:
        read = await model.judge([PAIR])

    assert read.verdicts == (CONTRADICTS,)
    assert (read.usage.calls, read.usage.repairs) == (2, 1)


async def test_a_wrong_answer_about_many_is_asked_for_in_halves(stub: OpenAiStub) -> None:
    stub.chat = lambda asked: all_different(asked) if len(question_of(asked)["pairs"]) == 1 else "I cannot tell."
    async with asking(stub) as model:
        read = await model.judge([PAIR, PAIR, PAIR])

    assert read.verdicts == (DIFFERENT,) * 3
    assert read.usage.splits == 2


async def test_an_answer_that_stays_wrong_is_given_up(stub: OpenAiStub) -> None:
    stub.chat = lambda _: verdicts("perhaps")
    async with asking(stub) as model:
        with pytest.raises(AnswerUnusable) as raised:
            await model.judge([PAIR])

    assert raised.value.reason is ParkReason.ANSWER_INVALID
    assert raised.value.usage.calls == 2


async def test_pairs_that_are_long_together_are_asked_about_in_parts(stub: OpenAiStub) -> None:
    stub.chat = all_different
    stub.judge = refuse_longer_than(14_000)
    long = PairText(*members_of("Ann walked. " * 80, "Ann ran. " * 100))
    async with asking(stub) as model:
        read = await model.judge([long] * 20)

    assert read.verdicts == (DIFFERENT,) * 20
    assert read.usage.calls == len(stub.asked) == 4


async def test_a_rule_has_no_better_judgement_than_the_one_that_asked() -> None:
    assert await OfflineLanguageModel().judge([PAIR, PAIR]) == PairsRead((SAME, SAME))
