"""The way down recalled trees where a model ranks: what it is shown of a level, and what it lets go on. Pure.

A model sees the best of each tree by vectors or words, all trees in one list. What it does not choose is not gone
into; where it has no say, vectors and words go on as without it. What filters leave out it is never shown: of a
node with some of that below it only these two decide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.agpr import SCORE_DECIMALS, top_rows
from projections.recall.forest_ranking import gather_leaves
from projections.recall.forest_recall import BEAM, LIGHT_BEAM, Browse, keep_best
from projections.recall.scoring import Leading

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.facts.scopes import Scope
    from projections.memtree.items import Item
    from projections.recall.forest_ranking import RecalledForest, Trees
    from projections.recall.forest_recall import Frontier
    from projections.recall.nodes import NodeSet
    from projections.recall.scoring import Scores
    from projections.recall.slab import Quantised
    from projections.recall.time_question import TimeQuestion

    Column = NDArray[np.float64]
    Rows = NDArray[np.intp]

# Texts of a level that a model is shown: with 240 characters each some 8,000 tokens. Ten trees of ten children.
TEXTS_MAX: Final = 120
# A leaf that a model puts first gains as much as the best score there is, one that it puts last a part of that: so
# its choice counts as much as words and vectors together, and what it left out may still answer.
CHOICE_WEIGHT: Final = 1.0


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """What a model ranks of a frontier: positions in it, tree by tree in the order of time; how many may go on.

    `may_all`: they are nodes, and no more than may go on, so that nobody has to be asked.
    """

    positions: Rows
    most: int
    may_all: bool


@dataclass(frozen=True, slots=True)
class Reached:
    """The memories that a way down came to, by id, and what a model gave those that it chose, 0 to 1."""

    ids: tuple[bytes, ...] = ()
    chosen: Mapping[bytes, float] = field(default_factory=dict[bytes, float])
    # How many leaves of each tree, and how many levels there were.
    leaves: Mapping[Scope, int] = field(default_factory=dict["Scope", int])
    levels: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Deepened:
    """What a model made of a question: what was reached; what to search for besides, with its vector where it has
    one; what time it is about."""

    reached: Reached
    again: str | None = None
    again_vector: NDArray[np.float32] | None = None
    time: TimeQuestion | None = None


class DeepBrowse:
    """One way down. It keeps numbers and ids, and nothing of a Memory."""

    def __init__(
        self, scores: Scores, trees: Trees, recalled: RecalledForest, *, is_filtered: bool = False
    ) -> None:
        """`scores` and `recalled` of the question, `trees` as they stood then. `is_filtered`: some rows may not
        answer."""
        self._scores, self._trees = scores, trees
        self._passing = _find_passing(trees, recalled) if is_filtered else None
        if self._passing is not None:
            some = self._passing.some
            recalled = replace(recalled, trees=[each for each in recalled.trees if some[each.place]])
        self._recalled = recalled
        self._way = Browse(trees.columns, [each.place for each in recalled.trees])
        self._chosen: dict[bytes, float] = {}
        self._looks_for: Mapping[int, Quantised] = {}

    def look_for(self, vectors: Mapping[int, Quantised]) -> None:
        """In some of the recalled trees, look for something else than the question."""
        self._looks_for = vectors

    @property
    def has_vectors(self) -> bool:
        """Whether vectors say what is near, and not words."""
        return self._trees.vectors is not None

    @property
    def done(self) -> bool:
        """Whether all ways are at their ends."""
        return self._way.done

    @property
    def roots(self) -> list[tuple[Scope, Item]]:
        """Where the recalled trees are entered, the best first."""
        columns = self._trees.columns
        return [(columns.scopes[each.tree], columns.item(each.place)) for each in self._recalled.trees]

    @property
    def readable_roots(self) -> list[bool]:
        """For each of these whether a model may be shown it."""
        places = np.array([each.place for each in self._recalled.trees], dtype=np.intp)
        readable: list[bool] = self._may_be_read(places).tolist()
        return readable

    def candidates(self) -> Candidates:
        """What a model ranks of this level."""
        frontier, columns = self._way.frontier, self._trees.columns
        values = self._values(frontier)
        kept = self._keep_best(frontier, values, BEAM)
        kept = kept[self._may_be_read(frontier.places[kept])]
        order = np.lexsort((frontier.places[kept], -np.round(values[kept], SCORE_DECIMALS)))
        # A fact stands in several trees, and so may what is made of the same ones: it is read once.
        first: dict[bytes, int] = {}
        for position in kept[order].tolist():
            first.setdefault(columns.item(int(frontier.places[position])).digest, position)
            if len(first) == TEXTS_MAX:
                break
        positions = np.sort(np.array(list(first.values()), dtype=np.intp))  # by tree, and in one by time
        leaves = int(frontier.is_leaf[positions].sum())
        most = BEAM * ((leaves > 0) + (leaves < positions.size))
        return Candidates(positions, most, may_all=not leaves and positions.size <= most)

    def locate(self, positions: Iterable[int]) -> list[tuple[int, Scope, Item]]:
        """Which recalled tree each position of the frontier is in, that tree, and the item."""
        columns, frontier = self._trees.columns, self._way.frontier
        found: list[tuple[int, Scope, Item]] = []
        for position in positions:
            tree = int(frontier.trees[position])
            scope = columns.scopes[self._recalled.trees[tree].tree]
            found.append((tree, scope, columns.item(int(frontier.places[position]))))
        return found

    def go_on(self, chosen: Sequence[int], most: int) -> None:
        """Go into these positions of the frontier, the best first, and into the best of what a model is not shown.
        Of none, into the best few by vectors."""
        frontier = self._way.frontier
        values = self._values(frontier)
        unread = self._keep_best(frontier, values, BEAM)
        unread = unread[~self._may_be_read(frontier.places[unread])]
        if not chosen:
            kept = self._keep_best(frontier, values, LIGHT_BEAM)
            order = np.lexsort((frontier.places[kept], -np.round(values[kept], SCORE_DECIMALS)))
            self._way.advance(np.union1d(kept[order[:LIGHT_BEAM]], unread))
            return
        for at, position in enumerate(chosen[:most]):
            if frontier.is_leaf[position] and (found := self._id_of(int(frontier.places[position]))) is not None:
                self._chosen[found] = max(self._chosen.get(found, 0.0), (most - at) / most)
        self._way.advance(np.union1d(np.array(chosen[:most], dtype=np.intp), unread))

    def go_on_by_vectors(self) -> None:
        """Go into the best of each tree, as without a model."""
        frontier = self._way.frontier
        self._way.advance(self._keep_best(frontier, self._values(frontier), self._trees.beam))

    def reached(self) -> Reached:
        """What was found, by ids that stay what they are whatever happens to the Memory."""
        places, of = self._way.reached()
        ids = {found for place in np.unique(places).tolist() if (found := self._id_of(place)) is not None}
        counts = np.bincount(of, minlength=len(self._recalled.trees)).tolist()
        leaves: dict[Scope, int] = {}
        for each, count in zip(self._recalled.trees, counts, strict=True):
            scope = self._trees.columns.scopes[each.tree]
            leaves[scope] = leaves.get(scope, 0) + count
        return Reached(tuple(sorted(ids)), dict(self._chosen), leaves, self._way.levels)

    def _values(self, frontier: Frontier) -> Column:
        """How near each is: as `rank_forest` has it, or to what is looked for in its tree."""
        vectors, columns = self._trees.vectors, self._trees.columns
        values = self._recalled.score(frontier.places)
        if vectors is None:
            return values
        shown = ~frontier.is_leaf
        if self._passing is not None:
            shown &= self._passing.some[frontier.places]
        inner = np.flatnonzero(shown)
        values[inner] = vectors.cosines(frontier.places[inner])
        slab = self._scores.view.slab
        for tree, query in self._looks_for.items():
            own = np.flatnonzero((frontier.trees == tree) & np.isfinite(values))
            nodes, leaves = own[~frontier.is_leaf[own]], own[frontier.is_leaf[own]]
            values[nodes] = replace(vectors, query=query).cosines(frontier.places[nodes])
            if slab is not None and leaves.size:
                values[leaves] = slab.cosines(columns.rows[frontier.places[leaves]], query)
        return values

    def _may_be_read(self, places: Rows) -> NDArray[np.bool_]:
        """Whether a model may be shown the texts at these places."""
        return np.ones(places.size, dtype=np.bool_) if self._passing is None else self._passing.all[places]

    def _keep_best(self, frontier: Frontier, values: Column, beam: int) -> Rows:
        kept = keep_best(frontier, values, beam)
        return kept[np.isfinite(values[kept])]

    def _id_of(self, place: int) -> bytes | None:
        row = int(self._trees.columns.rows[place])
        if row < 0 or not np.isfinite(self._recalled.by_row[row]):
            return None
        return bytes(self._scores.view.ids[row : row + 1].tobytes())


@dataclass(frozen=True, slots=True, eq=False)
class _Passing:
    """By place: whether some of the leaves below may answer, and whether all of them may; of a leaf the same."""

    some: NDArray[np.bool_]
    all: NDArray[np.bool_]


def _find_passing(trees: Trees, recalled: RecalledForest) -> _Passing:
    """What of these trees may answer."""
    columns = trees.columns
    passes, fails = np.full((2, columns.size), -np.inf)
    leaves = np.flatnonzero(columns.count == 0)
    may = (columns.rows[leaves] >= 0) & np.isfinite(recalled.by_row[columns.rows[leaves]])
    passes[leaves[may]], fails[leaves[~may]] = 0.0, 0.0
    return _Passing(np.isfinite(columns.best_below(passes)), ~np.isfinite(columns.best_below(fails)))


def rank_reached(
    nodes: NodeSet, scores: Scores, trees: Trees, recalled: RecalledForest, reached: Reached, count: int
) -> Leading:
    """The `count` best of what was reached and is still there, of facts that recalled trees, and of what stands in
    no tree: by s, and by a model's choice where there is one."""
    rest = gather_leaves(scores, trees, recalled, Browse(trees.columns, ()), count).leading.rows
    found = [nodes.row_of.get(each, -1) for each in reached.ids]
    rows = np.array([row for row in found if 0 <= row < scores.view.size], dtype=np.intp)
    rows = np.union1d(rows[np.isfinite(recalled.by_row[rows])], rest)
    leading = scores.measure(rows, rows.size)
    if reached.chosen and rows.size:
        names = scores.view.ids[leading.rows]
        given = [reached.chosen.get(bytes(names[at : at + 1].tobytes()), 0.0) for at in range(names.size)]
        best = max(float(leading.smoothed.max()), 0.0)
        gains = CHOICE_WEIGHT * best * np.array(given)
        leading = replace(leading, smoothed=leading.smoothed + gains, chosen=gains)
    return leading.take(top_rows(leading.smoothed, count, scores.view.ids[leading.rows]))


