"""One checker for every run in which something was killed, cut off or set back (fault matrix, engineering.md 2).

What publishers were told is in the stream stands against what the log holds: each turn once and in its session's
order, each contradiction and each undecodable message kept, nothing else; the chain is sound, and folding the log
from nothing, in a process without a model, gives what the daemon has in memory.
"""

from __future__ import annotations

import json
import sqlite3
from collections import defaultdict
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeAlias

from events.log import LogReader
from events.reading import read_user
from events.registry import read_user_references
from events.session import TurnConflicted, TurnRecorded
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    assert_equal,
    run_command,
    until,
    until_built,
)

# (user, session) to the contents of its turns, in order.
Turns: TypeAlias = dict[tuple[str, str], list[str]]
RECORDED_WITHIN_S = 90.0


@dataclass(slots=True)
class Said:
    """What publishers were told that the stream has; duplicates of a message are said once."""

    turns: Turns = field(default_factory=lambda: defaultdict(list))
    contradictions: set[str] = field(default_factory=set)  # contents that came under an id that was taken
    undecodable: set[bytes] = field(default_factory=set)

    @property
    def count(self) -> int:
        """The number of turns."""
        return sum(map(len, self.turns.values()))


@dataclass(frozen=True, slots=True)
class Recorded:
    """What a log holds of it, read behind the daemon's back."""

    turns: Turns
    contradictions: list[str]
    letters: list[tuple[bytes, str, int]]  # payload, epoch and sequence on the stream

    def holds(self, said: Said) -> bool:
        """Whether all that was said has arrived; what came too much is for `assert_accounted`."""
        return (
            all(len(self.turns.get(session, [])) >= len(turns) for session, turns in said.turns.items())
            and said.contradictions <= set(self.contradictions)
            and said.undecodable <= {payload for payload, _, _ in self.letters}
        )


async def read_recorded(path: Path) -> Recorded:
    """Everything that came over the bus into a store. Raises `LogDamaged` where a chain does not hold."""
    log = await LogReader.open_to_read(path)
    turns: Turns = defaultdict(list)
    contradictions: list[str] = []
    try:
        for user in await log.read(read_user_references):
            after = 0
            while page := await log.read(partial(read_user, user=user, after=after)):
                after = page[-1].user_seq
                for each in page:
                    if isinstance(each.event, TurnConflicted):
                        contradictions.append(each.event.content)
                    elif isinstance(each.event, TurnRecorded):
                        turns[each.user_id or "", each.session_id or ""].append(each.event.content)
    finally:
        await log.close()
    letters = stored_rows(path, "SELECT payload, bus_epoch, bus_seq FROM letters")
    return Recorded(turns, contradictions, [(bytes(payload), epoch, seq) for payload, epoch, seq in letters])


def assert_accounted(recorded: Recorded, said: Said) -> None:
    """Acknowledged set == log set, exactly once, order kept; dead letters and contradictions are the rest."""
    places = [(epoch, seq) for _, epoch, seq in recorded.letters]
    different = [session for session, turns in said.turns.items() if recorded.turns.get(session, []) != turns]

    assert different == [], {session: (said.turns[session], recorded.turns.get(session)) for session in different}
    assert recorded.turns.keys() == said.turns.keys()
    assert set(recorded.contradictions) == said.contradictions
    assert {payload for payload, _, _ in recorded.letters} == said.undecodable
    assert len(places) == len(set(places)), "a message became two dead letters"


async def check(daemon: DaemonProcess, said: Said) -> None:
    """Wait until the daemon has done all it had to do, then hold it to everything in this module's docstring."""
    await until_arrived(daemon, said)
    users = {user for user, _ in said.turns}
    async with daemon.client() as client:
        for user in sorted(users):
            await until_built(client, user)
    recorded = await read_recorded(daemon.store_path)
    print(
        f"{said.count} turns, {len(recorded.contradictions)} contradictions and {len(recorded.letters)} dead "
        f"letters of {len(said.turns)} sessions; {head_of(daemon.store_path)} events"
    )

    assert_accounted(recorded, said)
    await assert_replay_is_equal(daemon, len(users))


async def until_arrived(daemon: DaemonProcess, said: Said, within_s: float = RECORDED_WITHIN_S) -> None:
    """Return when all that was said is in the log."""

    async def has_arrived() -> bool:
        return (await read_recorded(daemon.store_path)).holds(said)

    await until(has_arrived, within_s, "what was acknowledged did not arrive")


async def assert_replay_is_equal(daemon: DaemonProcess, users: int) -> None:
    """`verify` of every user is equal, and the process that folded knows no model that it could have called."""
    head = head_of(daemon.store_path)
    ended = await run_command("tests.faults.folding", str(daemon.folder), str(daemon.socket_path))
    assert ended.code == 0, ended
    answer = json.loads(ended.output)

    assert answer["models"] == []
    assert_equal(answer["users"], users)
    assert head_of(daemon.store_path) == head, "replaying recorded something"


def head_of(path: Path) -> int:
    """The last seq of a log."""
    (row,) = stored_rows(path, "SELECT seq FROM head")
    return int(row[0])


def checkpoint_of(path: Path) -> int:
    """How far a store has read its stream; 0 while there is no store."""
    try:
        rows = stored_rows(path, "SELECT seq FROM bus_checkpoint")
    except sqlite3.OperationalError:
        return 0
    return int(rows[0][0]) if rows else 0
