"""What `doctor` looks at in the system around the daemon: interpreter, packages, limits, zones, file systems."""

from __future__ import annotations

import re
import resource
import sqlite3
import sys
from collections.abc import Iterable, Mapping
from importlib import metadata
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from daemon.config import Config
from daemon.disk import MIB
from daemon.upkeep.findings import Finding

DISTRIBUTION = "memforest-daemon"
# What the daemon imports; the versions stand in the metadata of the package, when it is installed.
PACKAGES = (
    *("aiosqlite", "anyio", "click", "msgspec", "nats-py", "numpy", "openai", "PyStemmer", "rich"),
    *("scikit-learn", "structlog", "threadpoolctl", "usearch"),
)
# SQLite's WAL-reset corruption fault is mended from here on (sqlite.org/wal.html#walresetbug).
SQLITE_MENDED = (3, 51, 3)
# A descriptor for each client, and some dozens of our own.
FILES_MIN = 1024
# The interpreter with its libraries takes 150 MiB; a user's Memory of 10,000 facts some tens.
MEMORY_MIN_BYTES = 512 * MIB
# Memories may take so much of what the process may have; folding and queries need the rest.
MEMORIES_SHARE_MAX = 0.6
# SQLite's write-ahead log needs memory that processes share, which these do not have (sqlite.org/wal.html).
NETWORK_FILE_SYSTEMS = re.compile(
    r"nfs\d*|cifs|smb\d*|smbfs|9p|afs|ceph|lustre|fuse\.(sshfs|glusterfs|ceph|s3fs|rclone)"
)


class Mount(NamedTuple):
    """The file system under a path: where it is mounted, its type, and whether it can be written."""

    place: Path
    kind: str
    read_only: bool


def examine_host(config: Config) -> list[Finding]:
    """Look at everything that is the same for every store of this machine."""
    return [
        examine_python(sys.version_info[:3], _installed(PACKAGES), _required()),
        examine_sqlite(sqlite3.sqlite_version_info),
        examine_files(resource.getrlimit(resource.RLIMIT_NOFILE)[0]),
        examine_memory(memory_limit_bytes(), config.data.memories_mb * MIB),
        examine_zones(),
    ]


def examine_python(version: tuple[int, ...], installed: Mapping[str, str | None], required: list[str]) -> Finding:
    """Whether interpreter and packages are those that the release was made for."""
    shown = ".".join(map(str, version))
    missing = sorted(name for name, found in installed.items() if found is None)
    if missing:
        return Finding(
            "error",
            "python",
            f"{shown}, without {', '.join(missing)}",
            f"{sys.executable} -m pip install {' '.join(missing)}",
            "the daemon does not start, or ends when it first needs them",
        )
    old = [name for name, least in map(_least, required) if _is_older(installed.get(name), least)]
    if old:
        mend = f"{sys.executable} -m pip install --upgrade {' '.join(old)}"
        why = "the release is tested with newer ones"
        return Finding("warning", "python", f"{shown}; too old: {', '.join(old)}", mend, why)
    return Finding("ok", "python", f"{shown}; numpy {installed.get('numpy')}, nats-py {installed.get('nats-py')}")


def examine_sqlite(version: tuple[int, ...]) -> Finding:
    """Whether SQLite has a fault that we have to keep clear of."""
    shown = ".".join(map(str, version))
    if version >= SQLITE_MENDED:
        return Finding("ok", "sqlite", shown)
    return Finding(
        "warning",
        "sqlite",
        f"{shown} has the WAL-reset fault; one writer that alone checkpoints keeps clear of it",
        "do not open events.db for writing with other programs",
        "two programs that write could damage the store",
    )


def examine_files(soft_limit: int) -> Finding:
    """Whether there are descriptors for as many clients as may come."""
    if soft_limit == resource.RLIM_INFINITY or soft_limit >= FILES_MIN:
        return Finding("ok", "open files", f"up to {'any number' if soft_limit < 0 else soft_limit}")
    mend = "ulimit -n 16384, or LimitNOFILE=16384 in the unit"
    return Finding("warning", "open files", f"at most {soft_limit}", mend, "clients beyond that are not let in")


