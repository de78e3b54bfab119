"""s of Eq. 10 for a whole node set, and its leading rows: one scan of int8 codes, then exact scores for a few.

Pure functions over a View, in any thread.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from projections.recall.agpr import SCORE_DECIMALS, AgprParameters, top_rows
from projections.recall.graph import propose_cosines
from projections.recall.scales import Scale
from projections.recall.spaces import Blend, SpacePicture

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.graph import Graph
    from projections.recall.hits import Hits
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
        sessions = self.sessions.astype(scores.dtype, copy=False)
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
    """The leading rows by s, best first, and what they scored: `fused`, and `smoothed` (s) with all around.

    `timed`: what the time in the question added to each of these, None where it asks of none. `chosen`: what a
    model's choice added, None without one.
    """

    rows: Rows
    lexical: Column
    cosine: Column | None
    fused: Column
    smoothed: Column
    timed: Column | None = None
    chosen: Column | None = None

    def take(self, places: Rows) -> Leading:
        """Some of them."""
        cosine = None if self.cosine is None else self.cosine[places]
        timed = None if self.timed is None else self.timed[places]
        lexical, fused, smoothed = self.lexical[places], self.fused[places], self.smoothed[places]
        chosen = None if self.chosen is None else self.chosen[places]
        return Leading(self.rows[places], lexical, cosine, fused, smoothed, timed, chosen)


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """s of every row, nearly (`rough`), and exactly for those that lead or are asked for.

    `rows` (ascending) may answer; both scales are stretched over them. `beside`: what neighbours add to each row.
    """

    view: View
    lexical: Column
    rows: Rows
    rough: NDArray[np.float32]
    _words: Scale
    _meaning: Scale | None
    _blend: Blend | None
    _beside: NDArray[np.float32] | None
    _smoothing: float
    _context: Context | None

    def best(self, count: int, among: Rows | None = None) -> Leading:
        """The `count` best of the rows that may answer, or of some of these; all when there are fewer."""
        rows = self.rows if among is None else among
        if not rows.size:
            return self.measure(rows, 0)
        meaning, everywhere = self._meaning, among is None and rows.size == self.view.size
        near = _near(self.rough if everywhere else self.rough[rows], count, self._margin())
        if not everywhere:
            near = rows[near]
        most = _ROWS_PER_ANSWER_MAX * count
        if meaning is not None and near.size > most:
            near = near[np.lexsort((self.view.ids[near], -self.rough[near]))[:most]]
        return self.measure(near, count)

    def lead_nearly(self, count: int, among: Rows) -> Rows:
        """The `count` best of some rows as far as `rough` tells, best first; costs no exact score."""
        if not among.size:
            return among
        near = among[_near(self.rough[among], count, 10.0**-SCORE_DECIMALS)]
        scores: Column = self.rough[near].astype(np.float64)
        return near[top_rows(scores, count, self.view.ids[near])]

    def measure(self, rows: Rows, count: int) -> Leading:
        """The exact scores of these rows, each of which may answer; the `count` best of them."""
        if not rows.size:
            asked = self.view.query is not None or self.view.others
            return Leading(rows, np.empty(0), np.empty(0) if asked else None, np.empty(0), np.empty(0))
        view, lexical, blend = self.view, self.lexical, self._blend
        cosine, near_by = (view.cosines(rows),) * 2 if blend is None else blend.measure(rows)
        own = _score_exactly(lexical[rows], near_by, self._words, self._meaning)
        scores: Column = own.copy()
        if self._beside is not None:
            heard = None if self._meaning else _hear_beside(lexical, rows, view, self._words) * self._smoothing
            scores += self._beside[rows] if heard is None else heard
        if self._context is not None:
            scores = self._context.speak(scores, rows).astype(np.float64, copy=False)
        scored = Leading(rows, lexical[rows], cosine, own, scores)
        return scored.take(top_rows(scores, count, view.ids[rows]))

    def worth(self, lexical: Column) -> Column:
        """What so much of BM25 is worth in `fused`."""
        return lexical * self._words.factor

    def _margin(self) -> float:
        """A row that is less than this behind may turn out to be before."""
        words, meaning, blend = self._words, self._meaning, self._blend
        margin = _ROUNDING * max(1.0, float(self.rough.max()), words.high * words.factor)
        if meaning is None:
            return margin
        error = self.view.error() if blend is None else blend.error
        return margin + error * meaning.factor * (1.0 if self._context is None else self._context.gain)


def lead(
    view: View, hits: Hits, rows: Rows, parameters: AgprParameters, count: int, context: Context | None = None
) -> Leading:
    """The `count` best of `rows` (ascending) by s; all of them when there are fewer."""
    return score(view, hits, rows, parameters, count, context).best(count)


def score(
    view: View, hits: Hits, rows: Rows, parameters: AgprParameters, count: int, context: Context | None = None
) -> Scores:
    """s of the rows of a view, of which `rows` (ascending) may answer.

    Both columns are stretched over `rows`. A neighbour that may not answer itself still speaks for the one
    beside it, with no more than the best and no less than the worst of them. With vectors, more rows
    are taken by approximate cosines, and then their own exact ones decide. What is approximate is made of whole
    numbers, too, and is the same on every machine. With a graph of vectors it proposes for `count` answers.
    """
    lexical = hits.add_up(view.size)
    if not rows.size:
        none = np.zeros(view.size, dtype=np.float32)
        return Scores(view, lexical, rows, none, Scale(0.0, 0.0, 0.0), None, None, None, 0.0, None)
    own = slice(None) if rows.size == view.size else rows
    blend = view.blend(rows) if parameters.cosine_weight else None
    scan = None
    if parameters.cosine_weight:
        scan = view.scan(lexical, count) if blend is None else blend.near.copy()
    words = Scale.over(lexical[own], 1.0 if scan is None else 1 - parameters.cosine_weight)
    meaning = None
    if scan is not None:
        over = Scale.over_known if blend is None else Scale.over_blend
        meaning = over(scan[own], parameters.cosine_weight)
    rough = _fuse_roughly(lexical, words, scan, meaning, everywhere=rows.size == view.size)
    beside = _speak_beside(rough, view, parameters.smoothing) if parameters.smoothing else None
    if beside is not None:
        rough += beside
    if context is not None:
        context.speak(rough)
    return Scores(view, lexical, rows, rough, words, meaning, blend, beside, parameters.smoothing, context)


def _fuse_roughly(
    lexical: Column,
    words: Scale,
    cosines: NDArray[np.float32] | None,
    meaning: Scale | None,
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


def _hear_beside(lexical: Column, rows: Rows, view: View, words: Scale) -> Column:
    """What the words of the chunks before and after give, exactly, for some rows."""
    asked = np.zeros(view.size, dtype=np.bool_)
    asked[rows] = True
    links = np.flatnonzero(asked[view.before] | asked[view.after])
    before, after = view.before[links], view.after[links]
    beside = np.zeros(view.size)
    beside[before] = words.apply(np.clip(lexical[after], words.low, words.high))
    beside[after] += words.apply(np.clip(lexical[before], words.low, words.high))
    return beside[rows]


def _score_exactly(lexical: Column, near_by: Column | None, words: Scale, meaning: Scale | None) -> Column:
    """The words' scores of a few rows and how near they are, together; `near_by` is on the scale of `meaning`."""
    fused = words.apply(np.minimum(np.maximum(lexical, words.low), words.high))
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
