"""What chat services and people tell us: turns, closings, and the wish to forget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar

from events.memory import Word


class TimeSource(StrEnum):
    """Where a turn's time came from; anything but `given` is worth showing (design 4.1)."""

    GIVEN = "given"
    ZONE_ASSUMED = "zone_assumed"  # naive: read in the configured zone
    BUS = "bus"  # missing: the bus's own time of the message


@dataclass(frozen=True, slots=True)
class Part:
    """A part of a turn that is not text: an image, a file. Kept as a reference with its caption."""

    kind: Word
    reference: Word
    caption: Word | None = None


@dataclass(frozen=True, slots=True)
class TurnRecorded:
    """Someone said something in a session; `happened_at` of the envelope is when."""

    wire_name: ClassVar = "turn.recorded"
    version: ClassVar = 1
    content: Word
    role: Word
    turn_id: Word | None = None
    revision: int = 0
    name: Word | None = None
    agent_id: Word | None = None
    metadata: Word | None = None  # the publisher's JSON, as text
    parts: tuple[Part, ...] = ()
    time_source: TimeSource = TimeSource.GIVEN


@dataclass(frozen=True, slots=True)
class TurnConflicted:
    """A turn came again under a known key with other content. The first one stands."""

    wire_name: ClassVar = "turn.conflicted"
    version: ClassVar = 1
    stands: int  # seq of the turn that stays
    content: Word
    role: Word
    name: Word | None = None


@dataclass(frozen=True, slots=True)
class ChunkClosed:
    """The session went quiet: its open chunk ends with the turn at this seq."""

    wire_name: ClassVar = "chunk.closed"
    version: ClassVar = 1
    last_turn: int


@dataclass(frozen=True, slots=True)
class SessionClosed:
    """The chat service says that the session is over; a later turn opens a new chunk."""

    wire_name: ClassVar = "session.closed"
    version: ClassVar = 1


@dataclass(frozen=True, slots=True)
class SessionForgotten:
    """Someone asked that nothing of this session be kept. The gate is closed from here on.

    Voids, by rule and not by list, every earlier event whose lineage names the session (design 3.2).
    """

    wire_name: ClassVar = "session.forgotten"
    version: ClassVar = 1


@dataclass(frozen=True, slots=True)
class SessionErased:
    """The words of a forgotten session, and of what was derived from it, are gone from the store."""

    wire_name: ClassVar = "session.erased"
    version: ClassVar = 1
    forgotten: int  # user_seq of the SessionForgotten it answers
    events_voided: int
    words_erased: int
    names_erased: int
    dead_letters_erased: int
