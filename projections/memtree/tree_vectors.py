"""The vectors of a user's nodes above the leaves, by digest.

A summarised node's is that of its summary's text; one that is its children put together has the normalised sum of
theirs, which takes no call. A node that changes has another digest, so no vector is ever of an older text.
"""

from __future__ import annotations

from collections.abc import Container, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from events.memory import Digest
from projections.facts.scopes import Scope
from projections.memtree.forest import Forest
from projections.memtree.items import Item, Leaf, Node
from projections.recall.slab import Quantised, Slab, SlabPicture, VectorRefused, quantise, restore

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Rows = NDArray[np.intp]
    Vector = NDArray[np.float64]
    AnyVector = NDArray[np.floating[Any]]

# What a node takes besides the codes of its vector: two entries by digest.
_NODE_BYTES = 150
# Vectors of nodes that may be gone are looked through when so many came since the last time.
_GROWTH_SHARE = 0.5
_GROWTH_LEAST = 64


class Codes(NamedTuple):
    """Vectors of nodes and leaves by digest, each once, as they are compared: a row of `codes` each."""

    digests: Sequence[bytes]
    codes: Quantised

    def restored(self) -> dict[bytes, Vector]:
        """The vectors again, by digest."""
        return dict(zip(self.digests, restore(self.codes), strict=True))


NO_CODES: Final = Codes((), quantise(np.zeros((0, 1), dtype=np.float16)))


@dataclass(frozen=True, slots=True)
class ItemVectors:
    """Nodes and leaves, and the row of each in a picture of their vectors."""

    items: tuple[Item, ...]
    rows: Rows
    picture: SlabPicture | None

    def cosines(self, query: AnyVector) -> NDArray[np.float64]:
        """The cosine of each item with a unit query of shape (dimensions,), 0 for one without a vector.

        The same to the last digit on every machine. Raises `VectorRefused`.
        """
        if self.picture is None or not self.items:
            return np.zeros(len(self.items))
        return self.picture.cosines(self.rows, quantise(query.reshape(1, -1)))


@dataclass(frozen=True, slots=True)
class RootVectors(ItemVectors):
    """What recall begins at: roots, and interval nodes of large trees, with the scope of each.

    By kind and name of scopes, and in one by time behind the root. What has no vector yet is not among them.
    """

    scopes: tuple[Scope, ...]


