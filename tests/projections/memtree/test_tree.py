"""The MemTree's shape: its formulas, its bounds, and what one change touches."""

from __future__ import annotations

import random
from hashlib import blake2b
from math import ceil, log
from statistics import mean

import pytest

from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import AbsentLeaf, DuplicateLeaf, MemTree

TEN = TreeShape(10)
YEAR_MS = 365 * 24 * 3600 * 1000


def a_leaf(draw: random.Random, time_start: int | None = None) -> Leaf:
    start = draw.randrange(YEAR_MS) if time_start is None else time_start
    return Leaf(start, draw.randbytes(16), start + draw.randrange(1000))


def a_tree(draw: random.Random, leaves: int, shape: TreeShape = TEN) -> MemTree:
    return MemTree.build([a_leaf(draw) for _ in range(leaves)], shape)


def numbered(count: int) -> list[Leaf]:
    return [Leaf(number, bytes([number]), number) for number in range(count)]


def state_of(tree: MemTree) -> tuple[tuple[Leaf, ...], list[bytes], Item | None, int]:
    return tree.leaves(), [node.digest for node in tree.nodes()], tree.root, len(tree)


def boundaries(tree: MemTree, above: int) -> list[tuple[int, bytes]]:
    """Level and first key of every node above a level: where the groups up there begin."""
    return [(node.level, node.key) for node in tree.nodes() if node.level > above]


@pytest.mark.parametrize(
    ("target", "least", "most"), [(3, 1, 5), (4, 2, 6), (5, 2, 8), (10, 4, 16), (16, 6, 26), (20, 8, 32)]
)
def test_a_group_has_four_to_sixteen_tenths_of_the_target(target: int, least: int, most: int) -> None:
    shape = TreeShape(target)

    assert (shape.least, shape.most) == (least, most)


def test_for_ten_the_chance_to_close_is_n_less_3_in_13_to_the_power_2_2() -> None:
    chances = [TEN.probability(count) for count in range(1, 18)]

    assert chances[:3] == [0, 0, 0]
    assert chances[3:16] == pytest.approx([((n - 3) / 13) ** 2.2 for n in range(4, 17)])
    assert chances[15:] == [1, 1]


@pytest.mark.parametrize("target", [2, 1, 0, -10])
def test_a_target_below_three_is_refused(target: int) -> None:
    with pytest.raises(ValueError, match="at least 3"):
        TreeShape(target)


@pytest.mark.parametrize("count", [3, 4, 8, 12, 15, 16])
def test_keys_close_a_group_as_often_as_the_formula_says(count: int) -> None:
    draw = random.Random(count)
    trials = 4000
    closed = sum(TEN.closes(1, draw.randbytes(16), count) for _ in range(trials))

    assert closed / trials == pytest.approx(TEN.probability(count), abs=0.03)


def test_whether_a_key_closes_is_drawn_anew_on_each_level_but_not_for_each_count() -> None:
    keys = [number.to_bytes(2, "big") for number in range(300)]
    by_level = [[TEN.closes(level, key, 12) for key in keys] for level in range(3)]

    assert by_level[0] != by_level[1] != by_level[2]
    assert all(TEN.closes(0, key, 13) for key in keys if TEN.closes(0, key, 12))


def test_a_tree_without_leaves_has_no_root_and_one_leaf_is_its_own_root() -> None:
    tree = MemTree(TEN)

    assert (tree.root, tree.height, len(tree), tree.nodes()) == (None, 0, 0, ())

    leaf = numbered(1)[0]
    change = tree.insert(leaf)

    assert (tree.root, tree.height, len(tree), tree.nodes()) == (leaf, 0, 1, ())
    assert change.added == change.removed == ()


def test_two_to_sixteen_leaves_are_the_roots_children() -> None:
    for count in range(2, 17):
        root = MemTree.build(numbered(count), TEN).root

        assert isinstance(root, Node)
        assert root.children == tuple(numbered(count))
        assert (root.level, root.size, root.key) == (1, count, b"\0")


def test_the_seventeenth_leaf_adds_a_level_and_its_removal_takes_it_away() -> None:
    *sixteen, last = numbered(17)
    tree = MemTree.build(sixteen, TEN)
    before = state_of(tree)[:2]
    added = tree.insert(last)

    assert tree.height == 2
    assert added.added[-1] is tree.root

    removed = tree.remove(last)

    assert tree.height == 1
    assert state_of(tree)[:2] == before
    assert [node.digest for node in removed.added] == [node.digest for node in added.removed]