def join_leading(one: Leading, other: Leading, scores: Scores, count: int) -> Leading:
    """The `count` best of both, each row once with the better of its scores. Both are of one state of a Memory.

    What is found for the one question counts as much as what is found for the other, place by place: the first is
    not enough, as a model says, whatever it scores.
    """
    places = min(one.rows.size, other.rows.size)
    level = other.smoothed.copy()
    level[:places] = np.maximum(level[:places], one.smoothed[:places])
    cosine = None
    if one.cosine is not None and other.cosine is not None:
        cosine = np.concatenate((one.cosine, other.cosine))
    chosen = np.zeros(one.rows.size) if one.chosen is None else one.chosen
    both = Leading(
        rows=np.concatenate((one.rows, other.rows)),
        lexical=np.concatenate((one.lexical, other.lexical)),
        cosine=cosine,
        fused=np.concatenate((one.fused, other.fused)),
        smoothed=np.concatenate((one.smoothed, level)),
        chosen=np.concatenate((chosen, level - other.smoothed)),
    )
    order = np.lexsort((np.arange(both.rows.size), -both.smoothed, both.rows))
    first = np.r_[True, both.rows[order][1:] != both.rows[order][:-1]] if order.size else np.zeros(0, dtype=bool)
    kept = both.take(order[first])
    return kept.take(top_rows(kept.smoothed, count, scores.view.ids[kept.rows]))
