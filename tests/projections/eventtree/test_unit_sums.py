"""What is held of a unit, against everything computed from its nodes anew."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping, Sequence

import numpy as np

from events.eventtree import UnitId
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.unit_sums import UnitNode, UnitSums
from projections.ports import Vectors

PARAMETERS = EventTreeParameters()
# Few directions, many nodes: nearly every unit has an equal.
TIE_HEAVY = np.array([[1, 0], [0, 1], [0.6, 0.8], [-0.8, 0.6]], dtype=np.float32)


def unit_rows(rng: np.random.Generator, count: int, dimensions: int = 6) -> Vectors:
    rows = rng.normal(size=(count, dimensions)) + 0.5
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def node(number: int, vector: Vectors, position: int, facts: int = 1) -> UnitNode:
    return UnitNode(tuple(b"%04d-%d" % (number, part) for part in range(facts)), vector * facts, position)


def at_degrees(degrees: float, position: int, number: int = 0) -> UnitNode:
    angle = math.radians(degrees)
    return node(number, np.array([math.cos(angle), math.sin(angle)], np.float32), position)


def random_units(rng: np.random.Generator, count: int, *, tie_heavy: bool) -> dict[UnitId, list[UnitNode]]:
    size = 4 * count
    rows = TIE_HEAVY[rng.integers(0, 4, size)] if tie_heavy else unit_rows(rng, size)
    places = np.sort(rng.integers(0, size, size)).tolist()
    nodes = [node(n, rows[n], places[n], 1 + n % 3) for n in range(size)]
    units: dict[UnitId, list[UnitNode]] = {}
    for each, unit in zip(nodes, rng.integers(0, count, size).tolist(), strict=True):
        units.setdefault(b"unit%03d" % unit, []).append(each)
    return units


def filled(units: Mapping[UnitId, Sequence[UnitNode]]) -> UnitSums:
    sums = UnitSums()
    for unit, nodes in units.items():
        sums.put(unit, nodes)
    return sums


def cosine(one: Sequence[float], other: Sequence[float]) -> float:
    lengths = math.hypot(*one) * math.hypot(*other)
    return math.fsum(a * b for a, b in zip(one, other, strict=True)) / lengths if lengths else 0.0


def total(nodes: Sequence[UnitNode]) -> list[float]:
    return [math.fsum(column) for column in zip(*(each.vector.tolist() for each in nodes), strict=True)]


def centre(nodes: Sequence[UnitNode]) -> UnitNode:
    return max(nodes, key=lambda each: round(cosine(each.vector.tolist(), total(nodes)), 6))


def u(probe: UnitNode, nodes: Sequence[UnitNode]) -> float:
    """Eq. 3 with beta .8 and w 5."""
    local = abs(centre(nodes).position - probe.position) <= 5
    return round(0.8 * cosine(probe.vector.tolist(), total(nodes)) + 0.2 * local, 6)


def test_the_best_unit_is_that_of_the_highest_u_over_all_units() -> None:
    for seed in range(12):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        units = random_units(rng, 1 + 3 * seed, tie_heavy=seed % 2 == 1)
        sums = filled(units)
        probes = [each for nodes in units.values() for each in nodes][:40]
        expected = [
            min(units, key=lambda unit: (-u(probe, units[unit]), centre(units[unit]).position, unit))
            for probe in probes
        ]

        assert [sums.best_unit(probe, PARAMETERS) for probe in probes] == expected


def test_the_nearest_units_are_those_whose_sums_are_most_alike() -> None:
    for seed in range(8):
        print("seed", seed)
        units = random_units(np.random.default_rng(seed), 12, tie_heavy=seed % 2 == 1)
        sums = filled(units)
        for unit, nodes in units.items():
            others = sorted(
                units.keys() - {unit},
                key=lambda other: (
                    -round(cosine(total(nodes), total(units[other])), 6),
                    centre(units[other]).position,
                    other,
                ),
            )

            assert sums.nearest_units(unit, 3) == tuple(others[:3])
            assert sums.nearest_units(unit, 99) == tuple(others)


def test_scores_of_some_units_are_their_u() -> None:
    print("seed", 3)
    units = random_units(np.random.default_rng(3), 6, tie_heavy=False)
    some, nodes = list(units)[:4], next(iter(units.values()))
    scores = filled(units).scores(nodes, some, PARAMETERS)

    np.testing.assert_allclose(scores, [[u(each, units[unit]) for unit in some] for each in nodes], atol=2e-6)


def test_what_is_held_follows_from_the_nodes_whichever_way_they_came() -> None:
    for seed in range(8):
        print("seed", seed)
        chance = random.Random(seed)
        rng = np.random.default_rng(seed)
        units = random_units(rng, 25, tie_heavy=False)
        sums, there = UnitSums(), dict[UnitId, list[UnitNode]]()
        for _ in range(150):
            unit = chance.choice(list(units))
            there[unit] = sorted(
                chance.sample(units[unit], chance.randrange(len(units[unit]) + 1)), key=lambda each: each.position
            )
            sums.put(unit, there[unit])
        straight = filled({unit: nodes for unit, nodes in there.items() if nodes})
        probes = [each for nodes in units.values() for each in nodes][::5]

        assert set(sums) == set(straight)
        assert len(sums) == len(straight)
        assert [sums.best_unit(probe, PARAMETERS) for probe in probes] == [
            straight.best_unit(probe, PARAMETERS) for probe in probes
        ]


def test_a_group_is_as_much_as_its_facts_so_that_merging_moves_no_unit() -> None:
    # One fact at 0 degrees and three at 60: with the group as one row the sum would lie at 30.
    apart = [at_degrees(0, 0), *(at_degrees(60, place) for place in (1, 2, 3))]
    group = UnitNode((b"a", b"b", b"c"), np.sum([each.vector for each in apart[1:]], axis=0), 3)
    probe = at_degrees(60, 50)
    parameters = EventTreeParameters(beta=1)
    alone, merged = filled({b"u": apart}), filled({b"u": [apart[0], group]})

    assert alone.scores([probe], [b"u"], parameters) == merged.scores([probe], [b"u"], parameters)


def test_the_window_is_around_the_centre_node() -> None:
    # The centre is at position 10; 16 is outside of its window of 5, though within that of the last node.
    sums = filled({b"u": [at_degrees(-20, 2), at_degrees(1, 10), at_degrees(22, 12)]})
    inside, outside = (sums.scores([at_degrees(1, place)], [b"u"], PARAMETERS)[0, 0] for place in (15, 16))

    assert round(inside - outside, 6) == 0.2


def test_without_nodes_there_is_no_unit() -> None:
    sums = filled({b"one": [at_degrees(0, 0)], b"two": [at_degrees(90, 1)], b"three": [at_degrees(180, 2)]})
    sums.put(b"one", [])
    sums.put(b"never", [])

    assert set(sums) == {b"two", b"three"}
    assert b"one" not in sums
    assert sums.best_unit(at_degrees(0, 100), PARAMETERS) == b"two"
    assert UnitSums().best_unit(at_degrees(0, 0), PARAMETERS) is None


def test_a_copy_is_another_one() -> None:
    sums = filled({b"one": [at_degrees(0, 0)]})
    other = sums.copy()
    other.put(b"two", [at_degrees(90, 0)])
    other.put(b"one", [at_degrees(180, 0)])

    assert list(sums) == [b"one"]
    assert sums.scores([at_degrees(0, 50)], [b"one"], PARAMETERS)[0, 0] == 0.8


def test_rows_take_no_more_than_twice_what_the_units_need() -> None:
    sums = UnitSums()
    vector = np.ones(384, dtype=np.float32)
    for number in range(1_000):
        sums.put(b"%04d" % number, [UnitNode((b"%04d" % number,), vector, number)])

    assert sums.size_bytes <= 2 * 1_000 * (4 * 384 + 16)


def test_opposite_vectors_cancel_out_and_break_nothing() -> None:
    sums = filled({b"one": [at_degrees(0, 0), at_degrees(180, 1)], b"two": [at_degrees(120, 0)]})

    assert sums.best_unit(at_degrees(200, 50), PARAMETERS) == b"two"
    assert sums.nearest_units(b"two", 1) == (b"one",)
