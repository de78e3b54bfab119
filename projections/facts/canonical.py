"""Canonical facts: sets of occurrences, and the decision which occurrence joins which fact.

Today identical text with the same anchor is one fact; the same event on another day is another fact
(algorithms.md 1, reference-code.md A14). Text, anchors and entities come from the occurrences that survive.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import NamedTuple

from events.envelope import RecordedEvent, Reference, identify
from events.memory import (
    Admission,
    ExtractedFact,
    FactCorrected,
    FactId,
    FactPinned,
    FactRole,
    FactsAdmitted,
    FactsExtracted,
    Mention,
    Pointer,
)
from events.time import Instant
from projections.facts.labels import normalise_label

_DAY_MS = 86_400_000
# Admissions an event: folding one takes a few milliseconds of the loop, not more.
ADMISSIONS_MAX = 16


class Likeness(NamedTuple):
    """What two occurrences share when they are one fact: normalised text, and the days they speak of."""

    text: bytes
    first_day: int
    last_day: int


@dataclass(frozen=True, slots=True)
class Occurrence:
    """One reading of a fact as the fold keeps it: no text, but what is needed to place and find it.

    It was extracted, or a person wrote it (`corrected`) or wants to keep it (`pinned`).
    """

    pointer: Pointer
    origin: Reference  # key of the event it comes from
    session: Reference
    turns: tuple[int, ...]
    said_at: Instant
    time_start: Instant
    time_end: Instant
    role: FactRole
    mentions: tuple[Mention, ...]  # labels in normal form
    likeness: Likeness
    leaf_key: bytes
    length: int
    corrected: bool = False
    pinned: bool = False


@dataclass(slots=True)
class Fact:
    """A canonical fact; its first occurrence speaks for it."""

    id: FactId
    occurrences: list[Occurrence] = field(default_factory=list[Occurrence])

    @property
    def first(self) -> Occurrence:
        """The occurrence whose text and times stand for the fact."""
        return self.occurrences[0]

    @property
    def sessions(self) -> frozenset[Reference]:
        """Where it was said."""
        return share_sessions(frozenset(occurrence.session for occurrence in self.occurrences))

    @property
    def turns(self) -> tuple[int, ...]:
        """The turns it was read from, in log order."""
        return tuple(sorted({turn for occurrence in self.occurrences for turn in occurrence.turns}))

    @property
    def pinned(self) -> bool:
        """Whether someone wants it to stay as it is."""
        return any(occurrence.pinned for occurrence in self.occurrences)

    @property
    def stated(self) -> bool:
        """Whether a person had a say in it: it was corrected, or pinned."""
        return any(occurrence.corrected or occurrence.pinned for occurrence in self.occurrences)

    @property
    def labels(self) -> frozenset[str]:
        """Whom and what it names, in normal form."""
        return frozenset(mention.label for occurrence in self.occurrences for mention in occurrence.mentions)


class Canon:
    """All facts of one user, and the occurrences that are not admitted yet."""

    def __init__(self) -> None:
        self.facts: dict[FactId, Fact] = {}
        self.waiting: dict[Pointer, Occurrence] = {}
        self._by_likeness: dict[Likeness, FactId] = {}

    def add_occurrences(self, occurrences: Sequence[Occurrence]) -> None:
        """Occurrences of a new extraction wait until they are admitted."""
        self.waiting.update((occurrence.pointer, occurrence) for occurrence in occurrences)

    def apply(self, event: FactsAdmitted) -> list[tuple[Fact, Occurrence]]:
        """Admit; the facts that were founded or joined, with the occurrence that did."""
        touched: list[tuple[Fact, Occurrence]] = []
        for admission in event.admissions:
            occurrence = self.waiting.get(admission.occurrence)
            if occurrence is None:
                continue  # it stands no more; its admission stands for others, too
            if admission.fact not in self.facts and admission.fact != found_fact(occurrence):
                continue  # what founded the fact stands no more: this one is admitted anew, as the first
            del self.waiting[admission.occurrence]
            touched.append((self._join(admission.fact, occurrence), occurrence))
        return touched

    def find(self, likeness: Likeness) -> Fact | None:
        """The fact that says this, if there is one."""
        fact = self._by_likeness.get(likeness)
        return None if fact is None else self.facts[fact]

    def admit(self, occurrence: Occurrence, fact: FactId | None = None) -> Fact:
        """Take what a person says, which waits for no admission: the fact it joined or founded.

        It goes to this fact if that is there, else to the one that says the same, else it founds one.
        """
        if fact is None or fact not in self.facts:
            fact = self._by_likeness.get(occurrence.likeness) or fact or found_fact(occurrence)
        return self._join(fact, occurrence)

    def remove(self, fact: FactId) -> None:
        """Know a fact no more."""
        likeness = self.facts.pop(fact).first.likeness
        if self._by_likeness.get(likeness) == fact:
            del self._by_likeness[likeness]

    def _join(self, fact: FactId, occurrence: Occurrence) -> Fact:
        joined = self.facts.setdefault(fact, Fact(fact))
        joined.occurrences.append(occurrence)
        self._by_likeness.setdefault(occurrence.likeness, fact)
        return joined

    def plan_admissions(self, generation: int) -> list[tuple[FactsAdmitted, frozenset[Reference]]]:
        """Decide on all waiting occurrences in log order: events with their lineage.

        Occurrences of other lineage go into other events, so that forgetting a session voids no more
        admissions than it must. An event comes after those of smaller lineage, for what joins a fact has the
        lineage of what founded it and more. Deterministic: the same fold, the same plan.
        """
        founded: dict[Likeness, FactId] = {}
        sessions: dict[FactId, frozenset[Reference]] = {}
        by_lineage: dict[frozenset[Reference], list[Admission]] = {}
        for pointer in sorted(self.waiting):
            occurrence = self.waiting[pointer]
            fact = self._by_likeness.get(occurrence.likeness) or founded.get(occurrence.likeness)
            if fact is None:
                fact = found_fact(occurrence)
                founded[occurrence.likeness] = fact
            known = self.facts.get(fact)
            lineage = sessions.get(fact) or (known.sessions if known else frozenset())
            lineage |= {occurrence.session}
            sessions[fact] = lineage
            by_lineage.setdefault(lineage, []).append(Admission(fact, pointer))
        return [
            (FactsAdmitted(generation, tuple(admissions[at : at + ADMISSIONS_MAX])), lineage)
            for lineage, admissions in sorted(by_lineage.items(), key=lambda each: len(each[0]))
            for at in range(0, len(admissions), ADMISSIONS_MAX)
        ]


@lru_cache(maxsize=1024)
def share_sessions(sessions: frozenset[Reference]) -> frozenset[Reference]:
    """The same set, once for all that was said there: each takes 216 bytes."""
    return sessions


def found_fact(occurrence: Occurrence) -> FactId:
    """The id of the fact that this occurrence founds: hash of (key of its extraction, n).

    Not of the chunk (design 3.2): a chunk that is extracted again may say something else under the same n.
    """
    return identify(b"mf.fact", occurrence.origin, occurrence.pointer.n.to_bytes(4, "big"))


def make_leaf_key(nonce: bytes, n: int, time_start: Instant, text: str) -> bytes:
    """Key of a tree leaf: unguessable once the nonce is erased, distinct for equal texts (algorithms.md 1).

    An event has one nonce, so `n` tells its texts apart: an answer may say the same of two intervals.
    """
    start = time_start.to_bytes(8, "big", signed=True)
    return identify(b"mf.leaf", nonce, n.to_bytes(4, "big"), start, text.encode())


def read_occurrences(
    recorded: RecordedEvent, event: FactsExtracted, said_at: Mapping[int, Instant]
) -> list[Occurrence]:
    """The occurrences of an extraction; `said_at` tells when each of its turns was said."""
    return [_read_occurrence(recorded, event.turns, n, fact, said_at) for n, fact in enumerate(event.facts)]


def read_statement(
    recorded: RecordedEvent, event: FactCorrected | FactPinned, said_at: Mapping[int, Instant]
) -> Occurrence:
    """What a person says is so, as an occurrence that stands on the same turns."""
    occurrence = _read_occurrence(recorded, event.turns, 0, event.says, said_at)
    pinned = isinstance(event, FactPinned)
    return replace(occurrence, corrected=not pinned, pinned=pinned)


def read_likeness(fact: ExtractedFact, user: Reference) -> Likeness:
    """What a fact shares with others of this user that say the same."""
    return Likeness(_hash_text(fact.text, user), fact.time_start // _DAY_MS, fact.time_end // _DAY_MS)


def _read_occurrence(
    recorded: RecordedEvent, read: Sequence[int], n: int, fact: ExtractedFact, said_at: Mapping[int, Instant]
) -> Occurrence:
    assert recorded.session is not None
    turns = tuple(read[at] for at in fact.turns)
    return Occurrence(
        pointer=Pointer(recorded.seq, n),
        origin=recorded.key,
        session=recorded.session,
        turns=turns,
        said_at=max(said_at[turn] for turn in turns),
        time_start=fact.time_start,
        time_end=fact.time_end,
        role=fact.role,
        # Few entities are named by many facts.
        mentions=tuple(Mention(intern(normalise_label(m.label)), m.uncertain) for m in fact.mentions),
        likeness=read_likeness(fact, recorded.user),
        leaf_key=make_leaf_key(recorded.nonce, n, fact.time_start, fact.text),
        length=len(fact.text),
    )


def _hash_text(text: str, user: Reference) -> bytes:
    """Equal for texts of a user that differ in case, spacing and compatibility forms only."""
    folded = " ".join(unicodedata.normalize("NFKC", text).casefold().split())
    return blake2b(folded.encode(), digest_size=16, key=user).digest()
