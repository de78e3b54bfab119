"""What a merge plan promises: examples worked out by hand, caps, ratio, loss bound, order."""

from __future__ import annotations

import math
import random
from dataclasses import replace

import numpy as np
import pytest

from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.parameters import Budget, EventTreeParameters, one_cap
from projections.eventtree.spanning_tree import Floats
from projections.ports import Vectors

PLAIN = EventTreeParameters(member_caps=(), time_bonus=0)
CAPPED = EventTreeParameters()
PAPER = EventTreeParameters(preset="paper")


def unit_rows(rows: Floats) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def at_degrees(*degrees: float) -> Vectors:
    return np.array([(math.cos(math.radians(d)), math.sin(math.radians(d))) for d in degrees], np.float32)


def random_nodes(seed: int, count: int, units: int = 3, *, tie_heavy: bool = False) -> UnitNodes:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    if tie_heavy:
        vectors = at_degrees(0, 40, 90, 200)[rng.integers(0, 4, count)]
    else:
        vectors = unit_rows(rng.normal(size=(count, 6)) + 0.8)
    return UnitNodes(
        vectors,
        rng.integers(0, count, count).tolist(),
        [b"%03d" % number for number in rng.permutation(count)],
        rng.integers(0, units, count).tolist(),
    )


def one_unit(vectors: Vectors, positions: list[int] | None = None) -> UnitNodes:
    count = len(vectors)
    return UnitNodes(vectors, positions or list(range(count)), [b"%02d" % n for n in range(count)], [0] * count)


def test_a_plan_worked_out_by_hand() -> None:
    # A path at 0, 10, 22 and 40 degrees, eta 1: first 0+1 (10 degrees), which moves to 5; then its edge to 2
    # is 17 degrees and beats 2-3 (18). At a ratio of 50 % that is the end.
    nodes = one_unit(at_degrees(0, 10, 22, 40))
    found = plan_groups(nodes, replace(PLAIN, eta=1.0))
    first = 0.5 * math.sqrt(2 - 2 * math.cos(math.radians(10)))
    # The sum of the first two is 2 cos 5 long; the lighter node's share is mix.
    length = 2 * math.cos(math.radians(5))
    second = length / (length + 1) * math.sqrt(2 - 2 * math.cos(math.radians(17)))

    assert found.groups == ((0, 1, 2),)
    assert (found.merges, found.cut) == (2, 0.5)
    assert found.loss_bound == pytest.approx(first + second, abs=1e-6)


def test_a_hub_merges_late() -> None:
    # 0 is the hub of 1, 2 and 3 (8.0 degrees and more), 4 hangs on 3 at 8.2: lighter, but away from the hub.
    angles = np.radians([8.0, 12.0, 8.1, 8.2])
    hub, rows = np.eye(5)[0], [np.eye(5)[0]]
    rows += [np.cos(a) * hub + np.sin(a) * np.eye(5)[n + 1] for n, a in enumerate(angles[:3])]
    rows.append(np.cos(angles[3]) * rows[3] + np.sin(angles[3]) * np.eye(5)[4])
    nodes = one_unit(np.array(rows, dtype=np.float32))
    one_merge = replace(PLAIN, ratio=0.2)

    assert plan_groups(nodes, replace(one_merge, eta=1.0)).groups == ((0, 1),)
    assert plan_groups(nodes, replace(one_merge, eta=0.99)).groups == ((3, 4),)


def test_two_nodes_close_in_time_go_before_two_a_little_more_alike() -> None:
    nodes = one_unit(at_degrees(0, 20, 42, 90), [0, 50, 51, 90])
    one_merge = replace(PLAIN, ratio=0.25, eta=1.0)

    assert plan_groups(nodes, one_merge).groups == ((0, 1),)
    assert plan_groups(nodes, replace(one_merge, time_bonus=0.5)).groups == ((1, 2),)


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.7])
def test_no_group_has_more_members_than_the_cap(ratio: float) -> None:
    parameters = EventTreeParameters(ratio=ratio)
    for seed in range(6):
        nodes = random_nodes(seed, 60, tie_heavy=seed % 2 == 1)
        counts = np.random.default_rng(seed).integers(1, 4, 60).tolist()
        for given in (nodes, replace(nodes, member_counts=counts)):
            found = plan_groups(given, parameters)
            sizes = [sum(given.counts[n] for n in group) for group in found.groups]

            assert max(sizes, default=0) <= (parameters.member_cap or 0)
            assert all(len(group) >= 2 for group in found.groups)


