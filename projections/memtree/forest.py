"""The MemTrees of one user, the summaries they share, and which nodes still want one.

A summary belongs to a digest, not to a place. A node whose children's texts are short together is their
concatenation and needs no model call (algorithms.md 1, "Refresh").
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

from events.envelope import Reference
from events.memory import Digest
from events.time import Instant
from projections.facts.scopes import Scope
from projections.memtree.shape import TreeShape
from projections.memtree.tree import Item, Leaf, MemTree, Node
from projections.texts import TextRef, WrittenText

# What a leaf or node of a tree has for a text.
TextState: TypeAlias = Literal["leaf", "summarised", "concatenated", "dirty", "parked"]
# Between the texts of children that are put together.
SEPARATOR = "\n"
# A change of more leaves than this, and than this share of the tree, builds the tree anew.
REBUILD_FROM = 32
REBUILD_SHARE = 0.1


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
        # The nodes that want a text, by scope and digest, children first; and the scopes to look at again.
        self._dirty: dict[Scope, dict[Digest, Node]] = {}
        self._stale: set[Scope] = set()
        self._parked: set[Digest] = set()

    def change(self, scope: Scope, joining: Sequence[tuple[Leaf, LeafText]], leaving: Sequence[Leaf] = ()) -> None:
        """Put leaves into the tree of a scope and take others out; a tree that is empty goes.

        Many at once are cheaper as a tree built anew, which is the same tree (its shape has no history).
        """
        tree = self.trees.get(scope) or MemTree(self._shape)
        self._leaf_texts.update((leaf.key, text) for leaf, text in joining)
        if len(joining) + len(leaving) > max(REBUILD_FROM, len(tree) * REBUILD_SHARE):
            gone = {leaf.key for leaf in leaving}
            kept = [leaf for leaf in tree.leaves() if leaf.key not in gone]
            tree = MemTree.build([*kept, *(leaf for leaf, _ in joining)], self._shape)
        else:
            for leaf in leaving:
                tree.remove(leaf)
            for leaf, _ in joining:
                tree.insert(leaf)
        self._stale.add(scope)
        self.trees[scope] = tree
        if not len(tree):
            del self.trees[scope]

    def note_summary(self, digest: Digest, ref: WrittenText, length: int) -> None:
        """A summary was recorded for the nodes of this digest."""
        self.summaries[digest] = ref
        self._lengths[digest] = length
        # A node that wants a text makes its tree's list of dirty nodes; so does one above it.
        self._stale.update(scope for scope, dirty in self._dirty.items() if digest in dirty)
        if digest in self._parked:
            self._parked.discard(digest)
            self._stale.update(self.trees)

    def note_parked(self, digest: Digest) -> None:
        """The summary of this digest was given up; it and what stands above it count as parked, not dirty."""
        self._parked.add(digest)
        self._stale.update(scope for scope, dirty in self._dirty.items() if digest in dirty)

    def note_resumed(self, digest: Digest) -> None:
        """The summary of this digest is to be tried again, wherever a node of it stands."""
        if digest in self._parked:
            self._parked.discard(digest)
            self._stale.update(self.trees)

    def dirty_count(self, scope: Scope | None = None) -> int:
        """How many nodes (of one scope, or of all) have no text yet."""
        self._settle()
        if scope is not None:
            return len(self._dirty.get(scope, ()))
        return sum(len(dirty) for dirty in self._dirty.values())

    def plan_summaries(self) -> Iterator[SummaryWork]:
        """The summaries that can be written now: each node as soon as its own children have their text."""
        self._settle()
        planned: set[Digest] = set()
        for scope in sorted(self._dirty):
            for digest, node in self._dirty[scope].items():
                if digest not in planned and all(self._is_ready(child) for child in node.children):
                    planned.add(digest)
                    yield self._plan_summary(scope, node)

    def refs_of(self, item: Item) -> tuple[TextRef, ...]:
        """The texts an item consists of, in time order; it must have its text."""
        if isinstance(item, Leaf):
            return (self._leaf_texts[item.key].ref,)
        summary = self.summaries.get(item.digest)
        if summary is not None:
            return (summary,)
        return tuple(ref for child in item.children for ref in self.refs_of(child))

    def state_of(self, item: Item) -> TextState:
        """Whether an item has its text, and where from; a node above a parked one counts as dirty."""
        self._settle()
        if isinstance(item, Leaf):
            return "leaf"
        if item.digest in self.summaries:
            return "summarised"
        if item.digest in self._lengths:
            return "concatenated"
        return "parked" if item.digest in self._parked else "dirty"

    def root_refs(self, scope: Scope) -> tuple[TextRef, ...]:
        """The texts of a tree's root; empty while it has none."""
        self._settle()
        root = self.trees[scope].root
        return self.refs_of(root) if root is not None and self._is_ready(root) else ()

    def _plan_summary(self, scope: Scope, node: Node) -> SummaryWork:
        children = tuple(
            ChildText(self.refs_of(child), child.time_start, child.time_end) for child in node.children
        )
        sessions = (self._leaf_texts[leaf.key].sessions for leaf in _leaves_below(node))
        return SummaryWork(scope, node.digest, children, frozenset().union(*sessions))

    def _settle(self) -> None:
        """Find the dirty nodes of the trees that changed. Nodes that became short get their text here."""
        for scope in self._stale:
            dirty: list[Node] = []
            tree = self.trees.get(scope)
            if tree is not None and tree.root is not None:
                self._visit(tree.root, dirty)
            if dirty:
                self._dirty[scope] = {node.digest: node for node in dirty}
            else:
                self._dirty.pop(scope, None)
        self._stale.clear()

    def _visit(self, item: Item, dirty: list[Node]) -> bool:
        """Collect the dirty nodes at and below an item; whether it has a text or can still get one."""
        if isinstance(item, Leaf) or self._is_ready(item):
            return True
        reachable = [self._visit(child, dirty) for child in item.children]
        if not all(reachable) or item.digest in self._parked:
            return False
        length = self._joined_length(item)
        if length is not None and length <= self._concatenation_max:
            self._lengths[item.digest] = length
        else:
            dirty.append(item)
        return True

    def _joined_length(self, node: Node) -> int | None:
        """Characters of the children's texts put together; None while one of them has none."""
        if not all(self._is_ready(child) for child in node.children):
            return None
        return sum(self._length(child) for child in node.children) + len(SEPARATOR) * (len(node.children) - 1)

    def _is_ready(self, item: Item) -> bool:
        return isinstance(item, Leaf) or item.digest in self._lengths

    def _length(self, item: Item) -> int:
        return self._leaf_texts[item.key].length if isinstance(item, Leaf) else self._lengths[item.digest]


def _leaves_below(item: Item) -> Iterator[Leaf]:
    if isinstance(item, Leaf):
        yield item
    else:
        yield from (leaf for child in item.children for leaf in _leaves_below(child))
