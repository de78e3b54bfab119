"""What a question's time says of the candidates: which stand first, which lie in its days, in which order.

Pure: a `TimeStep` is made of a node set as it stands, and turns a Leading into another one, whatever ranked it.
All of it prefers and nothing is left out: a time that was read wrongly costs places, and no memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.agpr import SCORE_DECIMALS
from projections.recall.naming import named_shares, names_in
from projections.recall.nodes import NodeKind, NodeSet
from projections.recall.scoring import Leading, Scores
from projections.recall.time_question import BACKWARDS, FORWARDS, Order, TimeKind, TimeQuestion
from projections.recall.tokens import query_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from events.time import Instant
    from projections.recall.hits import Hits

    Rows = NDArray[np.intp]
    Column = NDArray[np.float64]

_ASKS_WHEN: Final = frozenset((TimeKind.WHEN, TimeKind.HOW_LONG))
# Words that ask for anything that was.
_DULL: Final = frozenset(
    query_terms("happen go say tell talk mention news new passiert gemacht faire fait hacer hizo")
)
# Words by which people say when: whoever asks for that is told by what says so. No months and no years, which the
# date before each text has (`indexed_text`).
_DATING: Final = tuple(
    query_terms(
        "yesterday today tonight tomorrow recently ago last next since week weekend month year night morning"
        " monday tuesday wednesday thursday friday saturday sunday"
        " gestern vorgestern heute morgen neulich vor letzte letzten letztes letzter nächste nächsten seit woche"
        " wochenende monat jahr jahren montag dienstag mittwoch donnerstag freitag samstag sonntag"
        " hier avant-hier aujourd'hui demain récemment dernier dernière prochain prochaine semaine mois année ans"
        " lundi mardi mercredi jeudi vendredi samedi dimanche"
        " ayer anteayer hoy mañana recientemente pasado pasada próximo próxima semana mes año años hace"
        " lunes martes miércoles jueves viernes sábado domingo"
        " 昨天 前天 今天 明天 最近 上周 上星期 上个月 去年 前年 今年 明年 周末"
        " 昨日 一昨日 今日 明日 先週 来週 先月 来月 昨年 来年 週末"
    )
)
# From one row that stands first to the next: more than propagation (1 - gamma) can make up for.
STEP: Final = 0.5
# What says when, for a question that asks for it, is worth so much more. With .2 R@10 of LoCoMo's temporal
# questions is .6 points higher than with 0, and the mean reciprocal rank 4.5.
DATED: Final = 0.2
# What lies in the days that a question names is worth so much more; the best candidate of all has about 1.
WITHIN: Final = 0.3
# So many that are next to what happened stand first where nothing else is asked.
NEAREST_MAX: Final = 6
# Between level ones, so much for each that lies behind.
SOONER: Final = 0.001
# On the wrong side of what happened it is worth so much less of itself.
BEYOND: Final = 0.7
# Where an end of time is asked for, candidates with so much of the best one's words are put in order.
ALIKE: Final = 0.7


@dataclass(frozen=True, slots=True, eq=False)
class Anchor:
    """When what a question names happened, which rows tell of that, and where its words stand that the rest of the
    question has not."""

    at: Instant
    told: NDArray[np.bool_]
    words: Hits


@dataclass(frozen=True, slots=True, eq=False)
class TimeStep:
    """What a question's time says of rows. `first`: these stand first, in this order.

    `within` (ascending): those that may answer and lie in the days of the question, None without any. `starts`:
    when what each row is about begins, `said`: when it was said. `anchor`: what the question names. `says`:
    whether the question says more than its time. `dated`: where it is said when, None unless the question asks
    for that.
    `named`: by what share each row names whom the question asks about, None when it names nobody.
    """

    asked: TimeQuestion
    first: Rows
    within: Rows | None
    starts: NDArray[np.int64]
    said: NDArray[np.int64]
    anchor: Anchor | None
    says: bool
    dated: Hits | None
    named: NDArray[np.float32] | None

    def arrange(self, scores: Scores, leading: Leading, count: int) -> Leading:
        """The candidates as time has them: at most `count` and those that stand first."""
        if not scores.rows.size:
            return leading
        if self.within is not None and self.within.size:
            leading = self._prefer_within(scores, leading, count)
        if self.dated is not None:
            leading = self._prefer_dated(leading)
        if self.anchor is not None:
            leading = self._prefer_side(scores, leading)
        if self.asked.order is not None and not self.first.size:
            leading = self._put_in_order(leading)
        if self.first.size:
            leading = _put_first(scores, leading, self.first)
        return leading

    def _prefer_within(self, scores: Scores, leading: Leading, count: int) -> Leading:
        """What lies in the days that are asked for, on the scale of all; where nothing else is asked, by time."""
        assert self.within is not None
        inside = scores.best(count, self.within)
        outside = leading.take(np.flatnonzero(~np.isin(leading.rows, self.within)))
        added = np.full(inside.rows.size, WITHIN)
        if not self.says:
            # All of them before everything else; those that nothing else tells apart in the order of time.
            added += max(0.0, float(outside.smoothed.max(initial=0.0)) - float(inside.smoothed.min()))
            added += SOONER * np.argsort(np.argsort(-self.starts[inside.rows], kind="stable"), kind="stable")
        return _best_first(_join(_add(inside, added), outside))

    def _prefer_dated(self, leading: Leading) -> Leading:
        """What says when."""
        assert self.dated is not None
        said = self.dated.add_up(self.starts.size)[leading.rows]
        return _best_first(_add(leading, np.where(said > 0, DATED, 0.0)))

    def _prefer_side(self, scores: Scores, leading: Leading) -> Leading:
        """What began on the wrong side of what the question names is less likely meant, and not for its words.

        What happened itself comes neither before nor after it.
        """
        assert self.anchor is not None
        if not self.says:
            return self._put_nearest_first(scores, leading)
        starts, said, at = self.starts[leading.rows], self.said[leading.rows], self.anchor.at
        # What was said before, of what was to come, is what was known then.
        backwards = self.asked.kind in BACKWARDS
        wrong = self.anchor.told[leading.rows] | (np.minimum(starts, said) >= at if backwards else starts < at)
        words = np.minimum(scores.worth(self.anchor.words.add_up(self.starts.size)[leading.rows]), leading.fused)
        # Its words found its session and favoured its names, too: all of it is less by their share.
        share = np.divide(words, leading.fused, out=np.zeros(words.size), where=leading.fused > 0)
        less = leading.smoothed * (share + BEYOND * (1 - share))
        return _best_first(_add(leading, np.where(wrong, -less, 0.0)))

    def _put_nearest_first(self, scores: Scores, leading: Leading) -> Leading:
        """Where nothing else is asked: what began next to what the question names, on the side that is meant."""
        assert self.anchor is not None
        rows = scores.rows[self._names_most(scores.rows)]
        rows = rows[~self.anchor.told[rows]]
        away = self.starts[rows] - self.anchor.at
        away = -away if self.asked.kind in BACKWARDS else away
        rows, away = rows[away > 0], away[away > 0]
        nearest = rows[np.argsort(away, kind="stable")][:NEAREST_MAX]
        return _put_first(scores, leading, nearest) if nearest.size else leading

    def _put_in_order(self, leading: Leading) -> Leading:
        """The candidates that say as much as the best one, from the end of time that is asked for."""
        if not leading.rows.size:
            return leading
        alike = np.flatnonzero(leading.fused >= ALIKE * leading.fused.max())
        alike = alike[self._names_most(leading.rows[alike])]
        starts = self.starts[leading.rows[alike]]
        late = self.asked.order is Order.LATEST_FIRST
        turn = np.lexsort((-leading.smoothed[alike], -starts if late else starts))
        added = np.zeros(leading.rows.size)
        top = float(leading.smoothed.max())
        wanted = top + STEP * np.arange(alike.size, 0, -1)
        added[alike[turn]] = wanted - leading.smoothed[alike[turn]]
        return _best_first(_add(leading, added))

    def _names_most(self, rows: Rows) -> NDArray[np.bool_]:
        """Which rows name whom the question names, as far as any does."""
        if self.named is None or not rows.size:
            return np.ones(rows.size, dtype=np.bool_)
        shares = self.named[rows]
        most: NDArray[np.bool_] = shares >= shares.max()
        return most


def _put_first(scores: Scores, leading: Leading, rows: Rows) -> Leading:
    """These rows before all others, in this order."""
    rest = leading.take(np.flatnonzero(~np.isin(leading.rows, rows)))
    told = _in_turn(scores.measure(rows, rows.size), rows)
    top = max(float(rest.smoothed.max(initial=0.0)), float(told.smoothed.max()))
    wanted = top + STEP * np.arange(rows.size, 0, -1)
    return _join(_add(told, wanted - told.smoothed), rest)


def plan_time(
    nodes: NodeSet,
    rows: Rows,
    asked: TimeQuestion,
    question: str,
    first: Sequence[Sequence[bytes]],
    named: NDArray[np.float32] | None = None,
) -> TimeStep:
    """What the time of a question says of `rows` (ascending), which may answer.

    `first`: the ids of nodes that tell what is asked for, the best first; those that may not answer are left out.
    """
    every = np.arange(nodes.size, dtype=np.intp)
    starts, ends = nodes.time_start(every), nodes.time_end(every)
    told = dict.fromkeys(row for ids in first for each in ids if (row := nodes.row_of.get(each)) is not None)
    told_rows = np.fromiter(told, dtype=np.intp, count=len(told))
    # Not np.isin, which would sort all rows for each question.
    places = np.minimum(np.searchsorted(rows, told_rows), max(rows.size - 1, 0))
    told_rows = told_rows[rows[places] == told_rows] if rows.size else told_rows[:0]
    within = None
    if asked.span is not None and asked.kind not in (TimeKind.FIRST, TimeKind.LATEST):
        within = rows[_lies_within(asked, starts[rows], ends[rows])]
    anchor = None
    if asked.anchor is not None and not told_rows.size and asked.kind in (*BACKWARDS, *FORWARDS):
        telling = _rows_telling(nodes, rows, asked.anchor)
        if telling.size:
            words = nodes.lexical.hits(_terms_only_in(asked.anchor, asked.rest))
            anchor = Anchor(int(starts[telling].min()), _tells_first(nodes, telling, starts, ends), words)
    return TimeStep(
        asked,
        told_rows,
        within,
        starts,
        nodes.said_at(every),
        anchor,
        says=_says_more(nodes, asked.rest, question),
        named=named if anchor is None else named_shares(nodes, asked.rest),
        dated=nodes.lexical.hits(_DATING) if asked.kind in _ASKS_WHEN else None,
    )


def _says_more(nodes: NodeSet, rest: str, question: str) -> bool:
    """Whether a question asks for something else than what there was in some days."""
    said = set(query_terms(rest)) - _DULL
    return bool(said.difference(*map(query_terms, names_in(nodes, question))) if said else said)


def _terms_only_in(anchor: str, rest: str) -> tuple[str, ...]:
    return tuple(term for term in dict.fromkeys(query_terms(anchor)) if term not in set(query_terms(rest)))


def find_anchor(nodes: NodeSet, rows: Rows, anchor: str) -> Instant | None:
    """When what a question names happened: the beginning of what says most of its words; None if nothing does."""
    told = _rows_telling(nodes, rows, anchor)
    return int(nodes.time_start(told).min()) if told.size else None


def _rows_telling(nodes: NodeSet, rows: Rows, anchor: str) -> Rows:
    """What says most of the words of what a question names: facts, if any says some."""
    if not rows.size:
        return rows
    said = nodes.lexical.scores(query_terms(anchor), nodes.size)[rows]
    facts = nodes.of_kinds(rows, {NodeKind.FACT})
    said = np.where(facts, said, 0.0) if (said[facts] > 0).any() else said
    best = np.round(said, SCORE_DECIMALS)
    return rows[best == best.max()] if best.max() > 0 else rows[:0]


def _tells_first(
    nodes: NodeSet, told: Rows, starts: NDArray[np.int64], ends: NDArray[np.int64]
) -> NDArray[np.bool_]:
    """Of the rows that tell of something the earliest, and the chunks in which these were said."""
    first = told[starts[told] == starts[told].min()]
    mask = np.zeros(starts.size, dtype=np.bool_)
    mask[first] = True
    chunks = np.flatnonzero(nodes.of_kinds(np.arange(starts.size), {NodeKind.CHUNK}))
    session_of = nodes.session_table().of_row
    few = first[:NEAREST_MAX]  # more say the same at the same time by chance alone
    for row, said in zip(few.tolist(), nodes.said_at(few).tolist(), strict=True):
        mask[chunks] |= (starts[chunks] <= said) & (said <= ends[chunks]) & (session_of[chunks] == session_of[row])
    return mask


def _lies_within(asked: TimeQuestion, starts: NDArray[np.int64], ends: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Whether each row is about the days that are asked for, on the side of them that is asked for."""
    span = asked.span
    mask = np.ones(starts.size, dtype=np.bool_)
    if span is None:
        return mask
    if asked.kind in BACKWARDS:
        return mask if span.start is None else starts < span.start
    if asked.kind is TimeKind.AFTER or asked.kind is TimeKind.SUCCESSOR:
        return mask if span.end is None else ends >= span.end
    if span.start is not None:
        mask &= ends >= span.start
    if span.end is not None and asked.kind is not TimeKind.SINCE:
        mask &= starts < span.end
    return mask


