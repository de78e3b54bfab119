"""The locks that SQLite keeps on a store's files: without them another process takes itself for the only one.

POSIX drops all locks of a process on a file as soon as the process closes any descriptor of it (fcntl(2);
sqlite.org/howtocorrupt.html section 2.2), so nothing in the daemon may open and close events.db, -wal or -shm.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

import pytest

from events.appending import Batch
from events.log import EventLog
from tests.builders import a_turn
from tests.stored import stored_rows

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="/proc/locks is Linux's")


def locks_on(path: Path) -> int:
    """How many locks this process holds on a file."""
    inode = path.stat().st_ino
    lines = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return sum(int(line[4]) == os.getpid() and line[5].endswith(f":{inode}") for line in lines if len(line) > 5)


async def test_writing_and_reading_give_up_no_lock_on_the_store(log: EventLog, log_path: Path) -> None:
    index = log_path.with_name("events.db-shm")
    before = (locks_on(log_path), locks_on(index))
    for number in range(3):
        await log.append(Batch((a_turn(turn_id=f"t{number}"),)))
        await log.read(lambda db: db.execute("SELECT count(*) FROM events").fetchone())
        await log.write(lambda db: db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

    assert min(before) > 0, "SQLite keeps a lock on both while they are open"
    assert (locks_on(log_path), locks_on(index)) == before
    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(3,)]
