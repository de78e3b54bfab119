"""What there is: users, sessions, facts, trees, units, and the digest of a Memory."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from daemon.forgetting import SessionUnknown
from daemon.memories import Memories
from daemon.protocol import Params
from daemon.texts import join_texts, read_behind
from events.envelope import Reference
from events.errors import InvalidInput, MemForestError
from events.log import EventLog
from events.reading import read_events
from events.registry import SessionSummary, UserSummary, read_sessions, read_users
from events.session import TurnRecorded
from events.time import to_iso
from projections.facts.canonical import Fact
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory, MemoryDigest
from projections.texts import FactText, TextRef, WrittenText

LIMIT_DEFAULT = 100
LIMIT_MAX = 1_000
# Characters of a root's text that a listing shows.
ROOT_TEXT_MAX = 800


class UserUnknown(MemForestError):
    """There is no user of this id; `users.list` names those there are."""

    code = "not_found"


class NoParams(Params, frozen=True, kw_only=True):
    """For methods that take none."""


class UserParams(Params, frozen=True, kw_only=True):
    """For methods about one user."""

    user_id: str


class SessionParams(Params, frozen=True, kw_only=True):
    """For methods about one session."""

    user_id: str
    session_id: str


class PageParams(Params, frozen=True, kw_only=True):
    """For long listings: at most `limit` entries behind the one with the id `after`."""

    user_id: str
    limit: int = LIMIT_DEFAULT
    after: str | None = None


@dataclass(frozen=True, slots=True)
class UserShown:
    """A user."""

    user_id: str
    user_seq: int
    sessions: int
    turns: int


@dataclass(frozen=True, slots=True)
class SessionShown:
    """A session; `state` is open, closed or forgotten."""

    session_id: str
    state: str
    turns: int
    first_at: str | None
    last_at: str | None
    chunks: int
    waiting_turns: int
    facts: int
    bytes: int


@dataclass(frozen=True, slots=True)
class FactSource:
    """A turn a fact was read from."""

    session_id: str | None
    turn_id: str | None


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
    sources: list[FactSource]
    group: str | None


@dataclass(frozen=True, slots=True)
class TreeShown:
    """A MemTree; `root_text` is null while its root waits for a summary."""

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
    """A group with the ids of the facts that were merged into it."""

    id: str
    text: str
    members: list[str]
    time_start: str
    time_end: str


@dataclass(frozen=True, slots=True)
class _Counts:
    """Chunks and facts by session."""

    chunks: Counter[Reference]
    facts: Counter[Reference]


class Listings:
    """Reads the registry and the Memories for people and programs that look."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def users(self, _: NoParams) -> dict[str, list[UserShown]]:
        """All users."""
        users = await self._log.read(read_users)
        return {"users": [_show_user(user) for user in users]}

    async def sessions(self, params: UserParams) -> dict[str, object]:
        """The sessions of a user, oldest first; of the forgotten ones, whose ids are erased, how many."""
        user = self._log.keys.user(params.user_id)
        rows = await self._log.read(partial(read_sessions, user=user))
        counts = await self._count(user)
        shown = [
            _show_session(row, row.session_id, counts, self._log.keys.session(params.user_id, row.session_id))
            for row in rows
            if row.session_id is not None
        ]
        return {"sessions": shown, "forgotten": sum(row.state == "forgotten" for row in rows)}

    async def session(self, params: SessionParams) -> SessionShown:
        """One session; raises `SessionUnknown`."""
        user = self._log.keys.user(params.user_id)
        session = self._log.keys.session(params.user_id, params.session_id)
        rows = await self._log.read(partial(read_sessions, user=user, session=session))
        if not rows:
            raise SessionUnknown
        return _show_session(rows[0], params.session_id, await self._count(user), session)

    async def _count(self, user: Reference) -> _Counts:
        async with self._memories.use(user) as memory:
            return _Counts(
                Counter(chunk.session for chunk in memory.chunks.values()),
                Counter(session for fact in memory.canon.facts.values() for session in fact.sessions),
            )

    async def facts(self, params: PageParams) -> dict[str, object]:
        """A page of a user's facts in time order, and the id to go on from."""
        limit, after = _read_page(params)
        user = await self.known_user(params.user_id)
        async with self._memories.use(user) as memory:
            facts = sorted(memory.canon.facts.values(), key=lambda fact: (fact.first.time_start, fact.id))
            facts = [fact for fact in facts if not fact.sessions & memory.hidden]
            ids = [fact.id for fact in facts]
            if after is not None and after not in ids:
                raise InvalidInput("after is the id of a fact that a page before ended with")
            start = ids.index(after) + 1 if after is not None else 0
            page = facts[start : start + limit]
            group_of = dict(memory.units.group_of)
        shown = await self._show_facts(page, group_of)
        following = page[-1].id.hex() if start + limit < len(ids) else None
        return {"facts": shown, "next": following}

    async def trees(self, params: PageParams) -> dict[str, list[TreeShown]]:
        """A user's MemTrees, the largest first."""
        limit, _ = _read_page(params)
        user = await self.known_user(params.user_id)
        async with self._memories.use(user) as memory:
            trees = sorted(memory.forest.trees.items(), key=lambda each: (-len(each[1]), each[0]))[:limit]
            roots = {scope: memory.forest.root_refs(scope) for scope, _ in trees}
            hidden = {each.hex() for each in memory.hidden}
            shown = [
                (scope, tree, memory.forest.dirty_count(scope), _scope_name(memory, scope))
                for scope, tree in trees
                if scope.name not in hidden
            ]
            if memory.hidden:
                roots = {}  # a root may speak of what was just forgotten until the Memory is folded again
        recorded = await read_behind(self._log, [ref for refs in roots.values() for ref in refs])
        return {
            "trees": [
                TreeShown(
                    scope=name,
                    kind=scope.kind,
                    leaves=len(tree),
                    height=tree.height,
                    nodes=len(tree.nodes()),
                    dirty=dirty,
                    root_text=_shorten(join_texts(roots[scope], recorded)) if roots.get(scope) else None,
                )
                for scope, tree, dirty, name in shown
            ]
        }

    async def units(self, params: UserParams) -> dict[str, object]:
        """A user's units and groups."""
        user = await self.known_user(params.user_id)
        async with self._memories.use(user) as memory:
            facts = Counter(unit for fact, unit in memory.units.unit_of.items() if fact in memory.canon.facts)
            groups = [] if memory.hidden else sorted(memory.units.groups.values(), key=lambda each: each.id)
            by_unit = Counter(group.unit for group in groups)
            grouped = Counter[bytes]()
            for group in groups:
                grouped[group.unit] += len(group.members)
            nodes = {group.id: memory.nodes.node(memory.nodes.row_of[group.id]) for group in groups}
        refs: list[TextRef] = [WrittenText(group.seq) for group in groups]
        recorded = await read_behind(self._log, refs)
        return {
            "units": [
                UnitShown(unit.hex(), count - grouped[unit] + by_unit[unit], count, by_unit[unit])
                for unit, count in sorted(facts.items())
            ],
            "groups": [
                GroupShown(
                    id=group.id.hex(),
                    text=join_texts([ref], recorded) or "",
                    members=[member.hex() for member in group.members],
                    time_start=to_iso(nodes[group.id].time_start),
                    time_end=to_iso(nodes[group.id].time_end),
                )
                for group, ref in zip(groups, refs, strict=True)
            ],
        }

    async def digest(self, params: UserParams) -> MemoryDigest:
        """Hashes of the live Memory of a user."""
        user = await self.known_user(params.user_id)
        return (await self._memories.catch_up(user)).digest()

    async def known_user(self, user_id: str) -> Reference:
        """The reference of a user that is in the store; raises `UserUnknown`."""
        user = self._log.keys.user(user_id)
        known = await self._log.read(
            lambda db: db.execute("SELECT 1 FROM users WHERE user = ?", (user,)).fetchone()
        )
        if not known:
            raise UserUnknown
        return user

    async def _show_facts(self, facts: list[Fact], group_of: dict[bytes, bytes]) -> list[FactShown]:
        seqs = {fact.first.pointer.seq for fact in facts} | {turn for fact in facts for turn in fact.turns}
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        shown: list[FactShown] = []
        for fact in facts:
            text = join_texts([FactText(fact.first.pointer)], recorded)
            if text is None:
                continue
            turns = [recorded[seq] for seq in fact.turns]
            sources = [
                FactSource(turn.session_id, turn.event.turn_id)
                for turn in turns
                if isinstance(turn.event, TurnRecorded)
            ]
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
                )
            )
        return shown


