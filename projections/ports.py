"""What the daemon must bring: a language model and an embedder, as protocols; and what is handed to them.

Adapters live in `daemon/` (`daemon/offline/` for the built-in ones). Neither port may be called from a fold.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from events.memory import ExtractedFact
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
    """A text with the interval it speaks of: a child of a tree node, or a member of a group."""

    text: str
    time_start: Instant
    time_end: Instant


@dataclass(frozen=True, slots=True)
class IntervalText:
    """What is summarised: the children of a node in time order, under the name of their scope."""

    scope: str
    children: tuple[MemberText, ...]


class LanguageModel(Protocol):
    """Reads chunks into facts, intervals into summaries, groups into one text."""

    @property
    def name(self) -> str:
        """A fingerprint: other answers, other name."""
        ...

    async def extract_facts(self, chunk: ChunkText) -> tuple[ExtractedFact, ...]:
        """The facts of a chunk, in the order of its turns; none is an answer too."""
        ...

    async def summarise(self, interval: IntervalText) -> str:
        """One text for an interval, shorter than its children together."""
        ...

    async def merge(self, members: Sequence[MemberText]) -> str:
        """One text that stands for all members of a group, in the order given."""
        ...


class Embedder(Protocol):
    """Turns texts into unit vectors."""

    @property
    def name(self) -> str:
        """A fingerprint: other vectors, other name."""
        ...

    @property
    def dimensions(self) -> int:
        """Width of a row."""
        ...

    @property
    def ranks(self) -> bool:
        """Whether its cosines are good enough to rank answers by (the hashing one's are not)."""
        ...

    async def embed(self, texts: Sequence[str]) -> Vectors:
        """One unit row a text, in the order given, shape (len(texts), dimensions)."""
        ...
