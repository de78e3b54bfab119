"""The disk under the data directory: how much room is left, and whether the log can be written.

A full disk stops ingest and nothing else. The ballast is room that is kept for it: what takes something back,
and moving the write-ahead log, still work when everything else is refused (engineering.md L8).
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import anyio
from anyio import to_thread

from daemon.logs import Report
from events.database import DISK_FULL
from events.erasure import truncate_wal
from events.errors import StoreUnusable
from events.log import EventLog
from events.wal import PAGE_BYTES, move_pages

MIB = 1024 * 1024
# Between two looks at the disk, and so between two tries after a failed write.
PAUSE_S = 5.0
# So much that waits in the write-ahead log is worth a warning: it is moved at half of that (events/wal.py), unless
# a reader keeps it.
WAL_LARGE_BYTES = 64 * MIB
# An idle daemon cuts a longer one to nothing.
WAL_KEPT_BYTES = 4 * MIB


def free_bytes(folder: Path) -> int:
    """The room that is left for us on the disk of a folder, or of the nearest one that is there."""
    while not folder.exists():
        folder = folder.parent
    found = os.statvfs(folder)
    return found.f_bavail * found.f_frsize


class Ballast:
    """A file of zeros that is given up when the disk is full. Without `size_bytes` there is none."""

    def __init__(self, path: Path, size_bytes: int) -> None:
        self.path = path
        self.size_bytes = size_bytes

    def is_whole(self) -> bool:
        """Whether it is there and really takes its room."""
        try:
            found = self.path.stat()
        except OSError:
            return self.size_bytes == 0
        return found.st_size == self.size_bytes and found.st_blocks * 512 >= self.size_bytes

    def make(self) -> bool:
        """Take the room; False when the disk has it no more."""
        self.give_up()
        if not self.size_bytes:
            return True
        try:
            descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, self.size_bytes)  # a hole would be no room
            finally:
                os.close(descriptor)
        except OSError:
            self.give_up()
            return False
        return True

    def give_up(self) -> bool:
        """Let go of the room; False when there was none."""
        try:
            self.path.unlink()
        except OSError:
            return False
        return True


class Disk:
    """Looks after the disk of one log: keeps the ballast, tries again after failures, moves an idle log."""

    def __init__(
        self,
        log: EventLog,
        report: Report,
        *,
        ballast_bytes: int,
        free_min_bytes: int,
        pause_s: float = PAUSE_S,
        free: Callable[[Path], int] = free_bytes,
        wal_large_bytes: int = WAL_LARGE_BYTES,
    ) -> None:
        """`free_min_bytes`: with less room than that ingest stops. `free` measures it."""
        self.ballast = Ballast(log.path.with_name("ballast"), ballast_bytes)
        self.is_low = False
        self._log = log
        self._report = report
        self._free_min_bytes = free_min_bytes
        self._pause_s = pause_s
        self._free = free
        self._wal_large_bytes = wal_large_bytes
        self._wal_is_large = False
        self._told: str | None = None
        self._head = log.head
        log.make_room = self.make_room

    @property
    def free_bytes(self) -> int:
        """The room that is left."""
        return self._free(self._log.path.parent)

    @property
    def wal_is_large(self) -> bool:
        """Whether a reader has kept the write-ahead log from being moved for long."""
        return self._wal_is_large

    def trouble(self) -> str | None:
        """Why nothing more should be written now; None when all is well. Low disk ends above where it began."""
        if self._log.reserved:
            return DISK_FULL
        free, low = self.free_bytes, self._free_min_bytes
        self.is_low = free < low + low // 4 if self.is_low else free < low
        return self._log.failure or ("disk low" if self.is_low else None)

    def make_room(self) -> bool:
        """Give the ballast up for what takes something back; nothing else may use the room. False without one."""
        if not self.ballast.give_up():
            return False
        self._log.reserved = True
        self._report("store.ballast_given_up", bytes=self.ballast.size_bytes)
        return True

    async def run(self) -> None:
        """Look at the disk every `pause_s`, for ever."""
        while True:
            await self.look()
            await anyio.sleep(self._pause_s)

    async def look(self) -> None:
        """Look once: try a failed write again, make the ballast when there is room, move an idle log, report."""
        if not self.ballast.is_whole():
            await self._make_ballast()
        self._tell()  # also of a failure that ends with this look
        if self._log.failure is not None and not self._log.reserved:
            with suppress(StoreUnusable):
                await self._log.probe()
        with suppress(StoreUnusable):  # `trouble` tells
            await self._move_idle_wal()
        self._tell()

    async def _make_ballast(self) -> None:
        """Only with room for it twice and for ingest as well: it must not be what fills the disk."""
        if self.free_bytes < 2 * self.ballast.size_bytes + self._free_min_bytes:
            return
        if await to_thread.run_sync(self.ballast.make) and self._log.reserved:
            self._log.reserved = False
            self._log.failure = DISK_FULL  # until the probe finds otherwise

    async def _move_idle_wal(self) -> None:
        idle, self._head = self._head == self._log.head, self._log.head
        if not idle or self._log.failure is not None:
            return
        if self._log.wal_bytes > WAL_KEPT_BYTES:
            await self._log.write(truncate_wal)
        elif self._log.pages_to_move:
            await self._log.write(move_pages)

    def _tell(self) -> None:
        """Report what changed since the last look."""
        waiting = self._log.pages_to_move * PAGE_BYTES
        if waiting > self._wal_large_bytes and not self._wal_is_large:
            self._report("store.wal_large", bytes=self._log.wal_bytes)
        self._wal_is_large = waiting > self._wal_large_bytes // (2 if self._wal_is_large else 1)
        trouble = self.trouble()
        if trouble is not None and trouble != self._told:
            self._report("store.degraded", reason=trouble, free_bytes=self.free_bytes)
        elif trouble is None and self._told is not None:
            self._report("store.recovered")
        self._told = trouble
