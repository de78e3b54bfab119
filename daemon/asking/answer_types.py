"""What `query` returns, field by field as it goes over the socket (design 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field

from projections.recall.explaining import AskedWord
from projections.recall.filters import Passed


@dataclass(frozen=True, slots=True)
class Source:
    """A turn that something was read from; `turn_id` is null when the publisher gave none."""

    session_id: str | None
    turn_id: str | None


@dataclass(frozen=True, slots=True)
class PartShown:
    """A part of a turn that is no text."""

    kind: str
    reference: str
    caption: str | None


@dataclass(frozen=True, slots=True)
class MemberShown:
    """A fact inside an opened group; `valid_until` as of a memory."""

    id: str
    text: str
    said_at: str
    valid_until: str | None = None


@dataclass(frozen=True, slots=True)
class MemoryShown:
    """A memory of an answer. `members`: of a group that is opened, the nearest to the question first, as many
    as are shown: its text is theirs if it was put together by rule, or if a time was asked for.

    `valid_until`: when a state ended; null for one that holds still, and for all that is no state.
    """

    id: str
    kind: str
    text: str
    said_at: str
    time_start: str
    time_end: str
    score: float
    similarity: float
    propagation: float
    sessions: list[str]
    sources: list[Source]
    parts: list[PartShown]
    members: list[MemberShown] | None = None
    valid_until: str | None = None


@dataclass(frozen=True, slots=True)
class Watermark:
    """How far the answer reaches: the log's and the Memory's user_seq, work that waits, and seconds behind."""

    user_seq: int
    projected_user_seq: int
    pending: int
    lag_s: float


@dataclass(frozen=True, slots=True)
class CandidateShown:
    """A node that came near the question: its scores, and why it is in the answer or not.

    `bm25_by_word`: the question's own words. `similarity` is s = (fused + smoothing + session) (1 + named): what
    words and vectors say, what its neighbours and its session add, and by what share it grows for whom it names.
    `rank_before`: among the candidates; `rank`: in the answer, null when `dropped`, which is
    `carried` (its turns are in `carried_by`), `rank` (k others are better) or `budget` (max_tokens).
    """

    id: str
    kind: str
    text: str
    said_at: str
    bm25: float
    bm25_by_word: dict[str, float]
    cosine: float | None
    fused: float
    smoothing: float
    session: float
    named: float
    similarity: float
    anchor: bool
    propagation: float
    score: float
    rank_before: int
    rank: int | None
    dropped: str | None
    carried_by: list[str]


@dataclass(frozen=True, slots=True)
class ParametersShown:
    """What the ranking depends on. `embedder` is null when words alone rank."""

    mode: str
    k: int
    candidates_per_answer: int
    anchor_share: float
    time_unit: str
    gamma: float
    smoothing: float
    session_weight: float
    entity_weight: float
    cosine_weight: float
    embedder: str | None


@dataclass(frozen=True, slots=True)
class Explanation:
    """How an answer came about. `timings_ms` is the one thing in an answer that differs when it is asked again."""

    parameters: ParametersShown
    words: list[AskedWord]
    filters: list[Passed]
    candidates: list[CandidateShown]
    left_off: int
    timings_ms: dict[str, float]


@dataclass(frozen=True, slots=True)
class SpaceShown:
    """Memories whose vectors are of one model, and whether the question had a vector to compare with them.

    `model`: as `embedding_model` named it, null when it was not named; `ours`: the daemon's own embedder.
    Memories that were not reached are found by words alone.
    """

    model: str | None
    dimensions: int
    memories: int
    reached: bool
    ours: bool


@dataclass(frozen=True, slots=True)
class Answer:
    """What `query` returns: memories by rank, the same as prompt-ready text in time order, the watermark.

    `confidence` is from 0 to 1, and `insufficient` says that it is too low to answer from. `redacted` counts, for
    an answer as of then, the events of before whose words are gone by now. `spaces` is there when memories came
    with embeddings of another model than the daemon's.
    """

    memories: list[MemoryShown] = field(default_factory=list[MemoryShown])
    context: str = ""
    watermark: Watermark = field(default_factory=lambda: Watermark(0, 0, 0, 0.0))
    confidence: float = 0.0
    insufficient: bool = True
    redacted: int | None = None
    explanation: Explanation | None = None
    spaces: list[SpaceShown] | None = None
