"""What becomes of a fact that a person speaks of: pure plans, made of what a Memory and the log say of it now."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TypeAlias

from events.envelope import NewEvent, RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError
from events.memory import (
    ExtractedFact,
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactsExtracted,
    Mention,
)
from events.session import MemoryImported
from events.time import Instant
from projections.facts.canonical import Fact, Occurrence
from projections.facts.imported import as_fact
from projections.facts.labels import normalise_label, occurs_in
from projections.memory import Memory

# A fact is a sentence or two; what is longer is a document.
TEXT_CHARACTERS_MAX = 4_000


class FactUnknown(MemForestError):
    """There is no fact of this id (any more); `facts.list` names those there are."""

    code = "not_found"


@dataclass(frozen=True, slots=True)
class Reading:
    """An occurrence of a fact, with the session's name and with what it says in the log."""

    occurrence: Occurrence
    session_id: str
    read: tuple[int, ...]
    says: ExtractedFact


Corrected: TypeAlias = FactRetracted | FactCorrected | FactPinned
# What is to be recorded of the readings of a fact.
Plan: TypeAlias = Callable[[Memory, Fact, Sequence[Reading]], list[tuple[Reading, Corrected]]]


@dataclass(frozen=True, slots=True)
class Change:
    """What is so instead, as far as it was said."""

    text: str | None = None
    time_start: Instant | None = None
    time_end: Instant | None = None

    def apply(self, was: ExtractedFact, names: Sequence[str] = ()) -> ExtractedFact:
        """The fact as it is to be; `names` are known labels that the new text names.

        By rule: what it was said of (names, topics, state) stays, unless it left the text. A start alone is a
        moment, an end alone keeps the start. Raises `InvalidInput` when it would end before it starts.
        """
        start = was.time_start if self.time_start is None else self.time_start
        end = was.time_end if self.time_start is None else start
        end = end if self.time_end is None else self.time_end
        if end < start:
            raise InvalidInput("time_end is not before time_start")
        timed = replace(was, time_start=start, time_end=end)
        if self.text is None:
            return timed
        before, after = normalise_label(was.text), normalise_label(self.text)

        def stays(label: str) -> bool:
            label = normalise_label(label)
            return occurs_in(label, after) or not occurs_in(label, before)

        mentions = tuple(mention for mention in was.mentions if stays(mention.label))
        known = {normalise_label(mention.label) for mention in mentions}
        return replace(
            timed,
            text=self.text,
            mentions=(*mentions, *(Mention(name) for name in names if name not in known)),
            topics=tuple(topic for topic in was.topics if stays(topic)),
            state=was.state if was.state is not None and stays(was.state.entity) else None,
        )


def plan_retraction(_: Memory, fact: Fact, readings: Sequence[Reading]) -> list[tuple[Reading, Corrected]]:
    """A fact is not so, wherever it was read."""
    return [(each, FactRetracted(fact.id, each.occurrence.turns, each.read, each.says)) for each in readings]


def plan_correction(
    memory: Memory, fact: Fact, readings: Sequence[Reading], change: Change
) -> list[tuple[Reading, Corrected]]:
    """Something else is so, wherever it was read; nothing when it says this already.

    Raises `InvalidInput` as `Change.apply` does.
    """
    names = [] if change.text is None else memory.scopes.named_in(change.text)
    says = [change.apply(each.says, names) for each in readings]
    if all(_says_the_same(new, each.says) for new, each in zip(says, readings, strict=True)):
        return []
    return [
        (each, FactCorrected(fact.id, each.occurrence.turns, each.read, each.says, new))
        for each, new in zip(readings, says, strict=True)
    ]


def plan_pin(_: Memory, fact: Fact, readings: Sequence[Reading]) -> list[tuple[Reading, Corrected]]:
    """A fact is to stay, wherever it was read and is not pinned yet."""
    held = {each.turns for each in fact.occurrences if each.pinned}
    return [(each, _pin(fact, each, None)) for each in readings if each.occurrence.turns not in held]


def plan_unpinning(_: Memory, fact: Fact, readings: Sequence[Reading]) -> list[tuple[Reading, Corrected]]:
    """All pins of a fact are undone."""
    of_turns = {each.occurrence.turns: each for each in readings}
    pins = [(of_turns[each.turns], each.pointer.seq) for each in fact.occurrences if each.pinned]
    return [(each, _pin(fact, each, pin)) for each, pin in pins]


def _pin(fact: Fact, reading: Reading, undone: int | None) -> FactPinned:
    """A pin, or the undoing of the one at seq `undone`."""
    return FactPinned(
        fact=fact.id,
        pinned=undone is None,
        replaces=undone,
        turns=reading.occurrence.turns,
        read=reading.read,
        says=reading.says,
    )


def read_fact(
    fact: Fact, session_ids: Mapping[Reference, str], recorded: Mapping[int, RecordedEvent]
) -> list[Reading]:
    """The readings of a fact, one for the same turns; raises `FactUnknown` when its words were erased."""
    return [
        Reading(each, session_ids[each.session], _read_turns(each, recorded), _says(each, recorded))
        for each in _one_for_the_same_turns(fact)
    ]


def make_events(
    user_id: str, basis: int, planned: Sequence[tuple[Reading, Corrected]], at: Instant
) -> tuple[NewEvent, ...]:
    """What was planned of a fact at a user_seq, as events of the sessions that it was read in."""
    return tuple(
        NewEvent(
            user_id=user_id,
            session_id=reading.session_id,
            event=event,
            key=f"correct/{event.fact.hex()}/{basis}/{n}",
            happened_at=at,
            time_assigned=True,
            lineage=(reading.occurrence.session,),
            basis=basis,
        )
        for n, (reading, event) in enumerate(planned)
    )


def _one_for_the_same_turns(fact: Fact) -> Iterator[Occurrence]:
    """The first occurrence of each set of turns: a pin stands on those of another one."""
    seen: set[tuple[int, ...]] = set()
    for occurrence in fact.occurrences:
        if occurrence.turns not in seen:
            seen.add(occurrence.turns)
            yield occurrence


def _says(occurrence: Occurrence, recorded: Mapping[int, RecordedEvent]) -> ExtractedFact:
    """What an occurrence says in the log, of all the turns that it stands on."""
    read = recorded[occurrence.pointer.seq]
    event = read.event
    if event is None:
        raise FactUnknown
    if isinstance(event, MemoryImported):
        return as_fact(read, event, occurrence.mentions)
    assert isinstance(event, FactsExtracted | FactCorrected | FactPinned)
    said = event.facts[occurrence.pointer.n] if isinstance(event, FactsExtracted) else event.says
    return replace(said, turns=tuple(range(len(occurrence.turns))))


def _read_turns(occurrence: Occurrence, recorded: Mapping[int, RecordedEvent]) -> tuple[int, ...]:
    """All turns whose words may be in what an occurrence says."""
    event = recorded[occurrence.pointer.seq].event
    if isinstance(event, FactsExtracted):
        return tuple(sorted({*event.context, *event.turns}))
    return event.read if isinstance(event, FactCorrected | FactPinned) else ()


def _says_the_same(one: ExtractedFact, other: ExtractedFact) -> bool:
    return (one.text, one.time_start, one.time_end) == (other.text, other.time_start, other.time_end)
