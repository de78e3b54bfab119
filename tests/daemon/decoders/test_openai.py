"""Chat-completions messages, and what other systems call the same fields."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.bus.subjects import control_subject, turn_subject
from daemon.decoders.decoding import turn_key
from daemon.decoders.native import TURNS_MAX
from daemon.decoders.openai import ARGUMENTS_SHOWN_MAX
from daemon.decoders.synonyms import SYNONYMS, gather
from events.errors import InvalidInput
from events.session import Part, SessionClosed, TimeSource, TurnRecorded, TurnRevised
from events.time import to_iso
from tests.builders import KEYS, MONDAY
from tests.daemon.decoders.made import SECRET_WORDS, a_decoder, a_message, decoded, refused, turns_of, without

OPENAI = a_decoder("openai")
BODY: dict[str, Any] = {
    "id": "m-1",
    "user_id": "alice",
    "session_id": "s1",
    "role": "user",
    "name": "Alice",
    "content": "I moved to Miami.",
    "timestamp": "2024-07-01T09:00:00Z",
}


def test_one_message_is_a_turn_under_its_own_id() -> None:
    (event,) = decoded(OPENAI, a_message(BODY))

    assert event.event == TurnRecorded("I moved to Miami.", "user", "m-1", 0, "Alice")
    assert (event.user_id, event.session_id, event.happened_at) == ("alice", "s1", MONDAY)
    assert (event.key, event.lineage) == ("turn/alice/s1/m-1/0", (KEYS.session("alice", "s1"),))


def test_a_list_of_messages_shares_what_stands_beside_it() -> None:
    listed = [
        {"role": "system", "content": "Be kind."},
        {"role": "user", "content": "Hi", "id": "m-2", "created": 5},
    ]
    body = {"id": "b", "user": "alice", "thread_id": "t", "messages": listed, "created": 1719824400, "model": "x"}
    events = decoded(OPENAI, a_message(body))

    assert [(turn.role, turn.content) for turn in turns_of(events)] == [("system", "Be kind."), ("user", "Hi")]
    assert [event.key for event in events] == ["message/alice/t/b/0", "turn/alice/t/m-2/0"]
    assert [event.happened_at for event in events] == [MONDAY, 5000]


def test_parts_and_tool_calls_are_kept_as_references() -> None:
    long = "x" * (ARGUMENTS_SHOWN_MAX + 1)
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "weather", "arguments": '{"city":"Oslo"}'}},
        {"id": "c2", "type": "function", "function": {"name": "search", "arguments": long}},
    ]
    content = [{"type": "text", "text": "Look"}, {"type": "image_url", "image_url": {"url": "https://a/b.png"}}]
    asked = turns_of(decoded(OPENAI, a_message({**BODY, "content": None, "tool_calls": calls})))[0]
    shown = turns_of(decoded(OPENAI, a_message({**BODY, "content": content, "tool_calls": calls[:1]})))[0]
    answer = {**BODY, "role": "tool", "content": "Rain.", "tool_call_id": "c1"}
    told = turns_of(decoded(OPENAI, a_message(answer)))[0]

    assert (asked.content, asked.parts) == (
        "",
        (Part("tool_call", "weather", '{"city":"Oslo"}'), Part("tool_call", "search", None)),
    )
    assert (shown.content, [part.kind for part in shown.parts]) == ("Look", ["image_url", "tool_call"])
    assert (told.content, told.parts) == ("Rain.", (Part("tool_result", "c1", None),))


# One message of each system of field.md 5.4, as it writes them: role, speaker, text, time, user, session, id.
WRITTEN: dict[str, tuple[dict[str, Any], tuple[object, ...]]] = {
    "mem0": (
        {
            "role": "user",
            "content": "x",
            "user_id": "a",
            "agent_id": "bot",
            "run_id": "r",
            "timestamp": 1719824400,
        },
        ("user", None, "x", MONDAY, "a", "r", None),
    ),
    "graphiti": (
        {
            "role_type": "user",
            "role": "Alice",
            "content": "x",
            "timestamp": "2024-07-01T09:00:00Z",
            "group_id": "g",
            "uuid": "u-1",
            "session_id": "s",
            "source_description": "chat",
            "name": "",
        },
        ("user", "Alice", "x", MONDAY, "g", "s", "u-1"),
    ),
    "zep": (
        {
            "role": "user",
            "name": "Alice",
            "content": "x",
            "reference_time": "2024-07-01T09:00:00Z",
            "created_at": "2026-01-01T00:00:00Z",
            "processed": True,
            "thread_id": "t",
            "user_id": "a",
        },
        ("user", "Alice", "x", MONDAY, "a", "t", None),
    ),
    "everos": (
        {
            "role": "user",
            "sender_id": "u1",
            "sender_name": "Alice",
            "content": "x",
            "app_id": "p",
            "timestamp": 1719824400000,
            "session_id": "s",
            "user_id": "a",
            "message_id": "m",
        },
        ("user", "Alice", "x", MONDAY, "a", "s", "m"),
    ),
    "evermemos": (
        {
            "sender": "u1",
            "content": "x",
            "create_time": "2024-07-01T09:00:00+00:00",
            "group_id": "g",
            "run_id": "r",
        },
        ("user", "u1", "x", MONDAY, "g", "r", None),
    ),
    "hindsight": (
        {"content": "x", "timestamp": "unset", "bank_id": "b", "document_id": "d", "tags": ["t"]},
        ("user", None, "x", MONDAY + 1, "b", "d", None),
    ),
    "lightmem": (
        {"role": "assistant", "content": "x", "speaker_id": "u1", "time_stamp": "2024-07-01T09:00:00Z"},
        ("assistant", "u1", "x", MONDAY, "who", "where", None),
    ),
    "locomo": (
        {"speaker": "Alice", "text": "x", "dia_id": "D1:3", "timestamp": "2024-07-01T11:00:00"},
        ("user", "Alice", "x", MONDAY, "who", "where", "D1:3"),
    ),
    "memorybench": (
        {"role": "user", "content": "x", "userId": 42, "sessionId": "s", "created_at": 1719824400},
        ("user", None, "x", MONDAY, "42", "s", None),
    ),
}


@pytest.mark.parametrize("system", WRITTEN)
def test_each_system_is_understood_in_its_own_words(system: str) -> None:
    body, expected = WRITTEN[system]
    decoder = a_decoder("openai", user="who", session="where")
    (event,) = decoded(decoder, a_message(body, published_at=MONDAY + 1))
    (turn,) = turns_of((event,))

    ids = (event.user_id, event.session_id, turn.turn_id)
    assert (turn.role, turn.name, turn.content, event.happened_at, *ids) == expected


@pytest.mark.parametrize("ours", SYNONYMS)
def test_every_synonym_means_the_same_and_two_that_disagree_are_a_dead_letter(ours: str) -> None:
    value: dict[str, object] = {"timestamp": 1719824400, "revision": 1, "metadata": {"a": 1}}
    other: dict[str, object] = {"timestamp": 1719824401, "revision": 2, "metadata": {"a": 2}}
    one, another = value.get(ours, "user"), other.get(ours, SECRET_WORDS)
    for name in SYNONYMS[ours]:
        assert gather({name: one}) == {ours: one}
    for name in SYNONYMS[ours][1:]:
        # Ids stand beside names, and the time of arrival beside that of the event: see SET_ASIDE.
        if ours != "name" and (ours, name) != ("role", "role_type"):
            assert gather({SYNONYMS[ours][0]: one, name: one}) == {ours: one}
            with pytest.raises(InvalidInput, match="disagree") as error:
                gather({SYNONYMS[ours][0]: one, name: another})
            assert SECRET_WORDS not in str(error.value)


def test_times_that_are_written_differently_and_are_the_same_agree() -> None:
    same = {**BODY, "created": 1719824400, "create_time": 1719824400000, "created_at": "2024-07-01T11:00:00+02:00"}

    assert decoded(OPENAI, a_message(same))[0].happened_at == MONDAY
    letter = refused(OPENAI, a_message({**same, "created": 1719824401}))
    assert letter.reason == "timestamp and created disagree"
    assert (letter.user_id, letter.session_id) == ("alice", "s1"), "so that forgetting finds it"


@pytest.mark.parametrize(
    ("timestamp", "iso", "source"),
    [
        (100_000_000_000, "5138-11-16T09:46:40Z", TimeSource.GIVEN),
        (100_000_000_001, "1973-03-03T09:46:40.001Z", TimeSource.GIVEN),
        ("2024-07-01T09:00:00", "2024-07-01T07:00:00Z", TimeSource.ZONE_ASSUMED),
        (None, "2024-07-01T09:00:00Z", TimeSource.BUS),
    ],
)
def test_times_are_read_and_flagged_as_in_native_messages(timestamp: object, iso: str, source: TimeSource) -> None:
    (event,) = decoded(OPENAI, a_message({**BODY, "timestamp": timestamp}))

    assert to_iso(event.happened_at) == iso
    assert turns_of((event,))[0].time_source is source


def test_an_edit_is_told_by_its_revision() -> None:
    (event,) = decoded(OPENAI, a_message({**BODY, "revision": 1, "content": "I moved to Tampa."}))

    assert isinstance(event.event, TurnRevised)
    assert event.key == "turn/alice/s1/m-1/1"


@pytest.mark.parametrize(
    "change",
    [
        {"content": None},
        {"content": 5},
        {"content": [SECRET_WORDS]},
        {"content": [{"type": SECRET_WORDS, "caption": 1}]},
        {"role": 1, "content": SECRET_WORDS},
        {"user_id": True},
        {"user_id": None},
        {"user_id": ""},
        {"session_id": {"id": SECRET_WORDS}},
        {"id": [SECRET_WORDS]},
        {"timestamp": SECRET_WORDS},
        {"timestamp": True},
        {"revision": -1},
        {"metadata": SECRET_WORDS},
        {"tool_calls": SECRET_WORDS},
        {"tool_calls": [SECRET_WORDS]},
        {"tool_calls": [{"function": {"arguments": SECRET_WORDS}}]},
        {"tool_call_id": 5},
        {"messages": SECRET_WORDS},
        {"messages": []},
        {"messages": [{"role": "user", "content": "x"}] * (TURNS_MAX + 1)},
        {"messages": [SECRET_WORDS]},
        {"messages": [{"role": "user", "content": SECRET_WORDS, "user_id": "bob"}]},
    ],
)
def test_hostile_messages_are_dead_letters_whose_reason_quotes_nothing(change: dict[str, Any]) -> None:
    letter = refused(OPENAI, a_message({**BODY, **change}))

    assert letter.reason
    assert SECRET_WORDS not in letter.reason
    assert letter.payload == a_message({**BODY, **change}).payload


def test_a_message_of_very_many_small_pieces_is_refused_before_they_are_read() -> None:
    """A megabyte of them would hold the loop for seconds."""
    ids = {"user_id": "alice", "session_id": "s1"}
    bodies: tuple[dict[str, object], ...] = (
        {"messages": [{"content": 5}] * 257},
        {"content": "x", "tool_calls": [5] * 1_001},
        {"content": [{"type": "image_url"}] * 1_001},
        {"messages": []},
    )

    for body in bodies:
        assert " has " in refused(a_decoder("openai"), a_message({**ids, **body})).reason


@pytest.mark.parametrize("body", [b"", b"[]", b'"x"', b"\xff", b"[" * 5000, b'{"a":' * 5000 + b"1" + b"}" * 5000])
def test_what_is_no_object_is_a_dead_letter_of_nobody(body: bytes) -> None:
    letter = refused(OPENAI, a_message(body))

    assert (letter.user_id, letter.session_id, letter.key) == (None, None, None)


def test_the_key_of_an_unreadable_message_is_kept_for_whoever_waits() -> None:
    letter = refused(OPENAI, a_message({**without(BODY, "id"), "dia_id": "D1:1", "timestamp": "never"}))

    assert letter.key == turn_key("alice", "s1", "D1:1")


def test_on_our_own_stream_subject_and_body_must_agree_and_native_messages_are_taken_as_well() -> None:
    """The socket's `ingest` and `sessions.close` publish native messages, whatever the services write."""
    decoder = a_decoder("openai", ours=True)
    subject = turn_subject("alice", "s1")
    (silent,) = decoded(decoder, a_message(without(BODY, "user_id", "session_id"), subject))
    native = {"type": "turn", **BODY}
    close = {"type": "session.close", "user_id": "alice", "session_id": "s1"}

    assert (silent.user_id, silent.session_id) == ("alice", "s1")
    assert decoded(decoder, a_message(native, subject))[0].key == "turn/alice/s1/m-1/0"
    (closed,) = decoded(decoder, a_message(close, control_subject("alice", "s1")))
    assert closed.event == SessionClosed()
    for body, on in ((BODY, turn_subject("bob", "s1")), (close, subject), (BODY, control_subject("alice", "s1"))):
        refused(decoder, a_message(body, on))
    assert refused(decoder, a_message(BODY, "chat.messages")).user_id is None
