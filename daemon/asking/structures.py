"""What was built of a user: facts, MemTrees, EventTree units and groups, and the digest of it all."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from daemon.asking.answer_types import Source
from daemon.asking.listings import UserParams, find_user
from daemon.asking.tree_nodes import NODE_TEXT_MAX, may_be_shown, scope_name, tree_id
from daemon.asking.words import shorten, source_of
from daemon.memories import Memories
from daemon.texts import join_texts, read_behind
from daemon.untrusted import Params, check_limit
from events.errors import InvalidInput
from events.log import EventLog
from events.reading import read_events
from events.registry import knows_user
from events.time import to_iso
from projections.digests import MemoryDigest, digest_memory
from projections.facts.canonical import Fact
from projections.texts import FactText, TextRef, WrittenText

LIMIT_DEFAULT = 100


class PageParams(Params, frozen=True, kw_only=True):
    """For long listings: at most `limit` entries behind the one with the id `after`."""

    user_id: str
    limit: int = LIMIT_DEFAULT
    after: str | None = None


@dataclass(frozen=True, slots=True)
class FactShown:
    """A canonical fact; `group` is the id of the group that replaced it in answers."""

    id: str
    text: str
    said_at: str
    time_start: str
    time_end: str
    role: str
    entities: list[str]
    sessions: list[str]
    sources: list[Source]
    group: str | None
    pinned: bool


@dataclass(frozen=True, slots=True)
class TreeShown:
    """A MemTree; `root_text` is null while its root waits for a summary. `id` is what `trees.get` takes."""

    id: str
    scope: str
    kind: str
    leaves: int
    height: int
    nodes: int
    dirty: int
    root_text: str | None


@dataclass(frozen=True, slots=True)
class UnitShown:
    """A unit: how many nodes it has, of how many facts, in how many groups."""

    id: str
    nodes: int
    facts: int
    groups: int


@dataclass(frozen=True, slots=True)
class GroupShown:
    """A group of a unit with the ids of the facts that were merged into it."""

    id: str
    unit: str
    text: str
    members: list[str]
    time_start: str
    time_end: str


@dataclass(frozen=True, slots=True)
class FactPage:
    """Facts in time order; `next` is the `after` to go on from, null on the last page."""

    facts: list[FactShown]
    next: str | None


@dataclass(frozen=True, slots=True)
class TreesShown:
    """MemTrees, the largest first."""

    trees: list[TreeShown]


@dataclass(frozen=True, slots=True)
class UnitPage:
    """Units with their groups; `next` is the `after` to go on from, null on the last page."""

    units: list[UnitShown]
    groups: list[GroupShown]
    next: str | None


class Structures:
    """Reads the Memories for people and programs that look. Of a user nobody knows, lists are empty."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def facts(self, params: PageParams) -> FactPage:
        """A page of a user's facts in time order, and the id to go on from."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return FactPage([], None)
        async with self._memories.use(user) as memory:
            facts = sorted(memory.canon.facts.values(), key=lambda fact: (fact.first.time_start, fact.id))
            facts = [fact for fact in facts if memory.shows(fact)]
            ids = [fact.id for fact in facts]
            if after is not None and after not in ids:
                raise InvalidInput("after is the id of a fact that a page before ended with")
            start = ids.index(after) + 1 if after is not None else 0
            page = facts[start : start + limit]
            group_of = dict(memory.units.group_of)
        shown = await self.show(page, group_of)
        following = page[-1].id.hex() if start + limit < len(ids) else None
        return FactPage(shown, following)

    async def trees(self, params: PageParams) -> TreesShown:
        """A user's MemTrees, the largest first."""
        limit, _ = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return TreesShown([])
        async with self._memories.use(user) as memory:
            trees = [each for each in memory.forest.trees.items() if may_be_shown(memory, each[0])]
            trees = sorted(trees, key=lambda each: (-len(each[1]), each[0]))[:limit]
            roots = {scope: memory.forest.root_refs(scope) for scope, _ in trees}
            shown = [
                (scope, tree, memory.forest.dirty_count(scope), scope_name(memory, scope)) for scope, tree in trees
            ]
        recorded = await read_behind(self._log, [ref for refs in roots.values() for ref in refs])
        return TreesShown(
            [
                TreeShown(
                    id=tree_id(user, scope),
                    scope=name,
                    kind=scope.kind,
                    leaves=len(tree),
                    height=tree.height,
                    nodes=len(tree.nodes()),
                    dirty=dirty,
                    root_text=shorten(join_texts(roots[scope], recorded), NODE_TEXT_MAX)
                    if roots.get(scope)
                    else None,
                )
                for scope, tree, dirty, name in shown
            ]
        )

    async def units(self, params: PageParams) -> UnitPage:
        """A page of a user's units in the order of their ids, with their groups, and the id to go on from."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return UnitPage([], [], None)
        async with self._memories.use(user) as memory:
            facts = Counter(unit for fact, unit in memory.units.unit_of.items() if fact in memory.canon.facts)
            ids = sorted(unit for unit in facts if after is None or unit > after)
            page = ids[:limit]
            shown = set(page)
            groups = [] if memory.needs_rebuild else sorted(memory.units.groups.values(), key=lambda each: each.id)
            groups = [group for group in groups if group.unit in shown]
            by_unit = Counter(group.unit for group in groups)
            grouped = Counter[bytes]()
            for group in groups:
                grouped[group.unit] += len(group.members)
            nodes = {group.id: memory.nodes.node(memory.nodes.row_of[group.id]) for group in groups}
        refs: list[TextRef] = [WrittenText(group.seq) for group in groups]
        recorded = await read_behind(self._log, refs)
        return UnitPage(
            units=[
                UnitShown(unit.hex(), facts[unit] - grouped[unit] + by_unit[unit], facts[unit], by_unit[unit])
                for unit in page
            ],
            groups=[
                GroupShown(
                    id=group.id.hex(),
                    unit=group.unit.hex(),
                    text=join_texts([ref], recorded) or "",
                    members=[member.hex() for member in group.members],
                    time_start=to_iso(nodes[group.id].time_start),
                    time_end=to_iso(nodes[group.id].time_end),
                )
                for group, ref in zip(groups, refs, strict=True)
            ],
            next=page[-1].hex() if len(ids) > limit else None,
        )

    async def digest(self, params: UserParams) -> MemoryDigest:
        """Hashes of the live Memory of a user."""
        user = await find_user(self._log, params.user_id)
        return digest_memory(await self._memories.catch_up(user))

    async def show(self, facts: list[Fact], group_of: dict[bytes, bytes]) -> list[FactShown]:
        """Facts with their texts and sources; those whose words were erased meanwhile are left out."""
        seqs = {fact.first.pointer.seq for fact in facts} | {turn for fact in facts for turn in fact.turns}
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        shown: list[FactShown] = []
        for fact in facts:
            text = join_texts([FactText(fact.first.pointer)], recorded)
            if text is None:
                continue
            turns = [recorded[seq] for seq in fact.turns]
            sources = [source_of(turn) for turn in turns if turn.event is not None]
            shown.append(
                FactShown(
                    id=fact.id.hex(),
                    text=text,
                    said_at=to_iso(fact.first.said_at),
                    time_start=to_iso(fact.first.time_start),
                    time_end=to_iso(fact.first.time_end),
                    role=fact.first.role,
                    entities=sorted({m.label for each in fact.occurrences for m in each.mentions}),
                    sessions=sorted({source.session_id for source in sources if source.session_id}),
                    sources=sources,
                    group=group_of[fact.id].hex() if fact.id in group_of else None,
                    pinned=fact.pinned,
                )
            )
        return shown


def _read_page(params: PageParams) -> tuple[int, bytes | None]:
    check_limit(params.limit)
    if params.after is None:
        return params.limit, None
    try:
        return params.limit, bytes.fromhex(params.after)
    except ValueError:
        raise InvalidInput("after is the `next` of the page before") from None
