"""Erasing from the bus: the bytes of a real nats-server's files, and what stands in the way (rule D7)."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import nats
import pytest
from nats.aio.client import Client

from daemon.bus.bus_erasure import BusEraser, BusErasure, is_foreign, obstacle_of
from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.embedded_bus import LOOPBACK
from daemon.bus.jetstream_api import API_TIMEOUT_S, StreamConfiguration
from daemon.bus.nats_bus import NatsBus
from events.envelope import BusPosition
from tests.bus_in_use import TURNS, bus_with_stream, fetch_all, publish, running_bus
from tests.nats_rights import server_denying
from tests.nats_server import OutsideServer, running_server
from tests.waiting import wait_until

DAY_MS = 24 * 3600 * 1000
MAX_AGE_S = 3600


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[OutsideServer, None]:
    async with running_server(tmp_path / "nats") as server:
        yield server


@asynccontextmanager
async def stream_with(url: str, *contents: str, **configuration: object) -> AsyncGenerator[NatsBus, None]:
    """A running bus on a stream of this configuration, with these messages in it."""
    await make_stream(url, "MEMFOREST", **configuration)
    async with running_bus(NatsBus(url)) as bus:
        await wait_until(lambda: bus.state == "up")
        await publish(bus, *contents)
        yield bus


async def make_stream(url: str, name: str, **configuration: object) -> None:
    await call(url, f"STREAM.CREATE.{name}", {"name": name, "subjects": ["memforest.>"], **configuration})


async def call(url: str, name: str, request: object) -> dict[str, dict[str, int]]:
    """One call of the API over a connection of its own."""
    client = await nats.connect(url)
    try:
        return await call_on(client, name, request)
    finally:
        await client.close()


async def call_on(client: Client, name: str, request: object) -> dict[str, dict[str, int]]:
    answer = await client.request(f"$JS.API.{name}", json.dumps(request).encode(), timeout=5)
    reply: dict[str, dict[str, int]] = json.loads(answer.data)
    assert "error" not in reply, reply
    return reply


async def read_positions(bus: NatsBus, count: int) -> list[BusPosition]:
    """Where the first messages stand; the last position is the checkpoint of a reader that read them all."""
    checkpoint = (await bus.fetch(None)).position
    assert checkpoint is not None
    return [
        BusPosition(message.stream, checkpoint.epoch, message.stream_seq)
        for message in await fetch_all(bus, None, count)
    ]


async def holds(bus: NatsBus) -> int:
    return (await bus.stream_state()).messages


def markers(numbers: Iterable[int]) -> list[str]:
    return [f"marker-{number:04}-of-a-secret" for number in numbers]


def files_with(folder: Path, texts: Iterable[str]) -> dict[str, list[str]]:
    """Which files under a folder hold which of these texts."""
    contents = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
    found = {name: [text for text in texts if text.encode() in content] for name, content in contents.items()}
    return {name: there for name, there in found.items() if there}


def texts_in(folder: Path, texts: Iterable[str]) -> set[str]:
    return {text for there in files_with(folder, texts).values() for text in there}


async def test_fifty_erased_messages_are_in_no_file_of_the_server_and_the_others_are(
    server: OutsideServer,
) -> None:
    forgotten, kept = markers(range(0, 100, 2)), markers(range(1, 100, 2))
    async with stream_with(server.url, *markers(range(100))) as bus:
        positions = await read_positions(bus, 100)
        before = texts_in(server.folder, forgotten)
        erasure = await BusEraser(bus).erase(positions[0::2], positions[-1])
        after = files_with(server.folder, forgotten)
        remaining = await holds(bus)
    await server.kill()
    after_kill = files_with(server.folder, forgotten)
    await server.start()
    await server.stop()

    assert before == set(forgotten)
    assert after == after_kill == files_with(server.folder, forgotten) == {}
    assert texts_in(server.folder, kept) == set(kept)
    assert remaining == 50
    assert erasure == BusErasure(50, 0, 0, 0, None, None, erasure.done)
    assert sorted(position.seq for position in erasure.done) == list(range(1, 101, 2))


async def test_what_is_deleted_without_overwriting_is_found_in_the_files(server: OutsideServer) -> None:
    """The control: the search above can fail. The server's own removal by subject leaves the bytes."""
    removed = markers(range(50))
    async with stream_with(server.url, *removed, "the last") as bus:
        await call(server.url, "STREAM.PURGE.MEMFOREST", {"keep": 1})
        remaining = await holds(bus)

        assert remaining == 1
        assert texts_in(server.folder, removed) == set(removed)


