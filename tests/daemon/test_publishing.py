"""Publishing for callers without a NATS client: everything is checked as ingest will, and goes over a real bus."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from daemon.bus.bus_messages import BusUnavailable
from daemon.bus.nats_bus import NatsBus
from daemon.bus.publishing import MESSAGES_MAX, CloseParams, IngestParams, Published, Publisher
from daemon.decoders.decoding import Decoder
from events.dead_letters import DeadLetter
from events.errors import InvalidInput
from tests.builders import KEYS
from tests.bus_in_use import bus_with_stream, fetch_all, unattended_server

DECODER = Decoder(KEYS, ZoneInfo("UTC"))


@pytest.fixture
async def url(tmp_path: Path) -> AsyncIterator[str]:
    async with unattended_server(tmp_path / "nats") as url:
        yield url


def a_turn(content: str = "I moved.", **more: object) -> dict[str, Any]:
    return {"type": "turn", "user_id": "alice", "session_id": "s 1", "role": "user", "content": content, **more}


def turns(*turns: dict[str, Any]) -> dict[str, Any]:
    return {"type": "turns", "user_id": "alice", "session_id": "s 1", "turns": list(turns)}


async def ingest(bus: NatsBus, *messages: dict[str, Any]) -> list[Published]:
    return (await Publisher(bus, DECODER).ingest(IngestParams(messages=list(messages)))).published


async def test_a_memory_is_published_once_under_the_key_of_its_id(url: str) -> None:
    memory = {
        "type": "memory",
        "id": "x-1",
        "user_id": "alice",
        "session_id": "s 1",
        "content": "Alice likes tea.",
    }
    async with bus_with_stream(url) as bus:
        first, second = await ingest(bus, memory, memory)
        (received,) = await fetch_all(bus, None, 1)

    assert first.keys == second.keys == ["turn/alice/b32-omqdc/x-1/0"]
    assert second.duplicate
    assert not isinstance(DECODER.decode(received, "e1"), DeadLetter)


async def test_what_is_published_is_what_ingest_reads(url: str) -> None:
    async with bus_with_stream(url) as bus:
        message = turns({"role": "user", "content": "one", "id": "m/1"}, {"role": "user", "content": "two"})
        published = await ingest(bus, a_turn(id="m1"), message)
        received = await fetch_all(bus, None, 2)

    assert [(each.stream, each.seq, each.duplicate) for each in published] == [
        ("MEMFOREST", 1, False),
        ("MEMFOREST", 2, False),
    ]
    assert [each.keys for each in published] == [
        ["turn/alice/b32-omqdc/m1/0"],
        ["turn/alice/b32-omqdc/b32-nuxtc/0"],
    ]
    decoded = [DECODER.decode(each, "e1") for each in received]
    keys = [event.key for each in decoded if not isinstance(each, DeadLetter) for event in each]
    assert keys[:2] == ["turn/alice/b32-omqdc/m1/0", "turn/alice/b32-omqdc/b32-nuxtc/0"]
    assert len(keys) == 3


async def test_a_turn_with_an_id_sent_again_is_a_duplicate_and_other_content_is_not(url: str) -> None:
    """The bus would swallow other content under a known id in silence; the log reports the conflict."""
    async with bus_with_stream(url) as bus:
        (first,) = await ingest(bus, a_turn("one", id="m1"))
        (again,) = await ingest(bus, a_turn("one", id="m1"))
        (other,) = await ingest(bus, a_turn("another", id="m1"))

    assert (first.duplicate, again.duplicate, other.duplicate) == (False, True, False)
    assert again.seq == first.seq


async def test_without_ids_a_repetition_is_meant_and_kept(url: str) -> None:
    async with bus_with_stream(url) as bus:
        published = await ingest(bus, a_turn("ok"), a_turn("ok"), turns({"role": "user", "content": "ok"}))

    assert [each.duplicate for each in published] == [False, False, False]
    assert [each.keys for each in published] == [[], [], []]


@pytest.mark.parametrize(
    "wrong",
    [
        a_turn("Xylophon", role=5),
        a_turn("Xylophon", surprise=1),
        a_turn("Xylophon", timestamp="never"),
        a_turn("Xylophon", timestamp=1e300),
        a_turn("Xylophon", revision=1),
        a_turn("Xylophon", id=""),
        a_turn("Xylophon") | {"user_id": ""},
        a_turn("Xylophon") | {"user_id": "x" * 1001},
        a_turn() | {"content": [{"type": "text"}]},
        turns(),
        turns({"role": "user", "content": "Xylophon", "timestamp": "never"}),
        {"type": "session.forget", "user_id": "alice", "session_id": "s1"},
        {"type": "session.close", "user_id": "alice", "session_id": "s1"},
        {"type": "Xylophon"},
        {},
    ],
)
async def test_what_would_become_a_dead_letter_is_refused_before_anything_is_sent(wrong: dict[str, Any]) -> None:
    bus = NatsBus("nats://127.0.0.1:1")  # never connected: publishing would raise BusUnavailable
    with pytest.raises(InvalidInput, match=r"^message 1: ") as raised:
        await ingest(bus, a_turn("good"), wrong)

    assert "Xylophon" not in str(raised.value)


@pytest.mark.parametrize("count", [0, MESSAGES_MAX + 1])
async def test_no_message_or_too_many_are_refused(count: int) -> None:
    with pytest.raises(InvalidInput, match=str(MESSAGES_MAX)):
        await ingest(NatsBus("nats://127.0.0.1:1"), *[a_turn()] * count)


async def test_with_the_bus_down_the_caller_hears_how_much_was_published() -> None:
    with pytest.raises(BusUnavailable, match=r"0 of 1 messages were published") as raised:
        await ingest(NatsBus("nats://127.0.0.1:1"), a_turn("Xylophon"))

    assert "Xylophon" not in str(raised.value)


async def test_a_message_above_the_limit_of_the_bus_is_refused(url: str) -> None:
    async with bus_with_stream(url) as bus:
        with pytest.raises(InvalidInput, match="at most"):
            await ingest(bus, a_turn("x" * 1_100_000))


async def test_a_closing_is_published_on_the_control_subject_with_the_key_to_wait_for(url: str) -> None:
    async with bus_with_stream(url) as bus:
        publisher = Publisher(bus, DECODER)
        closed = await publisher.close_session(CloseParams(user_id="alice", session_id="s 1", id="c1"))
        without = await publisher.close_session(CloseParams(user_id="alice", session_id="s 1"))
        received = await fetch_all(bus, None, 2)

    first = DECODER.decode(received[0], "e1")
    assert not isinstance(first, DeadLetter)
    assert (closed.key, without.key) == (first[0].key, None)
    assert {message.subject for message in received} == {"memforest.control.alice.b32-omqdc"}
    assert msgspec.json.decode(received[1].payload) == {
        "type": "session.close",
        "user_id": "alice",
        "session_id": "s 1",
    }
