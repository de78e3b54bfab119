"""`status`: how every part of the daemon is, and how far one user's Memory is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from daemon.asking.answers import Answerer
from daemon.asking.listings import NoParams
from daemon.building.compacted import ProgressShown
from daemon.building.worker import Worker
from daemon.bus.nats_bus import NatsBus
from daemon.bus.readings import Reading, show_reading, trouble_of
from daemon.derived import DerivedStore
from daemon.disk import Disk
from daemon.extraction_watch import ExtractionWatch
from daemon.ingest import Ingest
from daemon.memories import Memories
from daemon.models.budget import Budget
from daemon.models.query_spending import QuerySpending
from daemon.status_shown import (
    Alive,
    BusShown,
    DaemonShown,
    DaemonStatus,
    DerivedShown,
    DiskShown,
    EndpointShown,
    IngestShown,
    LogShown,
    ModelsShown,
    Readiness,
    WorkerShown,
    show_budgets,
    show_extraction,
    show_ledger,
    show_waits,
)
from daemon.tree_vectors import TreeVectorFiller
from daemon.untrusted import Params
from daemon.vectors import VectorFiller
from events.envelope import Reference
from events.errors import StoreUnusable
from events.ledger import count_parked
from events.log import EventLog
from events.time import Instant
from projections.ports import Embedder, LanguageModel


class StatusParams(Params, frozen=True, kw_only=True):
    """Parameters of `status`."""

    user_id: str | None = None


@dataclass(frozen=True, slots=True)
class ModelsInUse:
    """The models, and what is known of asking them. `chat` and `embeddings`: how those at an endpoint fare."""

    language_model: LanguageModel
    embedder: Embedder
    budget: Budget
    queries: QuerySpending
    watch: ExtractionWatch
    chat: Callable[[], EndpointShown | None] = lambda: None
    embeddings: Callable[[], EndpointShown | None] = lambda: None
    price_missing: str | None = None  # the chat model, when the price table does not know it


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
        models: ModelsInUse,
        disk: Disk,
        vectors: VectorFiller | None = None,
        readings: Sequence[Reading] = (),
        derived: DerivedStore | None = None,
        tree_vectors: TreeVectorFiller | None = None,
        compacting: Callable[[Reference], ProgressShown | None] = lambda _: None,
    ) -> None:
        """`compacting` says how far the compaction of a user is that somebody asked for."""
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
        self._tree_vectors = tree_vectors
        self._compacting = compacting

    async def healthz(self, _: NoParams) -> Alive:
        """That the process answers."""
        return Alive("ok")

    async def readyz(self, _: NoParams) -> Readiness:
        """Whether everything works: `degraded` has a reason by part. Reading works in both states."""
        return self._judge(await self._trouble_of_extraction())

    def _judge(self, trouble_of_extraction: str | None) -> Readiness:
        broken = self._memories.count_broken()
        found = {
            "store": self._disk.trouble(),
            "bus": None if self._bus.state == "up" else f"{self._bus.state}: {self._bus.reason}".rstrip(": "),
            "ingest": self._ingest.paused,
            "subscriptions": trouble_of(self._readings),
            "memories": f"{broken} users' events cannot be folded" if broken else None,
            "embedder": self._models.embedder.trouble,
            "language_model": self._trouble_of_chat(),
            "extraction": trouble_of_extraction,
        }
        reasons = {part: reason for part, reason in found.items() if reason is not None}
        return Readiness("degraded" if reasons else "ready", reasons)

    async def status(self, params: StatusParams) -> DaemonStatus:
        """The state of daemon, bus, log, worker and models; with a user, also the watermark."""
        # First: whoever sees a message read here finds what it brought in the watermark.
        bus = await self._show_bus()
        watermark = waits = user = None
        if params.user_id is not None:
            user = self._log.keys.user(params.user_id)
            async with self._memories.use(user) as memory:
                watermark = await self._answerer.watermark(memory)
                waits = show_waits(memory, watermark.pending)
        counts = await self._log.read(_count)
        parked = counts.pop("parked")
        models, totals = self._models, await self._models.watch.look()
        return DaemonStatus(
            daemon=self._show_daemon(),
            bus=bus,
            health=self._judge(models.watch.trouble),
            ingest=IngestShown(self._ingest.paused, self._ingest.ignored),
            subscriptions=[await show_reading(each) for each in self._readings],
            disk=self._show_disk(),
            derived=await self._show_derived(),
            log=LogShown(**counts),
            worker=self._show_worker(parked),
            models=self._show_models(),
            budget=show_budgets(models.budget, user),
            extraction=show_extraction(totals, models.watch.trouble),
            ledger=show_ledger(totals, await models.queries.read(), models.price_missing),
            watermark=watermark,
            waits=waits,
            compaction=None if user is None else self._compacting(user),
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
        models, embedder = self._models, self._models.embedder
        waiting = self._vectors.count_waiting() if self._vectors is not None else 0
        of_nodes = self._tree_vectors.count_waiting() if self._tree_vectors is not None else 0
        at = (models.chat(), models.embeddings())
        return ModelsShown(models.language_model.name, embedder.name, embedder.trouble, waiting, *at, of_nodes)

    def _show_worker(self, parked: int) -> WorkerShown:
        worker, engine = self._worker, self._worker.engine
        return WorkerShown(
            in_flight=len(worker.in_flight),
            calling=engine.slots.in_flight,
            questions=engine.questions,
            questions_failed=engine.questions_failed,
            parked=parked,
            waiting_for_model=worker.waiting_for_model,
            recorded=engine.recorded,
            planned=0 if worker.compacting is None else worker.compacting.count_held(),
        )

    def _trouble_of_chat(self) -> str | None:
        """Why the chat model's endpoint is not asked for now."""
        shown = self._models.chat()
        if shown is None or shown.circuit == "closed":
            return None
        return shown.reason or "the endpoint of models.chat_url is not asked for now"

    async def _trouble_of_extraction(self) -> str | None:
        """Why what the model finds in chunks should be looked at."""
        try:
            await self._models.watch.look()
        except StoreUnusable:
            return None  # `store` says so
        return self._models.watch.trouble


def _count(connection: sqlite3.Connection) -> dict[str, int]:
    """What is in the store; `parked` is work that stands parked."""
    queries = {
        "events": "SELECT seq FROM head",
        "users": "SELECT count(*) FROM users",
        "sessions": "SELECT count(*) FROM sessions",
        "refused": "SELECT coalesce(sum(count), 0) FROM refusals",
        "dead_letters": "SELECT count(*) FROM dead_letters",
        "waiting_turns": "SELECT count(*) FROM turns WHERE closing = 0 AND extraction IS NULL",
        "forgotten_not_erased": "SELECT count(*) FROM erasures WHERE erased IS NULL",
    }
    counts = {name: int(connection.execute(query).fetchone()[0]) for name, query in queries.items()}
    return {**counts, "parked": count_parked(connection)}
