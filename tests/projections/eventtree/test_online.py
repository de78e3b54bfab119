"""Units that grow: random histories against their recorded deltas, a brute-force oracle, cases at the edge."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from projections.eventtree.online import Arrival, plan_units, split_nodes
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode, UnitSums
from tests.projections.eventtree.unit_store import (
    SMALL,
    WITHOUT_SPLITS,
    a_store,
    at_degrees,
    direction,
    live_through,
    made_up_rows,
    nodes_at,
)


def u(arrival: Arrival, nodes: Sequence[UnitNode]) -> float:
    """Eq. 3 with beta .8 and w 5."""
    total = direction(np.array([node.vector for node in nodes], dtype=np.float64).sum(axis=0))
    centre = max(nodes, key=lambda node: round(float(np.dot(direction(node.vector), total)), 6))
    local = abs(centre.position - arrival.position) <= 5
    return round(0.8 * float(np.dot(arrival.vector.astype(np.float64), total)) + 0.2 * local, 6)


@pytest.mark.parametrize("tie_heavy", [False, True])
def test_after_any_history_what_is_held_is_what_the_recorded_deltas_give(tie_heavy: bool) -> None:
    for seed in range(3):
        store = a_store(made_up_rows(seed, 150, tie_heavy=tie_heavy))
        live_through(store, seed)
        replayed, units = UnitSums(), store.units()
        for unit, nodes in units.items():
            replayed.put(unit, nodes)
        probes = [node for nodes in units.values() for node in nodes]

        assert set(store.sums) == set(units)
        assert store.unit_of.keys() == set(store.names)
        for probe in probes:
            assert store.sums.best_unit(probe, SMALL) == replayed.best_unit(probe, SMALL)
        for unit in units:
            assert store.sums.nearest_units(unit, 3) == replayed.nearest_units(unit, 3)


@pytest.mark.parametrize("tie_heavy", [False, True])
def test_deltas_name_each_fact_once_and_no_fact_that_stays(tie_heavy: bool) -> None:
    for seed in range(3):
        store, chance = a_store(made_up_rows(seed, 120, tie_heavy=tie_heavy)), random.Random(seed)
        for at in range(0, 120, 6):
            before = dict(store.unit_of)
            plan = store.arrive(range(at, at + 6))
            named = [fact for each in plan.moved for fact in each.facts]
            standing = {
                fact: unit for unit, nodes in plan.standing.items() for node in nodes for fact in node.facts
            }

            assert max(Counter(named).values()) == 1
            assert set(store.names[at : at + 6]) <= set(named)
            assert all(before.get(fact) != each.unit for each in plan.moved for fact in each.facts)
            assert all(store.unit_of[fact] == unit for fact, unit in standing.items())
            assert max(Counter(store.fetched).values(), default=1) == 1
            if chance.random() < 0.5:
                store.compact(chance.choice(list(store.sums)))


@pytest.mark.parametrize("tie_heavy", [False, True])
def test_no_unit_is_above_its_cap_and_no_group_is_torn(tie_heavy: bool) -> None:
    for seed in range(3):
        store = a_store(made_up_rows(seed, 150, tie_heavy=tie_heavy))
        live_through(store, seed)

        assert max(len(nodes) for nodes in store.units().values()) <= SMALL.unit_cap
        assert len(store.sums) > 3
        assert any(len(group) > 1 for group in store.groups)
        for group in store.groups:
            assert len({store.unit_of[fact] for fact in group}) == 1


def test_without_splits_a_fact_joins_the_unit_of_the_highest_u() -> None:
    for seed in range(3):
        store = a_store(made_up_rows(seed, 90))
        live_through(store, seed)
        units = store.units()
        number = int(np.random.default_rng(seed).integers(90))
        arrival = Arrival(b"new", store.rows[number], 5 * seed)

        best = max(units, key=lambda unit: u(arrival, units[unit]))
        moved = plan_units([arrival], store.sums, store.fetch, WITHOUT_SPLITS).moved

        assert [(each.facts, each.unit) for each in moved] == [((b"new",), best)]


def test_a_plan_leaves_the_sums_as_they_are() -> None:
    store = a_store(made_up_rows(1, 80))
    store.arrive(range(40))
    before = {unit: store.sums.scores(store.nodes(unit), [unit], SMALL).tolist() for unit in store.sums}
    arrivals = [Arrival(store.names[n], store.rows[n], n) for n in range(40, 80)]
    one = plan_units(arrivals, store.sums, store.fetch, SMALL)
    again = plan_units(arrivals, store.sums, store.fetch, SMALL)

    assert before == {unit: store.sums.scores(store.nodes(unit), [unit], SMALL).tolist() for unit in store.sums}
    assert one.moved == again.moved


def test_names_of_facts_change_nothing_but_names() -> None:
    # Positions differ, so nothing is left for an id to decide.
    for seed in range(3):
        rows = made_up_rows(seed, 120)
        names = [b"x%04d" % n for n in random.Random(seed).sample(range(120), 120)]
        straight, renamed = a_store(rows), a_store(rows, names=names)
        live_through(straight, seed)
        live_through(renamed, seed)
        shapes = [
            {
                frozenset(store.number[fact] for node in nodes for fact in node.facts)
                for nodes in store.units().values()
            }
            for store in (straight, renamed)
        ]

        assert shapes[0] == shapes[1]


def test_a_fact_of_an_older_session_comes_among_the_others() -> None:
    store = a_store(made_up_rows(2, 30))
    store.arrive(range(10, 30))
    plan = store.arrive(range(10))

    assert all(list(nodes) == sorted(nodes, key=lambda node: node.position) for nodes in plan.standing.values())


def test_units_never_share_a_name() -> None:
    # The same facts over and over, so that the same fact is in the centre of one half after the other.
    store = a_store(np.tile(at_degrees(0, 90, 180, 270), (30, 1)), EventTreeParameters(unit_cap=2))
    for at in range(0, 120, 10):
        store.arrive(range(at, at + 10))

    assert sum(map(len, store.units().values())) == 120
    assert max(map(len, store.units().values())) <= 2


def test_a_unit_whose_facts_are_all_gone_is_no_hindrance() -> None:
    # It is still held when its facts were forgotten a moment ago.
    sums = UnitSums()
    sums.put(b"gone", nodes_at(0))
    plan = plan_units([Arrival(b"new", at_degrees(10)[0], 3)], sums, lambda _: (), SMALL)

    assert [(each.unit, each.facts) for each in plan.moved] == [(b"gone", (b"new",))]


def test_nothing_new_changes_nothing() -> None:
    plan = plan_units([], UnitSums(), lambda _: (), SMALL)

    assert (plan.moved, plan.standing) == ((), {})


def test_a_full_unit_is_split_into_what_is_about_the_same() -> None:
    store = a_store(at_degrees(0, 4, 90, 94, 1, 91, 2, 92, 3), replace(SMALL, window=0))
    store.arrive(range(8))
    alone = set(store.unit_of.values())
    plan = store.arrive([8])
    halves = [{store.number[fact] for node in nodes for fact in node.facts} for nodes in store.units().values()]

    assert len(alone) == 1
    # The larger half keeps the name, so what is recorded is the smaller one.
    assert sorted(map(sorted, halves)) == [[0, 1, 4, 6, 8], [2, 3, 5, 7]]
    assert [sorted(each.facts) for each in plan.moved if each.unit not in alone] == [
        [b"f0002", b"f0003", b"f0005", b"f0007"]
    ]


def test_after_a_split_the_nodes_of_the_nearest_units_are_scored_again() -> None:
    # A stray at 80 degrees was put with those at 140. When the unit at 0 to 90 is split, its half at 85 is nearer.
    parameters = EventTreeParameters(unit_cap=6, window=0, reassign=1)
    units = {b"wide": nodes_at(0, 2, 4, 86, 88, 90), b"far": nodes_at(140, 141, 142, 80, first=50)}
    sums = UnitSums()
    for unit, nodes in units.items():
        sums.put(unit, nodes)
    stray = units[b"far"][3].facts[0]
    arrival = Arrival(b"new", at_degrees(3)[0], 100)

    scored = plan_units([arrival], sums, units.__getitem__, parameters)
    let_be = plan_units([arrival], sums, units.__getitem__, replace(parameters, reassign=0))
    home = {fact: unit for unit, nodes in scored.standing.items() for node in nodes for fact in node.facts}

    assert home[stray] == home[units[b"wide"][4].facts[0]] != b"far"
    assert stray not in [fact for each in let_be.moved for fact in each.facts]


def test_a_split_never_leaves_a_half_of_hardly_any() -> None:
    lone = split_nodes(nodes_at(*[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10], 180))
    same = split_nodes(nodes_at(*[30] * 12))

    assert [len(half) for half in lone] == [9, 3]
    assert [len(half) for half in same] == [9, 3]
    # The larger half comes first, and nothing but the order decides between equals.
    assert [node.position for node in same[0]] == list(range(3, 12))


def test_the_half_with_more_facts_keeps_the_unit() -> None:
    nodes = nodes_at(0, 1, 90, 91)
    heavy = UnitNode((b"a", b"b", b"c"), 3 * at_degrees(92)[0], 4)

    assert [node.position for node in split_nodes([*nodes, heavy])[0]] == [2, 3, 4]
