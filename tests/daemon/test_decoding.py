"""Native messages to events: keys, lineage, times and contents; and why a message becomes a dead letter."""

from __future__ import annotations

from hashlib import blake2b
from typing import Any
from zoneinfo import ZoneInfo

import msgspec
import pytest

from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import control_subject, turn_subject
from daemon.decoders.decoding import Decoder, turn_key
from daemon.decoders.native import TURNS_MAX, parse_message
from events.dead_letters import DeadLetter
from events.envelope import BusPosition, NewEvent
from events.errors import InvalidInput
from events.session import (
    Part,
    SessionClosed,
    SessionForgotten,
    TimeSource,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
)
from events.time import to_iso
from tests.builders import KEYS, MONDAY

DECODER = Decoder(KEYS, ZoneInfo("Europe/Berlin"))
SECRET_WORDS = "Xylophon-4711"
TURN: dict[str, Any] = {
    "type": "turn",
    "id": "m-17",
    "user_id": "alice",
    "session_id": "s1",
    "role": "user",
    "content": "I moved to Miami.",
    "timestamp": "2024-07-01T09:00:00Z",
}


def a_message(
    body: object,
    subject: str | None = None,
    *,
    headers: dict[str, str] | None = None,
    published_at: int = MONDAY,
    seq: int = 7,
) -> BusMessage:
    """A message as the bus hands it over; `body` is written as JSON unless it is bytes."""
    payload = body if isinstance(body, bytes) else msgspec.json.encode(body)
    subject = subject or turn_subject("alice", "s1")
    return BusMessage(subject, payload, headers or {}, "MEMFOREST", seq, published_at)


def without(field: str) -> dict[str, Any]:
    return {name: value for name, value in TURN.items() if name != field}


def decoded(message: BusMessage) -> tuple[NewEvent, ...]:
    events = DECODER.decode(message, "e1")
    assert not isinstance(events, DeadLetter), events.reason
    return events


def refused(body: object, subject: str | None = None) -> DeadLetter:
    letter = DECODER.decode(a_message(body, subject), "e1")
    assert isinstance(letter, DeadLetter), letter
    return letter


def turn_of(event: NewEvent) -> TurnRecorded:
    assert isinstance(event.event, TurnRecorded)
    return event.event


def test_a_turn_has_its_key_its_lineage_its_time_and_its_place_on_the_bus() -> None:
    (event,) = decoded(a_message({**TURN, "name": "Alice", "agent_id": "bot", "metadata": {"a": [1]}}))

    assert event == NewEvent(
        user_id="alice",
        session_id="s1",
        event=TurnRecorded("I moved to Miami.", "user", "m-17", 0, "Alice", "bot", '{"a":[1]}'),
        key="turn/alice/s1/m-17/0",
        happened_at=MONDAY,
        lineage=(KEYS.session("alice", "s1"),),
        bus=BusPosition("MEMFOREST", "e1", 7),
    )
    assert event.key == turn_key("alice", "s1", "m-17")


def test_the_turns_of_one_message_keep_their_order_and_each_its_key() -> None:
    turns = [{"role": "user", "content": "one", "id": "a"}, {"role": "tool", "content": "two"}]
    events = decoded(
        a_message({"type": "turns", "user_id": "alice", "session_id": "s1", "id": "b", "turns": turns})
    )

    assert [turn_of(event).content for event in events] == ["one", "two"]
    assert [event.key for event in events] == ["turn/alice/s1/a/0", "message/alice/s1/b/1"]
    assert {event.bus for event in events} == {BusPosition("MEMFOREST", "e1", 7)}


def test_a_later_revision_says_which_turn_it_rewords_and_has_a_key_of_its_own() -> None:
    (first,) = decoded(a_message(TURN))
    (event,) = decoded(a_message({**TURN, "revision": 2, "content": "I moved to Tampa."}))

    assert event.event == TurnRevised(
        turn=KEYS.key(first.key), revision=2, content="I moved to Tampa.", role="user", turn_id="m-17"
    )
    assert event.key == "turn/alice/s1/m-17/2"
    assert (event.lineage, event.happened_at) == (first.lineage, first.happened_at)


