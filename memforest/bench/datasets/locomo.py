"""LoCoMo (snap-research/LoCoMo, Maharana et al. 2024): `locomo10.json`, one conversation or a list of them.

Of the 1,986 questions 446 are adversarial: nobody said what they ask for.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

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
from memforest.importing.items import read_items
from memforest.locomo import locomo_records

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from memforest.wire import JsonObject

# As the data set numbers them (its `task_eval/evaluation.py`), in the order of the paper's table.
CATEGORIES: Mapping[int, str] = {
    4: "single-hop",
    1: "multi-hop",
    2: "temporal",
    3: "open-domain",
    5: "adversarial",
}
_ADVERSARIAL = 5
_EVIDENCE = re.compile(r"D:?(\d+):(\d+)")


def read_locomo_cases(path: Path) -> Iterator[Conversation]:
    """The conversations of a file, one after the other. Raises BadDataSet or BadLocomo."""
    for item in read_items(path):
        if item.fault is not None:
            raise BadDataSet.at(item.place, item.fault)
        yield _conversation(object_of(item.value, item.place), item.place)


def turn_ids_of(evidence: Iterable[str], known: Mapping[str, str]) -> frozenset[str]:
    """The turns that evidence ids name, however they are written; what does not resolve is dropped.

    Seen in the data: `D8:6; D9:17` is two, `D30:05` is D30:5, `D:11:26` is D11:26, `D` is nothing.
    """
    pieces = (piece for entry in evidence for piece in re.split(r"[;\s]+", entry))
    found = filter(None, map(_EVIDENCE.fullmatch, pieces))
    return frozenset(known) & {f"D{int(each[1])}:{int(each[2])}" for each in found}


def _conversation(sample: JsonObject, place: str) -> Conversation:
    messages = tuple({**record.body, "user_id": NOBODY} for record in locomo_records(sample))
    # Checked by locomo_records; ids of turns are unique in a conversation.
    name: str = sample["sample_id"]
    sessions = {each["id"]: each["session_id"] for each in messages if each["type"] == "turn"}
    cases = tuple(
        _case(
            name, number, object_of(each, f"{place}, question {number}"), sessions, f"{place}, question {number}"
        )
        for number, each in enumerate(list_of(sample, "qa", place), start=1)
    )
    return Conversation(name, (Stage(messages, cases),))


def _case(name: str, number: int, asked: JsonObject, sessions: Mapping[str, str], place: str) -> Case:
    category: object = asked.get("category")
    if not isinstance(category, int) or category not in CATEGORIES:
        raise BadDataSet.at(place, f"`category` is none of {', '.join(map(str, sorted(CATEGORIES)))}")
    evidence = list_of(asked, "evidence", place)
    if not all(isinstance(each, str) for each in evidence):
        raise BadDataSet.at(place, "`evidence` is no list of texts")
    answerable = category != _ADVERSARIAL
    gold = turn_ids_of(map(str, evidence), sessions) if answerable else frozenset[str]()
    return Case(
        case_id=f"{name}/{number}",
        conversation_id=name,
        category=CATEGORIES[category],
        question=text_of(asked, "question", place),
        gold=gold,
        gold_sessions=frozenset(sessions[each] for each in gold),
        answers=(answer_of(asked, "answer", place),) if answerable else (),
        answerable=answerable,
    )
