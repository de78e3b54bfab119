"""Where memories come from, as frozen records: what `why` answers.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class BusMessage:
    """Where on the bus something came from; the bus may keep it no more. Other streams have no `subject`."""

    stream: str
    seq: int
    subject: str | None = None


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
class Call:
    """A model's answer, recorded at `user_seq`: which model, to which wording of the question, what it took.

    `request` is the hash of all that decided the answer, and `prompt` that of the wording alone.
    """

    user_seq: int
    at: datetime
    model: str | None = None
    request: str | None = None
    spent: Spent | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class FactNamed:
    """Another fact that is spoken of."""

    id: str
    words: str
    text: str | None = None


@dataclass(frozen=True, slots=True)
class Joined:
    """How a reading came to its fact: it founded it, says the same, is near, was judged the same, or by a bridge.

    `like` is the user_seq of the reading it is most like, at `cosine`; from `threshold` on two may be one.
    `took_up` is the fact that it was part of before, and `call` the model's word on it.
    """

    rule: str
    user_seq: int | None = None
    at: datetime | None = None
    like: int | None = None
    cosine: float | None = None
    threshold: float | None = None
    took_up: str | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class Reading:
    """How a fact came to be known: `how` is extracted (by `model`), corrected, pinned or imported.

    `request` is the hash of all that decided a model's answer, `prompt` that of the question's wording, and
    `spent` what the whole chunk took, if anything. A correction `replaces` a fact, and says what it `was`.
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
    prompt: str | None = None
    chunk: str | None = None
    joined: Joined | None = None
    replaces: str | None = None
    was: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictTold:
    """What a model said of a fact and another one; `later`: this one was said later."""

    verdict: str
    later: bool = False
    other: FactNamed | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class StateTold:
    """A fact that tells a state, until when it held (None: still), and the states before and after it."""

    entity: str
    attribute: str
    valid_from: datetime
    valid_until: datetime | None = None
    predecessor: FactNamed | None = None
    successor: FactNamed | None = None
    ended_by: FactNamed | None = None
    user_seq: int | None = None
    at: datetime | None = None


@dataclass(frozen=True, slots=True)
class FactBehind:
    """A fact behind a memory with its readings, all but `left_off`; the first one speaks for it."""

    id: str
    words: str
    said_at: datetime
    time_start: datetime
    time_end: datetime
    text: str | None = None
    pinned: bool = False
    group: str | None = None
    readings: tuple[Reading, ...] = ()
    left_off: int = 0
    state: StateTold | None = None
    judged: tuple[VerdictTold, ...] = ()


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
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """The user's own policy when a group was made; `values` has what was not as configured."""

    user_seq: int
    values: dict[str, int | bool | float | str] = field(default_factory=dict[str, int | bool | float | str])


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """The group that stands for a fact, or that was asked about."""

    id: str
    unit: str
    members: int
    written: Writing
    policy: PolicyInForce | None = None


@dataclass(frozen=True, slots=True)
class NodeAbove:
    """A node on the way from a memory up to the root of a tree; `written` is None for one that no model wrote."""

    id: str
    level: int
    state: str
    leaves: int
    time_start: datetime
    time_end: datetime
    written: Writing | None = None


@dataclass(frozen=True, slots=True)
class TreeHolding:
    """A tree that holds a memory, with the nodes above it, the root last."""

    id: str
    kind: str
    scope: str
    leaves: int
    way: tuple[NodeAbove, ...] = ()


@dataclass(frozen=True, slots=True)
class Why:
    """A memory and what it rests on, at a user_seq.

    `left_off` counts facts, turns or readings behind those shown, and `next` is where to go on. `redacted` counts
    the events among those shown whose words are gone.
    """

    id: str
    kind: str
    words: str
    text: str | None = None
    written: Writing | None = None
    scopes: tuple[str, ...] = ()
    facts: tuple[FactBehind, ...] = ()
    turns: tuple[TurnBehind, ...] = ()
    left_off: int = 0
    next: int | None = None
    user_seq: int = 0
    group: GroupBehind | None = None
    trees: tuple[TreeHolding, ...] = ()
    trees_left_off: int = 0
    redacted: int = 0
