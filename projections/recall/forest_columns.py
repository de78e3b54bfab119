"""The MemTrees of one user as columns, so that a way down all of them at once is a few steps of numpy.

Places count the items of a tree from its root level by level, one tree behind the other: the children of a node
stand side by side. Nothing in it changes; another forest makes other columns.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import numpy as np

from projections.memtree.forest import INTERVAL_LEVEL, INTERVALS_FROM
from projections.memtree.items import Leaf, Node
from projections.steps import at_once

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.facts.scopes import Scope
    from projections.memtree.items import Item
    from projections.steps import Steps

    Column = NDArray[np.float64]
    Places = NDArray[np.intp]


# Items that are laid out between two chances for others to run.
_ITEMS_AT_ONCE: Final = 512


@dataclass(frozen=True, slots=True, eq=False)
class TreeLayout:
    """The items of one tree; `first` and `count` tell each one's children, `parent` whose child it is.

    `entries`: where recall may enter it, the root and of a large tree also its intervals; `entry_of`: the one of
    these, as a number, that stands for what is below.
    """

    items: tuple[Item, ...]
    first: Places
    count: Places
    parent: Places
    depth: Places
    entries: Places
    entry_of: Places

    @classmethod
    def of(cls, root: Item) -> TreeLayout:
        """Lay out a tree. A tree of 10,000 leaves takes some milliseconds."""
        return at_once(cls.in_steps(root))

    @classmethod
    def in_steps(cls, root: Item) -> Steps[TreeLayout]:
        """The same in steps of a fraction of a millisecond: of a tree of 30,000 leaves all takes 20 of them."""
        is_large = root.size > INTERVALS_FROM
        items: list[Item] = [root]
        first, count, parent, depth = list[int](), list[int](), [-1], [0]
        entries, entry_of = [0], [0]
        for place, item in enumerate(items):  # grows while it is walked
            if not place % _ITEMS_AT_ONCE:
                yield
            if isinstance(item, Leaf):
                first.append(0)
                count.append(0)
                continue
            entry = entry_of[place]
            if is_large and item.level == INTERVAL_LEVEL and place:
                entry = entry_of[place] = len(entries)
                entries.append(place)
            first.append(len(items))
            width = len(item.children)
            count.append(width)
            items += item.children
            parent += [place] * width
            depth += [depth[place] + 1] * width
            entry_of += [entry] * width
        columns: list[Places] = []
        for each in (first, count, parent, depth, entries, entry_of):
            columns.append(np.array(each, dtype=np.intp))
            yield
        return cls(tuple(items), *columns)

    def nodes(self) -> Iterator[Node]:
        """The items that are no leaves, in order."""
        return (item for item in self.items if isinstance(item, Node))


class Level(NamedTuple):
    """The items so deep below the roots of all trees; where the children of each node begin, and which it is."""

    places: Places
    starts: Places
    parents: Places


@dataclass(frozen=True, slots=True, eq=False)
class ForestColumns:
    """All trees one behind the other.

    `rows`: of a leaf the row of the node set that it is found by, -1 where there is none and for nodes. `entries`
    are places where recall may enter, `entry_trees` the number of each one's tree, and `entry_of` tells for every
    place which entry stands for it.
    """

    scopes: tuple[Scope, ...]
    layouts: tuple[TreeLayout, ...]
    starts: Places  # place of each tree's root
    first: Places
    count: Places
    rows: Places
    leaves: Places  # the places of leaves that have a row
    leaf_rows: Places  # and these rows
    entries: Places
    entry_of: Places
    entry_trees: Places
    levels: tuple[Level, ...]

    @classmethod
    def join(cls, trees: Sequence[tuple[Scope, TreeLayout, Places]]) -> ForestColumns:
        """The columns of these trees, each with the rows of its items."""
        layouts = tuple(layout for _, layout, _ in trees)
        sizes = np.array([len(each.items) for each in layouts], dtype=np.intp)
        entered = np.array([len(each.entries) for each in layouts], dtype=np.intp)
        # All in one go, for there may be thousands of trees.
        starts, entry_starts = np.cumsum(sizes) - sizes, np.cumsum(entered) - entered
        start_of, parent = np.repeat(starts, sizes), _together([each.parent for each in layouts])
        rows = _together([rows for _, _, rows in trees])
        return cls(
            scopes=tuple(scope for scope, _, _ in trees),
            layouts=layouts,
            starts=starts,
            first=_together([each.first for each in layouts]) + start_of,
            count=_together([each.count for each in layouts]),
            rows=rows,
            leaves=np.flatnonzero(rows >= 0),
            leaf_rows=rows[rows >= 0],
            entries=_together([each.entries for each in layouts]) + np.repeat(starts, entered),
            entry_of=_together([each.entry_of for each in layouts]) + np.repeat(entry_starts, sizes),
            entry_trees=np.repeat(np.arange(len(layouts)), entered),
            levels=_levels(
                np.where(parent < 0, -1, parent + start_of), _together([each.depth for each in layouts])
            ),
        )

    def with_rows(self, rows: Places) -> ForestColumns:
        """The same trees, whose leaves are found by other rows."""
        leaves = np.flatnonzero(rows >= 0)
        return replace(self, rows=rows, leaves=leaves, leaf_rows=rows[leaves])

    @property
    def size(self) -> int:
        """How many items there are."""
        return len(self.rows)

    def item(self, place: int) -> Item:
        """The item at a place."""
        tree = int(np.searchsorted(self.starts, place, side="right")) - 1
        return self.layouts[tree].items[place - int(self.starts[tree])]

    def is_leaf(self, places: Places) -> NDArray[np.bool_]:
        """Whether each of these is a leaf."""
        leaf: NDArray[np.bool_] = self.count[places] == 0
        return leaf

    def children(self, places: Places) -> tuple[Places, Places]:
        """The children of these nodes, in order, and for each which of `places` it is a child of."""
        counts = self.count[places]
        of = np.repeat(np.arange(len(places)), counts)
        ends = np.cumsum(counts)
        offsets = np.arange(len(of)) - np.repeat(ends - counts, counts)
        return self.first[places][of] + offsets, of

    def leaves_below(self, place: int) -> Places:
        """The places of the leaves below one, or itself if it is one."""
        found: list[Places] = []
        places = np.array([place], dtype=np.intp)
        while places.size:
            leaf = self.is_leaf(places)
            found.append(places[leaf])
            places, _ = self.children(places[~leaf])
        return np.concatenate(found)

    def best_below(self, values: Column) -> Column:
        """For each place the best of the leaves below, for a leaf its own; `values` by place, -inf for nodes."""
        best = values.copy()
        for level in reversed(self.levels):
            best[level.parents] = np.maximum.reduceat(best[level.places], level.starts)
        return best


def _together(parts: Sequence[Places]) -> Places:
    return np.concatenate(parts) if parts else np.zeros(0, dtype=np.intp)


def _levels(parent: Places, depth: Places) -> tuple[Level, ...]:
    order = np.argsort(depth, kind="stable")
    bounds = np.searchsorted(depth[order], np.arange(1, int(depth.max(initial=0)) + 2))
    levels: list[Level] = []
    for start, end in zip(bounds[:-1].tolist(), bounds[1:].tolist(), strict=True):
        places = order[start:end]
        parents = parent[places]
        starts = np.flatnonzero(np.r_[True, parents[1:] != parents[:-1]])
        levels.append(Level(places, starts, parents[starts]))
    return tuple(levels)