async def test_an_emptied_stream_keeps_counting_so_that_it_does_not_look_rolled_back(
    server: OutsideServer,
) -> None:
    async with stream_with(server.url, *markers(range(3))) as bus:
        positions = await read_positions(bus, 3)
        erasure = await BusEraser(bus).erase(positions, positions[-1])
        await server.kill()
        await wait_until(lambda: bus.state == "down")
        await server.start()
        await wait_until(lambda: bus.state == "up")
        await publish(bus, "next")
        batch = await bus.fetch(positions[-1])

        assert erasure.erased == 3
        assert files_with(server.folder, markers(range(3))) == {}
        assert [message.stream_seq for message in batch.messages] == [4]
        assert not batch.reset


async def test_what_is_not_there_any_more_is_gone_and_never_tried_again(server: OutsideServer) -> None:
    async with stream_with(server.url, "one", "two", "three", "four", max_msgs=4) as bus:
        positions = await read_positions(bus, 4)
        await publish(bus, "five")  # and the first falls out
        await call(server.url, "STREAM.MSG.DELETE.MEMFOREST", {"seq": 2})
        first = await BusEraser(bus).erase([*positions, *positions], positions[-1])
        second = await BusEraser(bus).erase(positions, positions[-1])

        assert (first.erased, first.gone, first.left) == (2, 2, 0)
        assert (second.erased, second.gone, second.left) == (0, 4, 0)
        assert set(first.done) == set(second.done) == set(positions)
        assert await holds(bus) == 1


async def test_no_positions_need_no_server(tmp_path: Path) -> None:
    bus = NatsBus(f"nats://{LOOPBACK}:1")

    assert await BusEraser(bus).erase((), None) == BusErasure(0, 0, 0, 0, None, None, ())


async def test_a_compressed_stream_is_refused_and_it_is_said_when_all_is_expired(server: OutsideServer) -> None:
    limits = {"compression": "s2", "max_age": MAX_AGE_S * 10**9}
    async with stream_with(server.url, "one", "two", "three", **limits) as bus:
        messages = await fetch_all(bus, None, 3)
        positions = await read_positions(bus, 3)
        erasure = await BusEraser(bus).erase(positions[:2], positions[-1])

        assert (erasure.left, erasure.erased, erasure.gone, erasure.done) == (2, 0, 0, ())
        assert "compressed (s2)" in (erasure.reason or "")
        assert erasure.left_until is not None
        assert abs(erasure.left_until - (messages[1].published_at + MAX_AGE_S * 1000)) <= 1
        assert await holds(bus) == 3


async def test_a_stream_that_denies_deletion_and_keeps_for_ever_is_left_without_an_end(
    server: OutsideServer,
) -> None:
    async with stream_with(server.url, "one", "two", deny_delete=True) as bus:
        positions = await read_positions(bus, 2)
        erasure = await BusEraser(bus).erase(positions, positions[-1])

        assert (erasure.left, erasure.left_until, erasure.done) == (2, None, ())
        assert "deny deletion" in (erasure.reason or "")
        assert await holds(bus) == 2


