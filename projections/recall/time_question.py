"""What a question asks of time, as recall understands it; read elsewhere, by rule or by a model."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from projections.recall.filters import Span


class TimeKind(StrEnum):
    """What a question asks of time."""

    BEFORE = "before"
    AFTER = "after"
    SINCE = "since"
    BETWEEN = "between"
    AT = "at"
    FIRST = "first"
    LAST = "last"
    LATEST = "latest"
    PREDECESSOR = "predecessor"
    SUCCESSOR = "successor"
    HOW_OFTEN = "how_often"
    HOW_LONG = "how_long"
    WHEN = "when"


class Order(StrEnum):
    """Which end of time a question asks for first."""

    EARLIEST_FIRST = "earliest_first"
    LATEST_FIRST = "latest_first"


# What these ask for lies on one side of what they name.
BACKWARDS: Final = frozenset((TimeKind.BEFORE, TimeKind.PREDECESSOR))
FORWARDS: Final = frozenset((TimeKind.AFTER, TimeKind.SINCE, TimeKind.SUCCESSOR))


@dataclass(frozen=True, slots=True)
class TimeQuestion:
    """What a question asks of time.

    `span`: the days it names, of "before May" those of May. `anchor`: the words of it that name something else
    that happened ("moving to Miami"). `order`: which end of time is wanted, None where the question does not say
    so itself. `rest`: the question without its time, in lower case, as the anchor may be. `attribute`: the state
    that is asked for, by its canonical name ("home"), None for no state or an unknown one. `of_self`: whether
    whoever asks speaks of themselves.
    """

    kind: TimeKind
    span: Span | None = None
    anchor: str | None = None
    order: Order | None = None
    rest: str = ""
    attribute: str | None = None
    of_self: bool = False
