"""A MemTree's shape over time-ordered leaves, changed leaf by leaf, as if built from scratch each time.

It holds keys, times and digests, never a text: a summary belongs to a digest (algorithms.md 1).
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from operator import attrgetter
from typing import NamedTuple, TypeAlias

from events.errors import MemForestError
from events.time import Instant
from projections.memtree.items import Item, Leaf, Node, Order, merkle_digest
from projections.memtree.shape import TreeShape


class DuplicateLeaf(MemForestError):
    """A leaf of this key is in the tree already."""

    code = "conflict"


class AbsentLeaf(MemForestError):
    """This leaf is not in the tree."""

    code = "not_found"


_order_of: Callable[[Item], Order] = attrgetter("order")
_time_start_of: Callable[[Item], Instant] = attrgetter("time_start")


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What one insert or removal did to the nodes, by digest, children before parents.

    A node whose digest was there before is not added, wherever it stands now: its summary still holds.
    """

    added: tuple[Node, ...]
    removed: tuple[Node, ...]


# Where the way down to a leaf passes a level: a group of that level, and the index of one of its members.
_Place: TypeAlias = tuple[tuple[Item, ...], int]


class _Splice(NamedTuple):
    """What changes on a level: from member `at` of the group on the way, `new` stand in place of `old`.

    What `old` names beyond that group follows it on the level.
    """

    at: int
    old: Sequence[Item]
    new: Sequence[Item]


