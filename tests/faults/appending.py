"""A process that appends turns to a log and tells the trace of power_cut_shim.c what was acknowledged.

`python -m tests.faults.appending STORE TRACE EVENTS SYNCHRONOUS`: each turn is acknowledged
with the seq it got. An acknowledgement stands in the trace behind everything that was done before it was given.
"""

from __future__ import annotations

import os
import struct
import sys
from pathlib import Path

import anyio

from events.appending import Batch
from events.log import EventLog
from events.wal import move_pages
from tests.builders import MONDAY, a_turn

# Appends under way at the same time, so that some share a transaction.
AT_ONCE = 3
# What a disk loses is lost whole pages at a time, so turns are of a size that fills some.
CONTENT_CHARACTERS = 600
# Events between two checkpoints.
CHECKPOINT_EVENTS = 30


async def append(store: Path, trace: Path, events: int, synchronous: str) -> None:
    """Append, and acknowledge each event once its append returned."""
    log = await EventLog.open(store, lambda: MONDAY)
    await log.write(lambda db: db.execute(f"PRAGMA synchronous = {synchronous}").fetchall())
    said = os.open(trace, os.O_WRONLY | os.O_APPEND)
    numbers = iter(range(1, events + 1))

    async def go_on() -> None:
        for number in numbers:
            content = f"{number} ".ljust(CONTENT_CHARACTERS, ".")
            turn = a_turn(content, turn_id=f"t{number}", user_id=f"user{number % 3}")
            (outcome,) = await log.append(Batch((turn,)))
            os.write(said, struct.pack("=cBQQ", b"A", 0, outcome.seq or 0, 0))
            if number % CHECKPOINT_EVENTS == 0:
                await log.write(move_pages)

    async with anyio.create_task_group() as tasks:
        for _ in range(AT_ONCE):
            tasks.start_soon(go_on)
    await log.close()


if __name__ == "__main__":
    anyio.run(append, Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3]), sys.argv[4])
