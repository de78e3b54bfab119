"""A MemTree's shape over time-ordered leaves, changed leaf by leaf, as if built from scratch each time.

It holds keys, times and digests, never a text: a summary belongs to a digest (algorithms.md 1).
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from operator import attrgetter
from struct import pack
from typing import ClassVar, TypeAlias

from events.errors import MemForestError
from events.time import Instant
from projections.memtree.shape import TreeShape

# Where an item stands among its level: the time and the key of its first leaf.
Order: TypeAlias = tuple[Instant, bytes]


class DuplicateLeaf(MemForestError):
    """A leaf of this key is in the tree already."""

    code = "conflict"


class AbsentLeaf(MemForestError):
    """This leaf is not in the tree."""

    code = "not_found"


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """A fact or a chunk in time; sorts by (time_start, key). Its key is unique in a tree."""

    level: ClassVar[int] = 0
    size: ClassVar[int] = 1

    time_start: Instant
    key: bytes
    time_end: Instant

    @property
    def order(self) -> Order:
        """Where it stands among the leaves."""
        return self.time_start, self.key

    @property
    def digest(self) -> bytes:
        """What it is known by: its key, which already is a hash of its text and time."""
        return self.key


@dataclass(frozen=True, slots=True, eq=False)
class Node:
    """A stretch of time: two or more children in order, summarised as one. Never changed, only replaced.

    `key` and `order` are its first leaf's, so a change further inside moves no boundary above. `digest`
    (16 bytes) tells everything below: the same digest, the same leaves in the same shape. `size` counts
    leaves; `time_start` is their earliest start, `time_end` their latest end. `level` is 1 just above
    the leaves.
    """

    children: tuple[Item, ...]
    level: int
    key: bytes
    order: Order
    digest: bytes
    size: int
    time_start: Instant
    time_end: Instant

    @classmethod
    def over(cls, children: tuple[Item, ...], level: int) -> Node:
        """The node of these children, which are in order."""
        first = children[0]
        return cls(
            children=children,
            level=level,
            key=first.key,
            order=first.order,
            digest=_merkle_digest(children),
            size=sum([child.size for child in children]),
            # Children are in order of their start, so the first has the earliest.
            time_start=first.time_start,
            time_end=max([child.time_end for child in children]),
        )


Item: TypeAlias = Leaf | Node
_order_of: Callable[[Item], Order] = attrgetter("order")


@dataclass(frozen=True, slots=True)
class TreeChange:
    """What one insert or removal did to the nodes, by digest, children before parents.

    A node whose digest was there before is not added, wherever it stands now: its summary still holds.
    """

    added: tuple[Node, ...]
    removed: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class _Splice:
    """From index `start` of a level on, the items `old` give way to `new`."""

    start: int
    old: Sequence[Item]
    new: Sequence[Item]


class MemTree:
    """The tree of one scope: a pure function of its set of leaves (algorithms.md 1).

    Level 0 is the leaves; the items of level h + 1 are groups of level h. A group of one child is that
    child itself, on both levels. The last level is the root's children. A change costs O(height * most)
    hashes and a list splice a level. What `root` gives may be kept: nodes never change.
    """

    def __init__(self, shape: TreeShape) -> None:
        self.shape = shape
        self._levels: list[list[Item]] = [[]]
        self._keys: set[bytes] = set()
        self._root: Item | None = None

    @classmethod
    def build(cls, leaves: Iterable[Leaf], shape: TreeShape) -> MemTree:
        """The tree of these leaves, given in any order. Raises DuplicateLeaf when two have one key."""
        tree = cls(shape)
        tree._levels[0].extend(sorted(leaves))
        tree._keys.update(leaf.key for leaf in tree._levels[0])
        if len(tree._keys) != len(tree):
            raise DuplicateLeaf
        tree._add_levels()
        tree._root = tree._make_root()
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
        return len(self._levels[0])

    def leaves(self) -> tuple[Leaf, ...]:
        """All leaves in order."""
        return tuple(item for item in self._levels[0] if isinstance(item, Leaf))

    def nodes(self) -> tuple[Node, ...]:
        """All nodes, children before parents: level by level, each in order."""
        below = [node for level, items in enumerate(self._levels) for node in _nodes_of(items, level)]
        return (*below, self._root) if isinstance(self._root, Node) else tuple(below)

    def insert(self, leaf: Leaf) -> TreeChange:
        """Put a leaf in its place. Raises DuplicateLeaf, and changes nothing, when its key is there."""
        if leaf.key in self._keys:
            raise DuplicateLeaf
        splice = _Splice(self._index_of(leaf), (), (leaf,))
        self._keys.add(leaf.key)
        return self._change(splice)

    def remove(self, leaf: Leaf) -> TreeChange:
        """Take a leaf out. Raises AbsentLeaf, and changes nothing, unless exactly this leaf is there."""
        index = self._index_of(leaf)
        if index == len(self) or self._levels[0][index] != leaf:
            raise AbsentLeaf
        self._keys.remove(leaf.key)
        return self._change(_Splice(index, (leaf,), ()))

    def check(self) -> None:
        """Assert everything that must hold, the shape against a build from scratch. O(N), for tests."""
        leaves = self.leaves()
        assert all(one.order < next_.order for one, next_ in pairwise(leaves)), "leaves are in order"
        assert sorted(self._keys) == sorted(leaf.key for leaf in leaves), "no two leaves have one key"
        assert all(len(items) > self.shape.most for items in self._levels[:-1]), "no level is superfluous"
        assert len(self._levels[-1]) <= self.shape.most, "the last level fits under the root"
        afresh = MemTree.build(leaves, self.shape)
        levels, expected = ([[item.digest for item in items] for items in t._levels] for t in (self, afresh))
        assert levels == expected, "every level is as built from scratch"
        nodes, expected_nodes = ([(node.digest, node.level) for node in t.nodes()] for t in (self, afresh))
        assert nodes == expected_nodes, "every node is as built from scratch"
        assert len(dict(nodes)) == len(nodes), "no digest stands twice"
        spanned = [] if self._root is None else _checked_leaves(self._root, self.shape, last=True)
        assert spanned == list(leaves), "the root spans all leaves"

    def _index_of(self, leaf: Leaf) -> int:
        return bisect_left(self._levels[0], leaf.order, key=_order_of)

    def _change(self, splice: _Splice) -> TreeChange:
        """Carry a change of the leaves up to the root."""
        gone, made = list[Node](), list[Node]()
        level = 0
        while True:
            items = self._levels[level]
            items[splice.start : splice.start + len(splice.old)] = splice.new
            gone.extend(_nodes_of(splice.old, level))
            made.extend(_nodes_of(splice.new, level))
            if len(items) <= self.shape.most or level + 1 == len(self._levels):
                break
            splice = self._regroup(level, splice)
            level += 1
        for above in range(level + 1, len(self._levels)):
            gone.extend(_nodes_of(self._levels[above], above))
        del self._levels[level + 1 :]
        self._add_levels()
        for above in range(level + 1, len(self._levels)):
            made.extend(_nodes_of(self._levels[above], above))
        old_root, self._root = self._root, self._make_root()
        if isinstance(old_root, Node):
            gone.append(old_root)
        if isinstance(self._root, Node):
            made.append(self._root)
        before, after = {node.digest for node in gone}, {node.digest for node in made}
        return TreeChange(
            added=tuple(node for node in made if node.digest not in before),
            removed=tuple(node for node in gone if node.digest not in after),
        )

    def _regroup(self, level: int, splice: _Splice) -> _Splice:
        """What a change of this level, done already, does to the groups on the next."""
        items, groups = self._levels[level], self._levels[level + 1]
        first = begin = index = 0
        if splice.start > 0:
            # The group of the last item before the change is the first that may end elsewhere. Its
            # members before that item did not end it and do not now.
            index = splice.start - 1
            first = bisect_right(groups, items[index].order, key=_order_of) - 1
            earliest = max(0, splice.start - self.shape.most)
            begin = bisect_left(items, groups[first].order, lo=earliest, hi=index, key=_order_of)
        # Only keys decide where groups end: as long as no key changes, all end where they did.
        same_keys = [item.key for item in splice.old] == [item.key for item in splice.new]
        after, spans = first, list[tuple[Item, ...]]()
        while True:
            following = first + len(spans) + 1
            if not same_keys:
                end = self._end_of_group(level, begin, index)
            elif following < len(groups):
                end = bisect_left(items, groups[following].order, lo=begin, key=_order_of)
            else:
                end = len(items)
            spans.append(tuple(items[begin:end]))
            begin = index = end
            if end == len(items):
                after = len(groups)
                break
            if end < splice.start + len(splice.new):
                continue
            order = items[end].order
            while after < len(groups) and groups[after].order < order:
                after += 1
            if after < len(groups) and groups[after].order == order:
                # A group began here before, too: the walk goes on as it did then.
                break
        old = groups[first:after]
        known = {group.order: group for group in old}
        return _trimmed(first, old, [_grouped(span, level + 1, known.get(span[0].order)) for span in spans])

    def _end_of_group(self, level: int, begin: int, index: int) -> int:
        """Where the group ends (exclusive) that begins at `begin`; members before `index` do not end it."""
        items, shape = self._levels[level], self.shape
        limit = min(begin + shape.most, len(items))
        for last in range(max(index, begin + shape.least - 1), limit):
            if shape.closes(level, items[last].key, last - begin + 1):
                return last + 1
        return limit

    def _add_levels(self) -> None:
        """Group the last level, again and again, until it fits under the root."""
        while len(items := self._levels[-1]) > self.shape.most:
            level = len(self._levels) - 1
            groups, begin = list[Item](), 0
            while begin < len(items):
                end = self._end_of_group(level, begin, begin)
                groups.append(_grouped(tuple(items[begin:end]), level + 1))
                begin = end
            self._levels.append(groups)

    def _make_root(self) -> Item | None:
        top = self._levels[-1]
        return _grouped(tuple(top), len(self._levels)) if top else None


def _merkle_digest(children: Sequence[Item]) -> bytes:
    """A hash of the children's digests behind a head: how many, then a number for each, four bytes all.

    It is 0 for a node and the key's length + 1 for a leaf: no leaf passes for a node.
    """
    marks = [0 if child.level else len(child.key) + 1 for child in children]
    head = pack(f">{len(marks) + 1}I", len(marks), *marks)
    digests = b"".join([child.digest for child in children])
    return blake2b(head + digests, digest_size=16, person=b"memtree.node").digest()


def _grouped(members: tuple[Item, ...], level: int, known: Item | None = None) -> Item:
    """The item a group is: its only member, or a node, the known one when it is of these very members."""
    if len(members) == 1:
        return members[0]
    if isinstance(known, Node) and known.level == level and known.children == members:
        return known
    return Node.over(members, level)


def _nodes_of(items: Iterable[Item], level: int) -> list[Node]:
    """The nodes that were made on this level; others are single members that show through from below."""
    return [item for item in items if isinstance(item, Node) and item.level == level]


def _trimmed(start: int, old: list[Item], new: list[Item]) -> _Splice:
    """The splice without what is the same at both ends."""
    same = tail = 0
    shorter = min(len(old), len(new))
    while same < shorter and old[same] is new[same]:
        same += 1
    while tail < shorter - same and old[-1 - tail] is new[-1 - tail]:
        tail += 1
    return _Splice(start + same, old[same : len(old) - tail], new[same : len(new) - tail])


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
    assert item.digest == _merkle_digest(item.children), "a node's digest is that of its children"
    return leaves
