"""Who and what there is: users and sessions, as the registry knows them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from functools import partial

from daemon.erasure.receipts import SessionUnknown, UserUnknown
from daemon.memories import Memories
from daemon.untrusted import Params
from events.envelope import Reference
from events.log import EventLog
from events.registry import SessionSummary, UserSummary, knows_user, read_sessions, read_users
from events.time import to_iso


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
    """A session; `state` is open, closed or forgotten."""

    session_id: str
    state: str
    turns: int
    first_at: str | None
    last_at: str | None
    chunks: int
    waiting_chunks: int
    facts: int
    bytes: int


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
        shown = [
            _show_session(row, row.session_id, counts, self._log.keys.session(params.user_id, row.session_id))
            for row in rows
            if row.session_id is not None
        ]
        return SessionsShown(shown, sum(row.state == "forgotten" for row in rows))

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
                Counter(chunk.session for chunk in memory.waiting_chunks.values()),
                Counter(session for fact in memory.canon.facts.values() for session in fact.sessions),
            )


async def find_user(log: EventLog, user_id: str) -> Reference:
    """The reference of a user that is in the store; raises `UserUnknown`."""
    user = log.keys.user(user_id)
    known = await log.read(partial(knows_user, user=user))
    if not known:
        raise UserUnknown
    return user


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
        waiting_chunks=0 if gone else counts.waiting[session],
        facts=0 if gone else counts.facts[session],
        bytes=row.bytes,
    )
