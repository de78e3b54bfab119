"""A question that a query puts to a model: its prompt, and what reads the answer.

A task is a file beside this one. What it has read is a plain value; what its reader does not take goes back to the
model once, with what is wrong with it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar, cast

from daemon.chat.answers import clean_text
from daemon.chat.fact_answers import AnswerInvalid
from daemon.chat.json_text import read_json
from daemon.chat.prompts import ROOM_MIN, Prompt, Schema, as_json
from daemon.models.query_tasks import QueryTask

T = TypeVar("T")
# Of a text that a model is to search with: longer than a question that a search understands.
SEARCH_CHARS_MAX: Final = 300


@dataclass(frozen=True, slots=True)
class Question(Generic[T]):
    """A prompt, and what makes a value of the answer's text.

    `read` raises `AnswerInvalid` and what `read_json` raises.
    """

    prompt: Prompt
    read: Callable[[str], T]

    @property
    def task(self) -> QueryTask:
        """What is asked for."""
        return QueryTask(self.prompt.task)


def make_prompt(task: QueryTask, instruction: str, asked: dict[str, object], schema: Schema) -> Prompt:
    """The instruction, which never varies, and then what it is about as one JSON object."""
    return Prompt(task, (("system", instruction), ("user", as_json(asked))), ROOM_MIN, schema)


def read_object(text: str, key: str) -> dict[str, object]:
    """The object of an answer that has this key, keys in lower case. Raises what `read_json` raises."""

    def has_key(value: object) -> bool:
        return isinstance(value, dict) and key in map(str.casefold, cast("dict[str, object]", value))

    value = read_json(text, has_key)
    if not has_key(value):
        raise AnswerInvalid(f'it is no object with the key "{key}"')
    return {name.casefold(): each for name, each in cast("dict[str, object]", value).items()}


def read_number(value: object, most: int) -> int:
    """A number from 1 to `most`, also one that is written in a string. Raises `AnswerInvalid`."""
    if isinstance(value, str) and value.strip().isdecimal():
        value = int(value.strip()[:9])
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        raise AnswerInvalid("an n is no number")
    if not 1 <= value <= most:
        raise AnswerInvalid(f"it names an n that is not there; they go from 1 to {most}")
    return value


def read_search_text(value: object) -> str:
    """One line to search with, cut; "" for what is no text."""
    return " ".join(clean_text(value).split())[:SEARCH_CHARS_MAX] if isinstance(value, str) else ""
