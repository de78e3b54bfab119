"""Whatever happened to a MemTree, it is the tree built from scratch.

The oracle is algorithms.md 1, "History-independent shape", sentence by sentence.
"""

from __future__ import annotations

import random
from dataclasses import dataclass
from hashlib import blake2b

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree

TARGETS = [3, 4, 5, 10, 16]


@dataclass(frozen=True)
class Expected:
    """What the oracle says of a leaf or a node."""

    key: bytes
    digest: bytes
    starts: tuple[int, ...]
    ends: tuple[int, ...]
    children: tuple[Expected, ...] = ()


def may_close(target: int, level: int, key: bytes, count: int) -> bool:
    """Least .4 k, most 1.6 k, in between by a hash of level and key."""
    least, most = round(0.4 * target), round(1.6 * target)
    if count < least or count == most:
        return count == most
    drawn = blake2b(level.to_bytes(4, "big") + key, digest_size=4, person=b"memtree.close").digest()
    probability = float(((count - least + 1) / (most - least + 1)) ** 2.2)
    return int.from_bytes(drawn, "big") / 2**32 < probability


def parent(children: list[Expected]) -> Expected:
    """A node with a single child is that child; a node's key is its first leaf's key."""
    if len(children) == 1:
        return children[0]
    # A leaf's digest is its key; how many, then 0 for a node and the key's length + 1 for a leaf.
    head = [len(children), *(0 if child.children else len(child.key) + 1 for child in children)]
    content = b"".join(number.to_bytes(4, "big") for number in head)
    content += b"".join(child.digest for child in children)
    return Expected(
        key=children[0].key,
        digest=blake2b(content, digest_size=16, person=b"memtree.node").digest(),
        starts=tuple(start for child in children for start in child.starts),
        ends=tuple(end for child in children for end in child.ends),
        children=tuple(children),
    )


def root_over(target: int, nodes: list[Expected], level: int = 0) -> tuple[Expected | None, int]:
    """The root over one level's nodes and its height, level by level, left to right."""
    if not nodes:
        return None, 0
    if len(nodes) <= round(1.6 * target):
        return parent(nodes), level + 1 if len(nodes) > 1 else level
    parents: list[Expected] = []
    group: list[Expected] = []
    for node in nodes:
        group.append(node)
        if may_close(target, level, node.key, len(group)):
            parents.append(parent(group))
            group = []
    if group:
        parents.append(parent(group))
    return root_over(target, parents, level + 1)


def expected_tree(target: int, leaves: list[Leaf]) -> tuple[Expected | None, int]:
    in_order = sorted(leaves, key=lambda leaf: (leaf.time_start, leaf.key))
    level = [Expected(leaf.key, leaf.key, (leaf.time_start,), (leaf.time_end,)) for leaf in in_order]
    return root_over(target, level)


def assert_same(item: Item | None, expected: Expected | None) -> None:
    """The same node all the way down."""
    assert (item is None) == (expected is None)
    if item is None or expected is None:
        return
    assert (item.key, item.digest, item.size) == (expected.key, expected.digest, len(expected.starts))
    assert (item.time_start, item.time_end) == (min(expected.starts), max(expected.ends))
    children = item.children if isinstance(item, Node) else ()
    assert len(children) == len(expected.children)
    for child, expected_child in zip(children, expected.children, strict=True):
        assert_same(child, expected_child)


def digests_of(expected: Expected | None) -> set[bytes]:
    if expected is None or not expected.children:
        return set()
    return {expected.digest}.union(*map(digests_of, expected.children))


def a_leaf(draw: random.Random, span: int) -> Leaf:
    start = draw.randrange(span)
    return Leaf(start, draw.randbytes(16), start + draw.randrange(50))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("count", [0, 1, 2, 5, 6, 16, 17, 27, 100, 700])
def test_a_tree_built_at_once_is_what_the_statement_says(target: int, count: int) -> None:
    draw = random.Random(1000 * target + count)
    leaves = [a_leaf(draw, span=10**9) for _ in range(count)]
    tree = MemTree.build(leaves, TreeShape(target))
    expected, height = expected_tree(target, leaves)

    assert_same(tree.root, expected)
    assert tree.height == height
    tree.check()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("span", [4, 10**9])
def test_after_each_step_of_a_history_the_tree_is_as_built_from_its_leaves(
    target: int, seed: int, span: int
) -> None:
    # A span of four instants makes most times equal. The history fills the tree, then empties it.
    draw = random.Random(f"{target} {seed} {span}")
    tree = MemTree(TreeShape(target))
    leaves: list[Leaf] = []
    known: set[bytes] = set()
    for step in range(130):
        if not leaves or draw.random() < (0.85 if step < 75 else 0.15):
            leaves.append(a_leaf(draw, span))
            change = tree.insert(leaves[-1])
        else:
            change = tree.remove(leaves.pop(draw.randrange(len(leaves))))
        tree.check()
        expected, height = expected_tree(target, leaves)
        present = digests_of(expected)

        assert_same(tree.root, expected)
        assert tree.height == height
        assert {node.digest for node in tree.nodes()} == present
        assert sorted(node.digest for node in change.added) == sorted(present - known)
        assert sorted(node.digest for node in change.removed) == sorted(known - present)
        known = present


@pytest.mark.parametrize("target", [3, 10])
@pytest.mark.parametrize("seed", [1, 2])
def test_a_long_history_ends_in_the_tree_of_its_leaves(target: int, seed: int) -> None:
    draw = random.Random(f"long {target} {seed}")
    tree = MemTree(TreeShape(target))
    leaves: list[Leaf] = []
    for _ in range(1000):
        leaves.append(a_leaf(draw, span=10**6))
        tree.insert(leaves[-1])
        if draw.random() < 0.3:
            tree.remove(leaves.pop(draw.randrange(len(leaves))))
    tree.check()

    assert_same(tree.root, expected_tree(target, leaves)[0])

    draw.shuffle(leaves)
    while leaves:
        tree.remove(leaves.pop())
        if len(leaves) % 250 == 0:
            tree.check()

            assert_same(tree.root, expected_tree(target, leaves)[0])


@settings(max_examples=50, deadline=None)
@given(
    target=st.sampled_from(TARGETS),
    entries=st.lists(
        st.tuples(st.integers(-3, 3), st.binary(min_size=1, max_size=3)),
        max_size=60,
        unique_by=lambda e: e[1],
    ),
    order=st.randoms(use_true_random=False),
    kept=st.integers(0, 60),
)
def test_any_order_of_inserts_and_removals_gives_one_tree(
    target: int, entries: list[tuple[int, bytes]], order: random.Random, kept: int
) -> None:
    leaves = [Leaf(start, key, start + len(key)) for start, key in entries]
    staying = leaves[:kept]
    tree = MemTree(TreeShape(target))
    for leaf in order.sample(leaves, len(leaves)):
        tree.insert(leaf)
    leaving = leaves[kept:]
    order.shuffle(leaving)
    for leaf in leaving:
        tree.remove(leaf)
    tree.check()

    assert_same(tree.root, expected_tree(target, staying)[0])


@pytest.mark.parametrize("target", TARGETS)
def test_children_come_before_their_parents(target: int) -> None:
    draw = random.Random(target)
    tree = MemTree.build([a_leaf(draw, span=10**6) for _ in range(400)], TreeShape(target))
    for _ in range(30):
        for nodes in (tree.nodes(), tree.insert(a_leaf(draw, span=10**6)).added):
            place = {node.digest: number for number, node in enumerate(nodes)}

            assert all(
                place.get(child.digest, -1) < place[node.digest] for node in nodes for child in node.children
            )
