"""s of Eq. 10 for a whole node set, and its leading rows: one scan of int8 codes, then exact scores for a few.

Pure functions over a View, in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from projections.recall.agpr import AgprParameters, top_rows
from projections.recall.graph import propose_cosines
from projections.recall.spaces import Blend, SpacePicture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.graph import Graph
    from projections.recall.lexical import Hits
    from projections.recall.slab import Quantised, SlabPicture

    Column = NDArray[np.float64]
    Rows = NDArray[np.intp]

# Rows whose vectors are compared exactly for each that is asked for, at most; hundreds may be level.
_ROWS_PER_ANSWER_MAX: Final = 4
# How far float32 may be off about 1, and how far apart two scores may be that are level.
_ROUNDING: Final = 2e-5
# From so many rows of a session side by side, on average, what it adds is told by runs: in a quarter of the time.
_RUN_MIN: Final = 4
# Rows of the matrix whose columns' maxima tell how high the leading scores are.
_HEIGHT: Final = 64


@dataclass(frozen=True, slots=True, eq=False)
class View:
    """A node set as it stood, and a query as its vectors are compared with; nothing in it changes any more.

    The ids were lent (`Columns.lend`) and the slab pictured (`SlabPicture`): both write elsewhere from then on, so
    a row that is emptied and used again meanwhile is here what it was.
    """

    # Each chunk that has a next one in its session, and that one.
    before: Rows
    after: Rows
    ids: NDArray[np.bytes_]
    slab: SlabPicture | None
    query: Quantised | None
    # When vectors are very many: what proposes some of them, and the rows that it does not know as they are.
    graph: Graph | None
    changed: Rows
    # Vectors of other systems' spaces that the query has one for, and whether there are several spaces at all.
    others: tuple[SpacePicture, ...] = ()
    apart: bool = False

    @property
    def size(self) -> int:
        """How many rows there are."""
        return len(self.ids)

    def blend(self, own: Rows) -> Blend | None:
        """Nearness in several spaces on one scale; None where there is one alone, or no vector to compare."""
        ours = () if self.query is None or self.slab is None else (SpacePicture(self.slab, self.query),)
        spaces = (*ours, *self.others)
        return Blend.over(spaces, self.size, own) if self.apart and spaces else None

    def scan(self, lexical: Column, count: int) -> NDArray[np.float32] | None:
        """The approximate cosine of every row with the query; None without a query or without vectors.

        With a graph, of those that have a chance to be among the best `count`.
        """
        if self.query is None or self.slab is None:
            return None
        if self.graph is None:
            return self.slab.scan(self.query)
        return propose_cosines(self.graph, self.slab, self.changed, self.query, lexical, count)

    def error(self) -> float:
        """How far these are off."""
        return 0.0 if self.query is None or self.slab is None else self.slab.error(self.query)

    def cosines(self, rows: Rows) -> Column | None:
        """The exact cosines of rows with the query, in our space; None without a query."""
        if self.query is None:
            return None
        return np.zeros(len(rows)) if self.slab is None else self.slab.cosines(rows, self.query)


@dataclass(frozen=True, slots=True, eq=False)
class Context:
    """What speaks for rows besides their own words and vectors, and those of their neighbours.

    `sessions`: what each session adds, by its number in `session_of`; `named`: by what share each row's score
    grows for whom it names.
    """

    session_of: NDArray[np.intp]
    sessions: Column
    named: NDArray[np.float32] | None
    # The session of each run of neighbouring rows, and how long each is.
    runs: tuple[NDArray[np.intp], NDArray[np.intp]]

    @property
    def gain(self) -> float:
        """The most that a score is multiplied by."""
        return 1.0 if self.named is None else 1 + float(self.named.max())

    def speak(self, scores: NDArray[np.floating[Any]], rows: Rows | None = None) -> NDArray[np.floating[Any]]:
        """The scores of these rows (None: of all) with that; the array itself may be changed."""
        sessions = self.sessions.astype(scores.dtype)
        of_run, lengths = self.runs
        if rows is not None:
            scores += sessions.take(self.session_of[rows])
        elif _RUN_MIN * len(of_run) < len(scores):
            scores += np.repeat(sessions.take(of_run), lengths)
        else:
            scores += sessions.take(self.session_of)
        if self.named is not None:
            scores *= 1 + (self.named if rows is None else self.named[rows])
        return scores


@dataclass(frozen=True, slots=True, eq=False)
class Leading:
    """The leading rows by s, best first, and what they scored: `fused`, and `smoothed` (s) with all around."""

    rows: Rows
    lexical: Column
    cosine: Column | None
    fused: Column
    smoothed: Column

    def take(self, places: Rows) -> Leading:
        """Some of them."""
        cosine = None if self.cosine is None else self.cosine[places]
        return Leading(self.rows[places], self.lexical[places], cosine, self.fused[places], self.smoothed[places])


@dataclass(frozen=True, slots=True)
class _Scale:
    """Stretches low .. high to 0 .. weight; what is all one value says nothing and becomes 0."""

    low: float
    high: float
    factor: float

    @classmethod
    def over(cls, values: NDArray[np.floating[Any]], weight: float) -> _Scale:
        low, high = float(values.min()), float(values.max())
        return cls(low, high, weight / (high - low) if high > low else 0.0)

    @classmethod
    def over_blend(cls, near: NDArray[np.float32], weight: float) -> _Scale:
        """Of nearness in several spaces, in deviations; less than one of these is not stretched to all."""
        low, high = float(near.min()), float(near.max())
        return cls(low, high, weight / max(high - low, 1.0))

    @classmethod
    def over_known(cls, cosines: NDArray[np.float32], weight: float) -> _Scale:
        """Without the zeros of rows that have no vector yet.

        Some models give 0.7 to 0.9 to everything; beside a zero all of that would be the same (two points of
        R@10).
        """
        scale = cls.over(cosines, weight)
        if scale.low or not scale.high:
            return scale
        return cls.over(cosines[cosines != 0], weight)

    def apply(self, values: Column) -> Column:
        return (values - self.low) * self.factor


def lead(
    view: View, hits: Hits, rows: Rows, parameters: AgprParameters, count: int, context: Context | None = None
) -> Leading:
    """The `count` best of `rows` (ascending) by s; all of them when there are fewer.

    Both columns are stretched over `rows`. A neighbour that may not answer itself still speaks for the one
    beside it, with no more than the best and no less than the worst of them. With vectors, more rows
    are taken by approximate cosines, and then their own exact ones decide. What is approximate is made of whole
    numbers, too, and is the same on every machine.
    """
    lexical = hits.add_up(view.size)
    if not rows.size:
        asked = view.query is not None or view.others
        return Leading(rows, np.empty(0), np.empty(0) if asked else None, np.empty(0), np.empty(0))
    own = slice(None) if rows.size == view.size else rows
    blend = view.blend(rows) if parameters.cosine_weight else None
    scan = None
    if parameters.cosine_weight:
        scan = view.scan(lexical, count) if blend is None else blend.near.copy()
    words = _Scale.over(lexical[own], 1.0 if scan is None else 1 - parameters.cosine_weight)
    meaning = None
    if scan is not None:
        over = _Scale.over_known if blend is None else _Scale.over_blend
        meaning = over(scan[own], parameters.cosine_weight)
    rough = _fuse_roughly(lexical, words, scan, meaning, everywhere=rows.size == view.size)
    beside = _speak_beside(rough, view, parameters.smoothing) if parameters.smoothing else None
    if beside is not None:
        rough += beside
    if context is not None:
        context.speak(rough)
    # A row that is less than this behind may turn out to be before.
    margin = _ROUNDING * max(1.0, float(rough.max()), words.high * words.factor)
    if meaning is not None:
        margin += (
            (view.error() if blend is None else blend.error)
            * meaning.factor
            * (1.0 if context is None else context.gain)
        )
    near = rows[_near(rough[own], count, margin)]
    most = _ROWS_PER_ANSWER_MAX * count
    if meaning is not None and near.size > most:
        near = near[np.lexsort((view.ids[near], -rough[near]))[:most]]
    cosine, near_by = (view.cosines(near),) * 2 if blend is None else blend.measure(near)
    own_scores = _score_exactly(lexical[near], near_by, words, meaning)
    scores: Column = own_scores.copy()
    if beside is not None:
        scores += beside[near] if meaning else _hear_beside(lexical, near, view, words) * parameters.smoothing
    if context is not None:
        scores = context.speak(scores, near).astype(np.float64, copy=False)
    scored = Leading(near, lexical[near], cosine, own_scores, scores)
    return scored.take(top_rows(scores, count, view.ids[near]))


def _fuse_roughly(
    lexical: Column,
    words: _Scale,
    cosines: NDArray[np.float32] | None,
    meaning: _Scale | None,
    *,
    everywhere: bool,
) -> NDArray[np.float32]:
    """The columns stretched and added, in float32; nearly what `_score_exactly` says. Spends the cosines."""
    if not everywhere:
        lexical = np.clip(lexical, words.low, words.high)
    shares = np.multiply(lexical, words.factor, dtype=np.float32, casting="same_kind")
    if cosines is None or meaning is None:
        shares -= np.float32(words.low * words.factor)
        return shares
    if not everywhere or meaning.low > 0:  # rows without a vector have 0
        np.clip(cosines, meaning.low, meaning.high, out=cosines)
    cosines *= np.float32(meaning.factor)
    shares += np.float32(-words.low * words.factor - meaning.low * meaning.factor)
    shares += cosines
    return shares


def _speak_beside(fused: NDArray[np.float32], view: View, weight: float) -> NDArray[np.float32]:
    """`weight` times what the chunks before and after each row have."""
    beside = np.zeros_like(fused)
    beside[view.before] = fused.take(view.after)
    np.add.at(beside, view.after, fused.take(view.before))
    beside *= np.float32(weight)
    return beside


def _hear_beside(lexical: Column, rows: Rows, view: View, words: _Scale) -> Column:
    """What the words of the chunks before and after give, exactly, for some rows."""
    asked = np.zeros(view.size, dtype=np.bool_)
    asked[rows] = True
    links = np.flatnonzero(asked[view.before] | asked[view.after])
    before, after = view.before[links], view.after[links]
    beside = np.zeros(view.size)
    beside[before] = words.apply(np.clip(lexical[after], words.low, words.high))
    beside[after] += words.apply(np.clip(lexical[before], words.low, words.high))
    return beside[rows]


def _score_exactly(lexical: Column, near_by: Column | None, words: _Scale, meaning: _Scale | None) -> Column:
    """The words' scores of a few rows and how near they are, together; `near_by` is on the scale of `meaning`."""
    fused = words.apply(np.clip(lexical, words.low, words.high))
    if near_by is not None and meaning is not None:
        # The scale was taken from rough cosines; the best rows may lie a little above it, and keep that.
        fused += meaning.apply(np.maximum(near_by, meaning.low))
    return fused


def _near(scores: NDArray[np.float32], count: int, margin: float) -> Rows:
    """Places of the `count` best and of those at most `margin` behind the last of them, in no order."""
    if scores.size <= count:
        return np.arange(scores.size)
    # The maxima of enough columns: at least `count` scores reach the count-th of them (performance.md 1b).
    width = scores.size // _HEIGHT
    leaders = scores[: _HEIGHT * width].reshape(_HEIGHT, width).max(axis=0) if width >= count else scores
    near = np.flatnonzero(scores >= np.partition(leaders, leaders.size - count)[leaders.size - count] - margin)
    values = scores[near]
    nearer: Rows = near[values >= np.partition(values, near.size - count)[near.size - count] - margin]
    return nearer
