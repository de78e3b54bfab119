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
    added nothing. `nodes`: how many there are to answer, which is how much the shares are worth. `whose`: how much
    more of the question is said of whom it names than of others, from -1 to 1; 0 when it names nobody.
    """

    best: float
    together: float
    nodes: int
    whose: float = 0.0


@dataclass(frozen=True, slots=True)
class Confidence:
    """From 0 to 1; `insufficient` says that the answer had better be "that was never said"."""

    value: float
    insufficient: bool


# A logistic regression on LoCoMo: the answerable questions against as many that have no answer, half of them about
# other people's lives under these names, half the data set's adversarial ones, which put one speaker's doings on
# the other. AUC on conversations it was not fitted on: .88 against the former, .71 against the latter (.56 by the
# shares alone; with a greater weight of `whose` .74, and .86 against the former).
_BIAS: Final = -2.3
_BEST: Final = 2.3
_TOGETHER: Final = 1.0
_WHOSE: Final = 1.5
# The shares of an answerable question on LoCoMo, and the nodes that outweigh them. In a memory of a few turns
# hardly any word of a question stands, answered or not, so each is taken for an ordinary one there.
_USUAL_BEST: Final = 0.75
_USUAL_TOGETHER: Final = 0.9
_USUAL_NODES: Final = 20
# By the shares alone 5 of 100 answerable questions are taken for unanswerable, and half of those about what was
# never said are found.
INSUFFICIENT_BELOW: Final = 0.288
# So much more is said of others: 2 more of 100 answerable ones, and 20 more of the adversarial.
OTHERS_MIN: Final = -0.5


def judge(evidence: Evidence | None) -> Confidence:
    """How sure an answer is; None is the evidence of an empty one."""
    if evidence is None:
        return Confidence(0.0, insufficient=True)
    trust = evidence.nodes / (evidence.nodes + _USUAL_NODES)
    best = _USUAL_BEST + trust * (evidence.best - _USUAL_BEST)
    together = _USUAL_TOGETHER + trust * (evidence.together - _USUAL_TOGETHER)
    whose = trust * evidence.whose
    shares = _BIAS + _BEST * best + _TOGETHER * together
    too_little = _sigmoid(shares) < INSUFFICIENT_BELOW
    return Confidence(_sigmoid(shares + _WHOSE * whose), insufficient=too_little or whose <= OTHERS_MIN)


def _sigmoid(weighed: float) -> float:
    return round(1 / (1 + math.exp(-weighed)), CONFIDENCE_DECIMALS)
