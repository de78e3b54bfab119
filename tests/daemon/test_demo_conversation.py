from __future__ import annotations

import math
import re
from collections import Counter
from datetime import UTC, datetime
from itertools import pairwise
from typing import TYPE_CHECKING, cast

import pytest
import Stemmer

from daemon.upkeep.demo_conversation import (
    DEMO_FORGOTTEN_SESSION_ID,
    DEMO_USER_ID,
    QUESTIONS,
    DemoQuestion,
    Evidence,
    QuestionKind,
    load_conversation,
)

if TYPE_CHECKING:
    from collections.abc import Callable

MESSAGES = load_conversation()
TURNS = {message["id"]: message for message in MESSAGES if message["type"] == "turn"}
SESSIONS = tuple(dict.fromkeys(message["session_id"] for message in MESSAGES))
EVIDENCE = [(question, evidence) for question in QUESTIONS for evidence in question.expects]
FOUND = [question for question in QUESTIONS if question.expects]

_stem = cast(
    "Callable[[list[str]], list[str]]",
    Stemmer.Stemmer("english").stemWords,  # pyright: ignore[reportUnknownMemberType]
)


def turns_of(session_id: str) -> list[dict[str, str]]:
    return [turn for turn in TURNS.values() if turn["session_id"] == session_id]


def words(text: str) -> list[str]:
    """Stemmed words, and character bigrams for Chinese."""
    folded = text.casefold()
    spelled: list[str] = re.findall(r"[^\W_\u4e00-\u9fff]+", folded)
    runs: list[str] = re.findall(r"[\u4e00-\u9fff]+", folded)
    return _stem(spelled) + [run[i : i + 2] for run in runs for i in range(len(run) - 1)]


def chunks() -> list[tuple[str, ...]]:
    """Turn ids by pairs, in log order, never across a session: the chunks of algorithms.md 1 with b = 2."""
    cut: list[tuple[str, ...]] = []
    for session_id in SESSIONS:
        ids = [turn["id"] for turn in turns_of(session_id)]
        cut += [tuple(ids[i : i + 2]) for i in range(0, len(ids), 2)]
    return cut


def bm25_ranking(query: str, among: list[tuple[str, ...]]) -> list[tuple[str, ...]]:
    """The chunks by BM25 (k1 1.2, b .75), best first, without any other help: the floor of any retriever."""
    bags = [Counter(words(" ".join(TURNS[turn]["content"] for turn in chunk))) for chunk in among]
    mean_length = sum(bag.total() for bag in bags) / len(bags)
    scores = [0.0] * len(bags)
    for term in set(words(query)):
        holders = sum(term in bag for bag in bags)
        rarity = math.log(1 + (len(bags) - holders + 0.5) / (holders + 0.5))
        for i, bag in enumerate(bags):
            damping = 1.2 * (0.25 + 0.75 * bag.total() / mean_length)
            scores[i] += rarity * bag[term] * 2.2 / (bag[term] + damping)
    return [among[i] for i in sorted(range(len(among)), key=lambda i: (-scores[i], i))]


def is_met(evidence: Evidence, memories: list[tuple[str, ...]]) -> bool:
    return any(
        set(evidence.turns) & set(chunk)
        and all(
            word.casefold() in " ".join(TURNS[turn]["content"] for turn in chunk).casefold()
            for word in evidence.contains
        )
        for chunk in memories
    )


def test_the_year_has_at_least_ten_sessions_each_closed_once_after_its_last_turn() -> None:
    closes = [message for message in MESSAGES if message["type"] == "session.close"]

    assert len(SESSIONS) >= 10
    assert [close["session_id"] for close in closes] == list(SESSIONS)
    for session_id in SESSIONS:
        types = [message["type"] for message in MESSAGES if message["session_id"] == session_id]
        assert 10 <= len(types) - 1 <= 18
        assert types == ["turn"] * (len(types) - 1) + ["session.close"]


def test_sessions_are_published_one_after_the_other() -> None:
    blocks = [
        b["session_id"] for a, b in pairwise(({"session_id": ""}, *MESSAGES)) if a["session_id"] != b["session_id"]
    ]

    assert blocks == list(SESSIONS)


