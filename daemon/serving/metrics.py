"""`metrics`: the daemon in figures, in the text format that Prometheus reads.

They are what `status` and the tally of requests know anyway: nothing is counted twice. Not here: how they are
written down (daemon/serving/exposition.py).
"""

from __future__ import annotations

import sqlite3
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import TypeAlias

from anyio import to_thread

from daemon.asking.listings import NoParams
from daemon.serving.calls import Tally
from daemon.status import StatusParams
from daemon.status_shown import DaemonStatus
from events.log import EventLog

Ask: TypeAlias = Callable[[StatusParams], Awaitable[DaemonStatus]]


@dataclass(frozen=True, slots=True)
class MetricsShown:
    """All figures as text (version 0.0.4 of Prometheus' exposition format)."""

    text: str


class Metrics:
    """Reads the figures when somebody asks."""

    def __init__(self, log: EventLog, status: Ask, tally: Tally) -> None:
        self._log = log
        self._status = status
        self._tally = tally
        self._events = Counter[str]()
        self._counted_to = 0

    async def metrics(self, _: NoParams) -> MetricsShown:
        """Every figure as it is now."""
        status = await self._status(StatusParams())
        await self._count_events()
        # prometheus-client is imported by the first who asks, in a thread: a start need not wait for it.
        await to_thread.run_sync(import_module, "daemon.serving.exposition")
        from daemon.serving.exposition import write

        return MetricsShown(write(status, self._tally, self._events))

    async def _count_events(self) -> None:
        """Events by type. An event's type never changes, so only those behind the last scrape are counted."""
        to, added = await self._log.read(partial(_count_behind, seq=self._counted_to))
        if to > self._counted_to:  # of two scrapes at once one counts
            self._counted_to = to
            self._events.update(added)


def _count_behind(connection: sqlite3.Connection, seq: int) -> tuple[int, dict[str, int]]:
    (to,) = connection.execute("SELECT seq FROM head").fetchone()
    rows = connection.execute(
        "SELECT type, count(*) FROM events WHERE seq > ? AND seq <= ? GROUP BY type", (seq, to)
    )
    return int(to), dict(rows.fetchall())