class MemTree:
    """The tree of one scope: a pure function of its set of leaves (algorithms.md 1).

    Level 0 is the leaves; the items of level h + 1 are groups of level h. A group of one child is that
    child itself, on both levels. The last level is the root's children. Only the root is kept: a change goes
    down from it to a place among the leaves and makes groups anew on the way back, which costs
    O(height * most) hashes. What `root` gives may be kept: nodes never change.
    """

    def __init__(self, shape: TreeShape) -> None:
        self.shape = shape
        self._root: Item | None = None
        self._keys: set[bytes] = set()
        # How many items stand on each level below the root.
        self._widths: list[int] = [0]

    @classmethod
    def build(cls, leaves: Iterable[Leaf], shape: TreeShape) -> MemTree:
        """The tree of these leaves, given in any order. Raises DuplicateLeaf when two have one key."""
        tree = cls(shape)
        items: list[Item] = sorted(leaves, key=_order_of)
        tree._keys.update([leaf.key for leaf in items])
        if len(tree._keys) != len(items):
            raise DuplicateLeaf
        tree._root = tree._make_root(items, 0)
        return tree

    @property
    def root(self) -> Item | None:
        """The coarse picture: a node, the only leaf, or None when there is no leaf."""
        return self._root

    @property
    def height(self) -> int:
        """Levels of nodes above the leaves; 0 when there is no node."""
        return 0 if self._root is None else self._root.level

    def __len__(self) -> int:
        """How many leaves there are."""
        return self._widths[0]

    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves in order."""
        return tuple([item for item in self.items(0) if isinstance(item, Leaf)])

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, children before parents: level by level, each in order."""
        return tuple([node for level in range(self.height + 1) for node in _nodes_of(self.items(level), level)])

    def items(self, level: int) -> list[Item]:
        """What stands on a level, in order: its nodes, and single members that show through from below."""
        found = [] if self._root is None else [self._root]
        for above in range(self.height, level, -1):
            found = [member for item in found for member in _members(item, above)]
        return found

    def insert(self, leaf: Leaf) -> TreeChange:
        """Put a leaf in its place. Raises DuplicateLeaf, and changes nothing, when its key is there."""
        if leaf.key in self._keys:
            raise DuplicateLeaf
        way = self._find(leaf.order)
        members, index = way[0]
        behind = bool(members) and members[index].order < leaf.order
        self._keys.add(leaf.key)
        return self._change(way, _Splice(index + behind, (), (leaf,)))

    def remove(self, leaf: Leaf) -> TreeChange:
        """Take a leaf out. Raises AbsentLeaf, and changes nothing, unless exactly this leaf is there."""
        way = self._find(leaf.order)
        members, index = way[0]
        if not members or members[index] != leaf:
            raise AbsentLeaf
        self._keys.remove(leaf.key)
        return self._change(way, _Splice(index, (leaf,), ()))

    def check(self) -> None:
        """Assert everything that must hold, the shape against a build from scratch. O(N), for tests."""
        leaves = self.leaves()
        assert all(one.order < next_.order for one, next_ in pairwise(leaves)), "leaves are in order"
        assert sorted(self._keys) == sorted(leaf.key for leaf in leaves), "no two leaves have one key"
        widths = [len(self.items(level)) for level in range(max(1, self.height))]
        assert self._widths == widths, "the items of every level are counted"
        assert all(width > self.shape.most for width in widths[:-1]), "no level is superfluous"
        assert widths[-1] <= self.shape.most, "the last level fits under the root"
        afresh = MemTree.build(leaves, self.shape)
        nodes, expected_nodes = ([(node.digest, node.level) for node in t.nodes()] for t in (self, afresh))
        assert nodes == expected_nodes, "every node is as built from scratch"
        assert len(dict(nodes)) == len(nodes), "no digest stands twice"
        spanned = [] if self._root is None else _checked_leaves(self._root, self.shape, last=True)
        assert spanned == list(leaves), "the root spans all leaves"

    def _find(self, order: Order) -> list[_Place]:
        """The way to the last leaf that stands not behind `order`, or to the first; places by level."""
        way: list[_Place] = []
        item, (time_start, key) = self._root, order
        for level in range(len(self._widths), 0, -1):
            members = () if item is None else _members(item, level)
            index = max(0, bisect_right(members, time_start, key=_time_start_of) - 1)
            while index > 0 and members[index].time_start == time_start and members[index].key > key:
                index -= 1
            way.append((members, index))
            item = members[index] if members else None
        way.reverse()
        return way

    def _change(self, way: Sequence[_Place], splice: _Splice) -> TreeChange:
        """Carry a change of the leaves up to the root."""
        gone: list[Item] = []
        made: list[Item] = []
        level = 0
        self._widths[0] += len(splice.new) - len(splice.old)
        while self._widths[level] > self.shape.most and level + 1 < len(way):
            splice = self._regroup(way, level, splice)
            level += 1
            self._widths[level] += len(splice.new) - len(splice.old)
            # Others are single members that show through from below.
            gone += [item for item in splice.old if item.level == level]
            made += [item for item in splice.new if item.level == level]
        members, at = way[level][0], splice.at
        if level + 1 == len(way):
            items = list(members)
        else:
            # So few items are left that this is the last level from now on.
            items = self.items(level)
            at += items.index(members[0])
        items[at : at + len(splice.old)] = splice.new
        gone += _nodes_above(self._root, level)
        self._root = self._make_root(items, level)
        made += _nodes_above(self._root, level)
        before, after = {item.digest for item in gone}, {item.digest for item in made}
        return TreeChange(
            added=tuple([item for item in made if isinstance(item, Node) and item.digest not in before]),
            removed=tuple([item for item in gone if isinstance(item, Node) and item.digest not in after]),
        )

    def _regroup(self, way: Sequence[_Place], level: int, splice: _Splice) -> _Splice:
        """What a change of this level does to its groups, which are the items of the next."""
        members, at = way[level][0], splice.at
        groups, first = way[level + 1]
        if (
            len(splice.old) == len(splice.new) == 1
            and at < len(members)
            and splice.old[0].key == splice.new[0].key
        ):
            # Only keys decide where groups end. Most changes come to this at the second level.
            changed = (*members[:at], splice.new[0], *members[at + 1 :])
            return _Splice(first, (groups[first],), (_grouped(changed, level + 1),))
        following = _following(way, level + 1)
        old, items = [groups[first]], list(members)
        if at == len(members) and self.shape.closes(level, members[-1].key, at):
            # It is behind the end of this group, in the next one.
            old, items, at, first = [], [], 0, first + 1
        while len(items) < at + len(splice.old):
            old.append(next(following))
            items += _members(old[-1], level + 1)
        items[at : at + len(splice.old)] = splice.new
        # Members before the change did not end their group, but for the one just before it, if it was the last.
        new: list[Item] = []
        begin, index = 0, max(0, at - 1)
        while begin < len(items):
            end = self._end_of_group(items, begin, index, level)
            if end is None and (group := next(following, None)) is not None:
                index = len(items)
                old.append(group)
                items += _members(group, level + 1)
            else:
                index = len(items) if end is None else end
                new.append(_grouped(tuple(items[begin:index]), level + 1))
                begin = index
        # A group ends here where one ended before, and from here on all do.
        return _Splice(first, old, new)

    def _end_of_group(self, items: Sequence[Item], begin: int, index: int, level: int) -> int | None:
        """Where the group ends (exclusive) that begins at `begin`; members before `index` do not end it.

        None when it goes on beyond these items.
        """
        first = max(index, begin + self.shape.least - 1)
        keys = [item.key for item in items[first : begin + self.shape.most]]
        end = self.shape.find_end(level, keys, first - begin + 1)
        return None if end is None else begin + end

    def _make_root(self, items: Sequence[Item], level: int) -> Item | None:
        """Group what stands on a level, again and again, until it fits under the root."""
        self._widths[level:] = [len(items)]
        while len(items) > self.shape.most:
            groups: list[Item] = []
            begin = 0
            while begin < len(items):
                end = self._end_of_group(items, begin, begin, level) or len(items)
                groups.append(_grouped(tuple(items[begin:end]), level + 1))
                begin = end
            items, level = groups, level + 1
            self._widths.append(len(items))
        return _grouped(tuple(items), level + 1) if items else None


