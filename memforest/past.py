"""What happened and what was known before, as frozen records: events of a session, and two positions compared.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class SessionEvent:
    """One event of a session's past; `what` holds its numbers and ids, `words` is kept or erased."""

    user_seq: int
    at: datetime
    type: str
    happened_at: datetime
    words: str
    caused_by: int | None = None
    what: dict[str, object] = field(default_factory=dict[str, object])
    text: str | None = None


@dataclass(frozen=True, slots=True)
class EventPage:
    """A page of events; `next` is the `after` to go on from, `more` says that there is more now."""

    events: tuple[SessionEvent, ...]
    next: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class PastFact:
    """A fact as it was known; `text` is None once its words are gone."""

    id: str
    text: str | None = None
    said_at: datetime | None = None
    time_start: datetime | None = None
    time_end: datetime | None = None


@dataclass(frozen=True, slots=True)
class ChangedFact:
    """A fact known at both positions: how often it was read, and what it said."""

    id: str
    occurrences_before: int
    occurrences: int
    text_before: str | None = None
    text: str | None = None


@dataclass(frozen=True, slots=True)
class StateEnded:
    """A state that holds no more: until when it held, and the id of the fact that ended it."""

    id: str
    text: str | None = None
    until: datetime | None = None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class PastGroup:
    """A group with the ids of the facts it stood for; `text` is None once its words are gone."""

    id: str
    text: str | None = None
    members: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ScopeDifference:
    """Ids of the facts that joined and left what is known of an entity, a scene or the user.

    `name` is what a scene is about; its `scope` is an id.
    """

    scope: str
    kind: str
    joined: tuple[str, ...] = ()
    left: tuple[str, ...] = ()
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """What the memory knew at `b` and not at `a`, and the other way round; both are user_seqs."""

    a: int
    b: int
    came: tuple[PastFact, ...] = ()
    went: tuple[PastFact, ...] = ()
    changed: tuple[ChangedFact, ...] = ()
    scopes: tuple[ScopeDifference, ...] = ()
    groups_made: tuple[PastGroup, ...] = ()
    groups_undone: tuple[PastGroup, ...] = ()
    ended: tuple[StateEnded, ...] = ()
    standing: tuple[PastFact, ...] = ()
    left_off: int = 0
    redacted: int = 0
