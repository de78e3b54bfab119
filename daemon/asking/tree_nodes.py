"""`trees.get`: one MemTree from its root downwards, level by level, with the texts that its nodes have."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial

from daemon.asking.answer_types import Source
from daemon.asking.listings import find_user
from daemon.asking.words import is_gone, read_with_hindsight, shorten, source_of
from daemon.folding import in_slices, read_in_slices
from daemon.memories import Memories
from daemon.scene_names import SceneNaming, scene_in_steps
from daemon.texts import join_texts
from daemon.untrusted import Params, check_limit
from events.envelope import RecordedEvent, Reference, identify
from events.errors import InvalidInput, MemForestError
from events.hindsight import Hindsight
from events.log import EventLog
from events.time import to_iso
from projections.facts.canonical import Fact
from projections.facts.chunking import make_chunk_key
from projections.facts.labels import normalise_label
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.forest import TextState
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.tree import MemTree
from projections.steps import Steps, each_of
from projections.texts import FactText, TextRef, TurnsText, events_behind

DEPTH_DEFAULT = 2
DEPTH_MAX = 32  # no tree of this life is higher: 3 children a node at least, and 3 ** 32 leaves
LIMIT_DEFAULT = 200
# Commands show eight; with fewer than these an id is guessed, not named.
SCENE_DIGITS_MIN = 4
# Characters of a node's text that an answer shows; a turn may be as long as a book.
NODE_TEXT_MAX = 800


class TreeUnknown(MemForestError):
    """There is no such tree, or no such node in it (any more); `trees.list` names the trees there are."""

    code = "not_found"


class TreeParams(Params, frozen=True, kw_only=True):
    """Parameters of `trees.get`: a tree by its id, or by kind and scope as `trees.list` gives them.

    A scope without a kind is a session, then an entity, of that name, then the scene whose id begins so; without
    either it is the tree of the user.
    With `node` only what is below that node. At most `depth` levels and `limit` nodes, the upper ones first.
    """

    user_id: str
    tree: str | None = None
    kind: str | None = None
    scope: str | None = None
    node: str | None = None
    depth: int = DEPTH_DEFAULT
    limit: int = LIMIT_DEFAULT


@dataclass(slots=True)
class NodeShown:
    """A node or leaf. `id` of a leaf is that of the memory (chunk or fact), of a node what `why` and `node` take.

    `text` is null while `state` is dirty or parked, and where words were erased. `children` is null for a leaf
    and where the answer ends; `leaves` counts all below.
    """

    id: str
    kind: str
    level: int
    state: TextState
    time_start: str
    time_end: str
    leaves: int
    text: str | None = None
    sources: list[Source] | None = None
    children: list[NodeShown] | None = None


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """A tree from `root` downwards; `left_off` counts the leaves that were too deep or too many."""

    id: str
    scope: str
    kind: str
    name: str
    leaves: int
    height: int
    dirty: int
    root: NodeShown
    left_off: int


@dataclass(frozen=True, slots=True)
class _Place:
    """A node in the answer, with what its text and sources stand in."""

    shown: NodeShown
    refs: tuple[TextRef, ...]
    turns: tuple[int, ...]


class TreeNodesReader:
    """Reads trees for people and programs that look."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def tree(self, params: TreeParams) -> TreeNodes:
        """One tree. Raises `InvalidInput`, `UserUnknown`, `TreeUnknown`."""
        if not 1 <= params.depth <= DEPTH_MAX:
            raise InvalidInput(f"depth is from 1 to {DEPTH_MAX} levels")
        check_limit(params.limit)
        if params.tree is not None and (params.kind is not None or params.scope is not None):
            raise InvalidInput("name the tree by its id in `tree`, or by `kind` and `scope`; not both")
        user = await find_user(self._log, params.user_id)
        async with self._memories.use(user) as memory:
            result, places, naming = await read_in_slices(memory, partial(_look_at_tree, memory, params))
        seqs = events_behind(ref for place in places for ref in place.refs)
        seqs.update(turn for place in places for turn in place.turns)
        if naming is not None:
            seqs.update(naming.seqs)
        recorded, hindsight = await self._log.read(partial(read_with_hindsight, user=user, seqs=seqs))
        await in_slices(each_of(places, lambda place: _fill(place, recorded, hindsight)))
        if naming is None:
            return result
        kept = {seq: each for seq, each in recorded.items() if not is_gone(each, hindsight)}
        return replace(result, name=naming.write(kept))


