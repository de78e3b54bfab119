"""Whom a message of another stream is about: what it says, what its subject says, or what is configured."""

from __future__ import annotations

from typing import Any

import pytest

from daemon.decoders.placing import parse_template
from events.errors import InvalidInput
from tests.daemon.decoders.made import a_decoder, a_message, decoded, refused, without

TURN: dict[str, Any] = {
    "type": "turn",
    "id": "m-1",
    "user_id": "alice",
    "session_id": "s1",
    "role": "user",
    "content": "Hello",
    "timestamp": 1719824400,
}
SILENT = without(TURN, "user_id", "session_id")


@pytest.mark.parametrize(
    ("template", "filled"),
    [
        ("household", "household"),
        ("{2}", "home"),
        ("{1}/{2}", "chat/home"),
        ("room-{room.name}", "room-kitchen"),
        ("{count}", "3"),
        ("{4}", "café"),
    ],
)
def test_a_template_is_filled_from_the_subject_and_the_body(template: str, filled: str) -> None:
    parsed = parse_template(template)
    fields = {"room": {"name": "kitchen"}, "count": 3}

    assert parsed is not None
    assert parsed.fill("chat.home.x.b32-mnqwnq5j", fields) == filled


@pytest.mark.parametrize("template", ["{", "}", "{0}", "{}", "{a b}", "{{1}}", "{-1}", "{a.}", "{1}{2}"])
def test_a_template_that_means_nothing_is_refused(template: str) -> None:
    with pytest.raises(InvalidInput):
        parse_template(template)


def test_nobody_gets_anothers_id_by_the_text_between_the_parts() -> None:
    """Whoever may publish on chat.a alone must not become `a:b` in room `c`."""
    decoder = a_decoder("openai", user="{2}:{room}", session="{2}--{room}!")

    assert decoded(decoder, a_message({"content": "x", "room": "b:c!"}, "chat.a"))[0].user_id == "a:b:c!"
    for subject, room in (("chat.a:b", "c"), ("chat.a-", "c")):
        letter = refused(decoder, a_message({"content": "x", "room": room}, subject))
        assert "separates" in letter.reason


@pytest.mark.parametrize("template", ["{9}", "{missing}", "{room}", "{flag}", "{empty}"])
def test_a_message_that_cannot_fill_it_is_a_dead_letter(template: str) -> None:
    decoder = a_decoder("openai", user=template, session="s")
    letter = refused(decoder, a_message({"content": "x", "room": {}, "flag": True, "empty": ""}))

    assert "token" in letter.reason or "field" in letter.reason


def test_a_native_message_of_another_stream_need_not_say_whom_it_is_about() -> None:
    decoder = a_decoder("native", user="{2}", session="main")
    (event,) = decoded(decoder, a_message(SILENT, "chat.alice"))

    assert (event.user_id, event.session_id, event.key) == ("alice", "main", "turn/alice/main/m-1/0")


def test_what_the_body_says_comes_first_unless_the_subject_has_a_say() -> None:
    """A publisher that may write to one subject only must not write into another's memory."""
    free, bound = a_decoder("native", user="bob", session="s"), a_decoder("native", user="{2}", session="s")

    assert decoded(free, a_message(TURN, "chat.bob"))[0].user_id == "alice"
    assert decoded(bound, a_message(TURN, "chat.alice"))[0].user_id == "alice"
    assert (
        refused(bound, a_message(TURN, "chat.bob")).reason == "subject and body name different users or sessions"
    )


@pytest.mark.parametrize("name", ["native", "openai"])
def test_our_own_subjects_bind_wherever_they_come_from(name: str) -> None:
    """A stream that sources ours keeps its subjects."""
    decoder = a_decoder(name, user="bob", session="s")

    assert decoded(decoder, a_message(TURN, "memforest.turns.alice.s1"))[0].user_id == "alice"
    for subject in ("memforest.turns.bob.s1", "memforest.control.alice.s1", "memforest.other"):
        refused(decoder, a_message(TURN, subject))


@pytest.mark.parametrize("name", ["native", "openai", "cloudevents", "openclaw"])
def test_other_streams_take_nothing_away(name: str) -> None:
    ids = {"user_id": "alice", "session_id": "s1"}
    decoder = a_decoder(name)

    assert decoded(decoder, a_message({"type": "session.close", **ids}))[0].session_id == "s1"
    for body in ({"type": "session.forget"}, {"type": "turn.retract", "turn_id": "m-1"}):
        letter = refused(decoder, a_message({**body, **ids}))
        assert letter.reason == "a message of this type does not belong on this subject"


@pytest.mark.parametrize(
    "change", [{"user_id": 5}, {"session_id": []}, {"surprise": 1}, {"role": None}, {"type": "x"}]
)
def test_a_native_message_is_as_strict_as_on_our_own_stream(change: dict[str, Any]) -> None:
    refused(a_decoder("native"), a_message({**TURN, **change}))