def _in_turn(measured: Leading, rows: Rows) -> Leading:
    """What was measured, in the order of these rows."""
    place = {row: at for at, row in enumerate(measured.rows.tolist())}
    return measured.take(np.array([place[row] for row in rows.tolist()], dtype=np.intp))


def _add(leading: Leading, added: Column) -> Leading:
    timed = added if leading.timed is None else leading.timed + added
    return replace(leading, smoothed=leading.smoothed + added, timed=timed)


def _join(one: Leading, other: Leading) -> Leading:
    cosine = None
    if one.cosine is not None and other.cosine is not None:
        cosine = np.concatenate((one.cosine, other.cosine))
    return Leading(
        np.concatenate((one.rows, other.rows)),
        np.concatenate((one.lexical, other.lexical)),
        cosine,
        np.concatenate((one.fused, other.fused)),
        np.concatenate((one.smoothed, other.smoothed)),
        np.concatenate((_timed(one), _timed(other))),
        None if one.chosen is other.chosen is None else np.concatenate((_chosen(one), _chosen(other))),
    )


def _timed(leading: Leading) -> Column:
    return np.zeros(leading.rows.size) if leading.timed is None else leading.timed


def _chosen(leading: Leading) -> Column:
    return np.zeros(leading.rows.size) if leading.chosen is None else leading.chosen


def _best_first(leading: Leading) -> Leading:
    return leading.take(np.argsort(-leading.smoothed.round(SCORE_DECIMALS), kind="stable"))
