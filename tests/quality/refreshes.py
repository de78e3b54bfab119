"""What refreshing trees asks of a model, counted from leaves and their lengths: no text, no model, no daemon."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import fmean

from daemon.offline.language_model import SUMMARY_CHARS_MAX
from projections.facts.scopes import Scope
from projections.memtree.forest import SEPARATOR
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.shape import TreeShape
from projections.memtree.tree import MemTree
from tests.quality.growing import Step

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Refresh:
    """What bringing all summaries up to date once asks for: calls, and the characters they are given to read.

    `depth` is the longest chain of calls of which each waits for the one before.
    """

    calls: int
    characters: int
    depth: int


@dataclass(frozen=True, slots=True)
class Refreshed:
    """Several refreshes one after the other."""

    refreshes: tuple[Refresh, ...]
    root_characters: float  # mean over the trees that have a node, at the end

    @property
    def calls(self) -> int:
        """Summaries that a model wrote."""
        return sum(each.calls for each in self.refreshes)

    @property
    def tokens(self) -> int:
        """What the model had to read for that."""
        return sum(each.characters for each in self.refreshes) // CHARACTERS_PER_TOKEN

    @property
    def depth(self) -> int:
        """Calls that wait for each other, all refreshes added up."""
        return sum(each.depth for each in self.refreshes)


class Refresher:
    """Keeps what is summarised by digest, as a Forest does, and counts what is missing.

    A summary has the length of what it is made of, and at most that of the offline model's.
    """

    def __init__(self, shape: TreeShape, concatenation_max: int, lengths: Mapping[bytes, int]) -> None:
        """`lengths`: the characters of every leaf, by digest."""
        self.shape = shape
        self._concatenation_max = concatenation_max
        self._lengths = dict(lengths)
        self._chains: dict[bytes, int] = {}
        self._calls = self._characters = 0

    def refresh(self, trees: Iterable[MemTree]) -> Refresh:
        """Summarise every node of these trees that has no text yet."""
        self._chains, self._calls, self._characters = {}, 0, 0
        depth = max((self._visit(tree.root) for tree in trees if tree.root is not None), default=0)
        return Refresh(self._calls, self._characters, depth)

    def length(self, item: Item) -> int:
        """The characters of an item's text."""
        return self._lengths[item.digest]

    def _visit(self, item: Item) -> int:
        """Give an item and all below it a text; the calls of this refresh that it waits for."""
        if item.digest in self._lengths:
            return self._chains.get(item.digest, 0)
        assert isinstance(item, Node)
        chain = max(self._visit(child) for child in item.children)
        length = sum(map(self.length, item.children)) + len(SEPARATOR) * (len(item.children) - 1)
        if length > self._concatenation_max:
            self._calls += 1
            self._characters += length
            length, chain = min(length, SUMMARY_CHARS_MAX), chain + 1
        self._lengths[item.digest], self._chains[item.digest] = length, chain
        return chain


def refresh_all(
    steps: Iterable[Step], lengths: Mapping[bytes, int], shape: TreeShape, concatenation_max: int
) -> Refreshed:
    """Refresh after every step."""
    refresher = Refresher(shape, concatenation_max, lengths)
    trees: dict[Scope, MemTree] = {}
    refreshes: list[Refresh] = []
    for step in steps:
        changed = {scope: MemTree.build(leaves, shape) for scope, leaves in step.leaves.items()}
        refreshes.append(refresher.refresh(changed.values()))
        trees.update(changed)
    roots = [refresher.length(tree.root) for tree in trees.values() if isinstance(tree.root, Node)]
    return Refreshed(tuple(refreshes), fmean(roots) if roots else 0.0)


@dataclass(frozen=True, slots=True)
class Figure:
    """The form of trees: the height of the highest, all nodes, and how many children a node has on average."""

    height: int
    nodes: int
    children: float


def figure_of(trees: Iterable[MemTree]) -> Figure:
    """The form of these trees."""
    grown = list(trees)
    nodes = [node for tree in grown for node in tree.nodes()]
    children = [len(node.children) for node in nodes]
    return Figure(max(tree.height for tree in grown), len(nodes), fmean(children) if children else 0.0)


def nodes_by_appending(leaves: Iterable[Leaf], shape: TreeShape) -> list[int]:
    """How many nodes each leaf makes new that comes last, from an empty tree on."""
    tree = MemTree(shape)
    return [len(tree.insert(leaf).added) for leaf in sorted(leaves)]


def nodes_by_inserting(leaves: Iterable[Leaf], shape: TreeShape) -> list[int]:
    """How many nodes each leaf makes new that comes to a tree of all the others."""
    tree = MemTree.build(leaves, shape)
    made: list[int] = []
    for leaf in tree.leaves():
        tree.remove(leaf)
        made.append(len(tree.insert(leaf).added))
    return made
