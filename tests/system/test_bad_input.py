"""What anyone may put on the bus by mistake or on purpose: kept as a dead letter, and nothing else suffers."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import AsyncIterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path

import anyio
import pytest

from daemon.decoders.decoding import turn_key
from events.envelope import Keys
from events.log import LogReader
from events.reading import read_user
from events.session import TimeSource, TurnRecorded
from events.time import from_datetime
from memforest.errors import Conflict, RequestInvalid
from tests.stored import stored_rows
from tests.system.daemon_process import (
    DaemonProcess,
    Publisher,
    a_close,
    a_turn,
    assert_equal,
    publisher_to,
    running_daemon,
    short_folder,
    until,
    until_built,
    until_recorded,
    verify,
)

USER = "alice"
TURNS = f"memforest.turns.{USER}.s1"
CONTROL = f"memforest.control.{USER}.s1"
# Stands in every hostile message where a reason could quote it.
MARKER = "zanzibar"
AT_ONCE_S = 2.0
# The server of the embedded bus takes 1 MiB.
HUGE_BYTES = 1_000_000


def a_body(**changes: object) -> bytes:
    """A good turn, with some fields changed; None takes a field away."""
    body = a_turn(USER, "s1", f"I saw {MARKER}.", id=f"{MARKER}-1", timestamp="2024-07-01T09:00:00Z")
    return json.dumps({name: value for name, value in {**body, **changes}.items() if value is not None}).encode()


def some_turns(count: int) -> bytes:
    turns = [{"role": "user", "content": f"{MARKER} {number}"} for number in range(count)]
    return json.dumps({"type": "turns", "user_id": USER, "session_id": "s1", "turns": turns}).encode()


def a_control(kind: str, **more: object) -> bytes:
    return json.dumps({"type": kind, "user_id": USER, "session_id": "s1", **more}).encode()


# What is wrong: subject, payload, and a piece of the reason that says so.
HOSTILE: dict[str, tuple[str, bytes, str]] = {
    "unknown type": (TURNS, a_body(type=MARKER), "none of those that are allowed at `$.type`"),
    "no type": (TURNS, a_body(type=None), "missing required field `type`"),
    "a memory with a role": (TURNS, a_body(type="memory"), "unknown field"),
    "a memory of nothing": (TURNS, a_body(type="memory", role=None, name=None, content=" "), "1 to 8000"),
    "a memory beyond 32 bits": (
        TURNS,
        a_body(type="memory", role=None, name=None, embedding=[1e39]),
        "not finite",
    ),
    "taking back on turns": (TURNS, a_control("turn.retract", turn_id=MARKER), "does not belong on this subject"),
    "taking back nothing": (CONTROL, a_control("turn.retract"), "missing required field `turn_id`"),
    "empty": (TURNS, b"", "not valid JSON"),
    "no JSON": (TURNS, MARKER.encode(), "not valid JSON"),
    "half JSON": (TURNS, a_body()[:-3], "not valid JSON"),
    "two documents": (TURNS, a_body() + a_body(), "not valid JSON"),
    "a list": (TURNS, b"[" + a_body() + b"]", "Expected `object`"),
    "no UTF-8": (TURNS, a_body().replace(b"saw", b"\xff\xfe"), "not valid JSON in UTF-8"),
    "half a surrogate pair": (TURNS, a_body().replace(b"saw", b"\\ud800"), "not valid JSON in UTF-8"),
    "not a number": (TURNS, a_body(timestamp=float("nan")), "not valid JSON"),
    "infinite": (TURNS, a_body(timestamp=float("inf")), "not valid JSON"),
    "a number without end": (TURNS, a_body().replace(b'"2024-07-01T09:00:00Z"', b"9" * 100_000), "out of range"),
    "nested deep": (TURNS, a_body(metadata=1).replace(b": 1", b": " + b"[" * HUGE_BYTES), "Expected `object"),
    "deep metadata": (
        TURNS,
        a_body(metadata=1).replace(b": 1", b": " + b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
        "nested too deep",
    ),
    "huge": (TURNS, a_body(content=[MARKER * (HUGE_BYTES // len(MARKER))]), "Expected `object`"),
    "subject with too few names": (f"memforest.turns.{USER}", a_body(), "subject"),
    "subject with too many names": (f"{TURNS}.{MARKER}", a_body(), "subject"),
    "subject with a broken name": (f"memforest.turns.b32-{MARKER}1.s1", a_body(), "subject"),
    "another user than the subject's": (TURNS, a_body(user_id=MARKER), "different users or sessions"),
    "another session than the subject's": (TURNS, a_body(session_id=MARKER), "different users or sessions"),
    "a turn on control": (CONTROL, a_body(), "does not belong on this subject"),
    "forgetting on turns": (TURNS, a_control("session.forget"), "does not belong on this subject"),
    "a revision of nothing": (TURNS, a_body(revision=1, id=None), "a revision needs the id of its turn"),
    "a revision before the first": (TURNS, a_body(revision=-1), "revision is a whole number from 0 on"),
    "no content": (TURNS, a_body(content=None), "missing required field `content`"),
    "no role": (TURNS, a_body(role=None), "missing required field `role`"),
    "no user": (TURNS, a_body(user_id=None), "missing required field `user_id`"),
    "content of a wrong kind": (TURNS, a_body(content=17), "Expected `str | array`, got `int` at `$.content`"),
    "a part without a type": (TURNS, a_body(content=[{"text": MARKER}]), "content part 0 has no type"),
    "an unknown field": (TURNS, a_body(**{MARKER: MARKER}), "unknown field"),
    "an empty id": (TURNS, a_body(id=""), "an id has 1 to"),
    "a timestamp that is none": (TURNS, a_body(timestamp=f"{MARKER} of May"), "timestamp is neither ISO 8601"),
    "a day that is none": (TURNS, a_body(timestamp="2024-02-30T09:00:00Z"), "timestamp is neither ISO 8601"),
    "a time beyond all calendars": (TURNS, a_body(timestamp=1e300), "timestamp lies outside"),
    "a time before all calendars": (TURNS, a_body(timestamp="0001-01-01T00:00:00+14:00"), "timestamp"),
    "no turns": (TURNS, some_turns(0), "1 to 256 turns"),
    "too many turns": (TURNS, some_turns(300), "1 to 256 turns"),
    "a turns message on control": (CONTROL, some_turns(2), "does not belong on this subject"),
}


@pytest.fixture
async def daemon() -> AsyncIterator[DaemonProcess]:
    with short_folder() as folder:
        async with running_daemon(folder / "d") as started:
            yield started


@pytest.fixture
async def publisher(daemon: DaemonProcess) -> AsyncIterator[Publisher]:
    async with publisher_to(daemon.bus_url) as started:
        yield started


async def test_every_hostile_message_is_a_dead_letter_and_the_good_ones_between_are_recorded(
    daemon: DaemonProcess, publisher: Publisher
) -> None:
    expected: dict[int, tuple[str, bytes, str]] = {}
    for name, (subject, payload, reason) in HOSTILE.items():
        await publisher.send(a_turn(USER, "good", f"Before {len(expected)}.", id=f"good-{len(expected)}"))
        expected[await publisher.publish(subject, payload)] = (name, payload, reason)
    # A large message is no bad message.
    await publisher.send(a_turn(USER, "good", "what a long day. " * (HUGE_BYTES // 20), id="large"))
    await publisher.send(a_close(USER, "good"))
    async with daemon.client() as client:
        await until_recorded(client, USER, len(HOSTILE) + 1)
        await until_built(client, USER)
        sessions = {session.session_id: session.turns for session in await client.sessions(USER)}
        status = await client.request("status", {})
    letters = {
        seq: (bytes(payload), reason)
        for seq, payload, reason in stored_rows(
            daemon.store_path, "SELECT bus_seq, payload, reason FROM dead_letters ORDER BY id"
        )
    }

    assert letters.keys() == expected.keys()
    for seq, (name, payload, reason) in expected.items():
        assert letters[seq][0] == payload, name
        assert reason in letters[seq][1], (name, letters[seq][1])
        assert MARKER not in letters[seq][1].lower(), name
        assert len(letters[seq][1]) < 300, name
    assert MARKER not in daemon.log_text().lower()
    assert sessions == {"good": len(HOSTILE) + 1}
    assert status["log"]["dead_letters"] == len(HOSTILE)
    assert len(daemon.logged("ingest.dead_letter")) == len(HOSTILE)
    assert status["worker"]["parked"] == 0
    assert_equal(await verify(daemon.folder), users=1)


async def test_whoever_waits_for_a_turn_that_was_not_taken_learns_why_at_once(
    daemon: DaemonProcess, publisher: Publisher
) -> None:
    await publisher.send(a_turn(USER, "s1", "I moved to Miami.", id="kept", timestamp="2024-07-01T09:00:00Z"))
    await publisher.publish(TURNS, a_body(id="dead", revision=-1))
    await publisher.publish(TURNS, a_body(id="odd", color=MARKER))
    again = a_turn(USER, "s1", f"I moved to {MARKER}.", id="kept", timestamp="2024-07-01T09:00:00Z")
    await publisher.send(again)
    async with daemon.client() as client:
        # The last message is read, so the others are, too.
        await until(partial(has_conflict, daemon.store_path))
        with anyio.fail_after(AT_ONCE_S), pytest.raises(RequestInvalid) as odd:
            await client.query(USER, "Where?", wait_for=turn_key(USER, "s1", "odd"))
        with anyio.fail_after(AT_ONCE_S), pytest.raises(Conflict) as conflict:
            await client.query(USER, "Where?", wait_for=turn_key(USER, "s1", "kept"))
        # The id is read although the revision makes it another key.
        with anyio.fail_after(AT_ONCE_S), pytest.raises(RequestInvalid) as dead:
            await client.query(USER, "Where?", wait_for=turn_key(USER, "s1", "dead", -1))
        answer = await client.query(USER, "Where does Alice live?")

    assert "unknown field" in str(odd.value)
    assert "revision" in str(dead.value)
    assert "the first turn stands" in str(conflict.value)
    assert MARKER not in f"{odd.value}{dead.value}{conflict.value}"
    assert "Miami" in answer.context
    assert MARKER not in answer.context


async def test_times_are_read_as_they_are_meant_and_flagged_when_they_are_guessed() -> None:
    nine = datetime(2024, 7, 1, 9, tzinfo=UTC)
    seven = datetime(2024, 7, 1, 7, tzinfo=UTC)  # nine o'clock in Berlin
    cases: dict[str, tuple[object, datetime | None, TimeSource]] = {
        "zulu": ("2024-07-01T09:00:00Z", nine, TimeSource.GIVEN),
        "offset": ("2024-07-01T11:00:00+02:00", nine, TimeSource.GIVEN),
        "seconds": (1_719_824_400, nine, TimeSource.GIVEN),
        "fraction": (1_719_824_400.25, nine.replace(microsecond=250_000), TimeSource.GIVEN),
        "milliseconds": (1_719_824_400_250, nine.replace(microsecond=250_000), TimeSource.GIVEN),
        "before-1970": (-86_400, datetime(1969, 12, 31, tzinfo=UTC), TimeSource.GIVEN),
        "naive": ("2024-07-01T09:00:00", seven, TimeSource.ZONE_ASSUMED),
        "day": ("2024-07-01", datetime(2024, 6, 30, 22, tzinfo=UTC), TimeSource.ZONE_ASSUMED),
        "missing": (None, None, TimeSource.BUS),
    }
    with short_folder() as folder:
        environ = {"MEMFOREST_BUS_ZONE": "Europe/Berlin"}
        async with (
            running_daemon(folder / "d", environ=environ) as daemon,
            publisher_to(daemon.bus_url) as publisher,
            daemon.client() as client,
        ):
            before = from_datetime(datetime.now(UTC))
            for name, (stamp, _, _) in cases.items():
                more = {} if stamp is None else {"timestamp": stamp}
                await publisher.send(a_turn(USER, "s1", "I moved to Miami.", id=name, **more))
            await until_recorded(client, USER, len(cases))
            after = from_datetime(datetime.now(UTC))
            recorded = await times_of(daemon.store_path)

    for name, (_, when, source) in cases.items():
        at, read_from = recorded[name]
        assert read_from is source, name
        if when is None:
            assert before - 1 <= at <= after, name
        else:
            assert at == from_datetime(when), name


async def times_of(path: Path) -> dict[str | None, tuple[int, TimeSource]]:
    """When each turn was said, by its id, and where that was read from."""
    log = await LogReader.open_to_read(path)
    try:
        user = Keys(await log.read(read_secret)).user(USER)
        return {
            event.event.turn_id: (event.happened_at, event.event.time_source)
            for event in await log.read(partial(read_user, user=user))
            if isinstance(event.event, TurnRecorded)
        }
    finally:
        await log.close()


async def has_conflict(path: Path) -> bool:
    return stored_rows(path, "SELECT count(*) FROM events WHERE type = 'turn.conflicted'") == [(1,)]


def read_secret(connection: sqlite3.Connection) -> bytes:
    (secret,) = connection.execute("SELECT secret FROM store").fetchone()
    return bytes(secret)
