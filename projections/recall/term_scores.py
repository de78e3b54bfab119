"""Which words of a question which memories hold, and how much each of them says."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
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


class Holding:
    """Which memories hold which terms of a question; the terms are looked up once for all that is asked."""

    def __init__(self, nodes: NodeSet, terms: Iterable[str]) -> None:
        self._nodes = nodes
        self._numbers, self._holders = nodes.lexical.number(sorted(set(terms)))

    def share(self, rows: Sequence[int]) -> tuple[float, float]:
        """The share of the terms, rare ones counting more, that the best of some rows holds, and all of them do.

        A term that no node holds counts as one that a single node does: it may be another word for what was said.
        """
        weights = self._weigh()
        total = sum(weights)
        if not total:
            return 0.0, 0.0
        held = self._nodes.lexical.held(self._numbers, rows)
        best = max(sum(compress(weights, of_row)) for of_row in held)
        return best / total, sum(compress(weights, map(any, zip(*held, strict=True)))) / total

    def shares(self, rows: Iterable[int], holders_max: float) -> list[float]:
        """The share of the terms that each row holds, rare ones counting more; those of more holders not."""
        pairs = zip(self._weigh(), self._holders, strict=True)
        weights = [weight if held <= holders_max else 0.0 for weight, held in pairs]
        total = sum(weights) or 1.0
        return [sum(compress(weights, of_row)) / total for of_row in self._nodes.lexical.held(self._numbers, rows)]

    def _weigh(self) -> list[float]:
        # A handful of numbers: without numpy, as this is asked for every answer.
        counts = (max(each, 1) for each in self._holders)
        return [math.log1p((len(self._nodes) - count + 0.5) / (count + 0.5)) for count in counts]


def _weigh(nodes: int, holders: NDArray[np.float64]) -> NDArray[np.float64]:
    """BM25's idf without its constant factor; a term that nobody holds weighs most."""
    weights: NDArray[np.float64] = np.log1p((nodes - holders + 0.5) / (holders + 0.5))
    return weights
