"""Units and groups as events tell of them, against the simplest model of both."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from events.eventtree import CompactionUndone, NodesMerged, UnitId, UnitMembers, UnitsPartitioned
from events.memory import FactId
from projections.eventtree.units import PARKED_MERGES_MAX, Units, make_group_id
from tests.builders import a_merge, an_id, as_recorded

ONE, TWO, THREE, FOUR = (an_id(name) for name in ("one", "two", "three", "four"))
U1, U2 = an_id("u1"), an_id("u2")


def units_with(*facts: FactId) -> Units:
    units = Units()
    for fact in facts:
        units.add_fact(fact)
    return units


def partition(units: Units, **members: tuple[FactId, ...]) -> None:
    units.apply_partition(UnitsPartitioned(1, tuple(UnitMembers(an_id(u), some) for u, some in members.items())))


def merge(units: Units, *members: FactId) -> None:
    event = NodesMerged(1, U1, members, (), "a model", "a text")
    units.apply_merge(as_recorded(a_merge(), 1), event)


def test_a_fact_is_in_the_unit_that_it_was_put_into_last() -> None:
    units = units_with(ONE, TWO, THREE)
    partition(units, u1=(ONE, TWO))
    partition(units, u2=(TWO,), u1=(ONE,))

    assert units.unit_of == {ONE: U1, TWO: U2}
    assert units.facts_of == {U1: {ONE: None}, U2: {TWO: None}}
    assert list(units.unplaced) == [THREE]


def test_a_unit_whose_last_fact_went_is_none() -> None:
    units = units_with(ONE, TWO)
    partition(units, u1=(ONE,), u2=(TWO,))
    units.remove_fact(ONE)

    assert units.facts_of == {U2: {TWO: None}}


def test_what_is_not_known_is_in_no_unit_and_not_kept_apart() -> None:
    units = units_with(ONE)
    partition(units, u1=(ONE, TWO), u2=(THREE,))
    units.keep_apart(CompactionUndone(1, (ONE, FOUR)))

    assert units.unit_of == {ONE: U1}
    assert list(units.facts_of) == [U1]
    assert list(units.apart) == [ONE]
    assert U2 not in units.changed


def test_an_undone_group_keeps_its_facts_apart_until_they_are_merged_again() -> None:
    units = units_with(ONE, TWO, THREE)
    merge(units, ONE, TWO)
    undone = units.keep_apart(CompactionUndone(1, (ONE, TWO)))
    apart = list(units.apart)
    merge(units, TWO, THREE)

    assert [group.members for group in undone] == [(ONE, TWO)]
    assert apart == [ONE, TWO]
    assert list(units.apart) == [ONE]


def test_an_undoing_takes_whatever_group_its_facts_are_in_by_then() -> None:
    units = units_with(ONE, TWO, THREE, FOUR)
    merge(units, ONE, TWO)
    merge(units, THREE, FOUR)
    units.keep_apart(CompactionUndone(1, (TWO,)))

    assert [group.members for group in units.groups.values()] == [(THREE, FOUR)]
    assert list(units.apart) == [TWO]


def test_of_more_parked_merges_than_are_remembered_the_oldest_are_tried_again() -> None:
    units = Units()
    for number in range(PARKED_MERGES_MAX + 2):
        units.note_parked(an_id(str(number)))
    units.note_parked(an_id("2"))

    assert len(units.parked) == PARKED_MERGES_MAX
    assert next(iter(units.parked)) == an_id("3")


def test_a_change_of_a_unit_or_of_its_groups_is_one_that_a_planner_sees() -> None:
    units = units_with(ONE, TWO, THREE)
    partition(units, u1=(ONE, TWO), u2=(THREE,))
    seen = [units.changes]
    for change in (
        lambda: merge(units, ONE, TWO),
        lambda: units.keep_apart(CompactionUndone(1, (ONE,))),
        lambda: partition(units, u2=(ONE,)),
        lambda: units.remove_fact(THREE),
    ):
        change()
        seen.append(units.changes)

    assert [set(units.changed_since(each)) for each in seen] == [{U1, U2}, {U1, U2}, {U1, U2}, {U2}, set()]
    assert units.changed_since(seen[2]) == [U2, U1]


@dataclass
class Model:
    """Units as one mapping and groups as sets, looked through for every question."""

    facts: list[FactId] = field(default_factory=list[FactId])
    unit_of: dict[FactId, UnitId] = field(default_factory=dict[FactId, UnitId])
    groups: set[frozenset[FactId]] = field(default_factory=set[frozenset[FactId]])
    apart: set[FactId] = field(default_factory=set[FactId])

    def fall(self, facts: frozenset[FactId]) -> None:
        self.groups = {group for group in self.groups if group.isdisjoint(facts)}

    def forget(self, fact: FactId) -> None:
        self.fall(frozenset((fact,)))
        self.facts.remove(fact)
        self.unit_of.pop(fact, None)
        self.apart.discard(fact)


def step(units: Units, model: Model, chance: random.Random) -> None:
    """One thing that happens to both."""
    some = tuple(chance.sample(model.facts, min(len(model.facts), chance.randint(1, 4))))
    match chance.choices(range(5), [6, 6, 4, 2, 2])[0]:
        case 0:
            fact = an_id(f"fact {chance.random()}")
            units.add_fact(fact)
            model.facts.append(fact)
        case 1 if some:
            unit = chance.choice((U1, U2, an_id("u3")))
            units.apply_partition(UnitsPartitioned(1, (UnitMembers(unit, some),)))
            model.unit_of.update(dict.fromkeys(some, unit))
        case 2 if len(some) > 1:
            merge(units, *some)
            model.fall(frozenset(some))
            model.groups.add(frozenset(some))
            model.apart -= set(some)
        case 3 if some:
            units.keep_apart(CompactionUndone(1, some))
            model.fall(frozenset(some))
            model.apart |= set(some)
        case 4 if some:
            fact = some[0]
            if fact in units.group_of:
                units.undo_group(units.group_of[fact])
            units.remove_fact(fact)
            model.forget(fact)
        case _:
            pass


@pytest.mark.parametrize("seed", range(5))
def test_after_any_history_units_and_groups_are_those_of_the_simplest_model(seed: int) -> None:
    print(f"seed {seed}")
    chance, units, model = random.Random(seed), Units(), Model()
    for _ in range(300):
        step(units, model, chance)

        assert units.unit_of == model.unit_of
        assert set(units.unplaced) == set(model.facts) - model.unit_of.keys()
        assert {fact: unit for unit, facts in units.facts_of.items() for fact in facts} == model.unit_of
        assert {frozenset(group.members) for group in units.groups.values()} == model.groups
        assert units.group_of == {fact: make_group_id(tuple(group)) for group in model.groups for fact in group}
        assert set(units.apart) == model.apart

    again = Units()
    again.unit_of.update(units.unit_of)
    again.index(model.facts)
    assert again.facts_of == units.facts_of
    assert list(again.unplaced) == list(units.unplaced)
