"""Further streams in the configuration, and a daemon that reads two of them from a real server."""

from __future__ import annotations

import re
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import fields, replace
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import msgspec
import nats
import pytest
from nats.js.api import RetentionPolicy

from daemon.app import run, start, stop
from daemon.bus.readings import Reading, show_reading
from daemon.bus.subjects import turn_subject
from daemon.bus.subscriptions import Subscription
from daemon.config import Config, read_config
from daemon.config_values import ConfigInvalid
from daemon.dead_letters import DeadLetters, LetterParams
from daemon.decoders.formats import FORMATS
from daemon.upkeep.doctor_bus import examine_bus
from daemon.wiring import App
from events.dead_letters import read_letters
from events.tombstones import Tombstone, plant_tombstones
from tests.builders import MONDAY
from tests.bus_in_use import Reported, bus_with_stream
from tests.nats_server import OutsideServer, running_server
from tests.stored import stored_rows
from tests.system.daemon_process import until
from tests.waiting import wait_until

ROOT = Path(__file__).resolve().parents[2]
CLAW = "openclaw-events"
SESSION = "main:matrix:alice"


def written(tmp_path: Path, text: str) -> Config:
    path = tmp_path / "memforest.toml"
    path.write_text(text)
    return read_config(path, {})


def test_a_subscription_is_read_with_its_defaults(tmp_path: Path) -> None:
    config = written(
        tmp_path,
        '[[subscriptions]]\nstream = "openclaw-events"\nsubjects = ["a.*.b", "c.>"]\ndecoder = "openclaw"\n'
        'user = "{3}"\nsession = "{payload.room}"\n[[subscriptions]]\nstream = "OTHER"\n',
    )

    assert config.subscriptions == (
        Subscription("openclaw-events", ("a.*.b", "c.>"), "openclaw", "{3}", "{payload.room}"),
        Subscription("OTHER", (), "native", "", ""),
    )
    assert read_config(None, {}).subscriptions == ()


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ('subscriptions = "x"', "subscriptions"),
        ("subscriptions = [1]", "subscriptions"),
        ("[subscriptions]", "[[subscriptions]]"),
        ("[[subscriptions]]", "subscriptions.stream"),
        ('[[subscriptions]]\nstream = "a.b"', "subscriptions.stream"),
        ("[[subscriptions]]\nstream = 5", "subscriptions.stream"),
        ('[[subscriptions]]\nstream = "A"\nstreem = "B"', "subscriptions.streem"),
        ('[[subscriptions]]\nstream = "A"\ndecoder = "xml"', "subscriptions.decoder"),
        ('[[subscriptions]]\nstream = "A"\nsubjects = "a.b"', "subscriptions.subjects"),
        ('[[subscriptions]]\nstream = "A"\nsubjects = ["a b"]', "subscriptions.subjects"),
        ('[[subscriptions]]\nstream = "A"\nsubjects = [1]', "subscriptions.subjects"),
        ('[[subscriptions]]\nstream = "A"\nuser = "{"', "subscriptions.user"),
        ('[[subscriptions]]\nstream = "A"\nsession = "{0}"', "subscriptions.session"),
        ('[[subscriptions]]\nstream = "MEMFOREST"', "MEMFOREST"),
        ('[[subscriptions]]\nstream = "A"\n[[subscriptions]]\nstream = "A"', "twice"),
        ('[bus]\ndecoder = "xml"', "bus.decoder"),
        ('[[subscriptions]]\nstream = "A"\n' * 40, "32"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, named: str) -> None:
    with pytest.raises(ConfigInvalid, match=re.escape(named)):
        written(tmp_path, text)


def test_the_readme_names_every_key_and_every_decoder() -> None:
    spans = set(re.findall(r"`([^`\n]+)`", (ROOT / "README.md").read_text()))

    assert {key.name for key in fields(Subscription)} <= spans
    assert FORMATS.keys() <= spans


def test_the_examples_of_deploy_are_ones_that_work(tmp_path: Path) -> None:
    example = (ROOT / "deploy" / "memforest.toml").read_text()
    lines = re.findall(r"^#   (\[\[\w+\]\]|\w+ = .*)$", example, flags=re.MULTILINE)
    config = written(tmp_path, "\n".join(lines))
    (subscription,) = config.subscriptions

    assert (subscription.stream, subscription.decoder) == (CLAW, "openclaw")
    assert [price.model for price in config.prices] == ["gpt-4.1-mini"]


class Daemon:
    """The parts of a daemon that reads our own stream and openclaw's."""

    def __init__(self, app: App, reported: Reported) -> None:
        self.app = app
        self.reported = reported

    def has_read(self, own: int, claw: int) -> bool:
        """Whether both streams were read this far."""
        positions = (self.app.ingest.position, self.app.readings[0].ingest.position)
        return all(at is not None and at.seq >= seq for at, seq in zip(positions, (own, claw), strict=True))


