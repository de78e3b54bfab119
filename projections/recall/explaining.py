"""How an answer came about: every candidate with its scores, and why it is shown or not. No texts.

Made from what `recall` leaves behind, so that asking for it changes no answer.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projections.recall.agpr import SCORE_DECIMALS, AgprParameters
from projections.recall.answering import RecallRequest, Recollection
from projections.recall.filters import Passed, Sieve
from projections.recall.nodes import NodeSet, SearchNode
from projections.recall.opening import Opening
from projections.recall.selecting import Ranked
from projections.recall.term_scores import TermScores, score_terms
from projections.recall.tokens import query_terms

# An answer of 200 memories has 800 candidates; nobody reads them all.
CANDIDATES_MAX = 200


@dataclass(frozen=True, slots=True)
class AskedWord:
    """A word of the question, the terms it is searched as, in how many nodes they stand, and how rare they are."""

    word: str
    nodes: int
    weight: float


@dataclass(frozen=True, slots=True)
class Candidate:
    """A node that came near: how it scored, and what became of it.

    `bm25_by_word`: only words of the question. `similarity` is s = (fused + smoothing + session) (1 + named) +
    time + chosen: what words and vectors say, what its neighbours and its session add, by what share it grows for
    whom it names, what the time in the question adds, and what a model's choice does. `score` is v.
    `rank_before`: by v among the candidates, from 1; `rank`: in the answer, None when `dropped`, which is
    `carried` (by those with the ids `carried_by`), `rank` (k better ones) or `budget` (max_tokens).
    """

    node: SearchNode
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
    carried_by: tuple[bytes, ...]
    time: float = 0.0
    chosen: float = 0.0


@dataclass(frozen=True, slots=True)
class Explained:
    """Words of the question, what each filter left, and the candidates by rank; `left_off` more are not shown."""

    words: list[AskedWord]
    filters: list[Passed]
    candidates: list[Candidate]
    left_off: int


def explain(nodes: NodeSet, request: RecallRequest, found: Recollection) -> Explained:
    """The explanation of an answer that `recall` gave to this request."""
    ranked = found.ranked[:CANDIDATES_MAX]
    rows = found.rows[[each.row for each in ranked]].tolist()
    words = _words_of(request.question)
    by_term = score_terms(nodes, found.prepared.terms, rows)
    anchors = _count_anchors(request.k, request.parameters)
    leading = found.leading
    sessions, named = _surroundings(found)
    timed = np.zeros(leading.rows.size) if leading.timed is None else leading.timed
    chosen = np.zeros(leading.rows.size) if leading.chosen is None else leading.chosen
    candidates: list[Candidate] = []
    opening = Opening(nodes, found.prepared.terms, Sieve(nodes, request.filters), request.told)
    narrowed = map(opening.narrow, nodes.nodes_at(rows))
    for place, (each, node) in enumerate(zip(ranked, narrowed, strict=True)):
        rank, dropped, carried_by = _fate(node, found, request.k)
        candidates.append(
            Candidate(
                node=node,
                bm25=_rounded(leading.lexical[each.row]),
                bm25_by_word=_by_word(words, by_term, place),
                cosine=None if leading.cosine is None else _rounded(leading.cosine[each.row]),
                fused=_rounded(leading.fused[each.row]),
                smoothing=_rounded(
                    (leading.smoothed[each.row] - timed[each.row] - chosen[each.row]) / (1 + named[each.row])
                    - leading.fused[each.row]
                    - sessions[each.row]
                ),
                session=_rounded(sessions[each.row]),
                named=_rounded(named[each.row]),
                similarity=each.similarity,
                anchor=each.row < anchors,
                propagation=each.propagation,
                score=each.score,
                rank_before=place + 1,
                rank=rank,
                dropped=dropped,
                carried_by=carried_by,
                time=_rounded(timed[each.row]),
                chosen=_rounded(chosen[each.row]),
            )
        )
    return Explained(_ask(words, by_term), found.prepared.passed, candidates, len(found.ranked) - len(ranked))


def _surroundings(found: Recollection) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """What the session of each candidate adds, and by what share each grows for whom it names."""
    context, rows = found.prepared.context, found.leading.rows
    sessions = context.sessions.take(context.session_of[rows]).astype(np.float64)
    named = np.zeros(rows.size) if context.named is None else context.named[rows].astype(np.float64)
    return sessions, named


def _count_anchors(k: int, parameters: AgprParameters) -> int:
    """The anchors are the first ceil(lambda k) candidates by s."""
    return math.ceil(round(parameters.anchor_share * k, 9))


def _fate(node: SearchNode, found: Recollection, k: int) -> tuple[int | None, str | None, tuple[bytes, ...]]:
    """The rank in the answer, or why there is none and which memories of the answer carry its turns instead."""
    place = _place_of(node, found.selected)
    if place is not None and place < len(found.memories):
        return place + 1, None, ()
    if place is not None:
        return None, "rank" if place >= k else "budget", ()
    turns = set(node.turns)
    carriers = [each.node for each in found.selected if not turns.isdisjoint(each.node.turns)]
    # Beyond the depth that is chosen from, a part of its turns may be in the answer, too: that carries nothing.
    if node.stated or not turns.issubset(turn for each in carriers for turn in each.turns):
        return None, "rank", ()
    return None, "carried", tuple(each.id for each in carriers)


def _place_of(node: SearchNode, memories: Sequence[Ranked]) -> int | None:
    return next((place for place, each in enumerate(memories) if each.node.id == node.id), None)


def _words_of(question: str) -> dict[str, tuple[str, ...]]:
    """The question's own words with the terms they are searched as; a term is that of the first word with it."""
    words: dict[str, tuple[str, ...]] = {}
    known: set[str] = set()
    for word in question.split():
        terms = tuple(term for term in dict.fromkeys(query_terms(word)) if term not in known)
        known.update(terms)
        if terms:
            words[word.strip(".,;:!?\"'()[]")] = terms
    return words


def _by_word(words: dict[str, tuple[str, ...]], found: TermScores, place: int) -> dict[str, float]:
    """BM25 of a candidate by the question's words, those that it holds."""
    share = dict(zip(found.terms, found.scores[:, place].tolist(), strict=True))
    by_word = {word: _rounded(sum(share.get(term, 0.0) for term in terms)) for word, terms in words.items()}
    return {word: score for word, score in by_word.items() if score}


def _ask(words: dict[str, tuple[str, ...]], found: TermScores) -> list[AskedWord]:
    holders = dict(zip(found.terms, found.holders, strict=True))
    weights = dict(zip(found.terms, found.weights.tolist(), strict=True))
    return [
        AskedWord(
            word,
            max((holders.get(term, 0) for term in terms), default=0),
            _rounded(max((weights.get(term, 0.0) for term in terms), default=0.0)),
        )
        for word, terms in words.items()
    ]


def _rounded(score: float) -> float:
    return round(float(score), SCORE_DECIMALS)