def test_a_revision_without_a_time_is_flagged_so_that_it_keeps_that_of_its_turn() -> None:
    (event,) = decoded(a_message({**without("timestamp"), "revision": 1}, published_at=MONDAY + 5))

    assert isinstance(event.event, TurnRevised)
    assert (event.event.time_source, event.time_assigned) == (TimeSource.BUS, True)


def test_taking_a_turn_back_names_it_whatever_its_revision_and_belongs_to_control() -> None:
    (turn,) = decoded(a_message(TURN))
    body = {"type": "turn.retract", "user_id": "alice", "session_id": "s1", "turn_id": "m-17"}
    (event,) = decoded(a_message(body, control_subject("alice", "s1")))

    assert event.event == TurnRetracted(KEYS.key(turn.key))
    assert (event.key, event.lineage) == ("retract/turn/alice/s1/m-17/0", turn.lineage)
    assert refused(body).reason == "a message of this type does not belong on this subject"


def test_without_any_id_a_redelivery_has_the_same_key_and_a_repetition_another() -> None:
    body = without("id")
    (first,) = decoded(a_message(body))
    (again,) = decoded(a_message(body, seq=8))
    (repeated,) = decoded(a_message(body, published_at=MONDAY + 1))
    state = blake2b(msgspec.json.encode(body) + MONDAY.to_bytes(8, "big", signed=True), digest_size=16)

    assert first.key == f"body/alice/s1/{state.hexdigest()}/0"
    assert first.key == again.key != repeated.key


def test_without_a_turn_id_the_publishers_message_id_is_the_key_and_becomes_one_token() -> None:
    (event,) = decoded(a_message(without("id"), headers={"Nats-Msg-Id": "a/b"}))

    assert event.key == "message/alice/s1/b32-mexwe/0"


def test_two_users_or_sessions_never_share_a_key() -> None:
    keys: set[str] = set()
    for user, session in (("a", "b"), ("a/b", "c"), ("a", "b/c"), ("b", "a")):
        body = {**TURN, "user_id": user, "session_id": session}
        keys.add(decoded(a_message(body, turn_subject(user, session)))[0].key)

    assert len(keys) == 4


def test_a_session_close_has_the_lineage_of_its_session() -> None:
    body = {"type": "session.close", "user_id": "alice", "session_id": "s1", "id": "c", "timestamp": 1719824400}
    (event,) = decoded(a_message(body, control_subject("alice", "s1")))

    assert event.event == SessionClosed()
    assert (event.key, event.happened_at) == ("close/message/alice/s1/c/0", MONDAY)
    assert event.lineage == (KEYS.session("alice", "s1"),)


def test_the_wish_to_forget_has_no_lineage_and_one_key_for_ever() -> None:
    body = {"type": "session.forget", "user_id": "alice", "session_id": "s1"}
    (first,) = decoded(a_message(body, control_subject("alice", "s1")))
    (later,) = decoded(a_message({**body, "id": "x"}, control_subject("alice", "s1"), published_at=MONDAY + 9))

    assert first.event == SessionForgotten()
    assert (first.lineage, first.time_assigned) == ((), True)
    assert first.key == later.key == "forget/alice/s1"


