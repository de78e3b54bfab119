"""A process that reads a backlog of 10,000 messages into a fresh log and tells its cost, for test_disk_faults."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import msgspec

from daemon.bus.bus_messages import Batch as BusBatch
from daemon.bus.bus_messages import BusMessage
from daemon.bus.jetstream import BATCH_MAX
from daemon.bus.subjects import turn_subject
from daemon.decoders.decoding import Decoder
from daemon.ingest import Ingest
from daemon.logs import quiet
from daemon.memories import Memories
from events.envelope import BusPosition
from events.log import EventLog
from projections.memory import MemoryParameters
from tests.builders import MONDAY

MESSAGES = 10_000
USERS = 50


class Backlog:
    """What ingest uses of a bus: a stream on which everything waits already, in fetches as large as real ones."""

    def __init__(self) -> None:
        self._read = 0
        self.done = anyio.Event()

    async def fetch(self, after: BusPosition | None) -> BusBatch:
        if self._read >= MESSAGES:
            self.done.set()
            await anyio.sleep_forever()
        messages = [_message(n) for n in range(self._read, min(MESSAGES, self._read + BATCH_MAX))]
        self._read += len(messages)
        return BusBatch(tuple(messages), BusPosition("MEMFOREST", "e1", self._read), reset=False)

    async def acknowledge(self, batch: BusBatch) -> None:
        """Nobody asks."""


def _message(n: int) -> BusMessage:
    user, session = f"user-{n % USERS}", f"session-{n // 500}"
    body = {
        "type": "turn", "user_id": user, "session_id": session, "role": "user", "id": f"t{n}",
        "content": f"turn {n}: " + "some words of a sentence " * 5, "timestamp": 1719824400 + n,
    }  # fmt: skip
    return BusMessage(turn_subject(user, session), msgspec.json.encode(body), {}, "MEMFOREST", n + 1, MONDAY + n)


def synced_since(counted: Path) -> int:
    """How many syncs of the store's files the shim noted there, which starts again at 0."""
    synced = sum("events.db" in line for line in counted.read_text().splitlines()) if counted.exists() else 0
    counted.write_text("")
    return synced


async def main(folder: Path, counted: Path) -> None:
    """Ingest all of it; counted is what happens once the log is open."""
    log = await EventLog.open(folder / "events.db", lambda: time.time_ns() // 1_000_000)
    statements: list[str] = []
    await log.write(lambda db: db.set_trace_callback(statements.append))
    synced_since(counted)
    bus = Backlog()
    memories = Memories(log, MemoryParameters(), quiet)
    decoder = Decoder(log.keys, ZoneInfo("UTC"))
    ingest = Ingest(bus, "MEMFOREST", log, memories, decoder, quiet)  # type: ignore[arg-type]
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ingest.run)
        await bus.done.wait()
        tasks.cancel_scope.cancel()
    cost = {"events": log.head, "commits": statements.count("COMMIT"), "synced": synced_since(counted)}
    print(json.dumps(cost))
    await log.close()


if __name__ == "__main__":
    anyio.run(main, Path(sys.argv[1]), Path(sys.argv[2]))
