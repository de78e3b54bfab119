"""Facts as frozen records: what is known of a user, how long it holds, and what contradicts it.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memforest.types import Source


@dataclass(frozen=True, slots=True)
class Fact:
    """One canonical fact; `group` is the merged node that holds it, if any.

    It holds from `valid_from` until `valid_until`, None for a state that holds still; `predecessor` and
    `successor` are ids of the states before and after it, `entity` and `attribute` what it is a state of.
    """

    id: str
    text: str
    said_at: datetime | None = None
    time_start: datetime | None = None
    time_end: datetime | None = None
    role: str | None = None
    entities: tuple[str, ...] = ()
    sessions: tuple[str, ...] = ()
    sources: tuple[Source, ...] = ()
    group: str | None = None
    pinned: bool = False
    valid_from: datetime | None = None
    valid_until: datetime | None = None
    predecessor: str | None = None
    successor: str | None = None
    entity: str | None = None
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class FactConflict:
    """Two facts, by their ids, that contradict each other, and why: state, number, negation or judged.

    `entity` and `attribute`: of which one and the other give two values for one time.
    """

    one: str
    other: str
    reason: str
    entity: str | None = None
    attribute: str | None = None


@dataclass(frozen=True, slots=True)
class FactSettled:
    """A fact as a correction, a retraction or a pin left it; None when it is known no more."""

    replaces: str
    fact: Fact | None = None


@dataclass(frozen=True, slots=True)
class FactPage:
    """A page of facts; `next` is the `after` of the next page, None on the last one.

    `conflicts`, if they were asked for, are between the facts of the page.
    """

    facts: tuple[Fact, ...]
    next: str | None = None
    conflicts: tuple[FactConflict, ...] = ()
