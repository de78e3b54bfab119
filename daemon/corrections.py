"""What people say of facts: this is not so, this is so instead, this is to stay.

Each is an event, one for each reading of the fact, with that reading's session and turns: it goes with them, and
what stands on other turns stays corrected.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from typing import TypeAlias

from daemon.listings import find_user
from daemon.memories import Memories
from daemon.protocol import Params
from daemon.structures import FactShown, Structures
from daemon.worker import Worker
from events.appending import Batch
from events.envelope import NewEvent, RecordedEvent, Reference
from events.errors import InvalidInput, MemForestError, StaleDecision
from events.gate import Verdict
from events.log import EventLog
from events.memory import (
    ExtractedFact,
    FactCorrected,
    FactId,
    FactPinned,
    FactRetracted,
    FactsExtracted,
    Mention,
)
from events.reading import read_events
from events.time import EARLIEST, LATEST, Instant, from_datetime
from projections.facts.canonical import Fact, Occurrence, read_likeness
from projections.facts.labels import normalise_label, occurs_in
from projections.memory import Memory

# A fact is a sentence or two; what is longer is a document.
TEXT_CHARACTERS_MAX = 4_000


class FactUnknown(MemForestError):
    """There is no fact of this id (any more); `facts.list` names those there are."""

    code = "not_found"


class FactParams(Params, frozen=True, kw_only=True):
    """For methods about one fact."""

    user_id: str
    fact_id: str


class CorrectParams(Params, frozen=True, kw_only=True):
    """Parameters of `facts.correct`: what is so instead. Times are ISO 8601 with their offset."""

    user_id: str
    fact_id: str
    text: str | None = None
    time_start: str | None = None
    time_end: str | None = None


class PinParams(Params, frozen=True, kw_only=True):
    """Parameters of `facts.pin`; with `pinned` false the fact is let go again."""

    user_id: str
    fact_id: str
    pinned: bool = True


@dataclass(frozen=True, slots=True)
class FactSettled:
    """The fact as it is now; null when it is known no more. `replaces` is the id that was asked about."""

    fact: FactShown | None
    replaces: str


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


class Corrections:
    """Records what people say of facts, and shows them."""

    def __init__(
        self,
        log: EventLog,
        memories: Memories,
        worker: Worker,
        structures: Structures,
        clock: Callable[[], Instant],
    ) -> None:
        self._log = log
        self._memories = memories
        self._worker = worker
        self._structures = structures
        self._clock = clock

    async def get(self, params: FactParams) -> FactShown:
        """One fact; raises `UserUnknown` or `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        async with self._memories.use(user) as memory:
            shown = await self._show(memory, _find_fact(memory, _read_id(params.fact_id)))
        if shown is None:
            raise FactUnknown
        return shown

    async def retract(self, params: FactParams) -> FactSettled:
        """A fact is not so. Raises `UserUnknown`, `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        await self._decide(user, _read_id(params.fact_id), plan_retraction)
        return FactSettled(None, params.fact_id)

    async def correct(self, params: CorrectParams) -> FactSettled:
        """Something else is so. Raises `UserUnknown`, `FactUnknown`, `InvalidInput`."""
        change = _read_change(params)
        user = await find_user(self._log, params.user_id)
        fact, readings = await self._decide(
            user, _read_id(params.fact_id), partial(plan_correction, change=change)
        )
        memory = await self._memories.catch_up(user)
        corrected = memory.canon.find(read_likeness(change.apply(readings[0].says)))
        if corrected is not None and fact.pinned and not corrected.pinned:
            await self._decide(user, corrected.id, plan_pin)
            memory = await self._memories.catch_up(user)
        return FactSettled(await self._show(memory, corrected), params.fact_id)

    async def pin(self, params: PinParams) -> FactSettled:
        """A fact is to stay as it is, or may change again. Raises `UserUnknown`, `FactUnknown`."""
        user = await find_user(self._log, params.user_id)
        plan = plan_pin if params.pinned else plan_unpinning
        fact, readings = await self._decide(user, _read_id(params.fact_id), plan)
        # What had joined the fact through a pin that is undone is admitted anew.
        memory = await self._worker.admit(user, await self._memories.catch_up(user))
        now = memory.canon.facts.get(fact.id) or memory.canon.find(read_likeness(readings[0].says))
        return FactSettled(await self._show(memory, now), params.fact_id)

    async def _decide(self, user: Reference, fact_id: FactId, plan: Plan) -> tuple[Fact, list[Reading]]:
        """Record what a plan makes of a fact, and return once it is known: the fact and readings of before.

        Costs no model call, so a stale plan is simply made again.
        """
        async with self._worker.planner(user):
            while True:
                memory = await self._memories.catch_up(user)
                basis, fact = memory.user_seq, _find_fact(memory, fact_id)
                was = replace(fact, occurrences=list(fact.occurrences))  # the Memory may be folded on meanwhile
                sessions = dict(memory.session_ids)
                seqs = [each.pointer.seq for each in was.occurrences]
                readings = read_fact(was, sessions, await self._log.read(partial(read_events, seqs=seqs)))
                events = make_events(memory.user_id, basis, plan(memory, was, readings), self._clock())
                try:
                    outcomes = await self._log.append(Batch(events=events))
                except StaleDecision:
                    continue
                if any(outcome.verdict is Verdict.REFUSED for outcome in outcomes):
                    raise FactUnknown
                await self._memories.catch_up(user)
                return was, readings

    async def _show(self, memory: Memory, fact: Fact | None) -> FactShown | None:
        if fact is None or not memory.shows(fact):
            return None
        shown = await self._structures.show([fact], dict(memory.units.group_of))
        return shown[0] if shown else None


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
    event = recorded[occurrence.pointer.seq].event
    if event is None:
        raise FactUnknown
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


def _find_fact(memory: Memory, fact_id: FactId) -> Fact:
    fact = memory.canon.facts.get(fact_id)
    if fact is None or not memory.shows(fact):
        raise FactUnknown
    return fact


def _read_id(text: str) -> FactId:
    try:
        return bytes.fromhex(text)
    except ValueError:
        raise FactUnknown from None


def _read_change(params: CorrectParams) -> Change:
    text = None if params.text is None else params.text.strip()
    if (text, params.time_start, params.time_end) == (None, None, None):
        raise InvalidInput("say what is so instead: text, time_start or time_end")
    if text is not None and not 1 <= len(text) <= TEXT_CHARACTERS_MAX:
        raise InvalidInput(f"text has 1 to {TEXT_CHARACTERS_MAX} characters; to take a fact away, retract it")
    return Change(text, _read_instant(params.time_start), _read_instant(params.time_end))


def _read_instant(text: str | None) -> Instant | None:
    if text is None:
        return None
    try:
        at = from_datetime(datetime.fromisoformat(text))
    except (ValueError, OverflowError):
        raise InvalidInput("a time is ISO 8601 with its offset (2024-07-01T09:00:00Z)") from None
    if not EARLIEST <= at <= LATEST:
        raise InvalidInput("a time is of the years 1 to 9999")
    return at
