"""How sure an answer can be that it has what was asked for, from 0 to 1, and whether that is too little.

A memory always has something to show; a question about what was never said finds the words that it shares with
other talk. What tells the two apart is how much of the question its best memories hold.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final

CONFIDENCE_DECIMALS: Final = 3


@dataclass(frozen=True, slots=True)
class Evidence:
    """What is known of an answer before anybody reads it; both shares between 0 and 1.

    `best`, `together`: the share of the question's words, rare ones counting more, that the best memory and
    all memories hold. Cosines have no say: each model has a scale of its own, and on what was measured they
    added nothing. `nodes`: how many there are to answer, which is how much the shares are worth.
    """

    best: float
    together: float
    nodes: int


@dataclass(frozen=True, slots=True)
class Confidence:
    """From 0 to 1; `insufficient` says that the answer had better be "that was never said"."""

    value: float
    insufficient: bool


# A logistic regression on LoCoMo: the answerable questions against as many that have no answer, half of them about
# other people's lives under these names, half the data set's adversarial ones, which put one speaker's doings on
# the other. AUC on conversations it was not fitted on: .89 against the former, .57 against the latter.
_BIAS: Final = -2.3
_BEST: Final = 2.3
_TOGETHER: Final = 1.0
# The shares of an answerable question on LoCoMo, and the nodes that outweigh them. In a memory of a few turns
# hardly any word of a question stands, answered or not, so each is taken for an ordinary one there.
_USUAL_BEST: Final = 0.75
_USUAL_TOGETHER: Final = 0.9
_USUAL_NODES: Final = 20
# Takes 5 of 100 answerable questions for unanswerable, and finds half of those about what was never said; words
# alone do not tell who did what.
INSUFFICIENT_BELOW: Final = 0.288


def judge(evidence: Evidence | None) -> Confidence:
    """How sure an answer is; None is the evidence of an empty one."""
    if evidence is None:
        return Confidence(0.0, insufficient=True)
    trust = evidence.nodes / (evidence.nodes + _USUAL_NODES)
    best = _USUAL_BEST + trust * (evidence.best - _USUAL_BEST)
    together = _USUAL_TOGETHER + trust * (evidence.together - _USUAL_TOGETHER)
    weighed = _BIAS + _BEST * best + _TOGETHER * together
    value = round(1 / (1 + math.exp(-weighed)), CONFIDENCE_DECIMALS)
    return Confidence(value, insufficient=value < INSUFFICIENT_BELOW)
