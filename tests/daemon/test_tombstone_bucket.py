"""The tombstone bucket on a real nats-server: kept over a restart, read in pages, clear when it is missing."""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import nats
import pytest

from daemon.bus.bus_messages import BusForbidden, BusMessage, BusUnavailable
from daemon.bus.jetstream import BATCH_MAX
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import (
    BucketMissing,
    TombstoneBucket,
    TombstonesUnreadable,
    read_tombstone,
)
from events.errors import InvalidInput
from events.tombstones import Tombstone
from tests.bus_in_use import running_bus
from tests.nats_rights import server_denying
from tests.nats_server import OutsideServer, running_server
from tests.waiting import wait_until

USER = bytes(range(16))
SESSION = bytes(range(16, 32))
NOW = 1_700_000_000_123
IN_FLIGHT = 32


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[OutsideServer, None]:
    async with running_server(tmp_path / "nats") as server:
        yield server


@asynccontextmanager
async def connected(url: str) -> AsyncGenerator[NatsBus, None]:
    """A running bus without a stream: the bucket needs none."""
    async with running_bus(NatsBus(url)) as bus:
        await wait_until(lambda: bus.state != "down")
        yield bus


def a_tombstone(number: int) -> Tombstone:
    session = None if number % 10 == 0 else number.to_bytes(16, "big")
    return Tombstone(session, (number // 10).to_bytes(16, "big"), NOW + number)


async def put_all(bucket: TombstoneBucket, tombstones: Sequence[Tombstone]) -> None:
    waiting = iter(tombstones)

    async def put_some() -> None:
        for tombstone in waiting:
            await bucket.put(tombstone)

    async with anyio.create_task_group() as tasks:
        for _ in range(IN_FLIGHT):
            tasks.start_soon(put_some)


async def test_three_thousand_tombstones_survive_a_restart_of_the_server(server: OutsideServer) -> None:
    tombstones = [a_tombstone(number) for number in range(3000)]
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        await put_all(bucket, tombstones)
        before = await bucket.read_all()
        await server.restart()
        await wait_until(lambda: bus.state == "no stream")
        after = await bucket.read_all()

    assert len(tombstones) > BATCH_MAX
    assert len(before) == len(after) == 3000
    assert set(before) == set(after) == set(tombstones)


async def test_a_bucket_that_is_made_twice_keeps_what_it_has(server: OutsideServer) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        empty = await bucket.read_all()
        await bucket.put(Tombstone(SESSION, USER, NOW))
        await bucket.create()

        assert empty == ()
        assert await bucket.read_all() == (Tombstone(SESSION, USER, NOW),)


async def test_a_session_and_its_user_have_a_tombstone_each_and_the_last_one_counts(server: OutsideServer) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        for tombstone in (Tombstone(SESSION, USER, NOW), Tombstone(None, USER, NOW + 1)):
            await bucket.put(tombstone)
            await bucket.put(tombstone)
        await bucket.put(Tombstone(SESSION, USER, NOW + 2))

        assert await bucket.read_all() == (Tombstone(None, USER, NOW + 1), Tombstone(SESSION, USER, NOW + 2))


async def test_it_is_an_ordinary_bucket_that_keeps_for_ever_and_holds_references_only(
    server: OutsideServer,
) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        await bucket.put(Tombstone(SESSION, USER, NOW))
        await bucket.put(Tombstone(None, USER, NOW))
        client = await nats.connect(server.url)
        seen = await client.jetstream().key_value("memforest")
        status = await seen.status()
        value = (await seen.get(f"session.{SESSION.hex()}")).value
        keys = await seen.keys()
        await client.close()

    assert (status.history, status.ttl) == (1, 0)
    assert status.stream_info.config.storage == "file"
    assert status.stream_info.config.discard == "new"
    assert json.loads(value or b"") == {"user": USER.hex(), "forgotten_at": NOW}
    assert sorted(keys) == [f"session.{SESSION.hex()}", f"user.{USER.hex()}"]


async def test_a_tombstone_that_an_operator_removed_is_not_read(server: OutsideServer) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        await bucket.put(Tombstone(SESSION, USER, NOW))
        await bucket.put(Tombstone(None, USER, NOW))
        client = await nats.connect(server.url)
        await (await client.jetstream().key_value("memforest")).delete(f"session.{SESSION.hex()}")
        await client.close()

        assert await bucket.read_all() == (Tombstone(None, USER, NOW),)


async def test_a_missing_bucket_is_said_so(server: OutsideServer) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        for attempt in (bucket.put(Tombstone(None, USER, NOW)), bucket.read_all()):
            with pytest.raises(BucketMissing, match="there is no key-value bucket memforest"):
                await attempt


async def test_a_bucket_whose_tombstones_expire_is_refused(server: OutsideServer) -> None:
    client = await nats.connect(server.url)
    await client.jetstream().create_key_value(bucket="memforest", ttl=60)
    await client.close()
    async with connected(server.url) as bus:
        with pytest.raises(BusUnavailable, match="lets tombstones go"):
            await TombstoneBucket(bus, "memforest").create()


async def test_what_is_no_tombstone_is_not_passed_over(server: OutsideServer) -> None:
    async with connected(server.url) as bus:
        bucket = TombstoneBucket(bus, "memforest")
        await bucket.create()
        await bucket.put(Tombstone(None, USER, NOW))
        await bus.publish("$KV.memforest.user.alice", b"{}")
        with pytest.raises(TombstonesUnreadable, match="message 2 of KV_memforest") as failure:
            await bucket.read_all()

        assert "alice" not in str(failure.value)


@pytest.mark.parametrize(
    ("key", "user", "value"),
    [
        (f"session.{SESSION.hex()}", USER.hex(), "1.5"),
        (f"session.{SESSION.hex()}", "zz", "1"),
        (f"session.{SESSION.hex()}", USER.hex()[2:], "1"),
        (f"session.{SESSION.hex()[2:]}", USER.hex(), "1"),
        (f"session.{SESSION.hex().upper()}", USER.hex(), "1"),
        (f"user.{SESSION.hex()}", USER.hex(), "1"),
        (f"other.{USER.hex()}", USER.hex(), "1"),
        ("session", USER.hex(), "1"),
    ],
)
def test_each_part_of_a_tombstone_is_checked(key: str, user: str, value: str) -> None:
    payload = f'{{"user": "{user}", "forgotten_at": {value}}}'.encode()
    message = BusMessage(f"$KV.b.{key}", payload, {}, "KV_b", 1, NOW)

    with pytest.raises(TombstonesUnreadable):
        read_tombstone(message, "$KV.b.")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "*", "größe"])
