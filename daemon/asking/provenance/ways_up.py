"""The trees that hold a memory, and the nodes above it in each, up to the root."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from daemon.asking.tree_nodes import may_be_shown, scope_name, tree_id
from events.time import Instant
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.forest import TextState
from projections.memtree.items import Item, Leaf, Node

# A fact is in the user's tree, some entities' and two scenes'; one that names many is in more.
TREES_MAX = 16
SCENE_DIGITS = 8


@dataclass(frozen=True, slots=True)
class StepUp:
    """A node above a memory; `written` is the seq of its summary."""

    node: Node
    state: TextState
    written: int | None


@dataclass(frozen=True, slots=True)
class TreeFound:
    """A tree that holds a memory, and the nodes above that, the root last."""

    id: str
    kind: str
    scope: str
    leaves: int
    way: tuple[StepUp, ...]


def find_ways(
    memory: Memory, scopes: Iterable[Scope], start: Instant, is_it: Callable[[Item], bool]
) -> tuple[list[TreeFound], int]:
    """The ways up from an item that begins at `start`, and in how many more trees it is.

    The user's tree first, then the larger ones.
    """
    trees = memory.forest.trees
    shown = [scope for scope in scopes if scope in trees and may_be_shown(memory, scope)]
    shown.sort(key=lambda scope: (scope.kind != ScopeKind.USER, -len(trees[scope]), scope))
    held = (_find_way(memory, scope, start, is_it) for scope in shown[:TREES_MAX])
    return [each for each in held if each is not None], max(0, len(shown) - TREES_MAX)


def leaves_below(item: Item) -> Iterator[Leaf]:
    """All leaves below an item in time order."""
    if isinstance(item, Leaf):
        yield item
    else:
        yield from (leaf for child in item.children for leaf in leaves_below(child))


def summary_of(memory: Memory, node: Node) -> int | None:
    """The seq of the event that holds a node's summary; None for one that no model wrote."""
    summary = memory.forest.summaries.get(node.digest)
    return None if summary is None else summary.seq


def call_scope(memory: Memory, scope: Scope) -> str:
    """A scope by name; a scene, which has none of its own, by its id."""
    name = scope_name(memory, scope)
    return f"scene {name[:SCENE_DIGITS]}" if scope.kind is ScopeKind.SCENE else name


def _find_way(memory: Memory, scope: Scope, start: Instant, is_it: Callable[[Item], bool]) -> TreeFound | None:
    tree, forest = memory.forest.trees[scope], memory.forest
    way = None if tree.root is None else _way_down(tree.root, start, is_it)
    if way is None:
        return None
    return TreeFound(
        id=tree_id(memory.user, scope),
        kind=scope.kind,
        scope=scope_name(memory, scope),
        leaves=len(tree),
        way=tuple(StepUp(node, forest.state_of(node), summary_of(memory, node)) for node in way),
    )


def _way_down(item: Item, start: Instant, is_it: Callable[[Item], bool]) -> tuple[Node, ...] | None:
    """The nodes above what begins at `start` and is it, the nearest first; None when it is not below this one."""
    if is_it(item):
        return ()
    if isinstance(item, Leaf):
        return None
    for child, following in zip(item.children, (*item.children[1:], None), strict=True):
        if child.order[0] <= start and (following is None or following.order[0] >= start):
            way = _way_down(child, start, is_it)
            if way is not None:
                return (*way, item)
    return None
