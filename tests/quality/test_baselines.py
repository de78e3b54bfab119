"""Each baseline and ablation on cases small enough to be worked out by hand."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations, product

import numpy as np
import pytest

from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.ports import Vectors
from tests.quality.ablations import (
    all_pairs,
    maximum_tree,
    merge_along,
    minimum_tree,
    pick_best,
    pick_randomly,
    units_of_windows,
)
from tests.quality.bootstrap import compare_paired
from tests.quality.merging_baselines import merge_evenly, merge_halves, merge_neighbours, merge_randomly
from tests.quality.pruning import (
    farthest_first,
    kept_count,
    prune_by_graph,
    prune_by_kmeans,
    prune_by_pivots,
    prune_randomly,
    shares,
)

SEED = 20_261_130
PAPER = EventTreeParameters(preset="paper")
DEFAULT = EventTreeParameters()


def at_degrees(*degrees: float) -> Vectors:
    """Unit rows in the plane; the cosine of two is that of the angle between them."""
    angles = np.deg2rad(np.array(degrees, dtype=np.float64))
    rows: Vectors = np.stack((np.cos(angles), np.sin(angles)), axis=1).astype(np.float32)
    return rows


def random_rows(count: int, seed: int) -> Vectors:
    rows = np.random.default_rng(seed).normal(size=(count, 8))
    unit: Vectors = (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)
    return unit


def test_every_pruning_keeps_exactly_the_share_asked_for() -> None:
    rows = random_rows(23, SEED)
    sessions, links = [node // 6 for node in range(23)], [node % 3 for node in range(23)]

    for ratio in (0.0, 0.3, 0.5, 0.7, 0.95):
        kept = (
            prune_randomly(23, ratio, 1),
            prune_by_kmeans(rows, ratio, 1),
            prune_by_pivots(rows, ratio, 1),
            prune_by_graph(rows, sessions, links, ratio, 1),
        )

        assert [len(set(each)) for each in kept] == [kept_count(23, ratio)] * 4
        assert all(each == tuple(sorted(each)) for each in kept)


def test_random_pruning_keeps_every_node_equally_often() -> None:
    often = np.zeros(10)
    for seed in range(2_000):
        often[list(prune_randomly(10, 0.5, seed))] += 1

    # 1,000 each; the standard deviation of a count is 22.
    assert np.abs(often - 1_000).max() < 110


def test_kmeans_keeps_of_each_cluster_the_node_next_to_its_centre() -> None:
    # Three bundles, whose middle nodes (1, 4, 7) are next to the mean.
    rows = at_degrees(0, 4, 9, 100, 105, 111, 200, 206, 211)

    assert prune_by_kmeans(rows, 6 / 9, 0) == (1, 4, 7)


def test_kmeans_of_equal_nodes_still_keeps_as_many_as_asked_for() -> None:
    assert prune_by_kmeans(at_degrees(0, 0, 0, 0), 0.5, 0) == (0, 1)


def test_dart_keeps_the_pivots_and_the_nodes_that_are_least_like_them() -> None:
    # One of 50 is the pivot, 2 %; the node n lies at n degrees, so the farthest from it are kept.
    rows = at_degrees(*range(50))
    for seed in range(5):
        pivot = int(np.random.default_rng(seed).permutation(50)[0])
        far = sorted(set(range(50)) - {pivot}, key=lambda node: (-abs(node - pivot), node))[:9]

        assert prune_by_pivots(rows, 0.8, seed) == tuple(sorted([pivot, *far]))


def test_streammeco_keeps_of_connected_nodes_the_unlike_before_the_important() -> None:
    # Likeness to all: of 0, 5, 10 and 90 degrees the last has least, then 0. Importance counts a tenth:
    # 10 degrees has two links, which does not make up for being alike.
    rows = at_degrees(0, 5, 10, 90)

    assert prune_by_graph(rows, [0] * 4, [1, 1, 2, 1], 0.75, 0) == (3,)
    assert prune_by_graph(rows, [0] * 4, [1, 1, 1, 1], 0.5, 0) == (0, 3)


def test_streammeco_prefers_the_important_of_nodes_that_are_equally_alike() -> None:
    assert prune_by_graph(at_degrees(0, 0, 0), [0] * 3, [1, 3, 2], 2 / 3, 0) == (1,)


def test_streammeco_samples_isolated_nodes_session_by_session_from_the_centre_outwards() -> None:
    # Each session's only cluster has its centre near 20 degrees (0, 20, 21, 60 average to 25): 2 of 4 are
    # 21, and the farthest from it, which is 60.
    rows = at_degrees(0, 20, 21, 60, 0, 20, 21, 60)

    assert prune_by_graph(rows, [0] * 4 + [1] * 4, [0] * 8, 0.5, 0) == (2, 3, 6, 7)


def test_each_branch_of_streammeco_keeps_its_share() -> None:
    rows = random_rows(20, SEED)
    links = [0] * 12 + [1] * 8

    kept = prune_by_graph(rows, [0] * 20, links, 0.5, 0)

    assert sum(not links[node] for node in kept) == 6


def test_farthest_first_begins_next_to_the_centre_and_goes_where_nothing_is_chosen() -> None:
    rows = at_degrees(0, 10, 80, 50).astype(np.float64)

    assert farthest_first(rows, at_degrees(12)[0].astype(np.float64), 3) == [1, 2, 3]


def test_shares_add_up_and_the_largest_remainders_come_first() -> None:
    assert shares([5, 3, 2], 5) == [3, 1, 1]
    assert shares([1, 1, 1], 2) == [1, 1, 0]
    assert shares([], 0) == []


def test_random_merging_loses_nobody_and_leaves_exactly_the_ratio() -> None:
    for ratio in (0.0, 0.3, 0.5, 0.9):
        groups = merge_randomly(11, ratio, 3)

        assert sorted(member for group in groups for member in group) == list(range(11))
        assert len(groups) == kept_count(11, ratio)


def test_tome_joins_the_best_pairs_of_the_two_halves() -> None:
    # Halves: 0, 2, 4 and 1, 3, 5. Node 0 (0 degrees) is 1 from 1, node 2 (40) is 5 from 3, node 4 (90) 20 from 5.
    rows = at_degrees(0, 1, 40, 45, 90, 110)

    assert merge_halves(rows, 1 / 6) == [(0, 1), (2,), (3,), (4,), (5,)]
    assert merge_halves(rows, 2 / 6) == [(0, 1), (2, 3), (4,), (5,)]
    assert merge_halves(rows, 3 / 6) == [(0, 1), (2, 3), (4, 5)]


def test_tome_lets_several_nodes_join_the_same_one() -> None:
    # 0 and 2 are both nearest to 1.
    assert merge_halves(at_degrees(0, 1, 2, 90), 0.5) == [(0, 1, 2), (3,)]


def test_tome_goes_on_in_a_second_step_with_what_the_first_one_made() -> None:
    # After the first step 0+1 (at .5), 2+3 (at 42.5), 4+5 (100), 6+7 (51.5): halves are 1st and 3rd, 2nd and 4th.
    # The first is 42 from the second, the third is 48.5 from the fourth; one more has to go.
    rows = at_degrees(0, 1, 42, 43, 99, 101, 50, 53)

    assert merge_halves(rows, 5 / 8) == [(0, 1, 2, 3), (4, 5), (6, 7)]


def test_a_step_of_tome_removes_at_most_half() -> None:
    # Two steps to one of four; a single node ends it.
    assert merge_halves(at_degrees(0, 10, 20, 30), 0.75) == [(0, 1, 2, 3)]
    assert merge_halves(at_degrees(0), 0.5) == [(0,)]


def test_neighbours_merge_inside_their_session_only_the_most_alike_first() -> None:
    # 1 and 2 are the same but of two sessions; 2 and 3 are 5 degrees apart, 0 and 1 are 20.
    rows = at_degrees(0, 20, 20, 25, 80)
    sessions = [0, 0, 1, 1, 1]

    assert merge_neighbours(rows, sessions, 0.2, 2) == [(0,), (1,), (2, 3), (4,)]
    assert merge_neighbours(rows, sessions, 0.4, 2) == [(0, 1), (2, 3), (4,)]
    # The cap ends it above the ratio.
    assert merge_neighbours(rows, sessions, 0.6, 2) == [(0, 1), (2, 3), (4,)]
    assert merge_neighbours(rows, sessions, 0.6, 3) == [(0, 1), (2, 3, 4)]


def test_a_merged_neighbour_is_as_like_as_its_members_together() -> None:
    # 1 and 2 merge at 11 degrees, 22 from 3 and 11 from 0.
    rows = at_degrees(0, 10, 12, 33)

    assert merge_neighbours(rows, [0] * 4, 0.5, 3) == [(0, 1, 2), (3,)]


def test_even_runs_cut_every_session_into_equal_pieces() -> None:
    assert merge_evenly([0] * 6 + [1] * 4, 0.5) == [(0, 1), (2, 3), (4, 5), (6, 7), (8, 9)]
    assert merge_evenly([0] * 5, 0.6) == [(0, 1, 2), (3, 4)]


def test_windows_of_five_are_one_unit_as_long_as_they_are_alike() -> None:
    # Time runs against the order given. Windows at 0, 50 (cosine .64) and 120 (.34) degrees, then one of two.
    rows = at_degrees(*[120] * 2, *[120] * 5, *[50] * 5, *[0] * 5)
    positions = [*range(16, -1, -1)]

    assert units_of_windows(rows, positions) == (1,) * 7 + (0,) * 10


def test_windows_at_the_threshold_are_two_units() -> None:
    rows = np.array([[1, 0], [0, 1]], dtype=np.float32)

    assert units_of_windows(rows, [0, 1], size=1, threshold=0.0) == (0, 1)
    assert units_of_windows(rows, [0, 1], size=1, threshold=-0.1) == (0, 0)


@pytest.mark.parametrize("parameters", [PAPER, DEFAULT, replace(DEFAULT, ratio=0.7), replace(PAPER, eta=0.9)])
def test_the_literal_contraction_makes_the_groups_of_the_plan(parameters: EventTreeParameters) -> None:
    print("seed", SEED)
    for case in range(4):
        rows = random_rows(60, SEED + case)
        positions, labels = list(range(60)), [(node * 7 + case) % 4 for node in range(60)]
        ids = [node.to_bytes(2, "big") for node in range(60)]

        groups = merge_along(rows, positions, labels, parameters, maximum_tree, pick_best(parameters.eta))

        planned = plan_groups(UnitNodes(rows, positions, ids, labels), parameters).groups
        assert [group for group in groups if len(group) > 1] == sorted(tuple(sorted(each)) for each in planned)


def test_the_minimum_tree_is_the_lightest_and_merges_the_least_alike_first() -> None:
    weights = np.array([[0, 0.1, 0.9, 0.5], [0.1, 0, 0.4, 0.3], [0.9, 0.4, 0, 0.8], [0.5, 0.3, 0.8, 0]])
    pairs = list(combinations(range(4), 2))
    spanning = [each for each in combinations(pairs, 3) if {*range(4)} == {n for pair in each for n in pair}]
    lightest = min(spanning, key=lambda tree: sum(weights[pair] for pair in tree))

    assert set(minimum_tree(weights, (0, 1, 2, 3))) == set(lightest)

    groups = merge_along(at_degrees(0, 80, 5, 40), [0] * 4, [0] * 4, replace(PAPER, ratio=0.25), minimum_tree,
                         pick_best(1.0, -1.0))  # fmt: skip

    assert groups == [(0, 1), (2,), (3,)]


def test_random_merging_in_units_never_crosses_them_and_keeps_caps_and_quota() -> None:
    rows, labels = random_rows(40, SEED), [node % 4 for node in range(40)]
    for seed, parameters in product(range(3), (PAPER, DEFAULT)):
        groups = merge_along(rows, [*range(40)], labels, parameters, all_pairs, pick_randomly(seed))

        assert sorted(member for group in groups for member in group) == list(range(40))
        assert all(len({labels[member] for member in group}) == 1 for group in groups)
        assert max(map(len, groups)) <= (parameters.member_cap or 40)
        if parameters is PAPER:
            assert len(groups) == 20


def test_a_constant_gain_is_certain_and_no_difference_is_none() -> None:
    one = np.linspace(0, 1, 50)

    gained, same = compare_paired(one + 0.25, one), compare_paired(one, one)

    assert (gained.mean, gained.low, gained.high) == pytest.approx((0.25, 0.25, 0.25))
    assert gained.p == pytest.approx(2 / 10_001)
    assert (same.mean, same.p) == (0, 1)


def test_the_interval_of_a_difference_is_as_wide_as_theory_has_it() -> None:
    # 400 differences of +1 and -1 in equal parts: the standard error of their mean is 1 / 20.
    one, other = np.tile((1.0, 0.0), 200), np.tile((0.0, 1.0), 200)

    found = compare_paired(one, other)

    assert found.mean == 0
    assert (found.low, found.high) == pytest.approx((-0.098, 0.098), abs=0.005)
    assert found.p > 0.9


def test_comparing_refuses_scores_of_different_questions() -> None:
    with pytest.raises(ValueError, match="one score a question"):
        compare_paired(np.zeros(3), np.zeros(4))
