"""Two streams into one daemon that is killed in the middle: nothing twice, nothing lost, and forgotten on both."""

from __future__ import annotations

import random
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec

from daemon.bus.subjects import turn_subject
from tests.builders import MONDAY
from tests.bus_in_use import bus_with_stream
from tests.nats_server import running_server
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    assert_equal,
    connect,
    publisher_to,
    running_daemon,
    short_folder,
    until,
    verify,
)

CLAW = "openclaw-events"
CLAW_SESSION, OWN_SESSION = "main:matrix:alice", "s1"
EACH = 50
KILLS = 1
CONFIGURATION = f"""
[[subscriptions]]
stream = "{CLAW}"
subjects = ["openclaw.events.*.msg_in", "openclaw.events.*.msg_sending"]
decoder = "openclaw"
"""


def native(number: int) -> tuple[str, dict[str, Any]]:
    ids = {"user_id": "alice", "session_id": OWN_SESSION}
    body = {"type": "turn", "id": f"n{number}", **ids, "role": "user", "content": f"native {number}"}
    return turn_subject("alice", OWN_SESSION), {**body, "timestamp": MONDAY + number}


def claw(number: int, kind: str) -> tuple[str, dict[str, Any]]:
    body = {"id": f"c{number}", "ts": MONDAY + number, "agent": "main", "session": CLAW_SESSION, "type": kind}
    payload = {"from": "alice", "content": f"openclaw {number}"}
    return f"openclaw.events.main.{kind.replace('.', '_')}", {**body, "payload": payload}


async def publish_all(publisher: Publisher, dice: random.Random) -> None:
    """Both in turns, with what is ignored in between; some come twice, as when a publisher is in doubt."""
    for number in range(EACH):
        messages = [native(number), claw(number, "msg.in"), claw(number, "msg.sending")]
        for subject, body in [*messages, *dice.sample(messages, dice.randrange(2))]:
            await publisher.publish(subject, msgspec.json.encode(body))


def said(daemon: DaemonProcess) -> list[str]:
    """What was recorded, in the order of the log."""
    query = (
        "SELECT w.text FROM words w JOIN events e USING (seq) WHERE n = 0 AND type = 'turn.recorded' ORDER BY seq"
    )
    return [bytes(text).decode() for (text,) in stored_rows(daemon.store_path, query) if text is not None]


async def has_read_all(daemon: DaemonProcess) -> bool:
    async with daemon.client() as client:
        status = await client.request("status", {})
    streams: list[Mapping[str, Any]] = [status["bus"], *status["subscriptions"]]
    return all(each["state"] == "up" and each["lag_messages"] == 0 for each in streams)


async def test_a_daemon_that_is_killed_reads_both_streams_whole_and_forgets_on_both(tmp_path: Path) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    configuration = tmp_path / "memforest.toml"
    configuration.write_text(CONFIGURATION)
    environ = {"MEMFOREST_CONFIG": str(configuration)}
    with short_folder() as folder:
        async with running_server(tmp_path / "nats") as server:
            async with bus_with_stream(server.url):
                pass
            client = await connect(server.url)
            await client.jetstream().add_stream(name=CLAW, subjects=["openclaw.events.>"])
            async with (
                publisher_to(server.url) as publisher,
                running_daemon(folder / "data", server.url, environ=environ) as daemon,
            ):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(publish_all, publisher, dice)
                    for _ in range(KILLS):
                        await until(partial(_grew, daemon, len(said(daemon))))
                        await daemon.kill()
                        await daemon.start()
                await until(partial(has_read_all, daemon))
                recorded = said(daemon)
                async with daemon.client() as asking:
                    ids = {"user_id": "alice", "session_id": CLAW_SESSION}
                    receipt = await asking.request("sessions.forget", ids)
                left = (await client.jetstream().stream_info(CLAW)).state.messages
                after = said(daemon)
            verdicts = await verify(folder / "data")
            await client.close()

    for prefix in ("native", "openclaw"):
        assert [text for text in recorded if text.startswith(prefix)] == [f"{prefix} {n}" for n in range(EACH)]
    assert receipt["bus_messages_left"] == 0
    assert receipt["bus_messages_erased"] >= EACH
    assert [text for text in after if text.startswith("openclaw")] == []
    assert len([text for text in after if text.startswith("native")]) == EACH
    assert left >= EACH, "what was ignored is none of ours, and stays"
    assert_equal(verdicts, users=1)


async def _grew(daemon: DaemonProcess, before: int) -> bool:
    return len(said(daemon)) > before
