"""What a story of the cases about time is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Said:
    """A turn in a session of its own, on a day; without a `name` its speaker is just the user."""

    day: str
    text: str
    name: str | None = "Bob"


@dataclass(frozen=True, slots=True)
class Case:
    """A question, a word that the first memory has, words that it has not, and the day of asking."""

    question: str
    first: str
    never: tuple[str, ...] = ()
    on: str | None = None


@dataclass(frozen=True, slots=True)
class Story:
    """What was said, in the order in which it came, and what is asked of it."""

    name: str
    said: tuple[Said, ...]
    cases: tuple[Case, ...]
