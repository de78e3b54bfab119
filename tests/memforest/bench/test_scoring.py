"""Scores by hand, by brute force, and as the published evaluations have them."""

from __future__ import annotations

import math
import random
from itertools import combinations

import pytest

from memforest.bench.scoring import (
    Abstention,
    Figure,
    LocomoKind,
    abstention_of,
    auroc,
    bleu1,
    figure_of,
    locomo_f1,
    pass_at,
    token_f1,
)

SINGLE, MULTI, OPEN = LocomoKind.SINGLE_HOP, LocomoKind.MULTI_HOP, LocomoKind.OPEN_DOMAIN


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("7 May 2023", "7 May 2023", 1.0),
        # Both words are right, and one is missing: the brevity penalty of 2 words for 3.
        ("the cat", "The cat sat", math.exp(1 - 3 / 2)),
        # "a" counts as often as the gold has it: 2 of 4.
        ("a a a b", "a b c", 2 / 4),
        # Signs are words of their own for nltk: "oslo", "," and "norway" of "oslo".
        ("Oslo, Norway", "Oslo", 1 / 3),
        # "don" is no part of "do" and "n't".
        ("I don't", "I do", 2 / 3),
        ("Bergen", "Oslo", 0.0),
        ("", "Oslo", 0.0),
        # Five signs, two of them right, none missing.
        ("她搬到北京", "北京", 2 / 5),
    ],
)
def test_bleu_1_counts_clipped_words_with_the_brevity_penalty(answer: str, gold: str, score: float) -> None:
    assert bleu1(answer, gold) == pytest.approx(score)


@pytest.mark.parametrize(
    ("answer", "gold", "score"),
    [
        ("the brown dog", "a dog", 2 / 3),  # brown, dog against dog
        ("no, no, no", "no", 2 / 4),
        ("U.S.A.", "usa", 1.0),
        ("Dogs", "dog", 0.0),
        ("she moved to Oslo", "Oslo", 2 / 5),
        ("她搬到北京。", "北京", 4 / 7),
        ("東京です", "東京", 4 / 6),
        ("", "", 0.0),
    ],
)
def test_f1_is_over_words_once_case_articles_and_punctuation_are_gone(
    answer: str, gold: str, score: float
) -> None:
    assert token_f1(answer, gold) == pytest.approx(score)


@pytest.mark.parametrize(
    ("kind", "answer", "gold", "score"),
    [
        (SINGLE, "dogs and cats", "a dog, the cat", 1.0),  # stemmed, without "and"
        (LocomoKind.TEMPORAL, "May 2023", "7 May 2023", 4 / 5),
        # Each part of the gold finds its best part of the answer: none, "running", "painting".
        (MULTI, "painting, running", "pottery, running, paintings", 2 / 3),
        # Of one kind that is not split: painting, running of pottery, running, paint: 2 of 2 and of 3.
        (SINGLE, "painting, running", "pottery, running, paintings", 4 / 5),
        (OPEN, "Likely no", "Likely no; she wants to be a counselor", 1.0),
        (LocomoKind.ADVERSARIAL, "It is not mentioned.", "", 1.0),
        (LocomoKind.ADVERSARIAL, "No information available", "", 1.0),
        (LocomoKind.ADVERSARIAL, "A necklace", "", 0.0),
    ],
)
def test_locomo_scores_each_kind_of_question_by_its_own_rule(
    kind: LocomoKind, answer: str, gold: str, score: float
) -> None:
    assert locomo_f1(answer, gold, kind) == pytest.approx(score)


def test_an_answer_that_was_abstained_is_right_of_an_adversarial_question() -> None:
    assert locomo_f1("", "", LocomoKind.ADVERSARIAL, abstained=True) == 1.0


def test_pass_at_k_is_the_share_of_draws_that_hold_a_right_answer() -> None:
    for n in range(1, 7):
        for right in range(n + 1):
            for k in range(1, n + 1):
                draws = list(combinations(range(n), k))
                share = sum(any(each < right for each in draw) for draw in draws) / len(draws)

                assert pass_at(k, n, right) == pytest.approx(share), (k, n, right)
    assert pass_at(2, 4, 1) == pytest.approx(0.5)  # by hand: 1 - C(3, 2) / C(4, 2)


@pytest.mark.parametrize(("k", "n", "right"), [(0, 3, 1), (4, 3, 1), (1, 3, 4), (1, 3, -1)])
def test_pass_at_k_of_what_cannot_be_raises(k: int, n: int, right: int) -> None:
    with pytest.raises(ValueError, match=f"pass@{k}"):
        pass_at(k, n, right)


def test_an_interval_is_that_of_the_mean_and_the_same_each_time() -> None:
    values = [1.0] * 60 + [0.0] * 40
    figure = figure_of(values)
    assert figure is not None

    # By the normal approximation 1.96 sqrt(.6 x .4 / 100) = .096 to either side.
    assert (figure.mean, figure.n) == (0.6, 100)
    assert figure.low == pytest.approx(0.6 - 0.096, abs=0.02)
    assert figure.high == pytest.approx(0.6 + 0.096, abs=0.02)
    assert figure_of(values) == figure
    assert figure_of(values, seed=1) != figure


def test_what_does_not_vary_has_no_width_and_what_was_not_measured_is_none() -> None:
    assert figure_of([0.25] * 9) == Figure(0.25, 9, 0.25, 0.25)
    assert figure_of([]) is None


def test_auroc_is_the_share_of_pairs_in_which_the_answerable_one_is_surer() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(50):
        with_answer = [chance.randrange(6) / 5 for _ in range(chance.randrange(1, 12))]
        without = [chance.randrange(6) / 5 for _ in range(chance.randrange(1, 12))]
        wins = sum((one > other) + (one == other) / 2 for one in with_answer for other in without)

        assert auroc(with_answer, without) == pytest.approx(wins / len(with_answer) / len(without))
    assert auroc([0.9, 0.8], [0.1, 0.8]) == 0.875  # by hand: 1, 1, 1 and one half of four
    assert auroc([0.9], []) is None


def test_abstention_is_judged_on_what_was_abstained_and_on_what_was_to_be() -> None:
    # Abstained on three, of which two are without an answer; four are.
    asked = [(True, False), (True, False), (True, True), (False, False), (False, False), (False, True)]

    assert abstention_of(asked) == Abstention(2 / 3, 2 / 4)
    assert abstention_of([(False, True)]) == Abstention(None, None)
