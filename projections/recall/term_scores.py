"""Which words of a question which memories hold, and how much each of them says."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from projections.recall.nodes import NodeSet


@dataclass(frozen=True, slots=True)
class TermScores:
    """Of each distinct term of a question, sorted: its BM25 in each of some rows, shape (terms, rows).

    `weights` say how rare a term is (its idf), `holders` in how many nodes it stands.
    """

    terms: tuple[str, ...]
    weights: NDArray[np.float64]
    holders: tuple[int, ...]
    scores: NDArray[np.float64]


def score_terms(nodes: NodeSet, terms: Sequence[str], rows: Sequence[int]) -> TermScores:
    """The share of each term in the BM25 of each row."""
    distinct = tuple(sorted(set(terms)))
    holders, scores = nodes.lexical.shares(distinct, rows)
    weights = _weigh(len(nodes), np.array(holders, dtype=np.float64))
    return TermScores(distinct, weights, tuple(holders), scores)


def weigh_held(nodes: NodeSet, terms: Sequence[str], rows: Sequence[int]) -> tuple[float, float]:
    """The share of the terms, rare ones counting more, that the best of some rows holds, and all of them do.

    A term that no node holds counts as one that a single node does: it may be another word for what was said.
    """
    holders, held = nodes.lexical.held(tuple(sorted(set(terms))), rows)
    weights = _weigh(len(nodes), np.maximum(np.array(holders, dtype=np.float64), 1))
    total = float(weights.sum())
    if not total:
        return 0.0, 0.0
    by_row = (weights[:, None] * held).sum(axis=0)
    return float(by_row.max()) / total, float((weights * held.any(axis=1)).sum()) / total


def _weigh(nodes: int, holders: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's idf without its constant factor; a term that nobody holds weighs most."""
    weights: NDArray[np.float64] = np.log1p((nodes - holders + 0.5) / (holders + 0.5))
    return weights
