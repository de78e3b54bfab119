"""How connections to `events.db` are set up, and how an older store becomes today's."""

from __future__ import annotations

import os
import secrets
import sqlite3
from pathlib import Path

from events.database import name_error, name_failure
from events.errors import StoreIsNewer, StoreUnusable
from events.migrations import MIGRATIONS

# Tells our files from other SQLite files ("MFst").
APPLICATION_ID = 0x4D467374
# Nobody else writes, so the writer waits for a reader only when it empties the write-ahead log. Ingest
# waits behind it meanwhile: better to give up soon and to try again.
BUSY_TIMEOUT_S = 0.25


def open_writer(
    path: Path, now: int, secret: bytes | None = None, migrations: tuple[str, ...] = MIGRATIONS
) -> sqlite3.Connection:
    """Open or create the store, migrated to today's schema, set up for the one writer.

    A new store gets `secret` (tests compare two stores that share one) or a random one.

    Raises `StoreUnusable` for a file of another program or of a newer release.
    """
    # Statements run on the writer's thread only; aiosqlite hands the connection to it.
    try:
        connection = sqlite3.connect(path, timeout=BUSY_TIMEOUT_S, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _not_opened(error) from error
    try:
        _refuse_strangers(connection, len(migrations))
        connection.executescript(
            """
            PRAGMA journal_mode = WAL;
            PRAGMA synchronous = FULL;      -- an acknowledged event survives a power cut
            PRAGMA secure_delete = ON;      -- what is erased is overwritten, whatever the build's default
            PRAGMA wal_autocheckpoint = 0;  -- EventLog does it, and sees its errors (wal.py)
            PRAGMA journal_size_limit = 4194304;
            PRAGMA temp_store = MEMORY;     -- no words in temporary files
            """
        )
        _migrate(connection, path, now, secret or secrets.token_bytes(32), migrations)
    except sqlite3.Error as error:
        connection.close()
        raise _not_opened(error) from error
    except BaseException:
        connection.close()
        raise
    return connection


def open_reader(path: Path) -> sqlite3.Connection:
    """A connection that can neither write nor checkpoint (mode=ro; query_only would still checkpoint)."""
    uri = f"{path.absolute().as_uri()}?mode=ro"
    try:
        connection = sqlite3.connect(uri, uri=True, isolation_level=None, check_same_thread=False)
    except sqlite3.Error as error:
        raise _not_opened(error) from error
    try:
        connection.execute("PRAGMA temp_store = MEMORY")  # no words in temporary files
        (version,) = connection.execute("PRAGMA user_version").fetchone()
    except sqlite3.Error as error:
        connection.close()
        raise _not_opened(error) from error
    if version != len(MIGRATIONS):
        connection.close()
        if version > len(MIGRATIONS):
            raise StoreIsNewer
        raise StoreUnusable("the store is of an older release; `memforestd migrate` brings it to this one")
    return connection


def _not_opened(error: sqlite3.Error) -> StoreUnusable:
    return StoreUnusable(f"events.db cannot be opened: {name_error(error)}", name_failure(error))


def _refuse_strangers(connection: sqlite3.Connection, newest: int) -> None:
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_master").fetchone()
    if tables and application != APPLICATION_ID:
        raise StoreUnusable("events.db belongs to another program; choose another data.dir")
    if version > newest:
        raise StoreIsNewer


def copies_before_migration(path: Path) -> list[Path]:
    """The copies that migrations left beside the store. They hold words, so whoever erases deletes them."""
    return sorted(path.parent.glob(f"{path.name}.before-*"))


def _migrate(
    connection: sqlite3.Connection, path: Path, now: int, secret: bytes, migrations: tuple[str, ...]
) -> None:
    """Bring the schema up to date in one transaction: all of it or nothing. A copy of what was is left behind."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    if version == len(migrations):
        return
    if version:
        _copy(connection, path.with_name(f"{path.name}.before-{version}"))
    connection.execute("BEGIN IMMEDIATE")
    try:
        for migration in migrations[version:]:
            for statement in _statements(migration):
                connection.execute(statement)
        if version == 0:
            connection.execute("INSERT INTO store VALUES (?, ?)", (secret, now))
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(migrations)}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:  # a full disk has rolled it back already
            connection.execute("ROLLBACK")
        raise


def _copy(connection: sqlite3.Connection, target: Path) -> None:
    """A copy of the store under its final name only when it is whole and on the disk."""
    part = target.with_name(f"{target.name}.part")
    part.unlink(missing_ok=True)
    try:
        connection.execute("VACUUM INTO ?", (str(part),))
        with part.open("rb") as copied:
            os.fchmod(copied.fileno(), 0o600)
            os.fsync(copied.fileno())
        part.replace(target)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _statements(script: str) -> list[str]:
    """Split a migration; executescript would commit the transaction it runs in."""
    statements: list[str] = []
    current = ""
    for line in script.splitlines():
        current += line.split("--")[0] + "\n"
        if sqlite3.complete_statement(current):
            statements.append(current)
            current = ""
    return statements
