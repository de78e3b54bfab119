"""What the daemon must bring: a language model and an embedder, as protocols; and what is handed to them.

Adapters live in `daemon/` (`daemon/offline/` for the built-in ones). Neither port may be called from a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np
from numpy.typing import NDArray

from events.decisions import PairVerdict
from events.envelope import Reference
from events.errors import MemForestError
from events.memory import NOTHING_SPENT, Alias, ExtractedFact, ParkReason, Task, Usage
from events.time import Instant

Vectors = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class TurnText:
    """One turn as a model sees it."""

    role: str
    speaker: str | None
    said_at: Instant
    text: str


@dataclass(frozen=True, slots=True)
class ChunkText:
    """The turns of one chunk in log order; `previous` is the last turn before it in the session, if any."""

    turns: tuple[TurnText, ...]
    previous: TurnText | None = None


@dataclass(frozen=True, slots=True)
class MemberText:
    """A text with the interval it speaks of: a child of a tree node, or a member of a group.

    `until`: of a state that ended, when; it held from `time_start` on.
    """

    text: str
    time_start: Instant
    time_end: Instant
    until: Instant | None = None


@dataclass(frozen=True, slots=True)
class IntervalText:
    """What is summarised: the children of a node in time order, under the name of their scope."""

    scope: str
    children: tuple[MemberText, ...]


@dataclass(frozen=True, slots=True)
class FactsRead:
    """What a model read in a chunk: the facts in the order of its turns; none is an answer too.

    `missed`, `skipped` and `aliases` are as in FactsExtracted.
    """

    facts: tuple[ExtractedFact, ...]
    usage: Usage = NOTHING_SPENT
    missed: int = 0
    skipped: bool = False
    aliases: tuple[Alias, ...] = ()


@dataclass(frozen=True, slots=True)
class TextWritten:
    """A summary, or the text of a group; `extractive` when it is the members' own, put together by rule."""

    text: str
    usage: Usage = NOTHING_SPENT
    extractive: bool = False


@dataclass(frozen=True, slots=True)
class PairText:
    """Two texts that may say the same; `later` was said after `earlier`."""

    later: MemberText
    earlier: MemberText


@dataclass(frozen=True, slots=True)
class PairsRead:
    """What a model says of pairs, a verdict each and in their order; a `PairVerdict` speaks of the later text."""

    verdicts: tuple[PairVerdict, ...]
    usage: Usage = NOTHING_SPENT


class ModelUnavailable(MemForestError):
    """Nothing can be asked now, whatever it is; the work waits. `reason` is a sentence for people.

    `usage` is what this question took until then: it was paid for, though no answer came of it.
    """

    code = "unavailable"

    def __init__(self, reason: str, retry_in_s: float, usage: Usage = NOTHING_SPENT) -> None:
        super().__init__(reason)
        self.reason = reason
        self.retry_in_s = retry_in_s
        self.usage = usage


class ModelFailed(MemForestError):
    """This question came to nothing though others are answered; it may be asked again."""

    code = "internal"

    def __init__(self, reason: str, usage: Usage = NOTHING_SPENT) -> None:
        super().__init__(reason)
        self.usage = usage


class AnswerUnusable(MemForestError):
    """The answer cannot be used, and asking again, for a better one or in parts, did not help."""

    code = "internal"

    def __init__(self, reason: ParkReason, usage: Usage = NOTHING_SPENT) -> None:
        super().__init__(f"the model's answer cannot be used: {reason}")
        self.reason = reason
        self.usage = usage


class LanguageModel(Protocol):
    """Reads chunks into facts, intervals into summaries, groups into one text, and tells pairs apart.

    Each raises `ModelUnavailable`, `ModelFailed` or `AnswerUnusable`, and bounds how many calls go out at once.
    """

    @property
    def name(self) -> str:
        """Which model answers; it is recorded with every answer."""
        ...

    def version_of(self, task: Task) -> str:
        """All else that decides its answers to a task: prompt, parameters, schema. Other answers, other text."""
        ...

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        """The facts of a chunk."""
        ...

    async def summarise(self, interval: IntervalText) -> TextWritten:
        """One text for an interval, shorter than its children together."""
        ...

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        """One text that stands for all members of a group, in the order given."""
        ...

    async def judge(self, pairs: Sequence[PairText]) -> PairsRead:
        """Whether the texts of each pair say the same, or what they have to do with each other."""
        ...


class EmbedderUnavailable(MemForestError):
    """No vectors can be made now; `status` says why, and until then words alone rank."""

    code = "unavailable"


class TextRefused(EmbedderUnavailable):
    """The embedder takes other texts, and not one of these."""


class Embedder(Protocol):
    """Turns texts into unit vectors. The same text gets the same bits, whatever it is embedded beside."""

    @property
    def name(self) -> str:
        """A fingerprint: other vectors, other name."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of a row; 0 as long as an endpoint has not told it yet."""
        ...

    @property
    def trouble(self) -> str | None:
        """Why it made no vectors when it was asked last, in a sentence; None while it works."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether its cosines are good enough to rank answers by (the hashing one's are not)."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text that is stored, in the order given, shape (len(texts), dimensions).

        Raises `EmbedderUnavailable`.
        """
        ...

    async def embed_question(self, text: str) -> Vectors:
        """The unit vector of a question, shape (dimensions,): some models want to know which it is.

        It waits for no stored texts, and not for long. Raises `EmbedderUnavailable`.
        """
        ...


@dataclass(frozen=True, slots=True)
class CachedVector:
    """A unit vector as it is stored and searched.

    `key` names the text for ever: the leaf key of a closed chunk, or seq and n of a fact's first occurrence.
    `seqs` are the events whose words are in the text; when one of them is erased, the vector is, too.
    """

    key: bytes
    seqs: tuple[int, ...]
    vector: NDArray[np.float16]  # (dimensions,)


# The model of vectors that memories came with, whichever made them: kept beside those of the one embedder.
BROUGHT: Final = "brought/1"


class VectorCache(Protocol):
    """Vectors that were made once. Losing them costs time only."""

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """The vectors of these keys that are here, bit for bit as they were kept."""
        ...

    async def keep(self, user: Reference, model: str, vectors: Sequence[CachedVector]) -> None:
        """Keep vectors for the next time; those of a user who was forgotten meanwhile are dropped."""
        ...


@dataclass(frozen=True, slots=True)
class StoredSnapshot:
    """A Memory without words, as it stood at `user_seq`; `made_by` is a hash of all that decides its form."""

    user_seq: int
    made_by: bytes
    content: bytes


class SnapshotStore(Protocol):
    """At most one snapshot a user. Losing one costs a fold."""

    async def load_snapshot(self, user: Reference) -> StoredSnapshot | None:
        """The snapshot of a user, when there is one and it is as it was kept."""
        ...

    async def keep_snapshot(self, user: Reference, snapshot: StoredSnapshot) -> None:
        """Keep a snapshot in place of the one before."""
        ...
