"""What may be shown of recorded events: their words, unless they are gone or about to go, and their numbers."""

from __future__ import annotations

import dataclasses
import sqlite3
from collections.abc import Collection, Iterator
from enum import StrEnum
from typing import Any, TypeAlias

from daemon.asking.answer_types import Source
from daemon.building.compacted import LOSS_UNIT
from daemon.models.prices import NANO
from events.codec import Event
from events.decisions import Thresholds
from events.envelope import RecordedEvent, Reference
from events.eventtree import UnitsPartitioned
from events.hindsight import Hindsight
from events.memory import Usage
from events.reading import read_events
from events.registry import read_tombstones
from events.withdrawal import read_voids

# What an event says besides its words, by field.
Numbers: TypeAlias = dict[str, int | bool | float | str]
# Fields that are places in the log, which nobody outside speaks of.
_PLACES = frozenset({"last_turn", "stands", "replaces", "parked"})
# Fields that are told when there is something to tell.
_SELDOM = frozenset({"missed", "skipped", "extractive"})
# Lists that are told when they are empty, too: no facts is an answer that one must be able to see.
_COUNTED = frozenset({"facts"})
_TEXTS = frozenset({"text", "content"})


def read_with_hindsight(
    connection: sqlite3.Connection, user: Reference, seqs: Collection[int]
) -> tuple[dict[int, RecordedEvent], Hindsight]:
    """These events by seq, and what was undone of the user's by now: what `is_gone` asks."""
    recorded = read_events(connection, seqs)
    # Last, so that no word is shown that was forgotten meanwhile.
    return recorded, Hindsight(tombstones=read_tombstones(connection, user), voids=read_voids(connection, user))


def is_gone(recorded: RecordedEvent, hindsight: Hindsight) -> bool:
    """Whether the words of an event are erased, or will be: they are not shown any more."""
    void = hindsight.voids.get(recorded.seq)
    subjects = (recorded.user, *recorded.lineage)
    return (
        recorded.event is None
        or (void is not None and void.erases)
        or any(recorded.user_seq < hindsight.tombstones.get(subject, 0) for subject in subjects)
    )


def measure_event(event: Event) -> Numbers:
    """The numbers of an event: figures, ids in hex, how many entries lists have, how long texts are; no words."""
    numbers = dict(_measure(event))
    if isinstance(event, UnitsPartitioned):
        numbers["facts"] = sum(len(each.facts) for each in event.units)
    return numbers


def _measure(part: Any) -> Iterator[tuple[str, int | bool | float | str]]:
    for field in dataclasses.fields(part):
        value: object = getattr(part, field.name)
        if isinstance(value, StrEnum):
            yield field.name, value.value
        elif isinstance(value, str):
            if field.name in _TEXTS:
                yield "characters", len(value)
        elif isinstance(value, bytes):
            if value:
                yield field.name, value.hex()
        elif isinstance(value, Thresholds):
            yield from value._asdict().items()
        elif isinstance(value, tuple):
            if value or field.name in _COUNTED:
                yield field.name, len(value)
        elif field.name == "loss" and isinstance(value, int):
            yield "loss_bound", value / LOSS_UNIT
        elif isinstance(value, int):
            if field.name not in _PLACES and (value or field.name not in _SELDOM):
                yield field.name, value
        elif isinstance(value, Usage):
            if value.calls:
                yield from _measure_usage(value)
        elif dataclasses.is_dataclass(value):
            yield from _measure(value)


def _measure_usage(usage: Usage) -> Iterator[tuple[str, int | float]]:
    yield "calls", usage.calls
    yield "tokens", usage.tokens
    yield "cost", usage.cost_nano / NANO


def text_of(event: Event) -> str | None:
    """What was said or written in an event, one text a line; None when it has no text."""
    texts = list(_texts(event))
    return "\n".join(texts) if texts else None


def _texts(part: Any) -> Iterator[str]:
    for field in dataclasses.fields(part):
        value: object = getattr(part, field.name)
        if isinstance(value, str) and field.name in _TEXTS:
            speaker = (
                getattr(part, "name", None) or getattr(part, "role", None) if field.name == "content" else None
            )
            yield f"{speaker}: {value}" if speaker else value
        elif isinstance(value, tuple):
            for each in value:
                if dataclasses.is_dataclass(each):
                    yield from _texts(each)
        elif dataclasses.is_dataclass(value):
            yield from _texts(value)


def source_of(turn: RecordedEvent) -> Source:
    """Where a turn comes from: its session, and the id that the publisher gave to what was said or imported."""
    return Source(turn.session_id, getattr(turn.event, "turn_id", None))


def shorten(text: str | None, characters_max: int) -> str | None:
    """A text of which an answer shows the beginning only."""
    return text if text is None or len(text) <= characters_max else text[: characters_max - 1] + "…"
