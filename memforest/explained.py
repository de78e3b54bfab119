"""How an answer came about, as frozen records: what `query` says with `explain`.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime

from memforest.origins import Spent


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """Which model wrote an answer in words, to which wording of the question, and what it took."""

    model: str
    prompt: str
    spent: Spent


@dataclass(frozen=True, slots=True)
class TokensTaken:
    """Tokens that calls of a model took."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class SubQuery:
    """What a model would look for in a tree."""

    tree: str
    query: str


@dataclass(frozen=True, slots=True)
class Round:
    """What a model was asked at the same time: plan, rank, check."""

    tasks: tuple[str, ...]
    calls: int


@dataclass(frozen=True, slots=True)
class Deep:
    """How a model was asked in mode "deep".

    `time`: how it says that the question stands to time. `enough`: whether what was found first is enough, None
    when that was not checked; `searched_again`: what was looked for then.
    """

    sub_queries: tuple[SubQuery, ...] = ()
    time: str | None = None
    rounds: tuple[Round, ...] = ()
    enough: bool | None = None
    searched_again: str | None = None


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of the question: in how many nodes it stands, and how much that makes it count."""

    word: str
    nodes: int
    weight: float


@dataclass(frozen=True, slots=True)
class FilterLeft:
    """How many nodes were left after a filter; the one called `nodes` is how many there were."""

    name: str
    nodes: int


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that came near the question: its scores, and why it is in the answer or not.

    `similarity` is (fused + smoothing + session) (1 + named) + time: what words and vectors say, what its
    neighbours and its session add, by what share it grows for whom it names, and what the time in the question
    adds; `score` is that with the `propagation` from the
    anchors. `rank` is None when `dropped`: `carried` (by those in `carried_by`),
    `rank` (others are better) or `budget` (max_tokens).
    """

    id: str
    kind: str
    text: str
    bm25: float
    fused: float
    smoothing: float
    similarity: float
    propagation: float
    score: float
    rank_before: int
    rank: int | None = None
    dropped: str | None = None
    anchor: bool = False
    session: float = 0.0
    named: float = 0.0
    cosine: float | None = None
    said_at: datetime | None = None
    bm25_by_word: dict[str, float] = field(default_factory=dict[str, float])
    carried_by: tuple[str, ...] = ()
    time: float = 0.0
    chosen: float = 0.0


@dataclass(frozen=True, slots=True)
class TimeAsked:
    """What was read of time in the question: its kind (before, when, latest ...) and days (`end` is not in them).

    `anchor`: whether it names something else that happened; `order`: which end of time it asks for; `state`: the
    kind of state it asks for ("home"); `told`: how many facts tell that, which stand first.
    """

    kind: str
    start: datetime | None = None
    end: datetime | None = None
    anchor: bool = False
    order: str | None = None
    state: str | None = None
    told: int = 0


@dataclass(frozen=True, slots=True)
class Parameters:
    """What the ranking depended on. `embedder` is None when words alone rank."""

    mode: str
    k: int
    candidates_per_answer: int
    anchor_share: float
    time_unit: str
    gamma: float
    smoothing: float
    cosine_weight: float
    session_weight: float = 0.0
    entity_weight: float = 0.0
    embedder: str | None = None


@dataclass(frozen=True, slots=True)
class TreeRecalled:
    """A tree that the question recalled, and how near its root and the best fact in it are, on one scale.

    `node` is the interval at which a large tree was entered, None for its root; `leaves` were reached in it.
    """

    id: str
    kind: str
    scope: str
    score: float
    by_root: float | None = None
    by_fact: float | None = None
    node: str | None = None
    leaves: int = 0


@dataclass(frozen=True, slots=True)
class Browsed:
    """How trees were gone down: by "vectors" or "words", over so many levels, to so many memories.

    `loose` of these stand in no tree.
    """

    by: str
    trees: tuple[TreeRecalled, ...] = ()
    levels: int = 0
    leaves: int = 0
    loose: int = 0


@dataclass(frozen=True, slots=True)
class Explanation:
    """The words of the question, what each filter left, the candidates by rank, and how long each step took.

    `browsed` in modes that recall trees, `deep` in mode "deep", `time` where the question asks of time.
    """

    parameters: Parameters
    words: tuple[AskedWord, ...] = ()
    filters: tuple[FilterLeft, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    left_off: int = 0
    timings_ms: dict[str, float] = field(default_factory=dict[str, float])
    browsed: Browsed | None = None
    deep: Deep | None = None
    time: TimeAsked | None = None
