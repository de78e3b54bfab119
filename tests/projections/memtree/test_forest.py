"""Which nodes want a summary, which are their children put together, and what waits for what."""

from __future__ import annotations

import random

import pytest

from events.memory import Digest, Pointer
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.texts import FactText, WrittenText
from tests.builders import KEYS, an_id

MIAMI = Scope(ScopeKind.ENTITY, "miami")
# At most 5 children: six leaves make a second level.
SMALL = TreeShape(3)


def a_forest(shape: TreeShape = SMALL, concatenation_max: int = 800) -> Forest:
    return Forest(shape, concatenation_max)


def a_leaf(number: int) -> Leaf:
    return Leaf(number, an_id(f"leaf {number}"), number + 1)


def grow(forest: Forest, numbers: range, length: int = 500, scope: Scope = MIAMI) -> None:
    """Leaves in time order; the text of leaf n is fact n, said in session s<n>."""
    for number in numbers:
        session = KEYS.session("alice", f"s{number}")
        text = LeafText(FactText(Pointer(number, 0)), length, frozenset((session,)))
        forest.change(scope, [(a_leaf(number), text)])


def root_of(forest: Forest, scope: Scope = MIAMI) -> Node:
    root = forest.trees[scope].root
    assert isinstance(root, Node)
    return root


def summarise(forest: Forest, digest: Digest, seq: int = 900, length: int = 500) -> None:
    forest.note_summary(digest, WrittenText(seq), length)


def planned(forest: Forest) -> set[Digest]:
    return {work.digest for work in forest.plan_summaries()}


def facts(*numbers: int) -> tuple[FactText, ...]:
    return tuple(FactText(Pointer(number, 0)) for number in numbers)


def test_a_tree_of_one_leaf_is_that_leaf_and_wants_nothing() -> None:
    forest = a_forest()
    grow(forest, range(1, 2), length=9000)

    assert forest.dirty_count() == 0
    assert planned(forest) == set()
    assert forest.root_refs(MIAMI) == facts(1)


@pytest.mark.parametrize(("last", "dirty"), [(399, 0), (400, 1)])
def test_children_of_800_characters_with_what_is_between_them_are_put_together(last: int, dirty: int) -> None:
    forest = a_forest()
    grow(forest, range(1, 2), length=400)
    grow(forest, range(2, 3), length=last)

    assert forest.dirty_count() == dirty
    assert forest.root_refs(MIAMI) == (() if dirty else facts(1, 2))


def test_a_root_has_its_text_though_nobody_asked_for_dirty_nodes_before() -> None:
    forest = a_forest()
    grow(forest, range(1, 3), length=10)

    assert forest.root_refs(MIAMI) == facts(1, 2)


def test_texts_put_together_count_at_the_next_level_too() -> None:
    forest = a_forest(concatenation_max=100)
    grow(forest, range(1, 7), length=20)
    below = [child for child in root_of(forest).children if isinstance(child, Node)]
    (work,) = forest.plan_summaries()

    # Each node below has at most five leaves; all six together with what is between them are 125.
    assert below
    assert forest.dirty_count() == 1
    assert work.digest == root_of(forest).digest
    assert tuple(ref for child in work.children for ref in child.refs) == facts(*range(1, 7))


def test_a_node_becomes_due_only_when_its_own_children_are_ready() -> None:
    forest = a_forest()
    grow(forest, range(1, 25))
    root = root_of(forest)
    levels = {node.digest: node for node in forest.trees[MIAMI].nodes()}
    lowest = {digest for digest, node in levels.items() if node.level == 1}
    assert forest.dirty_count() == len(levels)
    assert planned(forest) == lowest

    parent = next(node for node in levels.values() if node.level == 2)
    children = [child.digest for child in parent.children if isinstance(child, Node)]
    for digest in children[1:]:
        summarise(forest, digest)
    assert parent.digest not in planned(forest)

    summarise(forest, children[0])
    assert parent.digest in planned(forest)
    assert root.digest not in planned(forest)


def test_work_shows_its_children_in_time_order_and_whose_words_they_are() -> None:
    forest = a_forest()
    grow(forest, range(1, 4))
    (work,) = forest.plan_summaries()

    assert (work.scope, work.digest) == (MIAMI, root_of(forest).digest)
    assert [(child.refs, child.time_start, child.time_end) for child in work.children] == [
        (facts(1), 1, 2), (facts(2), 2, 3), (facts(3), 3, 4),
    ]  # fmt: skip
    assert work.lineage == {KEYS.session("alice", f"s{number}") for number in (1, 2, 3)}


def test_lineage_reaches_through_summaries_to_every_leaf() -> None:
    forest = a_forest()
    grow(forest, range(1, 25))
    while (root := root_of(forest)).digest not in planned(forest):
        for digest in planned(forest):
            summarise(forest, digest)
    work = next(work for work in forest.plan_summaries() if work.digest == root.digest)

    assert work.lineage == {KEYS.session("alice", f"s{number}") for number in range(1, 25)}
    assert all(child.refs == (WrittenText(900),) for child in work.children)


def test_a_summary_belongs_to_its_digest_and_is_there_again_when_the_digest_is() -> None:
    forest = a_forest()
    grow(forest, range(1, 3))
    digest = root_of(forest).digest
    summarise(forest, digest)
    assert forest.dirty_count() == 0

    grow(forest, range(3, 4))
    assert planned(forest) == {root_of(forest).digest} != {digest}

    forest.change(MIAMI, [], [a_leaf(3)])
    assert forest.dirty_count() == 0
    assert forest.root_refs(MIAMI) == (WrittenText(900),)


