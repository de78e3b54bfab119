"""CloudEvents 1.0 in both modes: whose data is a turn of ours or a chat message, under the event's own id."""

from __future__ import annotations

from base64 import b64encode
from typing import Any

import msgspec
import pytest

from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import turn_subject
from daemon.decoders.cloudevents import as_structured
from daemon.decoders.decoding import turn_key
from events.session import MemoryImported, SessionClosed, TimeSource
from tests.builders import MONDAY
from tests.daemon.decoders.made import SECRET_WORDS, a_decoder, a_message, decoded, refused, turns_of, without

CLOUD = a_decoder("cloudevents")
DATA: dict[str, Any] = {"user_id": "alice", "session_id": "s1", "role": "user", "content": "Hello"}
EVENT: dict[str, Any] = {
    "specversion": "1.0",
    "id": "e-1",
    "source": "/chat/web",
    "type": "ai.chat.turn.v1",
    "time": "2024-07-01T09:00:00Z",
    "datacontenttype": "application/json",
    "data": DATA,
}
HEADERS = {
    "ce-specversion": "1.0",
    "ce-id": "e-1",
    "ce-source": "/chat/web",
    "ce-type": "ai.chat.turn.v1",
    "ce-time": "2024-07-01T09:00:00Z",
    "ce-subject": "rooms/7",
    "content-type": "application/json; charset=utf-8",
}
OWN_KEY = turn_key("alice", "s1", "/chat/web e-1")


def in_binary(data: object = DATA, *, published_at: int = MONDAY, **changes: str) -> BusMessage:
    headers = HEADERS | {f"ce-{name}": value for name, value in changes.items()}
    return a_message(
        data, headers={name: value for name, value in headers.items() if value}, published_at=published_at
    )


def test_an_event_is_known_by_its_source_and_id_in_either_mode() -> None:
    events = [decoded(CLOUD, message)[0] for message in (a_message(EVENT, seq=1), in_binary())]

    assert {event.key for event in events} == {OWN_KEY}
    assert {event.happened_at for event in events} == {MONDAY}
    assert [turns_of((event,))[0].turn_id for event in events] == ["/chat/web e-1"] * 2
    assert decoded(CLOUD, in_binary(source="/chat", id="web e-1"))[0].key != OWN_KEY
    assert decoded(CLOUD, in_binary(type="anything.else"))[0].key == OWN_KEY


def test_data_may_be_text_or_base64_and_native_or_not() -> None:
    native = {
        "type": "turns",
        **without(DATA, "role", "content"),
        "turns": [{"role": "user", "content": "Hello"}] * 2,
    }
    encoded = b64encode(msgspec.json.encode(DATA)).decode()
    bodies = ({"data": msgspec.json.encode(DATA).decode()}, {"data": None, "data_base64": encoded})
    read = [decoded(CLOUD, a_message({**EVENT, **body}))[0] for body in bodies]
    listed = decoded(CLOUD, a_message({**EVENT, "data": native}))

    assert {event.key for event in read} == {OWN_KEY}
    assert [event.key.rpartition("/")[2] for event in listed] == ["0", "1"]
    assert {event.happened_at for event in listed} == {MONDAY}


def test_what_the_data_says_itself_comes_before_the_attributes() -> None:
    own = {**DATA, "id": "m-1", "timestamp": 5}
    (event,) = decoded(CLOUD, a_message({**EVENT, "data": own}))
    (untimed,) = decoded(CLOUD, a_message(without(EVENT, "time"), published_at=MONDAY + 3))

    assert (event.key, event.happened_at) == (turn_key("alice", "s1", "m-1"), 5000)
    assert (untimed.happened_at, turns_of((untimed,))[0].time_source) == (MONDAY + 3, TimeSource.BUS)


def test_templates_may_name_attributes_and_fields_of_the_data() -> None:
    decoder = a_decoder("cloudevents", user="{data.room.owner}", session="{source}:{subject}")
    data = {"role": "user", "content": "Hello", "room": {"owner": "alice"}}
    (event,) = decoded(decoder, in_binary(data))

    assert (event.user_id, event.session_id) == ("alice", "/chat/web:rooms/7")


def test_closings_and_memories_travel_in_events_and_forgetting_does_not() -> None:
    ids = {"user_id": "alice", "session_id": "s1"}
    (closed,) = decoded(CLOUD, a_message({**EVENT, "data": {"type": "session.close", **ids}}))
    memory = {"type": "memory", **ids, "content": "Alice is allergic to nuts."}
    (imported,) = decoded(CLOUD, a_message({**EVENT, "data": memory}))

    assert isinstance(closed.event, SessionClosed)
    assert isinstance(imported.event, MemoryImported)
    assert imported.key == OWN_KEY
    for tag in ({"type": "session.forget"}, {"type": "turn.retract", "turn_id": "m"}):
        letter = refused(CLOUD, a_message({**EVENT, "data": {**tag, **ids}}))
        assert letter.reason == "a message of this type does not belong on this subject"


