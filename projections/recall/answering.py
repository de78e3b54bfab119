"""From a question to the memories of an answer: prepare, score, rank, drop what is carried twice, fit.

Pure functions. `prepare` and `choose` read a NodeSet, `score_rows` only what `prepare` took of it: that one may
run in another thread while the fold goes on. Design 3.4, algorithms.md 3.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from events.envelope import REFERENCE_BYTES, Reference
from projections.recall.agpr import AgprParameters, RankedRow, rank_candidates
from projections.recall.ascribing import ascribe
from projections.recall.confidence import Confidence, Evidence, judge
from projections.recall.expanding import Related, expand
from projections.recall.filters import Filters, Passed, Sieve, passing_rows
from projections.recall.hits import Entries, Hits
from projections.recall.naming import named_shares
from projections.recall.nodes import NodeKind, NodeSet, View
from projections.recall.opening import Inside, Opening, outline_opened
from projections.recall.rows import Outline
from projections.recall.scoring import Context, Leading, Scores, score
from projections.recall.selecting import Ranked, Recalled, drop_carried, fit, put_first
from projections.recall.sessions import asks_of_many, score_sessions
from projections.recall.temporal import TimeStep, plan_time
from projections.recall.term_scores import Holding
from projections.recall.time_question import TimeQuestion
from projections.recall.tokens import query_terms

# An answer of k memories needs more ranked rows than k, since some carry the same turns.
ROWS_PER_MEMORY = 3
# Characters a token: what tokenizers of common models average on English prose.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """What is asked of a node set.

    `query_vector`: unit, None to go by words alone; `elsewhere`: those in other spaces, by number. `hidden`:
    sessions that must not be seen. With `characters_max` the answer is as long as fits, and at most `k`. `opens`:
    the groups that are shown by their members; with a time that is asked about all are.
    """

    question: str
    k: int
    parameters: AgprParameters
    query_vector: NDArray[np.float32] | None = None
    filters: Filters = field(default_factory=Filters)
    hidden: frozenset[Reference] = frozenset()
    characters_max: int | None = None
    elsewhere: Mapping[int, NDArray[np.float32]] = field(default_factory=dict[int, "NDArray[np.float32]"])
    opens: Callable[[bytes], bool] = lambda _: False
    # What the question asks of time, and the nodes that tell the states it asks for, those of the best one first.
    time: TimeQuestion | None = None
    told_by: tuple[tuple[bytes, ...], ...] = ()
    # Of groups that hold some of these facts no others are shown.
    told: frozenset[bytes] = frozenset()
    # Terms that count for those of the question.
    related: Related | None = None

    def is_opened(self, group: bytes) -> bool:
        """Whether a node is shown by its members, if it has any."""
        return self.filters.about is not None or self.opens(group)

    @property
    def candidates(self) -> int:
        """How many rows are ranked: L k, and at least so many that k are left when some carry the same turns."""
        return self.k * max(self.parameters.candidates_per_answer, ROWS_PER_MEMORY)

    @property
    def session_weight(self) -> float:
        """That of the parameters, and 0 for a question that is not about any one session."""
        return 0.0 if asks_of_many(self.question) else self.parameters.session_weight


@dataclass(frozen=True, slots=True)
class Prepared:
    """What a question needs of a node set as it stands; `rows` (ascending) may answer."""

    terms: tuple[str, ...]
    rows: NDArray[np.intp]
    passed: list[Passed]
    hits: Hits
    view: View
    context: Context
    time: TimeStep | None = None


@dataclass(frozen=True, slots=True)
class Recollection:
    """The memories of an answer, best first, and how they came about (`explaining` makes words of that).

    `leading` are the candidates by s, `rows` where they are, `ranked` (by v) counts in their places; `selected` is
    what was left of them before the budget; `inside` has the members of groups that are opened, nearest first.
    `narrowed`: those of these groups of which filters leave something out, so that only members may be shown.
    """

    memories: list[Recalled]
    confidence: Confidence
    prepared: Prepared
    leading: Leading
    rows: NDArray[np.intp]
    ranked: tuple[RankedRow, ...]
    selected: list[Ranked]
    inside: Mapping[bytes, tuple[Inside, ...]]
    narrowed: frozenset[bytes]


def recall(nodes: NodeSet, request: RecallRequest) -> Recollection:
    """The best k memories for a question, best first; with `characters_max` no more than fit.

    Deterministic: the same nodes and question give the same answer, to the last digit.
    """
    prepared = prepare(nodes, request)
    return choose(nodes, request, prepared, score_rows(prepared, request))


def prepare(nodes: NodeSet, request: RecallRequest) -> Prepared:
    """Filter, and look up the question's words."""
    rows, passed = passing_rows(nodes, request.filters, request.hidden)
    terms = tuple(query_terms(request.question))
    weighs = request.parameters.cosine_weight
    view = nodes.view(request.query_vector if weighs else None, request.elsewhere if weighs else {})
    entries = nodes.lexical.find(terms)
    more = None
    if request.related is not None:
        asked = frozenset(nodes.lexical.hash(terms))
        more = expand(nodes.lexical, nodes.session_table(), request.related, asked, nodes.size)
    context = _surround(nodes, request, entries, None if more is None else more.sessions)
    time = (
        None
        if request.time is None
        else plan_time(nodes, rows, request.time, request.question, request.told_by, context.named)
    )
    hits = nodes.lexical.weigh(entries)
    return Prepared(terms, rows, passed, hits if more is None else more.added_to(hits), view, context, time)