class TreeVectors:
    """Vectors of nodes, in the exact whole numbers in which those of facts and chunks are compared."""

    def __init__(self) -> None:
        self._slab: Slab | None = None
        self._row_of: dict[Digest, int] = {}
        self._free: list[int] = []
        # Nodes whose text has no vector: the embedder refuses it, or what it is made of cancels out.
        self._blank: set[Digest] = set()
        # How many vectors were left when they were last looked through.
        self._swept_at = 0
        # user_seq of the Memory when no node wanted a vector any more.
        self.settled_at = -1
        # Nodes that wanted one when they were looked for last, children before parents, and user_seq at that time.
        self.wanted: list[Node] = []
        self.wanted_at = -1
        # How many of them were taken since.
        self.taken = 0
        # How many wanted one, and of what state that was counted.
        self.counted: tuple[object, int] = (None, 0)
        # How often vectors came or went.
        self.changes = 0
        # Roots as they were told last, and what they were told of: whoever asks again gets them again.
        self.told: tuple[object, RootVectors] | None = None

    def __len__(self) -> int:
        """How many nodes have a vector."""
        return len(self._row_of)

    def __contains__(self, digest: Digest) -> bool:
        """Whether nothing is left to do for a node: it has its vector, or can have none."""
        return digest in self._row_of or digest in self._blank

    @property
    def size_bytes(self) -> int:
        """About what the vectors take."""
        codes = self._slab.size_bytes if self._slab else 0
        told = 2 * len(self.told[1].items) * self._slab.dimensions if self.told and self._slab else 0
        return codes + told + _NODE_BYTES * (len(self._row_of) + len(self._blank))

    def put(self, digest: Digest, vector: AnyVector) -> None:
        """Give a node its unit vector, shape (dimensions,). Raises `VectorRefused`, and changes nothing then."""
        slab = self._slab or Slab(len(vector))
        codes = slab.check(vector.reshape(1, -1))
        self._slab = slab
        row = self._row_of.get(digest)
        if row is None:
            row = self._row_of[digest] = self._free.pop() if self._free else len(self._row_of)
        slab.put(np.array([row], dtype=np.intp), codes)
        self.changes += 1

    def settle(
        self,
        nodes: Sequence[Node],
        summarised: Container[Digest],
        written: Mapping[Digest, AnyVector | None],
        leaves: Mapping[bytes, AnyVector | None],
    ) -> bool:
        """Give nodes their vectors as far as what they are made of is here; whether any got one, or can have none.

        `nodes`: children before parents. `written`: vectors of the texts of those that are `summarised`. `leaves`:
        those of leaves by key. None stands for a text that has no vector; it is left out of a sum.
        """
        before = len(self._row_of) + len(self._blank)
        for node in nodes:
            if any(child.level and child.digest not in self for child in node.children):
                continue
            if node.digest in summarised:
                if node.digest in written:
                    self._put_or_blank(node.digest, written[node.digest])
            elif all(child.level or child.digest in leaves for child in node.children):
                self._put_or_blank(node.digest, self._compose(node, leaves))
        return len(self._row_of) + len(self._blank) > before

    def codes_of(self, digests: Iterable[Digest]) -> Codes:
        """The vectors of those of these nodes that have one."""
        having = [digest for digest in digests if digest in self._row_of]
        if self._slab is None or not having:
            return NO_CODES
        rows = np.array([self._row_of[digest] for digest in having], dtype=np.intp)
        return Codes(having, self._slab.picture(len(self._row_of) + len(self._free)).take(rows))

    @property
    def blank_row(self) -> int:
        """The row of those without a vector in what `picture` gives now."""
        return len(self._row_of) + len(self._free)

    def rows_of(self, digests: Iterable[Digest]) -> Rows:
        """The rows of these nodes in what `picture` gives, as long as `changes` stays as it is."""
        blank = self.blank_row
        return np.array([self._row_of.get(digest, blank) for digest in digests], dtype=np.intp)

    def picture(self) -> SlabPicture | None:
        """All vectors as they stand, and an empty row behind them; None while there is none at all."""
        return None if self._slab is None else self._slab.picture(self.blank_row + 1)

    def sweep(self, forest: Forest) -> Generator[None, None, None]:
        """Overwrite the vectors of nodes that stand in no tree any more, once they may be many; in small steps."""
        if len(self._row_of) <= self._swept_at * (1 + _GROWTH_SHARE) + _GROWTH_LEAST:
            return
        # Nodes that come while it looks are not among these.
        gone = set(self._row_of) | self._blank
        for tree in tuple(forest.trees.values()):
            gone.difference_update([node.digest for node in tree.nodes()])
            yield
        for digest in gone & self._row_of.keys():
            row = self._row_of.pop(digest, None)  # another one may look, too
            if self._slab is not None and row is not None:
                self._slab.clear(row)
                self._free.append(row)
            yield
        self._blank -= gone
        self.changes += 1
        self._swept_at = len(self._row_of)

    def _compose(self, node: Node, leaves: Mapping[bytes, AnyVector | None]) -> Vector | None:
        """The normalised sum of the children's vectors, in their order; None when they cancel each other out."""
        below = self.codes_of(child.digest for child in node.children).restored()
        parts = [
            part
            for child in node.children
            if (part := below.get(child.digest, leaves.get(child.digest))) is not None
        ]
        total: Vector = np.sum(parts, axis=0) if parts else np.zeros(1)
        length = float(np.linalg.norm(total))
        return total / length if length else None

    def _put_or_blank(self, digest: Digest, vector: AnyVector | None) -> None:
        try:
            if vector is not None:
                self.put(digest, vector)
                return
        except VectorRefused:
            pass  # a model that answers zeros has no vector for the text
        self._blank.add(digest)


def look_for_wanted(forest: Forest, vectors: TreeVectors, wanted: list[Node]) -> Generator[None, None, None]:
    """Add the nodes that have a text and want a vector, each once, children before parents; in small steps."""
    seen: set[Digest] = set()
    for tree in tuple(forest.trees.values()):
        of_tree: list[Node] = []
        for node in _look_through(tree.root, forest, vectors, seen):
            if node is not None:
                of_tree.append(node)
            yield
        of_tree.reverse()
        wanted += of_tree


def count_without_vectors(forest: Forest, vectors: TreeVectors, steps_max: int) -> int:
    """How many nodes have a text and want a vector; of a large forest with many, at least one and not all."""
    found = steps = 0
    seen: set[Digest] = set()
    for tree in forest.trees.values():
        for node in _look_through(tree.root, forest, vectors, seen):
            found += node is not None
            steps += 1
            if steps == steps_max:
                return max(found, 1)
    return found


def _look_through(
    root: Item | None, forest: Forest, vectors: TreeVectors, seen: set[Digest]
) -> Iterator[Node | None]:
    """The nodes of a tree that want a vector, parents before children, and None for others that are passed.

    A node gets its vector after those below it, so nothing below one that has it is looked at.
    """
    rest = [] if root is None else [root]
    while rest:
        item = rest.pop()
        if isinstance(item, Leaf) or item.digest in vectors or item.digest in seen:
            yield None
            continue
        seen.add(item.digest)
        rest += item.children
        yield item if forest.has_text(item) else None


def gather(items: Sequence[Item], parts: Sequence[Codes]) -> ItemVectors:
    """Items, with their vectors out of these."""
    parts = [part for part in parts if part.digests]
    row_of: dict[bytes, int] = {}
    if not parts:
        return ItemVectors(tuple(items), np.zeros(len(items), dtype=np.intp), None)
    slab = Slab(parts[0].codes.high.shape[1])
    for digests, codes in parts:
        slab.put(np.arange(len(row_of), len(row_of) + len(digests)), codes)
        row_of.update(zip(digests, range(len(row_of), len(row_of) + len(digests)), strict=True))
    blank = len(row_of)
    rows = np.array([row_of.get(item.digest, blank) for item in items], dtype=np.intp)
    return ItemVectors(tuple(items), rows, slab.picture(blank + 1))