def test_a_name_that_no_bucket_can_have_is_the_callers_fault(name: str) -> None:
    with pytest.raises(InvalidInput):
        TombstoneBucket(NatsBus("nats://127.0.0.1:1"), name)


async def test_without_a_server_all_calls_say_so() -> None:
    bucket = TombstoneBucket(NatsBus("nats://127.0.0.1:1"), "memforest")
    for attempt in (bucket.create(), bucket.put(Tombstone(None, USER, NOW)), bucket.read_all()):
        with pytest.raises(BusUnavailable, match="the bus is down"):
            await attempt


@pytest.mark.parametrize(
    ("denied", "reason"),
    [
        ("$JS.API.STREAM.INFO.KV_memforest", "no right to .*STREAM.INFO.KV_memforest"),
        ("$JS.API.CONSUMER.CREATE.KV_memforest.>", "no right to read KV_memforest"),
    ],
)
async def test_a_bucket_that_we_may_not_read_is_said_so(tmp_path: Path, denied: str, reason: str) -> None:
    async with server_denying(tmp_path, denied) as server:
        async with connected(server.owner_url) as bus:
            await TombstoneBucket(bus, "memforest").create()
        async with connected(server.reader_url) as bus:
            with pytest.raises(BusForbidden, match=reason):
                await TombstoneBucket(bus, "memforest").read_all()


async def test_a_bucket_that_we_may_not_write_is_said_so(tmp_path: Path) -> None:
    async with server_denying(tmp_path, "$KV.memforest.>", "$JS.API.STREAM.CREATE.>") as server:
        async with connected(server.owner_url) as bus:
            await TombstoneBucket(bus, "memforest").create()
        async with connected(server.reader_url) as bus:
            bucket = TombstoneBucket(bus, "memforest")
            await bucket.create()
            with pytest.raises(BusForbidden, match="may not write to the bucket memforest"):
                await bucket.put(Tombstone(None, USER, NOW))

            assert await bucket.read_all() == ()