def score_rows(prepared: Prepared, request: RecallRequest) -> Leading:
    """The candidates by s = c minmax(cosine) + (1 - c) minmax(BM25) over the rows that may answer, smoothed."""
    scores = score_all(prepared, request)
    leading = scores.best(request.candidates)
    return leading if prepared.time is None else prepared.time.arrange(scores, leading, request.candidates)


def score_all(prepared: Prepared, request: RecallRequest) -> Scores:
    """The same for whoever chooses among the rows in another way."""
    view, hits, rows, parameters = prepared.view, prepared.hits, prepared.rows, request.parameters
    return score(view, hits, rows, parameters, request.candidates, prepared.context)


def choose(nodes: NodeSet, request: RecallRequest, prepared: Prepared, leading: Leading) -> Recollection:
    """Rank the candidates that are still there, and choose among them."""
    leading, rows = _still_there(nodes, request, prepared, leading)
    # All candidates, so that an explanation has them; the answer is chosen among the first of them.
    ranked = rank_candidates(
        leading.smoothed, nodes.said_at(rows), request.k, request.parameters, prepared.view.ids[leading.rows]
    )
    first = ranked[: request.k * ROWS_PER_MEMORY]
    outlines = nodes.outlines(rows[[each.row for each in first]])
    opening = Opening(nodes, prepared.terms, Sieve(nodes, request.filters), request.told)

    def look(node: bytes) -> tuple[Inside, ...]:
        is_opened = request.is_opened(node) or opening.sieve.leaves_out(node)
        return opening.look(node) if is_opened else ()

    inside = {each.id: look(each.id) for each in outlines if each.kind is NodeKind.GROUP}
    outlines = [outline_opened(each, inside.get(each.id, ())) for each in outlines]
    selected = _select(nodes, request, prepared, list(map(_as_ranked, outlines, first)))
    shown = selected[: request.k]
    shown_rows = [nodes.row_of[each.node.id] for each in shown]
    holding = Holding(nodes, prepared.terms)
    whose = ascribe(nodes, holding, rows, prepared.context.named)
    confidence = judge(Evidence(*holding.share(shown_rows), len(nodes), whose) if shown_rows else None)
    if request.characters_max is not None:
        shown = list(fit(shown, request.characters_max))
    found = nodes.nodes_at(shown_rows[: len(shown)])
    memories = [
        Recalled(node, each.score, each.similarity, each.propagation)
        for node, each in zip(found, shown, strict=True)
    ]
    for node in found:
        if node.kind is NodeKind.GROUP and node.id not in inside:  # what people said of facts comes unasked
            inside[node.id] = look(node.id)
    # Of what is shown alone: who tells of members reads what each of them says.
    opened = {node.id: inside[node.id] for node in found if inside.get(node.id)}
    narrowed = frozenset(filter(opening.sieve.leaves_out, opened))
    return Recollection(memories, confidence, prepared, leading, rows, ranked, selected, opened, narrowed)


def _as_ranked(outline: Outline, ranked: RankedRow) -> Ranked:
    return Ranked(outline, ranked.score, ranked.similarity, ranked.propagation)


def _surround(
    nodes: NodeSet, request: RecallRequest, entries: Entries, more: NDArray[np.float64] | None
) -> Context:
    """What the sessions and whom the question names say of the rows."""
    table, parameters = nodes.session_table(), request.parameters
    sessions = np.zeros(len(table.lengths))
    if weight := request.session_weight:
        sessions = weight * score_sessions(table, entries, more)
    named = named_shares(nodes, request.question) if parameters.entity_weight else None
    if named is not None:
        named = named * np.float32(parameters.entity_weight)
    return Context(table.of_row, sessions, named, table.runs)


def _still_there(
    nodes: NodeSet, request: RecallRequest, prepared: Prepared, leading: Leading
) -> tuple[Leading, NDArray[np.intp]]:
    """The candidates that nothing took away since they were scored, and the rows where they are now."""
    rows, ids = leading.rows, prepared.view.ids[leading.rows]
    # The rows of a memory that is compacted meanwhile may be fewer.
    if rows.size and (int(rows.max()) >= nodes.size or not (nodes.ties(rows) == ids).all()):
        names = ids.tobytes()  # one by one they would lose zero bytes at their ends
        starts = range(0, len(names), REFERENCE_BYTES)
        found = [nodes.row_of.get(names[start : start + REFERENCE_BYTES], -1) for start in starts]
        rows = np.array(found, dtype=np.intp)
        leading, rows = leading.take(np.flatnonzero(rows >= 0)), rows[rows >= 0]
    sieve = Sieve(nodes, request.filters)
    if not sieve.leaves_something and not request.hidden:
        return leading, rows
    kept = sieve.keep_groups(rows)
    if request.hidden and rows.size:
        kept &= nodes.shown(rows, request.hidden)
    return leading.take(np.flatnonzero(kept)), rows[kept]


def _select(nodes: NodeSet, request: RecallRequest, prepared: Prepared, ranked: list[Ranked]) -> list[Ranked]:
    """Without what others carry, and with what people said of facts in front."""
    rest = drop_carried(
        [memory for memory in ranked if not memory.node.stated], by_length=request.characters_max is not None
    )
    if not nodes.stated:
        return rest
    rows = prepared.rows
    # Not np.isin, which would sort all rows for each question.
    places = np.searchsorted(rows, [nodes.row_of[each] for each in nodes.stated]).tolist()
    stated = [
        node
        for node, place in zip(nodes.stated.values(), places, strict=True)
        if place < rows.size and rows[place] == nodes.row_of[node.id]
    ]
    return put_first([memory for memory in ranked if memory.node.stated], stated, rest)
