"""PLAN: what to look for in each tree that was recalled, and what time a question is about."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from daemon.chat.answers import clean_text
from daemon.chat.asking.question import Question, make_prompt, read_number, read_object, read_search_text
from daemon.chat.asking.ranking import cut
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import IS_DATA, Schema, day_of, object_of, one_line
from daemon.models.query_tasks import QueryTask
from projections.ports import MemberText

# How a question may stand to time, in the words of `TimeKind`; "none" for most.
TIME_KINDS: Final = (
    "none",
    "before",
    "after",
    "since",
    "between",
    "at",
    "first",
    "last",
    "latest",
    "predecessor",
    "successor",
    "how_often",
    "how_long",
    "when",
)
ANCHOR_CHARS_MAX: Final = 120

_PLAN: Final = f"""\
You plan how to search a memory for what answers a question. The user message is one JSON object: "question", \
the day it is "asked", and "roots", parts of the memory: each with its number n, what it is "about", its time, \
and the beginning of its summary. {IS_DATA}
queries: for each part that may help, its n and one short text that says what to look for there: with the names, \
things and days that are to be found, in the language of the part. A question that needs several things asks \
each part for its own. Leave out parts that cannot help.
time: how the question stands to time. kind: none; before, after or since something; between two days; at a \
time; first, last or latest of its kind; predecessor or successor (what was just before or after a state, such \
as the home before the last one); how_often; how_long; when. anchor: that something, word for word from the \
question, else "". from, to: the days as ISO dates, counted from the day it is asked, else "".
Answer with JSON only:
{{"queries":[{{"n":1,"query":""}}],"time":{{"kind":"none","anchor":"","from":"","to":""}}}}"""

_TEXT: Final[dict[str, object]] = {"type": "string"}
_SCHEMA: Final = Schema(
    "plan",
    object_of(
        {
            "queries": {"type": "array", "items": object_of({"n": {"type": "integer"}, "query": _TEXT})},
            "time": object_of(
                {
                    "kind": {"type": "string", "enum": list(TIME_KINDS)},
                    "anchor": _TEXT,
                    "from": _TEXT,
                    "to": _TEXT,
                }
            ),
        }
    ),
)


@dataclass(frozen=True, slots=True)
class RootText:
    """The root of a tree: what the tree is about, and its text."""

    about: str
    root: MemberText


@dataclass(frozen=True, slots=True)
class PlannedTime:
    """How a question stands to time, by the model: a kind of `TIME_KINDS`, words of the question, ISO dates or
    ""."""

    kind: str = "none"
    anchor: str = ""
    start: str = ""
    end: str = ""


@dataclass(frozen=True, slots=True)
class Plan:
    """What to look for in trees by their place; the others have the question itself."""

    queries: dict[int, str]
    time: PlannedTime


def planning_question(question: str, asked: str, roots: Sequence[RootText | None]) -> Question[Plan]:
    """A text to look for in each of these trees (None: not this one), and the time. `asked`: the day of the
    question."""
    shown = [
        {"n": n, "about": one_line(each.about), "time": day_of(each.root), "text": cut(each.root.text)}
        for n, each in enumerate(roots, start=1)
        if each is not None
    ]
    content: dict[str, object] = {"question": question, "asked": asked, "roots": shown}
    read = partial(read_plan, count=len(roots), question=question)
    return Question(make_prompt(QueryTask.PLAN, _PLAN, content, _SCHEMA), read)


def read_plan(text: str, count: int, question: str) -> Plan:
    """The plan for so many trees. Raises `AnswerInvalid` and as `read_json`."""
    answer = read_object(text, "queries")
    listed = answer["queries"]
    if not isinstance(listed, list):
        raise AnswerInvalid('"queries" is no list')
    queries: dict[int, str] = {}
    for each in cast("list[object]", listed):
        if not isinstance(each, dict):
            raise AnswerInvalid('an entry of "queries" is no object')
        entry = cast("dict[str, object]", each)
        at = read_number(entry.get("n"), count) - 1
        query = read_search_text(entry.get("query"))
        if query:
            # Several for a tree are looked for together.
            queries[at] = read_search_text(f"{queries[at]} {query}") if at in queries else query
    return Plan(queries, _read_time(answer.get("time"), question))


def _read_time(value: object, question: str) -> PlannedTime:
    """What is no time of this question is none: a search without it finds what there is."""
    if not isinstance(value, dict):
        return PlannedTime()
    raw = cast("dict[str, object]", value)
    kind, anchor, start, end = (
        clean_text(each).strip() if isinstance(each, str) else ""
        for each in (raw.get("kind"), raw.get("anchor"), raw.get("from"), raw.get("to"))
    )
    if kind.casefold() not in TIME_KINDS:
        return PlannedTime()
    said = " ".join(question.casefold().split())
    if " ".join(anchor.casefold().split()) not in said:
        anchor = ""
    return PlannedTime(kind.casefold(), anchor[:ANCHOR_CHARS_MAX], start[:10], end[:10])
