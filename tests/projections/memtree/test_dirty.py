"""Which nodes want a text and which can get one now, against a count from scratch, over random histories."""

from __future__ import annotations

import random
from dataclasses import dataclass, field

import pytest

from events.memory import Digest, Pointer
from projections.facts.scopes import USER_SCOPE, Scope, ScopeKind
from projections.memtree.dirty import Bare
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Item, Leaf
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.texts import FactText, WrittenText
from tests.builders import KEYS, an_id

SCOPES = (USER_SCOPE, Scope(ScopeKind.ENTITY, "davis"), Scope(ScopeKind.ENTITY, "miami"))
SMALL = TreeShape(3)
LENGTHS = {number: 5 + 40 * (number % 4) for number in range(120)}
MOST = 120


def a_leaf(number: int) -> Leaf:
    return Leaf(number, an_id(f"leaf {number}"), number + 1)


def a_text(number: int) -> LeafText:
    return LeafText(FactText(Pointer(number, 0)), LENGTHS[number], frozenset((KEYS.session("alice", "s1"),)))


@dataclass
class Recount:
    """The oracle: trees built from scratch, summaries by digest, and what was given up."""

    leaves: dict[Scope, set[int]] = field(default_factory=lambda: {scope: set[int]() for scope in SCOPES})
    known: dict[Digest, int] = field(default_factory=dict[Digest, int])
    parked: set[Digest] = field(default_factory=set[Digest])

    def count(self) -> tuple[dict[Scope, set[Digest]], dict[Digest, int]]:
        """The dirty nodes of each scope; and of those that can be summarised now the longest way to a root."""
        dirty: dict[Scope, set[Digest]] = {}
        ready: dict[Digest, int] = {}
        for scope, numbers in self.leaves.items():
            tree = MemTree.build([a_leaf(number) for number in numbers], SMALL)
            dirty[scope] = set()
            if tree.root is not None:
                self._look(tree.root, dirty[scope], ready, tree.height)
        return dirty, ready

    def _look(
        self, item: Item, dirty: set[Digest], ready: dict[Digest, int], height: int
    ) -> tuple[int | None, bool]:
        """Characters of an item's text, None without one; and whether it has or can get one."""
        if isinstance(item, Leaf):
            return LENGTHS[item.time_start], True
        below = [self._look(child, dirty, ready, height) for child in item.children]
        if item.digest in self.known:
            return self.known[item.digest], True
        if item.digest in self.parked or not all(can for _, can in below):
            return None, False
        lengths = [length for length, _ in below if length is not None]
        if len(lengths) == len(below):
            if sum(lengths) + len(below) - 1 <= MOST:
                return sum(lengths) + len(below) - 1, True
            ready[item.digest] = max(ready.get(item.digest, 0), height - item.level)
        dirty.add(item.digest)
        return None, True


def step(chance: random.Random, forest: Forest, recount: Recount) -> None:
    """One thing that may happen to a forest."""
    scope = chance.choice(SCOPES)
    present = recount.leaves[scope]
    works = list(forest.plan_summaries()) if chance.random() < 0.5 else []
    for _ in zip(range(chance.randrange(12)), forest.look_in_steps(), strict=False):
        pass  # somebody looks, and gives way to what happens next
    match chance.randrange(8):
        case 0 | 1 if works:
            digest = chance.choice(works).digest
            recount.known[digest] = length = chance.choice([10, 60])
            recount.parked.discard(digest)
            forest.note_summary(digest, WrittenText(900), length)
        case 2 if works:
            digest = chance.choice(works).digest
            recount.parked.add(digest)
            forest.note_parked(digest)
        case 3 if recount.parked:
            digest = chance.choice(sorted(recount.parked))
            recount.parked.discard(digest)
            forest.note_resumed(digest)
        case 4:  # so many that the tree is made anew
            joining = set(chance.sample(sorted(LENGTHS), 50)) - present
            leaving = set(chance.sample(sorted(present), len(present) // 2))
            forest.change(
                scope, [(a_leaf(n), a_text(n)) for n in sorted(joining)], [a_leaf(n) for n in sorted(leaving)]
            )
            recount.leaves[scope] = (present | joining) - leaving
        case _:
            number = chance.choice(sorted(LENGTHS))
            if number in present:
                forest.change(scope, [], [a_leaf(number)])
            else:
                forest.change(scope, [(a_leaf(number), a_text(number))])
            present ^= {number}


@pytest.mark.parametrize("seed", range(6))
def test_what_is_dirty_and_what_is_ready_is_what_a_count_from_scratch_finds(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    forest, recount = Forest(SMALL, MOST), Recount()
    for number in range(160):
        step(chance, forest, recount)
        if chance.random() < 0.4:
            continue  # several changes are taken up together
        dirty, ready = recount.count()
        planned = [work.digest for work in forest.plan_summaries()]

        assert forest.dirty_digests() == set().union(*dirty.values()), (seed, number)
        assert {scope: forest.dirty_count(scope) for scope in SCOPES} == {
            scope: len(digests) for scope, digests in dirty.items()
        }
        assert set(planned) == ready.keys(), (seed, number)
        assert [ready[digest] for digest in planned] == sorted(ready.values(), reverse=True), "longest way first"


@pytest.mark.parametrize("seed", range(3))
def test_the_plan_does_not_depend_on_how_it_came_to_this(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    forest, recount, afresh = Forest(SMALL, MOST), Recount(), Forest(SMALL, MOST)
    for _ in range(120):
        step(chance, forest, recount)
    for digest in sorted(recount.parked):
        afresh.note_parked(digest)
    for digest, length in sorted(recount.known.items()):
        afresh.note_summary(digest, WrittenText(900), length)
    for scope in reversed(SCOPES):
        if recount.leaves[scope]:
            afresh.change(scope, [(a_leaf(n), a_text(n)) for n in sorted(recount.leaves[scope])])

    assert list(forest.plan_summaries()) == list(afresh.plan_summaries())


def test_what_is_not_wanted_is_not_planned_and_a_shared_node_is_offered_once_with_all_its_scopes() -> None:
    forest = Forest(SMALL, 0)
    for scope in SCOPES[:2]:
        forest.change(scope, [(a_leaf(n), a_text(n)) for n in (1, 2)])
    forest.change(SCOPES[2], [(a_leaf(n), a_text(n)) for n in (3, 4)])
    offered: list[Bare] = []

    def refuse(bare: Bare) -> bool:
        offered.append(bare)
        return False

    planned = list(forest.plan_summaries(refuse))

    assert planned == []
    assert [(bare.node, bare.scopes) for bare in offered] == [
        (forest.trees[SCOPES[0]].root, set(SCOPES[:2])),
        (forest.trees[SCOPES[2]].root, {SCOPES[2]}),
    ]


def test_only_the_last_node_of_a_level_grows_by_what_comes_behind_all_others() -> None:
    forest = Forest(SMALL, 0)
    for number in range(100):
        before = forest.trees[USER_SCOPE].nodes() if number > 0 else ()
        growing = {node.digest for node in before if forest.may_grow(node, USER_SCOPE)}
        forest.change(USER_SCOPE, [(a_leaf(number), a_text(number))])
        after = {node.digest for node in forest.trees[USER_SCOPE].nodes()}

        assert {node.digest for node in before} - after <= growing
        assert len(growing) <= 5
