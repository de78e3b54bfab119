"""LongMemEval (xiaowu0162/LongMemEval, Wu et al. 2025): a haystack of sessions for each question.

Questions whose id ends in `_abs` are about what was never said. A haystack that several questions share
(`questions`, `answers` and lists of `answer_session_ids`) is one conversation.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from typing import TYPE_CHECKING, cast

from memforest.bench.datasets.conversations import (
    NOBODY,
    BadDataSet,
    Conversation,
    Stage,
    answer_of,
    list_of,
    object_of,
    text_of,
)
from memforest.bench.records import Case
from memforest.importing.entries import Chosen, Skipped
from memforest.importing.items import Item, read_items
from memforest.importing.longmemeval import read_longmemeval, session_time

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from memforest.wire import JsonObject

CATEGORIES = (
    "single-session-user",
    "single-session-assistant",
    "single-session-preference",
    "multi-session",
    "knowledge-update",
    "temporal-reasoning",
    "abstention",
)
_ABSTENTION = "_abs"


@dataclass(frozen=True, slots=True)
class _Haystack:
    """One item of the file: its id and category, when it is asked, and the gold turns by session."""

    place: str
    name: str
    category: str
    asked_at: str | None
    gold_turns: tuple[tuple[str, str], ...]


def read_longmemeval_cases(path: Path) -> Iterator[Conversation]:
    """The haystacks of a file, one after the other. Raises BadDataSet."""
    for item in read_items(path):
        if item.fault is not None:
            raise BadDataSet.at(item.place, item.fault)
        yield _conversation(object_of(item.value, item.place), item)


def _conversation(row: JsonObject, item: Item) -> Conversation:
    messages: list[JsonObject] = []
    for entry in read_longmemeval(iter((item,)), Chosen(user=NOBODY)):
        if isinstance(entry, Skipped):
            raise BadDataSet.at(entry.place, entry.reason)
        messages.append(entry.body)
    if not messages:
        raise BadDataSet.at(item.place, "no session has a turn")
    category = text_of(row, "question_type", item.place)
    haystack = _Haystack(
        place=item.place,
        name=text_of(row, "question_id", item.place),
        category=category,
        asked_at=_asked_at(row, item.place),
        gold_turns=tuple(_gold_turns(row)),
    )
    if haystack.category not in CATEGORIES:
        raise BadDataSet.at(item.place, f"`question_type` is none of {', '.join(CATEGORIES)}")
    return Conversation(haystack.name, (Stage(tuple(messages), tuple(_cases(row, haystack))),))


def _gold_turns(row: JsonObject) -> Iterator[tuple[str, str]]:
    """Session id and turn id (as the importer gives it) of each turn that is marked."""
    sessions = zip(row["haystack_session_ids"], row["haystack_sessions"], strict=True)
    for session_id, turns in sessions:
        for index, turn in enumerate(cast("list[JsonObject]", turns)):
            if turn.get("has_answer"):
                yield session_id, f"{session_id}:{index}"


def _cases(row: JsonObject, haystack: _Haystack) -> Iterator[Case]:
    if "questions" not in row:
        answer = answer_of(row, "answer", haystack.place)
        sessions = list_of(row, "answer_session_ids", haystack.place)
        question = text_of(row, "question", haystack.place)
        yield _case(haystack, haystack.name, question, answer, sessions, haystack.place)
        return
    questions, answers, golds = (
        list_of(row, field, haystack.place) for field in ("questions", "answers", "answer_session_ids")
    )
    if not len(questions) == len(answers) == len(golds):
        raise BadDataSet.at(haystack.place, "`questions`, `answers` and `answer_session_ids` are not equally many")
    for number, (asked, said, gold) in enumerate(zip(questions, answers, golds, strict=True), start=1):
        place = f"{haystack.place}, question {number}"
        one: JsonObject = {"question": asked, "answer": said, "answer_session_ids": gold}
        yield _case(
            haystack,
            f"{haystack.name}/{number}",
            text_of(one, "question", place),
            answer_of(one, "answer", place),
            list_of(one, "answer_session_ids", place),
            place,
        )


def _case(
    haystack: _Haystack, case_id: str, question: str, answer: str, sessions: Sequence[object], place: str
) -> Case:
    if not all(isinstance(each, str) for each in sessions):
        raise BadDataSet.at(place, "`answer_session_ids` is no list of texts")
    answerable = not haystack.name.endswith(_ABSTENTION)
    gold_sessions = frozenset(map(str, sessions)) if answerable else frozenset[str]()
    return Case(
        case_id=case_id,
        conversation_id=haystack.name,
        category=haystack.category if answerable else "abstention",
        question=question,
        gold=frozenset(turn for session, turn in haystack.gold_turns if session in gold_sessions),
        gold_sessions=gold_sessions,
        answers=(answer,),  # of an abstention it says what was never said
        answerable=answerable,
        asked_at=haystack.asked_at,
    )


def _asked_at(row: JsonObject, place: str) -> str | None:
    if row.get("question_date") is None:
        return None
    at = session_time(text_of(row, "question_date", place))
    if at is None:
        raise BadDataSet.at(place, "`question_date` is no date")
    # The daemon reads a time without an offset in its own zone; a reference date must have one.
    return at.replace(tzinfo=UTC).isoformat().replace("+00:00", "Z")
