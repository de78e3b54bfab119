"""A message that the decoder takes and the log refuses: a dead letter that goes with its user and session."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import cast
from zoneinfo import ZoneInfo

import anyio

from daemon.bus.bus_messages import Batch, BusMessage
from daemon.bus.nats_bus import NatsBus
from daemon.decoders.decoding import Decoder
from daemon.ingest import Ingest
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, NewEvent
from tests.builders import KEYS, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, running_forgetter
from tests.stored import stored_bytes, stored_rows

STREAM = "MEMFOREST"


class LenientDecoder(Decoder):
    """Lets through what no log can write."""

    def decode(self, message: BusMessage, epoch: str) -> tuple[NewEvent, ...] | DeadLetter:
        place = BusPosition(message.stream, epoch, message.stream_seq, message.published_at)
        return (replace(a_turn("\ud800", session_id="zqx-session", turn_id="zqx", name=None), bus=place),)


class OneBatch:
    """What ingest uses of a bus, with one message on it."""

    def __init__(self, message: BusMessage) -> None:
        self._batches = [Batch((message,), BusPosition(STREAM, "e1", message.stream_seq), reset=False)]
        self.done = anyio.Event()

    async def fetch(self, after: BusPosition | None) -> Batch:
        if not self._batches:
            self.done.set()
            await anyio.sleep_forever()
        return self._batches.pop()

    async def acknowledge(self, batch: Batch) -> None:
        """Nobody counts them."""


async def ingest(parts: Parts) -> None:
    """Read the one message that the log refuses."""
    bus = OneBatch(BusMessage("memforest.turns.alice.zqx-session", b"zqx payload", {}, STREAM, 7, 5))
    decoder = LenientDecoder(KEYS, ZoneInfo("UTC"))
    reading = Ingest(cast("NatsBus", bus), STREAM, parts.log, parts.memories, decoder, parts.reported)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(reading.run)
        await bus.done.wait()
        tasks.cancel_scope.cancel()


async def test_it_names_its_user_and_session(parts: Parts, log_path: Path) -> None:
    await ingest(parts)

    rows = stored_rows(log_path, "SELECT user, session, bus_seq FROM dead_letters")
    assert rows == [(ALICE, KEYS.session("alice", "zqx-session"), 7)]
    assert stored_rows(log_path, "SELECT seq FROM bus_checkpoint") == [(7,)]


async def test_it_goes_with_its_session(parts: Parts, log_path: Path) -> None:
    await ingest(parts)
    before = stored_bytes(log_path)
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "zqx-session")

    assert b"zqx payload" in before
    assert b"zqx" not in stored_bytes(log_path)
    assert (receipt.dead_letters_erased, receipt.bus_messages_erased, receipt.complete) == (1, 1, True)


async def test_it_goes_with_its_user(parts: Parts, log_path: Path) -> None:
    await ingest(parts)
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget_user("alice")

    assert b"zqx" not in stored_bytes(log_path)
    assert (receipt.dead_letters_erased, receipt.complete) == (1, True)
