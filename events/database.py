"""One SQLite connection on a thread of its own, driven by whole closures, and what its errors mean.

A transaction is one closure: nothing is awaited between BEGIN and COMMIT, so no other task can slip in
and no cancellation can leave a transaction open (engineering.md L2, L3).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final, TypeVar

import anyio
from aiosqlite import Connection
from anyio import to_thread

T = TypeVar("T")

# Reasons for a failure, in words that stay: they are shown in `status`, and programs may compare them.
DISK_FULL: Final = "disk full"
READ_ONLY: Final = "read-only"
NOT_OPENED: Final = "cannot be opened"
LOCKED: Final = "locked by another program"
DAMAGED: Final = "damaged"
SYNC_FAILED: Final = "sync failed"
DISK_FAILED: Final = "disk error"
FAILED: Final = "failed"
# By the result code's name or the beginning of it (sqlite.org/rescode.html); the first that fits counts.
_REASONS: Final = (
    ("SQLITE_FULL", DISK_FULL),
    ("SQLITE_READONLY", READ_ONLY),
    ("SQLITE_CANTOPEN", NOT_OPENED),
    ("SQLITE_BUSY", LOCKED),
    ("SQLITE_LOCKED", LOCKED),
    ("SQLITE_CORRUPT", DAMAGED),
    ("SQLITE_NOTADB", DAMAGED),
    ("SQLITE_IOERR_FSYNC", SYNC_FAILED),
    ("SQLITE_IOERR_DIR_FSYNC", SYNC_FAILED),
    ("SQLITE_IOERR", DISK_FAILED),
)


def name_error(error: sqlite3.Error) -> str:
    """The name of SQLite's result code; errors of the sqlite3 module itself have none."""
    return getattr(error, "sqlite_errorname", None) or type(error).__name__


def name_failure(error: sqlite3.Error) -> str:
    """Why SQLite could not do it, as one of the reasons above. The error's own text may quote a stored one."""
    name = name_error(error)
    return next((reason for begins, reason in _REASONS if name.startswith(begins)), FAILED)


@contextmanager
def immediate(connection: sqlite3.Connection) -> Generator[None]:
    """One transaction of the writer: all of what is done inside, or nothing of it and the error goes on."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


class Database:
    """Runs closures on the thread of an aiosqlite connection, one after the other."""

    def __init__(self, connect: Callable[[], sqlite3.Connection]) -> None:
        """`connect` is called on the connection's own thread."""
        self._connection = Connection(connect, iter_chunk_size=64)

    async def open(self) -> None:
        """Start the thread and connect; raises what `connect` raises."""
        try:
            await self._connection
        except BaseException:
            # aiosqlite tells its thread to end and does not wait: it would outlive the event loop.
            with anyio.CancelScope(shield=True):
                await to_thread.run_sync(self._connection._thread.join)  # pyright: ignore[reportPrivateUsage]
            raise

    async def run(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run `work` on the connection's thread and wait for it, also when the caller is cancelled.

        Without the shield a cancelled COMMIT would be durable and reported as undone.
        """
        # aiosqlite offers single statements only, at one thread hop each; a closure costs one hop for
        # the whole transaction. The private call is pinned by version and by a contract test.
        with anyio.CancelScope(shield=True):
            return await self._connection._execute(  # type: ignore[no-untyped-call,no-any-return]  # pyright: ignore[reportPrivateUsage]
                lambda: work(self._connection._conn)  # pyright: ignore[reportPrivateUsage]
            )
        raise AssertionError("a shield swallows nothing")

    async def close(self) -> None:
        """Close the connection and end its thread."""
        with anyio.CancelScope(shield=True):
            await self._connection.close()
