"""Who and what there is: users and sessions, as the registry knows them."""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from daemon.erasure.receipts import SessionUnknown, UserUnknown
from daemon.folding import read_in_slices
from daemon.memories import Memories
from daemon.models.prices import NANO
from daemon.untrusted import Params
from events.envelope import Reference
from events.ledger import read_session_usage
from events.log import EventLog
from events.memory import Usage
from events.registry import SessionSummary, UserSummary, knows_user, read_sessions, read_users
from events.time import to_iso
from projections.memory import Memory
from projections.steps import Steps


class NoParams(Params, frozen=True, kw_only=True):
    """For methods that take none."""


class UserParams(Params, frozen=True, kw_only=True):
    """For methods about one user."""

    user_id: str


class SessionParams(Params, frozen=True, kw_only=True):
    """For methods about one session."""

    user_id: str
    session_id: str


@dataclass(frozen=True, slots=True)
class UserShown:
    """A user."""

    user_id: str
    user_seq: int
    sessions: int
    turns: int


@dataclass(frozen=True, slots=True)
class SessionShown:
    """A session; `state` is open, closed or forgotten.

    `zero_chunks`: they were read, and no fact found. `model_calls`, `tokens` and `cost` were spent on this
    session alone; what was made of several is in none of them.
    """

    session_id: str
    state: str
    turns: int
    first_at: str | None
    last_at: str | None
    chunks: int
    waiting_chunks: int
    facts: int
    bytes: int
    zero_chunks: int
    model_calls: int
    tokens: int
    cost: float


@dataclass(frozen=True, slots=True)
class UsersShown:
    """All users."""

    users: list[UserShown]


@dataclass(frozen=True, slots=True)
class SessionsShown:
    """The sessions of a user, oldest first; of the forgotten ones, whose ids are erased, how many."""

    sessions: list[SessionShown]
    forgotten: int


@dataclass(frozen=True, slots=True)
class _Counts:
    """Closed chunks, those of them that wait for extraction, and facts, by session."""

    chunks: Counter[Reference]
    waiting: Counter[Reference]
    facts: Counter[Reference]


@dataclass(frozen=True, slots=True)
class _Spent:
    """What a session took, and how many of its chunks were read and hold no fact."""

    usage: Usage
    zero_chunks: int


class Listings:
    """Reads the registry and the Memories for people and programs that look."""

    def __init__(self, log: EventLog, memories: Memories) -> None:
        self._log = log
        self._memories = memories

    async def users(self, _: NoParams) -> UsersShown:
        """All users."""
        users = await self._log.read(read_users)
        return UsersShown([_show_user(user) for user in users])

    async def sessions(self, params: UserParams) -> SessionsShown:
        """The sessions of a user, oldest first; of the forgotten ones, whose ids are erased, how many."""
        user = self._log.keys.user(params.user_id)
        rows = await self._log.read(partial(read_sessions, user=user))
        counts = await self._count(user)
        named = {
            self._log.keys.session(params.user_id, row.session_id): (row, row.session_id)
            for row in rows
            if row.session_id is not None
        }
        spent = await self._log.read(partial(_read_spent, sessions=tuple(named)))
        shown = [
            _show_session(row, name, counts, session, spent[session]) for session, (row, name) in named.items()
        ]
        return SessionsShown(shown, sum(row.state == "forgotten" for row in rows))

    async def session(self, params: SessionParams) -> SessionShown:
        """One session; raises `SessionUnknown`."""
        user = self._log.keys.user(params.user_id)
        session = self._log.keys.session(params.user_id, params.session_id)
        rows = await self._log.read(partial(read_sessions, user=user, session=session))
        if not rows:
            raise SessionUnknown
        spent = await self._log.read(partial(_read_spent, sessions=(session,)))
        return _show_session(rows[0], params.session_id, await self._count(user), session, spent[session])

    async def _count(self, user: Reference) -> _Counts:
        async with self._memories.use(user) as memory:
            return await read_in_slices(memory, partial(count_by_session, memory))


def count_by_session(memory: Memory) -> Steps[_Counts]:
    """What a Memory has of each session, in small steps. It must not change in between."""
    facts = Counter[Reference]()
    for fact in memory.canon.facts.values():
        facts.update(fact.sessions)
        yield
    waiting = Counter(chunk.session for chunk in memory.waiting_chunks.values())
    yield
    return _Counts(Counter(chunk.session for chunk in memory.chunks.values()), waiting, facts)


async def find_user(log: EventLog, user_id: str) -> Reference:
    """The reference of a user that is in the store; raises `UserUnknown`."""
    user = log.keys.user(user_id)
    known = await log.read(partial(knows_user, user=user))
    if not known:
        raise UserUnknown
    return user


def _show_user(user: UserSummary) -> UserShown:
    return UserShown(user.user_id or "", user.user_seq, user.sessions, user.turns)


def _read_spent(connection: sqlite3.Connection, sessions: Sequence[Reference]) -> dict[Reference, _Spent]:
    """What each session took; of readings that were replaced the cost counts, and what they found does not."""
    found: dict[Reference, _Spent] = {}
    for session in sessions:
        (zero_chunks,) = connection.execute(
            """SELECT count(*) FROM ledger l WHERE l.session = ? AND l.facts = 0 AND NOT l.skipped
               AND EXISTS (SELECT 1 FROM turns t WHERE t.extraction = l.seq)""",
            (session,),
        ).fetchone()
        found[session] = _Spent(read_session_usage(connection, session), int(zero_chunks))
    return found


def _show_session(
    row: SessionSummary, session_id: str, counts: _Counts, session: Reference, spent: _Spent
) -> SessionShown:
    gone = row.state == "forgotten"
    return SessionShown(
        session_id=session_id,
        state=row.state,
        turns=row.turns,
        first_at=None if row.first_at is None else to_iso(row.first_at),
        last_at=None if row.last_at is None else to_iso(row.last_at),
        chunks=0 if gone else counts.chunks[session],
        waiting_chunks=0 if gone else counts.waiting[session],
        facts=0 if gone else counts.facts[session],
        bytes=row.bytes,
        zero_chunks=0 if gone else spent.zero_chunks,
        model_calls=spent.usage.calls,
        tokens=spent.usage.tokens,
        cost=spent.usage.cost_nano / NANO,
    )
