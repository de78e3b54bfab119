"""`status`: how every part of the daemon is, and how far one user's Memory is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable

from daemon.answers import Answerer
from daemon.bus import NatsBus
from daemon.disk import Disk
from daemon.ingest import Ingest
from daemon.listings import NoParams
from daemon.memories import Memories
from daemon.protocol import Params
from daemon.worker import Worker
from events.log import EventLog
from events.time import Instant
from projections.ports import Embedder, LanguageModel


class StatusParams(Params, frozen=True, kw_only=True):
    """Parameters of `status`."""

    user_id: str | None = None


class Status:
    """Reads the state of the parts; it changes nothing."""

    def __init__(
        self,
        version: str,
        clock: Callable[[], Instant],
        log: EventLog,
        memories: Memories,
        bus: NatsBus,
        bus_url: Callable[[], str],
        ingest: Ingest,
        worker: Worker,
        answerer: Answerer,
        models: tuple[LanguageModel, Embedder],
        disk: Disk,
    ) -> None:
        self._version = version
        self._clock = clock
        self._started_at = clock()
        self._log = log
        self._memories = memories
        self._bus = bus
        self._bus_url = bus_url
        self._ingest = ingest
        self._worker = worker
        self._answerer = answerer
        self._models = models
        self._disk = disk

    async def healthz(self, _: NoParams) -> dict[str, object]:
        """That the process answers."""
        return {"state": "ok"}

    async def readyz(self, _: NoParams) -> dict[str, object]:
        """Whether everything works: `degraded` has a reason by part. Reading works in both states."""
        broken = self._memories.count_broken()
        found = {
            "store": self._disk.trouble(),
            "bus": None if self._bus.state == "up" else f"{self._bus.state}: {self._bus.reason}".rstrip(": "),
            "ingest": self._ingest.paused,
            "memories": f"{broken} users' events cannot be folded" if broken else None,
        }
        reasons = {part: reason for part, reason in found.items() if reason is not None}
        return {"state": "degraded" if reasons else "ready", "reasons": reasons}

    async def status(self, params: StatusParams) -> dict[str, object]:
        """The state of daemon, bus, log, worker and models; with a user, also the watermark."""
        counts = await self._log.read(_count)
        position = self._ingest.position
        shown: dict[str, object] = {
            "daemon": {
                "version": self._version,
                "uptime_s": (self._clock() - self._started_at) / 1000,
                "memories_loaded": len(self._memories.loaded()),
            },
            "bus": {
                "state": self._bus.state,
                "reason": self._bus.reason,
                "url": self._bus_url(),
                "read_to": position.seq if position else 0,
                "lag_messages": await self._ingest.lag_messages(),
            },
            "health": await self.readyz(NoParams()),
            "ingest": {"paused": self._ingest.paused},
            "disk": {
                "free_bytes": self._disk.free_bytes,
                "ballast_bytes": self._disk.ballast.size_bytes if self._disk.ballast.is_whole() else 0,
                "wal_bytes": self._log.wal_bytes,
                "wal_large": self._disk.wal_is_large,
            },
            "log": counts,
            "worker": {"in_flight": len(self._worker.in_flight), "parked": counts.pop("parked")},
            "models": {"language_model": self._models[0].name, "embedder": self._models[1].name},
        }
        if params.user_id is not None:
            user = self._log.keys.user(params.user_id)
            async with self._memories.use(user) as memory:
                shown["watermark"] = await self._answerer.watermark(memory)
        return shown


def _count(connection: sqlite3.Connection) -> dict[str, int]:
    queries = {
        "events": "SELECT seq FROM head",
        "users": "SELECT count(*) FROM users",
        "dead_letters": "SELECT count(*) FROM dead_letters",
        "waiting_turns": "SELECT count(*) FROM turns WHERE closing = 0 AND extraction IS NULL",
        "forgotten_not_erased": "SELECT count(*) FROM erasures WHERE erased IS NULL",
        "parked": "SELECT count(*) FROM events WHERE type = 'work.parked'",
    }
    return {name: int(connection.execute(query).fetchone()[0]) for name, query in queries.items()}
