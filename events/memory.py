"""What was concluded from the turns: facts and summaries; `events.eventtree` has units and groups.

Every answer of a model is one of these events, so folding the log never calls a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, Any, ClassVar, NamedTuple, TypeAlias

from events.time import Instant

# A string that came from outside or from a model. The codec keeps it apart from the body, in a row of
# `words` (design 3.1); everything else in an event is a number, an enumeration, a reference or a pointer.
Word: TypeAlias = Annotated[str, "word"]

# Hash of a fact's first surviving occurrence (design 3.2); unguessable, since chunk keys are.
FactId: TypeAlias = bytes
# Hash over the references of the keys of a chunk's turns.
ChunkKey: TypeAlias = bytes
# Merkle hash of a tree node's children (algorithms.md 1).
Digest: TypeAlias = bytes


class Pointer(NamedTuple):
    """The n-th item (word or fact) of the event at seq."""

    seq: int
    n: int


class FactRole(StrEnum):
    """What kind of thing a fact says (algorithms.md 1)."""

    EVENT = "event"
    STATE = "state"
    PREFERENCE = "preference"
    CONSTRAINT = "constraint"
    PLAN = "plan"
    DETAIL = "detail"
    REFERENCE = "reference"


@dataclass(frozen=True, slots=True)
class Mention:
    """An entity named in a fact; `uncertain` when only its place in the sentence made it a capital."""

    label: Word
    uncertain: bool = False


@dataclass(frozen=True, slots=True)
class StateOf:
    """What a state is about: Alice's home, Bob's employer."""

    entity: Word
    attribute: Word


@dataclass(frozen=True, slots=True)
class ExtractedFact:
    """One occurrence of a fact: retrieval-ready text in the third person and in the source language.

    `turns` are positions in the chunk (0 is its first turn). The interval is what the text is about,
    the turn's own time when it says nothing.
    """

    text: Word
    turns: tuple[int, ...]
    time_start: Instant
    time_end: Instant
    role: FactRole = FactRole.DETAIL
    mentions: tuple[Mention, ...] = ()
    topics: tuple[Word, ...] = ()
    state: StateOf | None = None


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name for an entity, as a turn gave it; `turn` is a position among the turns that were read."""

    label: Word
    alias: Word
    turn: int


@dataclass(frozen=True, slots=True)
class Usage:
    """What an answer took, failed and repeated calls included. All zero for rules and for recorded answers.

    `cached_tokens` are those of the prompt that the server says it had at hand; `cost_nano` is in billionths of
    the currency of the price table, at the prices of then; `latency_ms` is summed over the calls.
    """

    calls: int = 0
    prompt_tokens: int = 0
    cached_tokens: int = 0
    completion_tokens: int = 0
    cost_nano: int = 0
    latency_ms: int = 0
    repairs: int = 0  # calls that asked for a better answer
    splits: int = 0  # how often the question was too long and was asked in parts

    @property
    def tokens(self) -> int:
        """Those of prompts and answers together, which budgets count."""
        return self.prompt_tokens + self.completion_tokens

    def __add__(self, other: Usage) -> Usage:
        """Both together."""
        return Usage(
            self.calls + other.calls,
            self.prompt_tokens + other.prompt_tokens,
            self.cached_tokens + other.cached_tokens,
            self.completion_tokens + other.completion_tokens,
            self.cost_nano + other.cost_nano,
            self.latency_ms + other.latency_ms,
            self.repairs + other.repairs,
            self.splits + other.splits,
        )


NOTHING_SPENT = Usage()


@dataclass(frozen=True, slots=True)
class FactsExtracted:
    """A model read one chunk. Zero facts is an answer like any other, and can be seen.

    `replaces` is the extraction of the chunk that it stands in for, once the replay of the session is complete.
    `request` is the hash of all that decided the answer: the same question is not paid for twice.
    """

    wire_name: ClassVar = "facts.extracted"
    version: ClassVar = 5
    generation: int
    chunk: ChunkKey
    turns: tuple[int, ...]  # seq of each turn read, in the order of the session
    context: tuple[int, ...]  # seqs of turns before the chunk that were read with it
    covers: tuple[int, ...]  # places of the chunk: seqs of its turns as first recorded, retracted ones too
    replaces: int | None
    model: Word
    facts: tuple[ExtractedFact, ...]
    request: bytes = b""
    usage: Usage = NOTHING_SPENT
    missed: int = 0  # details of the turns that no fact carries, after one more try
    skipped: bool = False  # nothing to remember, by rule: no model was asked
    aliases: tuple[Alias, ...] = ()  # names that were given for one entity
    prompt: bytes = b""  # which wording of the question, as a hash; empty for rules


