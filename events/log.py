"""The append-only log of one store: one writer, several readers, and a way to wait for what comes."""

from __future__ import annotations

import secrets
import sqlite3
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio

from events.appending import Batch, NonceSource, Outcome, append_batches
from events.database import DISK_FULL, FAILED, SYNC_FAILED, Database, name_error, name_failure
from events.envelope import BusPosition, Keys, NewEvent
from events.errors import LogClosed, MemForestError, StoreUnusable
from events.faults import fault_point
from events.schema import open_reader, open_writer
from events.session import UNDOING
from events.time import Instant
from events.wal import MOVE_AT_PAGES, WalIndex, move_pages, wal_bytes

T = TypeVar("T")

# Events a transaction: at 256 the price of an fsync is below that of the inserts (engineering.md L1). A group is
# what came while the one before it was synced. Nobody waits for company: 5 ms of that took an event that came
# alone from 1 ms to 7, and gave four or sixteen appenders nothing.
GROUP_EVENTS_MAX = 256
READERS = 2
# What takes something back may use the last room on the disk: without it nobody could be forgotten there.
_URGENT = ("forgotten", "erased", "retracted")


@dataclass(eq=False, slots=True)
class _Waiting:
    """A batch that waits for its transaction, and what became of it."""

    batch: Batch
    result: tuple[Outcome, ...] | MemForestError | None = None

    @property
    def urgent(self) -> bool:
        """Whether the batch takes something back."""
        return any(new.event.wire_name.endswith(_URGENT) for new in self.batch.events)


@dataclass(eq=False, slots=True)
class _Readers:
    """Read-only connections, handed out one at a time."""

    idle: deque[Database] = field(default_factory=deque[Database])
    free: anyio.Semaphore = field(default_factory=lambda: anyio.Semaphore(0, max_value=READERS))


