"""The daemon as a whole, in this process: start, run and stop, and that nothing stays open behind it."""

from __future__ import annotations

import os
import tempfile
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.app import run, start, stop
from daemon.bus.embedded_bus import LOOPBACK, EmbeddedBusFailed, free_port
from daemon.config import Bus, Config, Data, MemTree
from daemon.lifecycle import DirectoryInUse
from daemon.serving.socket_server import SocketUnusable
from daemon.upkeep.verify import verify
from daemon.wiring import App
from events.errors import StoreUnusable
from events.log import LogReader
from memforest.client import AsyncClient
from tests.builders import a_turn as recorded_turn
from tests.bus_in_use import Reported
from tests.stored import stored_rows
from tests.system.daemon_process import until_built
from tests.waiting import wait_until


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a short name: a socket's path has 107 bytes."""
    with tempfile.TemporaryDirectory(prefix="mf-") as name:
        yield Path(name) / "data"


def a_config(folder: Path, *, embedded: bool = True) -> Config:
    bus = Bus(url=f"nats://{LOOPBACK}:{free_port()}", embedded=embedded)
    return Config(data=Data(str(folder)), bus=bus, memtree=MemTree(idle_s=600))


def open_files() -> set[str]:
    """What this process has open: files by name, pipes and sockets by number."""
    names: set[str] = set()
    for entry in os.listdir("/proc/self/fd"):
        try:
            names.add(f"{entry} {os.readlink(f'/proc/self/fd/{entry}')}")
        except OSError:
            continue
    return names


def threads() -> set[str]:
    """Threads of ours; anyio's workers are kept for the next call and end with the loop."""
    return {thread.name for thread in threading.enumerate() if "AnyIO worker" not in thread.name}


async def until_ended(names: set[str]) -> None:
    """A connection's thread is told to end and not waited for: return once no other thread is left."""
    await wait_until(lambda: threads() <= names, message="a thread is left behind")


@asynccontextmanager
async def running_app(config: Config, reported: Reported | None = None) -> AsyncGenerator[App, None]:
    """A daemon that answers; stopped on the way out as a signal does it."""
    app = await start(config, reported or Reported())
    stopping, started = anyio.Event(), anyio.Event()
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, app, stopping, started.set)
            await started.wait()
            try:
                yield app
            finally:
                stopping.set()
    finally:
        await stop(app)


def a_turn(content: str, turn_id: str) -> dict[str, object]:
    body = {"type": "turn", "user_id": "alice", "session_id": "s1", "role": "user", "content": content}
    return {**body, "id": turn_id, "timestamp": 1719824400}


async def test_what_is_sent_is_remembered_forgotten_and_verified(folder: Path) -> None:
    reported = Reported()
    async with running_app(a_config(folder), reported) as app, AsyncClient(app.socket.path) as client:
        await wait_until(lambda: app.bus.state == "up", timeout_s=20)
        turns = [a_turn("I moved to Miami.", "t1"), a_turn("I have a dog called Rex.", "t2")]
        published = await client.request("ingest", {"messages": turns})
        key = published["published"][1]["keys"][0]
        await client.request("sessions.close", {"user_id": "alice", "session_id": "s1"})
        answer = await client.request("query", {"user_id": "alice", "query": "Rex", "wait_for": key})
        await until_built(client, "alice")
        status = await client.request("status", {"user_id": "alice"})
        compacted = await client.request("units.compact", {"user_id": "alice"})
        receipt = await client.request("sessions.forget", {"user_id": "alice", "session_id": "s1"})
        after = await client.request("query", {"user_id": "alice", "query": "Rex"})

    assert "Rex" in answer["memories"][0]["text"]
    assert (status["bus"]["state"], status["bus"]["read_to"], status["bus"]["lag_messages"]) == ("up", 3, 0)
    assert (status["log"]["dead_letters"], status["worker"]["in_flight"], status["worker"]["parked"]) == (0, 0, 0)
    assert status["watermark"]["pending"] == 0
    assert compacted["facts"] >= 1
    assert (receipt["complete"], after["memories"]) == (True, [])
    log = await LogReader.open_to_read(folder / "events.db")
    verdicts = await verify(log, a_config(folder).memory_parameters, None)
    await log.close()
    assert [(verdict.compared, verdict.difference) for verdict in verdicts] == [(True, None)]
    assert reported.names()[-1] == "daemon.stopped"
    assert not any(word in str(reported.events) for word in ("Miami", "Rex"))


