"""The numbers of EventTree: presets, policies of users, and what is refused."""

from __future__ import annotations

import math

import pytest

from events.errors import InvalidInput
from events.eventtree import Policy
from events.memory import FactRole
from projections.eventtree.parameters import EventTreeParameters, one_cap, whole_ceil


def test_counts_are_those_of_decimal_arithmetic() -> None:
    # In binary .07 * 100 and (1 - .7) * 10 lie just above 7 and 3.
    assert whole_ceil(0.07 * 100) == 7
    assert EventTreeParameters(alpha=0.07).unit_count(100) == 7
    assert EventTreeParameters(ratio=0.7).live_target(10) == 3


def test_the_cap_is_that_of_the_next_listed_ratio() -> None:
    caps = [EventTreeParameters(ratio=ratio).member_cap for ratio in (0.1, 0.3, 0.4, 0.5, 0.7, 0.9)]

    assert caps == [2, 2, 3, 3, 5, 5]


def test_one_cap_counts_at_every_ratio_and_none_is_no_cap() -> None:
    caps = [EventTreeParameters(ratio=ratio, member_caps=one_cap(8)).member_cap for ratio in (0.1, 0.5, 0.999)]

    assert caps == [8, 8, 8]
    assert EventTreeParameters(member_caps=one_cap(0)).member_cap is None


def test_a_policy_counts_where_it_says_something() -> None:
    configured = EventTreeParameters(ratio=0.3, time_bonus=1, min_age_s=60, never_merged=(FactRole.PLAN,))
    policy = Policy(False, 700, 4, 250, 0, (FactRole.STATE, FactRole.PREFERENCE))
    changed = configured.with_policy(policy)

    assert configured.with_policy(Policy()) == configured
    assert (changed.online, changed.ratio, changed.member_cap, changed.time_bonus) == (False, 0.7, 4, 0.25)
    assert (changed.min_age_s, changed.never_merged) == (0, (FactRole.STATE, FactRole.PREFERENCE))
    assert configured.with_policy(Policy(member_cap=0)).member_cap is None


def test_no_policy_makes_more_of_the_preset_of_the_paper() -> None:
    paper = EventTreeParameters(preset="paper").with_policy(Policy(online=True, member_cap=3, ratio=700))

    assert (paper.online, paper.member_cap, paper.ratio) == (False, None, 0.7)


def test_a_policy_out_of_range_is_refused() -> None:
    with pytest.raises(InvalidInput, match=r"eventtree\.ratio"):
        EventTreeParameters().with_policy(Policy(ratio=1000))


def test_the_preset_of_the_paper_has_neither_caps_nor_bonus_and_a_quota_of_every_unit() -> None:
    paper = EventTreeParameters(preset="paper")

    assert (paper.member_cap, paper.time_bonus, paper.budget) == (None, 0.0, "unit")
    assert (paper.alpha, paper.beta, paper.window, paper.eta) == (0.05, 0.8, 5, 0.99)


@pytest.mark.parametrize(
    "wrong",
    [
        {"alpha": 0},
        {"beta": 1.1},
        {"window": -1},
        {"eta": 2},
        {"ratio": 1},
        {"time_bonus": math.nan},
        {"member_caps": ((50, 0),)},
        {"preset": "other"},
        {"budget": "other"},
        {"unit_cap": 1},
        {"reassign": -1},
        {"overgrown": 0.9},
        {"slack": math.inf},
        {"min_age_s": -1},
    ],
)
def test_a_parameter_out_of_range_is_named(wrong: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match=f"eventtree.{next(iter(wrong))}"):
        EventTreeParameters(**wrong)  # type: ignore[arg-type] # wrong on purpose