@pytest.mark.parametrize(
    ("epoch", "seq", "checkpoint", "foreign"),
    [
        ("A", 3, BusPosition("S", "A", 9), False),
        ("A", 12, BusPosition("S", "A", 9), False),
        ("A#1", 3, BusPosition("S", "A#1", 9), False),
        # Rolled back: the number was read again in the new epoch, or not yet.
        ("A", 9, BusPosition("S", "A#1", 9), True),
        ("A", 10, BusPosition("S", "A#1", 9), False),
        ("A#1", 3, BusPosition("S", "A#2", 9), True),
        # Made again: another store.
        ("A", 3, BusPosition("S", "B", 9), True),
        ("A#1", 30, BusPosition("S", "B", 9), True),
    ],
)
def test_a_position_of_an_epoch_that_is_over_is_skipped_only_when_nothing_can_be_missed(
    epoch: str, seq: int, checkpoint: BusPosition, foreign: bool
) -> None:
    assert is_foreign(BusPosition("S", epoch, seq), checkpoint) is foreign


async def test_at_a_number_that_an_older_epoch_used_nothing_is_deleted(server: OutsideServer) -> None:
    async with stream_with(server.url, "one", "two", "three", "four") as bus:
        now = await read_positions(bus, 4)
        rolled_back = BusPosition("MEMFOREST", f"{now[0].epoch}#1", 3)
        older = [BusPosition("MEMFOREST", "2020-01-01T00:00:00Z", 1), *now]
        erasure = await BusEraser(bus).erase(older, rolled_back)

        # The fourth is not read again yet: its words may stand there.
        assert (erasure.foreign, erasure.left, erasure.erased, erasure.gone) == (4, 1, 0, 0)
        assert set(erasure.done) == set(older[:-1])
        assert "not been read again" in (erasure.reason or "")
        assert await holds(bus) == 4


async def test_a_stream_that_was_made_again_is_not_touched_before_and_after_it_is_read(
    server: OutsideServer,
) -> None:
    async with stream_with(server.url, "old one", "old two") as bus:
        old = await read_positions(bus, 2)
        await call(server.url, "STREAM.DELETE.MEMFOREST", {})
        with pytest.raises(BusUnavailable, match="stream not found"):
            await BusEraser(bus).erase(old, old[-1])
        await make_stream(server.url, "MEMFOREST")
        await publish(bus, "new one", "new two")
        with pytest.raises(BusUnavailable, match="made again or rolled back"):
            await BusEraser(bus).erase(old, old[-1])
        new = await read_positions(bus, 2)
        erasure = await BusEraser(bus).erase(old, new[-1])

        assert (erasure.foreign, erasure.erased, erasure.left) == (2, 0, 0)
        assert set(erasure.done) == set(old)
        assert await holds(bus) == 2


async def test_a_rollback_that_was_not_read_yet_is_refused(server: OutsideServer) -> None:
    async with stream_with(server.url, "one", "two") as bus:
        positions = await read_positions(bus, 2)
        ahead = BusPosition("MEMFOREST", positions[0].epoch, 7)
        for checkpoint in (ahead, None):
            with pytest.raises(BusUnavailable, match="not read since"):
                await BusEraser(bus).erase(positions, checkpoint)

        assert await holds(bus) == 2


async def test_a_stream_that_is_not_read_any_more_is_left_or_gone(server: OutsideServer) -> None:
    async with stream_with(server.url, "one") as bus:
        checkpoint = (await read_positions(bus, 1))[0]
    await call(server.url, "STREAM.UPDATE.MEMFOREST", {"name": "MEMFOREST", "subjects": ["other"]})
    async with running_bus(NatsBus(server.url, stream_name="NEXT")) as bus:
        await wait_until(lambda: bus.state != "down")
        await bus.create_stream()
        there = await BusEraser(bus).erase([checkpoint], None)
        await call(server.url, "STREAM.DELETE.MEMFOREST", {})
        removed = await BusEraser(bus).erase([checkpoint], None)

    assert (there.left, there.reason) == (1, "MEMFOREST is not read any more; erase it there or remove it")
    assert (removed.gone, removed.done) == (1, (checkpoint,))


