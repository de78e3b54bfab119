"""Anchor-guided propagation retrieval (paper A, Eq. 9-10; algorithms.md 3): scores in, ranked rows out.

Pure functions over columns, one value a row of the node set. No vector is compared and no text is seen here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import StrEnum
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, TypeAlias

import msgspec
import numpy as np

from events.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from numpy.typing import NDArray

    Column: TypeAlias = NDArray[np.float64]
    Rows: TypeAlias = NDArray[np.intp]
    Instants: TypeAlias = NDArray[np.int64]
    # What decides between equal scores, smaller first: ranks, or ids of one width.
    Ties: TypeAlias = NDArray[np.int64] | NDArray[np.bytes_]

# Scores are compared at this many decimals: the last bits of a sum depend on the machine, an order must not.
SCORE_DECIMALS: Final = 5
# Up to so many scores are sorted faster than their leaders are told.
_SORTED_MAX: Final = 512


class TimeUnit(StrEnum):
    """What the distance of two instants is counted in (Eq. 10 leaves it open)."""

    SECONDS = "seconds"
    MINUTES = "minutes"
    HOURS = "hours"
    DAYS = "days"
    WEEKS = "weeks"

    @property
    def ms(self) -> int:
        """Milliseconds of one unit."""
        return _UNIT_MS[self]


_UNIT_MS: Final[Mapping[TimeUnit, int]] = MappingProxyType(
    {
        TimeUnit.SECONDS: 1_000,
        TimeUnit.MINUTES: 60_000,
        TimeUnit.HOURS: 3_600_000,
        TimeUnit.DAYS: 86_400_000,
        TimeUnit.WEEKS: 604_800_000,
    }
)


@dataclass(frozen=True, slots=True)
class AgprParameters:
    """The symbols of Eq. 9-10 and ours; the defaults are those for no embedder (algorithms.md 3).

    Hours, because a session must be much shorter than a unit and the way to the next session much longer;
    with seconds nothing propagates from one turn to the next.
    """

    candidates_per_answer: int = 4  # L
    anchor_share: float = 0.2  # lambda
    time_unit: TimeUnit = TimeUnit.HOURS
    gamma: float = 0.85
    smoothing: float = 0.6  # ours: weight of the previous and next chunk
    cosine_weight: float = 0.0  # c, ours: the rest is BM25
    session_weight: float = 0.3  # ours: of BM25 over whole sessions, added to s
    entity_weight: float = 0.2  # ours: s grows by this share where a node names whom the question names

    def __post_init__(self) -> None:
        """InvalidInput names the parameter that is out of its range."""
        if self.candidates_per_answer < 1:
            raise InvalidInput("agpr.candidates_per_answer (L) must be at least 1")
        if not 0 < self.anchor_share <= 1:
            raise InvalidInput("agpr.anchor_share (lambda) must be above 0 and at most 1")
        if not 0 <= self.gamma <= 1:
            raise InvalidInput("agpr.gamma must be between 0 and 1")
        for name in ("smoothing", "session_weight", "entity_weight"):
            weight: float = getattr(self, name)
            if not (weight >= 0 and math.isfinite(weight)):
                raise InvalidInput(f"agpr.{name} must be a number that is not negative")
        if not 0 <= self.cosine_weight <= 1:
            raise InvalidInput("agpr.cosine_weight (c) must be between 0 and 1")


NO_EMBEDDER: Final = AgprParameters()
# Vectors see some of what neighbours say; smoothing more than this costs R@5 and multi-hop questions.
STATIC: Final = AgprParameters(smoothing=0.3, cosine_weight=0.4)
MULTILINGUAL: Final = AgprParameters(smoothing=0.2, cosine_weight=0.5)
ANY_EMBEDDER: Final = MULTILINGUAL
PAPER: Final = AgprParameters(gamma=0.9, smoothing=0.0, cosine_weight=1.0, session_weight=0.0, entity_weight=0.0)


class RankedRow(msgspec.Struct, frozen=True, gc=False):
    """A row of the answer: `score` is v of Eq. 10, `similarity` its s and `propagation` its p."""

    row: int
    score: float
    similarity: float
    propagation: float


def minmax(column: Column) -> Column:
    """The column stretched to 0 .. 1; a constant one says nothing and is all 0."""
    if not column.size:
        return column.copy()
    low, high = float(column.min()), float(column.max())
    if low == high:
        return np.zeros_like(column)
    stretched: Column = (column - low) / (high - low)
    return stretched


def fuse(lexical: Column, cosine: Column | None, cosine_weight: float) -> Column:
    """s = c minmax(cosine) + (1 - c) minmax(BM25); without cosines the BM25 alone."""
    if cosine is None or cosine_weight == 0:
        return minmax(lexical)
    return cosine_weight * minmax(cosine) + (1 - cosine_weight) * minmax(lexical)


def smooth(scores: Column, previous_row: Rows, next_row: Rows, weight: float) -> Column:
    """Scores plus `weight` times those of the previous and the next chunk of the session.

    `previous_row` and `next_row` hold row numbers, -1 where there is none (a session's ends; rows that are no
    chunks). Smooth the whole node set before any filter, or a filtered neighbour is missed.
    """
    if weight == 0 or not scores.size:
        return scores.copy()
    ended: Column = np.append(scores, 0.0)  # -1 is the last place: no neighbour, no score
    smoothed: Column = scores + weight * (ended.take(previous_row) + ended.take(next_row))
    return smoothed


def top_rows(scores: Column, count: int, ties: Ties) -> Rows:
    """The `count` best rows (all, if there are fewer), best first: by rounded score, then smaller tie first."""
    if count < 1:
        return np.empty(0, dtype=np.intp)
    if scores.size <= max(count, _SORTED_MAX):
        return _best_first(scores.round(SCORE_DECIMALS), ties)[:count]
    near, rounded = _leading_rows(scores, count, ties)
    return near[_best_first(rounded, ties[near])]


def _best_first(scores: Column, ties: Ties) -> Rows:
    """The places of scores, best first; ties are looked at only where two are level."""
    order = np.argsort(-scores, kind="stable")
    ordered = scores[order]
    return np.lexsort((ties, -scores)) if (ordered[1:] == ordered[:-1]).any() else order


def rank(
    scores: Column,
    said_at: Instants,
    k: int,
    parameters: AgprParameters,
    ties: Ties,
    *,
    depth: int | None = None,
) -> tuple[RankedRow, ...]:
    """The top k rows by v = gamma s + (1 - gamma) p (Eq. 9-10), best first; fewer if there are fewer rows.

    `scores` is s of each row of the filtered node set, `said_at` its source turn's instant, `ties` what
    decides between equal scores; all of shape (rows,). The top L k by s are candidates, the top
    ceil(lambda k) of them anchors, p is the mean over the anchors of exp(-distance in time units).
    `depth` gives that many rows instead of k, for a caller that drops some of them; the anchors are still
    those of k, or a deeper answer would begin otherwise. ValueError if k is below 1 or depth below k.
    """
    if k < 1:
        raise ValueError("k must be at least 1")
    if depth is not None and depth < k:
        raise ValueError("depth must be at least k")
    rows_max = depth or k
    candidates = top_rows(scores, max(parameters.candidates_per_answer * k, rows_max), ties)
    ranked = rank_candidates(scores[candidates], said_at[candidates], k, parameters, ties[candidates])
    return tuple(msgspec.structs.replace(each, row=int(candidates[each.row])) for each in ranked[:rows_max])


def rank_candidates(
    scores: Column, said_at: Instants, k: int, parameters: AgprParameters, ties: Ties
) -> tuple[RankedRow, ...]:
    """All candidates by v, best first. They come as from `top_rows`, by s; `row` is a place there."""
    if not scores.size:
        return ()
    # Rounded first: .07 * 100 is 7.000000000000001, and its ceiling would be 8.
    instants = said_at.astype(np.float64)
    anchors = instants[: math.ceil(round(parameters.anchor_share * k, 9))]
    distances = np.abs(instants[:, None] - anchors) / parameters.time_unit.ms
    nearness: Column = np.add.reduce(np.exp(-distances), axis=1) / anchors.size
    propagations = nearness.round(SCORE_DECIMALS)
    similarities = scores.round(SCORE_DECIMALS)
    values = (parameters.gamma * similarities + (1 - parameters.gamma) * propagations).round(SCORE_DECIMALS)
    v, s, p = values.tolist(), similarities.tolist(), propagations.tolist()
    if len(set(v)) < len(v):
        order = np.lexsort((ties, -values)).tolist()
    else:
        order = sorted(range(len(v)), key=v.__getitem__, reverse=True)
    return tuple([RankedRow(row, v[row], s[row], p[row]) for row in order])


def _leading_rows(scores: Column, count: int, ties: Ties) -> tuple[Rows, Column]:
    """The `count` best of more rows, in no order, and their rounded scores."""
    least = _lower_bound(scores, count)
    # Two scores that differ by less than one step may round to the same.
    near = np.flatnonzero(scores >= least - 10.0**-SCORE_DECIMALS)
    rounded = np.round(scores[near], SCORE_DECIMALS)
    last = np.round(least, SCORE_DECIMALS)
    better = np.flatnonzero(rounded > last)
    if better.size >= count:
        near, rounded = near[better], rounded[better]
        last = np.partition(rounded, near.size - count)[near.size - count]
        better = np.flatnonzero(rounded > last)
    # Most rows share no word with a question, so the last places may be contested by thousands of zeros.
    level = np.flatnonzero(rounded == last)
    missing = count - better.size
    if level.size > missing:
        level = level[np.argpartition(ties[near[level]], missing - 1)[:missing]]
    kept = np.concatenate((better, level))
    return near[kept], rounded[kept]


def _lower_bound(scores: Column, count: int) -> float:
    """A score that at least `count` rows reach, close to the count-th best.

    The maxima of enough disjoint columns will do; at a million rows that is 13-22 times faster than a
    partition of everything.
    """
    height = 64
    width = scores.size // height
    leaders = scores
    if width >= count:
        leaders = scores[: height * width].reshape(height, width).max(axis=0)
    return float(np.partition(leaders, leaders.size - count)[leaders.size - count])
