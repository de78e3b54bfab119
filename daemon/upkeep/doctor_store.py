"""What `doctor` looks at in the data directory: rights, disk, lock, socket, and the store in it."""

from __future__ import annotations

import errno
import os
import pwd
import socket
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path

from daemon.config import Config
from daemon.disk import MIB, WAL_LARGE_BYTES, Ballast, free_bytes
from daemon.upkeep.doctor_host import examine_mount, mount_of
from daemon.upkeep.findings import Finding
from events.errors import LogDamaged, StoreUnusable
from events.log import LogReader
from events.migrations import MIGRATIONS
from events.reading import read_events
from events.schema import copies_before_migration
from events.wal import wal_bytes

DISK_FREE_MIN = 256 * 1024 * 1024
# A sudden end damages what was written last, if anything; `--deep` looks at all.
TAIL_EVENTS = 256
# Linux's sockaddr_un holds 108 bytes with the closing zero.
SOCKET_PATH_BYTES_MAX = 107
MEND_DAMAGE = (
    "keep the damaged files, restore the last backup, and start: what came after it is read again from the bus."
    " Until then `memforestd run --serve-damaged` serves the users whose events are sound"
)


def examine_directory(config: Config) -> list[Finding]:
    """The data directory, the disk below it and its ballast."""
    return [
        _examine_rights(config.data_dir),
        examine_mount(mount_of(_nearest(config.data_dir))),
        _examine_disk(config),
        _examine_ballast(config),
    ]


def _nearest(folder: Path) -> Path:
    folder = folder.absolute()
    while not folder.exists():
        folder = folder.parent
    return folder


def _examine_rights(folder: Path) -> Finding:
    if not folder.exists():
        nearest = _nearest(folder)
        if os.access(nearest, os.W_OK | os.X_OK):
            return Finding("ok", "data.dir", f"{folder} does not exist yet; the daemon makes it")
        mend = f"install -d -m 700 -o {_name_of(os.geteuid())} {folder}, as root"
        return Finding("error", "data.dir", f"{folder} does not exist, and {nearest} cannot be written", mend)
    owner = _name_of(folder.stat().st_uid)
    if not folder.is_dir():
        return Finding("error", "data.dir", f"{folder} is no directory", "choose another data.dir")
    if not os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        mend = f"run as {owner}, or chown -R {_name_of(os.geteuid())} {folder}, as root"
        return Finding("error", "data.dir", f"{folder} cannot be written; it belongs to {owner}", mend)
    foreign = sorted(each.name for each in folder.iterdir() if each.lstat().st_uid != folder.stat().st_uid)
    if foreign:
        why = "the daemon may not open them: it was once run as another user"
        sentence = f"not all of it belongs to {owner}: {', '.join(foreign[:5])}"
        return Finding("error", "data.dir", sentence, f"chown -R {owner} {folder}, as root", why)
    if folder.stat().st_mode & 0o077:
        why = "what people said is in there"
        return Finding("warning", "data.dir", f"{folder} can be read by others", f"chmod 700 {folder}", why)
    return Finding("ok", "data.dir", f"{folder}")


