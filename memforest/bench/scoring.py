"""How an answer is scored against what is right, and how scores are summed up: pure, the standard library only.

Formulas are those that published figures were computed with, so that figures may be held beside each other; each
says whose it is. Chinese and Japanese, which no space divides, are compared sign by sign.
"""

from __future__ import annotations

import math
import random
import re
import string
import unicodedata
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Final

from memforest.bench.stemming import stem

# Resamples of an interval: the second digit of its ends is steady, and a table of a hundred cells takes seconds.
RESAMPLES: Final = 1_000
CONFIDENCE: Final = 0.95
# Han with its extensions, and kana: scripts that write no spaces.
_BY_SIGN: Final = "\u3005\u3007\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_SIGN = re.compile(f"[{_BY_SIGN}]")
# As nltk.word_tokenize cuts, which the evaluation of Mem0 uses: signs stand alone, "don't" is "do" and "n't",
# numbers and dotted or hyphened words stay whole.
_CUT = re.compile(
    rf"[{_BY_SIGN}]"
    rf"|(?:(?!n['’]t\b)[^\W{_BY_SIGN}])+(?:[-.,:/](?:(?!n['’]t\b)[^\W{_BY_SIGN}])+)*"
    r"|n['’]t\b|['’](?:s|m|d|ll|re|ve)\b|[^\w\s]"
)
_ARTICLES = re.compile(r"\b(?:a|an|the)\b")
_ARTICLES_AND = re.compile(r"\b(?:a|an|the|and)\b")
# What LoCoMo takes for "it was never said".
_NOT_SAID: Final = ("no information available", "not mentioned")


class LocomoKind(StrEnum):
    """The categories of LoCoMo's questions, in the order of their numbers from 1 on."""

    MULTI_HOP = "multi-hop"
    TEMPORAL = "temporal"
    OPEN_DOMAIN = "open-domain"
    SINGLE_HOP = "single-hop"
    ADVERSARIAL = "adversarial"


@dataclass(frozen=True, slots=True)
class Figure:
    """A mean with how many values it is of, and its bootstrap interval (`low`, `high`)."""

    mean: float
    n: int
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class Abstention:
    """How well it is known what was never said; None where nothing was abstained on, or nothing was to be."""

    precision: float | None
    recall: float | None


def normalise(text: str, *, drops_and: bool = False) -> str:
    """As SQuAD's evaluation compares (Rajpurkar et al. 2016): lower case, no punctuation, no articles, one space.

    `drops_and`: LoCoMo leaves out "and", too. Punctuation of any script goes.
    """
    lower = unicodedata.normalize("NFKC", text).lower()
    bare = "".join(sign for sign in lower if not _is_punctuation(sign))
    return " ".join((_ARTICLES_AND if drops_and else _ARTICLES).sub(" ", bare).split())


def words_of(text: str) -> list[str]:
    """The words of a text that is normalised; of scripts without spaces the signs."""
    return _SIGN.sub(r" \g<0> ", text).split()


def token_f1(answer: str, gold: str) -> float:
    """The harmonic mean of precision and recall over words, each as often as it stands there (SQuAD)."""
    return _f1(words_of(normalise(answer)), words_of(normalise(gold)))


def locomo_f1(answer: str, gold: str, kind: LocomoKind, *, abstained: bool = False) -> float:
    """The F1 of LoCoMo (Maharana et al. 2024; snap-research/locomo, task_eval/evaluation.py), words stemmed.

    Of a multi-hop question: the mean, over the parts of the gold between commas, of the best part of the answer.
    Of open-domain gold only what stands before a semicolon counts. An adversarial question is right (1) when the
    answer says so itself or was `abstained`, else wrong (0).
    """
    match kind:
        case LocomoKind.ADVERSARIAL:
            return float(abstained or any(each in answer.lower() for each in _NOT_SAID))
        case LocomoKind.MULTI_HOP:
            answers = [_stemmed(part) for part in answer.split(",")]
            golds = [_stemmed(part) for part in gold.split(",")]
            return math.fsum(max(_f1(each, part) for each in answers) for part in golds) / len(golds)
        case LocomoKind.OPEN_DOMAIN:
            return _f1(_stemmed(answer), _stemmed(gold.split(";")[0]))
        case _:
            return _f1(_stemmed(answer), _stemmed(gold))


