"""What was built of a user: facts, MemTrees, EventTree units and groups, and the digest of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import islice

from daemon.asking.conflict_search import search_conflicts
from daemon.asking.fact_listing import FactPage, FactShown, FactStanding, look_at_fact, show_conflicts, show_fact
from daemon.asking.listings import UserParams, find_user
from daemon.asking.tree_listing import TreeOutline, TreesShown, outline_tree
from daemon.asking.tree_nodes import may_be_shown, tree_id
from daemon.asking.unit_listing import UnitPage, look_at_units
from daemon.building.compacted import ProgressShown
from daemon.folding import in_slices, read_in_slices
from daemon.memories import Memories
from daemon.texts import read_behind
from daemon.untrusted import Params, check_limit
from events.envelope import Reference
from events.errors import InvalidInput
from events.log import EventLog
from events.memory import FactId
from events.reading import read_events
from events.registry import knows_user
from events.time import Instant
from projections.digests import MemoryDigest, collect_parts
from projections.facts.canonical import Fact
from projections.facts.scopes import Scope
from projections.memory import Memory
from projections.steps import Steps, each_of, sort_in_steps

LIMIT_DEFAULT = 100


class PageParams(Params, frozen=True, kw_only=True):
    """For long listings: at most `limit` entries behind the one with the id `after`."""

    user_id: str
    limit: int = LIMIT_DEFAULT
    after: str | None = None


class FactsParams(PageParams, frozen=True, kw_only=True):
    """For the listing of facts; `conflicts` lists contradictions in place of all facts, `limit` of them a page."""

    conflicts: bool = False


class Structures:
    """Reads the Memories for people and programs that look. Of a user nobody knows, lists are empty."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        compacting: Callable[[Reference], ProgressShown | None] = lambda _: None,
    ) -> None:
        """`compacting` says how far the compaction of a user is that somebody asked for."""
        self._log = log
        self._memories = memories
        self._compacting = compacting

    async def facts(self, params: FactsParams) -> FactPage:
        """A page of a user's facts in time order, and the id to go on from; or one of contradictions."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return FactPage([], None)
        async with self._memories.use(user) as memory:
            if params.conflicts:
                return await self._conflicts(memory, limit, after)
            page, following = await read_in_slices(memory, partial(look_at_page, memory, limit, after))
        return FactPage(await self._read_facts(page), following)

    async def _conflicts(self, memory: Memory, limit: int, after: bytes | None) -> FactPage:
        """A page of contradictions; `after` is the ids of both facts of the last one, one behind the other."""
        found = await search_conflicts(self._log, memory)
        ids = [each.one + each.other for each in found]
        if after is not None and after not in ids:
            raise InvalidInput("after is the `next` of a page of contradictions, which changed since; begin anew")
        start = ids.index(after) + 1 if after is not None else 0
        page = found[start : start + limit]
        facts = dict.fromkeys(fact for each in page for fact in (each.one, each.other))
        known = [memory.canon.facts[fact] for fact in facts if fact in memory.canon.facts]
        shown = await self.show(memory, known)
        following = ids[start + limit - 1].hex() if start + limit < len(ids) else None
        return FactPage(shown, following, show_conflicts(page, shown))

    async def trees(self, params: PageParams) -> TreesShown:
        """A page of a user's MemTrees, the largest first, and the id to go on from."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return TreesShown([], None)
        async with self._memories.use(user) as memory:
            outlines, goes_on = await read_in_slices(memory, partial(outline_page, memory, limit, after))
        seqs = {seq for each in outlines for seq in each.seqs}
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        shown = await in_slices(each_of(outlines, lambda each: each.show(user, recorded)))
        return TreesShown(shown, shown[-1].id if goes_on else None)

    async def units(self, params: PageParams) -> UnitPage:
        """A page of a user's units in the order of their ids, with their groups, and the id to go on from."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return UnitPage([], [], None)
        async with self._memories.use(user) as memory:
            page = await read_in_slices(memory, partial(look_at_units, memory, limit, after))
        recorded = await read_behind(self._log, page.refs)
        return await in_slices(page.show(recorded, self._compacting(user)))

    async def digest(self, params: UserParams) -> MemoryDigest:
        """Hashes of the live Memory of a user."""
        user = await find_user(self._log, params.user_id)
        while True:
            memory = await self._memories.catch_up(user)
            parts = await read_in_slices(memory, partial(collect_parts, memory))
            if not memory.needs_rebuild:
                return await in_slices(parts.hash_in_steps())

    async def show(self, memory: Memory, facts: Sequence[Fact]) -> list[FactShown]:
        """Facts with their texts and sources; those whose words were erased meanwhile are left out."""
        return await self._read_facts([look_at_fact(memory, fact) for fact in facts])

    async def _read_facts(self, standings: Sequence[FactStanding]) -> list[FactShown]:
        seqs = {seq for each in standings for seq in each.seqs}
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        shown = await in_slices(each_of(standings, lambda each: show_fact(each, recorded)))
        return [each for each in shown if each is not None]


def _read_page(params: PageParams) -> tuple[int, bytes | None]:
    check_limit(params.limit)
    if params.after is None:
        return params.limit, None
    try:
        return params.limit, bytes.fromhex(params.after)
    except ValueError:
        raise InvalidInput("after is the `next` of the page before") from None


def look_at_page(memory: Memory, limit: int, after: bytes | None) -> Steps[tuple[list[FactStanding], str | None]]:
    """A page of the facts that are shown, in the order of time, and the id to go on from."""
    facts, last = memory.canon.facts, None
    if after is not None:
        if after not in facts or not memory.shows(facts[after]):
            raise InvalidInput("after is the id of a fact that a page before ended with")
        last = facts[after].first.time_start, after
    placed: list[tuple[Instant, FactId]] = []
    for fact in facts.values():
        place = fact.first.time_start, fact.id
        if memory.shows(fact) and (last is None or place > last):
            placed.append(place)
        yield
    ordered = yield from sort_in_steps(placed)
    page = yield from each_of(islice(ordered, limit), lambda place: look_at_fact(memory, facts[place[1]]))
    return page, page[-1].fact.id.hex() if len(placed) > limit else None


def outline_page(memory: Memory, limit: int, after: bytes | None) -> Steps[tuple[list[TreeOutline], bool]]:
    """A page of the trees that may be shown, the largest first, and whether there are more."""
    sized: list[tuple[int, Scope]] = []
    for scope, tree in memory.forest.trees.items():
        if may_be_shown(memory, scope):
            sized.append((-len(tree), scope))
        yield
    scopes = [scope for _, scope in sorted(sized)]
    yield
    start = 0
    if after is not None:
        ids = yield from each_of(scopes, partial(tree_id, memory.user))
        if after.hex() not in ids:
            raise InvalidInput("after is the id of a tree that a page before ended with")
        start = ids.index(after.hex()) + 1
    outlines: list[TreeOutline] = []
    for scope in scopes[start : start + limit]:
        outlined = yield from outline_tree(memory, scope, memory.forest.trees[scope])
        outlines.append(outlined)
    return outlines, start + limit < len(scopes)
