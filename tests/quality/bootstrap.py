"""Whether one method finds more than another: a paired bootstrap over the questions (Efron 1979)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
from numpy.typing import NDArray

DRAWS: Final = 10_000
SEED: Final = 7
# Counts of the drawn questions for so many draws at once: 12 MB at 760 questions.
_BLOCK: Final = 2_000


@dataclass(frozen=True, slots=True)
class Difference:
    """Ours less theirs: the mean over the questions, its 95 % interval, and the two-sided p."""

    mean: float
    low: float
    high: float
    p: float


def compare_paired(
    ours: NDArray[np.float64], theirs: NDArray[np.float64], draws: int = DRAWS, seed: int = SEED
) -> Difference:
    """Draw the questions with replacement and look at how the mean difference moves.

    Both are (questions,), one score a question; several seeds of a method are averaged before. p counts the
    draws on the other side of 0 (and those at 0), one added, so that it is never 0. Raises `ValueError` when the
    lengths differ or there is no question.
    """
    if ours.shape != theirs.shape or not ours.size:
        raise ValueError("one score a question for both, and at least one question")
    differences = ours - theirs
    means = drawn_counts(len(differences), draws, seed) @ differences.astype(np.float32) / len(differences)
    low, high = np.quantile(means, (0.025, 0.975)).tolist()
    # On a grid: draws of a difference of nothing are to be exactly 0.
    means = np.rint(means * 1e6)
    other_side = min(int((means <= 0).sum()), int((means >= 0).sum()))
    return Difference(float(differences.mean()), low, high, min(1.0, 2 * (other_side + 1) / (draws + 1)))


@lru_cache(maxsize=2)
def drawn_counts(questions: int, draws: int, seed: int) -> NDArray[np.float32]:
    """How often each question is drawn, (draws, questions); the same draws serve every comparison of a run."""
    random = np.random.default_rng(seed)
    even = np.full(questions, 1 / questions)
    blocks = [
        random.multinomial(questions, even, size=min(_BLOCK, draws - start)).astype(np.float32)
        for start in range(0, draws, _BLOCK)
    ]
    return np.concatenate(blocks)