def _name_of(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def _examine_disk(config: Config) -> Finding:
    free = free_bytes(config.data_dir)
    sentence = f"{free // MIB} MiB free"
    if free < config.data.free_min_mb * MIB:
        why = "below data.free_min_mb nothing is ingested; the bus keeps what comes"
        return Finding("error", "disk", sentence, "free some space: df -h says where", why)
    if free < DISK_FREE_MIN:
        return Finding("warning", "disk", sentence, "free some space", "a full disk stops ingest")
    return Finding("ok", "disk", sentence)


def _examine_ballast(config: Config) -> Finding:
    ballast = Ballast(config.data_dir / "ballast", config.data.ballast_mb * MIB)
    why = "a full disk cannot forget without it"
    if not ballast.size_bytes:
        return Finding("warning", "ballast", "none: a full disk cannot forget", "set data.ballast_mb", why)
    if ballast.is_whole():
        return Finding("ok", "ballast", f"{config.data.ballast_mb} MiB")
    if not (config.data_dir / "events.db").exists():
        return Finding("ok", "ballast", "none yet; the daemon makes it")
    return Finding("warning", "ballast", "not there", "free some space; the running daemon makes it again", why)


def lock_holder(lock: Path, locks: str | None = None) -> int | None:
    """The process that holds a lock file, by /proc/locks; None when nobody does. Taking it would get in the way.

    0 for a process that cannot be seen from here, in another container.
    """
    try:
        inode = lock.stat().st_ino
        lines = (Path("/proc/locks").read_text() if locks is None else locks).splitlines()
    except OSError:
        return None
    for line in lines:
        fields = line.split()
        if len(fields) >= 6 and fields[1] == "FLOCK" and fields[5].rpartition(":")[2] == str(inode):
            return max(0, int(fields[4]))
    return None


def examine_running(config: Config) -> list[Finding]:
    """Whether a daemon has the directory, and what stands where the socket is to be."""
    holder = lock_holder(config.data_dir / "lock")
    if holder is None:
        lock = Finding("ok", "lock", "no daemon runs on this directory")
    else:
        lock = Finding("ok", "lock", f"a daemon runs on this directory{f', process {holder}' if holder else ''}")
    return [lock, examine_socket(config.socket_path, config.data_dir, runs=holder is not None)]


def examine_socket(path: Path, data_dir: Path, *, runs: bool) -> Finding:
    """The socket's path; `runs` says that a daemon has the data directory."""
    why = "no program can ask the daemon"
    if len(os.fsencode(path.absolute())) > SOCKET_PATH_BYTES_MAX:
        return Finding("error", "socket.path", "longer than 107 bytes", "choose a shorter socket.path", why)
    if not path.parent.exists():
        if path.parent == data_dir:
            return Finding("ok", "socket.path", str(path))
        mend = f"mkdir -m 700 {path.parent}, or RuntimeDirectory= in the unit"
        return Finding("error", "socket.path", f"{path.parent} does not exist", mend, why)
    if not os.access(path.parent, os.W_OK | os.X_OK):
        mend = f"chown {_name_of(os.geteuid())} {path.parent}, as root"
        return Finding("error", "socket.path", f"{path.parent} cannot be written", mend, why)
    if not path.exists():
        if runs:
            mend = "systemctl restart memforest, or end it and start it again"
            return Finding("error", "socket.path", f"a daemon runs, and {path} is gone", mend, why)
        return Finding("ok", "socket.path", str(path))
    if not stat.S_ISSOCK(path.lstat().st_mode):
        return Finding("error", "socket.path", f"{path} is no socket", f"mv {path} elsewhere", why)
    return _examine_listener(path, runs=runs)


def _examine_listener(path: Path, *, runs: bool) -> Finding:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(1.0)
            probe.connect(str(path))
    except OSError as failure:
        if failure.errno == errno.ECONNREFUSED and not runs:
            return Finding("ok", "socket.path", f"{path} is left from an earlier run; the daemon replaces it")
        why = "a daemon has the directory and answers nobody"
        mend = "look at its log; systemctl restart memforest"
        return Finding("warning", "socket.path", f"{path} does not answer: {failure.strerror}", mend, why)
    if runs:
        return Finding("ok", "socket.path", f"{path} answers")
    why = "this directory's daemon cannot be asked there"
    mend = f"choose another socket.path; `fuser {path}` says who has it"
    return Finding("error", "socket.path", f"{path} is taken: the daemon of another directory answers", mend, why)


async def examine_store(config: Config) -> list[Finding]:
    """The log: its file, its last events, what waits in it, and what stands beside it."""
    path = config.data_dir / "events.db"
    if not path.exists():
        return [Finding("ok", "store", "no events yet")]
    return [await _examine_file(path), *await _examine_contents(path), *_examine_files_beside(path)]


async def _examine_file(path: Path) -> Finding:
    try:
        log = await LogReader.open_to_read(path)
    except StoreUnusable as error:
        return Finding("error", "store", str(error), "check data.dir and who owns it", "the daemon does not start")
    try:
        (result,) = await log.read(lambda db: db.execute("PRAGMA quick_check(1)").fetchone())
        (events,) = await log.read(lambda db: db.execute("SELECT seq FROM head").fetchone())
    except StoreUnusable:
        result, events = "damaged so far that it cannot be checked", 0
    finally:
        await log.close()
    if result != "ok":
        why = "users whose events are damaged cannot be served"
        return Finding("error", "store", "SQLite finds damage", MEND_DAMAGE, why)
    return Finding("ok", "store", f"{events} events; `memforestd doctor --deep` checks them all")


async def _examine_contents(path: Path) -> list[Finding]:
    """The last events, what waits in the store, and its schema; nothing when it cannot be read."""
    try:
        log = await LogReader.open_to_read(path)
    except StoreUnusable:
        return []
    findings: list[Finding] = []
    try:
        letters, unerased = await log.read(_count_waiting)
        findings.append(await _examine_tail(log.read))
    except StoreUnusable:
        return []
    finally:
        await log.close()
    findings.append(Finding("ok", "schema", f"version {len(MIGRATIONS)}"))
    if letters:
        mend = "`memforest dlq list` says why; mend the publisher, then `memforest dlq retry` or `drop`"
        why = "what could not be decoded is not remembered"
        findings.append(Finding("warning", "dead letters", f"{letters} could not be decoded", mend, why))
    if unerased:
        mend = "a running daemon goes on with it; if it does not end, look at the daemon's log"
        why = "words that somebody wanted gone are still on the disk"
        findings.append(Finding("warning", "forgetting", f"{unerased} forgotten and not erased yet", mend, why))
    return findings


async def _examine_tail(read: Callable[..., object]) -> Finding:
    """The last events against their commitments, and their number against the head."""

    def look(connection: sqlite3.Connection) -> str | None:
        (head,) = connection.execute("SELECT seq FROM head").fetchone()
        (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        if last != head:
            return f"the log ends at seq {last} and should end at {head}"
        expected = range(max(1, head - TAIL_EVENTS + 1), head + 1)
        try:
            found = read_events(connection, expected)
        except LogDamaged as damage:
            return str(damage)
        missing = [seq for seq in expected if seq not in found]
        return f"the event at seq {missing[0]} is missing" if missing else None

    fault = await read(look)  # type: ignore[misc]
    if fault is None:
        return Finding("ok", "end of the log", f"the last {TAIL_EVENTS} events are sound")
    return Finding("error", "end of the log", str(fault), MEND_DAMAGE, "that user's memory cannot be folded")


def _count_waiting(connection: sqlite3.Connection) -> tuple[int, int]:
    (letters,) = connection.execute("SELECT count(*) FROM dead_letters").fetchone()
    (unerased,) = connection.execute("SELECT count(*) FROM erasures WHERE erased IS NULL").fetchone()
    return int(letters), int(unerased)


def _examine_files_beside(path: Path) -> list[Finding]:
    """The write-ahead log, and copies of before a migration."""
    size = wal_bytes(path)
    sentence = f"{size / MIB:.1f} MiB"
    if size > WAL_LARGE_BYTES:
        mend = f"a reader holds an old state of the store: `fuser {path}` says who has it open; end it"
        findings = [Finding("warning", "write-ahead log", sentence, mend, "it grows until the disk is full")]
    else:
        findings = [Finding("ok", "write-ahead log", sentence)]
    for copy in copies_before_migration(path):
        mend = f"rm {copy}, once the new release has proved itself"
        sentence = f"{copy.name} is left from a migration"
        findings.append(Finding("warning", "copy", sentence, mend, "it holds what was forgotten since"))
    return findings
