"""Which words of a question which memories hold, and how much each of them says."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress

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
    # A handful of numbers: without numpy, as this is asked for every answer.
    counts = [max(each, 1) for each in holders]
    weights = [math.log1p((len(nodes) - count + 0.5) / (count + 0.5)) for count in counts]
    total = sum(weights)
    if not total:
        return 0.0, 0.0
    best = max(sum(compress(weights, of_row)) for of_row in zip(*held, strict=True))
    return best / total, sum(compress(weights, map(any, held))) / total


def weigh_terms(
    nodes: NodeSet, terms: Sequence[str], rows: Sequence[int], holders_max: float
) -> NDArray[np.float64]:
    """The share of the terms that each row holds, rare ones counting more; without those that more nodes hold."""
    holders, held = nodes.lexical.held(tuple(sorted(set(terms))), rows)
    counts = np.array(holders, dtype=np.float64)
    weights = np.where(counts <= holders_max, _weigh(len(nodes), np.maximum(counts, 1.0)), 0.0)
    total = float(weights.sum())
    shares: NDArray[np.float64] = weights @ np.array(held, dtype=np.float64).reshape(len(holders), len(rows))
    return shares / total if total else shares


def _weigh(nodes: int, holders: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's idf without its constant factor; a term that nobody holds weighs most."""
    weights: NDArray[np.float64] = np.log1p((nodes - holders + 0.5) / (holders + 0.5))
    return weights
