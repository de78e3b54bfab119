"""The real daemon on a disk that fails: full, refusing, read-only, damaged, and losing what was synced."""

from __future__ import annotations

import json
import os
import resource
import signal
import socket
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from daemon.app import run, start, stop
from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.config import Bus, Config, Data
from daemon.logs import quiet
from daemon.upkeep.doctor import create_stream
from events import integrity
from events.errors import LogDamaged, StoreUnusable
from events.log import EventLog
from memforest import AsyncClient
from memforest.errors import MemForestError
from tests.builders import ManualClock, a_batch
from tests.builders import a_turn as recorded_turn
from tests.nats_server import running_server
from tests.stored import damage, stored_bytes, stored_rows
from tests.sync_shim import build_shim, find_compiler
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_turn,
    publisher_to,
    run_command,
    running_daemon,
    short_folder,
    until,
    until_recorded,
)
from tests.waiting import wait_until

KIB = 1024
MIB = 1024 * KIB
# Above the daemon's log and below its write-ahead log.
FILE_BYTES_MAX = 160 * KIB


@asynccontextmanager
async def a_daemon(folder: Path, environ: dict[str, str] | None = None) -> AsyncGenerator[DaemonProcess]:
    """A running daemon whose bus is outside of its disk, with its stream."""
    async with running_server(folder / "bus") as server:
        data = folder / "data"
        await create_stream(Config(data=Data(str(data)), bus=Bus(url=server.url)))
        async with running_daemon(data, server.url, environ=environ) as daemon:
            yield daemon


async def until_ready(client: AsyncClient, state: str, **reasons: str) -> None:
    """Return when `readyz` says so, with at least these reasons."""

    async def is_so() -> bool:
        answer: dict[str, Any] = await client.request("readyz", {})
        return bool(answer["state"] == state and reasons.items() <= answer["reasons"].items())

    await until(is_so, 20, f"it did not become {state} {reasons}")


async def say(publisher: Publisher, *contents: str, session_id: str = "s1", first: int = 0) -> None:
    for n, content in enumerate(contents, start=first):
        await publisher.send(a_turn("alice", session_id, content, id=f"{session_id}-{n}"))


def turns_of(path: Path) -> list[str]:
    rows = stored_rows(
        path,
        """SELECT w.text FROM words w JOIN events e USING (seq)
           WHERE n = 0 AND type = 'turn.recorded' AND w.text IS NOT NULL ORDER BY seq""",
    )
    return [bytes(text).decode() for (text,) in rows]


@contextmanager
def small_disk(folder: Path, size: str) -> Generator[None]:
    """A file system of its own in a folder; skips the test where none can be mounted."""
    folder.mkdir(parents=True, exist_ok=True)
    options = f"size={size},mode=0700"
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False
    )
    if mounted.returncode:
        pytest.skip("a small file system takes root's rights to mount")
    try:
        yield
    finally:
        subprocess.run(["umount", "-l", folder], check=True)


def fill(folder: Path) -> None:
    """Leave no room at all."""
    with (folder / "filler").open("wb", buffering=0) as filler:
        for size in (64 * KIB, KIB):
            try:
                while filler.write(bytes(size)) == size:
                    pass
            except OSError:
                continue


async def test_a_disk_that_refuses_writes_stops_ingest_alone_and_all_goes_on_without_a_restart() -> None:
    """The limit on a file's size works without any rights: SQLite sees a failed write (SQLITE_IOERR_WRITE)."""
    long = "long " * 60 * KIB
    with short_folder() as folder:
        async with (
            a_daemon(folder) as daemon,
            publisher_to(daemon.bus_url) as publisher,
            daemon.client() as client,
        ):
            pid = daemon.pid
            await say(publisher, "I have a dog called Rex.")
            await until_recorded(client, "alice", 1)
            _, most = resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (FILE_BYTES_MAX, most))
            await say(publisher, long, "after it", first=1)
            await until_ready(client, "degraded", store="disk error")
            await until_ready(client, "degraded", ingest="disk error")
            answer = await client.query("alice", "Rex")
            recorded = turns_of(daemon.store_path)
            status = await client.request("status", {})
            resource.prlimit(daemon.pid, resource.RLIMIT_FSIZE, (most, most))
            await until_recorded(client, "alice", 3)
            await until_ready(client, "ready")

            assert "Rex" in answer.memories[0].text
            assert recorded == ["I have a dog called Rex."], "nothing was acknowledged that is not written"
            assert (status["bus"]["lag_messages"], status["health"]["state"]) == (2, "degraded")
            assert turns_of(daemon.store_path) == ["I have a dog called Rex.", long, "after it"]
            assert daemon.pid == pid
            assert daemon.logged("store.degraded")[0]["reason"] == "disk error"
            assert daemon.logged("ingest.paused")
            assert daemon.logged("ingest.resumed")