def a_config(tmp_path: Path, server: OutsideServer, **changes: Any) -> Config:
    subscription = replace(Subscription(CLAW, decoder="openclaw"), **changes)
    config = Config(subscriptions=(subscription,))
    room = replace(config.data, dir=str(tmp_path / "store"), ballast_mb=0, free_min_mb=0)
    return replace(config, data=room, bus=replace(config.bus, url=server.url))


@asynccontextmanager
async def daemon_of(config: Config) -> AsyncGenerator[Daemon, None]:
    reported, stopping = Reported(), anyio.Event()
    app = await start(config, reported)
    try:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run, app, stopping)
            yield Daemon(app, reported)
            stopping.set()
    finally:
        await stop(app)


@asynccontextmanager
async def two_streams(tmp_path: Path, **changes: Any) -> AsyncGenerator[OutsideServer, None]:
    """A server with our stream and openclaw's, as its plugin makes it."""
    async with running_server(tmp_path / "nats") as server:
        async with bus_with_stream(server.url):
            pass
        client = await nats.connect(server.url)
        await client.jetstream().add_stream(name=CLAW, subjects=["openclaw.events.>"], **changes)
        await client.close()
        yield server


async def publish(server: OutsideServer, *messages: tuple[str, object]) -> None:
    client = await nats.connect(server.url)
    for subject, body in messages:
        await client.jetstream().publish(subject, msgspec.json.encode(body))
    await client.close()


def claw(number: int, kind: str = "msg.in", **payload: object) -> tuple[str, dict[str, object]]:
    said = {"from": "alice", "content": f"openclaw {number}", **payload}
    body = {"id": f"c-{number}", "ts": MONDAY + number, "agent": "main", "session": SESSION, "type": kind}
    return f"openclaw.events.main.{kind.replace('.', '_')}", {**body, "payload": said}


def native(number: int, session_id: str = "s1") -> tuple[str, object]:
    ids = {"user_id": "alice", "session_id": session_id}
    body = {"type": "turn", "id": f"n-{number}", **ids, "role": "user", "content": f"native {number}"}
    return turn_subject("alice", session_id), {**body, "timestamp": MONDAY + number}


def contents(tmp_path: Path) -> list[str]:
    query = (
        "SELECT w.text FROM words w JOIN events e USING (seq) WHERE n = 0 AND type = 'turn.recorded' ORDER BY seq"
    )
    return [bytes(text).decode() for (text,) in stored_rows(tmp_path / "store" / "events.db", query) if text]


async def last_seqs(server: OutsideServer) -> dict[str, tuple[int, int]]:
    """Messages and last sequence of each stream."""
    client = await nats.connect(server.url)
    states = {name: (await client.jetstream().stream_info(name)).state for name in ("MEMFOREST", CLAW)}
    await client.close()
    return {name: (state.messages, state.last_seq) for name, state in states.items()}


async def test_two_streams_become_one_log_and_a_restart_in_the_middle_loses_and_doubles_nothing(
    tmp_path: Path,
) -> None:
    async with two_streams(tmp_path) as server:
        config = a_config(tmp_path, server)
        await publish(server, native(1), claw(1), claw(2, "msg.sending"), claw(1), native(2))
        async with daemon_of(config) as daemon:
            await wait_until(partial(daemon.has_read, 2, 3))
            shown = await show_reading(daemon.app.readings[0])
        await publish(server, claw(3, "msg.out", success=True), native(3), claw(4, "llm.input"), native(1))
        await publish(server, claw(5), (claw(6)[0], {"type": "msg.in"}), claw(7, "session.end"))
        async with daemon_of(config) as daemon:
            await wait_until(partial(daemon.has_read, 4, 8))
            status = await daemon.app.readings[0].ingest.lag_messages()
            letters = await daemon.app.log.read(read_letters)

    assert sorted(contents(tmp_path)) == [
        *(f"native {n}" for n in (1, 2, 3)),
        *(f"openclaw {n}" for n in (1, 3, 5)),
    ]
    assert (shown.stream, shown.decoder, shown.state, shown.read_to) == (CLAW, "openclaw", "up", 3)
    assert (shown.ignored, shown.lag_messages, status) == (1, 0, 0)
    assert [(letter.bus.stream, letter.bus.seq) for letter in letters] == [(CLAW, 7)]
    rows = stored_rows(tmp_path / "store" / "events.db", "SELECT stream, seq FROM bus_checkpoint ORDER BY stream")
    assert rows == [("MEMFOREST", 4), (CLAW, 8)]


async def test_forgetting_deletes_the_copies_from_each_stream_they_came_by(tmp_path: Path) -> None:
    """Turns, a redelivery and a dead letter of one session that came by both ways."""
    subject, body = claw(3)
    unreadable = (subject, {**body, "payload": 5})
    async with two_streams(tmp_path) as server:
        await publish(server, native(1, SESSION), native(2), claw(1), claw(1), claw(2), unreadable)
        async with daemon_of(a_config(tmp_path, server)) as daemon:
            await wait_until(partial(daemon.has_read, 2, 4))
            receipt = await daemon.app.forgetter.forget("alice", SESSION)
            left = await last_seqs(server)

    assert (receipt.bus_messages_erased, receipt.bus_messages_left, receipt.dead_letters_erased) == (5, 0, 1)
    assert left == {"MEMFOREST": (1, 2), CLAW: (0, 4)}
    assert contents(tmp_path) == ["native 2"]