def tree_id(user: Reference, scope: Scope) -> str:
    """What a tree is called by programs: the same as long as its scope has its name."""
    return identify(b"mf.tree", user, scope.kind.encode(), scope.name.encode()).hex()


def scope_name(memory: Memory, scope: Scope) -> str:
    """What a tree is about: a session's id, an entity's label, a scene's id in hex, or `user`."""
    if scope.kind is ScopeKind.SESSION:
        return memory.session_ids.get(bytes.fromhex(scope.name), "")
    return scope.name or "user"


def other_names(memory: Memory, scope: Scope) -> tuple[str, ...]:
    """The names of an entity or of the owner besides the one in `scope_name`."""
    known = scope.name or memory.scopes.owner
    if scope.kind not in (ScopeKind.ENTITY, ScopeKind.USER) or known is None:
        return ()
    return tuple(name for name in memory.scopes.aliases.names_of(known) if name != scope.name)


def may_be_shown(memory: Memory, scope: Scope) -> bool:
    """Until a Memory that hides a session is folded anew, only the trees of other sessions do not know of it."""
    hidden = {session.hex() for session in memory.hidden}
    if memory.hidden_turns:
        return False
    return not hidden or (scope.kind is ScopeKind.SESSION and scope.name not in hidden)


def facts_by_leaf(memory: Memory, scope: Scope, leaves: Iterable[Leaf]) -> dict[bytes, Fact]:
    """The facts that these leaves of a tree stand for, by the key of the leaf."""
    wanted = {leaf.key for leaf in leaves}
    if not wanted or scope.kind is ScopeKind.SESSION:
        return {}
    facts = memory.canon.facts
    members = (facts[fact] for fact in memory.members.get(scope, ()) if fact in facts)
    return {fact.first.leaf_key: fact for fact in members if fact.first.leaf_key in wanted}


def leaf_memory(memory: Memory, ref: TextRef, fact: Fact | None) -> tuple[str, str, tuple[int, ...]]:
    """Kind, id and turns of the memory that a leaf stands for."""
    if isinstance(ref, TurnsText):
        return "chunk", make_chunk_key(memory.turns[seq].key for seq in ref.turns).hex(), ref.turns
    assert isinstance(ref, FactText)
    return ("fact", "", ()) if fact is None else ("fact", fact.id.hex(), fact.turns)


def _find_scope(memory: Memory, params: TreeParams) -> Scope:
    shown = [scope for scope in memory.forest.trees if may_be_shown(memory, scope)]
    if params.tree is not None:
        found = [scope for scope in shown if tree_id(memory.user, scope) == params.tree]
    elif params.scope is None:
        kind = params.kind or ScopeKind.USER
        found = [scope for scope in shown if scope.kind == kind == ScopeKind.USER]
    else:
        kinds = (
            (params.kind,) if params.kind is not None else (ScopeKind.SESSION, ScopeKind.ENTITY, ScopeKind.USER)
        )
        named = [scope for scope in shown if scope.kind in kinds and _is_called(memory, scope, params.scope)]
        found = sorted(named, key=lambda scope: kinds.index(scope.kind))
        if not found and params.kind in (None, ScopeKind.SCENE):
            found = _find_scenes(shown, params.scope)
    if not found:
        raise TreeUnknown
    return found[0]


def _is_called(memory: Memory, scope: Scope, name: str) -> bool:
    """Whether a scope has this name: a session as written, an entity or the owner in any spelling, by any name."""
    known = {ScopeKind.ENTITY: scope.name, ScopeKind.USER: memory.scopes.owner}.get(scope.kind)
    if known is not None and memory.scopes.aliases.canonical(normalise_label(name)) == known:
        return True
    return scope_name(memory, scope) == name


