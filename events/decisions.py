"""What was decided on facts: the scenes they are in, which state ended which, and by which thresholds.

None of these events carries a word of anybody's: they point to facts and to the events that hold their texts.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, NamedTuple, TypeAlias

from events.memory import NOTHING_SPENT, FactId, Pointer, Usage, Word
from events.time import Instant

# Hash of the fact that founded the scene.
SceneId: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class Route:
    """The scenes of a fact, the nearest first: one or two, or none when it is taken out of all."""

    fact: FactId
    scenes: tuple[SceneId, ...]


@dataclass(frozen=True, slots=True)
class FactsRouted:
    """These facts are in these scenes from now on, whichever they were in before (paper B, Eq. B6)."""

    wire_name: ClassVar = "facts.routed"
    version: ClassVar = 1
    generation: int
    routes: tuple[Route, ...]


@dataclass(frozen=True, slots=True)
class ScenesMerged:
    """Scenes so close that they are one: all that is routed to an absorbed one, before or later, is in `kept`."""

    wire_name: ClassVar = "scenes.merged"
    version: ClassVar = 1
    generation: int
    kept: SceneId
    absorbed: tuple[SceneId, ...]


@dataclass(frozen=True, slots=True)
class Supersession:
    """A state ended at `until`, when the state that `by` tells began. Without `by` it holds again."""

    fact: FactId
    by: FactId | None
    until: Instant | None


@dataclass(frozen=True, slots=True)
class FactsSuperseded:
    """States ended, or hold again. The last event about a fact counts, and only while `by` is known."""

    wire_name: ClassVar = "facts.superseded"
    version: ClassVar = 1
    generation: int
    supersessions: tuple[Supersession, ...]


class Thresholds(NamedTuple):
    """Cosines in hundred-thousandths, quantiles of an embedder's own background (design 4.3).

    From `near` on two texts may say the same. A fact joins a scene from `assign` on, a second one from `second`
    on, and founds one below `spawn`; scenes are merged from `merge` on.
    """

    near: int
    assign: int
    second: int
    spawn: int
    merge: int


@dataclass(frozen=True, slots=True)
class GenerationPromoted:
    """From now on facts of this user are compared by this embedder's vectors and its thresholds."""

    wire_name: ClassVar = "generation.promoted"
    version: ClassVar = 1
    generation: int
    embedder: Word
    thresholds: Thresholds


class PairVerdict(StrEnum):
    """What a model says of two texts; the first of them was said later."""

    SAME = "same"
    SUPERSEDES = "supersedes"  # the first tells that the second holds no more
    CONTRADICTS = "contradicts"
    DIFFERENT = "different"


@dataclass(frozen=True, slots=True)
class JudgedPair:
    """Two readings by where they stand in the log, and what was said of them; `one` is the later reading."""

    one: Pointer
    other: Pointer
    verdict: PairVerdict


@dataclass(frozen=True, slots=True)
class PairsJudged:
    """A model compared texts that rules cannot tell apart."""

    wire_name: ClassVar = "pairs.judged"
    version: ClassVar = 2
    generation: int
    pairs: tuple[JudgedPair, ...]
    sources: tuple[int, ...]  # seqs of the events whose words it compared
    model: Word
    request: bytes = b""  # as in FactsExtracted
    usage: Usage = NOTHING_SPENT
    prompt: bytes = b""  # as in FactsExtracted
