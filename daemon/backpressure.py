"""When ingest stops reading the bus, which then holds what waits: disk, writer and fold lag, nothing else.

How much work waits for the models never stops it: a turn that is in the log can be asked for at once.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping
from functools import partial

import anyio

from daemon.disk import Disk
from daemon.logs import Report
from daemon.memories import Memories
from events.envelope import Reference
from events.log import EventLog

# Events that loaded Memories may be behind the log, together: some seconds of folding. It goes on at a quarter.
LAG_EVENTS_MAX = 20_000
# How often it is looked at again while ingest waits.
PAUSE_S = 0.25
# A Memory that cannot be folded must not stop the others' turns for ever.
LAG_WAIT_S = 30.0


class Backpressure:
    """Asked before each fetch. `paused` says why ingest waits now; None while it runs."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        disk: Disk,
        report: Report,
        *,
        lag_events_max: int = LAG_EVENTS_MAX,
        pause_s: float = PAUSE_S,
        lag_wait_s: float = LAG_WAIT_S,
    ) -> None:
        self.paused: str | None = None
        self._log = log
        self._memories = memories
        self._disk = disk
        self._report = report
        self._lag_events_max = lag_events_max
        self._pause_s = pause_s
        self._lag_wait_s = lag_wait_s

    async def wait(self) -> None:
        """Return as soon as there is room for another batch."""
        patience_until = anyio.current_time() + self._lag_wait_s
        while True:
            reason = self._disk.trouble()
            if reason is None and anyio.current_time() < patience_until and await self._is_behind():
                reason = "fold lag"
            if reason != self.paused:
                self._tell(reason)
            if reason is None:
                return
            await anyio.sleep(self._pause_s)

    def _tell(self, reason: str | None) -> None:
        self.paused = reason
        if reason is None:
            self._report("ingest.resumed")
        else:
            self._report("ingest.paused", reason=reason)

    async def _is_behind(self) -> bool:
        """Whether loaded Memories are further behind than they may be, or not yet near enough again."""
        loaded = {user: memory.user_seq for user, memory in self._memories.loaded().items()}
        lag = await self._log.read(partial(count_lag, folded=loaded))
        return lag > (self._lag_events_max if self.paused is None else self._lag_events_max // 4)


def count_lag(connection: sqlite3.Connection, folded: Mapping[Reference, int]) -> int:
    """Events of these users behind the user_seq that each is folded to, together."""
    lag = 0
    for user, user_seq in folded.items():
        row = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
        lag += 0 if row is None else max(0, row[0] - user_seq)
    return lag