def seventeen_of_which_the_last_is_alone() -> list[Leaf]:
    """Leaves whose keys close no group before they must: the seventeenth begins one of its own."""
    keys = [key for key in map(bytes, ([n] for n in range(256))) if not TEN.closes(0, key, 15)][:17]
    return [Leaf(number, key, number) for number, key in enumerate(keys)]


def test_a_lone_child_stands_beside_nodes_without_a_node_of_its_own() -> None:
    leaves = seventeen_of_which_the_last_is_alone()
    tree = MemTree.build(leaves, TEN)

    assert isinstance(tree.root, Node)
    assert [child.size for child in tree.root.children] == [16, 1]
    assert tree.root.children[1] is leaves[16]
    assert [node.level for node in tree.nodes()] == [1, 2]


def test_a_root_that_becomes_a_child_keeps_its_summary() -> None:
    *sixteen, last = seventeen_of_which_the_last_is_alone()
    tree = MemTree.build(sixteen, TEN)
    old_root = tree.root
    grown = tree.insert(last)
    new_root = tree.root

    assert isinstance(old_root, Node)
    assert isinstance(new_root, Node)
    assert new_root.children[0].digest == old_root.digest
    assert (grown.added, grown.removed) == ((new_root,), ())

    shrunk = tree.remove(last)

    assert (shrunk.added, shrunk.removed) == ((), (new_root,))


def test_a_digest_is_the_hash_of_the_childrens_and_a_leaf_never_passes_for_a_node() -> None:
    pair = MemTree.build(numbered(2), TEN).root
    head = b"".join(number.to_bytes(4, "big") for number in (2, 2, 2))
    posing = [Leaf(0, pair.digest, 0), Leaf(1, b"x", 1)] if pair else []

    assert isinstance(pair, Node)
    assert pair.digest == blake2b(head + b"\0\1", digest_size=16, person=b"memtree.node").digest()

    over_leaf = Node.over(tuple(posing), 2)
    over_node = Node.over((pair, posing[1]), 2)

    assert over_leaf.digest != over_node.digest


