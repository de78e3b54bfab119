"""`trees.list`: what a listing says of each MemTree."""

from __future__ import annotations

from dataclasses import dataclass

from daemon.asking.tree_nodes import NODE_TEXT_MAX, other_names, scope_name, tree_id
from daemon.asking.words import shorten
from daemon.scene_names import SceneNaming, scene_in_steps
from daemon.texts import join_texts
from events.envelope import RecordedEvent, Reference
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.tree import MemTree
from projections.steps import Steps
from projections.texts import TextRef, events_behind


@dataclass(frozen=True, slots=True)
class TreeShown:
    """A MemTree; `root_text` is null while its root waits for a summary. `id` is what `trees.get` takes.

    `scope` is a session, the label of an entity, `user`, or the id of a scene; `name` what people call it.
    `aliases` are the other names of an entity, or those of the user; `trees.get` finds it by these, too.
    """

    id: str
    scope: str
    kind: str
    name: str
    leaves: int
    height: int
    nodes: int
    dirty: int
    root_text: str | None
    aliases: list[str]


@dataclass(frozen=True, slots=True)
class TreesShown:
    """MemTrees, the largest first; `next` is the `after` to go on from, null on the last page."""

    trees: list[TreeShown]
    next: str | None


@dataclass(frozen=True, slots=True)
class TreeOutline:
    """What is to be shown of a tree, but for what is read from the log."""

    scope: Scope
    name: str | SceneNaming
    leaves: int
    height: int
    nodes: int
    dirty: int
    root: tuple[TextRef, ...]  # empty while the root has no text
    aliases: tuple[str, ...]

    @property
    def seqs(self) -> set[int]:
        """The events to read."""
        return events_behind(self.root) | (set() if isinstance(self.name, str) else set(self.name.seqs))

    def show(self, user: Reference, recorded: dict[int, RecordedEvent]) -> TreeShown:
        """The tree with its texts."""
        if isinstance(self.name, str):
            scope = name = self.name
        else:
            scope, name = self.scope.name, self.name.write(recorded)
        return TreeShown(
            id=tree_id(user, self.scope),
            scope=scope,
            kind=self.scope.kind,
            name=name,
            leaves=self.leaves,
            height=self.height,
            nodes=self.nodes,
            dirty=self.dirty,
            root_text=shorten(join_texts(self.root, recorded), NODE_TEXT_MAX) if self.root else None,
            aliases=list(self.aliases),
        )


def outline_tree(memory: Memory, scope: Scope, tree: MemTree) -> Steps[TreeOutline]:
    """What the Memory says of a tree, in small steps. It must not change in between."""
    is_scene = scope.kind is ScopeKind.SCENE
    name = (yield from scene_in_steps(memory, scope)) if is_scene else scope_name(memory, scope)
    nodes = len(tree.nodes())
    yield
    return TreeOutline(
        scope=scope,
        name=name,
        leaves=len(tree),
        height=tree.height,
        nodes=nodes,
        dirty=memory.forest.dirty_count(scope),
        root=memory.forest.root_refs(scope),
        aliases=other_names(memory, scope),
    )
