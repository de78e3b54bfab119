"""`status`: how every part of the daemon is, and how far one user's Memory is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daemon.asking.answer_types import Watermark
from daemon.asking.answers import Answerer
from daemon.asking.listings import NoParams
from daemon.building.worker import Worker
from daemon.bus.nats_bus import NatsBus
from daemon.bus.readings import Reading, ReadingShown, show_reading, trouble_of
from daemon.derived import DerivedStore
from daemon.disk import Disk
from daemon.ingest import Ingest
from daemon.memories import Memories
from daemon.untrusted import Params
from daemon.vectors import VectorFiller
from events.log import EventLog
from events.time import Instant
from projections.ports import Embedder, LanguageModel


class StatusParams(Params, frozen=True, kw_only=True):
    """Parameters of `status`."""

    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class Alive:
    """That the process answers."""

    state: str


@dataclass(frozen=True, slots=True)
class Readiness:
    """`ready`, or `degraded` with a reason by part."""

    state: str
    reasons: dict[str, str]


@dataclass(frozen=True, slots=True)
class DaemonShown:
    """The process. `memories_bytes` is about what its loaded Memories take."""

    version: str
    uptime_s: float
    memories_loaded: int
    memories_bytes: int


@dataclass(frozen=True, slots=True)
class BusShown:
    """The connection to the bus, how far it was read, and how much waits there; null when it cannot tell."""

    state: str
    reason: str
    url: str
    read_to: int
    lag_messages: int | None


@dataclass(frozen=True, slots=True)
class IngestShown:
    """Why the bus is not read for now, and how many messages were none of ours since the start."""

    paused: str | None
    ignored: int


@dataclass(frozen=True, slots=True)
class DiskShown:
    """Room on the disk of the store, and the write-ahead log."""

    free_bytes: int
    ballast_bytes: int
    wal_bytes: int
    wal_large: bool


@dataclass(frozen=True, slots=True)
class DerivedShown:
    """What derived.db holds, and why it cannot be used, if so."""

    vectors: int
    snapshots: int
    bytes: int
    trouble: str | None


@dataclass(frozen=True, slots=True)
class LogShown:
    """What is in the log. `refused`: messages for what was forgotten or taken back."""

    events: int
    users: int
    sessions: int
    dead_letters: int
    refused: int
    waiting_turns: int
    forgotten_not_erased: int


@dataclass(frozen=True, slots=True)
class WorkerShown:
    """Work under way, model calls under way, begun and failed since the start, and work that was given up."""

    in_flight: int
    calling: int
    calls: int
    calls_failed: int
    parked: int


@dataclass(frozen=True, slots=True)
class ModelsShown:
    """The models by name; why the embedder does not answer, if so, and how many nodes wait for their vectors."""

    language_model: str
    embedder: str
    embedder_trouble: str | None
    vectors_waiting: int


@dataclass(frozen=True, slots=True)
class DaemonStatus:
    """How every part is; with a user, how far that user's Memory is."""

    daemon: DaemonShown
    bus: BusShown
    health: Readiness
    ingest: IngestShown
    subscriptions: list[ReadingShown]
    disk: DiskShown
    derived: DerivedShown | None
    log: LogShown
    worker: WorkerShown
    models: ModelsShown
    watermark: Watermark | None = None


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
        vectors: VectorFiller | None = None,
        readings: Sequence[Reading] = (),
        derived: DerivedStore | None = None,
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
        self._vectors = vectors
        self._readings = readings
        self._derived = derived

    async def healthz(self, _: NoParams) -> Alive:
        """That the process answers."""
        return Alive("ok")

    async def readyz(self, _: NoParams) -> Readiness:
        """Whether everything works: `degraded` has a reason by part. Reading works in both states."""
        broken = self._memories.count_broken()
        found = {
            "store": self._disk.trouble(),
            "bus": None if self._bus.state == "up" else f"{self._bus.state}: {self._bus.reason}".rstrip(": "),
            "ingest": self._ingest.paused,
            "subscriptions": trouble_of(self._readings),
            "memories": f"{broken} users' events cannot be folded" if broken else None,
            "embedder": self._models[1].trouble,
        }
        reasons = {part: reason for part, reason in found.items() if reason is not None}
        return Readiness("degraded" if reasons else "ready", reasons)

    async def status(self, params: StatusParams) -> DaemonStatus:
        """The state of daemon, bus, log, worker and models; with a user, also the watermark."""
        watermark = None
        if params.user_id is not None:
            user = self._log.keys.user(params.user_id)
            async with self._memories.use(user) as memory:
                watermark = await self._answerer.watermark(memory)
        counts = await self._log.read(_count)
        parked = counts.pop("parked")
        return DaemonStatus(
            daemon=self._show_daemon(),
            bus=await self._show_bus(),
            health=await self.readyz(NoParams()),
            ingest=IngestShown(self._ingest.paused, self._ingest.ignored),
            subscriptions=[await show_reading(each) for each in self._readings],
            disk=self._show_disk(),
            derived=await self._show_derived(),
            log=LogShown(**counts),
            worker=self._show_worker(parked),
            models=self._show_models(),
            watermark=watermark,
        )

    def _show_daemon(self) -> DaemonShown:
        uptime_s = (self._clock() - self._started_at) / 1000
        return DaemonShown(self._version, uptime_s, len(self._memories.loaded()), self._memories.size_bytes)

    async def _show_derived(self) -> DerivedShown | None:
        if self._derived is None:
            return None
        sizes = await self._derived.measure()
        return DerivedShown(sizes.vectors, sizes.snapshots, sizes.bytes, self._derived.failure)

    async def _show_bus(self) -> BusShown:
        position, lag = self._ingest.position, await self._ingest.lag_messages()
        return BusShown(self._bus.state, self._bus.reason, self._bus_url(), position.seq if position else 0, lag)

    def _show_disk(self) -> DiskShown:
        disk = self._disk
        ballast_bytes = disk.ballast.size_bytes if disk.ballast.is_whole() else 0
        return DiskShown(disk.free_bytes, ballast_bytes, self._log.wal_bytes, disk.wal_is_large)

    def _show_models(self) -> ModelsShown:
        model, embedder = self._models
        waiting = self._vectors.count_waiting() if self._vectors is not None else 0
        return ModelsShown(model.name, embedder.name, embedder.trouble, waiting)

    def _show_worker(self, parked: int) -> WorkerShown:
        worker = self._worker
        calling = worker.slots.borrowed_tokens
        return WorkerShown(len(worker.in_flight), calling, worker.calls, worker.calls_failed, parked)


def _count(connection: sqlite3.Connection) -> dict[str, int]:
    queries = {
        "events": "SELECT seq FROM head",
        "users": "SELECT count(*) FROM users",
        "sessions": "SELECT count(*) FROM sessions",
        "refused": "SELECT coalesce(sum(count), 0) FROM refusals",
        "dead_letters": "SELECT count(*) FROM dead_letters",
        "waiting_turns": "SELECT count(*) FROM turns WHERE closing = 0 AND extraction IS NULL",
        "forgotten_not_erased": "SELECT count(*) FROM erasures WHERE erased IS NULL",
        "parked": "SELECT count(*) FROM events WHERE type = 'work.parked'",
    }
    return {name: int(connection.execute(query).fetchone()[0]) for name, query in queries.items()}
