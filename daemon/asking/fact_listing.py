"""`facts.list` and `facts.get`: what a listing says of a fact, how long it holds, and what contradicts it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from daemon.asking.answer_types import Source
from daemon.asking.words import source_of
from events.envelope import RecordedEvent
from events.memory import FactId
from events.time import Instant, to_iso
from projections.facts.canonical import Fact
from projections.facts.conflicts import Conflict
from projections.facts.states import StateKey
from projections.memory import Memory
from projections.texts import FactText, compose


@dataclass(frozen=True, slots=True)
class FactShown:
    """A canonical fact; `group` is the id of the group that replaced it in answers.

    It holds from `valid_from` until `valid_until`, which is null for a state that holds still. `predecessor` and
    `successor` are the ids of the states before and after it, `entity` and `attribute` what it is a state of.
    """

    id: str
    text: str
    said_at: str
    time_start: str
    time_end: str
    role: str
    entities: list[str]
    sessions: list[str]
    sources: list[Source]
    group: str | None
    pinned: bool
    valid_from: str
    valid_until: str | None
    predecessor: str | None
    successor: str | None
    entity: str | None
    attribute: str | None


@dataclass(frozen=True, slots=True)
class ConflictShown:
    """Two facts that contradict each other, by their ids, the one about the earlier time first.

    `reason` is `state` (two values of one attribute at one time), `number` or `negation` (the same words of the
    same days but for that), or `judged` (a model says so). `entity` and `attribute` are those of a state.
    """

    one: str
    other: str
    reason: str
    entity: str | None
    attribute: str | None


@dataclass(frozen=True, slots=True)
class FactPage:
    """Facts in time order; `next` is the `after` to go on from, null on the last page.

    When contradictions were asked for, `facts` are those that are in `conflicts`.
    """

    facts: list[FactShown]
    next: str | None
    conflicts: list[ConflictShown] = field(default_factory=list[ConflictShown])


@dataclass(frozen=True, slots=True)
class FactStanding:
    """A fact, and what a Memory says of it besides: all but its words."""

    fact: Fact
    group: bytes | None
    valid_until: Instant | None
    predecessor: FactId | None
    successor: FactId | None
    state: StateKey | None

    @property
    def seqs(self) -> set[int]:
        """The events that hold its text and its sources."""
        return {self.fact.first.pointer.seq, *self.fact.turns}


def look_at_fact(memory: Memory, fact: Fact) -> FactStanding:
    """What a Memory says of a fact now. What is hidden ended nothing, and did not come before it.

    With the fact as it is: the Memory's own one is joined by others while its words are read.
    """
    validity = memory.placement.validity
    before = validity.predecessor(fact.id)
    of = validity.state_of(fact.id)
    return FactStanding(
        fact=Fact(fact.id, list(fact.occurrences)),
        group=memory.units.group_of.get(fact.id),
        valid_until=validity.interval(fact).until,
        predecessor=before if before is not None and memory.shows(memory.canon.facts[before]) else None,
        successor=validity.successor(fact.id),
        state=None if of is None else of[0],
    )


def show_fact(standing: FactStanding, recorded: Mapping[int, RecordedEvent]) -> FactShown | None:
    """A fact with its text and sources; None when its words were erased meanwhile."""
    fact, first = standing.fact, standing.fact.first
    text = compose(FactText(first.pointer), recorded)
    if text is None:
        return None
    sources = [source_of(recorded[seq]) for seq in fact.turns if recorded[seq].event is not None]
    return FactShown(
        id=fact.id.hex(),
        text=text,
        said_at=to_iso(first.said_at),
        time_start=to_iso(first.time_start),
        time_end=to_iso(first.time_end),
        role=first.role,
        entities=sorted({m.label for each in fact.occurrences for m in each.mentions}),
        sessions=sorted({source.session_id for source in sources if source.session_id}),
        sources=sources,
        group=_hex(standing.group),
        pinned=fact.pinned,
        valid_from=to_iso(first.time_start),
        valid_until=None if standing.valid_until is None else to_iso(standing.valid_until),
        predecessor=_hex(standing.predecessor),
        successor=_hex(standing.successor),
        entity=None if standing.state is None else standing.state.entity,
        attribute=None if standing.state is None else standing.state.attribute,
    )


def show_conflicts(conflicts: Sequence[Conflict], shown: Sequence[FactShown]) -> list[ConflictShown]:
    """Those contradictions both of whose facts are shown."""
    known = {fact.id for fact in shown}
    return [
        ConflictShown(
            one=each.one.hex(),
            other=each.other.hex(),
            reason=each.reason,
            entity=None if each.state is None else each.state.entity,
            attribute=None if each.state is None else each.state.attribute,
        )
        for each in conflicts
        if {each.one.hex(), each.other.hex()} <= known
    ]


def _hex(id_: bytes | None) -> str | None:
    return None if id_ is None else id_.hex()