@pytest.mark.parametrize("ratio", [0.0, 0.3, 0.5, 0.7, 0.9])
def test_the_ratio_is_reached_when_nothing_forbids_it(ratio: float) -> None:
    for seed in range(4):
        nodes = random_nodes(seed, 40, units=2)

        found = plan_groups(nodes, replace(PLAIN, ratio=ratio))

        assert found.merges == 40 - math.ceil(round((1 - ratio) * 40, 9))
        assert found.cut == pytest.approx(ratio)


def test_a_plan_that_the_cap_stops_says_how_far_it_came() -> None:
    found = plan_groups(one_unit(at_degrees(0, 1, 2, 3, 4)), replace(PLAIN, member_caps=((50, 2),)))

    assert [len(group) for group in found.groups] == [2, 2]
    assert found.cut == pytest.approx(0.4)


def test_one_budget_takes_the_best_edges_and_a_quota_takes_some_of_every_unit() -> None:
    nodes = replace(one_unit(at_degrees(0, 1, 2, 3, 100, 130, 160, 190)), labels=[0, 0, 0, 0, 1, 1, 1, 1])
    quarter = replace(PLAIN, ratio=0.25)

    everywhere = plan_groups(nodes, quarter)
    each = plan_groups(nodes, replace(quarter, budget="unit"))

    assert {nodes.labels[n] for group in everywhere.groups for n in group} == {0}
    assert [{nodes.labels[n] for n in group} for group in each.groups] == [{0}, {1}]
    assert (everywhere.merges, each.merges) == (2, 2)


def test_facts_already_merged_count_towards_the_ratio() -> None:
    nodes = replace(one_unit(at_degrees(0, 1, 2, 3)), member_counts=[1, 1, 2, 2])

    # Six facts in four nodes: one merge leaves three. Eight in four: nothing to do.
    assert plan_groups(nodes, PLAIN).merges == 1
    assert plan_groups(nodes, PLAIN).cut == 0.5
    assert plan_groups(replace(nodes, member_counts=[2] * 4), PLAIN).merges == 0


def test_a_group_that_is_full_does_not_stand_between_those_that_may_be_merged() -> None:
    # In one tree with it, 1 and 2 would both hang on the group between them, and on nothing else.
    nodes = replace(one_unit(at_degrees(0, -30, 30)), member_counts=[3, 1, 1])
    one_merge = replace(CAPPED, ratio=0.6)

    assert plan_groups(nodes, replace(one_merge, member_caps=one_cap(3))).groups == ((1, 2),)
    assert plan_groups(nodes, replace(one_merge, member_caps=one_cap(4))).groups == ((0, 1),)


def test_what_full_groups_cut_off_is_merged_in_trees_of_its_own() -> None:
    # In a path 1 and 2 are the best pair, which leaves 0 and 3 without an edge though they may be merged.
    nodes = one_unit(at_degrees(0, 20, 30, 50))
    half = replace(PLAIN, member_caps=one_cap(2))

    assert plan_groups(nodes, half).groups == ((1, 2),)
    assert plan_groups(nodes, half, trees_max=2).groups == ((0, 3), (1, 2))


