"""Which units are planned when, and what their plans and the bootstrap promise."""

from __future__ import annotations

import numpy as np

from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.online import UnitSize, bootstrap_units, due_units, needs_bootstrap, plan_unit
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import partition_nodes
from projections.eventtree.unit_sums import UnitNode
from tests.projections.eventtree.unit_store import (
    SMALL,
    WITHOUT_SPLITS,
    a_store,
    at_degrees,
    made_up_rows,
    nodes_at,
)


def sized(*sizes: tuple[int, int]) -> list[UnitSize]:
    return [UnitSize(b"%d" % index, facts, nodes) for index, (facts, nodes) in enumerate(sizes)]


def test_the_most_overgrown_units_are_due_until_the_user_is_within_the_budget() -> None:
    # 200 facts in 130 nodes; the target is 100, ten more are let be: 20 too many.
    sizes = sized((40, 22), (40, 30), (40, 28), (40, 34), (40, 16))

    assert due_units(sizes, EventTreeParameters(overgrown=9)) == (b"3", b"1")


def test_a_large_memory_is_let_be_two_percent_above_its_target() -> None:
    ten = [(40, 21)] * 40
    within, above = sized(*[(40, 20)] * 960, *ten), sized(*[(40, 20)] * 500, *[(40, 21)] * 500)

    assert due_units(within, EventTreeParameters()) == ()
    # 500 too many of 20,000: all above 400.
    assert due_units(above, EventTreeParameters()) == tuple(b"%d" % index for index in range(500, 600))


def test_a_unit_that_outgrew_its_target_by_half_is_due_though_the_user_is_within_the_budget() -> None:
    # 160 facts in 72 nodes: less than the half of it, because the first three were once compacted further.
    sizes = sized((40, 14), (40, 14), (40, 14), (40, 31), (2, 2))

    assert due_units(sizes, EventTreeParameters()) == (b"3",)
    assert due_units(sizes, EventTreeParameters(overgrown=1.6)) == ()


def test_in_a_memory_of_dozens_nothing_is_due() -> None:
    assert due_units(sized((20, 20)), EventTreeParameters()) == ()
    assert due_units(sized((22, 22)), EventTreeParameters()) == (b"0",)


def test_equally_overgrown_units_go_by_size_and_then_as_they_are_given() -> None:
    sizes = sized((30, 21), (40, 26), (30, 21), (40, 26))

    assert due_units(sizes, EventTreeParameters(overgrown=9)) == (b"1", b"3", b"0")


def test_at_a_ratio_of_nothing_no_unit_is_due() -> None:
    assert due_units(sized((400, 400)), EventTreeParameters(ratio=0)) == ()
    assert due_units([], EventTreeParameters()) == ()


def test_what_was_merged_stays_merged_when_a_unit_is_planned_again() -> None:
    for seed in range(3):
        rows = made_up_rows(seed, 40)
        store = a_store(rows, WITHOUT_SPLITS)
        store.arrive(range(20))
        (unit,) = store.sums
        store.compact(unit)
        before = list(store.groups)
        store.arrive(range(20, 40))
        store.compact(unit)

        assert before
        assert all(any(group <= grown for grown in store.groups) for group in before)
        assert max(map(len, store.groups)) <= (WITHOUT_SPLITS.member_cap or 0)


def test_the_plan_of_a_unit_is_that_of_a_quota_of_every_unit() -> None:
    for seed in range(3):
        rows = made_up_rows(seed, 60)
        labels = (np.arange(60) // 20).tolist()
        ids = [b"%03d" % n for n in range(60)]
        quota = EventTreeParameters(budget="unit")
        everything = plan_groups(UnitNodes(rows, list(range(60)), ids, labels), quota)
        one_by_one = [
            tuple(20 * unit + n for n in group)
            for unit in range(3)
            for group in plan_unit(
                UnitNodes(rows[20 * unit : 20 * unit + 20], list(range(20)), ids[:20], [7] * 20),
                EventTreeParameters(),
            ).groups
        ]

        assert sorted(one_by_one) == sorted(everything.groups)


def test_an_old_store_is_bootstrapped_and_a_grown_one_is_not() -> None:
    assert needs_bootstrap(1_000, 0)
    assert needs_bootstrap(5_000, 4_999)
    assert not needs_bootstrap(999, 0)
    assert not needs_bootstrap(5_000, 5_000)


def test_bootstrapped_units_are_those_of_the_batch_and_too_large_ones_are_split() -> None:
    for seed in range(3):
        store = a_store(made_up_rows(seed, 200))
        nodes = [store.node([name]) for name in store.names]
        ids = [index.to_bytes(4, "big") for index in range(200)]
        labels = partition_nodes(store.rows, store.positions, ids, WITHOUT_SPLITS).labels
        batch = {frozenset(store.names[n] for n in range(200) if labels[n] == label) for label in set(labels)}

        whole, capped = (bootstrap_units(nodes, each) for each in (WITHOUT_SPLITS, SMALL))

        assert {frozenset(each.facts) for each in whole.moved} == batch
        assert max(len(inside) for inside in capped.standing.values()) <= SMALL.unit_cap
        assert sorted(fact for each in capped.moved for fact in each.facts) == store.names
        for each in capped.moved:
            assert any(set(each.facts) <= unit for unit in batch)
            assert each.facts == tuple(sorted(each.facts))


def test_a_group_is_bootstrapped_as_a_whole_and_nothing_makes_no_unit() -> None:
    group = UnitNode((b"a", b"b"), 2 * at_degrees(5)[0], 3)
    made = bootstrap_units([*nodes_at(0, 90, 3), group], EventTreeParameters(alpha=0.5))
    homes = {fact: each.unit for each in made.moved for fact in each.facts}

    assert homes[b"a"] == homes[b"b"]
    assert bootstrap_units([], SMALL).moved == ()
