"""Vectors of nodes: which want one, what they are made of, and what becomes of those that are gone."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from functools import cache

import numpy as np
import pytest
from numpy.typing import NDArray

from events.memory import Digest, Pointer
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree_vectors import TreeVectors, count_without_vectors, gather, look_for_wanted
from projections.recall.slab import VectorRefused
from projections.texts import FactText, WrittenText
from tests.builders import KEYS, an_id

Vector = NDArray[np.float64]
MIAMI = Scope(ScopeKind.ENTITY, "miami")
# At most 5 children: six leaves make a second level.
SMALL = TreeShape(3)
EAST, NORTH, UP = (np.eye(3)[axis] for axis in range(3))


def a_leaf(number: int) -> Leaf:
    return Leaf(number, an_id(f"leaf {number}"), number)


def grow(forest: Forest, numbers: Iterable[int], length: int = 30, scope: Scope = MIAMI) -> None:
    for number in numbers:
        said_in = frozenset((KEYS.session("alice", f"s{number}"),))
        forest.change(scope, [(a_leaf(number), LeafText(FactText(Pointer(number, 0)), length, said_in))])


def root_of(forest: Forest, scope: Scope = MIAMI) -> Node:
    root = forest.trees[scope].root
    assert isinstance(root, Node)
    return root


def summarise(forest: Forest, digest: Digest, length: int = 50) -> None:
    forest.note_summary(digest, WrittenText(900), length)


def summarise_all(forest: Forest) -> None:
    while works := list(forest.plan_summaries()):
        for work in works:
            summarise(forest, work.digest)


def wanted(forest: Forest, vectors: TreeVectors) -> list[Node]:
    found: list[Node] = []
    for _ in look_for_wanted(forest, vectors, found):
        pass
    return found


def sweep(forest: Forest, vectors: TreeVectors) -> None:
    for _ in vectors.sweep(forest):
        pass


@cache
def strange(seed: bytes, dimensions: int = 24) -> Vector:
    """A unit vector of its own, in numbers that float16 has."""
    row = np.random.default_rng(list(seed)).normal(size=dimensions)
    return (row / np.linalg.norm(row)).astype(np.float16).astype(np.float64)


def fill(forest: Forest, vectors: TreeVectors) -> list[Digest]:
    """Give every node that wants one its vector; the digests whose texts that took."""
    nodes = wanted(forest, vectors)
    texts = [node.digest for node in nodes if node.digest in forest.summaries]
    leaves = {leaf.key: strange(leaf.key) for tree in forest.trees.values() for leaf in tree.leaves()}
    vectors.settle(nodes, forest.summaries, {digest: strange(digest) for digest in texts}, leaves)
    return texts


def vector_of(vectors: TreeVectors, item: Item) -> Vector:
    return vectors.codes_of([item.digest]).restored()[item.digest]


def test_a_node_that_is_its_children_put_together_has_the_sum_of_theirs_at_length_one() -> None:
    forest, vectors = Forest(SMALL, 800), TreeVectors()
    grow(forest, range(1, 3))
    vectors.settle(wanted(forest, vectors), {}, {}, {a_leaf(1).key: EAST, a_leaf(2).key: NORTH})

    assert vector_of(vectors, root_of(forest)) == pytest.approx([0.5**0.5, 0.5**0.5, 0], abs=1e-4)


def test_a_summarised_node_has_the_vector_of_its_summary_and_not_of_its_leaves() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(1, 3))
    root = root_of(forest).digest
    summarise(forest, root)
    leaves = {a_leaf(1).key: EAST, a_leaf(2).key: NORTH}
    vectors.settle(wanted(forest, vectors), forest.summaries, {root: UP}, leaves)

    assert vector_of(vectors, root_of(forest)) == pytest.approx(UP, abs=1e-4)


def test_a_sum_is_of_the_childrens_own_vectors_each_as_long_as_the_others() -> None:
    """Five leaves on one side weigh no more than the one on the other."""
    forest, vectors = Forest(SMALL, 800), TreeVectors()
    grow(forest, range(1, 7))
    root = root_of(forest)
    leaves = {a_leaf(number).key: EAST if number <= root.children[0].size else NORTH for number in range(1, 7)}
    vectors.settle(wanted(forest, vectors), {}, {}, leaves)

    assert len(root.children) == 2
    assert vector_of(vectors, root) == pytest.approx([0.5**0.5, 0.5**0.5, 0], abs=1e-4)


def test_only_nodes_with_a_text_want_a_vector_children_before_parents() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(1, 25))
    assert wanted(forest, vectors) == []

    lowest = sorted(work.digest for work in forest.plan_summaries())
    parked, *others = lowest
    forest.note_parked(parked)
    for digest in others:
        summarise(forest, digest)
    assert sorted(node.digest for node in wanted(forest, vectors)) == others

    summarise_all(forest)
    places = {node.digest: place for place, node in enumerate(wanted(forest, vectors))}
    above = [node for node in forest.trees[MIAMI].nodes() if node.digest in places and node.level > 1]
    assert above
    assert all(
        places[child.digest] < places[node.digest] for node in above for child in node.children if child.level
    )
    assert parked not in places
    assert root_of(forest).digest not in places


def test_a_node_whose_leaf_changed_wants_another_vector_and_the_old_one_does_not_stand_for_it() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(1, 3))
    summarise_all(forest)
    assert fill(forest, vectors) == [root_of(forest).digest]

    grow(forest, range(3, 4))
    assert root_of(forest).digest not in vectors
    assert wanted(forest, vectors) == [], "a node that waits for its summary has no vector, and not the old one"

    summarise_all(forest)
    assert fill(forest, vectors) == [root_of(forest).digest]


def test_after_a_change_only_the_texts_of_new_digests_are_embedded() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(0, 60, 2))
    summarise_all(forest)
    first = fill(forest, vectors)
    before = {node.digest for node in forest.trees[MIAMI].nodes()}
    grow(forest, [31])
    summarise_all(forest)
    after = {node.digest for node in forest.trees[MIAMI].nodes()}

    assert sorted(first) == sorted(before)
    assert sorted(fill(forest, vectors)) == sorted(after - before)
    assert fill(forest, vectors) == []


def test_a_node_that_stands_in_two_trees_wants_one_vector() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    for scope in (MIAMI, USER_SCOPE):
        grow(forest, range(1, 3), scope=scope)
    summarise_all(forest)

    assert len(fill(forest, vectors)) == len(vectors) == 1


def test_a_node_waits_for_the_vectors_that_its_own_is_made_of() -> None:
    forest, vectors = Forest(SMALL, 800), TreeVectors()
    grow(forest, range(1, 7))
    nodes = wanted(forest, vectors)
    some = {a_leaf(number).key: EAST for number in range(1, 6)}

    assert not vectors.settle(nodes, {}, {}, {})
    assert vectors.settle(nodes, {}, {}, some)
    assert root_of(forest).digest not in vectors
    assert vectors.settle(wanted(forest, vectors), {}, {}, {**some, a_leaf(6).key: EAST})
    assert root_of(forest).digest in vectors


def test_a_text_that_has_no_vector_is_left_out_and_asked_for_once() -> None:
    forest, vectors = Forest(SMALL, 800), TreeVectors()
    grow(forest, range(1, 3))
    grow(forest, range(11, 13), scope=USER_SCOPE)
    leaves: Mapping[bytes, Vector | None] = {
        a_leaf(1).key: EAST, a_leaf(2).key: None, a_leaf(11).key: None, a_leaf(12).key: None
    }  # fmt: skip
    vectors.settle(wanted(forest, vectors), {}, {}, leaves)

    assert vector_of(vectors, root_of(forest)) == pytest.approx(EAST, abs=1e-4)
    assert (len(vectors), wanted(forest, vectors)) == (1, [])


def test_vectors_that_cancel_each_other_out_are_a_node_without_one() -> None:
    forest, vectors = Forest(SMALL, 800), TreeVectors()
    grow(forest, range(1, 3))
    vectors.settle(wanted(forest, vectors), {}, {}, {a_leaf(1).key: EAST, a_leaf(2).key: -EAST})

    assert (len(vectors), wanted(forest, vectors)) == (0, [])


def test_what_two_trees_share_is_wanted_once_and_before_its_parents_in_both() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    other = Scope(ScopeKind.ENTITY, "oslo")
    grow(forest, range(60))
    grow(forest, range(100), scope=other)
    summarise_all(forest)
    nodes = wanted(forest, vectors)
    places = {node.digest: place for place, node in enumerate(nodes)}
    standing = {node.digest: node for scope in (MIAMI, other) for node in forest.trees[scope].nodes()}
    shared = {node.digest for node in forest.trees[MIAMI].nodes()} & {
        node.digest for node in forest.trees[other].nodes()
    }

    assert len(nodes) == len(places)
    assert places.keys() == standing.keys()
    assert any(shared)
    assert all(
        places[child.digest] < places[node.digest]
        for node in standing.values()
        for child in node.children
        if child.level
    )


def test_they_are_counted_to_the_end_or_at_least_as_some() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(60))
    summarise_all(forest)
    count = len(wanted(forest, vectors))

    assert count_without_vectors(forest, vectors, 10_000) == count
    assert 1 <= count_without_vectors(forest, vectors, 5) <= 5
    fill(forest, vectors)
    assert count_without_vectors(forest, vectors, 10_000) == 0


def test_a_vector_of_another_width_is_refused_and_changes_nothing() -> None:
    vectors = TreeVectors()
    vectors.put(b"one", EAST)
    with pytest.raises(VectorRefused):
        vectors.put(b"two", np.eye(4)[0])

    assert (len(vectors), b"two" in vectors) == (1, False)


def test_vectors_of_nodes_that_are_gone_are_overwritten_and_their_room_is_used_again() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(200))
    summarise_all(forest)
    fill(forest, vectors)
    sweep(forest, vectors)
    size, gone = vectors.size_bytes, root_of(forest)
    for first in range(200, 1_400, 20):
        grow(forest, range(first, first + 20))
        forest.change(MIAMI, [], [a_leaf(number - 200) for number in range(first, first + 20)])
        summarise_all(forest)
        fill(forest, vectors)
        sweep(forest, vectors)
    standing = {node.digest for node in forest.trees[MIAMI].nodes()}

    assert gone.digest not in vectors
    assert all(digest in vectors for digest in standing)
    assert len(vectors) <= 1.5 * len(standing) + 70
    assert vectors.size_bytes < 3 * size


def test_cosines_are_those_of_the_vectors_and_0_without_one() -> None:
    forest, vectors = Forest(SMALL, 0), TreeVectors()
    grow(forest, range(40))
    summarise_all(forest)
    fill(forest, vectors)
    items: list[Item] = [*forest.trees[MIAMI].nodes(), *forest.trees[MIAMI].leaves()]
    question = strange(b"question")
    found = gather(items, [vectors.codes_of(item.digest for item in items)])
    expected = [round(float(strange(item.digest) @ question), 4) if item.level else 0.0 for item in items]

    assert found.items == tuple(items)
    assert found.cosines(question).tolist() == pytest.approx(expected, abs=2e-4)
    assert gather(items, []).cosines(question).tolist() == [0.0] * len(items)
    assert gather([], []).cosines(question).tolist() == []


@pytest.mark.parametrize("seed", range(4))
def test_whatever_happened_vectors_are_those_of_trees_that_were_never_otherwise(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    forest, vectors = Forest(SMALL, 120), TreeVectors()
    present: set[int] = set()
    for _ in range(120):
        number = chance.randrange(40)
        if number in present:
            present.remove(number)
            forest.change(MIAMI, [], [a_leaf(number)])
        else:
            present.add(number)
            grow(forest, [number], chance.choice([10, 30, 90]))
        if chance.random() < 0.5:
            summarise_all(forest)
        if chance.random() < 0.5:
            fill(forest, vectors)
            sweep(forest, vectors)
    summarise_all(forest)
    fill(forest, vectors)
    nodes = forest.trees[MIAMI].nodes() if present else ()

    for node in nodes:
        assert vector_of(vectors, node) == pytest.approx(expected_vector(forest, node), abs=1e-3)


def expected_vector(forest: Forest, item: Item) -> Vector:
    """The oracle: the vector of an item's own text, or what its children's come to."""
    if not isinstance(item, Node) or item.digest in forest.summaries:
        return strange(item.digest)
    total: Vector = np.sum([expected_vector(forest, child) for child in item.children], axis=0)
    return total / np.linalg.norm(total)