@pytest.mark.parametrize("tie_heavy", [False, True])
@pytest.mark.parametrize("budget", ["user", "unit"])
def test_with_trees_of_what_is_left_nothing_that_is_allowed_is_left_out(budget: Budget, tie_heavy: bool) -> None:
    for seed in range(20):
        nodes = random_nodes(seed, 60, tie_heavy=tie_heavy)
        parameters = replace(PLAIN, member_caps=one_cap(2 + seed % 3), ratio=0.7, budget=budget)
        plain, found = plan_groups(nodes, parameters), plan_groups(nodes, parameters, trees_max=60)
        units = [{nodes.labels[index] for index in group} for group in found.groups]
        sizes: dict[int, list[int]] = {unit: [] for unit in nodes.labels}
        for group in found.groups:
            sizes[nodes.labels[group[0]]].append(len(group))
        for index in set(range(60)) - {index for group in found.groups for index in group}:
            sizes[nodes.labels[index]].append(1)
        two_smallest = [sum(sorted(inside)[:2]) for inside in sizes.values() if len(inside) > 1]

        assert (found.cut, found.loss_bound) >= (plain.cut, plain.loss_bound)
        assert all(len(unit) == 1 for unit in units)
        assert max(map(len, found.groups)) <= 2 + seed % 3
        assert sum(map(len, sizes.values())) == 60 - found.merges
        if found.cut < 0.7 and budget == "user":
            assert min(two_smallest) > 2 + seed % 3


def test_a_group_given_weighs_as_much_as_its_members() -> None:
    # 0 stands for five facts, so 0 and 1 meet near 5 degrees, not at 14.5: 2, at 60, is then nearer to 3.
    nodes = replace(one_unit(at_degrees(0, 29, 60, 110)), member_counts=[5, 1, 1, 1])
    parameters = replace(PLAIN, ratio=0.75, eta=1.0)

    assert plan_groups(nodes, parameters).groups == ((0, 1), (2, 3))
    assert plan_groups(replace(nodes, member_counts=None), replace(parameters, ratio=0.5)).groups == ((0, 1, 2),)


def test_the_loss_bound_holds_for_every_query_near_the_members() -> None:
    for seed in range(6):
        nodes = random_nodes(seed, 24, units=2)
        plan = plan_groups(nodes, replace(PLAIN, ratio=0.7))
        queries = unit_rows(np.random.default_rng(seed).normal(size=(200, 6)) + 0.8).astype(np.float64)
        for group in plan.groups:
            members = nodes.vectors[list(group)].astype(np.float64)
            total = members.sum(axis=0)
            similarities = queries @ members.T
            near = (similarities >= 0).all(axis=1)
            loss = similarities.max(axis=1) - queries @ total / np.linalg.norm(total)

            assert near.any()
            assert float(loss[near].max()) <= plan.loss_bound


@pytest.mark.parametrize("parameters", [PLAIN, CAPPED, PAPER])
def test_the_order_in_which_nodes_come_changes_nothing(parameters: EventTreeParameters) -> None:
    for seed in range(6):
        nodes = random_nodes(seed, 130, tie_heavy=seed % 2 == 1)
        order = random.Random(seed).sample(range(130), 130)
        moved = UnitNodes(
            nodes.vectors[order],
            [nodes.positions[n] for n in order],
            [nodes.ids[n] for n in order],
            [nodes.labels[n] for n in order],
        )
        straight, shuffled = plan_groups(nodes, parameters), plan_groups(moved, parameters)

        assert tuple(tuple(order[n] for n in group) for group in shuffled.groups) == straight.groups
        assert shuffled.loss_bound == straight.loss_bound


def test_members_and_groups_are_in_time_order() -> None:
    for seed in range(3):
        nodes = random_nodes(seed, 40)
        times = [
            [(nodes.positions[n], nodes.ids[n]) for n in group] for group in plan_groups(nodes, CAPPED).groups
        ]

        assert times == [sorted(group) for group in times]
        assert times == sorted(times)


def test_opposite_vectors_cancel_out_and_break_nothing() -> None:
    found = plan_groups(one_unit(at_degrees(0, 180, 0, 180)), replace(PLAIN, ratio=0.75))

    assert found.groups == ((0, 1, 2, 3),)
    assert math.isfinite(found.loss_bound)


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_nodes_make_no_plan(count: int) -> None:
    nodes = one_unit(at_degrees(0)[:count])
    found = plan_groups(nodes, CAPPED)

    assert (found.groups, found.cut, found.loss_bound, found.merges) == ((), 0.0, 0.0, 0)


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths"):
        UnitNodes(at_degrees(0, 1), [0, 1], [b"a", b"b"], [0])
