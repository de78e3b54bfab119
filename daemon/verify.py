"""`memforestd verify`: fold the log from nothing and compare with the live Memory, user by user.

Reads through read-only connections, so it runs beside the daemon; without one it compares with the digests
the daemon left when it stopped. The fold checks every chain and commitment on the way.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from daemon.memories import fold_from_nothing
from events.digests import read_digests
from events.envelope import GENESIS, Reference, link
from events.errors import LogDamaged
from events.log import LogReader
from projections.digests import MemoryDigest, digest_memory
from projections.memory import MemoryParameters

# Asks the running daemon for the digest of a user.
AskDigest = Callable[[str], Awaitable[MemoryDigest]]


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
    stored = {each.user: each for each in await log.read(read_digests)}
    verdicts: list[UserVerdict] = []
    for user, name, user_seq in await log.read(_read_users):
        user_id = name.decode()
        expected: MemoryDigest | None = None
        if ask is not None:
            expected = await ask(user_id)
        elif user in stored:
            left = stored[user]
            expected = MemoryDigest(left.user_seq, left.facts, left.scopes, left.trees, left.units)
        folded_to = user_seq if expected is None else expected.user_seq
        memory = await fold_from_nothing(log, user, parameters, folded_to)
        difference = None if expected is None else first_difference(digest_memory(memory), expected)
        verdicts.append(UserVerdict(user_id, folded_to, expected is not None, difference))
    return verdicts


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


def _read_users(connection: sqlite3.Connection) -> list[tuple[Reference, bytes, int]]:
    return connection.execute(
        "SELECT u.user, n.text, u.user_seq FROM users u JOIN names n ON n.reference = u.user ORDER BY n.text"
    ).fetchall()
