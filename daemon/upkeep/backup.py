"""Backing a store up beside its daemon: a backup is verified before it gets its name."""

from __future__ import annotations

import hashlib
import os
import tempfile
from collections.abc import Generator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from daemon.store_files import STORE, remove, sync, with_sidecars
from events.backup import Watch, copy_store, unwatched, verify_copy
from events.errors import InvalidInput

_BLOCK_BYTES = 1 << 20


class BackupExists(InvalidInput):
    """There is a file of this name already, and a backup overwrites nothing; choose another name."""


@dataclass(frozen=True, slots=True)
class Backup:
    """A backup that is in its place, on the disk and verified."""

    destination: str
    events: int
    users: int
    head_seq: int
    bytes: int
    sha256: str
    schema: int
    forgotten_not_erased: int


def back_up(folder: Path, destination: Path, watch: Watch = unwatched) -> Backup:
    """Copy the store of a data directory to `destination`, verified; a daemon may run on it.

    Raises `BackupExists`, `InvalidInput`, `StoreUnusable`, `LogDamaged` or OSError; then nothing is left behind.
    """
    if destination.exists() or destination.is_symlink():
        raise BackupExists
    if destination.resolve().is_relative_to(folder.resolve()):
        raise InvalidInput(
            "a backup does not belong into the data directory: forgetting looks for words in every file there"
        )
    with _growing_file(destination) as copy:
        copy_store(folder / STORE, copy, watch)
        sync(copy)
        contents = verify_copy(copy, watch)
        size = copy.stat().st_size
        digest = _hash_file(copy, watch)
        _name(copy, destination)
    return Backup(
        destination=str(destination),
        events=contents.head_seq,
        users=contents.users,
        head_seq=contents.head_seq,
        bytes=size,
        sha256=digest,
        schema=contents.schema,
        forgotten_not_erased=contents.unerased,
    )


@contextmanager
def _growing_file(destination: Path) -> Generator[Path]:
    """An empty file beside `destination`, for our eyes only, that is gone at the end."""
    descriptor, name = tempfile.mkstemp(prefix=f".{destination.name}.", suffix=".partial", dir=destination.parent)
    os.close(descriptor)
    path = Path(name)
    try:
        yield path
    finally:
        remove(*with_sidecars(path))


def _name(path: Path, destination: Path) -> None:
    """Give a finished file its name, durably, and overwrite nothing."""
    try:
        os.link(path, destination)
    except FileExistsError:
        raise BackupExists from None
    except OSError:  # a file system without links
        if destination.exists():
            raise BackupExists from None
        os.rename(path, destination)
    sync(destination.parent)


def _hash_file(path: Path, watch: Watch) -> str:
    total, done = path.stat().st_size, 0
    digest = hashlib.sha256()
    with path.open("rb") as file:
        while block := file.read(_BLOCK_BYTES):
            digest.update(block)
            done += len(block)
            watch("hashing", done / total)
    return digest.hexdigest()
