"""Trees as columns, which of them a question recalls, and the way down; the oracles walk through the trees."""

from __future__ import annotations

import random
from collections.abc import Iterator

import numpy as np
import pytest

from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.forest import INTERVALS_FROM
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, prepare, score_all
from projections.recall.forest_columns import ForestColumns, TreeLayout
from projections.recall.forest_ranking import Trees, rank_forest
from projections.recall.forest_recall import (
    TREES_MAX,
    Browse,
    Frontier,
    RecalledTree,
    browse,
    keep_best,
    recall_trees,
)
from projections.recall.nodes import NodeSet
from tests.builders import MONDAY
from tests.projections.recall.made_nodes import a_fact


def a_tree(leaves: int, seed: int, target: int = 4) -> MemTree:
    """A tree over so many leaves with keys from a seed."""
    keys = random.Random(seed)
    return MemTree.build(
        [Leaf(MONDAY + n, keys.randbytes(16), MONDAY + n) for n in range(leaves)], TreeShape(target)
    )


def columns_of(*trees: MemTree) -> ForestColumns:
    """Trees of entities; each leaf has a row of its own, tree by tree in the order of places."""
    parts: list[tuple[Scope, TreeLayout, np.ndarray]] = []
    rows = 0
    for n, tree in enumerate(trees):
        assert tree.root is not None
        layout = TreeLayout.of(tree.root)
        own = [isinstance(item, Leaf) for item in layout.items]
        parts.append((Scope(ScopeKind.ENTITY, f"e{n}"), layout, np.where(own, rows + np.cumsum(own) - 1, -1)))
        rows += sum(own)
    return ForestColumns.join(parts)


def leaves_under(item: Item) -> Iterator[Leaf]:
    """The oracle: a walk."""
    if isinstance(item, Leaf):
        yield item
    else:
        for child in item.children:
            yield from leaves_under(child)


def everything(frontier: Frontier) -> np.ndarray:
    return np.arange(len(frontier.places))


@pytest.mark.parametrize("seed", range(4))
def test_columns_say_of_every_item_what_the_tree_says(seed: int) -> None:
    sizes = random.Random(seed).choices((1, 2, 5, 17, 90, 400), k=5)
    print(f"seed {seed}, trees of {sizes}")
    trees = [a_tree(size, 10 * seed + n) for n, size in enumerate(sizes)]
    columns = columns_of(*trees)
    for place in range(columns.size):
        item = columns.item(place)
        children, of = columns.children(np.array([place]))
        below = [columns.item(int(each)) for each in columns.leaves_below(place)]

        assert bool(columns.is_leaf(np.array([place]))[0]) == isinstance(item, Leaf)
        assert [columns.item(int(each)) for each in children] == list(getattr(item, "children", ()))
        assert not of.any()
        assert sorted(below, key=lambda leaf: leaf.order) == list(leaves_under(item))
    assert columns.size == sum(len(tree) + len(tree.nodes()) for tree in trees)


@pytest.mark.parametrize("seed", range(4))
def test_the_best_below_a_node_is_that_of_its_leaves(seed: int) -> None:
    print(f"seed {seed}")
    values = np.random.default_rng(seed)
    columns = columns_of(a_tree(60, seed), a_tree(1, seed + 1), a_tree(7, seed + 2))
    own = np.full(columns.size, -np.inf)
    leaves = np.flatnonzero(columns.is_leaf(np.arange(columns.size)))
    own[leaves] = values.random(len(leaves))
    best = columns.best_below(own)
    expected = [max(own[columns.leaves_below(place)]) for place in range(columns.size)]

    assert best.tolist() == expected


def test_no_tree_at_all_is_no_tree_to_recall() -> None:
    columns, none, scores = ForestColumns.join(()), np.zeros(0, dtype=np.intp), np.zeros(0)

    assert (columns.size, recall_trees(columns, [np.zeros(0, dtype=bool)], scores, none, scores)) == (0, [])
    assert browse(columns, [], everything).reached()[0].size == 0


