"""Units against Eq. 1-4 computed one node at a time, and the cases at the edge."""

from __future__ import annotations

import math
import random

import numpy as np
import pytest
from sklearn.cluster import KMeans

from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.partition import KMEANS_NODES_MAX, Partition, partition_nodes
from projections.ports import Vectors


def random_vectors(rng: np.random.Generator, count: int, dimensions: int = 12) -> Vectors:
    topics = rng.normal(size=(max(count // 8, 1), dimensions))
    rows = topics[rng.integers(0, len(topics), count)] + 0.5 * rng.normal(size=(count, dimensions))
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def at_degrees(*degrees: float) -> Vectors:
    return np.array([(math.cos(math.radians(d)), math.sin(math.radians(d))) for d in degrees], np.float32)


def ids_of(count: int) -> list[bytes]:
    return [b"%04d" % number for number in range(count)]


def dot(one: Vectors, other: Vectors) -> float:
    return math.fsum(float(a) * float(b) for a, b in zip(one, other, strict=True))


def oracle_centres(vectors: Vectors, ids: list[bytes], units: int) -> list[int]:
    """For each centroid the nearest node not taken yet, in ascending order of id."""
    order = sorted(range(len(ids)), key=ids.__getitem__)
    model = KMeans(n_clusters=units, n_init=1, random_state=0).fit(vectors[order])
    centres: list[int] = []
    for centroid in model.cluster_centers_:
        free = [index for index in order if index not in centres]
        centres.append(min(free, key=lambda index: round(math.dist(vectors[index], centroid) ** 2, 6)))
    return centres


def oracle_label(j: int, vectors: Vectors, positions: list[int], centres: tuple[int, ...]) -> int:
    """Eq. 2-4 with beta .8 and w 5."""
    scores = [
        round(0.8 * dot(vectors[j], vectors[c]) + 0.2 * (abs(positions[j] - positions[c]) <= 5), 6)
        for c in centres
    ]
    return scores.index(max(scores))


def test_every_node_is_in_the_unit_that_the_four_equations_give() -> None:
    for seed in range(6):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        count = int(rng.integers(40, 120))
        vectors, ids = random_vectors(rng, count), ids_of(count)
        rng.shuffle(ids)
        positions: list[int] = rng.permutation(count).tolist()
        found = partition_nodes(vectors, positions, ids, EventTreeParameters())

        assert len(found.centres) == math.ceil(count / 20)
        assert sorted(found.centres) == sorted(oracle_centres(vectors, ids, len(found.centres)))
        for j in range(count):
            expected = (
                found.centres.index(j)
                if j in found.centres
                else oracle_label(j, vectors, positions, found.centres)
            )
            assert found.labels[j] == expected


def test_a_node_that_says_something_else_joins_the_unit_of_its_time() -> None:
    # Ten nodes at 0 degrees, ten at 90, and one at 50: nearer to the second ten, said among the first.
    vectors = at_degrees(*[0] * 10, *[90] * 10, 50)
    parameters = EventTreeParameters(alpha=0.08)
    among_the_first = [*range(10), *range(100, 110), 0]
    far_from_both = [*range(10), *range(100, 110), 50]

    near = partition_nodes(vectors, among_the_first, ids_of(21), parameters)
    far = partition_nodes(vectors, far_from_both, ids_of(21), parameters)

    # .8 cos 50 + .2 = .714 against .8 sin 50 = .613; without the window .514 against .613.
    assert near.labels == (0,) * 10 + (1,) * 10 + (0,)
    assert far.labels == (0,) * 10 + (1,) * 10 + (1,)


def test_the_window_ends_at_w_positions() -> None:
    vectors = at_degrees(*[0] * 10, *[90] * 10, 50, 50)
    positions = [0] * 10 + [100] * 10 + [5, 6]

    found = partition_nodes(vectors, positions, ids_of(22), EventTreeParameters(alpha=0.09))

    assert found.labels[20:] == (0, 1)


def test_the_order_in_which_nodes_come_changes_nothing() -> None:
    for seed in range(4):
        print("seed", seed)
        rng = np.random.default_rng(seed)
        count = 90
        # Every vector twice: ties everywhere.
        vectors = np.tile(random_vectors(rng, count // 2), (2, 1))
        positions: list[int] = rng.integers(0, count, count).tolist()
        ids = ids_of(count)
        shuffled = random.Random(seed).sample(range(count), count)
        straight = partition_nodes(vectors, positions, ids, EventTreeParameters())
        moved = partition_nodes(
            vectors[shuffled],
            [positions[index] for index in shuffled],
            [ids[index] for index in shuffled],
            EventTreeParameters(),
        )

        assert [straight.labels[index] for index in shuffled] == list(moved.labels)
        assert list(straight.centres) == [shuffled[centre] for centre in moved.centres]


def test_many_nodes_are_parted_into_regions_first_and_the_equations_hold_all_the_same() -> None:
    print("seed", 5)
    rng = np.random.default_rng(5)
    count = KMEANS_NODES_MAX + 100
    vectors, ids = random_vectors(rng, count, 6), ids_of(count)
    positions: list[int] = rng.permutation(count).tolist()
    shuffled = random.Random(5).sample(range(count), count)
    found = partition_nodes(vectors, positions, ids, EventTreeParameters())
    moved = partition_nodes(
        vectors[shuffled],
        [positions[index] for index in shuffled],
        [ids[index] for index in shuffled],
        EventTreeParameters(),
    )

    assert len(set(found.centres)) == EventTreeParameters().unit_count(count)
    assert [found.labels[index] for index in shuffled] == list(moved.labels)
    for j in range(0, count, 500):
        expected = (
            found.centres.index(j) if j in found.centres else oracle_label(j, vectors, positions, found.centres)
        )
        assert found.labels[j] == expected


def test_many_nodes_that_say_the_same_make_as_many_units() -> None:
    count = KMEANS_NODES_MAX + 1
    found = partition_nodes(at_degrees(*[30] * count), list(range(count)), ids_of(count), EventTreeParameters())

    assert len(set(found.centres)) == EventTreeParameters().unit_count(count)


@pytest.mark.parametrize("gap", [0, 1000])
def test_centres_are_distinct_and_stay_apart_though_all_nodes_say_the_same(gap: int) -> None:
    positions = [gap * number for number in range(60)]

    found = partition_nodes(at_degrees(*[30] * 60), positions, ids_of(60), EventTreeParameters())

    # The free nodes with the smallest ids; everybody else ties and goes to the lowest unit.
    assert found.centres == (0, 1, 2)
    assert found.labels == (0, 1, 2) + (0,) * 57


def test_units_are_numbered_by_the_time_of_their_centres() -> None:
    found = partition_nodes(
        at_degrees(0, 0, 90, 90), [9, 8, 1, 2], ids_of(4), EventTreeParameters(alpha=0.5, window=0)
    )

    assert found.labels == (1, 1, 0, 0)


@pytest.mark.parametrize(
    ("count", "expected"),
    [(0, Partition((), ())), (1, Partition((0,), (0,))), (2, Partition((0, 0), (0,)))],
)
def test_hardly_any_nodes_make_one_unit_or_none(count: int, expected: Partition) -> None:
    assert partition_nodes(at_degrees(0, 0)[:count], [0, 1][:count], ids_of(count), EventTreeParameters()) == (
        expected
    )


def test_alpha_one_makes_every_node_its_own_unit() -> None:
    found = partition_nodes(at_degrees(0, 10, 20), [0, 1, 2], ids_of(3), EventTreeParameters(alpha=1))

    assert found == Partition((0, 1, 2), (0, 1, 2))


def test_lengths_that_differ_are_refused() -> None:
    with pytest.raises(ValueError, match="lengths"):
        partition_nodes(at_degrees(0, 10), [0], ids_of(2), EventTreeParameters())
