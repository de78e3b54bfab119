"""Canonical facts: sets of occurrences, as they were admitted (`admission` plans that).

Identical text with the same anchor is one fact, and so are near duplicates; the same event on another day is
another fact (algorithms.md 1, reference-code.md A14). Text, anchors and entities come from the occurrences that
survive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from sys import intern
from typing import NamedTuple, TypeAlias

from events.decisions import PairsJudged, PairVerdict
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
from projections.facts.stances import Stance
from projections.facts.states import State, read_state
from projections.facts.wording import fold_text, own_part, read_figures

_DAY_MS = 86_400_000

# Two readings, the later one first.
Pair: TypeAlias = tuple[Pointer, Pointer]
# The days and figures of a `Likeness`: near duplicates have the same.
Block: TypeAlias = tuple[int, int, bytes]


class Likeness(NamedTuple):
    """What two occurrences share when they are one fact: normalised text, and the days they speak of.

    `figures`: the numbers and the negation of the text, and what it says itself if it leans on another, as a hash;
    empty when it has none.
    """

    text: bytes
    first_day: int
    last_day: int
    figures: bytes = b""

    @property
    def block(self) -> Block:
        """What it shares with near duplicates, too."""
        return self[1:]


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
    state: State | None = None


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
        # What a model said of two readings, the later one first.
        self.verdicts: dict[Pair, PairVerdict] = {}
        # What it took for one and may not be yet. No part of the fold: whoever plans takes away what is.
        self.unjoined: dict[Pair, None] = {}
        # The events whose readings a model could not be asked about; the rule decides on those.
        self.given_up: dict[tuple[int, ...], None] = {}
        self._by_likeness: dict[Likeness, FactId] = {}
        self._fact_of: dict[Pointer, FactId] = {}
        self._by_block: dict[Block, list[FactId]] = {}

    def add_occurrences(self, occurrences: Sequence[Occurrence]) -> None:
        """Occurrences of a new extraction wait until they are admitted."""
        self.waiting.update((occurrence.pointer, occurrence) for occurrence in occurrences)

    def apply(
        self, event: FactsAdmitted, take_out: Callable[[Fact], None] | None = None
    ) -> Iterator[tuple[Fact, Occurrence]]:
        """Admit one after the other; each fact that was founded or joined, with the occurrence that did.

        A fact that another one takes up is handed to `take_out`, which is to `remove` it at least.
        """
        for admission in event.admissions:
            taken_up = self._taken_up_by(admission)
            if taken_up is not None:
                self.remove(taken_up.id) if take_out is None else take_out(taken_up)
                for occurrence in taken_up.occurrences:
                    yield self._join(admission.fact, occurrence), occurrence
                continue
            waiting = self.waiting.get(admission.occurrence)
            if waiting is None:
                continue  # it stands no more; its admission stands for others, too
            if admission.fact not in self.facts and admission.fact != found_fact(waiting):
                continue  # what founded the fact stands no more: this one is admitted anew, as the first
            del self.waiting[admission.occurrence]
            yield self._join(admission.fact, waiting), waiting

    def _taken_up_by(self, admission: Admission) -> Fact | None:
        """The fact of an occurrence that is admitted to another one: it goes there whole, unless it is pinned."""
        fact = self.holder(admission.occurrence)
        if fact is None or fact.pinned or fact.id == admission.fact or admission.fact not in self.facts:
            return None
        return fact

    def find(self, likeness: Likeness) -> Fact | None:
        """The fact that says this, if there is one."""
        fact = self._by_likeness.get(likeness)
        return None if fact is None else self.facts[fact]

    def holder(self, pointer: Pointer) -> Fact | None:
        """The fact of an occurrence that was admitted."""
        return self.facts.get(self._fact_of.get(pointer, b""))

    def occurrence(self, pointer: Pointer) -> Occurrence | None:
        """What waits or was admitted under a pointer."""
        holder = self.holder(pointer)
        if holder is None:
            return self.waiting.get(pointer)
        return next(each for each in holder.occurrences if each.pointer == pointer)

    def block(self, block: Block) -> list[Fact]:
        """The facts that near duplicates of these days and figures are looked for among."""
        return [self.facts[fact] for fact in self._by_block.get(block, ())]

    def admit(self, occurrence: Occurrence, fact: FactId | None = None) -> Fact:
        """Take what a person says, which waits for no admission: the fact it joined or founded.

        It goes to this fact if that is there, else to the one that says the same, else it founds one.
        """
        if fact is None or fact not in self.facts:
            fact = self._by_likeness.get(occurrence.likeness) or fact or found_fact(occurrence)
        return self._join(fact, occurrence)

    def remove(self, fact: FactId) -> None:
        """Know a fact no more."""
        for occurrence in self.facts.pop(fact).occurrences:
            del self._fact_of[occurrence.pointer]
            if self._by_likeness.get(occurrence.likeness) == fact:
                del self._by_likeness[occurrence.likeness]
            same = self._by_block.get(occurrence.likeness.block, [])
            if fact in same:
                same.remove(fact)
                if not same:
                    del self._by_block[occurrence.likeness.block]

    def note_judged(self, event: PairsJudged) -> None:
        """A model compared readings."""
        self.take_verdicts(((pair.one, pair.other), pair.verdict) for pair in event.pairs)

    def take_verdicts(self, verdicts: Iterable[tuple[Pair, PairVerdict]]) -> None:
        """Know what a model said of pairs."""
        for pair, verdict in verdicts:
            self.verdicts[pair] = verdict
            if verdict is PairVerdict.SAME:
                self.unjoined[pair] = None

    def note_given_up(self, seqs: tuple[int, ...]) -> None:
        """A model could not be asked about readings of these events."""
        self.given_up[seqs] = None

    def note_resumed(self, seqs: tuple[int, ...]) -> None:
        """It is to be asked again, if there is still something to ask."""
        self.given_up.pop(seqs, None)

    def _join(self, fact: FactId, occurrence: Occurrence) -> Fact:
        joined = self.facts.setdefault(fact, Fact(fact))
        block = occurrence.likeness.block
        if all(each.likeness.block != block for each in joined.occurrences):
            self._by_block.setdefault(block, []).append(fact)
        joined.occurrences.append(occurrence)
        self._fact_of[occurrence.pointer] = fact
        self._by_likeness.setdefault(occurrence.likeness, fact)
        return joined


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
    if isinstance(event, FactPinned):
        return replace(occurrence, pinned=True)
    state = occurrence.state
    if state is not None and event.says.time_end not in (event.was.time_end, event.says.time_start):
        state = replace(state, stance=Stance.PAST)  # somebody says until when it is so
    return replace(occurrence, corrected=True, state=state)


def keep_end(statement: Occurrence, before: Occurrence) -> Occurrence:
    """A correction of other words leaves it at until when a state was so, if a person said that before."""
    state, was = statement.state, before.state
    said = before.corrected and was is not None and was.stance is Stance.PAST
    if state is None or not said or statement.time_end != before.time_end or before.time_end == before.time_start:
        return statement
    return replace(statement, state=replace(state, stance=Stance.PAST))


def read_likeness(fact: ExtractedFact, user: Reference) -> Likeness:
    """What a fact shares with others of this user that say the same."""
    folded = fold_text(fact.text)
    own = own_part(folded)
    figures = read_figures(folded) if own is None else [*read_figures(folded), own]
    return Likeness(
        _hash_text(folded, user, 16),
        fact.time_start // _DAY_MS,
        fact.time_end // _DAY_MS,
        _hash_text(" ".join(figures), user, 8) if figures else b"",
    )


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
        state=read_state(fact, recorded.user),
    )


def _hash_text(folded: str, user: Reference, size: int) -> bytes:
    return blake2b(folded.encode(), digest_size=size, key=user).digest()
