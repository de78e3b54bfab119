"""The life of the daemon: start, run, stop. What it is made of is put together in `daemon/wiring.py`.

Start and stop follow engineering.md 1.7: the directory is locked before the socket is bound, the log is open
before anything can be asked, and at the end what was accepted is written before anything is closed.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Coroutine
from contextlib import AsyncExitStack
from functools import partial
from importlib.metadata import PackageNotFoundError
from importlib.metadata import version as installed_version
from pathlib import Path

import anyio

from daemon.bus.bus_messages import BusUnavailable
from daemon.config import Config
from daemon.derived import DERIVED, DerivedStore
from daemon.disk import MIB
from daemon.leaving import leave
from daemon.lifecycle import (
    collect_seldom,
    end_of_sync_failure,
    feed_watchdog,
    lock_directory,
    notify_systemd,
    watch_signals,
)
from daemon.logs import Report
from daemon.models.embedders import close_embedder, make_embedder
from daemon.models.language_models import close_chat_model, make_chat_model
from daemon.wiring import App, Setting, wire
from events.faults import arm
from events.integrity import check_start, check_structure, needs_structure_check
from events.log import EventLog, LogReader
from events.time import Instant

# Running requests get this long when the daemon stops; model calls and all else are then cancelled.
GRACE_S = 5.0
CONNECT_PAUSE_S = 0.05


def now() -> Instant:
    """The wall clock, for what is recorded and never for what is folded."""
    return time.time_ns() // 1_000_000


def daemon_version() -> str:
    """The version of the installed package, or that this is a checkout."""
    try:
        return installed_version("memforest-daemon")
    except PackageNotFoundError:
        return "checkout"


async def start(
    config: Config, report: Report, clock: Callable[[], Instant] = now, *, serve_damaged: bool = False
) -> App:
    """Open the store, bind the socket, and build everything. Nothing runs yet.

    A store that is damaged as far as a start can tell is refused, unless its sound users are to be served.
    The structure of a large file is looked at while it runs, and ends it.
    Raises `ConfigInvalid`, `DirectoryInUse`, `StoreUnusable`, `LogDamaged`, `SocketUnusable` or
    `EmbeddedBusFailed`; then nothing stays open.
    """
    embedder, chat = make_embedder(config.models, report), make_chat_model(config, report)
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
        unchecked = False
        if not serve_damaged:
            await reader.read(check_start)
            unchecked = await reader.read(needs_structure_check)
        room, free_min = config.data.derived_max_mb * MIB, 2 * config.data.free_min_mb * MIB
        derived = await DerivedStore.open(folder / DERIVED, log, report, room, free_min)
        opened.push_async_callback(derived.close)
        opened.push_async_callback(close_embedder, embedder)
        opened.push_async_callback(close_chat_model, chat)
        app = wire(Setting(daemon_version(), config, report, clock, log, reader, derived, embedder, chat))
        opened.push_async_callback(leave, app.memories)
        opened.push_async_callback(app.queries.leave)
        if app.embedded_bus is not None:
            opened.push_async_callback(app.embedded_bus.stop)
        for bus in (app.bus, *(each.bus for each in app.readings)):
            opened.push_async_callback(bus.close)
        app.socket.bind()
        opened.callback(app.socket.close)
        if app.metrics is not None:
            app.metrics.bind()
            opened.callback(app.metrics.close)
        if app.embedded_bus is not None:
            await app.embedded_bus.start()
        app.unchecked = unchecked
        app.opened = opened.pop_all()
    return app


async def run(app: App, stopping: anyio.Event, started: Callable[[], None] = lambda: None) -> None:
    """Run until `stopping` is set or a part fails. Readiness is announced before the bus is there."""
    async with anyio.create_task_group() as tasks:
        for name, part in _parts(app).items():
            tasks.start_soon(part, name=name)
        if app.unchecked:
            tasks.start_soon(_check_structure, app.log.path, stopping.is_set, name="structure")
        notify_systemd("READY=1")
        app.report("daemon.started", socket=str(app.socket.path), version=daemon_version())
        started()
        await stopping.wait()
        notify_systemd("STOPPING=1")
        app.session_events.stop()
        await app.socket.stop(GRACE_S)
        tasks.cancel_scope.cancel()


def _parts(app: App) -> dict[str, Callable[[], Coroutine[object, object, None]]]:
    """Every task of the daemon by name."""
    parts: dict[str, Callable[[], Coroutine[object, object, None]]] = {
        "socket": app.socket.serve,
        "memories": app.memories.follow,
        "snapshots": app.memories.keep_snapshots,
        "worker": app.worker.run,
        "forgetter": app.forgetter.run,
        "history": lambda: app.history.run(app.log),
        "tombstones": app.tombstones.run,
        "bus": app.bus.run,
        "ingest": app.ingest.run,
        "disk": app.disk.run,
        "extraction": app.extraction.run,
        "query spending": app.queries.keep_on,
        "tree vectors": app.tree_vectors.run,
        "brought vectors": app.brought.run,
        "watchdog": lambda: feed_watchdog(app.log.answer),
    }
    for each in app.readings:
        parts[f"bus {each.stream}"], parts[f"ingest {each.stream}"] = each.bus.run, each.ingest.run
    if app.metrics is not None:
        parts["metrics"] = app.metrics.serve
    if app.vectors is not None:
        parts["vectors"] = app.vectors.run
    if app.embedded_bus is not None:
        parts["embedded_bus"] = app.embedded_bus.run
        parts["stream"] = lambda: _create_stream(app)
    return parts


async def _check_structure(path: Path, given_up: Callable[[], bool]) -> None:
    """SQLite's own check of a large file, beside everything else; a damage ends the daemon as at a start.

    On a connection of its own, for it takes a second for 150 MB.
    """
    reader = await LogReader.open_to_read(path)
    try:
        await reader.read(partial(check_structure, given_up=given_up))
    finally:
        await reader.close()


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