@pytest.mark.parametrize(
    ("timestamp", "iso", "source"),
    [
        ("2024-07-01T09:00:00Z", "2024-07-01T09:00:00Z", TimeSource.GIVEN),
        ("2024-07-01T09:00:00+02:00", "2024-07-01T07:00:00Z", TimeSource.GIVEN),
        ("2024-07-01 09:00:00.25-05:00", "2024-07-01T14:00:00.250Z", TimeSource.GIVEN),
        ("2024-07-01T09:00:00", "2024-07-01T07:00:00Z", TimeSource.ZONE_ASSUMED),
        ("2024-01-02", "2024-01-01T23:00:00Z", TimeSource.ZONE_ASSUMED),
        (1719824400, "2024-07-01T09:00:00Z", TimeSource.GIVEN),
        (1719824400.5, "2024-07-01T09:00:00.500Z", TimeSource.GIVEN),
        (1719824400123, "2024-07-01T09:00:00.123Z", TimeSource.GIVEN),
        # 1e11 itself are still seconds; above it are milliseconds.
        (100_000_000_000, "5138-11-16T09:46:40Z", TimeSource.GIVEN),
        (100_000_000_001, "1973-03-03T09:46:40.001Z", TimeSource.GIVEN),
        (0, "1970-01-01T00:00:00Z", TimeSource.GIVEN),
        (-1, "1969-12-31T23:59:59Z", TimeSource.GIVEN),
        (None, "2024-07-01T09:00:00Z", TimeSource.BUS),
    ],
)
def test_a_time_is_read_and_flagged(timestamp: object, iso: str, source: TimeSource) -> None:
    (event,) = decoded(a_message({**TURN, "timestamp": timestamp}))

    assert to_iso(event.happened_at) == iso
    assert turn_of(event).time_source is source
    assert event.time_assigned is (source is TimeSource.BUS)


@pytest.mark.parametrize(
    "timestamp",
    [
        *("yesterday", "", "2024-13-01", "24:00", "2024-07-01T09:00:00+99:00", True, [1], {"at": 1}),
        *(253_402_300_800_000, -62_135_596_800_001, 1e300, 10**30),
        # Within the years 1 to 9999 where they were written, but not in UTC.
        *("0001-01-01T00:00:00+14:00", "9999-12-31T23:59:59-14:00"),
    ],
)
def test_a_time_that_is_none_is_a_dead_letter_and_never_the_wall_clock(timestamp: object) -> None:
    assert "timestamp" in refused({**TURN, "timestamp": timestamp}).reason


def test_the_text_parts_of_a_content_are_joined_and_the_others_kept_as_references() -> None:
    content = [
        {"type": "text", "text": "Look:"},
        {"type": "image_url", "image_url": {"url": "https://a/b.png"}, "caption": "our dog"},
        {"type": "input_audio", "input_audio": {"format": "wav"}},
        {"type": "text", "text": "nice"},
    ]
    (event,) = decoded(a_message({**TURN, "content": content}))

    assert turn_of(event).content == "Look:\nnice"
    assert turn_of(event).parts == (
        Part("image_url", "https://a/b.png", "our dog"),
        Part("input_audio", '{"input_audio":{"format":"wav"}}', None),
    )


@pytest.mark.parametrize(
    "content", [[{"text": "x"}], [{"type": 1}], [{"type": "text"}], [{"type": "text", "text": 3}]]
)
def test_a_content_part_without_a_type_or_a_text_is_a_dead_letter(content: object) -> None:
    assert refused({**TURN, "content": content}).reason.startswith("content part 0")


def test_a_caption_that_is_no_text_is_a_dead_letter() -> None:
    letter = refused({**TURN, "content": [{"type": "image_url", "caption": 5}]})

    assert letter.reason == "the caption of content part 0 is no text"


@pytest.mark.parametrize("change", [{"user_id": "bob"}, {"session_id": "s2"}, {"user_id": "Alice"}])
def test_subject_and_body_must_agree(change: dict[str, str]) -> None:
    letter = refused({**TURN, **change})

    assert letter.reason == "subject and body name different users or sessions"
    assert (letter.user_id, letter.session_id) == ("alice", "s1"), "the subject's, so that forgetting finds it"


def test_a_control_message_on_a_turn_subject_is_a_dead_letter_and_the_other_way_round() -> None:
    """NATS permissions are per subject: who may write must not be able to forget."""
    forget = {"type": "session.forget", "user_id": "alice", "session_id": "s1"}

    for letter in (refused(forget), refused(TURN, control_subject("alice", "s1"))):
        assert letter.reason == "a message of this type does not belong on this subject"


