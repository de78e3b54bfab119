"""What calls cost: by hand, and in whole billionths."""

from __future__ import annotations

import random
from fractions import Fraction

import pytest

from daemon.models.prices import Price, Prices

MINI = Price("mini", prompt=0.4, cached=0.1, completion=1.6)
MILLION = 1_000_000
# Billionths of a unit.
ONE = 1_000_000_000


@pytest.mark.parametrize(
    ("tokens", "cost_nano"),
    [
        ((MILLION, 0, 0), 400_000_000),
        ((MILLION, MILLION, 0), 100_000_000),
        ((0, 0, MILLION), 1_600_000_000),
        ((1, 0, 0), 400),
        ((1000, 600, 200), 400 * 400 + 600 * 100 + 200 * 1600),
        ((0, 0, 0), 0),
    ],
)
def test_prompt_cached_and_completion_tokens_have_a_price_each(
    tokens: tuple[int, int, int], cost_nano: int
) -> None:
    assert Prices((MINI,)).cost_nano("mini", *tokens) == cost_nano


def test_cached_tokens_without_a_price_of_their_own_cost_what_others_do() -> None:
    assert Prices((Price("m", prompt=2.0),)).cost_nano("m", MILLION, MILLION // 2, 0) == 2 * ONE
    assert Prices((Price("m", prompt=2.0, cached=0.0),)).cost_nano("m", MILLION, MILLION // 2, 0) == ONE


def test_a_model_without_a_price_costs_nothing_and_is_known_to_have_none() -> None:
    prices = Prices((MINI,))

    assert prices.cost_nano("mini-2025", MILLION, 0, MILLION) == 0
    assert Prices().cost_nano("mini", MILLION, 0, MILLION) == 0
    assert [prices.knows(name) for name in ("mini", "Mini", "mini-2025", "")] == [True, False, False, False]


@pytest.mark.parametrize(
    ("reported", "as_if"),
    [
        ((100, 200, 0), (100, 100, 0)),
        ((100, -5, 0), (100, 0, 0)),
        ((-3, 0, -3), (0, 0, 0)),
        ((-3, 2, 1), (0, 0, 1)),
    ],
)
def test_numbers_that_cannot_be_count_as_the_nearest_that_can(
    reported: tuple[int, int, int], as_if: tuple[int, int, int]
) -> None:
    prices = Prices((MINI,))

    assert prices.cost_nano("mini", *reported) == prices.cost_nano("mini", *as_if)


def test_a_fraction_of_a_billionth_is_rounded_once_and_not_for_each_token() -> None:
    tiny = Prices((Price("tiny", prompt=0.0001, completion=0.0001),))  # a tenth of a billionth a token

    assert tiny.cost_nano("tiny", 1, 0, 0) == 0
    assert tiny.cost_nano("tiny", 3, 0, 2) == 1
    assert tiny.cost_nano("tiny", 10 * MILLION, 0, 0) == MILLION


def test_costs_are_what_exact_fractions_say() -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(200):
        digits = [chance.randrange(10**6) for _ in range(3)]  # prices of four decimals
        price = Price("m", *(each / 10**4 for each in digits))
        cached, fresh, completion = (chance.randrange(200_000) for _ in range(3))
        exact = (
            Fraction(digits[0], 10**4) * fresh
            + Fraction(digits[1], 10**4) * cached
            + Fraction(digits[2], 10**4) * completion
        ) * 1000  # an amount per million tokens is a thousand times as many billionths a token

        found = Prices((price,)).cost_nano("m", fresh + cached, cached, completion)

        assert abs(found - exact) <= Fraction(1, 2), (price, fresh, cached, completion)


def test_a_thousand_million_calls_of_the_largest_kind_are_counted_exactly() -> None:
    dear = Prices((Price("dear", prompt=75.0, completion=150.0),))
    cost_nano = dear.cost_nano("dear", 10**15, 0, 10**15)

    assert cost_nano == 10**9 * (75 + 150) * ONE
