"""What was built of a user: facts, MemTrees, EventTree units and groups, and the digest of it all."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from daemon.asking.conflict_search import search_conflicts
from daemon.asking.fact_listing import FactPage, FactShown, FactStanding, look_at_fact, show_conflicts, show_facts
from daemon.asking.listings import UserParams, find_user
from daemon.asking.tree_listing import TreesShown, outline_tree
from daemon.asking.tree_nodes import may_be_shown, tree_id
from daemon.asking.unit_listing import UnitPage, look_at_units
from daemon.building.compacted import ProgressShown
from daemon.memories import Memories
from daemon.texts import read_behind
from daemon.untrusted import Params, check_limit
from events.envelope import Reference
from events.errors import InvalidInput
from events.log import EventLog
from events.reading import read_events
from events.registry import knows_user
from projections.digests import MemoryDigest, digest_memory
from projections.facts.canonical import Fact
from projections.memory import Memory

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
            facts = sorted(memory.canon.facts.values(), key=lambda fact: (fact.first.time_start, fact.id))
            facts = [fact for fact in facts if memory.shows(fact)]
            ids = [fact.id for fact in facts]
            if after is not None and after not in ids:
                raise InvalidInput("after is the id of a fact that a page before ended with")
            start = ids.index(after) + 1 if after is not None else 0
            page = [look_at_fact(memory, fact) for fact in facts[start : start + limit]]
        shown = await self._read_facts(page)
        following = page[-1].fact.id.hex() if start + limit < len(ids) else None
        return FactPage(shown, following)

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
            trees = [each for each in memory.forest.trees.items() if may_be_shown(memory, each[0])]
            trees = sorted(trees, key=lambda each: (-len(each[1]), each[0]))
            start = 0
            if after is not None:
                ids = [tree_id(user, scope) for scope, _ in trees]
                if after.hex() not in ids:
                    raise InvalidInput("after is the id of a tree that a page before ended with")
                start = ids.index(after.hex()) + 1
            page = trees[start : start + limit]
            outlines = [outline_tree(memory, scope, tree) for scope, tree in page]
        seqs = {seq for each in outlines for seq in each.seqs}
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        shown = [each.show(user, recorded) for each in outlines]
        return TreesShown(shown, shown[-1].id if start + limit < len(trees) else None)

    async def units(self, params: PageParams) -> UnitPage:
        """A page of a user's units in the order of their ids, with their groups, and the id to go on from."""
        limit, after = _read_page(params)
        user = self._log.keys.user(params.user_id)
        if not await self._log.read(partial(knows_user, user=user)):
            return UnitPage([], [], None)
        async with self._memories.use(user) as memory:
            page = look_at_units(memory, limit, after)
        recorded = await read_behind(self._log, page.refs)
        return page.show(recorded, self._compacting(user))

    async def digest(self, params: UserParams) -> MemoryDigest:
        """Hashes of the live Memory of a user."""
        user = await find_user(self._log, params.user_id)
        return digest_memory(await self._memories.catch_up(user))

    async def show(self, memory: Memory, facts: Sequence[Fact]) -> list[FactShown]:
        """Facts with their texts and sources; those whose words were erased meanwhile are left out."""
        return await self._read_facts([look_at_fact(memory, fact) for fact in facts])

    async def _read_facts(self, standings: Sequence[FactStanding]) -> list[FactShown]:
        seqs = {seq for each in standings for seq in each.seqs}
        return show_facts(standings, await self._log.read(partial(read_events, seqs=seqs)))


def _read_page(params: PageParams) -> tuple[int, bytes | None]:
    check_limit(params.limit)
    if params.after is None:
        return params.limit, None
    try:
        return params.limit, bytes.fromhex(params.after)
    except ValueError:
        raise InvalidInput("after is the `next` of the page before") from None