def test_header_names_have_no_case_and_their_values_may_be_escaped() -> None:
    headers = {name.title(): value for name, value in HEADERS.items()} | {"Ce-Id": "caf%C3%A9"}
    (event,) = decoded(CLOUD, a_message(DATA, headers=headers))

    assert event.key == turn_key("alice", "s1", "/chat/web café")


def test_a_native_message_on_our_own_subject_is_no_event_and_is_taken() -> None:
    decoder = a_decoder("cloudevents", ours=True)
    (event,) = decoded(decoder, a_message({"type": "turn", "id": "m", **DATA}, turn_subject("alice", "s1")))

    assert event.key == turn_key("alice", "s1", "m")


@pytest.mark.parametrize(
    "message",
    [
        *(a_message(without(EVENT, name)) for name in ("specversion", "id", "source", "type", "data")),
        *(a_message({**EVENT, name: 5}) for name in ("id", "source", "type", "time", "datacontenttype", "data")),
        a_message({**EVENT, "specversion": "0.3"}),
        a_message({**EVENT, "source": "a b"}),
        a_message({**EVENT, "id": SECRET_WORDS * 100}),
        a_message({**EVENT, "time": SECRET_WORDS}),
        a_message({**EVENT, "datacontenttype": "text/plain", "data": SECRET_WORDS}),
        a_message({**EVENT, "data": SECRET_WORDS}),
        a_message({**EVENT, "data": [SECRET_WORDS]}),
        a_message({**without(EVENT, "data"), "data_base64": SECRET_WORDS + "!"}),
        a_message({**EVENT, "data": {**DATA, "content": {SECRET_WORDS: 1}}}),
        a_message({**EVENT, "data": {"type": "turn", **DATA, SECRET_WORDS: 1}}),
        a_message(
            {**EVENT, "data": {"type": "turns", **without(DATA, "role", "content"), "turns": [SECRET_WORDS]}}
        ),
        in_binary(b"no JSON " + SECRET_WORDS.encode()),
        in_binary(b"[" * 5000),
        in_binary(id=""),
        in_binary(source=""),
        in_binary(specversion="2.0"),
    ],
)
def test_hostile_events_are_dead_letters_whose_reason_quotes_nothing(message: BusMessage) -> None:
    letter = refused(CLOUD, message)

    assert letter.reason
    assert SECRET_WORDS not in letter.reason


def test_a_dead_letter_belongs_to_whom_its_data_or_the_configuration_names() -> None:
    decoder = a_decoder("cloudevents", user="{2}", session="main")
    nobody = {"role": "user", "content": "Hello"}
    letters = [
        refused(CLOUD, a_message(without(EVENT, "id"))),
        refused(decoder, a_message({**without(EVENT, "id"), "data": nobody}, "chat.bob")),
        refused(decoder, a_message(b"no JSON", "chat.bob")),
    ]

    assert [(letter.user_id, letter.session_id) for letter in letters] == [
        ("alice", "s1"),
        *[("bob", "main")] * 2,
    ]


def test_a_dead_letter_belongs_to_whom_its_data_names_however_that_is_written() -> None:
    """Or forgetting them would leave its words."""
    bad = {"user_id": "alice", "session_id": "s1", "content": 5}
    packed = b64encode(msgspec.json.encode(bad)).decode()
    bodies: list[dict[str, object]] = [
        {"data": msgspec.json.encode(bad).decode()},
        {"data_base64": packed},
        {"data": {"messages": [bad, bad]}},
    ]
    letters = [refused(CLOUD, a_message({**without(EVENT, "data"), **body})) for body in bodies]
    by_room = a_decoder("cloudevents", user="{data.room}", session="{source}")
    letters.append(refused(by_room, in_binary({"room": "alice", "content": 5})))

    assert [(letter.user_id, letter.session_id) for letter in letters] == [
        *[("alice", "s1")] * 3,
        ("alice", EVENT["source"]),
    ]


def test_a_dead_letter_of_an_event_in_binary_mode_keeps_its_headers_and_can_be_tried_again() -> None:
    """Of a letter's headers only its Nats-Msg-Id is kept, so it is kept in structured mode."""
    nobody = {"role": "user", "content": "Hello"}
    letter = refused(CLOUD, in_binary(nobody))
    later = a_decoder("cloudevents", user="alice", session="s1")
    (event,) = decoded(later, a_message(letter.payload))

    assert (event.key, event.happened_at) == (OWN_KEY, MONDAY)
    assert msgspec.json.decode(letter.payload)["data"] == nobody
    broken = msgspec.json.decode(refused(CLOUD, in_binary(b"\xff")).payload)
    assert (broken["id"], broken["data_base64"]) == ("e-1", "/w==")
    assert as_structured(a_message(b"\xff")) == b"\xff", "what is no event in binary mode is kept as it came"
