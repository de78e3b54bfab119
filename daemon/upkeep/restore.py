"""Putting a backup in the place of a store that no daemon runs on, and migrating such a store.

A restored store is told what was forgotten since the backup (engineering.md D8), and reads the rest again from the
bus at the next start: its checkpoint is in the file.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from daemon.bus.tombstone_sources import NoSource, TombstoneList
from daemon.lifecycle import lock_directory
from daemon.store_files import STORE, remove, sync, with_sidecars
from events.backup import Contents, Watch, copy_store, read_forgotten, read_secret, unwatched, verify_copy
from events.database import DAMAGED, name_failure
from events.erasure import truncate_wal
from events.errors import InvalidInput, LogDamaged, MemForestError, StoreUnusable
from events.migrations import MIGRATIONS
from events.schema import copies_before_migration, open_writer
from events.time import Instant
from events.tombstones import plant_tombstones

# Where a replaced store goes that somebody wants to keep.
REPLACED_FOLDER = "replaced"
# A restore on its way, and the write-ahead log of a damaged store that it replaces.
_RESTORING = "events.db.restoring"
_ASIDE = "events.db-wal.replaced"


class NoTombstoneSource(MemForestError):
    """Nothing here knows what was forgotten since this backup was made, so forgotten sessions would be back.

    Give a source: the store that stands in the data directory, the tombstone bucket on the bus, or the receipts
    of forgetting (--receipts FILE). With --force it is restored all the same.
    """

    code = "unavailable"

    def __init__(self, reasons: Iterable[str] = ()) -> None:
        """`reasons`: why each possible source is none."""
        sentence = " ".join((self.__doc__ or "").split())
        super().__init__(f"{sentence} ({'; '.join(reasons)})")


class OtherStore(InvalidInput):
    """The backup is of another store than the one in the data directory, which it would replace.

    Give another data.dir; with --force it is replaced all the same.
    """


@dataclass(frozen=True, slots=True)
class Restored:
    """A backup that is in its place as the store. `tombstones`: how many each source knew of."""

    events: int
    users: int
    head_seq: int
    tombstones: dict[str, int]
    tombstones_added: int
    forgotten_not_erased: int
    kept_at: str | None


def restore_backup(
    backup: Path,
    folder: Path,
    now: Instant,
    lists: tuple[TombstoneList, ...] = (),
    ask_bus: Callable[[], TombstoneList] | None = None,
    *,
    force: bool = False,
    keep_replaced: bool = False,
    watch: Watch = unwatched,
) -> Restored:
    """Put a verified copy of `backup` in the place of the store of `folder`, and tell it what was forgotten.

    Tombstones come from `lists`, from the store that stands there now, and from the bus: `ask_bus` is called once
    the directory is ours, and raises `NoSource` when it is none. A crash leaves the store of before or the
    restored one, never none. Raises `DirectoryInUse`, `OtherStore`, `NoTombstoneSource`, `StoreUnusable`,
    `LogDamaged` or OSError; then the store of before is as it was.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    lock = lock_directory(folder)
    try:
        store, copy = folder / STORE, folder / _RESTORING
        _discard(copy)  # of a restore that was killed
        secret = read_secret(backup)
        if not force:
            _refuse_strangers(store, secret)
        asked: list[Callable[[], TombstoneList]] = [partial(_ask_store, store, secret)]
        if ask_bus is not None:
            asked.append(ask_bus)
        sources = (*lists, *_answers(asked, force=force or any(each.tombstones for each in lists)))
        try:
            contents, added = _prepare(backup, copy, sources, now, watch)
            kept = _replace(store, copy, keep=keep_replaced)
        finally:
            _discard(copy)
    finally:
        os.close(lock)
    return Restored(
        events=contents.head_seq,
        users=contents.users,
        head_seq=contents.head_seq,
        tombstones={source.name: len(source.tombstones) for source in sources},
        tombstones_added=added,
        forgotten_not_erased=contents.unerased,
        kept_at=None if kept is None else str(kept),
    )


def migrate_store(folder: Path, now: Instant) -> tuple[int, int]:
    """Bring the store of a data directory to today's schema; its version before and after.

    Raises `DirectoryInUse`, `StoreIsNewer`, or `StoreUnusable` when there is no store: it makes none.
    """
    store = folder / STORE
    if not store.is_file():
        raise StoreUnusable(f"there is no store at {store}")
    lock = lock_directory(folder)
    try:
        with closing(sqlite3.connect(f"{store.absolute().as_uri()}?mode=ro", uri=True)) as connection:
            (before,) = connection.execute("PRAGMA user_version").fetchone()
        open_writer(store, now).close()
    except sqlite3.Error as error:
        raise StoreUnusable(f"{store} cannot be read as a store of ours") from error
    finally:
        os.close(lock)
    return int(before), len(MIGRATIONS)


