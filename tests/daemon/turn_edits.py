"""Edits of turns as the bus brings them: other wordings, and turns taken back."""

from __future__ import annotations

from dataclasses import replace

from events.envelope import NewEvent
from events.session import TurnRetracted, TurnRevised
from tests.builders import KEYS, a_turn


def a_revision(content: str, turn_id: str = "t1", revision: int = 1, session_id: str = "s1") -> NewEvent:
    """Another wording of a turn."""
    first = a_turn(session_id=session_id, turn_id=turn_id)
    event = TurnRevised(
        turn=KEYS.key(first.key), revision=revision, content=content, role="user", turn_id=turn_id, name="Alice"
    )
    return replace(first, event=event, key=f"{first.key[:-1]}{revision}")


def a_retraction(turn_id: str = "t1", session_id: str = "s1") -> NewEvent:
    """A turn was taken back; the wish is no part of what it takes away."""
    first = a_turn(session_id=session_id, turn_id=turn_id)
    return replace(first, event=TurnRetracted(turn=KEYS.key(first.key)), key=f"retract/{first.key}", lineage=())