def examine_memory(limit_bytes: int | None, memories_bytes: int) -> Finding:
    """Whether the process may take what the configuration lets it take."""
    if limit_bytes is None:
        return Finding("ok", "memory", "no limit is set")
    sentence = f"{limit_bytes // MIB} MiB"
    why = "the system ends the process when it takes more; nothing that was acknowledged is lost"
    if limit_bytes < MEMORY_MIN_BYTES:
        return Finding("warning", "memory", f"only {sentence}", "give it 512 MiB (MemoryMax=, or --memory)", why)
    if memories_bytes > limit_bytes * MEMORIES_SHARE_MAX:
        fitting = int(limit_bytes * MEMORIES_SHARE_MAX) // MIB
        sentence = f"{sentence}, of which data.memories_mb takes {memories_bytes // MIB}"
        return Finding("warning", "memory", sentence, f"MEMFOREST_DATA_MEMORIES_MB={fitting}", why)
    return Finding("ok", "memory", sentence)


def examine_zones(probe: str = "Europe/Berlin") -> Finding:
    """Whether names of zones are known here: minimal images have none."""
    try:
        ZoneInfo(probe)
    except (ZoneInfoNotFoundError, OSError):
        return Finding(
            "warning",
            "time zones",
            "no zone database",
            "apt-get install tzdata, or pip install tzdata",
            "bus.zone can only be UTC",
        )
    return Finding("ok", "time zones", "the zone database is there")


def examine_mount(mount: Mount | None) -> Finding:
    """Whether the data directory stands on a disk that a write-ahead log can live on."""
    if mount is None:
        return Finding("ok", "file system", "unknown")
    sentence = f"{mount.kind} at {mount.place}"
    if mount.read_only:
        return Finding("error", "file system", f"{sentence} is read-only", f"mount -o remount,rw {mount.place}")
    if NETWORK_FILE_SYSTEMS.fullmatch(mount.kind):
        why = "SQLite's write-ahead log does not work over a network: the store can be damaged"
        return Finding("error", "file system", sentence, "set data.dir to a folder on a local disk", why)
    if mount.kind in ("tmpfs", "ramfs"):
        why = "what is kept there is gone when the machine restarts"
        return Finding("warning", "file system", sentence, "set data.dir to a folder on a disk", why)
    return Finding("ok", "file system", sentence)


def mount_of(path: Path, mountinfo: str | None = None) -> Mount | None:
    """The file system that a path stands on, by /proc/self/mountinfo (proc(5)); None where that cannot be read."""
    try:
        lines = (Path("/proc/self/mountinfo").read_text() if mountinfo is None else mountinfo).splitlines()
    except OSError:
        return None
    absolute = path.resolve()
    found: Mount | None = None
    for line in lines:
        before, _, after = line.partition(" - ")
        fields = before.split()
        if len(fields) < 6 or not after:
            continue
        place = Path(re.sub(r"\\(\d{3})", lambda octal: chr(int(octal[1], 8)), fields[4]))
        # Of two at one place the later one counts: it was mounted over the other.
        if absolute.is_relative_to(place) and (found is None or len(place.parts) >= len(found.place.parts)):
            found = Mount(place, after.split()[0], "ro" in fields[5].split(","))
    return found


def memory_limit_bytes(root: Path = Path("/sys/fs/cgroup"), own: str | None = None) -> int | None:
    """The least memory.max of our control group and those above it (cgroup v2); None without a limit."""
    try:
        group = Path("/proc/self/cgroup").read_text() if own is None else own
    except OSError:
        return None
    name = next((line[3:] for line in group.splitlines() if line.startswith("0::")), None)
    if name is None:
        return None
    limits: list[int] = []
    folder = root / name.strip().lstrip("/")
    for place in (folder, *folder.parents):
        if not place.is_relative_to(root):
            break
        try:
            text = (place / "memory.max").read_text().strip()
        except OSError:
            continue
        if text.isdecimal():
            limits.append(int(text))
    return min(limits, default=None)


def _installed(names: Iterable[str]) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            found[name] = None
    return found


def _required() -> list[str]:
    """The requirements of our package, without those of extras; none in a checkout that is not installed."""
    try:
        return [each for each in metadata.requires(DISTRIBUTION) or () if "extra ==" not in each]
    except metadata.PackageNotFoundError:
        return []


def _least(requirement: str) -> tuple[str, str]:
    """Name and least version of a requirement such as `nats-py[nkeys]>=2.12`."""
    name = re.match(r"[A-Za-z0-9._-]+", requirement)
    least = re.search(r">=\s*([0-9.]+)", requirement)
    return (name[0] if name else ""), (least[1] if least else "0")


def _is_older(version: str | None, least: str) -> bool:
    if version is None:
        return False

    def numbers(text: str) -> list[int]:
        return [int(part) for part in re.match(r"[0-9.]*", text)[0].split(".") if part]  # type: ignore[index]

    return numbers(version) < numbers(least)
