"""The tree of a unit against every tree there is, and its scores against Eq. 6 worked out by hand."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Callable
from typing import TypeAlias

import numpy as np
import pytest

from projections.eventtree.spanning_tree import (
    Floats,
    Integers,
    TreeEdges,
    edge_weights,
    kruskal,
    maximum_spanning_tree,
    order_by_id,
    prim,
    rescore,
    tree_degrees,
)
from projections.ports import Vectors

GrowTree: TypeAlias = Callable[[Floats, Integers, float], TreeEdges]

# Few directions, many nodes: nearly every edge has an equal.
TIE_HEAVY = np.array([[1, 0], [0, 1], [0.6, 0.8], [-0.8, 0.6]], dtype=np.float32)


def random_vectors(rng: np.random.Generator, count: int, dimensions: int = 8) -> Vectors:
    rows = rng.normal(size=(count, dimensions))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def random_ids(rng: np.random.Generator, count: int) -> list[bytes]:
    return [b"%03d" % number for number in rng.permutation(count)]


def named_edges(tree: TreeEdges, ids: list[bytes]) -> list[tuple[bytes, bytes, float]]:
    return [
        (ids[one], ids[other], weight)
        for (one, other), weight in zip(tree.ends.tolist(), tree.weights.tolist(), strict=True)
    ]


def every_tree(count: int) -> list[list[tuple[int, int]]]:
    """All count ** (count - 2) labelled trees, decoded from their Pruefer sequences."""
    trees: list[list[tuple[int, int]]] = []
    for sequence in itertools.product(range(count), repeat=max(count - 2, 0)):
        degrees = [1 + sequence.count(node) for node in range(count)]
        edges: list[tuple[int, int]] = []
        for node in sequence:
            leaf = degrees.index(1)
            edges.append((leaf, node))
            degrees[leaf] -= 1
            degrees[node] -= 1
        last = [node for node in range(count) if degrees[node] == 1]
        edges.append((last[0], last[1]))
        trees.append(edges)
    return trees


def best_of_every_tree(
    vectors: Vectors, positions: list[int], ids: list[bytes], bonus: float
) -> list[tuple[bytes, bytes, float]]:
    """The tree whose edges, best first, are the best; equal edges by (smaller id, larger id)."""

    def edge(one: int, other: int) -> tuple[float, bytes, bytes]:
        cosine = math.fsum(float(a) * float(b) for a, b in zip(vectors[one], vectors[other], strict=True))
        weight = cosine + bonus * math.exp(-abs(positions[one] - positions[other]) / 2)
        low, high = sorted((ids[one], ids[other]))
        return -round(weight, 6), low, high

    best = min(sorted(edge(*ends) for ends in tree) for tree in every_tree(len(ids)))
    return sorted((low, high, -weight) for weight, low, high in best)


@pytest.mark.parametrize("bonus", [0.0, 0.5])
@pytest.mark.parametrize("tie_heavy", [False, True])
@pytest.mark.parametrize("grow", [kruskal, prim])
def test_no_tree_of_six_nodes_or_fewer_is_better(bonus: float, tie_heavy: bool, grow: GrowTree) -> None:
    for seed in range(12):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        count = 2 + seed % 5
        vectors = TIE_HEAVY[rng.integers(0, 4, count)] if tie_heavy else random_vectors(rng, count)
        positions: list[int] = rng.integers(0, 4, count).tolist()
        ids = random_ids(rng, count)
        order = order_by_id(ids)
        rows, places = vectors[order].astype(np.float64), np.array(positions)[order]
        tree = grow(rows, places, bonus)
        found = named_edges(TreeEdges(order[tree.ends], tree.weights), ids)
        expected = best_of_every_tree(vectors, positions, ids, bonus)

        assert [edge[:2] for edge in found] == [edge[:2] for edge in expected]
        assert [edge[2] for edge in found] == pytest.approx([edge[2] for edge in expected], abs=1e-9)


@pytest.mark.parametrize("bonus", [0.0, 0.5])
def test_kruskal_and_prim_give_the_identical_tree(bonus: float) -> None:
    for seed in range(12):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        count = int(rng.integers(2, 160))
        drawn = TIE_HEAVY[rng.integers(0, 4, count)] if seed % 2 else random_vectors(rng, count, 64)
        rows, places = drawn.astype(np.float64), rng.integers(0, count, count)
        sorted_edges, grown = kruskal(rows, places, bonus), prim(rows, places, bonus)

        assert grown.ends.tolist() == sorted_edges.ends.tolist()
        assert grown.weights.tolist() == sorted_edges.weights.tolist()


@pytest.mark.parametrize("count", [30, 130])
def test_the_order_in_which_nodes_come_changes_nothing(count: int) -> None:
    for seed in range(4):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        vectors = TIE_HEAVY[rng.integers(0, 4, count)] if seed % 2 else random_vectors(rng, count)
        positions: list[int] = rng.integers(0, count, count).tolist()
        ids = random_ids(rng, count)
        shuffled = random.Random(seed).sample(range(count), count)
        straight = named_edges(maximum_spanning_tree(vectors, positions, ids, 0.5), ids)
        moved_ids = [ids[index] for index in shuffled]
        moved_positions = [positions[index] for index in shuffled]
        moved = named_edges(maximum_spanning_tree(vectors[shuffled], moved_positions, moved_ids, 0.5), moved_ids)

        assert moved == straight


def test_equal_edges_go_by_the_smaller_and_then_the_larger_id() -> None:
    same = np.tile(TIE_HEAVY[:1], (4, 1))
    ids = [b"d", b"b", b"c", b"a"]

    edges = named_edges(maximum_spanning_tree(same, [0, 1, 2, 3], ids), ids)

    assert edges == [(b"a", b"b", 1.0), (b"a", b"c", 1.0), (b"a", b"d", 1.0)]


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_nodes_have_no_edge(count: int) -> None:
    tree = maximum_spanning_tree(TIE_HEAVY[:count], [0] * count, [b"a"] * count)

    assert tree.ends.shape == (0, 2)
    assert tree.weights.shape == (0,)


def test_two_nodes_of_one_id_are_refused() -> None:
    with pytest.raises(ValueError, match="same id"):
        maximum_spanning_tree(TIE_HEAVY[:2], [0, 1], [b"a", b"a"])


def test_the_time_bonus_halves_its_exponent_with_the_gap() -> None:
    weights = edge_weights(np.array([0.25, 0.25, 0.25]), np.array([0, 2, -4]), 0.5)

    # .25 + .5; .25 + .5 / e; .25 + .5 / e^2
    assert weights.tolist() == pytest.approx([0.75, 0.433940, 0.317668], abs=1e-6)


def test_an_edge_at_a_hub_scores_below_a_slightly_lighter_one_elsewhere() -> None:
    # A hub 0 with leaves 1 and 2, and a chain 0 - 3 - 4: degrees 3, 1, 1, 2, 1.
    ends = np.array([[0, 1], [0, 2], [0, 3], [3, 4]])
    tree = TreeEdges(ends, np.array([0.90, 0.80, 0.70, 0.895]))
    degrees = tree_degrees(tree, 5)

    scores = rescore(tree, degrees, 0.99)

    assert degrees.tolist() == [3, 1, 1, 2, 1]
    # .99 * .90 - .01 * 4; .99 * .80 - .01 * 4; .99 * .70 - .01 * 5; .99 * .895 - .01 * 3
    assert scores.tolist() == pytest.approx([0.851, 0.752, 0.643, 0.85605])
    assert int(np.argmax(scores)) == 3


def test_with_eta_one_degrees_do_not_count() -> None:
    tree = TreeEdges(np.array([[0, 1], [0, 2]]), np.array([0.9, 0.8]))

    assert rescore(tree, tree_degrees(tree, 3), 1.0).tolist() == [0.9, 0.8]