def test_turns_are_native_messages_of_one_owner_and_one_assistant() -> None:
    keys = {"type", "id", "user_id", "session_id", "role", "name", "content", "timestamp"}

    assert all(set(turn) == keys and turn["content"].strip() for turn in TURNS.values())
    assert {message["user_id"] for message in MESSAGES} == {DEMO_USER_ID}
    assert {(turn["role"], turn["name"]) for turn in TURNS.values()} == {
        ("user", "Lena"),
        ("assistant", "Wren"),
    }


def test_turn_ids_and_question_ids_are_unique() -> None:
    turn_ids = [message["id"] for message in MESSAGES if message["type"] == "turn"]
    question_ids = [question.id for question in QUESTIONS]

    assert len(turn_ids) == len(set(turn_ids))
    assert len(question_ids) == len(set(question_ids))


def test_times_carry_an_offset_and_ascend_through_the_year_2024() -> None:
    times = [datetime.fromisoformat(turn["timestamp"]) for turn in TURNS.values()]

    assert all(at.tzinfo is not None and at.year == 2024 for at in times)
    assert all(earlier < later for earlier, later in pairwise(times))
    for turn, at in zip(TURNS.values(), times, strict=True):
        assert turn["session_id"] == at.date().isoformat()


def test_every_kind_of_question_is_asked() -> None:
    assert {question.kind for question in QUESTIONS} == set(QuestionKind)


@pytest.mark.parametrize("question", QUESTIONS, ids=lambda question: question.id)
def test_a_question_carries_what_its_kind_is_judged_by(question: DemoQuestion) -> None:
    several = question.kind is QuestionKind.ACROSS
    judged_by_absence = question.kind in (QuestionKind.NEVER, QuestionKind.FORGOTTEN)

    assert (question.absent is not None) == judged_by_absence
    assert (len(question.expects) > 1) == several
    assert bool(question.expects) == (question.kind is not QuestionKind.NEVER)
    if question.kind is QuestionKind.BEFORE:
        assert all(evidence.said_on for evidence in question.expects)
    if several:
        assert len({TURNS[evidence.turns[0]]["session_id"] for evidence in question.expects}) > 1


@pytest.mark.parametrize(("question", "evidence"), EVIDENCE, ids=lambda item: getattr(item, "id", ""))
def test_every_expected_turn_exists_and_says_its_words_on_its_date(
    question: DemoQuestion, evidence: Evidence
) -> None:
    assert evidence.turns
    assert evidence.contains
    for turn_id in evidence.turns:
        turn = TURNS[turn_id]
        said_on = datetime.fromisoformat(turn["timestamp"]).astimezone(UTC).date().isoformat()
        assert all(word.casefold() in turn["content"].casefold() for word in evidence.contains)
        assert evidence.said_on in (None, said_on)
        assert (turn["session_id"] == DEMO_FORGOTTEN_SESSION_ID) == (question.kind is QuestionKind.FORGOTTEN)


def test_what_was_never_said_stands_in_no_turn() -> None:
    everything = "\n".join(turn["content"] for turn in TURNS.values()).casefold()
    never = [question.absent for question in QUESTIONS if question.kind is QuestionKind.NEVER]

    assert never
    assert all(word is not None and word.casefold() not in everything for word in never)


def test_what_is_to_be_forgotten_stands_in_the_forgotten_session_alone() -> None:
    forgotten = [question.absent for question in QUESTIONS if question.kind is QuestionKind.FORGOTTEN]

    assert forgotten
    for word in forgotten:
        assert word is not None
        holders = {turn["session_id"] for turn in TURNS.values() if word.casefold() in turn["content"].casefold()}
        assert holders == {DEMO_FORGOTTEN_SESSION_ID}


def test_no_expected_answer_is_the_question_itself() -> None:
    for question, evidence in EVIDENCE:
        asked = set(words(question.text))
        for turn_id in evidence.turns:
            assert not set(words(TURNS[turn_id]["content"])) <= asked
            assert question.text.casefold() not in TURNS[turn_id]["content"].casefold()


def test_plain_bm25_over_two_turn_chunks_answers_most_questions_within_its_first_8() -> None:
    every_chunk = chunks()
    missed = [
        question.id
        for question in FOUND
        if not all(is_met(evidence, bm25_ranking(question.text, every_chunk)[:8]) for evidence in question.expects)
    ]

    assert len(missed) <= 0.2 * len(FOUND), missed
