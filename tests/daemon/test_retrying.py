"""When a request is sent again: pauses, what Retry-After says, and a budget over all calls."""

from __future__ import annotations

import random

import pytest

from daemon.models.retrying import (
    PAUSE_MAX_S,
    RETRIES_SAVED_MAX,
    RETRY_AFTER_MAX_S,
    RetryBudget,
    choose_pause,
    read_retry_after,
)

# 2024-07-01T12:00:00Z
NOON = 1_719_835_200.0


@pytest.mark.parametrize(
    ("header", "wait_s"),
    [
        (None, None),
        ("1", 1.0),
        ("0", 0.0),
        ("1.5", 1.5),
        ("100", 100.0),
        ("86400", RETRY_AFTER_MAX_S),
        ("-1", None),
        ("soon", None),
        ("", None),
        ("nan", None),
        ("inf", None),
        ("Mon, 01 Jul 2024 12:00:07 GMT", 7.0),
        ("Mon, 01 Jul 2024 11:00:00 GMT", None),
        ("Mon, 99 Jul 2024 12:00:07 GMT", None),
    ],
)
def test_retry_after_is_seconds_or_a_date_and_nothing_else(header: str | None, wait_s: float | None) -> None:
    assert read_retry_after(header, NOON) == wait_s


def test_pauses_double_up_to_a_bound_and_chance_shortens_them() -> None:
    whole = [choose_pause(attempt, 1.0) for attempt in range(1, 9)]
    half = [choose_pause(attempt, 0.5) for attempt in range(1, 9)]

    assert whole == [0.25, 0.5, 1.0, 2.0, 4.0, 8.0, PAUSE_MAX_S, PAUSE_MAX_S]
    assert half == [pause / 2 for pause in whole]


def test_an_endpoint_where_all_fails_gets_a_fifth_more_requests_and_the_few_that_were_saved() -> None:
    budget, retries = RetryBudget(), 0
    for _ in range(1_000):
        budget.note_call()
        while budget.take():
            retries += 1

    assert 200 + RETRIES_SAVED_MAX - 1 <= retries <= 200 + RETRIES_SAVED_MAX


def test_calls_that_go_well_save_up_no_more_than_the_bound() -> None:
    budget = RetryBudget()
    for _ in range(10_000):
        budget.note_call()

    assert sum(budget.take() for _ in range(1_000)) == RETRIES_SAVED_MAX


def test_no_order_of_calls_and_retries_gets_more_than_the_share() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(50):
        budget, calls, retries = RetryBudget(), 0, 0
        for _ in range(chance.randrange(1, 500)):
            if chance.random() < 0.5:
                budget.note_call()
                calls += 1
            elif budget.take():
                retries += 1

            assert retries <= RETRIES_SAVED_MAX + 0.2 * calls + 1e-6
