"""Where recall may enter a tree: hand-made trees with more and with fewer leaves than one root can speak for."""

from __future__ import annotations

import pytest

from events.memory import Pointer
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.forest import INTERVALS_FROM, Forest, LeafText
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.texts import FactText, WrittenText
from tests.builders import KEYS, an_id

MIAMI = Scope(ScopeKind.ENTITY, "miami")
IN_S1 = frozenset((KEYS.session("alice", "s1"),))


def a_forest(leaves: int, target: int = 10) -> Forest:
    """A tree of so many leaves, an hour apart, none of which fits into one text with another."""
    forest = Forest(TreeShape(target), 0)
    texts = [
        (Leaf(number, an_id(f"leaf {number}"), number + 1), LeafText(FactText(Pointer(number, 0)), 500, IN_S1))
        for number in range(leaves)
    ]
    forest.change(MIAMI, texts)
    return forest


def summarise(forest: Forest, *, but: Item | None = None) -> None:
    """Write a summary for every node that may have one, and for one node none."""
    while True:
        digests = [work.digest for work in forest.plan_summaries()]
        digests = [digest for digest in digests if but is None or digest != but.digest]
        if not digests:
            return
        for digest in digests:
            forest.note_summary(digest, WrittenText(1), 400)


def spans(roots: tuple[Item, ...]) -> list[tuple[int, int]]:
    """First leaf and number of leaves of each."""
    return [(root.time_start, root.size) for root in roots]


def test_a_tree_of_256_leaves_has_one_root_and_one_of_257_its_intervals_too() -> None:
    small, large = a_forest(INTERVALS_FROM), a_forest(INTERVALS_FROM + 1)
    summarise(small)
    summarise(large)
    root, *intervals = large.recall_roots(MIAMI)

    assert small.recall_roots(MIAMI) == (small.trees[MIAMI].root,)
    assert root is large.trees[MIAMI].root
    # A group of one child is that child, on both levels.
    assert {each.level for each in intervals if isinstance(each, Node)} <= {1, 2}
    assert sum(each.size for each in intervals) == 257, "together they are the whole tree, each leaf once"
    assert [each.time_start for each in intervals] == sorted(each.time_start for each in intervals)
    assert len(intervals) > 1


def test_only_what_has_a_text_is_entered() -> None:
    forest = a_forest(600)
    assert forest.recall_roots(MIAMI) == ()

    second = forest.trees[MIAMI].items(2)[1]
    summarise(forest, but=second)
    without = forest.recall_roots(MIAMI)
    summarise(forest)

    assert forest.trees[MIAMI].root not in without, "what is above it has no text either"
    assert second not in without
    assert spans(forest.recall_roots(MIAMI))[1:] == spans(tuple(forest.trees[MIAMI].items(2)))
    assert set(forest.recall_roots(MIAMI)) == {*without, second, forest.trees[MIAMI].root}


def test_intervals_are_as_wide_as_two_levels_of_children_so_that_none_is_hot() -> None:
    forest = a_forest(3_000)
    summarise(forest)
    _, *intervals = forest.recall_roots(MIAMI)

    assert max(each.size for each in intervals) <= 16 * 16
    assert 3_000 / 256 <= len(intervals) <= 3_000 / 16


def test_a_root_that_stands_on_that_level_itself_is_named_once() -> None:
    forest = a_forest(300, target=30)
    summarise(forest)

    assert forest.trees[MIAMI].height == 2
    assert forest.recall_roots(MIAMI) == (forest.trees[MIAMI].root,)


def test_a_scope_without_a_tree_has_no_root() -> None:
    with pytest.raises(KeyError):
        a_forest(1).recall_roots(Scope(ScopeKind.USER, ""))
