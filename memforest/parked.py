"""Work that the daemon gave up, as frozen records: what `parked.*` answers.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memforest.origins import Spent


@dataclass(frozen=True, slots=True)
class ParkedTurn:
    """A turn that parked work was to be made of; its publisher may have given it no id."""

    session_id: str | None = None
    turn_id: str | None = None


@dataclass(frozen=True, slots=True)
class ParkedWork:
    """Work that stands parked: `task` is extract, judge, summarise or merge, `id` is the user_seq of its parking.

    `session_id` is None when its words come from several; `spent` is what its tries took.
    """

    id: int
    task: str
    reason: str
    at: datetime
    user_id: str | None = None
    session_id: str | None = None
    turns: tuple[ParkedTurn, ...] = ()
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class ParkedPage:
    """Parked work, newest first; `next` is the `after` of the next page, None on the last one."""

    parked: tuple[ParkedWork, ...]
    next: int | None = None


@dataclass(frozen=True, slots=True)
class ToAsk:
    """One text that the model was to be given: a turn, or what was made of turns; None once it is gone."""

    user_seq: int
    type: str
    said_at: datetime
    source: ParkedTurn
    text: str | None = None


@dataclass(frozen=True, slots=True)
class ParkedContent:
    """Parked work with what the model would be asked about; `left_off` texts are not shown."""

    parked: ParkedWork
    asked: tuple[ToAsk, ...] = ()
    left_off: int = 0


@dataclass(frozen=True, slots=True)
class Resumed:
    """How many pieces of work wait for the model again."""

    resumed: int