@pytest.mark.parametrize("subject", ["memforest.turns.alice", "other.turns.alice.s1", "memforest.turns.b32-1.s1"])
def test_a_message_on_a_subject_that_names_nobody_is_a_dead_letter_of_nobody(subject: str) -> None:
    letter = refused(TURN, subject)

    assert (letter.user_id, letter.session_id, letter.key) == (None, None, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"no JSON " + SECRET_WORDS.encode(),
        b'{"type":"turn","content":"' + SECRET_WORDS.encode() + b'\xff"}',
        b'"' + SECRET_WORDS.encode() + b'"',
        b"[" * 5000,
        {**TURN, "type": SECRET_WORDS},
        {**TURN, "content": {SECRET_WORDS: 1}},
        {**TURN, "role": 5, "content": SECRET_WORDS},
        {**TURN, "surprise": SECRET_WORDS},
        {**without("role"), "content": SECRET_WORDS},
        {**TURN, "timestamp": SECRET_WORDS},
        {**TURN, "revision": -1, "content": SECRET_WORDS},
        {**TURN, "revision": 2**40, "content": SECRET_WORDS},
        {**without("id"), "revision": 1, "content": SECRET_WORDS},
        {**TURN, "user_id": SECRET_WORDS},
        {**TURN, "content": [{"type": SECRET_WORDS, "caption": 1}]},
        {**TURN, "id": "", "content": SECRET_WORDS},
        {"type": "turns", "user_id": "alice", "session_id": "s1", "turns": [{"role": SECRET_WORDS}]},
    ],
)
def test_what_cannot_be_read_is_kept_whole_with_a_reason_that_quotes_nothing(body: object) -> None:
    letter = refused(body)

    assert letter.payload == (body if isinstance(body, bytes) else msgspec.json.encode(body))
    assert letter.bus == BusPosition("MEMFOREST", "e1", 7)
    assert letter.reason
    assert SECRET_WORDS not in letter.reason


def test_a_body_that_nests_without_end_is_a_dead_letter() -> None:
    body = msgspec.json.encode(TURN)[:-1] + b',"metadata":' + b'{"a":' * 5000 + b"1" + b"}" * 5001

    assert refused(body).reason == "the message is nested too deep"


@pytest.mark.parametrize("count", [0, TURNS_MAX + 1])
def test_a_turns_message_that_fits_no_transaction_is_a_dead_letter(count: int) -> None:
    body = {
        "type": "turns",
        "user_id": "alice",
        "session_id": "s1",
        "turns": [{"role": "u", "content": "x"}] * count,
    }

    assert str(TURNS_MAX) in refused(body).reason


def test_one_turn_that_cannot_be_read_takes_its_whole_message_along() -> None:
    """Half a message would have half an idempotency."""
    turns = [{"role": "user", "content": "good"}, {"role": "user", "content": "bad", "timestamp": "never"}]

    refused({"type": "turns", "user_id": "alice", "session_id": "s1", "turns": turns})


def test_the_key_of_an_unreadable_turn_is_kept_for_whoever_waits_for_it() -> None:
    assert refused({**TURN, "timestamp": "never"}).key == "turn/alice/s1/m-17/0"
    assert refused({**TURN, "revision": 2, "timestamp": "never"}).key == "turn/alice/s1/m-17/2"
    assert refused({**without("id"), "timestamp": "never"}).key is None
    assert refused({**TURN, "id": 5}).key is None
    assert refused(b"{").key is None


def test_what_check_lets_pass_is_decoded_and_what_it_refuses_is_not() -> None:
    good = parse_message(msgspec.json.encode(TURN))
    bad = parse_message(msgspec.json.encode({**TURN, "timestamp": "never"}))

    DECODER.check(good)
    with pytest.raises(InvalidInput, match="timestamp"):
        DECODER.check(bad)