class LogReader:
    """Read-only access to a store, beside the daemon that writes it."""

    def __init__(self, readers: _Readers) -> None:
        """Use `open_to_read`."""
        self._readers = readers
        self._closed = False

    @classmethod
    async def open_to_read(cls, path: Path) -> LogReader:
        """Open the store at `path`. Raises `StoreUnusable`."""
        return LogReader(await _open_readers(path))

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Run one short set of statements on a read-only connection.

        Raises `StoreUnusable` when the file cannot be read, `LogClosed` after `close`.
        """
        if self._closed:
            raise LogClosed
        async with self._readers.free:
            reader = self._readers.idle.popleft()
            try:
                return await reader.run(work)
            except sqlite3.Error as error:
                raise _unusable("read", error) from error
            finally:
                self._readers.idle.append(reader)

    async def close(self) -> None:
        """Close the connections, each when its last reader is done; a second time does nothing."""
        if self._closed:
            return
        self._closed = True
        with anyio.CancelScope(shield=True):
            for _ in range(READERS):
                await self._readers.free.acquire()
                await self._readers.idle.popleft().close()


class EventLog(LogReader):
    """The log of one store. `open` it, `append`, `read`, `close` it; one process at a time."""

    def __init__(
        self,
        writer: Database,
        readers: _Readers,
        keys: Keys,
        head: int,
        clock: Callable[[], Instant],
        nonces: NonceSource,
        path: Path,
    ) -> None:
        """Use `open`."""
        super().__init__(readers)
        self.keys = keys
        self.head = head
        self.path = path
        # The log's end when something was undone last, as far as this process knows.
        self.undone_at = head
        # Why a write failed; None since a probe succeeded. That a small one got through proves nothing.
        self.failure: str | None = None
        # The room that is left is for what takes something back; all else is refused as on a full disk.
        self.reserved = False
        # Asked once when such a write finds the disk full: whether there is more room now.
        self.make_room: Callable[[], bool] = lambda: False
        # Called when an fsync failed. Nothing can be written after it: the system drops what it could not
        # write and reports that once, so that a second fsync would lie. Only a new process can go on.
        self.on_sync_failure: Callable[[], None] = lambda: None
        self._writer = writer
        self._clock = clock
        self._nonces = nonces
        self._waiting: deque[_Waiting] = deque()
        self._wal_index = WalIndex(path)
        self._turn = anyio.Lock()
        self._grown = anyio.Event()

    @classmethod
    async def open(
        cls,
        path: Path,
        clock: Callable[[], Instant],
        nonces: NonceSource = lambda _: secrets.token_bytes(16),
        secret: bytes | None = None,
    ) -> EventLog:
        """Open or create the store at `path`.

        `clock` gives recorded_at, `nonces` the nonce of each event; `secret` only serves a new store.
        Raises `StoreUnusable`.
        """
        writer = Database(partial(open_writer, path, clock(), secret))
        await writer.open()
        try:
            secret_in_use, head = await writer.run(_read_start)
            readers = await _open_readers(path)
        except BaseException:
            await writer.close()  # its thread would keep the process alive
            raise
        return cls(writer, readers, Keys(secret_in_use), head, clock, nonces, path)

    async def append(self, batch: Batch) -> tuple[Outcome, ...]:
        """Write a batch, all or nothing, durable on return; one outcome an event, in order.

        Batches that come while another transaction runs share the next one (group commit).
        Raises `StaleDecision` when the batch must be planned again, `InvalidInput` when something in it
        cannot be stored, `StoreUnusable` when the disk fails.
        """
        entry = _Waiting(batch)
        self._waiting.append(entry)
        try:
            async with self._turn:
                if entry.result is None:
                    await self._commit_group()
        finally:
            # Cancelled while waiting: nothing was written yet, and nothing must be later.
            if entry.result is None and entry in self._waiting:
                self._waiting.remove(entry)
        if isinstance(entry.result, MemForestError):
            raise entry.result
        assert entry.result is not None
        return entry.result

    async def append_event(self, new: NewEvent) -> Outcome:
        """Write one event."""
        (outcome,) = await self.append(Batch(events=(new,)))
        return outcome

    async def _commit_group(self) -> None:
        """Commit what waits, up to a group; results go to the entries. The caller holds the turn."""
        if self._closed:
            raise LogClosed
        group: list[_Waiting] = []
        size = 0
        while self._waiting and (not group or size + len(self._waiting[0].batch.events) <= GROUP_EVENTS_MAX):
            size += len(self._waiting[0].batch.events)
            group.append(self._waiting.popleft())
        if self.reserved:
            for entry in group:
                entry.result = StoreUnusable("the disk is full", DISK_FULL)
            group = [entry for entry in group if entry.urgent]
        await self._commit(group)
        urgent = [entry for entry in group if entry.urgent]
        if urgent and self.failure == DISK_FULL and self.make_room():
            await self._commit(urgent)
        if self.pages_to_move >= MOVE_AT_PAGES:
            with suppress(StoreUnusable):  # told by `failure`; what was committed is committed
                await self._run(move_pages)

    async def _commit(self, group: list[_Waiting]) -> None:
        """One transaction; every entry has its result afterwards, also when it failed."""
        if not group:
            return
        batches = [entry.batch for entry in group]
        work = partial(append_batches, batches=batches, keys=self.keys, nonces=self._nonces, now=self._clock())
        try:
            results, head = await self._run(work)
        except StoreUnusable as failure:
            for entry in group:
                entry.result = failure
            return
        except BaseException:
            for entry in group:  # whoever shares the transaction must not take this for its own outcome
                entry.result = StoreUnusable("the transaction was given up; look at the daemon's log")
            raise
        for entry, result in zip(group, results, strict=True):
            entry.result = result
        if head > self.head:
            self.head = head
            if any(new.reopens or isinstance(new.event, UNDOING) for each in batches for new in each.events):
                self.undone_at = head
            self._grown.set()
            self._grown = anyio.Event()

    async def _run(self, work: Callable[[sqlite3.Connection], T], done: str = "written") -> T:
        """Run a closure on the writer, and keep why it failed. The caller holds the turn."""
        if self.failure == SYNC_FAILED:
            raise StoreUnusable("an fsync failed; the daemon must start again", SYNC_FAILED)
        try:
            return await self._writer.run(work)
        except sqlite3.Error as error:
            failure = _unusable(done, error)
        if failure.reason != FAILED:  # a statement that is wrong says nothing about the disk
            self.failure = failure.reason
        if failure.reason == SYNC_FAILED:
            self.on_sync_failure()
        raise failure

    async def wait_past(self, seq: int) -> None:
        """Return once the log has grown beyond `seq`."""
        while self.head <= seq:
            await self._grown.wait()

    async def write(self, work: Callable[[sqlite3.Connection], T], *, urgent: bool = True) -> T:
        """Run one transaction of upkeep (erasing, checkpointing) on the writer, between groups.

        When the disk is full, room is made for it unless it is not `urgent`. Raises `StoreUnusable`.
        """
        async with self._turn:
            if self._closed:
                raise LogClosed
            try:
                return await self._run(work)
            except StoreUnusable as failure:
                if failure.reason != DISK_FULL or not urgent or not self.make_room():
                    raise
            return await self._run(work)

    async def probe(self) -> None:
        """Find out whether the disk takes writes again: commits a page and moves it. Raises `StoreUnusable`."""
        await self.write(_probe, urgent=False)
        self.failure = None

    async def answer(self) -> None:
        """Return when the writer answers, whatever the disk says."""
        await self.write(lambda db: db.execute("SELECT 1").fetchone(), urgent=False)

    @property
    def wal_bytes(self) -> int:
        """The size of the write-ahead log."""
        return wal_bytes(self.path)

    @property
    def pages_to_move(self) -> int:
        """Pages of the write-ahead log that are not in the main file yet."""
        return self._wal_index.pages_to_move()

    async def read_checkpoint(self, stream: str) -> BusPosition | None:
        """How far the bus stream has been read into this log."""
        row = await self.read(
            lambda db: db.execute(
                "SELECT stream, epoch, seq, at FROM bus_checkpoint WHERE stream = ?", (stream,)
            ).fetchone()
        )
        return None if row is None else BusPosition(*row)

    async def close(self) -> None:
        """Close readers first and the writer last, which then empties the write-ahead log."""
        with anyio.CancelScope(shield=True):
            async with self._turn:
                if self._closed:
                    return
                await super().close()
                try:
                    fault_point("log.before_checkpoint")
                    await self._run(
                        lambda db: db.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchone(),
                        "emptied of its write-ahead log",
                    )
                finally:
                    await self._writer.close()  # its thread would keep the process alive
                    self._wal_index.close()


async def _open_readers(path: Path) -> _Readers:
    readers = _Readers()
    try:
        for _ in range(READERS):
            reader = Database(partial(open_reader, path))
            await reader.open()
            readers.idle.append(reader)
            readers.free.release()
    except BaseException:
        while readers.idle:
            await readers.idle.popleft().close()
        raise
    return readers


def _unusable(done: str, error: sqlite3.Error) -> StoreUnusable:
    """What callers are told."""
    failure = StoreUnusable(f"the store could not be {done}: {name_error(error)}", name_failure(error))
    failure.__cause__ = error
    return failure


def _probe(connection: sqlite3.Connection) -> None:
    """Write a page and move it to the main file, which a full disk may refuse when the log itself has room."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        connection.execute("UPDATE head SET seq = seq")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    move_pages(connection)


def _read_start(connection: sqlite3.Connection) -> tuple[bytes, int]:
    (secret,) = connection.execute("SELECT secret FROM store").fetchone()
    (seq,) = connection.execute("SELECT seq FROM head").fetchone()
    return secret, seq