def test_two_trees_of_the_same_leaves_share_one_summary() -> None:
    forest = a_forest()
    grow(forest, range(1, 3))
    grow(forest, range(1, 3), scope=USER_SCOPE)
    assert (forest.dirty_count(), forest.dirty_count(MIAMI), forest.dirty_count(USER_SCOPE)) == (1, 1, 1)
    assert len(list(forest.plan_summaries())) == 1

    summarise(forest, root_of(forest).digest)
    assert forest.dirty_count() == 0
    assert forest.root_refs(USER_SCOPE) == forest.root_refs(MIAMI) == (WrittenText(900),)


def test_a_summary_may_be_known_before_its_node_stands() -> None:
    forest = a_forest()
    summarise(forest, root_of_leaves(2).digest)
    grow(forest, range(1, 3))

    assert forest.dirty_count() == 0


def test_parked_work_and_what_waits_for_it_is_not_dirty() -> None:
    forest = a_forest()
    grow(forest, range(1, 25))
    nodes = forest.trees[MIAMI].nodes()
    parked = next(iter(sorted(planned(forest))))
    above = {node.digest for node in nodes if parked in digests_below(node)}
    forest.note_parked(parked)
    assert forest.dirty_count() == len(nodes) - len(above)

    while work := list(forest.plan_summaries()):
        for each in work:
            assert each.digest not in above
            summarise(forest, each.digest)
    assert forest.dirty_count() == 0
    assert forest.root_refs(MIAMI) == ()


def test_another_digest_takes_a_parked_node_up_again() -> None:
    forest = a_forest()
    grow(forest, range(1, 3))
    forest.note_parked(root_of(forest).digest)
    assert forest.dirty_count() == 0

    grow(forest, range(3, 4))
    assert planned(forest) == {root_of(forest).digest}


def test_counts_are_told_for_one_tree_or_for_all() -> None:
    forest = a_forest()
    grow(forest, range(1, 25))
    grow(forest, range(31, 33), scope=USER_SCOPE)

    assert forest.dirty_count(USER_SCOPE) == 1
    assert forest.dirty_count(MIAMI) == len(forest.trees[MIAMI].nodes())
    assert forest.dirty_count() == forest.dirty_count(MIAMI) + 1
    assert forest.dirty_count(Scope(ScopeKind.ENTITY, "nowhere")) == 0


def test_an_empty_tree_is_no_tree() -> None:
    forest = a_forest()
    grow(forest, range(1, 2))
    forest.change(MIAMI, [], [a_leaf(1)])

    assert forest.trees == {}
    assert (forest.dirty_count(), planned(forest)) == (0, set())


@pytest.mark.parametrize("seed", range(8))
def test_which_nodes_are_dirty_follows_from_trees_and_summaries_alone(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    forest = a_forest(concatenation_max=120)
    present: set[int] = set()
    lengths = {number: chance.choice([5, 30, 90]) for number in range(40)}
    known: dict[Digest, int] = {}
    for _ in range(150):
        number = chance.randrange(40)
        if chance.random() < 0.3 and (work := list(forest.plan_summaries())):
            known[chance.choice(work).digest] = length = chance.choice([5, 60])
            summarise(forest, list(known)[-1], length=length)
        elif number in present:
            present.remove(number)
            forest.change(MIAMI, [], [a_leaf(number)])
        else:
            present.add(number)
            grow(forest, range(number, number + 1), lengths[number])
        if chance.random() < 0.5:
            forest.dirty_count()
        expected: set[Digest] = set()
        if present:
            tree = MemTree.build([a_leaf(each) for each in present], SMALL)
            length_of(tree.root, lengths, known, expected, 120)

        assert {node.digest for node in dirty_nodes(forest)} == expected
        assert forest.dirty_count() == len(expected)


def length_of(
    item: Item | None, lengths: dict[int, int], known: dict[Digest, int], dirty: set[Digest], most: int
) -> int | None:
    """The oracle: characters of an item's text, None when it has none; collects the nodes without one."""
    if isinstance(item, Leaf):
        return lengths[item.time_start]
    assert item is not None
    if item.digest in known:
        return known[item.digest]
    below = [length_of(child, lengths, known, dirty, most) for child in item.children]
    present = [length for length in below if length is not None]
    if len(present) == len(below) and sum(present) + len(below) - 1 <= most:
        return sum(present) + len(below) - 1
    dirty.add(item.digest)
    return None


def dirty_nodes(forest: Forest) -> list[Node]:
    """The nodes that have neither a text of their own nor one put together."""
    if MIAMI not in forest.trees:
        return []
    forest.dirty_count()
    return [node for node in forest.trees[MIAMI].nodes() if forest.state_of(node) in ("dirty", "parked")]


def digests_below(node: Node) -> set[Digest]:
    """The digests of a node and of all nodes below it."""
    found = {node.digest}
    for child in node.children:
        if isinstance(child, Node):
            found |= digests_below(child)
    return found


def root_of_leaves(count: int) -> Node:
    root = MemTree.build([a_leaf(number + 1) for number in range(count)], SMALL).root
    assert isinstance(root, Node)
    return root
