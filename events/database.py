"""One SQLite connection on a thread of its own, driven by whole closures.

A transaction is one closure: nothing is awaited between BEGIN and COMMIT, so no other task can slip in
and no cancellation can leave a transaction open (engineering.md L2, L3).
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable
from typing import TypeVar

import anyio
from aiosqlite import Connection
from anyio import to_thread

T = TypeVar("T")


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