def _show_user(user: UserSummary) -> UserShown:
    return UserShown(user.user_id or "", user.user_seq, user.sessions, user.turns)


def _show_session(row: SessionSummary, session_id: str, counts: _Counts, session: Reference) -> SessionShown:
    gone = row.state == "forgotten"
    return SessionShown(
        session_id=session_id,
        state=row.state,
        turns=row.turns,
        first_at=None if row.first_at is None else to_iso(row.first_at),
        last_at=None if row.last_at is None else to_iso(row.last_at),
        chunks=0 if gone else counts.chunks[session],
        waiting_turns=row.waiting_turns,
        facts=0 if gone else counts.facts[session],
        bytes=row.bytes,
    )


def _scope_name(memory: Memory, scope: Scope) -> str:
    if scope.kind is ScopeKind.SESSION:
        return memory.session_ids.get(bytes.fromhex(scope.name), "")
    return scope.name or "user"


def _shorten(text: str | None) -> str | None:
    return text if text is None or len(text) <= ROOT_TEXT_MAX else text[: ROOT_TEXT_MAX - 1] + "…"


def _read_page(params: PageParams) -> tuple[int, bytes | None]:
    if not 1 <= params.limit <= LIMIT_MAX:
        raise InvalidInput(f"limit is from 1 to {LIMIT_MAX}")
    if params.after is None:
        return params.limit, None
    try:
        return params.limit, bytes.fromhex(params.after)
    except ValueError:
        raise InvalidInput("after is the id of a fact that a page before ended with") from None
