"""RANK: which texts of many trees lead to the answer. One call has all that a level of the browse looks at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final, cast

from daemon.chat.asking.question import Question, make_prompt, read_number, read_object
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.prompts import IS_DATA, Schema, day_of, object_of, one_line
from daemon.models.query_tasks import QueryTask
from projections.ports import MemberText

# Of a text as much as tells what it is about: two or three sentences of a summary, most of a turn.
TEXT_CHARS_MAX: Final = 240

_RANK: Final = f"""\
You search a memory for what answers a question. The user message is one JSON object: "question", the day it is \
"asked", and "trees", parts of the memory: each with what it is "about", a "query" if more is to be looked for \
in it than the question, and "texts", the beginnings of summaries or of what was said, each with its number n and \
the time it is about. {IS_DATA}
Choose the texts that say the answer, or under which it can be found, or that are needed for it beside others. \
Mind the time: for what was before or after something, the texts of then, and that something itself. Choose at \
most as many as "most" says, the best first, of all trees together; a text that has nothing to do with it is \
left out.
Answer with JSON only, with the n of those texts:
{{"best":[2,7,1]}}"""

_SCHEMA: Final = Schema("ranking", object_of({"best": {"type": "array", "items": {"type": "integer"}}}))


@dataclass(frozen=True, slots=True)
class TreeTexts:
    """What a level of one tree says: what the tree is about, what to look for in it ("": the question), and the
    texts."""

    about: str
    query: str
    texts: tuple[MemberText, ...]


def ranking_question(
    question: str, asked: str, trees: Sequence[TreeTexts], most: int
) -> Question[tuple[int, ...]]:
    """Which texts lead to the answer, the best first, at most `most`: their places, all trees counted through.

    `asked` is the day of the question ("2024-07-01"). No text at all is an answer, too.
    """
    shown: list[dict[str, object]] = []
    count = 0
    for tree in trees:
        texts: list[dict[str, object]] = []
        for text in tree.texts:
            count += 1
            texts.append({"n": count, "time": day_of(text), "text": cut(text.text)})
        # The question itself may be a page long, and there are twenty trees.
        query = {"query": tree.query} if tree.query else {}
        shown.append({"about": one_line(tree.about), **query, "texts": texts})
    content: dict[str, object] = {"question": question, "asked": asked, "most": most, "trees": shown}
    return Question(
        make_prompt(QueryTask.RANK, _RANK, content, _SCHEMA), partial(read_ranking, count=count, most=most)
    )


def read_ranking(text: str, count: int, most: int) -> tuple[int, ...]:
    """The places (from 0) that an answer names of so many, each once. Raises `AnswerInvalid` and
    as `read_json`."""
    listed = read_object(text, "best")["best"]
    if not isinstance(listed, list):
        raise AnswerInvalid('"best" is no list')
    numbers = [read_number(_number_in(each), count) for each in cast("list[object]", listed)]
    return tuple(number - 1 for number in dict.fromkeys(numbers))[:most]


def cut(text: str, characters: int = TEXT_CHARS_MAX) -> str:
    """The beginning of a text, with a sign that it goes on."""
    return text if len(text) <= characters else text[: characters - 1] + "…"


def _number_in(value: object) -> object:
    """Small models give an object for each number."""
    return cast("dict[str, object]", value).get("n") if isinstance(value, dict) else value
