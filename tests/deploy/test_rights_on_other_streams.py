"""The rights on other streams that deploy/README.md lists are enough, and none of them is needless."""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import msgspec
import nats

from daemon.app import run, start, stop
from daemon.bus.embedded_bus import LOOPBACK
from daemon.bus.subscriptions import Subscription
from daemon.config import Config
from daemon.wiring import App
from tests.builders import MONDAY
from tests.bus_in_use import Reported
from tests.deploy.server_with_rights import CONFIGURATION, DEPLOY
from tests.nats_server import OutsideServer, running_server
from tests.system.daemon_process import until
from tests.waiting import wait_until

CLAW = "openclaw-events"
SESSION = "main:matrix:alice"


def documented(text: str, start_of: str, end: str) -> list[str]:
    """The subjects in quotes between two places of a document."""
    block = text.partition(start_of)[2].partition(end)[0]
    return re.findall(r'^\s*"(\$[^"]+|memforest[^"]+)"', block, flags=re.MULTILINE)


OWN = documented(CONFIGURATION.read_text(), "user: daemon", "subscribe:")
FURTHER = [
    re.sub(r"\.S(?=\.|$)", f".{CLAW}", right)
    for right in documented((DEPLOY / "README.md").read_text(), "**Other streams**", "Without the last one")
]


@asynccontextmanager
async def server_with(folder: Path, rights: list[str]) -> AsyncGenerator[OutsideServer, None]:
    """A server whose `daemon` may publish on these subjects only; both streams are there, with two events."""
    permissions = {"publish": {"allow": rights}, "subscribe": {"allow": ["_INBOX.>"]}}
    daemon = {"user": "daemon", "password": "daemon", "permissions": permissions}
    users = [{"user": "owner", "password": "owner"}, daemon]
    async with running_server(folder, f"authorization: {json.dumps({'users': users})}") as server:
        client = await nats.connect(f"nats://owner:owner@{LOOPBACK}:{server.port}")
        await client.jetstream().add_stream(
            name="MEMFOREST", subjects=["memforest.turns.>", "memforest.control.>"]
        )
        await client.jetstream().add_stream(name=CLAW, subjects=["openclaw.events.>"])
        for number in range(2):
            body = {"id": f"c-{number}", "ts": MONDAY, "agent": "main", "session": SESSION, "type": "msg.in"}
            said = {**body, "payload": {"from": "alice", "content": f"openclaw {number}"}}
            await client.jetstream().publish("openclaw.events.main.msg_in", msgspec.json.encode(said))
        await client.close()
        yield server


@asynccontextmanager
async def daemon_on(server: OutsideServer, folder: Path, reported: Reported) -> AsyncGenerator[App, None]:
    config = Config(subscriptions=(Subscription(CLAW, ("openclaw.events.*.msg_in",), "openclaw"),))
    room = replace(config.data, dir=str(folder), ballast_mb=0, free_min_mb=0)
    url = f"nats://daemon:daemon@{LOOPBACK}:{server.port}"
    app, stopping = (
        await start(replace(config, data=room, bus=replace(config.bus, url=url)), reported),
        anyio.Event(),
    )
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, app, stopping)
            yield app
            stopping.set()
    finally:
        await stop(app)


async def test_with_the_rights_that_are_listed_it_is_read_measured_and_erased(tmp_path: Path) -> None:
    async with server_with(tmp_path / "nats", [*OWN, *FURTHER]) as server:
        async with daemon_on(server, tmp_path / "store", Reported()) as app:
            ingest = app.readings[0].ingest

            async def is_read() -> bool:
                return app.log.head >= 2 and await ingest.lag_messages() == 0

            await until(is_read)
            receipt = await app.forgetter.forget("alice", SESSION)
        denied = [line for line in (server.folder / "nats.log").read_text().splitlines() if "Violation" in line]

    assert (receipt.bus_messages_erased, receipt.bus_messages_left) == (2, 0)
    # The bucket of tombstones is the operator's to make, and was not.
    assert [line for line in denied if CLAW in line] == []


async def test_without_the_right_to_delete_the_receipt_says_what_is_left(tmp_path: Path) -> None:
    assert FURTHER[-1] == f"$JS.API.STREAM.MSG.DELETE.{CLAW}"
    reported = Reported()
    async with (
        server_with(tmp_path / "nats", [*OWN, *FURTHER[:-1]]) as server,
        daemon_on(server, tmp_path / "store", reported) as app,
    ):
        await wait_until(lambda: app.log.head >= 2)
        receipt = await app.forgetter.forget("alice", SESSION)

    assert (receipt.bus_messages_erased, receipt.bus_messages_left, receipt.bus_left_until) == (0, 2, None)
    assert "no right" in str(reported.fields("forgetting.bus_not_erased")[0]["reason"])
