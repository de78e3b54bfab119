"""What openclaw's event store publishes: two of its types are turns, two close a session, the rest is ignored."""

from __future__ import annotations

from typing import Any

import pytest

from events.session import SessionClosed, TurnRecorded
from tests.builders import KEYS, MONDAY
from tests.daemon.decoders.made import SECRET_WORDS, a_decoder, a_message, decoded, refused, without

OPENCLAW = a_decoder("openclaw")
RECEIVED: dict[str, Any] = {
    "id": "0f4b2c1e-7f0a-4b7e-9d8e-111111111111",
    "ts": MONDAY,
    "agent": "main",
    "session": "main:matrix:albert",
    "type": "msg.in",
    "payload": {"from": "albert", "content": "I moved to Miami.", "channel": "matrix"},
}
SENT: dict[str, Any] = {
    **RECEIVED,
    "type": "msg.out",
    "payload": {"to": "albert", "content": "Nice!", "success": True},
}


def on(kind: str) -> str:
    return f"openclaw.events.main.{kind.replace('.', '_')}"


def test_what_came_in_is_the_users_turn_and_what_went_out_the_assistants() -> None:
    (heard,) = decoded(OPENCLAW, a_message(RECEIVED, on("msg.in")))
    (said,) = decoded(OPENCLAW, a_message(SENT, on("msg.out")))

    turn_id = RECEIVED["id"]
    about = '{"channel":"matrix"}'
    assert heard.event == TurnRecorded("I moved to Miami.", "user", turn_id, 0, "albert", "main", about)
    assert said.event == TurnRecorded("Nice!", "assistant", turn_id, 0, None, "main")
    assert (heard.user_id, heard.session_id, heard.happened_at) == ("albert", "main:matrix:albert", MONDAY)
    assert heard.lineage == (KEYS.session("albert", "main:matrix:albert"),)
    assert heard.key == f"turn/albert/b32-nvqws3r2nvqxi4tjpa5gc3dcmvzhi/{turn_id}/0"


def test_the_time_of_the_payload_comes_before_that_of_the_event() -> None:
    payload = {**RECEIVED["payload"], "timestamp": MONDAY - 5}

    assert decoded(OPENCLAW, a_message({**RECEIVED, "payload": payload}))[0].happened_at == MONDAY - 5


@pytest.mark.parametrize("kind", ["session.reset", "session.end"])
def test_the_end_of_a_session_closes_it(kind: str) -> None:
    (event,) = decoded(OPENCLAW, a_message({**RECEIVED, "type": kind, "payload": {}}, on(kind)))

    assert event.event == SessionClosed()
    assert (event.user_id, event.happened_at) == ("albert", MONDAY)


@pytest.mark.parametrize(
    "event",
    [
        *({**RECEIVED, "type": kind} for kind in ("msg.sending", "llm.input", "llm.output", "tool.call", "x.y")),
        {**RECEIVED, "type": "gateway.start", "session": "system", "agent": "system"},
        {**SENT, "payload": {**SENT["payload"], "success": False}},
    ],
)
def test_everything_else_is_ignored_and_no_dead_letter(event: dict[str, Any]) -> None:
    assert decoded(OPENCLAW, a_message(event)) == ()


def test_whose_memory_it_is_can_be_configured() -> None:
    by_agent = a_decoder("openclaw", user="{3}")
    fixed = a_decoder("openclaw", user="household")
    main = {**RECEIVED, "session": "main"}

    assert decoded(by_agent, a_message(RECEIVED, on("msg.in")))[0].user_id == "main"
    assert decoded(fixed, a_message(main))[0].user_id == "household"
    assert "user" in refused(OPENCLAW, a_message(main)).reason, (
        "a session without a peer says nothing of whose it is"
    )


@pytest.mark.parametrize(
    "change",
    [
        {"id": None},
        {"id": 5},
        {"type": None},
        {"session": None},
        {"session": 5},
        {"ts": SECRET_WORDS},
        {"payload": SECRET_WORDS},
        {"payload": {"content": None}},
        {"payload": {"content": {SECRET_WORDS: 1}}},
        {"payload": {"content": SECRET_WORDS, "from": 5}},
        {"agent": [SECRET_WORDS]},
    ],
)
def test_hostile_events_are_dead_letters_whose_reason_quotes_nothing(change: dict[str, Any]) -> None:
    letter = refused(OPENCLAW, a_message({**RECEIVED, **change}))

    assert letter.reason
    assert SECRET_WORDS not in letter.reason


def test_a_dead_letter_belongs_to_its_user_and_session_and_has_the_key_of_its_turn() -> None:
    letter = refused(OPENCLAW, a_message({**RECEIVED, "payload": {"content": 5}}))

    assert (letter.user_id, letter.session_id) == ("albert", "main:matrix:albert")
    assert letter.key is not None
    unreadable = refused(OPENCLAW, a_message(without(RECEIVED, "id")))
    assert unreadable.key is None
    assert (unreadable.user_id, unreadable.session_id) == ("albert", "main:matrix:albert")
