"""The alarm over chunks in which a model found nothing: when it comes, when it stays away, when it ends."""

from __future__ import annotations

import random

import pytest

from daemon.zero_facts import ZeroFacts, count_zero_facts, describe, is_rising


@pytest.mark.parametrize(
    ("found", "rising"),
    [
        (ZeroFacts(), False),
        (ZeroFacts(recent=19, recent_zero=19), False),
        (ZeroFacts(recent=20, recent_zero=20), True),
        (ZeroFacts(recent=20, recent_zero=10), False),
        (ZeroFacts(recent=20, recent_zero=11), True),
        (ZeroFacts(recent=100, recent_zero=50), False),
        (ZeroFacts(recent=100, recent_zero=51), True),
        # More than half is too much, however it was before.
        (ZeroFacts(100, 51, before=1000, before_zero=900), True),
    ],
)
def test_more_than_half_of_at_least_20_answers_without_facts_is_an_alarm(found: ZeroFacts, rising: bool) -> None:
    assert is_rising(found) is rising


@pytest.mark.parametrize(
    ("found", "rising"),
    [
        (ZeroFacts(100, 31, before=1000, before_zero=150), True),
        (ZeroFacts(100, 31, before=1000, before_zero=160), False),
        (ZeroFacts(100, 30, before=1000, before_zero=0), False),
        (ZeroFacts(100, 31, before=1000, before_zero=0), True),
        (ZeroFacts(100, 45, before=1000, before_zero=300), False),
        # Too few answers before to tell what is usual.
        (ZeroFacts(100, 31, before=99, before_zero=0), False),
        (ZeroFacts(100, 31, before=100, before_zero=0), True),
        (ZeroFacts(19, 9, before=1000, before_zero=0), False),
    ],
)
def test_above_30_percent_twice_what_is_usual_is_an_alarm(found: ZeroFacts, rising: bool) -> None:
    assert is_rising(found) is rising


@pytest.mark.parametrize(("zero", "rising"), [(51, True), (50, True), (41, True), (40, False), (0, False)])
def test_an_alarm_ends_a_little_below_where_it_began(zero: int, rising: bool) -> None:
    assert is_rising(ZeroFacts(100, zero), was_rising=True) is rising


def test_what_falls_never_begins_an_alarm_that_a_higher_share_did_not() -> None:
    """Over random histories: fewer empty answers among the last never make it worse."""
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    for _ in range(2000):
        recent, before = chance.randrange(0, 101), chance.randrange(0, 400)
        zero, before_zero = chance.randint(0, recent), chance.randint(0, before)
        was = chance.random() < 0.5
        now = is_rising(ZeroFacts(recent, zero, before, before_zero), was)
        fewer = is_rising(ZeroFacts(recent, max(0, zero - 1), before, before_zero), was)

        assert now or not fewer, (recent, zero, before, before_zero, was)


def test_the_last_answers_are_taken_out_of_the_long_run() -> None:
    found = count_zero_facts([True] * 30 + [False] * 70, answers=500, zero=50)

    assert found == ZeroFacts(recent=100, recent_zero=30, before=400, before_zero=20)
    assert (found.share, found.share_before) == (0.3, 0.05)


def test_nothing_is_no_share() -> None:
    assert (ZeroFacts().share, ZeroFacts().share_before) == (None, None)
    assert ZeroFacts(10, 5).share == 0.5


def test_the_sentence_says_how_much_and_where_to_look() -> None:
    alone, risen = describe(ZeroFacts(40, 30)), describe(ZeroFacts(100, 40, before=200, before_zero=10))

    assert "30 of the last 40 chunks" in alone
    assert "before" not in alone
    assert "40 of the last 100 chunks, 5% before" in risen
    for place in ("models.chat_model", "models.chat_json", "memforestd doctor", "memforest replay"):
        assert place in risen
