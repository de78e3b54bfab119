"""The bus as one who knows what was forgotten: asked before a backup is restored, by whoever restores it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path

import anyio
import pytest

from daemon.bus.embedded_bus import EMBEDDED_BUS_FOLDER, EmbeddedBus, end_leftover, free_port
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import TombstoneBucket, TombstonesUnreadable, bucket_name
from daemon.bus.tombstone_sources import NoSource, ask_bus
from daemon.config import Config, read_config
from events.tombstones import Tombstone
from tests.builders import KEYS
from tests.nats_server import OutsideServer, running_server
from tests.waiting import wait_until

ALICE = KEYS.user("alice")
KNOWN = (Tombstone(KEYS.session("alice", "s1"), ALICE, 5), Tombstone(None, KEYS.user("bob"), 7))


@pytest.fixture
async def server(tmp_path: Path) -> AsyncGenerator[OutsideServer]:
    async with running_server(tmp_path / "nats") as server:
        yield server


@asynccontextmanager
async def connected_to(url: str) -> AsyncGenerator[NatsBus]:
    bus = NatsBus(url)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.run)
        await wait_until(lambda: bus.state != "down")
        yield bus
        tasks.cancel_scope.cancel()


async def make_bucket(url: str) -> None:
    """A bucket that knows of KNOWN."""
    async with connected_to(url) as bus:
        bucket = TombstoneBucket(bus, bucket_name(bus.stream))
        await bucket.create()
        for each in KNOWN:
            await bucket.put(each)


def config_for(folder: Path, **keys: str) -> Config:
    return read_config(None, {"MEMFOREST_DATA_DIR": str(folder), **keys})


async def test_the_bucket_on_the_bus_is_a_source(server: OutsideServer, tmp_path: Path) -> None:
    await make_bucket(server.url)
    answer = await ask_bus(config_for(tmp_path, MEMFOREST_BUS_URL=server.url))

    assert answer.name == "bus"
    assert set(answer.tombstones) == set(KNOWN)


async def test_a_bus_without_a_bucket_is_no_source(server: OutsideServer, tmp_path: Path) -> None:
    with pytest.raises(NoSource, match="bucket"):
        await ask_bus(config_for(tmp_path, MEMFOREST_BUS_URL=server.url))


async def test_a_bus_that_is_down_is_no_source(tmp_path: Path) -> None:
    with pytest.raises(NoSource, match="the bus cannot tell"):
        await ask_bus(config_for(tmp_path, MEMFOREST_BUS_URL=f"nats://127.0.0.1:{free_port()}"), within_s=0.5)


async def test_a_bucket_with_something_else_in_it_is_no_answer(server: OutsideServer, tmp_path: Path) -> None:
    await make_bucket(server.url)
    async with connected_to(server.url) as bus:
        await bus.publish(f"$KV.{bucket_name(bus.stream)}.session.{bytes(16).hex()}", b"no tombstone")

    with pytest.raises(TombstonesUnreadable):
        await ask_bus(config_for(tmp_path, MEMFOREST_BUS_URL=server.url))


async def test_the_embedded_bus_is_started_for_the_question_and_ended_again(tmp_path: Path) -> None:
    config = config_for(tmp_path, MEMFOREST_BUS_EMBEDDED="true")
    with pytest.raises(NoSource, match="no store yet"):
        await ask_bus(config)
    embedded = EmbeddedBus(tmp_path / EMBEDDED_BUS_FOLDER)
    await embedded.start()
    await make_bucket(embedded.url)
    await embedded.stop()
    answer = await ask_bus(config)

    assert set(answer.tombstones) == set(KNOWN)
    assert not await end_leftover(tmp_path / EMBEDDED_BUS_FOLDER)  # nothing runs there any more