async def test_a_receipt_says_what_a_stream_keeps_that_denies_deletion(tmp_path: Path) -> None:
    async with two_streams(tmp_path, deny_delete=True, max_age=3600) as server:
        await publish(server, claw(1), claw(2))
        async with daemon_of(a_config(tmp_path, server)) as daemon:
            await wait_until(lambda: daemon.app.readings[0].ingest.position is not None)
            await wait_until(lambda: len(contents(tmp_path)) == 2)
            receipt = await daemon.app.forgetter.forget("alice", SESSION)
            reasons = [str(fields["reason"]) for fields in daemon.reported.fields("forgetting.bus_not_erased")]
        found = [each for each in await examine_bus(a_config(tmp_path, server)) if each.subject == "subscription"]

    assert (receipt.bus_messages_erased, receipt.bus_messages_left) == (0, 2)
    assert receipt.bus_left_until is not None
    assert CLAW in reasons[0]
    assert "deny deletion" in reasons[0]
    assert [(each.level, "deny deletion" in each.sentence) for each in found if each.level != "ok"] == [
        ("warning", True),
    ]


async def test_what_was_forgotten_elsewhere_is_refused_when_another_stream_is_read_again(tmp_path: Path) -> None:
    """A backup from before knows neither the turns nor that they were forgotten; the bucket tells."""
    async with two_streams(tmp_path) as server:
        await publish(server, claw(1))
        config = a_config(tmp_path, server)
        app = await start(config, Reported())
        keys, log = app.log.keys, app.log
        told = Tombstone(keys.session("alice", SESSION), keys.user("alice"), 2**41)
        await log.write(partial(plant_tombstones, tombstones=[told]))
        await stop(app)
        async with daemon_of(config) as daemon:
            await wait_until(lambda: daemon.app.readings[0].ingest.position is not None)
            await wait_until(lambda: bool(daemon.reported.fields("ingest.batch_recorded")))

    assert contents(tmp_path) == []


async def has_no_lag(reading: Reading) -> bool:
    return await reading.ingest.lag_messages() == 0


async def test_filters_are_the_servers_and_the_lag_counts_what_they_let_through(tmp_path: Path) -> None:
    async with two_streams(tmp_path) as server:
        config = a_config(tmp_path, server, subjects=("openclaw.events.*.msg_in",), user="{3}")
        await publish(server, claw(1), *(claw(number, "tool.call") for number in range(2, 6)))
        async with daemon_of(config) as daemon:
            reading = daemon.app.readings[0]
            await wait_until(lambda: len(contents(tmp_path)) == 1)
            # What is committed counts until the server knows that it is.
            await until(partial(has_no_lag, reading))
            shown = await show_reading(reading)
            users = stored_rows(tmp_path / "store" / "events.db", "SELECT text FROM names WHERE kind = 'user'")

    assert (shown.read_to, shown.lag_messages, shown.ignored) == (1, 0, 0)
    assert users == [(b"main",)]


async def test_a_stream_that_forgets_what_was_read_and_one_that_is_missing_are_said_so_and_hold_up_nothing(
    tmp_path: Path,
) -> None:
    async with two_streams(tmp_path, retention=RetentionPolicy.WORK_QUEUE) as server:
        config = a_config(tmp_path, server)
        config = replace(config, subscriptions=(*config.subscriptions, Subscription("NOWHERE")))
        await publish(server, native(1), claw(1))
        async with daemon_of(config) as daemon:
            await wait_until(lambda: len(contents(tmp_path)) == 1)
            await wait_until(lambda: all(each.bus.state == "no stream" for each in daemon.app.readings))
            reasons = [each.bus.reason for each in daemon.app.readings]
        errors = [each.sentence for each in await examine_bus(config) if each.level == "error"]

    assert errors == [f"{CLAW} has workqueue retention", "there is no stream NOWHERE"]
    assert "limits retention" in reasons[0]
    assert reasons[1] == "there is no stream NOWHERE"


async def test_a_dead_letter_of_another_stream_is_tried_again_by_its_decoder(tmp_path: Path) -> None:
    """Under the configuration of today: here, once it says whose the messages are."""
    subject, body = claw(1)
    async with two_streams(tmp_path) as server:
        await publish(server, (subject, {**body, "session": "main"}))
        async with daemon_of(a_config(tmp_path, server)) as daemon:
            await wait_until(lambda: bool(daemon.reported.fields("ingest.dead_letter")))
        async with daemon_of(a_config(tmp_path, server, user="alice")) as daemon:
            (letter,) = await daemon.app.log.read(read_letters)
            decoders = {each.stream: each.decoder for each in daemon.app.readings}
            letters = DeadLetters(daemon.app.log, daemon.app.readings[0].decoder, decoders)
            retried = await letters.retry(LetterParams(id=letter.id))

    assert retried.recorded == 1
    assert contents(tmp_path) == ["openclaw 1"]
