"""Which ended states become one group: those of a chain, in order, in runs that stay as the chain goes on."""

from __future__ import annotations

import random

import pytest

from projections.eventtree.trajectories import TRAJECTORY_MAX, plan_trajectories
from projections.eventtree.units import make_group_id
from tests.builders import an_id

A, B, C, D, E = (an_id(letter) for letter in "abcde")


def test_the_ended_states_of_a_chain_are_one_group_in_their_order() -> None:
    assert plan_trajectories([[B, A, C], [D, E]]) == [(B, A, C), (D, E)]


def test_a_state_alone_is_no_group() -> None:
    assert plan_trajectories([[A], [], [B]]) == []


def test_what_stands_is_not_planned_and_one_more_state_plans_it_again() -> None:
    standing = {make_group_id((A, B))}

    assert plan_trajectories([[A, B]], standing) == []
    assert plan_trajectories([[A, B, C]], standing) == [(A, B, C)]


def test_a_cap_of_one_is_refused() -> None:
    with pytest.raises(ValueError, match="two states"):
        plan_trajectories([[A, B]], cap=1)


def test_a_chain_that_grows_leaves_full_runs_as_they_are() -> None:
    seed = 7
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(20):
        cap, states = chance.randrange(2, 9), [an_id(str(n)) for n in range(chance.randrange(30))]
        standing: set[bytes] = set()
        fused = 0
        for at in range(1, len(states) + 1):
            planned = plan_trajectories([states[:at]], standing, cap)
            fused += len(planned)
            assert len(planned) <= 1, "one call a state that ends"
            standing.update(map(make_group_id, planned))
        runs = [tuple(states[at : at + cap]) for at in range(0, len(states), cap)]

        assert {make_group_id(run) for run in runs if len(run) > 1} <= standing
        assert fused == sum(len(run) - 1 for run in runs)


def test_a_run_is_as_long_as_the_widest_group_that_was_measured() -> None:
    states = [an_id(str(n)) for n in range(20)]

    assert [len(run) for run in plan_trajectories([states])] == [TRAJECTORY_MAX, TRAJECTORY_MAX, 4]
