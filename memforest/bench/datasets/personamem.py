"""PersonaMem (bowen-upenn/PersonaMem, Jiang et al. 2025): questions with four options about long chats of one
persona.

`questions_SIZE.csv` and `shared_contexts_SIZE.jsonl` beside each other. A question sees its context only up to
`end_index_in_shared_context`, so a context is read in stages, and each question is asked after its own. The data
set has no dates (ours: a day a session) and names no turns that answer.
"""

from __future__ import annotations

import ast
import csv
import json
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, cast

from memforest.bench.datasets.conversations import (
    NOBODY,
    BadDataSet,
    Conversation,
    Stage,
    object_of,
    text_of,
)
from memforest.bench.records import Case
from memforest.importing.items import read_items
from memforest.locomo import TURN_SPACING_S

if TYPE_CHECKING:
    from pathlib import Path

    from memforest.wire import JsonObject

# As its files name them; two are the same kind under an older name.
CATEGORIES = (
    "recall_user_shared_facts",
    "recalling_facts_mentioned_by_the_user",
    "suggest_new_ideas",
    "track_full_preference_evolution",
    "recalling_the_reasons_behind_previous_updates",
    "provide_preference_aligned_recommendations",
    "generalizing_to_new_scenarios",
)
# Any day does: what counts is the distance of the sessions to each other.
_FIRST_DAY = datetime(2024, 1, 1, 9, tzinfo=UTC)
_OPTION = re.compile(r"\s*\(?([a-zA-Z])\)[\s.:]*(.*)", re.DOTALL)
_CORRECT = re.compile(r"\s*\(?([a-zA-Z])\)?\s*")
# The csv module's own bound is 128 KiB; the longest field published has some thousand characters.
_FIELD_CHARACTERS_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class _Asked:
    """A row of the questions: the case, and how many messages of its context it sees."""

    case: Case
    end: int


def read_personamem_cases(path: Path) -> Iterator[Conversation]:
    """The contexts that questions are about, in the order of the file. `path`: the folder, or one of the two
    files.

    Raises BadDataSet.
    """
    questions, contexts = find_files(path)
    asked = _read_questions(questions)
    for name, messages, place in _read_contexts(contexts):
        if about := asked.pop(name, None):
            yield _conversation(name, messages, about, place)
    if asked:
        raise BadDataSet(
            f"{contexts.name} lacks {len(asked)} of the contexts in `shared_context_id` of {questions.name}."
        )


def find_files(path: Path) -> tuple[Path, Path]:
    """The questions and the contexts, wherever `path` points: the folder or one of both. Raises BadDataSet."""
    folder = path if path.is_dir() else path.parent
    if path.is_dir():
        found = sorted(folder.glob("questions*.csv"))
        if len(found) != 1:
            raise BadDataSet(f"The folder has {len(found) or 'no'} files `questions*.csv`; name one with --data.")
        questions = found[0]
    else:
        questions = (
            path if path.suffix == ".csv" else folder / _renamed(path, "shared_contexts", "questions", ".csv")
        )
    contexts = folder / _renamed(questions, "questions", "shared_contexts", ".jsonl")
    for each in (questions, contexts):
        if not each.is_file():
            raise BadDataSet(f"There is no {each.name} in this folder; questions and contexts are two files.")
    return questions, contexts


def _renamed(path: Path, old: str, new: str, suffix: str) -> str:
    if not path.stem.startswith(old):
        raise BadDataSet(
            f"The files are called questions_SIZE.csv and shared_contexts_SIZE.jsonl, not {path.name}."
        )
    return new + path.stem.removeprefix(old) + suffix


def _read_questions(path: Path) -> dict[str, list[_Asked]]:
    """The rows by the context that they are about."""
    asked: dict[str, list[_Asked]] = defaultdict(list)
    seen: set[str] = set()
    csv.field_size_limit(_FIELD_CHARACTERS_MAX)
    with path.open(encoding="utf-8-sig", newline="") as file:
        rows = csv.DictReader(file, strict=True)
        number = 0
        try:
            for number, row in enumerate(rows, start=1):
                place = f"row {number}"
                context = text_of(cast("JsonObject", row), "shared_context_id", place)
                one = _read_question(cast("JsonObject", row), context, place)
                if one.case.case_id in seen:
                    raise BadDataSet.at(place, "`question_id` stands in an earlier row, too")
                seen.add(one.case.case_id)
                asked[context].append(one)
        except (csv.Error, UnicodeDecodeError):
            raise BadDataSet.at(f"behind row {number}", "not CSV in UTF-8") from None
    if not asked:
        raise BadDataSet(f"{path.name} has no questions.")
    return asked