def _find_scenes(shown: list[Scope], begun: str) -> list[Scope]:
    """The scene whose id begins so, as people see it. Raises `InvalidInput` when several do."""
    if len(begun) < SCENE_DIGITS_MIN:
        return []
    found = [scope for scope in shown if scope.kind is ScopeKind.SCENE and scope.name.startswith(begun.lower())]
    if len(found) > 1:
        raise InvalidInput(f"scope begins the ids of {len(found)} scenes; give more of its digits")
    return found


def _find_node(tree: MemTree, node: str) -> Node:
    for each in tree.nodes():
        if each.digest.hex() == node:
            return each
    raise TreeUnknown


def _look_at_tree(memory: Memory, params: TreeParams) -> Steps[tuple[TreeNodes, list[_Place], SceneNaming | None]]:
    """A tree but for what is read from the log: its nodes, and what a scene's name is made of."""
    scope = _find_scope(memory, params)
    tree = memory.forest.trees[scope]
    top = tree.root if params.node is None else _find_node(tree, params.node)
    assert top is not None, "a tree without leaves is dropped"
    yield
    places, left_off = yield from _lay_out(memory, scope, top, params.depth, params.limit)
    naming = (yield from scene_in_steps(memory, scope)) if scope.kind is ScopeKind.SCENE else None
    result = TreeNodes(
        id=tree_id(memory.user, scope),
        scope=scope_name(memory, scope),
        kind=scope.kind,
        name=scope_name(memory, scope),
        leaves=len(tree),
        height=tree.height,
        dirty=memory.forest.dirty_count(scope),
        root=places[0].shown,
        left_off=left_off,
    )
    return result, places, naming


def _lay_out(memory: Memory, scope: Scope, top: Item, depth: int, limit: int) -> Steps[tuple[list[_Place], int]]:
    """The items to show, level by level from the top, and how many leaves below are not shown."""
    opened: dict[int, list[int]] = {}  # by place in `items`, those of the children
    items: list[tuple[Item, int]] = [(top, 0)]
    left_off = 0
    for number, (item, at) in enumerate(items):  # grows while it is walked
        if isinstance(item, Leaf):
            continue
        if at >= depth or len(items) + len(item.children) > limit:
            left_off += item.size
            continue
        opened[number] = list(range(len(items), len(items) + len(item.children)))
        items += [(child, at + 1) for child in item.children]
    facts = facts_by_leaf(memory, scope, [item for item, _ in items if isinstance(item, Leaf)])
    yield
    places = yield from each_of(items, lambda each: _place(memory, each[0], facts))
    for number, children in opened.items():
        places[number].shown.children = [places[child].shown for child in children]
    return places, left_off


def _place(memory: Memory, item: Item, facts: dict[bytes, Fact]) -> _Place:
    state = memory.forest.state_of(item)
    has_text = state in ("leaf", "summarised", "concatenated")
    refs = memory.forest.refs_of(item) if has_text else tuple[TextRef, ...]()
    kind, name, turns = "node", item.digest.hex(), tuple[int, ...]()
    if isinstance(item, Leaf):
        kind, name, turns = leaf_memory(memory, refs[0], facts.get(item.key))
    shown = NodeShown(
        id=name,
        kind=kind,
        level=item.level,
        state=state,
        time_start=to_iso(item.time_start),
        time_end=to_iso(item.time_end),
        leaves=item.size,
    )
    return _Place(shown, refs, turns)


def _fill(place: _Place, recorded: dict[int, RecordedEvent], hindsight: Hindsight) -> None:
    """Give a node its text, and a leaf its sources, unless the words are gone by now."""
    behind = events_behind(place.refs)
    if place.refs and not any(is_gone(recorded[seq], hindsight) for seq in behind):
        place.shown.text = shorten(join_texts(place.refs, recorded), NODE_TEXT_MAX)
    if place.turns:
        turns = [recorded[seq] for seq in place.turns if not is_gone(recorded[seq], hindsight)]
        place.shown.sources = [source_of(turn) for turn in turns]
