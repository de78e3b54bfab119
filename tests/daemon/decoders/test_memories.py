"""Memories of other systems as messages: their form, their embedding, and the key they share with turns."""

from __future__ import annotations

from base64 import b64decode
from struct import unpack
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from daemon.bus.subjects import control_subject, turn_subject
from daemon.decoders.decoding import EMBEDDING_WIDTH_MAX, MEMORY_CHARACTERS_MAX, Decoder, turn_key
from events.session import MemoryImported, TimeSource
from tests.builders import KEYS, MONDAY
from tests.daemon.decoders.made import SECRET_WORDS, a_message, decoded, refused

DECODER = Decoder(KEYS, ZoneInfo("UTC"))
SUBJECT = turn_subject("alice", "import")
MEMORY: dict[str, Any] = {
    "type": "memory",
    "id": "x-1",
    "user_id": "alice",
    "session_id": "import",
    "content": "Alice is allergic to nuts.",
    "timestamp": "2024-07-01T09:00:00Z",
}


def test_a_memory_has_the_key_of_a_turn_and_the_lineage_of_its_session() -> None:
    (event,) = decoded(DECODER, a_message({**MEMORY, "metadata": {"from": "mem0"}, "agent_id": "bot"}, SUBJECT))

    assert event.event == MemoryImported(MEMORY["content"], "x-1", "bot", '{"from":"mem0"}')
    assert (event.key, event.happened_at) == (turn_key("alice", "import", "x-1"), MONDAY)
    assert event.lineage == (KEYS.session("alice", "import"),)


def test_an_embedding_is_kept_in_32_bits() -> None:
    body = {**MEMORY, "embedding": [0.5, -1, 0.1], "embedding_model": "small-2"}
    (event,) = decoded(DECODER, a_message(body, SUBJECT))

    assert isinstance(event.event, MemoryImported)
    assert event.event.embedding is not None
    assert unpack("<3f", b64decode(event.event.embedding)) == (0.5, -1.0, pytest.approx(0.1))
    assert event.event.embedding_model == "small-2"


def test_without_a_time_that_of_the_bus_counts_and_is_flagged() -> None:
    body = {name: value for name, value in MEMORY.items() if name != "timestamp"}
    (event,) = decoded(DECODER, a_message(body, SUBJECT, published_at=MONDAY + 7))

    assert isinstance(event.event, MemoryImported)
    assert (event.happened_at, event.time_assigned) == (MONDAY + 7, True)
    assert event.event.time_source is TimeSource.BUS


@pytest.mark.parametrize(
    "change",
    [
        {"content": ""},
        {"content": "  "},
        {"content": SECRET_WORDS * MEMORY_CHARACTERS_MAX},
        {"content": [{"type": "text", "text": SECRET_WORDS}]},
        {"id": None},
        {"id": ""},
        {"revision": 1},
        {"timestamp": SECRET_WORDS},
        {"embedding": []},
        {"embedding": [0.0] * (EMBEDDING_WIDTH_MAX + 1)},
        {"embedding": [1e300]},
        {"embedding": [SECRET_WORDS]},
        {"embedding": [None]},
        {"embedding": [True]},
        {"embedding": SECRET_WORDS},
        {"embedding": [0, 0.0, -0.0]},
        {"embedding": [1e-50]},
        {"embedding": [1], "embedding_model": "m" * 257},
        {"embedding_model": 5},
        {"metadata": SECRET_WORDS},
        {"user_id": SECRET_WORDS},
    ],
)
def test_hostile_memories_are_dead_letters_whose_reason_quotes_nothing(change: dict[str, Any]) -> None:
    letter = refused(DECODER, a_message({**MEMORY, **change}, SUBJECT))

    assert letter.reason
    assert SECRET_WORDS not in letter.reason


@pytest.mark.parametrize("number", [b"NaN", b"Infinity", b"1e999", b"-1e400"])
def test_a_number_that_is_not_finite_is_a_dead_letter(number: bytes) -> None:
    head = b'{"type":"memory","id":"x","user_id":"alice","session_id":"import","content":"x","embedding":['

    assert refused(DECODER, a_message(head + number + b"]}", SUBJECT)).reason


def test_a_memory_on_a_control_subject_is_a_dead_letter_with_the_key_to_wait_for() -> None:
    letter = refused(DECODER, a_message(MEMORY, control_subject("alice", "import")))

    assert letter.key == turn_key("alice", "import", "x-1")
