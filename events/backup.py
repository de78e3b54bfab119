"""Copies of a store: made beside a running daemon, checked event by event, and told what was forgotten since.

Plain functions on files; which files, and where tombstones come from, is decided in daemon/upkeep/backup.py.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TypeAlias

from events.database import DAMAGED, DISK_FULL, name_error, name_failure
from events.erasure import read_unerased
from events.errors import LogDamaged, StoreIsNewer, StoreUnusable
from events.integrity import Walk, describe
from events.migrations import MIGRATIONS
from events.schema import APPLICATION_ID
from events.tombstones import Tombstone, read_own_tombstones, read_planted

# Told what is being done and how much of it (0 to 1). What it raises ends the work.
Watch: TypeAlias = Callable[[str, float], None]
# SQLite's steps between two calls of a Watch: some hundredths of a second.
WATCH_EACH_STEPS = 20_000
# So that a sentence about a file that is damaged all over stays one.
DAMAGES_TOLD_MAX = 3


@dataclass(frozen=True, slots=True)
class Contents:
    """What a verified copy holds. `unerased`: sessions and users that are forgotten, with words still in it."""

    schema: int
    head_seq: int
    users: int
    unerased: int


def unwatched(_step: str, _share: float) -> None:
    """The Watch of whoever wants to see nothing."""


def copy_store(source: Path, target: Path, watch: Watch = unwatched) -> None:
    """Copy a store, as it is at this moment, into `target`: an empty file, or none.

    Reads in one transaction of its own, so a daemon goes on writing meanwhile; only its write-ahead log
    grows. Nothing that was erased is copied (VACUUM INTO, engineering.md D10). The copy is not synced yet.
    Raises `StoreUnusable` or `LogDamaged`; what is in `target` then is worth nothing.
    """
    if target.exists() and target.stat().st_size:
        raise StoreUnusable(f"{target} has something in it already")
    with _reading(source) as connection:
        (pages,) = connection.execute("PRAGMA page_count").fetchone()
        (page_bytes,) = connection.execute("PRAGMA page_size").fetchone()

        def share() -> float:
            written = target.stat().st_size if target.exists() else 0
            return min(1.0, written / max(1, int(pages) * int(page_bytes)))

        with _watching(connection, lambda: watch("copying", share())):
            connection.execute("VACUUM INTO ?", (str(target),))


def verify_copy(path: Path, watch: Watch = unwatched) -> Contents:
    """Check a store that nobody writes to: the file, every event, and all words that are there.

    Raises `LogDamaged` naming the first events that are not as they were written, `StoreUnusable` for a file that
    is no store, `StoreIsNewer` for one that this release does not know.
    """
    with _reading(path) as connection:
        with _watching(connection, lambda: watch("checking the file", 0.0)):
            (found,) = connection.execute("PRAGMA integrity_check(1)").fetchone()
        if found != "ok":
            raise LogDamaged("the file is damaged: SQLite's integrity check fails")
        walk = Walk()
        walk.begin(connection)
        while not walk.step(connection):
            watch("checking every event", walk.seq / walk.head)
        if walk.damages:
            raise LogDamaged(f"the log is damaged: {'; '.join(describe(walk.damages)[:DAMAGES_TOLD_MAX])}")
        (last,) = connection.execute("SELECT coalesce(max(seq), 0) FROM events").fetchone()
        if last != walk.head:
            raise LogDamaged(f"the log ends at seq {last}; its head says {walk.head}")
        (schema,) = connection.execute("PRAGMA user_version").fetchone()
        (users,) = connection.execute("SELECT count(*) FROM users").fetchone()
        # Asked for and not done, or known from elsewhere and not even begun.
        unerased = len(read_unerased(connection)) + len(read_planted(connection))
    return Contents(schema, walk.head, users, unerased)


def read_secret(path: Path) -> bytes:
    """The secret of a store: only stores that share it give the same name the same reference.

    Raises `StoreUnusable` or `LogDamaged`.
    """
    with _reading(path) as connection:
        (secret,) = connection.execute("SELECT secret FROM store").fetchone()
    return bytes(secret)


def read_forgotten(path: Path) -> tuple[Tombstone, ...]:
    """Everything that a store knows to be forgotten. Raises `StoreUnusable` or `LogDamaged`."""
    with _reading(path) as connection:
        return read_own_tombstones(connection)


@contextmanager
def _reading(path: Path) -> Generator[sqlite3.Connection]:
    """A connection that cannot write, to a store of this release or an older one; its errors are ours."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        with closing(sqlite3.connect(uri, uri=True, isolation_level=None)) as connection:
            connection.execute("PRAGMA temp_store = MEMORY")  # no words in temporary files
            (application,) = connection.execute("PRAGMA application_id").fetchone()
            (version,) = connection.execute("PRAGMA user_version").fetchone()
            if application != APPLICATION_ID:
                raise StoreUnusable(f"{path} is not a store of ours")
            if version > len(MIGRATIONS):
                raise StoreIsNewer
            yield connection
    except sqlite3.Error as error:
        raise _explain(path, error) from error


@contextmanager
def _watching(connection: sqlite3.Connection, look: Callable[[], None]) -> Generator[None]:
    """Call `look` now and then while statements run. What it raises ends the statement, and is raised here.

    SQLite's own interface would swallow it and say "interrupted".
    """
    raised: list[BaseException] = []

    def step() -> int:
        try:
            look()
        except BaseException as error:
            raised.append(error)
            return 1
        return 0

    connection.set_progress_handler(step, WATCH_EACH_STEPS)
    try:
        yield
    except sqlite3.OperationalError as error:
        if error.sqlite_errorname == "SQLITE_INTERRUPT":
            # Nothing in `raised`: the signal came on the way into `step`.
            raise (raised[0] if raised else KeyboardInterrupt()) from None
        raise
    finally:
        connection.set_progress_handler(None, 0)


def _explain(path: Path, error: sqlite3.Error) -> StoreUnusable | LogDamaged:
    failure = name_failure(error)
    if failure == DISK_FULL or name_error(error) == "SQLITE_IOERR_WRITE":
        return StoreUnusable("there is no room for the copy, or its disk fails", DISK_FULL)
    if failure == DAMAGED:
        return LogDamaged(f"{path} is damaged, or no store of ours")
    return StoreUnusable(f"{path} cannot be read as a store of ours: {failure}", failure)