async def test_a_full_disk_still_forgets_and_takes_turns_again_once_there_is_room() -> None:
    """SQLITE_FULL on a real file system."""
    environ = {"MEMFOREST_DATA_BALLAST_MB": "4", "MEMFOREST_DATA_FREE_MIN_MB": "0"}
    with short_folder() as folder, small_disk(folder / "data", "24m"):
        async with (
            a_daemon(folder, environ) as daemon,
            publisher_to(daemon.bus_url) as publisher,
            daemon.client() as client,
        ):
            await say(publisher, *(f"Xylophon {n}" for n in range(40)))
            await until_recorded(client, "alice", 40)
            ballast = (daemon.folder / "ballast").stat().st_size
            fill(daemon.folder)
            await say(publisher, "long " * 100 * KIB, "after it", session_id="s2")
            await until_ready(client, "degraded", store="disk full", ingest="disk full")
            receipt = await client.request("sessions.forget", {"user_id": "alice", "session_id": "s1"})
            left = stored_bytes(daemon.store_path).count(b"Xylophon")
            status = await client.request("status", {})
            (daemon.folder / "filler").unlink()
            await until_ready(client, "ready")
            await until_recorded(client, "alice", 2)

            assert (ballast, status["disk"]["ballast_bytes"]) == (4 * MIB, 0)
            assert (receipt["complete"], left) == (True, 0)
            assert status["health"]["reasons"]["store"] == "disk full"
            assert (daemon.folder / "ballast").stat().st_size == 4 * MIB, "it is made again"
            assert len(turns_of(daemon.store_path)) == 2
            assert len(daemon.logged("store.ballast_given_up")) == 1
            assert daemon.exit_code is None


async def test_a_failed_fsync_ends_the_process_at_once_and_nothing_acknowledged_is_lost(tmp_path: Path) -> None:
    """First at a commit, then at the checkpoint of a stop, whose write-ahead log must stay."""
    shim = build_shim(tmp_path)
    with short_folder() as folder:
        async with a_daemon(folder, shim.environ) as daemon, publisher_to(daemon.bus_url) as publisher:
            await say(publisher, "before")
            async with daemon.client() as client:
                await until_recorded(client, "alice", 1)
            shim.fails.write_text("events.db-wal")
            await say(publisher, "during", first=1)
            at_commit = await daemon.ended()
            shim.fails.unlink()
            await daemon.start()
            async with daemon.client() as client:
                await until_recorded(client, "alice", 2)
            shim.fails.write_text("events.db")
            at_stop = await daemon.stop()
            kept = daemon.store_path.with_name("events.db-wal").stat().st_size
            shim.fails.unlink()
            await daemon.start()

            assert (at_commit, at_stop) == (os.EX_IOERR, os.EX_IOERR)
            assert kept > 0
            assert len(daemon.logged("store.fsync_failed")) == 2
            assert turns_of(daemon.store_path) == ["before", "during"]


async def test_a_read_only_disk_at_the_start_is_a_clear_end() -> None:
    with short_folder() as folder, small_disk(folder / "data", "4m"):
        await anyio.run_process(["mount", "-o", "remount,ro", str(folder / "data")])
        ended = await run_command("daemon", "run", "--data", str(folder / "data"))

    assert ended.code == os.EX_IOERR
    assert ended.errors.startswith("memforestd: ")
    assert "Read-only file system" in ended.errors
    assert "Traceback" not in ended.errors


async def test_a_damaged_end_of_the_log_is_named_and_not_served(tmp_path: Path, clock: ManualClock) -> None:
    store = tmp_path / "events.db"
    log = await EventLog.open(store, clock)
    await log.append(a_batch(*(recorded_turn(turn_id=f"t{n}") for n in range(3))))
    await log.close()
    damage(store, "UPDATE events SET happened_at = 1 WHERE seq = 2")
    environ = {"MEMFOREST_BUS_EMBEDDED": "true"}  # or the doctor waits for a server
    refused = await run_command("daemon", "run", "--data", str(tmp_path), environ=environ)
    looked = await run_command("daemon", "doctor", "--deep", "--json", "--data", str(tmp_path), environ=environ)

    assert refused.code == looked.code == os.EX_DATAERR
    assert "the event at seq 2 (user_seq 2) does not match its chain" in refused.errors
    findings = {finding["subject"]: finding for finding in json.loads(looked.output)["findings"]}
    assert findings["log"]["sentence"] == "the event at seq 2 (user_seq 2) does not match its chain"
    assert "restore" in findings["log"]["mend"]
    assert looked.errors == "log: 3 of 3 events\n"


