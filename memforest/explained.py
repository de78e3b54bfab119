"""How an answer came about, as frozen records: what `query` says with `explain`.

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime


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

    `similarity` is (fused + smoothing + session) (1 + named): what words and vectors say, what its neighbours and
    its session add, and by what share it grows for whom it names; `score` is that with the `propagation` from the
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
class Explanation:
    """The words of the question, what each filter left, the candidates by rank, and how long each step took."""

    parameters: Parameters
    words: tuple[AskedWord, ...] = ()
    filters: tuple[FilterLeft, ...] = ()
    candidates: tuple[Candidate, ...] = ()
    left_off: int = 0
    timings_ms: dict[str, float] = field(default_factory=dict[str, float])
