"""The life of the process: start and stop in order, with a bus and without, and what it says when it cannot."""

from __future__ import annotations

import json
import socket
import sqlite3
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import anyio
import pytest

from daemon.bus.embedded_bus import LOOPBACK, free_port
from daemon.decoders.decoding import turn_key
from memforest import AsyncClient
from memforest.errors import DaemonUnreachable, NotFound, Unavailable
from memforest.types import Answer
from tests.nats_server import running_server
from tests.system.daemon_process import (
    DaemonProcess,
    Ended,
    a_turn,
    assert_equal,
    connect,
    publisher_to,
    run_command,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

SIGNALLED_WITHIN_S = 4.0


async def test_the_second_daemon_on_a_directory_ends_with_75_and_the_first_keeps_its_socket() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d", nobody_listens(), bus="down") as first, first.client() as client:
            before = first.socket_path.stat().st_ino
            second = await run_command("daemon", "run", "--data", str(first.folder))
            await client.status()

            assert second.code == 75
            assert "another daemon runs on this data directory" in second.errors.lower()
            assert first.socket_path.stat().st_ino == before
            assert first.exit_code is None


async def test_a_stopping_daemon_answers_what_was_asked_and_ends_with_0() -> None:
    """The question waits for a turn that only comes after SIGTERM."""
    with short_folder() as folder:
        async with running_server(folder / "nats") as server, with_stream(folder, server.url) as daemon:
            answers: list[Answer] = []

            async def ask() -> None:
                answers.append(await client.query("alice", "Where?", wait_for=turn_key("alice", "s1", "t1")))

            async with daemon.client() as client, anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                await until_asked(daemon, client)
                daemon.terminate()
                await until_logged(daemon, "daemon.stopping")
                async with publisher_to(server.url) as publisher:
                    await publisher.send(a_turn("alice", "s1", "I moved to Miami.", id="t1"))

            assert await daemon.ended() == 0
            assert turns_of(answers[0]) == ["t1"]
            assert not daemon.socket_path.exists()
            assert daemon.logged("daemon.stopped")


async def test_a_stopping_daemon_keeps_nobody_waiting_for_events_that_may_come() -> None:
    with short_folder() as folder:
        async with running_server(folder / "nats") as server, with_stream(folder, server.url) as daemon:
            pages: list[dict[str, Any]] = []

            async def poll() -> None:
                asked = {"user_id": "alice", "session_id": "s1", "after": 1_000, "wait_s": 20}
                pages.append(await client.request("sessions.events", asked))

            async with daemon.client() as client:
                async with publisher_to(server.url) as publisher:
                    await publisher.send(a_turn("alice", "s1", "I moved to Miami.", id="t1"))
                await until_recorded(client, "alice", 1)
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(poll)
                    await until_asked(daemon, client)
                    daemon.terminate()
                    # Sooner than the grace of what is in flight.
                    with anyio.fail_after(SIGNALLED_WITHIN_S):
                        await daemon.ended()

            assert (daemon.exit_code, pages) == (0, [{"events": [], "next": 1_000, "more": False}])


async def test_a_second_signal_ends_a_stopping_daemon_at_once() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d", nobody_listens(), bus="down") as daemon:

            async def ask_in_vain() -> None:
                with pytest.raises(DaemonUnreachable):
                    await client.query("alice", "Where?", wait_for=turn_key("alice", "s1", "never"))

            async with daemon.client() as client, anyio.create_task_group() as tasks:
                tasks.start_soon(ask_in_vain)
                await until_asked(daemon, client)
                daemon.terminate()
                await until_logged(daemon, "daemon.stopping")
                assert daemon.exit_code is None
                daemon.terminate()
                # Sooner than the grace that the question has.
                with anyio.fail_after(SIGNALLED_WITHIN_S):
                    await daemon.ended()

            assert daemon.exit_code == 1
            assert not daemon.logged("daemon.stopped")


async def test_without_a_nats_server_it_stays_up_answers_and_says_so() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d", nobody_listens(), bus="down") as daemon, daemon.client() as client:
            answer = await client.query("alice", "Where does Alice live?")
            bus = (await client.request("status", {}))["bus"]
            with pytest.raises(Unavailable) as refused:
                await client.ingest([a_turn("alice", "s1", "I moved to Miami.")])
            with pytest.raises(NotFound):
                await client.forget_session("alice", "s1")

            assert answer.memories == ()
            assert (bus["state"], bus["lag_messages"]) == ("down", None)
            assert bus["reason"]
            assert "bus is down" in str(refused.value)
            assert "Miami" not in str(refused.value)


async def test_an_outside_server_gets_its_stream_from_the_operator_alone_and_then_turns_flow() -> None:
    with short_folder() as folder:
        async with (
            running_server(folder / "nats") as server,
            running_daemon(folder / "d", server.url, bus="no stream") as daemon,
            daemon.client() as client,
        ):
            with pytest.raises(Unavailable):
                await client.ingest([a_turn("alice", "s1", "I moved to Miami.", id="t1")])
            reason = (await client.request("status", {}))["bus"]["reason"]
            streams_before = await streams_of(server.url)
            examined = await doctor(daemon, "--json")
            made = await doctor(daemon, "--create-stream")
            made_again = await doctor(daemon, "--create-stream")
            await daemon.until_ready("up")
            async with publisher_to(server.url) as publisher:
                await publisher.send(a_turn("alice", "s1", "I moved to Miami.", id="t1"))
            await until_recorded(client, "alice", 1)
            answer = await client.query("alice", "Where does Alice live?")

            assert "no stream MEMFOREST" in reason
            assert streams_before == []
            assert examined.code == 1
            assert finding(examined, "bus")["mend"] == "memforestd doctor --create-stream"
            assert (made.code, made.output) == (
                0,
                "stream MEMFOREST was created, and so is the bucket MEMFOREST_TOMBSTONES\n",
            )
            assert (made_again.code, made_again.output) == (
                0,
                "stream MEMFOREST is there, and so is the bucket MEMFOREST_TOMBSTONES\n",
            )
            assert sorted(await streams_of(server.url)) == ["KV_MEMFOREST_TOMBSTONES", "MEMFOREST"]
            assert turns_of(answer) == ["t1"]
            assert finding(await doctor(daemon, "--json"), "bus")["level"] == "ok"


async def test_systemd_is_told_of_start_and_stop() -> None:
    with short_folder() as folder, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as listener:
        listener.bind(str(folder / "notify"))
        listener.setblocking(False)
        environ = {"NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "200000"}
        async with running_daemon(folder / "d", nobody_listens(), bus="down", environ=environ) as daemon:
            began = await receive_until(listener, "WATCHDOG=1")
            assert await daemon.stop() == 0
            ended = await receive_until(listener, "STOPPING=1")

            assert began[0] == "READY=1"
            assert "STOPPING=1" not in began
            assert ended[-1] == "STOPPING=1"


async def test_a_key_that_does_not_exist_ends_every_command_with_78_and_names_itself() -> None:
    with short_folder() as folder:
        file = folder / "memforest.toml"
        file.write_text('[bus]\nurls = "nats://127.0.0.1:4222"\n')
        data = ["--data", str(folder / "d")]
        named = ["--config", str(file), *data]
        running, verifying, of_environment = await run_commands(
            (["run", *named], {}), (["verify", *named], {}), (["run", *data], {"MEMFOREST_SOCKET_PATHS": "x"})
        )

        assert (running.code, verifying.code, of_environment.code) == (78, 78, 78)
        assert "bus.urls" in running.errors
        assert "bus.urls" in verifying.errors
        assert "MEMFOREST_SOCKET_PATHS" in of_environment.errors
        assert not (folder / "d").exists()


async def test_a_store_of_a_newer_release_is_left_alone_and_ends_with_78() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d", nobody_listens(), bus="down") as daemon:
            assert await daemon.stop() == 0
        set_schema_version(daemon.store_path, 1000)
        before = daemon.store_path.read_bytes()
        ended = await run_command("daemon", "run", "--data", str(daemon.folder))

        assert ended.code == 78
        assert "newer release" in ended.errors
        assert daemon.store_path.read_bytes() == before


async def test_config_shows_every_value_in_use_without_secrets_and_doctor_finds_nothing_wrong() -> None:
    with short_folder() as folder:
        file = folder / "memforest.toml"
        file.write_text('[bus]\nurl = "nats://me:secret@127.0.0.1:4222"\n[memtree]\nidle_s = 5\n')
        data = ["--config", str(file), "--data", str(folder / "d")]
        shown, examined = await run_commands(
            (["config", *data, "--json"], {"MEMFOREST_SOCKET_MODE": "0660"}),
            (["doctor", *data, "--json"], {"MEMFOREST_BUS_EMBEDDED": "1"}),
        )
        values = json.loads(shown.output)

        assert (shown.code, examined.code) == (0, 0)
        assert "secret" not in shown.output
        assert values["bus.url"] == "nats://127.0.0.1:4222"
        assert values["memtree.idle_s"] == 5
        assert values["socket.mode"] == "0660"
        assert values["data.dir"] == str(folder / "d")
        assert {one["subject"] for one in json.loads(examined.output)["findings"]} >= {"store", "bus", "sqlite"}
        assert not (folder / "d").exists()


async def test_a_clean_stop_and_start_go_on_where_they_were() -> None:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as daemon:
            async with daemon.client() as client:
                (published,) = await client.ingest([a_turn("alice", "s1", "I moved to Miami.", id="t1")])
                await client.close_session("alice", "s1")
                await client.query("alice", "Where?", wait_for=published.keys[0])
                await until_built(client, "alice")
                before = await client.digest("alice")
            assert await daemon.stop() == 0
            assert_equal(await verify(daemon.folder), users=1)
            await daemon.start()
            async with daemon.client() as client:
                again = await client.digest("alice")

            assert again == before


def turns_of(answer: Answer) -> list[str | None]:
    """The turns that an answer's memories come from."""
    return [source.turn_id for memory in answer.memories for source in memory.sources]


def nobody_listens() -> str:
    """The URL of a server that is not there."""
    return f"nats://{LOOPBACK}:{free_port()}"


@asynccontextmanager
async def with_stream(folder: Path, url: str) -> AsyncGenerator[DaemonProcess]:
    """A daemon on an outside server that has its stream."""
    async with running_daemon(folder / "d", url, bus="no stream") as daemon:
        assert (await doctor(daemon, "--create-stream")).code == 0
        await daemon.until_ready("up")
        yield daemon


async def run_commands(*commands: tuple[list[str], dict[str, str]]) -> list[Ended]:
    """Several `memforestd` commands side by side, with what each adds to the environment; in their order."""
    ended: dict[int, Ended] = {}

    async def run(number: int, arguments: list[str], environ: dict[str, str]) -> None:
        ended[number] = await run_command("daemon", *arguments, environ=environ)

    async with anyio.create_task_group() as tasks:
        for number, (arguments, environ) in enumerate(commands):
            tasks.start_soon(run, number, arguments, environ)
    return [ended[number] for number in sorted(ended)]


async def doctor(daemon: DaemonProcess, *options: str) -> Ended:
    """`memforestd doctor` with the daemon's configuration."""
    environ = {"MEMFOREST_BUS_URL": daemon.bus_url()}
    return await run_command("daemon", "doctor", "--data", str(daemon.folder), *options, environ=environ)


def finding(ended: Ended, subject: str) -> dict[str, Any]:
    """What `doctor --json` says of one subject."""
    found: dict[str, Any] = next(one for one in json.loads(ended.output)["findings"] if one["subject"] == subject)
    return found


async def until_asked(daemon: DaemonProcess, client: AsyncClient) -> None:
    """Requests of one connection are read in order: when this is answered, the one before is under way."""
    with anyio.fail_after(10):
        await client.request("status", {})
    assert daemon.exit_code is None


async def until_logged(daemon: DaemonProcess, event: str) -> None:
    async def is_logged() -> bool:
        return bool(daemon.logged(event))

    await until(is_logged, message=f"{event} was not logged")


async def streams_of(url: str) -> list[str]:
    """The names of the streams on a server."""
    client = await connect(url)
    try:
        answer = await client.request("$JS.API.STREAM.NAMES", b"{}", timeout=5)
    finally:
        await client.close()
    return json.loads(answer.data)["streams"] or []


async def receive_until(listener: socket.socket, last: str) -> list[str]:
    """The datagrams that arrived, up to the first that is `last`."""
    received: list[str] = []
    with anyio.fail_after(10):
        while last not in received:
            await anyio.wait_readable(listener)
            received.append(listener.recv(1024).decode())
    return received


def set_schema_version(path: Path, version: int) -> None:
    connection = sqlite3.connect(path)
    try:
        connection.execute(f"PRAGMA user_version = {version}")
    finally:
        connection.close()