def upcast_facts_extracted(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 knew no revisions: an extraction covered what it read, and read nothing besides."""
    return {**body, "context": [], "covers": body["turns"], "replaces": None}


def upcast_facts_extracted_2(body: dict[str, Any]) -> dict[str, Any]:
    """Version 2 was of rules alone: nothing was paid for, checked or skipped."""
    return {**upcast_answer(body), "missed": 0, "skipped": False}


def upcast_facts_extracted_3(body: dict[str, Any]) -> dict[str, Any]:
    """Version 3 looked for no other names."""
    return {**body, "aliases": []}


def upcast_prompt(body: dict[str, Any]) -> dict[str, Any]:
    """Answers that do not say which wording of the question they are to."""
    return {**body, "prompt": ""}


def upcast_answer(body: dict[str, Any]) -> dict[str, Any]:
    """Answers before requests were hashed and calls were counted."""
    return {**upcast_parked(body), "request": ""}


def upcast_parked(body: dict[str, Any]) -> dict[str, Any]:
    """Work that was put aside before calls were counted."""
    return {**body, "usage": dict.fromkeys(Usage.__dataclass_fields__, 0)}


@dataclass(frozen=True, slots=True)
class Admission:
    """An occurrence (event seq, position in its facts) joins a canonical fact, or founds it."""

    fact: FactId
    occurrence: Pointer


@dataclass(frozen=True, slots=True)
class FactsAdmitted:
    """Extracted facts became occurrences of canonical facts."""

    wire_name: ClassVar = "facts.admitted"
    version: ClassVar = 1
    generation: int
    admissions: tuple[Admission, ...]


@dataclass(frozen=True, slots=True)
class IntervalSummarised:
    """The summary of the tree node with this digest, wherever a node of that digest stands."""

    wire_name: ClassVar = "interval.summarised"
    version: ClassVar = 3
    generation: int
    digest: Digest
    sources: tuple[int, ...]  # seqs of the events whose words it was made of
    model: Word
    text: Word
    request: bytes = b""  # as in FactsExtracted
    usage: Usage = NOTHING_SPENT
    prompt: bytes = b""  # as in FactsExtracted


@dataclass(frozen=True, slots=True)
class FactRetracted:
    """A person says that a fact is not so. It is shown no more, also when its chunk is extracted again.

    `was` is what it said; its `turns` are positions in the `turns` of the event. That the turns said so stays:
    erasing them is for TurnRetracted and SessionForgotten, which take this event with them.
    """

    wire_name: ClassVar = "fact.retracted"
    version: ClassVar = 1
    fact: FactId
    turns: tuple[int, ...]
    read: tuple[int, ...]  # all turns that went into the extraction: when one is erased this goes, too
    was: ExtractedFact


@dataclass(frozen=True, slots=True)
class FactCorrected:
    """A person says what is so in place of a fact, which is retracted; the new one stands on the same turns."""

    wire_name: ClassVar = "fact.corrected"
    version: ClassVar = 1
    fact: FactId
    turns: tuple[int, ...]
    read: tuple[int, ...]  # as in FactRetracted
    was: ExtractedFact
    says: ExtractedFact


@dataclass(frozen=True, slots=True)
class FactPinned:
    """A fact is to stay as it is: never merged away, and kept when its chunk is extracted again.

    With `pinned` false the pin at seq `replaces` is undone.
    """

    wire_name: ClassVar = "fact.pinned"
    version: ClassVar = 1
    fact: FactId
    pinned: bool
    replaces: int | None
    turns: tuple[int, ...]
    read: tuple[int, ...]  # as in FactRetracted
    says: ExtractedFact


class Task(StrEnum):
    """What a model is asked for."""

    EXTRACT = "extract"
    JUDGE = "judge"
    SUMMARISE = "summarise"
    MERGE = "merge"


class ParkReason(StrEnum):
    """Why a piece of work was put aside."""

    MODEL_FAILED = "model_failed"  # its calls came to nothing while others were answered
    ANSWER_INVALID = "answer_invalid"  # also after it was repaired, and asked in parts
    ANSWER_CUT = "answer_cut"  # the model stopped before its end, also when asked in parts
    TOO_LONG = "too_long"  # more than the model takes, also in parts
    REFUSED = "refused"  # the model or its filter does not answer this


@dataclass(frozen=True, slots=True)
class WorkParked:
    """A piece of work could not be done within its budget; it waits, alone, and can be seen.

    `request` is what the fold knows it by: of a summary the digest of its node, of a merge the id of its group.
    """

    wire_name: ClassVar = "work.parked"
    version: ClassVar = 2
    task: Task
    request: bytes
    reason: ParkReason
    turns: tuple[int, ...] = ()  # seqs of the events whose words it was to be made of
    covers: tuple[int, ...] = ()  # of an extraction that is no replay's: as in FactsExtracted
    usage: Usage = NOTHING_SPENT


@dataclass(frozen=True, slots=True)
class WorkResumed:
    """Somebody asked for parked work to be tried again; it waits like any other from now on."""

    wire_name: ClassVar = "work.resumed"
    version: ClassVar = 1
    parked: int  # seq of the WorkParked; the rest is as there
    task: Task
    request: bytes
    turns: tuple[int, ...] = ()
    covers: tuple[int, ...] = ()