async def test_nothing_stays_open_after_a_stop(folder: Path) -> None:
    async with running_app(a_config(folder)):
        pass  # once before counting: libraries open things for good at their first use
    files, names = open_files(), threads()
    async with running_app(a_config(folder)) as app:
        path = app.socket.path
        mode = path.stat().st_mode & 0o777

    assert (mode, os.stat(folder).st_mode & 0o777) == (0o600, 0o700)
    assert not path.exists()
    assert open_files() - files == set()
    await until_ended(names)
    assert not (folder / "events.db-wal").exists() or (folder / "events.db-wal").stat().st_size == 0


async def test_it_answers_without_a_bus_and_says_so(folder: Path) -> None:
    config = a_config(folder, embedded=False)
    async with running_app(config) as app, AsyncClient(app.socket.path) as client:
        answer = await client.request("query", {"user_id": "alice", "query": "Rex"})
        status = await client.request("status", {})

    assert answer["memories"] == []
    assert (status["bus"]["state"], status["bus"]["lag_messages"]) == ("down", None)
    assert status["watermark"] is None


async def test_a_password_in_the_address_of_the_bus_is_in_no_status(folder: Path) -> None:
    config = a_config(folder, embedded=False)
    config = replace(config, bus=replace(config.bus, url=config.bus.url.replace("//", "//alice:Xylophon@")))
    async with running_app(config) as app, AsyncClient(app.socket.path) as client:
        assert "Xylophon" not in str(await client.request("status", {}))


async def test_a_part_that_fails_ends_the_daemon_and_everything_is_closed(folder: Path) -> None:
    async with running_app(a_config(folder, embedded=False)):
        pass
    files, names = open_files(), threads()

    class PartFailed(Exception):
        """What a part raises that nobody expected."""

    async def fail() -> None:
        raise PartFailed

    app = await start(a_config(folder, embedded=False), Reported())
    app.memories.follow = fail  # type: ignore[method-assign]
    with pytest.raises(ExceptionGroup) as raised:
        await run(app, anyio.Event())
    await stop(app)

    assert raised.group_contains(PartFailed)
    assert open_files() - files == set()
    await until_ended(names)
    async with running_app(a_config(folder, embedded=False)):
        pass  # the directory is free again


async def test_a_second_daemon_on_the_directory_is_refused_and_disturbs_nobody(folder: Path) -> None:
    config = a_config(folder, embedded=False)
    async with running_app(config) as app:
        with pytest.raises(DirectoryInUse):
            await start(config, Reported())
        async with AsyncClient(app.socket.path) as client:
            await client.request("status", {})


async def test_a_start_that_fails_leaves_nothing_behind(folder: Path) -> None:
    """First the store, then the socket, then the embedded bus: each with what was opened before it."""
    os.makedirs(folder)
    async with running_app(a_config(folder, embedded=False)):
        pass
    files, names = open_files(), threads()

    (folder / "memforest.sock").mkdir()
    with pytest.raises(SocketUnusable):
        await start(a_config(folder), Reported())
    (folder / "memforest.sock").rmdir()

    (folder / "nats").write_text("a file where the bus wants a folder")
    with pytest.raises((OSError, EmbeddedBusFailed)):
        await start(a_config(folder), Reported())
    socket_left = (folder / "memforest.sock").exists()
    (folder / "nats").unlink()

    (folder / "events.db").write_bytes(b"no SQLite at all, but long enough to be looked at" * 100)
    with pytest.raises(StoreUnusable):
        await start(a_config(folder), Reported())

    assert not socket_left
    assert open_files() - files == set()
    await until_ended(names)


async def test_a_stop_leaves_a_digest_of_each_memory(folder: Path) -> None:
    config = a_config(folder, embedded=False)
    async with running_app(config) as app, AsyncClient(app.socket.path) as client:
        for user in ("alice", "bob"):
            await app.log.append_event(recorded_turn("I moved.", user_id=user))
            await client.request("query", {"user_id": user, "query": "anything", "wait_for": 1})

    assert len(stored_rows(folder / "events.db", "SELECT 1 FROM digests")) == 2
