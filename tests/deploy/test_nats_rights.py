"""What each user of deploy/nats/memforest.conf may do on a real server, and the nearest thing that it may not."""

from __future__ import annotations

import json
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path

import anyio
import pytest
from nats.aio.msg import Msg

from daemon.bus.bus_erasure import BusEraser
from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.embedded_bus import LOOPBACK, find_server
from daemon.bus.nats_bus import NatsBus
from daemon.bus.tombstone_bucket import TombstoneBucket, bucket_name
from daemon.config import Bus, Config
from daemon.upkeep.doctor import create_stream
from events.envelope import REFERENCE_BYTES, BusPosition
from events.tombstones import Tombstone
from tests.bus_in_use import fetch_all, running_bus
from tests.deploy.server_with_rights import (
    DEPLOY,
    USERS,
    ServerWithRights,
    User,
    configuration_for,
    connected,
    make_stream,
    server_environment,
    server_with_rights,
    server_with_stream,
    stream_info,
)
from tests.system.daemon_process import until
from tests.waiting import wait_until

CONTROL = "memforest.control.alice.s1"
BUCKET = "KV_MEMFOREST_TOMBSTONES"
# What would make, change, empty or remove a stream.
ADMINISTRATION = [
    "$JS.API.STREAM.CREATE.MEMFOREST",
    "$JS.API.STREAM.CREATE.MINE",
    "$JS.API.STREAM.UPDATE.MEMFOREST",
    "$JS.API.STREAM.PURGE.MEMFOREST",
    "$JS.API.STREAM.DELETE.MEMFOREST",
    f"$JS.API.STREAM.PURGE.{BUCKET}",
    f"$JS.API.STREAM.DELETE.{BUCKET}",
    "$JS.API.STREAM.SNAPSHOT.MEMFOREST",
    "$JS.API.STREAM.RESTORE.MEMFOREST",
]
# What would read a stream or take single messages out of it.
READING = [
    "$JS.API.STREAM.MSG.GET.MEMFOREST",
    "$JS.API.DIRECT.GET.MEMFOREST",
    "$JS.API.STREAM.MSG.DELETE.MEMFOREST",
    "$JS.API.CONSUMER.CREATE.MEMFOREST.mine",
    "$JS.API.CONSUMER.DURABLE.CREATE.MEMFOREST.mine",
    "$JS.API.CONSUMER.MSG.NEXT.MEMFOREST.mine",
    "$JS.ACK.MEMFOREST.mine.1.1.1.1.0",
    f"$JS.API.STREAM.MSG.GET.{BUCKET}",
    "$KV.MEMFOREST_TOMBSTONES.a",
]
LOOKING = ["$JS.API.INFO", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.MEMFOREST"]


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[ServerWithRights]:
    async with server_with_stream(tmp_path / "nats") as server:
        yield server


async def test_a_publisher_writes_turns_and_gets_their_acknowledgement(server: ServerWithRights) -> None:
    async with connected(server, "publisher") as publisher:
        first = await publisher.turn("I moved to Miami.", {"Nats-Msg-Id": "m-1"})
        again = await publisher.turn("I moved to Miami.", {"Nats-Msg-Id": "m-1"})
        second = await publisher.turn("It is warm here.")

    assert first == {"stream": "MEMFOREST", "seq": 1}
    assert again == {"stream": "MEMFOREST", "seq": 1, "duplicate": True}
    assert second == {"stream": "MEMFOREST", "seq": 2}


async def test_a_control_message_of_a_publisher_is_refused_and_nothing_is_stored(server: ServerWithRights) -> None:
    forget = {"type": "session.forget", "user_id": "alice", "session_id": "s1"}
    async with connected(server, "publisher") as publisher, connected(server, "operator") as operator:
        refused = await publisher.refusal_of(CONTROL, forget)
        accepted = await publisher.turn("hello")
        state = (await stream_info(operator))["state"]

    assert refused
    assert accepted["seq"] == 1
    assert state["messages"] == 1


async def test_a_controller_may_also_close_and_forget(server: ServerWithRights) -> None:
    async with connected(server, "controller") as controller:
        turn = await controller.turn("hello")
        close = await controller.ask(CONTROL, {"type": "session.close", "user_id": "alice", "session_id": "s1"})

    assert (turn["seq"], close) == (1, {"stream": "MEMFOREST", "seq": 2})


@pytest.mark.parametrize("user", ["publisher", "controller"])
async def test_a_service_cannot_read_change_or_remove_the_stream(server: ServerWithRights, user: User) -> None:
    async with connected(server, "operator") as operator, connected(server, user) as service:
        await service.turn("hello")
        before = await stream_info(operator)
        attempts = [*ADMINISTRATION, *READING, *LOOKING, "_INBOX.daemon", "$SYS.REQ.SERVER.PING", "elsewhere"]
        allowed = [subject for subject in attempts if not await service.refusal_of(subject, {"seq": 1})]
        after = await stream_info(operator)

    assert allowed == []
    assert (after["config"], after["state"]) == (before["config"], before["state"])


async def test_no_service_hears_what_is_delivered_to_the_daemon(server: ServerWithRights) -> None:
    heard: list[Msg] = []

    async def listen(message: Msg) -> None:
        heard.append(message)

    async with connected(server, "publisher") as publisher, connected(server, "controller") as controller:
        for service in (publisher, controller):
            await service.client.subscribe("_INBOX.>", cb=listen)
            for subject in (">", "memforest.>", "$JS.>", "$KV.>", "*.*.*"):
                await service.client.subscribe(subject, cb=listen)
        await publisher.turn("I moved to Miami.")
        async with running_bus(NatsBus(server.url_of("daemon"))) as bus:
            messages = await fetch_all(bus, None, 1)
        for service in (publisher, controller):
            await service.turn("one more, so that its acknowledgement is the last thing heard")

    assert b"Miami" in messages[0].payload
    # Services do hear each other's acknowledgements: a number, no words.
    assert heard != []
    assert {frozenset(json.loads(message.data)) for message in heard} == {frozenset({"stream", "seq"})}
    assert [len(service.refused) for service in (publisher, controller)] == [5, 5]


async def test_the_daemon_reads_acknowledges_and_deletes_one_message_for_good(server: ServerWithRights) -> None:
    async with connected(server, "publisher") as publisher:
        for content in ("one", "two", "three"):
            await publisher.turn(content)
    async with (
        running_bus(NatsBus(server.url_of("daemon"))) as bus,
        connected(server, "daemon") as daemon,
        connected(server, "operator") as operator,
    ):

        async def is_acknowledged() -> bool:
            (consumer,) = (await operator.ask("$JS.API.CONSUMER.LIST.MEMFOREST"))["consumers"]
            return bool(consumer["ack_floor"]["stream_seq"] == 3)

        messages = await fetch_all(bus, None, 3)
        await until(is_acknowledged)
        created = (await stream_info(operator))["created"]
        second, read = BusPosition("MEMFOREST", created, 2), BusPosition("MEMFOREST", created, 3)
        erasure = await BusEraser(bus).erase([second], read)
        gone = await daemon.ask("$JS.API.STREAM.MSG.GET.MEMFOREST", {"seq": 2})
        left = await daemon.ask("$JS.API.STREAM.MSG.GET.MEMFOREST", {"seq": 3})
        published = await bus.publish(CONTROL, b"{}")
        # From another position it is read with another consumer, and the one of before is given back.
        again = await bus.fetch(None)
        state, reason = bus.state, bus.reason

    assert [message.stream_seq for message in messages] == [1, 2, 3]
    assert (erasure.erased, erasure.left, erasure.reason) == (1, 0, None)
    assert gone["error"]["err_code"] == 10037  # no message found
    assert left["message"]["seq"] == 3
    assert published.seq == 4
    assert [message.stream_seq for message in again.messages] == [1, 3, 4]
    assert (state, reason, server.violations("daemon")) == ("up", "", [])


async def test_the_daemon_can_neither_make_change_empty_nor_remove_a_stream(server: ServerWithRights) -> None:
    async with connected(server, "operator") as operator, connected(server, "daemon") as daemon:
        before = await stream_info(operator)
        allowed = [subject for subject in ADMINISTRATION if not await daemon.refusal_of(subject)]
        after = await stream_info(operator)

    assert allowed == []
    assert (after["config"], after["state"]) == (before["config"], before["state"])


async def test_the_daemon_does_not_make_a_stream_that_is_missing(tmp_path: Path) -> None:
    async with (
        server_with_rights(tmp_path / "nats") as server,
        running_bus(NatsBus(server.url_of("daemon"))) as bus,
    ):
        await wait_until(lambda: bus.state == "no stream")
        with pytest.raises(BusUnavailable):
            await bus.create_stream()
        state = bus.state

    assert state == "no stream"


async def test_the_daemon_keeps_tombstones_in_the_bucket(server: ServerWithRights) -> None:
    tombstones = [
        Tombstone(bytes([number]) * REFERENCE_BYTES, bytes(REFERENCE_BYTES), 1_700_000_000_000)
        for number in (1, 2)
    ]
    async with running_bus(NatsBus(server.url_of("daemon"))) as bus, connected(server, "daemon") as daemon:
        await wait_until(lambda: bus.state == "up")
        bucket = TombstoneBucket(bus, bucket_name(bus.stream))
        await bucket.create()
        for tombstone in (*tombstones, tombstones[0]):
            await bucket.put(tombstone)
        kept = await bucket.read_all()
        deleted = await daemon.refusal_of(f"$JS.API.STREAM.MSG.DELETE.{BUCKET}", {"seq": 3})

    assert set(kept) == set(tombstones)
    assert deleted
    assert [line for line in server.violations("daemon") if "STREAM.MSG.DELETE" not in line] == []


async def test_the_operator_makes_and_changes_the_stream_and_no_other(tmp_path: Path) -> None:
    async with server_with_rights(tmp_path / "nats") as server, connected(server, "operator") as operator:
        made = await make_stream(operator, "stream")
        wider = {**made["config"], "max_bytes": 2 * 1024**2}
        changed = await operator.ask("$JS.API.STREAM.UPDATE.MEMFOREST", wider)
        refused = [subject for subject in [*ADMINISTRATION, *READING] if await operator.refusal_of(subject)]

    assert "error" not in made
    assert changed["config"]["max_bytes"] == 2 * 1024**2
    assert {*ADMINISTRATION, *READING} - set(refused) == {
        "$JS.API.STREAM.CREATE.MEMFOREST",
        "$JS.API.STREAM.UPDATE.MEMFOREST",
    }


async def test_the_streams_of_the_files_are_those_that_the_daemon_would_make(tmp_path: Path) -> None:
    async with server_with_stream(tmp_path / "by_file") as server, connected(server, "operator") as operator:
        by_file = [(await stream_info(operator, name))["config"] for name in ("MEMFOREST", BUCKET)]
    async with server_with_rights(tmp_path / "by_code") as server:
        said = await create_stream(Config(bus=Bus(url=server.url_of("operator"))))
        async with connected(server, "operator") as operator:
            by_code = [(await stream_info(operator, name))["config"] for name in ("MEMFOREST", BUCKET)]

    assert said.startswith("stream MEMFOREST was created")
    assert by_file == by_code
    # What erasing needs: a message that is deleted is written over, unless its block is compressed.
    stream = json.loads((DEPLOY / "nats" / "stream.json").read_text())
    assert (stream["retention"], stream["compression"], stream["deny_delete"]) == ("limits", "none", False)


@pytest.mark.parametrize("missing", USERS)
def test_the_server_does_not_start_without_a_password(tmp_path: Path, missing: User) -> None:
    environment = server_environment({user: "p" + user for user in USERS if user != missing})
    command = [str(find_server()), "-t", "-c", str(configuration_for(tmp_path))]

    ended = subprocess.run(command, env=environment, capture_output=True, text=True, check=False, timeout=30)

    assert ended.returncode != 0
    assert f"NATS_{missing.upper()}_PASSWORD" in ended.stderr


@pytest.mark.parametrize(
    "login",
    [
        {},
        {"user": "daemon"},
        {"user": "daemon", "pass": "daemon"},
        {"user": "publisher", "pass": ""},
        {"user": "root"},
    ],
)
async def test_nobody_gets_in_without_a_password(server: ServerWithRights, login: dict[str, str]) -> None:
    async with await anyio.connect_tcp(LOOPBACK, server.port) as stream:
        await stream.receive()
        await stream.send(b"CONNECT " + json.dumps({"verbose": False, **login}).encode() + b"\r\nPING\r\n")
        answer = await stream.receive()

    assert answer.startswith(b"-ERR 'Authorization Violation'")
