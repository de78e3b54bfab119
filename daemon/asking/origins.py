"""What `why` returns, field by field as it goes over the socket."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.asking.spent import SpentShown


@dataclass(frozen=True, slots=True)
class BusMessageShown:
    """Where on the bus something came from; the bus may keep it no more."""

    stream: str
    seq: int


@dataclass(frozen=True, slots=True)
class TurnShown:
    """A turn behind a memory; its text is null once its words are erased. `bus` is null when it came otherwise."""

    user_seq: int
    session_id: str | None
    turn_id: str | None
    said_at: str
    words: str
    text: str | None
    bus: BusMessageShown | None


@dataclass(frozen=True, slots=True)
class ReadingShown:
    """How a fact came to be known: a model read these turns at `at`, or a person said so.

    `how` is extracted, corrected, pinned or imported; only what was extracted has a model. `request` is the hash
    of all that decided its answer, and `spent` what the whole chunk took; null when there is none.
    """

    how: str
    model: str | None
    user_seq: int
    at: str
    words: str
    text: str | None
    turns: list[TurnShown]
    request: str | None = None
    spent: SpentShown | None = None


@dataclass(frozen=True, slots=True)
class FactBehind:
    """A fact with all its readings; the first one speaks for it. `group` is the id of the one that holds it."""

    id: str
    words: str
    text: str | None
    said_at: str
    time_start: str
    time_end: str
    pinned: bool
    group: str | None
    readings: list[ReadingShown]


@dataclass(frozen=True, slots=True)
class Writing:
    """When a model wrote the text of a group or a summary; `request` and `spent` are as of a reading.

    Of a group: whether its text was put together of its members' own (`extractive`), the most that its merges cost
    together in similarity to a query, and whether it is a `trajectory`: values of one state, one after the other.
    """

    model: str | None
    user_seq: int
    at: str
    request: str | None = None
    spent: SpentShown | None = None
    extractive: bool = False
    loss_bound: float | None = None
    trajectory: bool = False


@dataclass(frozen=True, slots=True)
class Why:
    """A memory and what it rests on.

    `written` is null for what no model wrote: a chunk is its turns, a fact has its readings, and a short node of
    a tree is its children put together. `scopes` says in which trees a summary stands. `left_off` counts members
    of a group and leaves of a tree beyond those shown.
    """

    id: str
    kind: str
    words: str
    text: str | None
    written: Writing | None
    scopes: list[str]
    facts: list[FactBehind]
    turns: list[TurnShown]
    left_off: int
