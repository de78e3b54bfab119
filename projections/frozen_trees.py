"""The trees of a Memory as rows, and back: leaves, how many children each node has, and digests."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

from collections.abc import Iterator, Sequence

from events.memory import Pointer
from projections.frozen import Reader, Row, Section, Writer
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.tree import MemTree
from projections.texts import FactText, TextRef, TurnsText, WrittenText

_OF_TURNS, _OF_FACT, _WRITTEN = range(3)


def freeze_forest(forest: Forest, w: Writer) -> Iterator[Section]:
    """The sections of all trees and summaries."""
    # A leaf stands in the trees of several scopes; its key tells it.
    leaves: dict[bytes, Leaf] = {}
    numbers: dict[bytes, int] = {}
    yield "trees", (_freeze_tree(w.scope(scope), tree, leaves, numbers) for scope, tree in forest.trees.items())
    yield "leaves", ((w.id(key), leaf.time_start, leaf.time_end) for key, leaf in leaves.items())
    yield (
        "leaf_texts",
        (
            (w.id(key), _freeze_ref(text.ref), text.length, w.ids(sorted(text.sessions)))
            for key, text in forest._leaf_texts.items()
        ),
    )
    yield "summaries", ((digest, ref.seq) for digest, ref in forest.summaries.items())
    yield "lengths", forest._lengths.items()
    yield "parked_nodes", ((digest,) for digest in sorted(forest._dirty.parked))


def thaw_forest(r: Reader, forest: Forest) -> Iterator[None]:
    """Fill an empty forest. Which nodes are dirty is found when that is asked for."""
    leaves: list[Leaf] = []
    for batch in r.batches("leaves"):
        leaves += [Leaf(time_start, r.id(key), time_end) for key, time_start, time_end in batch]
        yield
    for batch in r.batches("trees"):
        for scope, numbers, levels, root in batch:
            tree = _thaw_tree(MemTree(forest._shape), [leaves[n] for n in numbers], levels, root)
            forest.trees[r.scope(*scope)] = tree
            yield
    sessions: dict[tuple[int, ...], frozenset[bytes]] = {}
    for batch in r.batches("leaf_texts"):
        for key, ref, length, where in batch:
            said_in = sessions.setdefault(tuple(where), frozenset(r.ids(where)))
            forest._leaf_texts[r.id(key)] = LeafText(_thaw_ref(ref), length, said_in)
        yield
    for batch in r.batches("summaries"):
        forest.summaries.update((digest, WrittenText(seq)) for digest, seq in batch)
    for batch in r.batches("lengths"):
        forest._lengths.update(batch)
        yield
    for batch in r.batches("parked_nodes"):
        forest._dirty.parked.update(digest for (digest,) in batch)
    for scope in forest.trees:
        forest._dirty.note_afresh(scope)


def _freeze_tree(scope: Row, tree: MemTree, leaves: dict[bytes, Leaf], numbers: dict[bytes, int]) -> Row:
    """Of each level above the leaves: how many children each item has, and the digests of those that are nodes."""
    levels = list[Row]()
    for level in range(1, len(tree._widths)):
        items = tree.items(level)
        counts = [len(item.children) if isinstance(item, Node) and item.level == level else 1 for item in items]
        digests = [item.digest for item, count in zip(items, counts, strict=True) if count > 1]
        levels.append((counts, digests))
    root = tree.root.digest if isinstance(tree.root, Node) else b""
    placed = list[int]()
    for leaf in tree.leaves():
        placed.append(numbers.setdefault(leaf.key, len(numbers)))
        leaves.setdefault(leaf.key, leaf)
    return scope, placed, levels, root


def _thaw_tree(tree: MemTree, leaves: Sequence[Item], levels: Sequence[Row], root: bytes) -> MemTree:
    tree._keys = {leaf.key for leaf in leaves}
    tree._widths = [len(leaves)]
    below = leaves
    for level, (counts, digests) in enumerate(levels, start=1):
        at, left = 0, iter(digests)
        items: list[Item] = []
        for count in counts:
            items.append(_thaw_node(tuple(below[at : at + count]), level, next(left)) if count > 1 else below[at])
            at += count
        below = items
        tree._widths.append(len(items))
    tree._root = _thaw_node(tuple(below), len(tree._widths), root) if root else below[0]
    return tree


def _thaw_node(children: tuple[Item, ...], level: int, digest: bytes) -> Node:
    """The node that `Node.over` makes, whose digest is known."""
    first = children[0]
    return Node(
        children=children,
        level=level,
        key=first.key,
        digest=digest,
        size=sum([child.size for child in children]),
        time_start=first.time_start,
        time_end=max([child.time_end for child in children]),
    )


def _freeze_ref(ref: TextRef) -> Row:
    match ref:
        case TurnsText(turns=turns):
            return (_OF_TURNS, *turns)
        case FactText(occurrence=occurrence):
            return (_OF_FACT, *occurrence)
        case WrittenText(seq=seq):
            return (_WRITTEN, seq)


def _thaw_ref(row: Sequence[int]) -> TextRef:
    kind, *numbers = row
    if kind == _OF_TURNS:
        return TurnsText(tuple(numbers))
    return FactText(Pointer(*numbers)) if kind == _OF_FACT else WrittenText(*numbers)
