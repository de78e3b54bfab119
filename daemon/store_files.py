"""The files of a store, and what moving whole stores needs of the file system."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path

# The log, in the data directory.
STORE = "events.db"


def sync(path: Path) -> None:
    """Return when a file, or the names in a folder, are on the disk."""
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def with_sidecars(path: Path) -> tuple[Path, ...]:
    """A database, and the files that SQLite puts beside it."""
    return (path, *(path.with_name(f"{path.name}{suffix}") for suffix in ("-wal", "-shm", "-journal")))


def remove(*paths: Path) -> None:
    """Remove those that are there."""
    for path in paths:
        with suppress(FileNotFoundError):
            path.unlink()