async def test_the_sound_users_of_a_damaged_store_are_served_when_that_is_asked_for(clock: ManualClock) -> None:
    with short_folder() as folder:
        store = folder / "events.db"
        log = await EventLog.open(store, clock)
        users = ("alice", "bob")
        await log.append(a_batch(*(recorded_turn("I have a dog called Rex.", user_id=user) for user in users)))
        await log.close()
        damage(store, "UPDATE events SET happened_at = 1 WHERE seq = 1")
        config = Config(data=Data(str(folder)), bus=Bus(url=f"nats://{LOOPBACK}:{free_port()}"))
        with pytest.raises(LogDamaged):
            await start(config, quiet)
        app = await start(config, quiet, serve_damaged=True)
        stopping, started = anyio.Event(), anyio.Event()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, app, stopping, started.set)
            await started.wait()
            async with AsyncClient(app.socket.path) as client:
                answer = await client.query("bob", "Rex")
                with pytest.raises(MemForestError):
                    await client.query("alice", "Rex")
            stopping.set()
        await stop(app)

    assert "Rex" in answer.memories[0].text


async def test_a_large_store_is_served_while_its_structure_is_looked_at_and_a_damage_ends_that(
    clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(integrity, "START_CHECK_BYTES_MAX", 4 * KIB)
    with short_folder() as folder:
        store = folder / "events.db"
        log = await EventLog.open(store, clock)
        for first in range(0, 1_200, 200):  # more than what a start looks at
            await log.append(a_batch(*(recorded_turn(turn_id=f"t{n}") for n in range(first, first + 200))))
        await log.close()
        ((chain,),) = stored_rows(store, "SELECT chain FROM events WHERE seq = 50")
        content = bytearray(store.read_bytes())
        page = content.index(chain) // 4096 * 4096
        content[page : page + 4096] = b"\x7f" * 4096
        store.write_bytes(content)
        config = Config(data=Data(str(folder)), bus=Bus(url=f"nats://{LOOPBACK}:{free_port()}"))
        app = await start(config, quiet)
        started: list[bool] = []
        try:
            with anyio.fail_after(20), pytest.raises(BaseExceptionGroup) as ended:
                await run(app, anyio.Event(), lambda: started.append(True))
        finally:
            await stop(app)

    assert started == [True]
    assert ended.group_contains((LogDamaged, StoreUnusable))


async def test_a_backlog_of_10000_messages_takes_one_fsync_for_200_events_at_most(tmp_path: Path) -> None:
    """Without a C compiler only the commits are counted."""
    shim = None if find_compiler() is None else build_shim(tmp_path)
    environ = {} if shim is None else shim.environ
    with anyio.fail_after(120):
        ended = await run_command("tests.system.backlog", str(tmp_path), str(tmp_path / "seen"), environ=environ)
    assert ended.code == 0, ended
    cost = json.loads(ended.output)

    assert cost["events"] == 10_000
    assert cost["commits"] <= 50
    if shim is not None:
        assert cost["commits"] < cost["synced"] <= 50, "those of moving the write-ahead log are counted, too"


async def test_a_daemon_that_stands_still_is_not_said_to_be_alive_and_does_nothing_twice_afterwards() -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(folder / "notify"))
        systemd.setblocking(False)
        environ = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "100000"}
        async with (
            a_daemon(folder, environ) as daemon,
            publisher_to(daemon.bus_url) as publisher,
            daemon.client() as client,
        ):
            await say(publisher, "before")
            await until_recorded(client, "alice", 1)
            os.kill(daemon.pid, signal.SIGSTOP)
            await say(publisher, "meanwhile", "and again", first=1)
            heard_before = heard(systemd)
            with anyio.move_on_after(0.5):
                await anyio.sleep_forever()
            heard_meanwhile = heard(systemd)
            os.kill(daemon.pid, signal.SIGCONT)
            await until_recorded(client, "alice", 3)
            await wait_until(lambda: b"WATCHDOG=1" in heard(systemd))

            assert {b"READY=1", b"WATCHDOG=1"} <= set(heard_before)
            assert heard_meanwhile == []
            assert turns_of(daemon.store_path) == ["before", "meanwhile", "and again"]


def heard(systemd: socket.socket) -> list[bytes]:
    """Everything the service manager was told since it last listened."""
    told: list[bytes] = []
    while True:
        try:
            told.append(systemd.recv(100))
        except BlockingIOError:
            return told
