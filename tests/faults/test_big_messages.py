"""Messages as large as the bus takes them, by the hundred, and those it does not take (fault matrix rows 21, 32).

The server drops a connection on which too much waits. So no fetch asks for that much; and when a connection is
dropped all the same, reading goes on behind the last message that was taken.
"""

from __future__ import annotations

import json
import threading
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import nats.errors
import pytest

from daemon.bus.jetstream import BATCH_BYTES_MAX
from daemon.bus.nats_bus import NatsBus
from daemon.decoders.decoding import Decoder
from daemon.ingest import Ingest
from daemon.memories import Memories
from events.envelope import BusPosition
from events.errors import InvalidInput
from events.log import EventLog
from tests.bus_in_use import TURNS, Reported, bus_with_stream
from tests.daemon.parts_in_use import SMALL
from tests.nats_server import OutsideServer, running_server
from tests.stored import stored_rows
from tests.system.daemon_process import a_turn, connect
from tests.waiting import wait_until

MIB = 1 << 20
MESSAGES, MESSAGE_BYTES = 300, 900_000
BACKLOG = 48
PATIENCE_S = 60.0


@dataclass
class Reading:
    """A bus, and a log that is written from it."""

    bus: NatsBus
    ingest: Ingest
    reported: Reported

    async def until(self, seq: int) -> None:
        """Read up to this message."""
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(self.ingest.run)
            await wait_until(
                lambda: (self.ingest.position or BusPosition("", "", 0)).seq >= seq, PATIENCE_S, "not all was read"
            )
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def reading(server: OutsideServer, log: EventLog) -> AsyncGenerator[Reading, None]:
    reported = Reported()
    async with bus_with_stream(server.url, report=reported) as bus:
        decoder = Decoder(log.keys, ZoneInfo("UTC"))
        memories = Memories(log, SMALL, reported)
        yield Reading(bus, Ingest(bus, bus.stream, log, memories, decoder, reported), reported)


def a_payload(number: int, size: int = MESSAGE_BYTES) -> bytes:
    """A good turn of exactly so many bytes."""
    body = a_turn("alice", "s1", "", id=f"t{number:03}", timestamp="2024-07-01T09:00:00Z")
    room = size - len(json.dumps(body).encode())
    return json.dumps({**body, "content": "x" * room}).encode()


async def publish(server: OutsideServer, count: int, first: int = 0) -> None:
    """So many big messages, over a connection of their own."""
    client = await connect(server.url)
    try:
        for number in range(first, first + count):
            # Now and then the acknowledgement is waited for, or the stream would turn some away.
            if number % 10 == 9 or number == first + count - 1:
                await client.request(TURNS, a_payload(number), timeout=10)
            else:
                await client.publish(TURNS, a_payload(number))
    finally:
        await client.close()


def recorded(path: Path) -> list[str]:
    """The id of each turn, in order, and whether its words are whole."""
    rows = stored_rows(
        path,
        """SELECT CAST(k.text AS TEXT), (SELECT max(length(text)) FROM words w WHERE w.seq = e.seq)
           FROM events e JOIN names k ON k.reference = e.key WHERE type = 'turn.recorded' ORDER BY e.seq""",
    )
    return [f"{key.split('/')[3]}{'' if size > MESSAGE_BYTES - 300 else ' is cut'}" for key, size in rows]


def peak_bytes() -> int:
    """The most memory this process held since `forget_peak`."""
    (line,) = (each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmHWM"))
    return int(line.split()[1]) * 1024


def forget_peak() -> int:
    """What it holds now."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


async def test_a_backlog_of_big_messages_is_read_in_order_over_one_connection_and_in_bounded_memory(
    tmp_path: Path, log: EventLog, log_path: Path
) -> None:
    """With the limit of bytes a server has by default, and 270 MB waiting."""
    async with running_server(tmp_path / "nats") as server, reading(server, log) as reader:
        await publish(server, MESSAGES)
        held = forget_peak()
        await reader.until(MESSAGES)
        grown = peak_bytes() - held
        said_by_server = (server.folder / "nats.log").read_text()

    assert recorded(log_path) == [f"t{number:03}" for number in range(MESSAGES)]
    assert "Slow Consumer" not in said_by_server
    assert reader.reported.fields("bus.consumer_dropped") == []
    assert [fields["state"] for fields in reader.reported.fields("bus.state_changed")] == ["no stream", "up"]
    batches = [int(str(fields["messages"])) for fields in reader.reported.fields("ingest.batch_recorded")]
    assert max(batches) * MESSAGE_BYTES <= BATCH_BYTES_MAX
    print(f"grown by {grown >> 20} MiB at most")
    assert grown < 5 * BATCH_BYTES_MAX, "a batch is held, and what was made of it, not the backlog"


async def test_a_reader_that_is_dropped_for_being_slow_goes_on_behind_what_it_had_taken(
    tmp_path: Path, log: EventLog, log_path: Path
) -> None:
    """A server with little patience, and a loop that stands still while the answer is on its way."""
    impatient = "max_pending: 12MB\n"
    count, dropped = 0, 0
    async with running_server(tmp_path / "nats", impatient) as server, reading(server, log) as reader:
        # The loop may stand still between two fetches each time; then there is another backlog.
        while not dropped and count < 5 * BACKLOG:
            await publish(server, BACKLOG, count)
            count += BACKLOG
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(reader.until, count)
                while (reader.ingest.position or BusPosition("", "", 0)).seq < count and not dropped:
                    await anyio.sleep(0.05)
                    threading.Event().wait(0.2)  # the fault: nothing on this loop reads
                    dropped = (server.folder / "nats.log").read_text().count("Slow Consumer")

    assert dropped > 0, "the server did not drop anything, so this shows nothing"
    assert recorded(log_path) == [f"t{number:03}" for number in range(count)]
    assert reader.reported.fields("bus.epoch_changed") == []
    assert stored_rows(log_path, "SELECT seq FROM bus_checkpoint") == [(count,)]


async def test_messages_at_the_limits_of_the_bus_are_taken_or_refused_and_no_connection_of_ours_goes(
    tmp_path: Path, log: EventLog, log_path: Path
) -> None:
    async with running_server(tmp_path / "nats") as server, reading(server, log) as reader:
        bus = reader.bus
        await bus.publish(TURNS, b"")
        await bus.publish(TURNS, a_payload(1, MIB))
        with pytest.raises(InvalidInput):
            await bus.publish(TURNS, a_payload(2, MIB + 1))
        # Somebody else tries it past the client library: the server hangs up on them, not on us.
        stranger = await connect(server.url)
        stranger._max_payload = 2 * MIB
        with pytest.raises((nats.errors.Error, ConnectionError)):
            await stranger.request(TURNS, a_payload(3, MIB + 1), timeout=1)
        with anyio.move_on_after(5, shield=True):
            await stranger.close()
        last = await bus.publish(TURNS, a_payload(4, 400))
        await reader.until(last.seq)
        letters = stored_rows(log_path, "SELECT bus_seq, payload FROM dead_letters")

    assert letters == [(1, b"")]
    assert last.seq == 3, "what is above the limit is on no stream"
    assert [each.split()[0] for each in recorded(log_path)] == ["t001", "t004"]
    assert [fields["state"] for fields in reader.reported.fields("bus.state_changed")] == ["no stream", "up"]
    assert reader.reported.fields("bus.consumer_dropped") == []