def test_a_large_tree_is_entered_at_its_intervals_too_and_a_fact_stands_for_its_own() -> None:
    small, large = a_tree(INTERVALS_FROM, 1), a_tree(INTERVALS_FROM + 1, 2)
    columns = columns_of(small, large)
    intervals = [item for item in large.items(2) if isinstance(item, Node) and item.level == 2]
    entered = [columns.item(int(place)) for place in columns.entries]

    assert entered[:2] == [small.root, large.root]
    assert {item.digest for item in entered[2:]} == {item.digest for item in intervals} != set()
    for place in range(columns.size):
        item, entry = columns.item(place), columns.item(int(columns.entries[columns.entry_of[place]]))
        if isinstance(item, Leaf):
            above = [each for each in intervals if item in set(leaves_under(each))]
            assert entry is (small.root if item in set(small.leaves()) else [*above, large.root][0])


def test_a_tree_is_recalled_by_its_root_or_by_a_fact_and_scores_by_the_better() -> None:
    columns = columns_of(*(a_tree(3, n) for n in range(30)))
    roots = np.linspace(0.3, 0.0, 30)
    roots[29] = -np.inf  # without a vector
    leaf_of = {tree: int(columns.leaves_below(int(columns.entries[tree]))[1]) for tree in (0, 20, 29)}
    facts, near = np.array([leaf_of[each] for each in (0, 20, 20, 29)]), np.array([0.1, 0.9, 0.2, 0.05])
    found = recall_trees(columns, [np.ones(30, dtype=bool)], roots, facts, near)

    assert [each.tree for each in found] == [20, *range(TREES_MAX), 29]
    assert found[0] == RecalledTree(int(columns.entries[20]), 20, float(roots[20]), 0.9)
    assert (found[0].score, found[1].score, found[1].by_fact) == (0.9, 0.3, 0.1)
    assert (found[-1].by_root, found[-1].score) == (None, 0.05)


def test_trees_that_are_not_asked_for_are_recalled_neither_way() -> None:
    columns = columns_of(a_tree(3, 1), a_tree(3, 2))
    leaves = np.array([place for place in range(columns.size) if isinstance(columns.item(place), Leaf)])
    found = recall_trees(columns, [np.array([False, True])], np.array([0.9, 0.1]), leaves, np.ones(len(leaves)))

    assert [each.tree for each in found] == [1]


def test_who_keeps_everything_reaches_every_leaf_once_and_ranks_a_level_of_all_trees_at_once() -> None:
    trees = [a_tree(size, size) for size in (1, 4, 30, 200)]
    columns = columns_of(*trees)
    calls: list[Frontier] = []

    def rank(frontier: Frontier) -> np.ndarray:
        calls.append(frontier)
        return everything(frontier)

    way = browse(columns, [int(place) for place in columns.starts], rank)
    places, of = way.reached()
    found = [(int(tree), columns.item(int(place))) for place, tree in zip(places, of, strict=True)]

    assert sorted(found, key=lambda each: (each[0], each[1].order)) == [
        (n, leaf) for n, tree in enumerate(trees) for leaf in tree.leaves()
    ]
    assert way.levels == len(calls) == max(tree.height for tree in trees)
    assert set(calls[0].trees.tolist()) == {1, 2, 3}, "the first call sees all trees but the lone leaf"


def test_a_beam_keeps_so_many_nodes_and_leaves_of_each_tree_whatever_the_others_have() -> None:
    columns = columns_of(a_tree(400, 1), a_tree(400, 2))
    way = Browse(columns, [int(place) for place in columns.starts])
    rng = np.random.default_rng(3)
    while not way.done:
        frontier = way.frontier
        scores = rng.random(len(frontier.places)) + 10 * (frontier.trees == 0)
        kept = keep_best(frontier, scores, 3)
        for tree in (0, 1):
            for leaf in (False, True):
                group = np.flatnonzero((frontier.trees == tree) & (frontier.is_leaf == leaf))
                best = sorted(group.tolist(), key=lambda each: -scores[each])[:3]
                assert set(kept.tolist()) & set(group.tolist()) == set(best)
        way.advance(kept)


