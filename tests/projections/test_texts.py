"""Texts by reference: put together from events, None when erased, damaged when something else stands there."""

from __future__ import annotations

from dataclasses import replace

import pytest

from events.envelope import NewEvent, RecordedEvent
from events.errors import LogDamaged
from events.memory import Pointer
from events.session import Part, TurnRecorded
from projections.texts import FactText, TextRef, TurnsText, WrittenText, compose, events_behind, turn_line
from tests.builders import a_closing, a_merge, a_summary, a_turn, an_extraction, as_recorded

EVENTS = (
    a_turn("I moved to Miami."),
    a_turn("Congratulations!", turn_id="t2", role="assistant", name=None),
    an_extraction((1, 2), ("Alice moved.", "Alice lives in Miami.")),
    a_summary("A move."),
    a_merge("Alice moved and stayed."),
    a_closing(),
)


def the_log(*events: NewEvent, erased: int | None = None) -> dict[int, RecordedEvent]:
    """Events at seq 1, 2, ..., the words of one of them erased."""
    return {seq: as_recorded(event, seq, erased=seq == erased) for seq, event in enumerate(events, 1)}


@pytest.mark.parametrize(
    ("ref", "text"),
    [
        (TurnsText((1, 2)), "Alice: I moved to Miami.\nassistant: Congratulations!"),
        (TurnsText((2,)), "assistant: Congratulations!"),
        (FactText(Pointer(3, 0)), "Alice moved."),
        (FactText(Pointer(3, 1)), "Alice lives in Miami."),
        (WrittenText(4), "A move."),
        (WrittenText(5), "Alice moved and stayed."),
    ],
)
def test_a_text_is_what_the_events_say(ref: TextRef, text: str) -> None:
    assert compose(ref, the_log(*EVENTS)) == text


@pytest.mark.parametrize(
    ("ref", "erased"),
    [(TurnsText((1, 2)), 2), (FactText(Pointer(3, 1)), 3), (WrittenText(4), 4), (WrittenText(5), 5)],
)
def test_a_text_of_which_anything_was_erased_is_gone(ref: TextRef, erased: int) -> None:
    assert compose(ref, the_log(*EVENTS, erased=erased)) is None


@pytest.mark.parametrize(
    "ref", [TurnsText((1, 6)), TurnsText((3,)), FactText(Pointer(1, 0)), WrittenText(3), WrittenText(6)]
)
def test_a_reference_to_an_event_of_another_kind_is_damage(ref: TextRef) -> None:
    with pytest.raises(LogDamaged):
        compose(ref, the_log(*EVENTS))


@pytest.mark.parametrize("ref", [TurnsText((9,)), FactText(Pointer(9, 0)), WrittenText(9)])
def test_a_reference_to_no_event_is_damage_and_names_its_place(ref: TextRef) -> None:
    with pytest.raises(LogDamaged, match="seq 9"):
        compose(ref, the_log(*EVENTS))


def test_the_events_behind_texts_are_named_once() -> None:
    refs: list[TextRef] = [
        TurnsText((1, 2)),
        TurnsText((2,)),
        FactText(Pointer(3, 0)),
        FactText(Pointer(3, 1)),
        WrittenText(5),
    ]

    assert events_behind(refs) == {1, 2, 3, 5}
    assert events_behind([]) == set()


def test_a_line_has_the_speaker_and_the_captions_of_what_is_no_text() -> None:
    turn = a_turn("Look!").event
    assert isinstance(turn, TurnRecorded)
    parts = (Part("image", "img-1", "a beach"), Part("file", "f-1"), Part("image", "img-2", "a dog"))

    assert turn_line(replace(turn, parts=parts)) == "Alice: Look! [a beach] [a dog]"
    assert turn_line(replace(turn, name=None, role="tool")) == "tool: Look!"
