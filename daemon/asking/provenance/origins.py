"""What `why` returns, field by field as it goes over the socket."""

from __future__ import annotations

from dataclasses import dataclass, field

from daemon.asking.spent import SpentShown
from daemon.asking.words import Numbers


@dataclass(frozen=True, slots=True)
class BusMessageShown:
    """Where on the bus something came from; the bus may keep it no more.

    `subject` is null for streams whose subjects are not ours, and once the session's name is erased.
    """

    stream: str
    seq: int
    subject: str | None = None


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
class Call:
    """A model's answer: which model, what was asked, when it was recorded, what it took.

    `request` is the hash of all that decided the answer and `prompt` of the wording of the question alone; both
    are null of older answers, `prompt` also of rules, and `spent` when nothing was.
    """

    model: str | None
    user_seq: int
    at: str
    request: str | None = None
    spent: SpentShown | None = None
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class FactNamed:
    """Another fact that is spoken of, by its id, with its text."""

    id: str
    words: str
    text: str | None


@dataclass(frozen=True, slots=True)
class Joined:
    """How a reading came to its fact, as it was recorded at `user_seq` (null when that is not found any more).

    `rule`: it `founded` the fact; it says the `same` in the same words; it is `near`, the same words in another
    order or form; it is `judged` to be the same by a model (`call`); or it came with another fact, `took_up`, that
    turned out to be this one (`bridge`). `like` is the user_seq of the reading it is most like, `cosine` how near
    the two are, null unless both vectors are at hand, and `threshold` from where on two may be one.
    """

    rule: str
    user_seq: int | None
    at: str | None
    like: int | None = None
    cosine: float | None = None
    threshold: float | None = None
    took_up: str | None = None
    call: Call | None = None


@dataclass(frozen=True, slots=True)
class ReadingShown:
    """How a fact came to be known: a model read these turns at `at`, or a person said so.

    `how` is extracted, corrected, pinned or imported; only what was extracted has a model, and a `chunk`, the id
    of what was read. The fields of a call are those of `Call`; `spent` is what the whole chunk took. Of a
    correction `replaces` is the id of the fact that is not so, and `was` what it said.
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
    prompt: str | None = None
    chunk: str | None = None
    joined: Joined | None = None
    replaces: str | None = None
    was: str | None = None


@dataclass(frozen=True, slots=True)
class VerdictTold:
    """What a model said of a fact and another one: same, supersedes, contradicts or different.

    `later`: this one was said later, and the verdict is about it; otherwise it is about the other one.
    """

    verdict: str
    later: bool
    other: FactNamed | None
    call: Call | None


@dataclass(frozen=True, slots=True)
class StateTold:
    """A fact that tells a state: of whom and what, from when until when (null: still).

    It came in place of `predecessor`, and `successor` in its own; `ended_by` told its end, which was recorded at
    `user_seq`. All three are null when there is none.
    """

    entity: str
    attribute: str
    valid_from: str
    valid_until: str | None
    predecessor: FactNamed | None = None
    successor: FactNamed | None = None
    ended_by: FactNamed | None = None
    user_seq: int | None = None
    at: str | None = None


@dataclass(frozen=True, slots=True)
class FactBehind:
    """A fact with its readings; the first one speaks for it. `group` is the id of the one that holds it.

    `left_off` counts the readings that are not shown; ask `why` for the fact itself, page by page.
    """

    id: str
    words: str
    text: str | None
    said_at: str
    time_start: str
    time_end: str
    pinned: bool
    group: str | None
    readings: list[ReadingShown]
    left_off: int = 0
    state: StateTold | None = None
    judged: list[VerdictTold] = field(default_factory=list[VerdictTold])


@dataclass(frozen=True, slots=True)
class Writing:
    """When a model wrote the text of a group or a summary; the fields of a call are those of `Call`.

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
    prompt: str | None = None


@dataclass(frozen=True, slots=True)
class PolicyInForce:
    """The user's own policy when a group was made: since which user_seq, and where it is not as configured."""

    user_seq: int
    values: Numbers


@dataclass(frozen=True, slots=True)
class GroupBehind:
    """The group that stands for a fact, or that is asked about: its unit, how many facts it holds, who wrote it.

    `policy` is null where the configuration counted.
    """

    id: str
    unit: str
    members: int
    written: Writing
    policy: PolicyInForce | None = None


@dataclass(frozen=True, slots=True)
class NodeAbove:
    """A node on the way from a memory up to the root. `written` is null for one that no model wrote."""

    id: str
    level: int
    state: str
    leaves: int
    time_start: str
    time_end: str
    written: Writing | None = None


@dataclass(frozen=True, slots=True)
class TreeHolding:
    """A tree that holds a memory, with the nodes above it, the root last."""

    id: str
    kind: str
    scope: str
    leaves: int
    way: list[NodeAbove]


@dataclass(frozen=True, slots=True)
class Why:
    """A memory and what it rests on, at a user_seq.

    `written` is null for what no model wrote: a chunk is its turns, a fact has its readings, and a short node of
    a tree is its children put together. `scopes` says in which trees a summary stands, `trees` of a fact, chunk or
    summary the way up in each. `left_off` counts members of a group, leaves of a tree or readings of a fact that
    come after those shown; `next` is the `after` to go on from, null at the end. `redacted` counts the events
    among those shown whose words are erased.
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
    next: int | None = None
    user_seq: int = 0
    group: GroupBehind | None = None
    trees: list[TreeHolding] = field(default_factory=list[TreeHolding])
    trees_left_off: int = 0
    redacted: int = 0
