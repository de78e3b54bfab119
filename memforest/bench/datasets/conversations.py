"""What every data set is read into: conversations, each with the messages that make it and the cases asked of
it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from memforest.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memforest.bench.records import Case
    from memforest.wire import JsonObject

# What stands in a message where its user will be, who is another one in each run.
NOBODY = "nobody"


class BadDataSet(InvalidInput):
    """The file is not this data set as it is published."""

    @classmethod
    def at(cls, place: str, reason: str) -> BadDataSet:
        """`place` is a row or an item and a field, counted from 1; `reason` quotes nothing of it."""
        return cls(f"{place}: {reason}.")


@dataclass(frozen=True, slots=True)
class Stage:
    """Messages (native ones, of user NOBODY, the last of which closes a session), and what is asked after them."""

    messages: tuple[JsonObject, ...]
    cases: tuple[Case, ...]


@dataclass(frozen=True, slots=True)
class Conversation:
    """One memory of the benchmark. Most have one stage; of several each goes on where the one before ended."""

    conversation_id: str
    stages: tuple[Stage, ...]

    @property
    def cases(self) -> tuple[Case, ...]:
        """All that is asked of it."""
        return tuple(case for stage in self.stages for case in stage.cases)


def text_of(row: JsonObject, field: str, place: str) -> str:
    """A field that has to be a text and not empty. Raises BadDataSet."""
    value: object = row.get(field)
    if not isinstance(value, str) or not value.strip():
        raise BadDataSet.at(place, f"`{field}` is missing or no text")
    return value


def answer_of(row: JsonObject, field: str, place: str) -> str:
    """A field that has to be a text or a number (both data sets of free answers have some). Raises BadDataSet."""
    value: object = row.get(field)
    if isinstance(value, bool) or not isinstance(value, str | int | float) or not str(value).strip():
        raise BadDataSet.at(place, f"`{field}` is missing, or neither text nor number")
    return str(value)


def list_of(row: JsonObject, field: str, place: str) -> Sequence[object]:
    """A field that has to be a list. Raises BadDataSet."""
    value: object = row.get(field)
    if not isinstance(value, list):
        raise BadDataSet.at(place, f"`{field}` is missing or no list")
    return cast("list[object]", value)


def object_of(value: object, place: str) -> JsonObject:
    """A value that has to be a JSON object. Raises BadDataSet."""
    if not isinstance(value, dict):
        raise BadDataSet.at(place, "not a JSON object")
    return cast("JsonObject", value)
