"""What `query` returns, field by field as it goes over the socket (design 4.2)."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum

from daemon.asking.auto_mode import WhyMode
from daemon.asking.deep.types import DeepShown, FellBack, TokensShown
from daemon.asking.modes import Mode
from daemon.asking.spent import SpentShown
from daemon.models.query_tasks import Cap
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

    `bm25_by_word`: the question's own words. `similarity` is s = (fused + smoothing + session) (1 + named) +
    time + chosen: what words and vectors say, what its neighbours and its session add, by what share it grows for
    whom it names, what the time in the question adds, and what a model's choice does. `rank_before`: among the
    candidates; `rank`: in the answer, null when `dropped`, which is `carried` (its turns are in `carried_by`),
    `rank` (k others are better) or `budget` (max_tokens).
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
    time: float = 0.0
    chosen: float = 0.0


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
class TreeRecalled:
    """A tree that the question recalled, and how near its root and the best fact in it are, on one scale.

    `node`: the interval at which a large tree was entered, null for its root. `leaves`: how many were reached.
    """

    id: str
    kind: str
    scope: str
    score: float
    by_root: float | None
    by_fact: float | None
    node: str | None
    leaves: int


@dataclass(frozen=True, slots=True)
class Browsed:
    """The way down the trees: best tree first, levels that were ranked, and the memories it led to.

    `by`: "vectors", or "words" where a node counts as its best leaf. `loose` of the memories stand in no tree.
    """

    by: str
    trees: list[TreeRecalled]
    levels: int
    leaves: int
    loose: int


@dataclass(frozen=True, slots=True)
class TimeShown:
    """What was read of time in the question. `kind`: before, when ... `start` and `end` (not in it): the days.

    `anchor`: whether it names something else that happened; `order`: which end of time it asks for; `state`: the
    kind of state ("home"); `told`: how many facts tell the states that it asks for, which stand first.
    """

    kind: str
    start: str | None
    end: str | None
    anchor: bool
    order: str | None
    state: str | None
    told: int


@dataclass(frozen=True, slots=True)
class Explanation:
    """How an answer came about. `timings_ms` is the one thing in an answer that differs when it is asked again."""

    parameters: ParametersShown
    words: list[AskedWord]
    filters: list[Passed]
    candidates: list[CandidateShown]
    left_off: int
    timings_ms: dict[str, float]
    browsed: Browsed | None = None
    time: TimeShown | None = None
    deep: DeepShown | None = None


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


class Unanswered(StrEnum):
    """Why a question that should have been answered was not."""

    MODEL_AWAY = "model_away"  # it does not answer for now, whatever it is asked
    MODEL_FAILED = "model_failed"  # its answer cannot be used, also after it was asked again
    BUDGET = "budget"  # the tokens of today are used up
    CAPPED = "capped"  # the caller's calls_max or model_tokens_max left no room for the question
    TIMEOUT = "timeout"
    FORGOTTEN = "forgotten"  # something that it was shown was forgotten or taken back meanwhile


@dataclass(frozen=True, slots=True)
class AnsweredBy:
    """Which model wrote an answer, with which wording of the question, and what it took."""

    model: str
    prompt: str
    spent: SpentShown


@dataclass(frozen=True, slots=True)
class Answer:
    """What `query` returns: memories by rank, the same as prompt-ready text in time order, the watermark.

    `confidence` is from 0 to 1, and `insufficient` says that it is too low to answer from. `redacted` counts, for
    an answer as of then, the events of before whose words are gone by now. `spaces` is there when memories came
    with embeddings of another model than the daemon's. `mode` is the one that was used, and `why_mode` says why it
    was, when `auto` chose it.

    What a model makes of them is here when that is asked for: the text of the `answer`, null when it `abstained`
    (the memories do not say it) or did not come (`unanswered` says why); the ids of the memories that it rests on,
    in the order in which it uses them; and who wrote it, when a model was asked at all.

    Of mode `deep`: how many `rounds` of calls waited for one another, how many `calls` there were and their
    `tokens`; which cap ended the asking (`capped`), and why vectors and words went on without a model
    (`fell_back`); null for neither.
    """

    mode: Mode = Mode.AGPR
    why_mode: WhyMode | None = None
    memories: list[MemoryShown] = field(default_factory=list[MemoryShown])
    context: str = ""
    watermark: Watermark = field(default_factory=lambda: Watermark(0, 0, 0, 0.0))
    confidence: float = 0.0
    insufficient: bool = True
    redacted: int | None = None
    explanation: Explanation | None = None
    spaces: list[SpaceShown] | None = None
    answer: str | None = None
    citations: list[str] | None = None
    abstained: bool | None = None
    answered_by: AnsweredBy | None = None
    unanswered: Unanswered | None = None
    rounds: int | None = None
    calls: int | None = None
    tokens: TokensShown | None = None
    capped: Cap | None = None
    fell_back: FellBack | None = None
