"""What an answer of mode `deep` says of the calls it took, field by field as it goes over the socket."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum


class FellBack(StrEnum):
    """Why vectors and words went on where a model should have."""

    MODEL_AWAY = "model_away"  # it does not answer for now, whatever it is asked
    MODEL_FAILED = "model_failed"  # a call came to nothing though others are answered
    ANSWER_UNUSABLE = "answer_unusable"  # also after it was asked again
    BUDGET = "budget"  # the tokens of today are used up
    FORGOTTEN = "forgotten"  # something that it was shown was forgotten or taken back meanwhile


@dataclass(frozen=True, slots=True)
class TokensShown:
    """Tokens that calls took, as the server counts them."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class SubQuery:
    """What the planner would look for in a tree."""

    tree: str
    query: str


@dataclass(frozen=True, slots=True)
class RoundShown:
    """What was asked at the same time: the `tasks` (plan, rank, check) of so many `calls`, repairs among them."""

    tasks: list[str]
    calls: int


@dataclass(frozen=True, slots=True)
class DeepShown:
    """How a model was asked. `time`: how the planner says that the question stands to time, null without one.

    `enough`: whether what was found first is enough for an answer, null when that was not checked; if not,
    `searched_again` is what was looked for then.
    """

    sub_queries: list[SubQuery] = field(default_factory=list[SubQuery])
    time: str | None = None
    rounds: list[RoundShown] = field(default_factory=list[RoundShown])
    enough: bool | None = None
    searched_again: str | None = None