@pytest.mark.parametrize(
    ("target", "count", "digest"),
    [
        (10, 17, "b981e7224f63572a61fd06a44f49a250"),
        (10, 200, "e992b06a149751fbb5a38c20e477d634"),
        (10, 3000, "790658671b08f72df75d7733f294a5b9"),
        (3, 300, "44962d519c1c56a921049f74def7cdcb"),
    ],
)
def test_the_digest_of_the_same_leaves_is_the_same_in_every_release(target: int, count: int, digest: str) -> None:
    # Another digest asks for every summary of every store again.
    keys = [blake2b(b"leaf %d" % number, digest_size=16).digest() for number in range(count)]
    leaves = [Leaf(number // 3 * 1000, key, number // 3 * 1000 + number) for number, key in enumerate(keys)]
    root = MemTree.build(leaves, TreeShape(target)).root

    assert root is not None
    assert root.digest.hex() == digest


def test_keys_of_different_lengths_are_told_apart() -> None:
    one = Node.over((Leaf(0, b"ab", 0), Leaf(1, b"c", 1)), 1)
    other = Node.over((Leaf(0, b"a", 0), Leaf(1, b"bc", 1)), 1)

    assert one.digest != other.digest


def test_a_node_spans_the_earliest_start_and_the_latest_end() -> None:
    leaves = [Leaf(10, b"a", 500), Leaf(20, b"b", 21), Leaf(30, b"c", 30)]
    root = MemTree.build(reversed(leaves), TEN).root

    assert root is not None
    assert (root.time_start, root.time_end) == (10, 500)


def test_leaves_of_one_time_stand_in_the_order_of_their_keys() -> None:
    draw = random.Random(5)
    leaves = [a_leaf(draw, time_start=7) for _ in range(100)]
    tree = MemTree(TEN)
    for leaf in leaves:
        tree.insert(leaf)
    tree.check()

    assert [leaf.key for leaf in tree.leaves()] == sorted(leaf.key for leaf in leaves)


def test_a_key_that_is_there_is_refused_and_nothing_changes() -> None:
    draw = random.Random(6)
    tree = a_tree(draw, 200)
    before = state_of(tree)
    there = tree.leaves()[90]
    elsewhere = Leaf(there.time_start + YEAR_MS, there.key, there.time_end + YEAR_MS)

    for leaf in (there, elsewhere):
        with pytest.raises(DuplicateLeaf):
            tree.insert(leaf)
    with pytest.raises(DuplicateLeaf):
        MemTree.build([there, elsewhere], TEN)

    assert state_of(tree) == before
    tree.check()


def test_a_leaf_that_is_not_there_cannot_be_removed_and_nothing_changes() -> None:
    draw = random.Random(7)
    tree = a_tree(draw, 200)
    before = state_of(tree)
    there = tree.leaves()[90]
    later = Leaf(there.time_start, there.key, there.time_end + 1)

    for leaf in (a_leaf(draw), a_leaf(draw, time_start=2 * YEAR_MS), later):
        with pytest.raises(AbsentLeaf):
            tree.remove(leaf)
    with pytest.raises(AbsentLeaf):
        MemTree(TEN).remove(there)

    assert state_of(tree) == before
    tree.check()


def test_a_root_once_taken_does_not_change() -> None:
    draw = random.Random(8)
    tree = a_tree(draw, 300)
    root = tree.root
    assert isinstance(root, Node)
    children, digest = root.children, root.digest
    for _ in range(20):
        tree.insert(a_leaf(draw))

    assert (root.children, root.digest, root.size) == (children, digest, 300)
    assert tree.root is not root


@pytest.mark.parametrize("seed", range(3))
def test_an_append_dirties_one_path_and_three_more_when_it_adds_a_level(seed: int) -> None:
    draw = random.Random(seed)
    tree = MemTree(TEN)
    for number in range(2200):
        height = tree.height
        change = tree.insert(a_leaf(draw, time_start=number * 10))

        assert len(change.added) <= tree.height + (0 if tree.height == height else 3), (seed, number)


@pytest.mark.parametrize("leaves", [2, 9, 16, 17, 40, 120, 161, 400, 1000, 1700, 3000])
def test_height_is_at_most_log_8_of_the_leaves_plus_one(leaves: int) -> None:
    for seed in range(3):
        tree = a_tree(random.Random(seed), leaves)

        assert tree.height <= ceil(log(leaves, 8)) + 1, (seed, leaves)


def test_the_mean_branching_is_near_the_target() -> None:
    tree = a_tree(random.Random(11), 12_000)
    branching = [len(node.children) for node in tree.nodes()]

    assert 9.5 <= mean(branching) <= 10.8
    assert max(branching) <= 16


def test_a_small_target_still_branches() -> None:
    # The nearest thing that must not happen: a list of nodes with one child each, as deep as it is long.
    tree = a_tree(random.Random(12), 1000, TreeShape(3))

    assert tree.height <= 9
    assert min(len(node.children) for node in tree.nodes()) >= 2


def test_boundaries_above_do_not_move_when_an_inner_leaf_changes() -> None:
    draw = random.Random(13)
    tree = a_tree(draw, 1500)
    nodes = [node for node in tree.nodes() if node.level == 1 and len(node.children) > 2]
    for node in draw.sample(nodes, 60):
        place = draw.randrange(1, len(node.children) - 1)
        old = node.children[place]
        key = next(key for key in iter(lambda: draw.randbytes(16), b"") if not TEN.closes(0, key, place + 1))
        new = Leaf(old.time_start, key, old.time_end)
        before = boundaries(tree, above=0), {each.digest for each in tree.nodes()}
        tree.remove(next(leaf for leaf in tree.leaves() if leaf is old))
        tree.insert(new)
        added = [each for each in tree.nodes() if each.digest not in before[1]]

        assert boundaries(tree, above=0) == before[0]
        assert [each.level for each in added] == list(range(1, tree.height + 1))
        tree.remove(new)
        tree.insert(Leaf(old.time_start, old.key, old.time_end))
    tree.check()


def test_an_insert_in_the_middle_dirties_little_more_than_one_path() -> None:
    # From 20 to 4,000 leaves. The tail grows with the height: of 2,000 and more by themselves the 99th percentile
    # is 12 to 14 (BENCHMARKS.md, trees).
    draw = random.Random(14)
    beyond: list[int] = []
    for leaves in (20, 50, 100, 200, 400, 800, 1600, 4000):
        tree = a_tree(draw, leaves)
        for _ in range(300):
            leaf = a_leaf(draw)
            added = len(tree.insert(leaf).added)
            beyond.append(added - tree.height)
            tree.remove(leaf)

    assert mean(beyond) <= 1.5
    assert sorted(beyond)[int(0.99 * len(beyond))] <= 11


def test_what_was_removed_and_comes_back_has_the_digests_it_had() -> None:
    draw = random.Random(15)
    tree = a_tree(draw, 800)
    for leaf in draw.sample(tree.leaves(), 100):
        root = tree.root
        away = tree.remove(leaf)
        back = tree.insert(leaf)

        assert root is not None
        assert tree.root is not None
        assert tree.root.digest == root.digest
        assert [node.digest for node in back.added] == [node.digest for node in away.removed]
        assert [node.digest for node in back.removed] == [node.digest for node in away.added]
