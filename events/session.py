"""What chat services and people tell us: turns, their edits, closings, and the wish to forget."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import ClassVar, Final, NamedTuple, TypeAlias

from events.memory import Word
from events.time import Instant

# As in events.envelope, which imports the event types.
Reference: TypeAlias = bytes


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
class TurnRevised:
    """A turn was edited: this is what it says from now on, in its place. The older wording stays as history.

    `turn` tells which one: the reference of the key of its revision 0. Without a time of its own it keeps the
    turn's.
    """

    wire_name: ClassVar = "turn.revised"
    version: ClassVar = 1
    turn: Reference
    revision: int
    content: Word
    role: Word
    turn_id: Word
    name: Word | None = None
    agent_id: Word | None = None
    metadata: Word | None = None
    parts: tuple[Part, ...] = ()
    time_source: TimeSource = TimeSource.GIVEN


@dataclass(frozen=True, slots=True)
class TurnRetracted:
    """A turn was taken back: its words, and those of all that was made of it, are erased (design 3.2)."""

    wire_name: ClassVar = "turn.retracted"
    version: ClassVar = 1
    turn: Reference


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
class MemoryImported:
    """A sentence that another memory knew, taken over as it is: a fact at once, and a turn of its session.

    `turn_id` is the id it was sent with; `happened_at` of the envelope is when it is so. An `embedding` is base64
    of float32, little-endian, and worth something to the model of that name alone.
    """

    wire_name: ClassVar = "memory.imported"
    version: ClassVar = 1
    content: Word
    turn_id: Word
    agent_id: Word | None = None
    metadata: Word | None = None
    embedding: Word | None = None
    embedding_model: Word | None = None
    time_source: TimeSource = TimeSource.GIVEN


# What was said or told, whatever became of it.
SAID = (TurnRecorded, TurnRevised, TurnConflicted, MemoryImported)


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
class ReplayStarted:
    """Someone asked that a session be extracted again. Until all of it is, the old extractions stand."""

    wire_name: ClassVar = "replay.started"
    version: ClassVar = 1


class Replacement(NamedTuple):
    """An extraction by seq, and the one that stands in for it."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class SessionReplayed:
    """A session was extracted again: from here on the new extractions stand, all at once, in place of the old."""

    wire_name: ClassVar = "session.replayed"
    version: ClassVar = 1
    started: int  # user_seq of the ReplayStarted it answers
    replaced: tuple[Replacement, ...]


@dataclass(frozen=True, slots=True)
class SessionForgotten:
    """Someone asked that nothing of this session be kept. The gate is closed from here on.

    Voids, by rule and not by list, every earlier event whose lineage names the session (design 3.2).
    """

    wire_name: ClassVar = "session.forgotten"
    version: ClassVar = 1


@dataclass(frozen=True, slots=True)
class Erasure:
    """What erasing took, store by store, and what it could not take. Numbers only, so it may be kept for ever.

    `residues` counts the places where the scan still found a word, and files that it could not read;
    `scanned_bytes` is 0 when no scan was made.
    """

    first: int  # user_seq of the first and the last event that was voided; 0 when there is none
    last: int
    turns: int
    extractions: int
    summaries: int
    groups: int
    decisions: int  # admissions, partitions, corrections
    words: int
    names: int
    dead_letters: int
    bus_erased: int  # messages that are on the bus no more
    bus_left: int
    bus_left_until: Instant | None  # when the last of these expires; None when never, or when there are none
    tombstoned: bool  # whether the bucket on the bus has the tombstone
    admitted_again: int  # facts of other sessions that a voided decision had placed
    scanned_files: int
    scanned_bytes: int
    windows: int  # samples of the erased words that were looked for
    sampled: bool  # whether all of the words were still there to be sampled, as after a restart they may not be
    residues: int


@dataclass(frozen=True, slots=True)
class SessionErased:
    """The words of a forgotten session, and of what was derived from it, are gone: the receipt."""

    wire_name: ClassVar = "session.erased"
    version: ClassVar = 1
    forgotten: int  # user_seq of the SessionForgotten it answers
    erasure: Erasure


@dataclass(frozen=True, slots=True)
class UserForgotten:
    """Someone asked that nothing of this user be kept. Voids every earlier event of the user."""

    wire_name: ClassVar = "user.forgotten"
    version: ClassVar = 1


@dataclass(frozen=True, slots=True)
class UserErased:
    """The words and names of a forgotten user are gone: the receipt."""

    wire_name: ClassVar = "user.erased"
    version: ClassVar = 1
    forgotten: int  # user_seq of the UserForgotten it answers
    erasure: Erasure


# What puts out of force what was said before.
UNDOING: Final = (TurnRevised, TurnRetracted, SessionForgotten, UserForgotten)
