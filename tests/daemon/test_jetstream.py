"""Reading from a real nats-server: in order, each message once, from the position we keep (rules I1-I10)."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import nats
import pytest
from nats.aio.msg import Msg

from daemon.bus.bus_messages import Batch, BusMessage, BusUnavailable
from daemon.bus.jetstream import BATCH_BYTES_MAX, BATCH_MAX, doubt_about, start_position
from daemon.bus.nats_bus import NatsBus
from events.envelope import BusPosition
from tests.bus_in_use import (
    TURNS,
    Reported,
    bus_with_stream,
    fetch_all,
    publish,
    texts,
    unattended_server,
)
from tests.nats_server import running_server
from tests.waiting import wait_until


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str, None]:
    async with unattended_server(tmp_path / "nats") as url:
        yield url


async def test_messages_come_in_order_with_all_that_is_known_of_them(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await bus.publish(TURNS, b"one", {"Nats-Msg-Id": "m-1", "Language": "français"})
        await publish(bus, "two", "three")
        batch = await bus.fetch(None)

        assert texts(batch.messages) == ["one", "two", "three"]
        assert [message.stream_seq for message in batch.messages] == [1, 2, 3]
        first = batch.messages[0]
        assert (first.subject, first.stream) == (TURNS, "MEMFOREST")
        assert first.headers == {"Nats-Msg-Id": "m-1", "Language": "français"}
        assert 1_600_000_000_000 < first.published_at <= batch.messages[2].published_at
        assert batch.position is not None
        assert (batch.position.stream, batch.position.seq, batch.reset) == ("MEMFOREST", 3, False)


async def test_fetching_goes_on_where_it_was_and_waits_for_the_next(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one")
        first = await bus.fetch(None)
        nothing = await bus.fetch(first.position)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(publish, bus, "two")

            assert nothing == Batch((), first.position, reset=False)
            assert texts((await bus.fetch(first.position)).messages) == ["two"]


async def test_the_position_asked_for_decides_not_what_was_read_before(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one", "two", "three", "four")
        last = (await bus.fetch(None)).position
        assert last is not None
        earlier = BusPosition(last.stream, last.epoch, 2)

        assert texts((await bus.fetch(earlier)).messages) == ["three", "four"]
        assert texts((await bus.fetch(earlier)).messages) == ["three", "four"]
        assert texts((await bus.fetch(None)).messages) == ["one", "two", "three", "four"]


async def test_a_restarted_daemon_reads_on_from_its_stored_position(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one", "two")
        stored = (await bus.fetch(None)).position
        await publish(bus, "three")
    async with bus_with_stream(url) as bus:
        batch = await bus.fetch(stored)

        assert texts(batch.messages) == ["three"]
        assert not batch.reset


async def test_order_and_exactly_once_across_kill_9_in_the_middle_of_fetches(tmp_path: Path) -> None:
    count, published = 600, anyio.Event()
    async with running_server(tmp_path) as server, bus_with_stream(server.url) as bus:
        received: list[BusMessage] = []

        async def publish_all() -> None:
            for number in range(count):
                await publish_until_taken(bus, number)
            published.set()

        async def read_all() -> None:
            after: BusPosition | None = None
            while len(received) < count:
                batch = await bus.fetch(after)
                received.extend(batch.messages)
                after = batch.position
                assert not batch.reset
                await bus.acknowledge(batch)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(publish_all)
                tasks.start_soon(read_all)
                await wait_until(lambda: len(received) > 50)
                await server.restart()
                await wait_until(lambda: len(received) > 300)
                await server.restart()
        rest = await bus.fetch(BusPosition("MEMFOREST", await epoch_of(bus), received[-1].stream_seq))

    sequences = [message.stream_seq for message in received]
    assert published.is_set()
    assert texts(received) == [str(number) for number in range(count)]
    assert sequences == sorted(set(sequences))
    assert rest.messages == ()


async def publish_until_taken(bus: NatsBus, number: int) -> None:
    """A publisher that retries with its Nats-Msg-Id, as rule I5 asks for."""
    while True:
        try:
            await bus.publish(TURNS, str(number).encode(), {"Nats-Msg-Id": str(number)}, timeout_s=1)
            return
        except BusUnavailable:
            await anyio.sleep(0.05)


async def epoch_of(bus: NatsBus) -> str:
    position = (await bus.fetch(None)).position
    assert position is not None
    return position.epoch


async def test_a_clean_restart_loses_and_repeats_nothing(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, bus_with_stream(server.url) as bus:
        await publish(bus, "one", "two")
        before = await bus.fetch(None)
        await server.stop()
        await server.start()
        await wait_until(lambda: bus.state == "up")
        await publish(bus, "three")

        assert texts(await fetch_all(bus, before.position, 1)) == ["three"]


async def test_messages_that_are_delivered_again_are_dropped(url: str) -> None:
    reported = Reported()
    async with bus_with_stream(url, ack_wait_s=0.2, report=reported) as bus:
        await publish(bus, "one", "two")
        unacknowledged = await bus.fetch(None)
        # The server waits 0.2 s for the acknowledgement, then gives this fetch the two again.
        again = await bus.fetch(unacknowledged.position)
        await publish(bus, "three")
        received = await fetch_all(bus, again.position, 1)

    assert texts(unacknowledged.messages) == ["one", "two"]
    assert again.messages == ()
    assert again.position == unacknowledged.position
    assert texts(received) == ["three"]
    assert {"seq": 2, "reason": "redelivered"} in reported.fields("bus.consumer_dropped")


async def test_an_acknowledged_batch_is_not_pending_at_the_server(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one", "two")
        batch = await bus.fetch(None)
        await bus.acknowledge(batch)
        await bus.acknowledge(batch)
        await bus.publish(TURNS, b"three")  # its answer comes after the server saw the acknowledgements
        client = await nats.connect(url)
        consumers = await client.jetstream().consumers_info("MEMFOREST")
        await client.close()

        assert [consumer.num_ack_pending for consumer in consumers] == [0]


async def test_a_cancelled_fetch_loses_nothing(url: str) -> None:
    async with bus_with_stream(url) as bus:
        start = (await bus.fetch(None)).position
        for _ in range(3):
            with anyio.move_on_after(0.05):
                await bus.fetch(start)
        await publish(bus, "one", "two")

        assert texts(await fetch_all(bus, start, 2)) == ["one", "two"]


async def test_a_batch_is_bounded_in_messages_and_in_bytes(url: str) -> None:
    async with bus_with_stream(url) as bus:
        big = os.urandom(1_000_000)
        for _ in range(40):
            await bus.publish(TURNS, big)
        async with anyio.create_task_group() as tasks:
            for number in range(BATCH_MAX + 10):
                tasks.start_soon(bus.publish, TURNS, str(number).encode())
        first = await bus.fetch(None)
        received = await fetch_all(bus, first.position, 50 + BATCH_MAX - len(first.messages))

        assert 20 < len(first.messages) <= BATCH_BYTES_MAX // len(big)
        assert [message.stream_seq for message in received][-1] == 50 + BATCH_MAX


async def test_a_publishers_status_header_is_not_taken_for_the_servers(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await bus.publish(TURNS, b"", {"Status": "503", "Description": "Consumer Deleted"})
        await publish(bus, "after")

        assert texts((await bus.fetch(None)).messages) == ["", "after"]


async def test_a_stream_that_was_made_again_begins_a_new_epoch(url: str) -> None:
    reported = Reported()
    async with bus_with_stream(url, report=reported) as bus:
        await publish(bus, "old one", "old two")
        old = (await bus.fetch(None)).position
        client = await nats.connect(url)
        await client.jetstream().delete_stream("MEMFOREST")
        await client.close()
        await bus.create_stream()
        await publish(bus, "new one", "new two", "new three")
        batch = await read_until_messages(bus, old)

        assert texts(batch.messages) == ["new one", "new two", "new three"]
        assert batch.reset
        assert old is not None
        assert batch.position is not None
        assert batch.position.epoch != old.epoch
        assert batch.position.seq == 3
        assert not (await bus.fetch(batch.position)).reset
        assert len(reported.fields("bus.epoch_changed")) == 1


async def read_until_messages(bus: NatsBus, after: BusPosition | None) -> Batch:
    """The first batch with messages; a consumer that went with its stream costs an empty one."""
    with anyio.fail_after(10):
        while True:
            batch = await bus.fetch(after)
            if batch.messages:
                return batch


async def test_a_stream_with_less_than_was_read_begins_a_new_epoch(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one", "two")
        position = (await bus.fetch(None)).position
        assert position is not None
        rolled_back = await bus.fetch(BusPosition(position.stream, position.epoch, 7))

        assert rolled_back.reset
        assert rolled_back.position == BusPosition("MEMFOREST", f"{position.epoch}#1", 2)
        assert texts(rolled_back.messages) == ["one", "two"]


async def test_messages_that_expired_unread_are_reported(url: str) -> None:
    reported = Reported()
    async with bus_with_stream(url, report=reported) as bus:
        await publish(bus, "one", "two", "three")
        position = (await bus.fetch(None)).position
        assert position is not None
        client = await nats.connect(url)
        await client.jetstream().purge_stream("MEMFOREST", seq=3)
        await client.close()
        batch = await bus.fetch(BusPosition(position.stream, position.epoch, 1))

        assert texts(batch.messages) == ["three"]
        assert not batch.reset
        assert reported.fields("bus.messages_expired") == [{"first_seq": 3, "seq_before": 1}]


def delivery(*, consumer_seq: int, stream_seq: int, num_delivered: int) -> Msg.Metadata:
    reply = f"$JS.ACK.MEMFOREST.c.{num_delivered}.{stream_seq}.{consumer_seq}.1700000000000000000.0"
    return Msg(None, reply=reply).metadata  # type: ignore[arg-type]  # no client is needed to read a reply


@pytest.mark.parametrize(
    ("consumer_seq", "stream_seq", "num_delivered", "doubt"),
    [
        (5, 11, 1, None),
        (5, 90, 1, None),  # messages between were deleted or are of other subjects
        (5, 11, 2, "redelivered"),
        (6, 11, 1, "gap in the deliveries"),
        (4, 11, 1, "gap in the deliveries"),
        (5, 10, 1, "out of order"),
        (5, 3, 1, "out of order"),
    ],
)
def test_only_the_message_that_follows_is_accepted(
    consumer_seq: int, stream_seq: int, num_delivered: int, doubt: str | None
) -> None:
    arrived = delivery(consumer_seq=consumer_seq, stream_seq=stream_seq, num_delivered=num_delivered)

    assert doubt_about(arrived, consumer_seq=4, stream_seq=10) == doubt


@pytest.mark.parametrize(
    ("after", "start", "reset"),
    [
        (None, ("S", "t1", 0), False),
        (("S", "t1", 5), ("S", "t1", 5), False),
        (("S", "t1", 9), ("S", "t1", 9), False),
        (("S", "t1", 10), ("S", "t1#1", 0), True),
        (("S", "t1#1", 5), ("S", "t1#1", 5), False),
        (("S", "t1#1", 10), ("S", "t1#2", 0), True),
        (("S", "t0", 5), ("S", "t1", 0), True),
        (("S", "t0#3", 5), ("S", "t1", 0), True),
        (("T", "t1", 5), ("S", "t1", 0), True),
    ],
)
def test_reading_starts_where_the_stored_position_says_unless_the_stream_is_another(
    after: tuple[str, str, int] | None, start: tuple[str, str, int], reset: bool
) -> None:
    stored = None if after is None else BusPosition(*after)

    assert start_position(stored, "S", created="t1", last_seq=9) == (BusPosition(*start), reset)
