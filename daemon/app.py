"""The one place that builds parts and ties them together: build, start, run, stop.

Start and stop follow engineering.md 1.7: the directory is locked before the socket is bound, the log is open
before anything can be asked, and at the end what was accepted is written before anything is closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version

import anyio

from daemon.answers import Answerer
from daemon.backpressure import Backpressure
from daemon.bus import BusUnavailable, NatsBus
from daemon.bus_erasure import BusEraser
from daemon.compaction import Compactor
from daemon.config import Config, hide_password, parse_mode, parse_zone
from daemon.corrections import Corrections
from daemon.dead_letters import DeadLetters
from daemon.decoding import Decoder
from daemon.differences import Differences
from daemon.disk import MIB, Disk
from daemon.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBus
from daemon.erasing import Erasing
from daemon.forgetting import Forgetter
from daemon.handlers import Answering, make_handlers
from daemon.history import History
from daemon.ingest import Ingest
from daemon.lifecycle import (
    collect_seldom,
    end_of_sync_failure,
    feed_watchdog,
    lock_directory,
    notify_systemd,
    watch_signals,
)
from daemon.listings import Listings
from daemon.logs import Report
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.language_model import OfflineLanguageModel
from daemon.publishing import Publisher
from daemon.replaying import Replaying
from daemon.session_events import SessionEvents
from daemon.socket_server import SocketServer
from daemon.status import Status
from daemon.structures import Structures
from daemon.tombstone_bucket import TombstoneBucket, bucket_name
from daemon.tombstones import TombstoneKeeper
from daemon.vectors import VectorFiller
from daemon.worker import Worker, WorkerParameters
from events.digests import StoredDigest, record_digests
from events.errors import StoreUnusable
from events.faults import arm
from events.integrity import check_start
from events.log import EventLog, LogReader
from events.time import Instant
from projections.digests import digest_memory

# Running requests get this long when the daemon stops; model calls and all else are then cancelled.
GRACE_S = 5.0
DIGESTS_WITHIN_S = 5.0
CONNECT_PAUSE_S = 0.05
# Before a step of erasing is tried again; each try to empty the write-ahead log holds up the writer.
ERASE_PAUSE_S = 2.0


def now() -> Instant:
    """The wall clock, for what is recorded and never for what is folded."""
    return time.time_ns() // 1_000_000


def daemon_version() -> str:
    """The version of the installed package, or that this is a checkout."""
    try:
        return installed_version("memforest-daemon")
    except PackageNotFoundError:
        return "checkout"


@dataclass(slots=True)
class App:
    """The daemon's parts, opened and bound. `run` it in a task group's life, then `stop` it."""

    report: Report
    log: EventLog
    memories: Memories
    embedded_bus: EmbeddedBus | None
    bus: NatsBus
    disk: Disk
    ingest: Ingest
    worker: Worker
    forgetter: Forgetter
    tombstones: TombstoneKeeper
    history: History
    vectors: VectorFiller | None
    socket: SocketServer
    opened: AsyncExitStack


async def start(
    config: Config, report: Report, clock: Callable[[], Instant] = now, *, serve_damaged: bool = False
) -> App:
    """Open the store, bind the socket, and build everything. Nothing runs yet.

    A store that is damaged as far as a start can tell is refused, unless its sound users are to be served.
    Raises `DirectoryInUse`, `StoreUnusable`, `LogDamaged`, `SocketUnusable` or `EmbeddedBusFailed`; then nothing
    stays open.
    """
    folder = config.data_dir
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    # What is opened is closed in the opposite order, whatever fails on the way in or out.
    async with AsyncExitStack() as opened:
        opened.callback(os.close, lock_directory(folder))
        log = await EventLog.open(folder / "events.db", clock)
        log.on_sync_failure = partial(end_of_sync_failure, report)
        opened.push_async_callback(log.close)
        reader = await LogReader.open_to_read(folder / "events.db")
        opened.push_async_callback(reader.close)
        if not serve_damaged:
            await reader.read(check_start)
        app = _build(config, report, clock, log, reader)
        opened.push_async_callback(_record_digests, app)
        if app.embedded_bus is not None:
            opened.push_async_callback(app.embedded_bus.stop)
        opened.push_async_callback(app.bus.close)
        app.socket.bind()
        opened.callback(app.socket.close)
        if app.embedded_bus is not None:
            await app.embedded_bus.start()
        app.opened = opened.pop_all()
    return app


def _build(config: Config, report: Report, clock: Callable[[], Instant], log: EventLog, reader: LogReader) -> App:
    model, embedder = OfflineLanguageModel(), HashingEmbedder()
    memories = Memories(log, config.memory_parameters, report)
    embedded = EmbeddedBus(config.data_dir / EMBEDDED_BUS_FOLDER, report) if config.bus.embedded else None

    def url() -> str:
        return config.bus.url if embedded is None else embedded.url

    bus = NatsBus(url, config.bus.stream, credentials=config.credentials_path, report=report)
    decoder = Decoder(log.keys, parse_zone(config.bus.zone), reopens=config.bus.reopen_forgotten)
    disk = _make_disk(config, log, report)
    backpressure = Backpressure(log, memories, disk, report)
    ingest = Ingest(bus, config.bus.stream, log, memories, decoder, report, backpressure=backpressure)
    parameters = WorkerParameters(config.models.concurrency, config.memtree.idle_s, config.memtree.refresh_age_s)
    worker = Worker(log, memories, model, parameters, clock, report)
    compactor = Compactor(log, memories, worker, model, embedder, config.eventtree_parameters)
    forgetter, keeper = _build_forgetting(config, report, clock, memories, bus, ingest)
    history, structures = History(log, config.memory_parameters), Structures(log, memories)
    planned, recall = compactor.count_planned, config.agpr_parameters
    answerer = Answerer(log.keys, reader, memories, embedder, recall, planned, clock, history)

    def shown_url() -> str:
        return hide_password(url())

    models = (model, embedder)
    status = Status(
        daemon_version(),
        clock,
        log,
        memories,
        bus,
        shown_url,
        ingest,
        worker,
        answerer,
        models,
        disk,
    )
    handlers = make_handlers(
        Answering(
            log=log,
            answerer=answerer,
            listings=Listings(log, memories),
            structures=structures,
            corrections=Corrections(log, memories, worker, structures, clock),
            publisher=Publisher(bus, decoder),
            forgetter=forgetter,
            compactor=compactor,
            dead_letters=DeadLetters(log, decoder),
            session_events=SessionEvents(log),
            differences=Differences(log, history),
            replaying=Replaying(log, memories, clock),
            status=status,
        )
    )
    socket = SocketServer(config.socket_path, parse_mode(config.socket.mode), handlers=handlers, report=report)
    # The hashing embedder's vectors rank nothing by default, so nothing is embedded for it.
    vectors = VectorFiller(log, memories, embedder) if config.agpr_parameters.cosine_weight else None
    stored = (log, memories, embedded, bus, disk, ingest, worker, forgetter, keeper, history)
    return App(report, *stored, vectors, socket, AsyncExitStack())


def _build_forgetting(
    config: Config, report: Report, clock: Callable[[], Instant], memories: Memories, bus: NatsBus, ingest: Ingest
) -> tuple[Forgetter, TombstoneKeeper]:
    log = memories.log
    bucket = TombstoneBucket(bus, bucket_name(config.bus.stream))
    eraser = BusEraser(bus)
    erasing = Erasing(log, config.data_dir, clock, report, eraser, bucket, ingest.reached, ERASE_PAUSE_S)
    keeper = TombstoneKeeper(log, bus, bucket, report, ours=config.bus.embedded)
    return Forgetter(erasing, memories), keeper


def _make_disk(config: Config, log: EventLog, report: Report) -> Disk:
    room = config.data
    return Disk(log, report, ballast_bytes=room.ballast_mb * MIB, free_min_bytes=room.free_min_mb * MIB)


async def run(app: App, stopping: anyio.Event, started: Callable[[], None] = lambda: None) -> None:
    """Run until `stopping` is set or a part fails. Readiness is announced before the bus is there."""
    async with anyio.create_task_group() as tasks:
        for name, part in _parts(app).items():
            tasks.start_soon(part, name=name)
        notify_systemd("READY=1")
        app.report("daemon.started", socket=str(app.socket.path), version=daemon_version())
        started()
        await stopping.wait()
        notify_systemd("STOPPING=1")
        await app.socket.stop(GRACE_S)
        tasks.cancel_scope.cancel()


def _parts(app: App) -> dict[str, Callable[[], Coroutine[object, object, None]]]:
    """Every task of the daemon by name."""
    parts: dict[str, Callable[[], Coroutine[object, object, None]]] = {
        "socket": app.socket.serve,
        "memories": app.memories.follow,
        "worker": app.worker.run,
        "forgetter": app.forgetter.run,
        "history": lambda: app.history.run(app.log),
        "tombstones": app.tombstones.run,
        "bus": app.bus.run,
        "ingest": app.ingest.run,
        "disk": app.disk.run,
        "watchdog": lambda: feed_watchdog(app.log.answer),
    }
    if app.vectors is not None:
        parts["vectors"] = app.vectors.run
    if app.embedded_bus is not None:
        parts["embedded_bus"] = app.embedded_bus.run
        parts["stream"] = lambda: _create_stream(app)
    return parts


async def _create_stream(app: App) -> None:
    """The embedded bus is ours, so its stream is, too; an outside server's stream is its operator's."""
    while True:
        try:
            await app.bus.create_stream()
            return
        except BusUnavailable:
            await anyio.sleep(CONNECT_PAUSE_S)


async def stop(app: App) -> None:
    """Let go of everything, in order; safe after a failure too."""
    with anyio.CancelScope(shield=True):
        await app.opened.aclose()
        app.report("daemon.stopped")


async def _record_digests(app: App) -> None:
    """Leave what the Memories were, for `memforestd verify`; as many as there is time for."""
    digests: list[StoredDigest] = []
    until = anyio.current_time() + DIGESTS_WITHIN_S
    for user, memory in app.memories.loaded().items():
        if not memory.needs_rebuild and anyio.current_time() < until:
            digest = digest_memory(memory)
            parts = (digest.facts, digest.scopes, digest.trees, digest.units)
            digests.append(StoredDigest(user, digest.user_seq, *parts))
    with suppress(StoreUnusable):  # a full disk must not keep the daemon from ending
        await app.log.write(partial(record_digests, digests=digests), urgent=False)


async def serve(config: Config, report: Report, serve_damaged: bool = False) -> None:
    """The whole life of a daemon: start, run until a signal, stop. A second signal ends it at once."""
    collect_seldom()
    fault = arm(os.environ.get("MF_FAULT"))
    if fault is not None:
        report("daemon.fault_armed", point=fault.point)
    app = await start(config, report, serve_damaged=serve_damaged)
    stopping = anyio.Event()

    def stop_now(name: str) -> None:
        report("daemon.stopping", signal=name)
        stopping.set()

    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(watch_signals, stop_now, lambda: os._exit(1), name="signals")
            await run(app, stopping)
            tasks.cancel_scope.cancel()
    finally:
        await stop(app)
