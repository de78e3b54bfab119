"""Where nodes go when somebody compacts: every fact in one unit, groups whole, and nothing moved without need."""

from __future__ import annotations

import random

import numpy as np
import pytest

from daemon.building.compaction_plans import place_nodes
from events.memory import FactId
from projections.eventtree.parameters import EventTreeParameters, Preset
from projections.eventtree.unit_sums import UnitNode


def some_nodes(seed: int, count: int) -> list[UnitNode]:
    """Facts and groups in time order, some without a direction, as what was forgotten meanwhile has none."""
    chance, numbers = random.Random(seed), np.random.default_rng(seed)
    nodes: list[UnitNode] = []
    made = 0
    for position in range(count):
        size = chance.choice([1, 1, 1, 2, 3])
        facts = tuple((made + each).to_bytes(16, "big") for each in range(size))
        made += size
        row = numbers.normal(size=16).astype(np.float32)
        row *= 0 if chance.random() < 0.1 else size / np.linalg.norm(row)
        nodes.append(UnitNode(facts, row, position))
    return nodes


@pytest.mark.parametrize("preset", ["default", "paper"])
def test_every_fact_gets_one_unit_groups_stay_whole_and_only_what_is_new_is_told(preset: Preset) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance, parameters = random.Random(seed), EventTreeParameters(preset=preset)
    for _ in range(6):
        nodes = some_nodes(chance.randrange(1 << 32), chance.randrange(1, 100))
        first, told = place_nodes(nodes[: len(nodes) // 2], {}, parameters, reindex=False)
        assert {fact: each.unit for each in told for fact in each.facts} == first

        # Of some facts nothing is known any more: the session that put them there was forgotten.
        left: dict[FactId, bytes] = {fact: unit for fact, unit in first.items() if chance.random() < 0.9}
        after, told = place_nodes(nodes, left, parameters, reindex=False)
        assert after.keys() == {fact for node in nodes for fact in node.facts}
        assert all(len({after[fact] for fact in node.facts}) == 1 for node in nodes)
        assert all(left.get(fact) != each.unit for each in told for fact in each.facts)

        assert place_nodes(nodes, after, parameters, reindex=False) == (after, ())
        anew, told = place_nodes(nodes, after, parameters, reindex=True)
        assert anew == after | {fact: each.unit for each in told for fact in each.facts}


def test_of_no_nodes_there_are_no_units() -> None:
    for reindex in (False, True):
        assert place_nodes([], {}, EventTreeParameters(), reindex=reindex) == ({}, ())
