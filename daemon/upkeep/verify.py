"""`memforestd verify`: fold the log from nothing and compare with the live Memory, user by user.

Reads through read-only connections, so it runs beside the daemon; without one it compares with the digests
the daemon left when it stopped. The fold checks every chain and commitment on the way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial

from daemon.folding import fold, fold_from_nothing
from events.digests import read_digests
from events.envelope import GENESIS, Reference, link
from events.errors import LogDamaged
from events.hindsight import last_undoing
from events.log import LogReader
from projections.digests import MemoryDigest, digest_memory
from projections.memory import MemoryParameters

# In place of the name of a forgotten user.
_NAMELESS = "(forgotten)"
# Asks the running daemon for the digest of a user; None when it has none.
AskDigest = Callable[[str], Awaitable[MemoryDigest | None]]


@dataclass(frozen=True, slots=True)
class UserVerdict:
    """What came of one user. `difference` is None when all is equal; `compared` is False without a digest."""

    user_id: str
    events: int
    compared: bool
    difference: str | None


async def verify(log: LogReader, parameters: MemoryParameters, ask: AskDigest | None) -> list[UserVerdict]:
    """Verify every user of a store; `ask` is None when no daemon runs.

    Raises `LogDamaged` naming the first event that is not as it was written.
    """
    await log.read(check_running_hash)
    left = {
        each.user: MemoryDigest(each.user_seq, each.facts, each.scopes, each.trees, each.units)
        for each in await log.read(read_digests)
    }
    return [
        # Of a forgotten user only the chain is left to check: nobody can ask for its Memory.
        await _verify_user(log, parameters, user, _NAMELESS, None, None)
        if name is None
        else await _verify_user(log, parameters, user, name.decode(), ask, left.get(user))
        for user, name in await log.read(_read_users)
    ]


async def _verify_user(
    log: LogReader,
    parameters: MemoryParameters,
    user: Reference,
    user_id: str,
    ask: AskDigest | None,
    left: MemoryDigest | None,
) -> UserVerdict:
    """Compare with what the daemon says, or with what it `left` when it stopped."""
    while True:
        expected = left if ask is None else await ask(user_id)
        memory = await fold_from_nothing(log, user, parameters, None if expected is None else expected.user_seq)
        if expected is None or await log.read(partial(last_undoing, user=user)) <= expected.user_seq:
            break
        left = None  # the Memory of then held what was forgotten since: no fold can be compared with it
    difference = None if expected is None else first_difference(digest_memory(memory), expected)
    if ask is None:
        await fold(log, memory)  # the digest says nothing of the events behind it
    return UserVerdict(user_id, memory.user_seq, expected is not None, difference)


def first_difference(folded: MemoryDigest, live: MemoryDigest) -> str | None:
    """The first part in which two digests differ, with both hashes."""
    for part in ("user_seq", "facts", "scopes", "trees", "units"):
        ours, theirs = getattr(folded, part), getattr(live, part)
        if ours != theirs:
            return f"{part}: folded {ours}, live {theirs}"
    return None


def check_running_hash(connection: sqlite3.Connection) -> None:
    """Raise `LogDamaged` unless the log has every event up to its head, in the order they were written."""
    connection.execute("BEGIN")
    try:
        head, recorded = connection.execute("SELECT seq, running FROM head").fetchone()
        running = GENESIS
        expected = 0
        for seq, chain in connection.execute("SELECT seq, chain FROM events ORDER BY seq"):
            expected += 1
            if seq != expected:
                raise LogDamaged(f"the event at seq {expected} is missing")
            running = link(running, [chain])
        if expected != head:
            raise LogDamaged(f"the log ends at seq {expected}; its head says {head}")
        if running != recorded:
            raise LogDamaged("the running hash over all events does not match; an event was replaced")
    finally:
        connection.execute("COMMIT")


def _read_users(connection: sqlite3.Connection) -> list[tuple[Reference, bytes | None]]:
    return connection.execute(
        "SELECT u.user, n.text FROM users u JOIN names n ON n.reference = u.user ORDER BY n.text"
    ).fetchall()
