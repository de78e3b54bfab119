"""What is different in a MemTree from one state to the next, found in as many steps as there are differences."""

from __future__ import annotations

from dataclasses import dataclass

from events.memory import Digest
from projections.facts.scopes import Scope
from projections.memtree.items import Item, Leaf, Node


@dataclass(frozen=True, slots=True)
class TreeMove:
    """What became of the tree of one scope: leaves by key, nodes by digest; `root` is None when the tree went."""

    scope: Scope
    leaves_joined: tuple[bytes, ...]
    leaves_left: tuple[bytes, ...]
    nodes_new: tuple[Digest, ...]
    nodes_gone: tuple[Digest, ...]
    root: Digest | None


def compare_trees(scope: Scope, before: Item | None, after: Item | None) -> TreeMove | None:
    """Walk down both trees level by level, past what is the same in both; None when nothing differs.

    The same digest stands for the same leaves in the same shape, so below it there is nothing to see.
    """
    old, new = _by_level(before), _by_level(after)
    gone: list[Item] = []
    came: list[Item] = []
    for level in range(max([*old, *new], default=0), -1, -1):
        olds, news = old.pop(level, {}), new.pop(level, {})
        for items, others, found, rest in ((olds, news, gone, old), (news, olds, came, new)):
            for digest, item in items.items():
                if digest not in others:
                    found.append(item)
                    _spread(item, rest)
    if not gone and not came:
        return None
    return TreeMove(
        scope,
        leaves_joined=tuple(item.key for item in came if isinstance(item, Leaf)),
        leaves_left=tuple(item.key for item in gone if isinstance(item, Leaf)),
        nodes_new=tuple(item.digest for item in came if isinstance(item, Node)),
        nodes_gone=tuple(item.digest for item in gone if isinstance(item, Node)),
        root=None if after is None else after.digest,
    )


def _by_level(root: Item | None) -> dict[int, dict[bytes, Item]]:
    return {} if root is None else {root.level: {root.digest: root}}


def _spread(item: Item, into: dict[int, dict[bytes, Item]]) -> None:
    if isinstance(item, Node):
        for child in item.children:
            into.setdefault(child.level, {})[child.digest] = child
