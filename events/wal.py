"""The write-ahead log beside the store: how large it is, and how it is moved into the main file.

SQLite's own automatic checkpoint is off: it ignores every error (main.c, sqlite3WalDefaultHook), also that of
an fsync, after which what it moved may be nowhere (wiki.postgresql.org/wiki/Fsync_Errors). Here they are seen.
"""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from struct import Struct
from typing import Final

PAGE_BYTES: Final = 4096  # SQLite's default, and so that of every store
# Pages that wait before they are moved while turns keep coming (32 MiB). A move costs three fsyncs, so at SQLite's
# 1000 pages a backlog paid one fsync for 120 events, and at this one for 217; a page that is written again and
# again, such as those of indexes, is moved once.
MOVE_AT_PAGES: Final = 8192
# The header of the wal-index, in the machine's byte order (sqlite.org/walformat.html, section 2.1): frames
# that are valid, and frames that were moved already.
_FRAMES: Final = Struct("=16xI76xI")


def wal_bytes(path: Path) -> int:
    """The size of the write-ahead log of the store at `path`; 0 without one."""
    try:
        return os.stat(f"{path}-wal").st_size
    except OSError:
        return 0


class WalIndex:
    """The wal-index (-shm) of a store, read to see how much waits to be moved.

    Its descriptor is kept until SQLite's own are closed: closing it would take every lock away that SQLite holds
    on the file for this process (fcntl(2); sqlite.org/howtocorrupt.html section 2.2).
    """

    def __init__(self, path: Path) -> None:
        """Of the store at `path`, once it is open."""
        self._descriptor = os.open(f"{path}-shm", os.O_RDONLY | os.O_CLOEXEC)

    def pages_to_move(self) -> int:
        """Pages of the write-ahead log that are not in the main file yet."""
        header = os.pread(self._descriptor, _FRAMES.size, 0)
        if len(header) < _FRAMES.size:
            return 0
        valid, moved = _FRAMES.unpack(header)
        return max(0, int(valid) - int(moved))

    def close(self) -> None:
        """Let go of it; only after the last connection of this process is closed."""
        os.close(self._descriptor)


def move_pages(connection: sqlite3.Connection) -> None:
    """Move what no reader needs any more into the main file; waits for nobody. Raises sqlite3.Error."""
    connection.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone()
