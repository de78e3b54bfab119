"""Where memories come from, as frozen records: what `why` answers.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BusMessage:
    """Where on the bus something came from; the bus may keep it no more."""

    stream: str
    seq: int


@dataclass(frozen=True, slots=True)
class TurnBehind:
    """A turn behind a memory; `text` is None and `words` is erased once its words are gone."""

    user_seq: int
    said_at: datetime
    words: str
    session_id: str | None = None
    turn_id: str | None = None
    text: str | None = None
    bus: BusMessage | None = None


@dataclass(frozen=True, slots=True)
class Spent:
    """What calls of a model took; `cost` is in the currency of the daemon's price table."""

    calls: int
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost: float = 0.0


@dataclass(frozen=True, slots=True)
class Reading:
    """How a fact came to be known: `how` is extracted (by `model`), corrected, pinned or imported.

    `request` is the hash of all that decided a model's answer, and `spent` what the whole chunk took, if anything.
    """

    how: str
    user_seq: int
    at: datetime
    words: str
    model: str | None = None
    text: str | None = None
    turns: tuple[TurnBehind, ...] = ()
    request: str | None = None
    spent: Spent | None = None


@dataclass(frozen=True, slots=True)
class FactBehind:
    """A fact behind a memory with all its readings; the first one speaks for it."""

    id: str
    words: str
    said_at: datetime
    time_start: datetime
    time_end: datetime
    text: str | None = None
    pinned: bool = False
    group: str | None = None
    readings: tuple[Reading, ...] = ()


@dataclass(frozen=True, slots=True)
class Writing:
    """When a model wrote the text of a group or a summary; of a group also what it is and costs, as in `Group`."""

    user_seq: int
    at: datetime
    model: str | None = None
    request: str | None = None
    spent: Spent | None = None
    extractive: bool = False
    loss_bound: float | None = None
    trajectory: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """A memory and what it rests on; `left_off` counts facts and turns beyond those shown."""

    id: str
    kind: str
    words: str
    text: str | None = None
    written: Writing | None = None
    scopes: tuple[str, ...] = ()
    facts: tuple[FactBehind, ...] = ()
    turns: tuple[TurnBehind, ...] = ()
    left_off: int = 0
