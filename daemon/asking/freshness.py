"""How far an answer reaches: waiting until an event is folded in, and the watermark."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Callable
from functools import partial

from daemon.asking.answer_types import Watermark
from daemon.bus.subjects import encode_token
from daemon.memories import Memories
from events.envelope import Keys, Reference
from events.errors import InvalidInput, MemForestError
from events.log import LogReader
from events.registry import knows_user
from events.time import Instant
from projections.memory import Memory

# The forms of keys, each with user and session in it as in subjects. What has another form is never recorded.
_KEY = re.compile(
    r"(?:close/|retract/)?(?:turn|message|body|memory|forget)/(?P<user>[A-Za-z0-9_-]+)/[A-Za-z0-9_-]+"
    r"(?:/[A-Za-z0-9_-]+(?:/-?[0-9]+)?)?"
)


class TurnDeadLettered(InvalidInput):
    """The awaited message could not be decoded; it is kept as a dead letter."""


class TurnInConflict(MemForestError):
    """The awaited key was used before with other content; the first turn stands."""

    code = "conflict"


class TurnRefused(MemForestError):
    """The session of the awaited turn was forgotten; the turn was not taken."""

    code = "conflict"


class Freshness:
    """Waits for events and tells how far Memories are."""

    def __init__(
        self,
        keys: Keys,
        reader: LogReader,
        memories: Memories,
        planned: Callable[[Reference], int],
        clock: Callable[[], Instant],
    ) -> None:
        """`planned` says how many groups of a user are planned and not fused."""
        self._keys = keys
        self._reader = reader
        self._memories = memories
        self._planned = planned
        self._clock = clock

    async def wait_for(self, user: Reference, target: str | int) -> None:
        """Return once the event of a key, or a user_seq, is folded in. The method's deadline bounds the wait.

        Raises `TurnDeadLettered`, `TurnInConflict` or `TurnRefused` as soon as it can never be.
        """
        while True:
            user_seq: int | None
            if isinstance(target, str):
                key = self._keys.key(target)
                user_seq = await self._reader.read(partial(_find_key, user=user, key=key))
            elif await self._reader.read(partial(knows_user, user=user)):
                user_seq = target
            else:
                user_seq = None
            changed = self._memories.changed
            if user_seq is not None:
                async with self._memories.use(user) as memory:
                    if memory.user_seq >= user_seq:
                        return
                    changed = self._memories.changed
            # Dead letters come without an event, so waiting for the log to grow is not enough.
            await self._memories.wait_a_moment(changed)

    async def watermark(self, memory: Memory) -> Watermark:
        """How far a Memory reaches now."""
        projected = memory.user_seq
        lag = await self._reader.read(partial(find_lag, user=memory.user, projected=projected))
        return self.make_watermark(memory, projected, *lag)

    def make_watermark(self, memory: Memory, projected: int, user_seq: int, since: Instant | None) -> Watermark:
        """`projected`: where the Memory was when it was asked (it grows while texts are read); then `find_lag`."""
        lag_s = 0.0 if since is None else max(0, self._clock() - since) / 1000
        pending = memory.pending() + self._planned(memory.user)
        return Watermark(max(user_seq, projected), projected, pending, lag_s)


def check_target(user_id: str, target: str | int) -> None:
    """Refuse at once what nothing will ever be recorded under. Raises `InvalidInput`."""
    if isinstance(target, int):
        if target < 0:
            raise InvalidInput("wait_for is a user_seq from 0 on, or the key of an event")
        return
    found = _KEY.fullmatch(target)
    if found is None:
        raise InvalidInput(
            "wait_for is a user_seq, or a key as `ingest` returns it: turn/<user>/<session>/<id>/<revision>"
        )
    if found["user"] != encode_token(user_id):
        raise InvalidInput("wait_for is the key of another user's event; ask the user that it belongs to")


def _find_key(connection: sqlite3.Connection, user: Reference, key: Reference) -> int | None:
    """The user_seq of the event with a key, None while there is none; raises what became of it otherwise."""
    named = "SELECT seq, user_seq FROM events WHERE key = ? AND user = ?"
    row = connection.execute(named, (key, user)).fetchone()
    if row is not None:
        conflicts = "SELECT 1 FROM events WHERE caused_by = ? AND type = 'turn.conflicted' LIMIT 1"
        if connection.execute(conflicts, (row[0],)).fetchone():
            raise TurnInConflict
        return int(row[1])
    letter = connection.execute("SELECT reason FROM dead_letters WHERE key = ?", (key,)).fetchone()
    if letter is not None:
        raise TurnDeadLettered(f"the awaited message is a dead letter: {letter[0]}")
    if connection.execute("SELECT 1 FROM refusals WHERE key = ?", (key,)).fetchone():
        raise TurnRefused
    return None


def find_lag(connection: sqlite3.Connection, user: Reference, projected: int) -> tuple[int, Instant | None]:
    """The user's last user_seq, and when the first event behind `projected` was recorded."""
    row = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
    first = connection.execute(
        "SELECT recorded_at FROM events WHERE user = ? AND user_seq = ?", (user, projected + 1)
    ).fetchone()
    return (row[0] if row else 0), (first[0] if first else None)