def bleu1(answer: str, gold: str) -> float:
    """BLEU-1 with its brevity penalty (Papineni et al. 2002): how many words of the answer the gold has.

    As Mem0's evaluation computes it: nltk's sentence_bleu with weights (1, 0, 0, 0), lower case. Its smoothing
    (method 1) adds nothing to single words: without any in common nltk answers 0 before it smooths.
    """
    ours, theirs = _CUT.findall(answer.lower()), _CUT.findall(gold.lower())
    same = (Counter(ours) & Counter(theirs)).total()
    if not same:
        return 0.0
    penalty = 1.0 if len(ours) > len(theirs) else math.exp(1 - len(theirs) / len(ours))
    return penalty * same / len(ours)


def pass_at(k: int, n: int, right: int) -> float:
    """The chance that one of k answers is right, from n of which so many were: 1 - C(n - right, k) / C(n, k).

    The unbiased estimator of Chen et al. 2021 (Evaluating Large Language Models Trained on Code, equation 1).
    Raises ValueError unless 1 <= k <= n and 0 <= right <= n.
    """
    if not (1 <= k <= n and 0 <= right <= n):
        raise ValueError(f"pass@{k} of {n} answers, {right} right")
    return 1 - math.comb(n - right, k) / math.comb(n, k)


def figure_of(values: Sequence[float], *, seed: int = 0) -> Figure | None:
    """The mean and its percentile bootstrap interval (Efron 1979), by resampling questions; None of no values."""
    n = len(values)
    if not n:
        return None
    mean = math.fsum(values) / n
    if min(values) == max(values):
        return Figure(mean, n, mean, mean)
    chance = random.Random(seed)
    means = sorted(math.fsum(chance.choices(values, k=n)) / n for _ in range(RESAMPLES))
    tail = (1 - CONFIDENCE) / 2
    return Figure(mean, n, means[math.floor(tail * RESAMPLES)], means[math.ceil((1 - tail) * RESAMPLES) - 1])


def abstention_of(asked: Sequence[tuple[bool, bool]]) -> Abstention:
    """Over questions, each (whether it was abstained on, whether it could be answered)."""
    abstained = [answerable for was_abstained, answerable in asked if was_abstained]
    unanswerable = [was_abstained for was_abstained, answerable in asked if not answerable]
    rightly = sum(unanswerable)
    return Abstention(
        rightly / len(abstained) if abstained else None, rightly / len(unanswerable) if unanswerable else None
    )


def auroc(answerable: Sequence[float], unanswerable: Sequence[float]) -> float | None:
    """The chance that a question with an answer has the greater confidence than one without, ties half.

    The area under the ROC curve as Mann and Whitney's U, from ranks; None where one of the two is missing.
    """
    if not answerable or not unanswerable:
        return None
    ranked = sorted([(value, True) for value in answerable] + [(value, False) for value in unanswerable])
    below, wins = 0, 0.0
    for _, tied in groupby(ranked, key=lambda each: each[0]):
        signs = [has_answer for _, has_answer in tied]
        has, has_none = sum(signs), len(signs) - sum(signs)
        wins += has * (below + has_none / 2)
        below += has_none
    return wins / (len(answerable) * len(unanswerable))


def _f1(ours: Sequence[str], theirs: Sequence[str]) -> float:
    same = (Counter(ours) & Counter(theirs)).total()
    return 2 * same / (len(ours) + len(theirs)) if same else 0.0


def _stemmed(text: str) -> list[str]:
    return [stem(word) for word in words_of(normalise(text, drops_and=True))]


def _is_punctuation(sign: str) -> bool:
    return sign in string.punctuation or unicodedata.category(sign).startswith("P")