async def test_a_server_that_goes_away_half_way_is_said_so_and_the_second_call_finishes(
    server: OutsideServer,
) -> None:
    count = 500
    async with bus_with_stream(server.url) as bus:
        for marker in markers(range(count)):
            await bus.publish(TURNS, marker.encode())
        positions = await read_positions(bus, count)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(erasing_fails, bus, positions)
            onlooker = await nats.connect(server.url, allow_reconnect=False)
            while (await call_on(onlooker, "STREAM.INFO.MEMFOREST", {}))["state"]["messages"] > count - 50:
                pass
            await server.kill()
            await onlooker.close()
        await erasing_fails(bus, positions)
        await server.start()
        await wait_until(lambda: bus.state == "up")
        second = await BusEraser(bus).erase(positions, positions[-1])

        assert second.erased > 0
        assert second.gone >= 50
        assert second.erased + second.gone == len(second.done) == count
        assert files_with(server.folder, markers(range(count))) == {}


async def erasing_fails(bus: NatsBus, positions: list[BusPosition]) -> None:
    with pytest.raises(BusUnavailable):
        await BusEraser(bus).erase(positions, positions[-1])


async def test_a_silent_server_is_no_denial(server: OutsideServer) -> None:
    async with stream_with(server.url, "one") as bus:
        positions = await read_positions(bus, 1)
        await server.pause()
        with pytest.raises(BusUnavailable, match="does not answer"):
            await BusEraser(bus).erase(positions, positions[-1])
        server.resume()

        assert (await BusEraser(bus).erase(positions, positions[-1])).done == tuple(positions)


async def test_without_the_right_to_delete_all_is_left_at_once(tmp_path: Path) -> None:
    async with server_denying(tmp_path, "$JS.API.STREAM.MSG.DELETE.>") as server:
        await make_stream(server.owner_url, "MEMFOREST", max_age=MAX_AGE_S * 10**9)
        async with running_bus(NatsBus(server.reader_url)) as bus:
            await wait_until(lambda: bus.state == "up")
            await publish(bus, *map(str, range(100)))
            positions = await read_positions(bus, 100)
            await call(server.owner_url, "STREAM.MSG.DELETE.MEMFOREST", {"seq": 7})
            newest = (await fetch_all(bus, None, 99))[-1].published_at
            with anyio.fail_after(API_TIMEOUT_S):
                erasure = await BusEraser(bus).erase(positions, positions[-1])

            assert (erasure.left, erasure.erased) == (99, 0)
            # It may still look, so it knows this one, and how old the others are.
            assert erasure.done == (positions[6],)
            assert erasure.reason == "our user has no right to $JS.API.STREAM.MSG.DELETE.MEMFOREST"
            assert erasure.left_until is not None
            assert abs(erasure.left_until - (newest + MAX_AGE_S * 1000)) <= 1
            assert bus.state == "up"


async def test_what_we_may_delete_and_not_look_at_is_left(tmp_path: Path) -> None:
    async with server_denying(tmp_path, "$JS.API.STREAM.MSG.GET.>") as server:
        await make_stream(server.owner_url, "MEMFOREST", max_age=DAY_MS * 10**6)
        async with running_bus(NatsBus(server.reader_url)) as bus:
            await wait_until(lambda: bus.state == "up")
            await publish(bus, *map(str, range(40)))
            messages = await fetch_all(bus, None, 40)
            positions = await read_positions(bus, 40)
            with anyio.fail_after(API_TIMEOUT_S):
                erasure = await BusEraser(bus).erase(positions, positions[-1])

            assert (erasure.left, erasure.done) == (40, ())
            assert "may not look" in (erasure.reason or "")
            assert erasure.left_until is not None
            assert erasure.left_until > messages[-1].published_at + DAY_MS
            assert await holds(bus) == 0


@pytest.mark.parametrize(
    ("configuration", "reason"),
    [
        (StreamConfiguration(), None),
        (StreamConfiguration(compression=""), None),
        (StreamConfiguration(compression="s2"), "S is compressed (s2), deleting leaves the bytes in its files"),
        (StreamConfiguration(deny_delete=True), "S is configured to deny deletion"),
    ],
)
def test_which_streams_cannot_be_erased_from(configuration: StreamConfiguration, reason: str | None) -> None:
    assert obstacle_of("S", configuration) == reason