def _read_question(row: JsonObject, context: str, place: str) -> _Asked:
    kind = text_of(row, "question_type", place)
    end = text_of(row, "end_index_in_shared_context", place)
    if not (end.isascii() and end.isdecimal() and int(end) > 0):
        raise BadDataSet.at(place, "`end_index_in_shared_context` is no whole number above 0")
    options, letters = _read_options(text_of(row, "all_options", place), place)
    correct = _CORRECT.fullmatch(text_of(row, "correct_answer", place))
    if correct is None or correct[1].lower() not in letters:
        raise BadDataSet.at(place, "`correct_answer` is none of the letters of `all_options`")
    right = letters.index(correct[1].lower())
    case = Case(
        case_id=text_of(row, "question_id", place),
        conversation_id=context,
        category=kind,
        question=text_of(row, "user_question_or_message", place),
        answers=(options[right],),
        options=options,
        right_option=right,
    )
    return _Asked(case, int(end))


def _read_options(written: str, place: str) -> tuple[tuple[str, ...], Sequence[str]]:
    """The options without their letters, and the letters. They are written as a list in Python or in JSON."""
    listed: object = None
    for read in (ast.literal_eval, json.loads):
        try:
            listed = read(written)
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            continue
        break
    if not isinstance(listed, list):
        raise BadDataSet.at(place, "`all_options` is no list")
    found = [_OPTION.fullmatch(each) if isinstance(each, str) else None for each in cast("list[object]", listed)]
    parts = [each for each in found if each is not None and each[2].strip()]
    letters = [each[1].lower() for each in parts]
    if len(parts) != len(found) or len(parts) < 2 or len(set(letters)) != len(letters):
        raise BadDataSet.at(
            place, "`all_options` is no list of two or more texts, each behind a letter of its own"
        )
    return tuple(each[2].strip() for each in parts), letters


def _read_contexts(path: Path) -> Iterator[tuple[str, Sequence[object], str]]:
    """Id and messages of each context; a line may hold several."""
    for item in read_items(path):
        if item.fault is not None:
            raise BadDataSet.at(f"{path.name}, {item.place}", item.fault)
        for name, messages in object_of(item.value, f"{path.name}, {item.place}").items():
            place = f"{path.name}, {item.place}"
            if not isinstance(messages, list) or not messages:
                raise BadDataSet.at(place, "a context is no list of messages")
            yield name, cast("list[object]", messages), place


def _conversation(name: str, messages: Sequence[object], asked: Sequence[_Asked], place: str) -> Conversation:
    by_end: dict[int, list[Case]] = defaultdict(list)
    for each in asked:
        if each.end > len(messages):
            raise BadDataSet.at(place, "`end_index_in_shared_context` of a question is behind the context's end")
        by_end[each.end].append(each.case)
    sessions = _sessions_of(messages, frozenset(by_end), place)
    stages: list[Stage] = []
    start = 0
    for end in sorted(by_end):
        bodies = [body for first, body in sessions if start < first <= end]
        stages.append(Stage(tuple(bodies), tuple(by_end[end])))
        start = end
    return Conversation(name, tuple(stages))


def _sessions_of(messages: Sequence[object], ends: frozenset[int], place: str) -> list[tuple[int, JsonObject]]:
    """Each message as a turn with its number (from 1), and the closings of sessions with that of their last turn.

    A session begins with a system message, and behind a message where a question is asked: what is asked of is
    closed, so that its memory is built.
    """
    bodies: list[tuple[int, JsonObject]] = []
    session = in_session = 0
    for number, each in enumerate(messages, start=1):
        message = object_of(each, f"{place}, message {number}")
        role = text_of(message, "role", f"{place}, message {number}")
        content: object = message.get("content")
        if not isinstance(content, str):
            raise BadDataSet.at(f"{place}, message {number}", "`content` is missing or no text")
        if role == "system" or number == 1 or number - 1 in ends:
            if in_session:
                bodies.append((number - 1, _closing(session)))
            session, in_session = session + 1, 0
        if content.strip():
            at = _FIRST_DAY + timedelta(days=session - 1, seconds=TURN_SPACING_S * in_session)
            bodies.append((number, _turn(session, number, role, content, at)))
            in_session += 1
    if in_session:
        bodies.append((len(messages), _closing(session)))
    return bodies


def _address(session: int) -> Mapping[str, str]:
    return {"user_id": NOBODY, "session_id": f"session_{session}"}


def _turn(session: int, number: int, role: str, content: str, at: datetime) -> JsonObject:
    return {
        "type": "turn",
        "id": f"m{number}",
        **_address(session),
        "role": role,
        "content": content,
        "timestamp": at.isoformat().replace("+00:00", "Z"),
    }


def _closing(session: int) -> JsonObject:
    return {"type": "session.close", "id": f"session_{session}:close", **_address(session)}
