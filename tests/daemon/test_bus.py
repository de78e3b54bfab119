"""The bus and a real nats-server that is away, silent, moved, or without a stream we can read (rules I3-I11)."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from pathlib import Path

import anyio
import nats
import pytest
from nats.js.api import RetentionPolicy

from daemon.bus.bus_messages import Batch, BusUnavailable, PublishOutcomeUnknown
from daemon.bus.nats_bus import NatsBus
from events.errors import InvalidInput
from tests.bus_in_use import (
    TURNS,
    Reported,
    bus_with_stream,
    fetch_all,
    publish,
    running_bus,
    texts,
    unattended_server,
)
from tests.nats_server import running_server
from tests.waiting import wait_until


@pytest.fixture
async def url(tmp_path: Path) -> AsyncGenerator[str, None]:
    async with unattended_server(tmp_path / "nats") as url:
        yield url


async def test_without_a_server_a_fetch_is_empty_and_soon_back_and_later_it_recovers(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server:
        async with bus_with_stream(server.url) as bus:
            await publish(bus, "one")
        await server.kill()
        async with running_bus(NatsBus(server.url)) as bus:
            with anyio.fail_after(10):
                batch = await bus.fetch(None)

            assert batch == Batch((), None, reset=False)
            assert bus.state == "down"
            assert "Connect call failed" in bus.reason

            await server.start()
            received = await fetch_all(bus, None, 1)

            assert texts(received) == ["one"]
            assert (bus.state, bus.reason) == ("up", "")


async def test_a_server_that_goes_away_is_noticed(tmp_path: Path) -> None:
    reported = Reported()
    async with running_server(tmp_path) as server, bus_with_stream(server.url, report=reported) as bus:
        await server.kill()
        await wait_until(lambda: reported.fields("bus.state_changed")[-1]["state"] == "down")
        with pytest.raises(BusUnavailable, match="not published") as refusal:
            await bus.publish(TURNS, b"one")
        with pytest.raises(BusUnavailable):
            await bus.stream_state()
        with pytest.raises(BusUnavailable):
            await bus.create_stream()

        assert refusal.value.code == "unavailable"
        assert not isinstance(refusal.value, PublishOutcomeUnknown)
        assert bus.state == "down"


async def test_a_missing_stream_is_said_so_and_never_made_by_reading(url: str) -> None:
    async with running_bus(NatsBus(url)) as bus:
        await wait_until(lambda: bus.state == "no stream")
        batch = await bus.fetch(None)
        with pytest.raises(BusUnavailable):
            await bus.stream_state()
        with pytest.raises(BusUnavailable, match="no stream takes this subject"):
            await bus.publish(TURNS, b"one")

        assert batch == Batch((), None, reset=False)
        assert bus.state == "no stream"
        assert bus.reason == "there is no stream MEMFOREST"


async def test_a_stream_that_appears_is_read(url: str) -> None:
    async with running_bus(NatsBus(url)) as reader, bus_with_stream(url) as other:
        await publish(other, "one")

        assert texts(await fetch_all(reader, None, 1)) == ["one"]
        assert reader.state == "up"


async def test_making_the_stream_twice_makes_one_bounded_stream(url: str) -> None:
    async with bus_with_stream(url) as bus:
        await publish(bus, "one")
        await bus.create_stream()
        numbers = await bus.stream_state()
        client = await nats.connect(url)
        made = (await client.jetstream().stream_info("MEMFOREST")).config
        await client.close()

        assert (numbers.messages, numbers.first_seq, numbers.last_seq) == (1, 1, 1)
        assert numbers.bytes > 0
        assert made.subjects == ["memforest.turns.>", "memforest.control.>"]
        assert made.retention == RetentionPolicy.LIMITS
        assert (made.max_age, made.max_bytes, made.duplicate_window) == (7 * 86400, 1024**3, 120)


@pytest.mark.parametrize("retention", [RetentionPolicy.WORK_QUEUE, RetentionPolicy.INTEREST])
async def test_a_stream_that_forgets_what_was_read_is_refused(url: str, retention: RetentionPolicy) -> None:
    client = await nats.connect(url)
    await client.jetstream().add_stream(name="MEMFOREST", subjects=["memforest.>"], retention=retention)
    await client.close()
    async with running_bus(NatsBus(url)) as bus:
        await wait_until(lambda: bus.state == "no stream")
        batch = await bus.fetch(None)

        assert batch.messages == ()
        assert f"{retention.value} retention" in bus.reason
        assert "limits" in bus.reason


async def test_a_repetition_with_the_same_id_is_recognised_by_the_bus(url: str) -> None:
    async with bus_with_stream(url) as bus:
        first = await bus.publish(TURNS, b"one", {"Nats-Msg-Id": "m-1"})
        second = await bus.publish(TURNS, b"one", {"Nats-Msg-Id": "m-1"})

        assert (first.stream, first.seq, first.duplicate) == ("MEMFOREST", 1, False)
        assert (second.seq, second.duplicate) == (1, True)


async def test_what_the_bus_can_never_take_is_the_publishers_fault(url: str) -> None:
    async with bus_with_stream(url) as bus:
        with pytest.raises(InvalidInput, match="1048576"):
            await bus.publish(TURNS, b"x" * (1024 * 1024 + 1))
        with pytest.raises(InvalidInput, match="1048576"):
            await bus.publish(TURNS, b"x" * (1024 * 1024 - 20), {"Nats-Msg-Id": "m-1"})
        with pytest.raises(InvalidInput):
            await bus.publish("memforest.turns.a b", b"x")
        with pytest.raises(InvalidInput):
            await bus.publish(TURNS, b"x", {"a key\r\n": "x"})
        largest = 1024 * 1024 - len("NATS/1.0\r\nNats-Msg-Id: m-1\r\n\r\n")
        await bus.publish(TURNS, b"x" * largest, {"Nats-Msg-Id": "m-1"})

        assert bus.state == "up"
        assert (await bus.stream_state()).messages == 1


async def test_a_silent_server_leaves_the_outcome_unknown(tmp_path: Path) -> None:
    async with running_server(tmp_path) as server, bus_with_stream(server.url) as bus:
        position = (await bus.fetch(None)).position
        await server.pause()
        with pytest.raises(PublishOutcomeUnknown) as unknown:
            await bus.publish(TURNS, b"one", timeout_s=0.2)
        with anyio.fail_after(8):
            silent = await bus.fetch(position)
            await bus.fetch(position)
        state, reason = bus.state, bus.reason
        server.resume()
        received = await fetch_all(bus, position, 1)

        assert unknown.value.code == "unavailable"
        assert silent.messages == ()
        assert (state, reason) == ("down", "the server does not answer")
        assert texts(received) == ["one"]
        assert bus.state == "up"


async def test_a_server_that_moved_is_found_again(tmp_path: Path) -> None:
    async with running_server(tmp_path / "a") as old, running_server(tmp_path / "b") as new:
        current = [old]
        bus = NatsBus(lambda: current[0].url, lost_for_s=0.3)
        async with running_bus(bus):
            await wait_until(lambda: bus.state == "no stream")
            current[0] = new
            await old.kill()
            await wait_until(lambda: bus.state == "down")
            await wait_until(lambda: bus.state == "no stream")


@pytest.mark.parametrize("server_is_up", [True, False])
async def test_nothing_is_left_running_after_cancelling(tmp_path: Path, server_is_up: bool) -> None:
    async with running_server(tmp_path) as server:
        before = asyncio.all_tasks()
        if not server_is_up:
            await server.kill()
        async with running_bus(NatsBus(server.url)) as bus:
            await bus.fetch(None)
        with anyio.move_on_after(0):
            await bus.close()

        await wait_until(lambda: asyncio.all_tasks() <= before)
        assert bus.state == "down"


async def test_unreadable_credentials_are_a_reason_not_a_crash(url: str, tmp_path: Path) -> None:
    async with running_bus(NatsBus(url, credentials=tmp_path / "missing.creds")) as bus:
        await bus.fetch(None)

        assert bus.state == "down"
        assert bus.reason != "not connected yet"