def _grouped(members: tuple[Item, ...], level: int) -> Item:
    """The item of the next level that a group is: a node, or its only member."""
    return members[0] if len(members) == 1 else Node.over(members, level)


def _members(item: Item, level: int) -> tuple[Item, ...]:
    """The group that an item of a level is: what stands on the level below for it."""
    return item.children if isinstance(item, Node) and item.level == level else (item,)


def _following(way: Sequence[_Place], level: int) -> Iterator[Item]:
    """The items of a level behind the one on the way, to the end."""
    members, index = way[level]
    yield from members[index + 1 :]
    if level + 1 < len(way):
        for group in _following(way, level + 1):
            yield from _members(group, level + 1)


def _nodes_of(items: Iterable[Item], level: int) -> list[Node]:
    """The nodes that were made on this level; others are single members that show through from below."""
    return [item for item in items if isinstance(item, Node) and item.level == level]


def _nodes_above(item: Item | None, level: int) -> list[Node]:
    """The nodes of higher levels than this, from an item down, children before parents."""
    if not isinstance(item, Node) or item.level <= level:
        return []
    if item.level == level + 1:
        return [item]
    return [*(node for child in item.children for node in _nodes_above(child, level)), item]


def _checked_leaves(item: Item, shape: TreeShape, *, last: bool) -> list[Leaf]:
    """The leaves below an item; asserts what a node says of them. Only the `last` of a level may be small."""
    if isinstance(item, Leaf):
        return [item]
    fewest = 2 if last else max(2, shape.least)
    assert fewest <= len(item.children) <= shape.most, "a node has least to most children"
    assert all(child.level < item.level for child in item.children), "children stand on lower levels"
    leaves: list[Leaf] = []
    for child in item.children:
        leaves += _checked_leaves(child, shape, last=last and child is item.children[-1])
    assert item.size == len(leaves), "a node's size is the number of its leaves"
    assert (item.key, item.order) == (leaves[0].key, leaves[0].order), "a node begins with its first leaf"
    assert item.time_start == min(leaf.time_start for leaf in leaves), "a node starts with its earliest leaf"
    assert item.time_end == max(leaf.time_end for leaf in leaves), "a node ends with its latest leaf"
    assert item.digest == merkle_digest(item.children, item.level), "a node's digest is that of its children"
    return leaves