def test_between_equal_ones_the_earlier_go_on() -> None:
    columns = columns_of(a_tree(4, 1))
    way = Browse(columns, [0])

    assert sorted(keep_best(way.frontier, np.full(4, 0.5), 2).tolist()) == [0, 1]


def a_forest(contents: list[str], leaves: int) -> tuple[NodeSet, ForestColumns]:
    """Facts in rows, the first `leaves` of them in one tree."""
    nodes = NodeSet(b"alice")
    for n, content in enumerate(contents):
        nodes.add(a_fact(f"f{n}", (n,)), content)
    tree = a_tree(leaves, 5)
    return nodes, columns_of(tree)


def test_what_stands_in_no_tree_answers_only_beside_all_families() -> None:
    nodes, columns = a_forest([f"thing {n}" for n in range(9)] + ["a red boat"], 9)
    request = RecallRequest("red boat", 3, NO_EMBEDDER)
    prepared = prepare(nodes, request)
    scores = score_all(prepared, request)
    found = [
        rank_forest(
            scores,
            Trees(columns, np.ones(len(columns.entries), dtype=bool), None, [prepared.rows], loose=loose),
            5,
        )
        for loose in (True, False)
    ]

    assert (found[0].leading.rows[0], found[0].loose) == (9, 1)
    assert (9 in found[1].leading.rows, found[1].loose) == (False, 0)


def test_trees_that_are_recalled_apart_are_not_crowded_out_by_many_that_score_more() -> None:
    """Each of 25 has the words twice, and a tree of its own; the other tree has them once in each leaf."""
    nodes = NodeSet(b"alice")
    contents = ["red boat red boat"] * 25 + ["a red boat and something else"] * 3
    for n, content in enumerate(contents):
        nodes.add(a_fact(f"f{n}", (n,)), content)
    columns = columns_of(*(a_tree(1, n) for n in range(25)), a_tree(3, 99))
    request = RecallRequest("red boat", 3, NO_EMBEDDER)
    prepared = prepare(nodes, request)
    scores = score_all(prepared, request)
    every, last = np.ones(26, dtype=np.bool_), np.arange(26) == 25
    kinds = [prepared.rows[:25], prepared.rows[25:]]
    together = rank_forest(scores, Trees(columns, every, None, kinds), 40)
    apart = rank_forest(scores, Trees(columns, every, None, kinds, apart=last), 40)

    assert 25 not in {tree.tree for tree in together.trees}
    assert {25, 26, 27} <= set(apart.leading.rows.tolist())
    assert len(apart.trees) == len(together.trees) + 1


@pytest.mark.parametrize("seed", range(3))
def test_by_words_the_best_leaves_are_those_of_an_exact_search(seed: int) -> None:
    print(f"seed {seed}")
    rng = random.Random(seed)
    words = [f"w{n}" for n in range(30)]
    nodes, columns = a_forest([" ".join(rng.choices(words, k=6)) for _ in range(300)], 300)
    for _ in range(20):
        request = RecallRequest(" ".join(rng.sample(words, 3)), 5, NO_EMBEDDER)
        prepared = prepare(nodes, request)
        scores = score_all(prepared, request)
        trees = Trees(columns, np.ones(len(columns.entries), dtype=bool), None, [prepared.rows])
        found, exact = rank_forest(scores, trees, 10).leading, scores.best(10)

        assert found.smoothed.tolist() == exact.smoothed.tolist()


def test_a_large_tree_is_laid_out_in_many_small_steps() -> None:
    """Others run in between: a tree of 30,000 leaves would hold them up for 20 ms."""
    root = a_tree(5_000, seed=1).root
    assert root is not None
    items = len(TreeLayout.of(root).items)

    assert sum(1 for _ in TreeLayout.in_steps(root)) > items // 600