def _prepare(
    backup: Path, copy: Path, sources: tuple[TombstoneList, ...], now: Instant, watch: Watch
) -> tuple[Contents, int]:
    """A copy of the backup that is verified, of today's schema, told of all tombstones, and on the disk."""
    os.close(os.open(copy, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    if os.geteuid() == 0:  # or the daemon's user could not open what root restored
        owner = copy.parent.stat()
        os.chown(copy, owner.st_uid, owner.st_gid)
    copy_store(backup, copy, watch)
    # The last wish first, since the first one of a session stays: nothing from before it is taken again.
    known = sorted(
        (each for source in sources for each in source.tombstones),
        key=lambda each: each.forgotten_at,
        reverse=True,
    )
    with closing(open_writer(copy, now)) as writer:
        try:
            added = plant_tombstones(writer, known)
            # Closing would do it and keep silent when it cannot; only the main file is put in place.
            moved = truncate_wal(writer)
        except sqlite3.Error as error:
            raise StoreUnusable("the tombstones could not be written into the restored store") from error
    if not moved:
        raise StoreUnusable("another program has the restored store open; end it first")
    sync(copy)
    return verify_copy(copy, watch), added


def _discard(copy: Path) -> None:
    """Remove a copy that is not wanted any more, with what SQLite and its migration left beside it."""
    remove(*with_sidecars(copy), *copies_before_migration(copy))


def _refuse_strangers(store: Path, secret: bytes) -> None:
    """Raise `OtherStore` when the backup is of another store than the one that it would replace."""
    with suppress(StoreUnusable, LogDamaged):
        if store.exists() and read_secret(store) != secret:
            raise OtherStore


def _answers(asked: Iterable[Callable[[], TombstoneList]], *, force: bool) -> list[TombstoneList]:
    """What the sources know that are any. Raises `NoTombstoneSource` when none is, unless forced."""
    answers: list[TombstoneList] = []
    reasons: list[str] = []
    for ask in asked:
        try:
            answers.append(ask())
        except NoSource as missing:
            reasons.append(str(missing))
    if not answers and not force:
        raise NoTombstoneSource(reasons)
    return answers


def _ask_store(store: Path, secret: bytes) -> TombstoneList:
    """What the store that stands there knows to be forgotten. Raises `NoSource`."""
    if not store.exists():
        raise NoSource("no store stands in the data directory")
    try:
        if read_secret(store) != secret:
            raise NoSource("the store in the data directory is another one: its secret differs")
        return TombstoneList("store", read_forgotten(store))
    except (StoreUnusable, LogDamaged):
        raise NoSource("the store in the data directory cannot be read") from None


def _replace(store: Path, copy: Path, *, keep: bool) -> Path | None:
    """Put the copy in the store's place; where the replaced store is kept, if it is."""
    folder = store.parent
    wal, aside = store.with_name(f"{STORE}-wal"), folder / _ASIDE
    _settle(store)
    remove(*with_sidecars(folder / "derived.db"))  # it may reach further than the restored log
    kept = _keep(store) if keep and store.exists() else None
    if wal.exists():
        os.replace(wal, aside)
    os.replace(copy, store)
    sync(folder)
    remove(store.with_name(f"{STORE}-shm"))
    if kept is not None and aside.exists():
        os.replace(aside, kept.with_name(f"{kept.name}-wal"))
    remove(aside)
    sync(folder)
    return kept


def _settle(store: Path) -> None:
    """Empty the write-ahead log of the store that is replaced: SQLite would replay it into the new file.

    That of a damaged store stays. Raises `StoreUnusable` while another program has the store open.
    """
    wal = store.with_name(f"{STORE}-wal")
    if not store.exists() or not wal.exists():
        return
    try:
        with closing(sqlite3.connect(store, isolation_level=None)) as connection:
            busy, _, _ = connection.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone()
    except sqlite3.Error as error:
        failure = name_failure(error)
        if failure != DAMAGED:
            raise StoreUnusable(f"the store that is replaced cannot be closed: {failure}", failure) from error
        return
    if busy:
        raise StoreUnusable("another program has the store open; end it first")
    remove(wal)


def _keep(store: Path) -> Path:
    """A second name for the store, so that it outlives its replacement."""
    folder = store.parent / REPLACED_FOLDER
    folder.mkdir(mode=0o700, exist_ok=True)
    number = 1
    while (kept := folder / f"events-{number}.db").exists():
        number += 1
    os.link(store, kept)
    return kept
