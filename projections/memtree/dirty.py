"""Which nodes of a user's trees have no text yet, and which of them can be summarised now.

Told of each node that comes, goes or gets its text, so that what it costs is in proportion to what is new and not
to what stands. A digest tells a node and all below it, whatever tree it stands in.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Container, Iterator, Mapping, Set
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Final

from events.memory import Digest
from projections.facts.scopes import Scope
from projections.memtree.items import Node, Order
from projections.memtree.tree import MemTree, TreeChange
from projections.steps import Steps, at_once

_DONE: Final = object()


@dataclass(slots=True, eq=False)
class Bare:
    """A node without a text."""

    node: Node
    waits_for: int  # children without a text
    blocks: int  # children at or above a parked node, and one more if it is parked itself
    parents: list[Bare] = field(default_factory=list["Bare"])
    scopes: set[Scope] = field(default_factory=set[Scope])
    place: tuple[int, Scope, Order] | None = None  # in the order of summaries, once that was asked for


@dataclass(slots=True)
class _Changes:
    """What a tree's changes did to its nodes since they were taken up last: those that came, and None for others.

    `afresh`: the tree was made anew, so all its nodes have to be looked at.
    """

    afresh: bool = False
    nodes: dict[Digest, Node | None] = field(default_factory=dict[Digest, "Node | None"])


class DirtyNodes:
    """The nodes without a text. Dirty are those that can get one: nothing at or below them is parked.

    What changes in a tree is noted, and taken up when somebody asks: most nodes of a log that is folded only pass.
    """

    def __init__(self, texts: Container[Digest], put_together: Callable[[Node], bool]) -> None:
        """`texts` has the digests of nodes with a text. `put_together` is asked once all children of a node have
        theirs: whether it is short enough to be these, which gives it its text."""
        self.parked: set[Digest] = set()
        self._texts = texts
        self._put_together = put_together
        self._bare: dict[Digest, Bare] = {}
        self._dirty: dict[Digest, Bare] = {}
        # Of the dirty ones those whose children all have their texts; these in the order of their summaries, with
        # some that are not any more; and those that have no place in it yet.
        self._ready: dict[Digest, Bare] = {}
        self._ordered: list[Bare] = []
        self._unplaced: dict[Digest, Bare] = {}
        self._heights: dict[Scope, int] = {}  # of the trees with nodes without a text, as taken up last
        self._by_scope: dict[Scope, set[Digest]] = {}
        self._changes: OrderedDict[Scope, _Changes] = OrderedDict()
        # The tree that is being taken up, if one is.
        self._begun: dict[Scope, Steps[None]] = {}

    @property
    def digests(self) -> Set[Digest]:
        """The dirty nodes."""
        return self._dirty.keys()

    def count(self, scope: Scope) -> int:
        """How many nodes of a tree are dirty."""
        return sum(digest in self._dirty for digest in self._by_scope.get(scope, ()))

    def ready(self) -> Iterator[Bare]:
        """The dirty nodes whose children all have their texts, the longest way to a root first.

        Where slots are short, what others wait for comes before what nothing waits for.
        """
        if self._unplaced:
            stay = [bare for bare in self._ordered if self._is_ready(bare) and bare.place is not None]
            for bare in filter(self._is_ready, self._unplaced.values()):
                above = max(self._heights[scope] for scope in bare.scopes) - bare.node.level
                bare.place = -above, min(bare.scopes), bare.node.order
                stay.append(bare)
            # Nearly sorted, which costs next to nothing however many wait.
            self._ordered = sorted(stay, key=attrgetter("place"))
            self._unplaced.clear()
        return filter(self._is_ready, self._ordered)

    def note_change(self, scope: Scope, change: TreeChange) -> None:
        """A tree gained and lost nodes."""
        self._finish(scope)
        changes = self._changes.setdefault(scope, _Changes())
        if changes.afresh:
            return
        known = self._by_scope.get(scope, ())
        for node in change.removed:
            if node.digest in known:
                changes.nodes[node.digest] = None
            else:
                changes.nodes.pop(node.digest, None)
        changes.nodes.update((node.digest, node) for node in change.added)

    def note_afresh(self, scope: Scope) -> None:
        """A tree was made anew, or there is none of this scope any more."""
        self._finish(scope)
        self._changes[scope] = _Changes(afresh=True)

    def take_up(self, trees: Mapping[Scope, MemTree]) -> None:
        """Take up what changed in the trees."""
        if self._changes or self._begun:
            at_once(self.take_up_in_steps(trees))

    def take_up_in_steps(self, trees: Mapping[Scope, MemTree]) -> Steps[None]:
        """The same in small steps. The trees may change in between, and `take_up` goes on where this stands."""
        while self._begun or self._changes:
            if not self._begun:
                scope, changes = self._changes.popitem(last=False)
                self._begun[scope] = self._take_up(scope, changes, trees)
            ((scope, steps),) = self._begun.items()
            if next(steps, _DONE) is _DONE:
                self._begun.pop(scope, None)
            yield

    def _finish(self, scope: Scope) -> None:
        """What was begun in a tree comes before what happens to it now."""
        if scope in self._begun:
            at_once(self._begun.pop(scope))

    def note_text(self, digest: Digest) -> None:
        """A node has its text. Those above it may be ready now, or short enough to be put together."""
        bare = self._bare.pop(digest, None)
        if bare is None:
            return
        self._leave(bare)
        for parent in bare.parents:
            parent.waits_for -= 1
            if bare.blocks:
                self._unblock(parent)
            else:
                self._place(parent)

    def note_parked(self, digest: Digest) -> None:
        """The summary of this digest was given up: what stands above it cannot get a text, either."""
        if digest not in self.parked:
            self.parked.add(digest)
            if digest in self._bare:
                self._block(self._bare[digest])

    def note_resumed(self, digest: Digest) -> None:
        """The summary of this digest is to be tried again."""
        if digest in self.parked:
            self.parked.discard(digest)
            if digest in self._bare:
                self._unblock(self._bare[digest])

    def _take_up(self, scope: Scope, changes: _Changes, trees: Mapping[Scope, MemTree]) -> Steps[None]:
        """What changed in one tree; nodes after those below them."""
        tree = trees.get(scope)
        if changes.afresh:
            coming = list(tree.nodes() if tree is not None else ())
            going = self._by_scope.get(scope, set[Digest]()) - {node.digest for node in coming}
        else:
            coming = [node for node in changes.nodes.values() if node is not None]
            going = {digest for digest, node in changes.nodes.items() if node is None}
        for node in sorted(coming, key=lambda node: node.level):
            if node.digest not in self._texts:
                self._come(scope, node)
                yield
        for digest in going:
            self._go(scope, digest)
            yield
        self._note_height(scope, trees.get(scope))

    def _come(self, scope: Scope, node: Node) -> None:
        """A node stands in a tree; all below it are taken up already."""
        self._by_scope.setdefault(scope, set()).add(node.digest)
        bare = self._bare.get(node.digest)
        if bare is not None:
            bare.scopes.add(scope)
            self._move(bare)
            return
        below = [
            self._bare[child.digest]
            for child in node.children
            if isinstance(child, Node) and child.digest not in self._texts
        ]
        blocks = sum(child.blocks > 0 for child in below) + (node.digest in self.parked)
        bare = self._bare[node.digest] = Bare(node, len(below), blocks, scopes={scope})
        for child in below:
            child.parents.append(bare)
        self._place(bare)

    def _go(self, scope: Scope, digest: Digest) -> None:
        """A node stands in a tree no more."""
        bare = self._bare.get(digest)
        if bare is None:
            return
        self._forget_scope(scope, digest)
        bare.scopes.discard(scope)
        self._move(bare)
        if not bare.scopes:
            del self._bare[digest]
            self._leave(bare)
            for child in bare.node.children:
                if isinstance(child, Node) and child.digest in self._bare:
                    self._bare[child.digest].parents.remove(bare)

    def _place(self, bare: Bare) -> None:
        """Find out whether a node is dirty, and whether it is ready."""
        if bare.blocks:
            return
        digest = bare.node.digest
        if not bare.waits_for and self._put_together(bare.node):
            self.note_text(digest)
            return
        self._dirty[digest] = bare
        if not bare.waits_for:
            self._ready[digest] = bare
            self._move(bare)

    def _is_ready(self, bare: Bare) -> bool:
        return self._ready.get(bare.node.digest) is bare

    def _move(self, bare: Bare) -> None:
        """Find its place in the order of summaries anew."""
        if self._is_ready(bare):
            bare.place = None
            self._unplaced[bare.node.digest] = bare

    def _note_height(self, scope: Scope, tree: MemTree | None) -> None:
        """A tree that grew in height has other ways to its root."""
        known = self._by_scope.get(scope)
        if tree is None or known is None:
            self._heights.pop(scope, None)
        elif self._heights.get(scope) != tree.height:
            self._heights[scope] = tree.height
            for digest in known:
                self._move(self._bare[digest])

    def _leave(self, bare: Bare) -> None:
        digest = bare.node.digest
        self._dirty.pop(digest, None)
        self._ready.pop(digest, None)
        self._unplaced.pop(digest, None)
        for scope in bare.scopes:
            self._forget_scope(scope, digest)

    def _forget_scope(self, scope: Scope, digest: Digest) -> None:
        known = self._by_scope[scope]
        known.discard(digest)
        if not known:
            del self._by_scope[scope]

    def _block(self, bare: Bare) -> None:
        bare.blocks += 1
        if bare.blocks == 1:
            self._dirty.pop(bare.node.digest, None)
            self._ready.pop(bare.node.digest, None)
            self._unplaced.pop(bare.node.digest, None)
            for parent in bare.parents:
                self._block(parent)

    def _unblock(self, bare: Bare) -> None:
        bare.blocks -= 1
        if not bare.blocks:
            for parent in bare.parents:
                self._unblock(parent)
            self._place(bare)
