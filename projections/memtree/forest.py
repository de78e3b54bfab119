"""The MemTrees of one user, the summaries they share, and which nodes still want one.

A summary belongs to a digest, not to a place. A node whose children's texts are short together is their
concatenation and needs no model call (algorithms.md 1, "Refresh").
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence, Set
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from events.envelope import Reference
from events.memory import Digest
from events.time import Instant
from projections.facts.scopes import Scope
from projections.memtree.dirty import Bare, DirtyNodes
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from projections.steps import Steps
from projections.texts import TextRef, WrittenText

# What a leaf or node of a tree has for a text.
TextState: TypeAlias = Literal["leaf", "summarised", "concatenated", "dirty", "parked"]
# Between the texts of children that are put together.
SEPARATOR = "\n"
# A change of more leaves than this, and than this share of the tree, builds the tree anew.
REBUILD_FROM = 32
REBUILD_SHARE = 0.1
# A tree of more leaves offers its intervals of this level to recall, too: a root of 200 words says little of each.
INTERVALS_FROM = 256
INTERVAL_LEVEL = 2


@dataclass(frozen=True, slots=True)
class LeafText:
    """Where a leaf's text stands, how long it is in characters, and in which sessions it was said."""

    ref: TextRef
    length: int
    sessions: frozenset[Reference]


@dataclass(frozen=True, slots=True)
class ChildText:
    """A child as its parent's summary sees it: the texts it consists of, and the interval it covers."""

    refs: tuple[TextRef, ...]
    time_start: Instant
    time_end: Instant


@dataclass(frozen=True, slots=True)
class SummaryWork:
    """A node whose children all have their text and which is too long to be their concatenation."""

    scope: Scope
    digest: Digest
    children: tuple[ChildText, ...]
    lineage: frozenset[Reference]
    node: Node = field(compare=False)  # one of this digest


