"""The embedded nats-server: it lives and dies with its daemon, and nothing is left over (design 5)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path

import anyio
import anyio.abc
import pytest

from daemon.bus.embedded_bus import (
    LOOPBACK,
    EmbeddedBus,
    EmbeddedBusFailed,
    end_leftover,
    find_server,
    free_port,
    server_configuration,
)
from tests.bus_in_use import Reported
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]

# A daemon in small: it starts a bus and waits for ever.
SMALL_DAEMON = """
import sys
from pathlib import Path
import anyio
from daemon.bus.embedded_bus import EmbeddedBus

async def main():
    bus = EmbeddedBus(Path(sys.argv[1]))
    await bus.start()
    print(bus.pid, flush=True)
    await anyio.sleep_forever()

anyio.run(main)
"""


@asynccontextmanager
async def running(bus: EmbeddedBus) -> AsyncGenerator[None, None]:
    """Start, run and stop, in the order the daemon does it."""
    await bus.start()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(bus.run)
        try:
            yield
        finally:
            await bus.stop()


@asynccontextmanager
async def small_daemon(folder: Path) -> AsyncGenerator[tuple[anyio.abc.Process, int], None]:
    """A daemon process, and the pid of its server."""
    process = await anyio.open_process(
        [sys.executable, "-c", SMALL_DAEMON, str(folder)], cwd=ROOT, stderr=subprocess.DEVNULL
    )
    try:
        assert process.stdout is not None
        yield process, int(await process.stdout.receive())
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


@contextmanager
def taken(port: int) -> Generator[None, None, None]:
    """Somebody else listens on the port."""
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        other.bind((LOOPBACK, port))
        other.listen()
        yield


def is_alive(pid: int) -> bool:
    """Whether the process runs; a zombie that nobody has collected yet does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def port_of(bus: EmbeddedBus) -> int:
    return int(bus.url.rpartition(":")[2])


async def greeting(bus: EmbeddedBus) -> bytes:
    async with await anyio.connect_tcp(LOOPBACK, port_of(bus)) as stream:
        return await stream.receive()


async def test_it_listens_on_loopback_with_jetstream_and_stops(tmp_path: Path) -> None:
    reported = Reported()
    bus = EmbeddedBus(tmp_path / "nats", reported)
    async with running(bus):
        pid = bus.pid
        hello = await greeting(bus)

        assert b'"jetstream":true' in hello
        assert b'"host":"127.0.0.1"' in hello
        assert b'"max_payload":1048576' in hello
        assert (tmp_path / "nats" / "jetstream").is_dir()
        assert (tmp_path / "nats" / "nats.pid").read_text().strip() == str(pid)

    assert pid is not None
    assert not is_alive(pid)
    assert reported.names() == ["embedded_bus.started", "embedded_bus.stopped"]


async def test_it_keeps_its_port_from_one_run_to_the_next(tmp_path: Path) -> None:
    first, second = EmbeddedBus(tmp_path), EmbeddedBus(tmp_path)
    async with running(first):
        pass
    async with running(second):
        assert second.url == first.url


async def test_it_takes_another_port_when_its_own_is_taken(tmp_path: Path) -> None:
    first, second = EmbeddedBus(tmp_path), EmbeddedBus(tmp_path)
    async with running(first):
        pass
    with taken(port_of(first)):
        async with running(second):
            assert second.url != first.url
            assert b'"jetstream":true' in await greeting(second)


async def test_a_server_that_dies_alone_is_started_again_on_its_port(tmp_path: Path) -> None:
    reported = Reported()
    bus = EmbeddedBus(tmp_path, reported)
    async with running(bus):
        url, pid = bus.url, bus.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: reported.names().count("embedded_bus.started") == 2)

        assert bus.url == url
        assert bus.pid != pid
        assert b'"jetstream":true' in await greeting(bus)

    assert ("embedded_bus.died", {"exit_code": -signal.SIGKILL, "restart_after_s": 1.0}) in reported.events


async def test_stopping_while_it_waits_to_start_again_starts_nothing(tmp_path: Path) -> None:
    reported = Reported()
    bus = EmbeddedBus(tmp_path, reported)
    async with running(bus):
        pid = bus.pid
        assert pid is not None
        os.kill(pid, signal.SIGKILL)
        await wait_until(lambda: "embedded_bus.died" in reported.names())

    assert reported.names().count("embedded_bus.started") == 1
    assert not await end_leftover(tmp_path)


async def test_the_server_dies_when_its_daemon_is_killed(tmp_path: Path) -> None:
    async with small_daemon(tmp_path) as (daemon, server):
        assert is_alive(server)
        daemon.send_signal(signal.SIGKILL)

        await wait_until(lambda: not is_alive(server), message="the server outlived its daemon")


@asynccontextmanager
async def stray_server(folder: Path) -> AsyncGenerator[anyio.abc.Process, None]:
    """A server on this folder that nobody looks after, as a crash of an older daemon may leave it."""
    configuration = folder / "nats.conf"
    configuration.write_text(server_configuration(folder, free_port(), "stray", "stray-token"))
    process = await anyio.open_process([str(find_server()), "-c", str(configuration)])
    try:
        await wait_until(lambda: (folder / "nats.pid").exists())
        yield process
    finally:
        with anyio.CancelScope(shield=True):
            if process.returncode is None:
                process.kill()
            await process.aclose()


async def test_a_server_left_over_is_ended_first(tmp_path: Path) -> None:
    reported = Reported()
    async with stray_server(tmp_path) as stray, running(EmbeddedBus(tmp_path, reported)):
        with anyio.fail_after(5):
            await stray.wait()

    assert reported.names()[:2] == ["embedded_bus.leftover_ended", "embedded_bus.started"]


async def test_a_pid_file_that_names_a_stranger_harms_nobody(tmp_path: Path) -> None:
    (tmp_path / "nats.pid").write_text(str(os.getpid()))

    assert not await end_leftover(tmp_path)
    assert is_alive(os.getpid())


async def test_a_server_of_another_folder_is_left_alone(tmp_path: Path) -> None:
    ours, theirs = tmp_path / "ours", tmp_path / "theirs"
    ours.mkdir()
    theirs.mkdir()
    async with stray_server(theirs) as stranger:
        (ours / "nats.pid").write_text(str(stranger.pid))

        assert not await end_leftover(ours)
        assert is_alive(stranger.pid)


@pytest.mark.parametrize("content", ["", "not a number", "999999999"])
async def test_a_pid_file_of_nobody_is_no_hindrance(tmp_path: Path, content: str) -> None:
    (tmp_path / "nats.pid").write_text(content)

    assert not await end_leftover(tmp_path)


async def test_a_store_that_cannot_be_used_is_said_so(tmp_path: Path) -> None:
    (tmp_path / "jetstream").write_text("a file where the store's folder should be")
    bus = EmbeddedBus(tmp_path)
    with pytest.raises(EmbeddedBusFailed, match=r"nats\.log"):
        await bus.start()
    with pytest.raises(EmbeddedBusFailed):
        _ = bus.url

    assert bus.pid is None


async def test_a_folder_with_quotes_and_other_letters_in_its_name_works(tmp_path: Path) -> None:
    folder = tmp_path / 'a "folder" né'
    bus = EmbeddedBus(folder)
    async with running(bus):
        assert (folder / "nats.log").exists()
        assert b'"jetstream":true' in await greeting(bus)