class Forest:
    """Trees by scope. Which nodes are dirty follows from the trees and the summaries alone."""

    def __init__(self, shape: TreeShape, concatenation_max: int) -> None:
        """`concatenation_max`: characters up to which a node is the concatenation of its children."""
        self.trees: dict[Scope, MemTree] = {}
        self.summaries: dict[Digest, WrittenText] = {}
        self._shape = shape
        self._concatenation_max = concatenation_max
        self._leaf_texts: dict[bytes, LeafText] = {}
        # Characters of the text of every node that has one; leaves are in _leaf_texts.
        self._lengths: dict[Digest, int] = {}
        self._dirty = DirtyNodes(self._lengths, self._put_together)
        # The scopes whose trees changed, while somebody watches and empties it: there may be a scene to two facts.
        self.changed: set[Scope] | None = None

    def change(self, scope: Scope, joining: Sequence[tuple[Leaf, LeafText]], leaving: Sequence[Leaf] = ()) -> None:
        """Put leaves into the tree of a scope and take others out; a tree that is empty goes.

        Many at once are cheaper as a tree built anew, which is the same tree (its shape has no history).
        """
        if self.changed is not None:
            self.changed.add(scope)
        tree = self.trees.get(scope) or MemTree(self._shape)
        self._leaf_texts.update((leaf.key, text) for leaf, text in joining)
        if len(joining) + len(leaving) > max(REBUILD_FROM, len(tree) * REBUILD_SHARE):
            gone = {leaf.key for leaf in leaving}
            kept = [leaf for leaf in tree.leaves() if leaf.key not in gone]
            tree = MemTree.build([*kept, *(leaf for leaf, _ in joining)], self._shape)
            self._dirty.note_afresh(scope)
        else:
            for leaf in leaving:
                self._dirty.note_change(scope, tree.remove(leaf))
            for leaf, _ in joining:
                self._dirty.note_change(scope, tree.insert(leaf))
        self.trees[scope] = tree
        if not len(tree):
            del self.trees[scope]
            self._dirty.note_afresh(scope)

    def note_summary(self, digest: Digest, ref: WrittenText, length: int) -> None:
        """A summary was recorded for the nodes of this digest."""
        self._dirty.note_resumed(digest)
        self.summaries[digest] = ref
        self._lengths[digest] = length
        self._dirty.note_text(digest)

    def note_parked(self, digest: Digest) -> None:
        """The summary of this digest was given up; it and what stands above it count as parked, not dirty."""
        self._dirty.note_parked(digest)

    def note_resumed(self, digest: Digest) -> None:
        """The summary of this digest is to be tried again, wherever a node of it stands."""
        self._dirty.note_resumed(digest)

    def dirty_digests(self) -> Set[Digest]:
        """The nodes that have no text yet and can get one; it changes with the forest."""
        self._dirty.take_up(self.trees)
        return self._dirty.digests

    def look_in_steps(self) -> Steps[None]:
        """Find what is dirty, so that nobody has to who asks next; in small steps. Trees may change in between."""
        return self._dirty.take_up_in_steps(self.trees)

    def dirty_count(self, scope: Scope | None = None) -> int:
        """How many nodes (of one scope, or different ones of all) have no text yet."""
        self._dirty.take_up(self.trees)
        return len(self._dirty.digests) if scope is None else self._dirty.count(scope)

    def plan_summaries(self, is_wanted: Callable[[Bare], bool] | None = None) -> Iterator[SummaryWork]:
        """The summaries that can be written now, each node as soon as its own children have their text.

        The longest way to a root first. Of those that are not wanted nothing more is looked up.
        """
        self._dirty.take_up(self.trees)
        for bare in self._dirty.ready():
            if is_wanted is None or is_wanted(bare):
                yield self._plan_summary(min(bare.scopes), bare.node)

    def refs_of(self, item: Item) -> tuple[TextRef, ...]:
        """The texts an item consists of, in time order; it must have its text."""
        if isinstance(item, Leaf):
            return (self._leaf_texts[item.key].ref,)
        summary = self.summaries.get(item.digest)
        if summary is not None:
            return (summary,)
        return tuple(ref for child in item.children for ref in self.refs_of(child))

    def leaf_ref(self, key: bytes) -> TextRef | None:
        """The text of a leaf by its key; None when no leaf of it stood here."""
        text = self._leaf_texts.get(key)
        return None if text is None else text.ref

    def state_of(self, item: Item) -> TextState:
        """Whether an item has its text, and where from; a node above a parked one counts as dirty."""
        self._dirty.take_up(self.trees)
        if isinstance(item, Leaf):
            return "leaf"
        if item.digest in self.summaries:
            return "summarised"
        if item.digest in self._lengths:
            return "concatenated"
        return "parked" if item.digest in self._dirty.parked else "dirty"

    def has_text(self, node: Node) -> bool:
        """Whether a node is summarised or concatenated."""
        self._dirty.take_up(self.trees)
        return node.digest in self._lengths

    def may_grow(self, node: Node, scope: Scope) -> bool:
        """Whether a leaf behind all others may join a node: it is the last of its level in this tree."""
        last: Item | None = self.trees[scope].root
        while isinstance(last, Node) and last.level > node.level:
            last = last.children[-1]
        return last is not None and last.digest == node.digest

    def root_refs(self, scope: Scope) -> tuple[TextRef, ...]:
        """The texts of a tree's root; empty while it has none."""
        self._dirty.take_up(self.trees)
        root = self.trees[scope].root
        return self.refs_of(root) if root is not None and self._is_ready(root) else ()

    def recall_roots(self, scope: Scope) -> tuple[Item, ...]:
        """Where recall may enter a tree: its root, and of a large tree also its intervals of level 2.

        The root first, then the intervals in time order, those only that have a text. Intervals stand in for the
        splitting of hot entities (algorithms.md 1, "Refresh").
        """
        self._dirty.take_up(self.trees)
        tree = self.trees[scope]
        root = tree.root
        intervals = tree.items(INTERVAL_LEVEL) if len(tree) > INTERVALS_FROM else []
        nodes = [item for item in intervals if isinstance(item, Node) and item is not root]
        return tuple(item for item in (root, *nodes) if item is not None and self._is_ready(item))

    def _plan_summary(self, scope: Scope, node: Node) -> SummaryWork:
        children = tuple(
            ChildText(self.refs_of(child), child.time_start, child.time_end) for child in node.children
        )
        sessions = {self._leaf_texts[leaf.key].sessions for leaf in leaves_below(node)}
        return SummaryWork(scope, node.digest, children, frozenset().union(*sessions), node)

    def _put_together(self, node: Node) -> bool:
        """Whether a node's children, which all have their texts, are short enough to be its own; then they are."""
        lengths = [self.length_of(child) for child in node.children]
        length = sum(lengths) + len(SEPARATOR) * (len(lengths) - 1)
        if length > self._concatenation_max:
            return False
        self._lengths[node.digest] = length
        return True

    def _is_ready(self, item: Item) -> bool:
        return isinstance(item, Leaf) or item.digest in self._lengths

    def length_of(self, item: Item) -> int:
        """Characters of an item's text; it must have one."""
        return self._leaf_texts[item.key].length if isinstance(item, Leaf) else self._lengths[item.digest]


def leaves_below(item: Item) -> Iterator[Leaf]:
    """The leaves of an item, in order."""
    left = [item]
    while left:
        top = left.pop()
        if isinstance(top, Leaf):
            yield top
        else:
            left += reversed(top.children)
