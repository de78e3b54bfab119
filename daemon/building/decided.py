"""What was decided on the facts of a user, as events: of other lineage, other events.

Their keys name what they were planned from: planned again from a later state it is another decision.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from events.codec import Event
from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, Route, SceneId, ScenesMerged
from events.envelope import NewEvent, Reference, identify
from events.eventtree import UnitId, UnitMembers, UnitsPartitioned
from events.memory import FactId, FactsAdmitted, Pointer
from events.time import Instant
from projections.facts.canonical import Occurrence
from projections.memory import Memory

# Routes an event: folding one takes a few milliseconds of the loop, not more.
ROUTES_MAX: Final = 16


@dataclass(frozen=True, slots=True)
class Founded:
    """A fact as it is, or will be once what is decided beside is recorded: its first reading, and its sessions."""

    first: Occurrence
    sessions: frozenset[Reference]


def find_founded(
    memory: Memory, admissions: Iterable[tuple[FactsAdmitted, frozenset[Reference]]]
) -> tuple[dict[FactId, Founded], set[FactId]]:
    """The facts that admissions found, and those, known or not, that they join to others whole."""
    canon = memory.canon
    founded: dict[FactId, Founded] = {}
    joined: set[FactId] = set()
    placed: dict[Pointer, FactId] = {}
    for decision, lineage in admissions:
        for fact, pointer in ((each.fact, each.occurrence) for each in decision.admissions):
            holder = canon.holder(pointer)
            before = placed.get(pointer) if holder is None else holder.id
            placed[pointer] = fact
            if before is not None and before != fact:
                joined.add(before)
            if fact in founded:
                founded[fact] = Founded(founded[fact].first, lineage)
            elif fact not in canon.facts and pointer in canon.waiting:
                founded[fact] = Founded(canon.waiting[pointer], lineage)
    return {fact: each for fact, each in founded.items() if fact not in joined}, joined


def make_admissions(
    memory: Memory, admissions: Iterable[tuple[FactsAdmitted, frozenset[Reference]]]
) -> list[NewEvent]:
    """Occurrences found or join facts."""
    made: list[NewEvent] = []
    for decision, lineage in admissions:
        occurrences = [memory.canon.occurrence(each.occurrence) for each in decision.admissions]
        said_at = max(each.said_at for each in occurrences if each is not None)
        first = decision.admissions[0]
        what = (first.fact, b"%d/%d" % first.occurrence)
        made.append(_decide(memory, decision, lineage, said_at, *what))
    return made


def make_routes(memory: Memory, routes: Sequence[Route], facts: Mapping[FactId, Founded]) -> list[NewEvent]:
    """Facts are in scenes from now on; `facts` has all of them."""
    by_lineage: dict[frozenset[Reference], list[Route]] = {}
    for route in routes:
        by_lineage.setdefault(facts[route.fact].sessions, []).append(route)
    generation = memory.parameters.generation
    return [
        _decide(
            memory,
            FactsRouted(generation, tuple(some)),
            lineage,
            max(facts[route.fact].first.said_at for route in some),
            some[0].fact,
        )
        for lineage, all_of_them in by_lineage.items()
        for some in _in_pieces(all_of_them)
    ]


def make_merges(
    memory: Memory, merges: Iterable[tuple[SceneId, tuple[SceneId, ...]]], said_at: Instant
) -> list[NewEvent]:
    """Scenes are one from now on; `said_at`: when the latest of the facts was said that were routed with it."""
    generation = memory.parameters.generation
    return [
        _decide(memory, ScenesMerged(generation, kept, absorbed), frozenset(), said_at, kept)
        for kept, absorbed in merges
    ]


def make_supersessions(
    memory: Memory, supersessions: Iterable[tuple[FactsSuperseded, frozenset[Reference]]]
) -> list[NewEvent]:
    """States end, or hold again."""
    facts = memory.canon.facts
    return [
        _decide(
            memory,
            decision,
            lineage,
            max(facts[each.fact].first.said_at for each in decision.supersessions),
            *(each.fact for each in decision.supersessions),
        )
        for decision, lineage in supersessions
    ]


def make_partitions(memory: Memory, units: Iterable[UnitMembers]) -> list[NewEvent]:
    """Facts are in units from now on, one event for those first read in one session; unknown ones are left out.

    So who is forgotten takes their own facts out of the units, and nobody else's.
    """
    facts, generation = memory.canon.facts, memory.parameters.generation
    by_session: dict[Reference, dict[UnitId, list[FactId]]] = {}
    for each in units:
        for fact in each.facts:
            if fact in facts:
                by_session.setdefault(facts[fact].first.session, {}).setdefault(each.unit, []).append(fact)
    made: list[NewEvent] = []
    for session, moved in by_session.items():
        members = tuple(UnitMembers(unit, tuple(some)) for unit, some in moved.items())
        said_at = max(facts[fact].first.said_at for some in moved.values() for fact in some)
        event = UnitsPartitioned(generation, members)
        made.append(_decide(memory, event, frozenset((session,)), said_at, b"units", session))
    return made


def make_promotion(memory: Memory, promoted: GenerationPromoted, said_at: Instant) -> NewEvent:
    """Facts are compared by an embedder from now on."""
    return _decide(memory, promoted, frozenset(), said_at, promoted.embedder.encode())


def _decide(
    memory: Memory, event: Event, lineage: frozenset[Reference], said_at: Instant, *what: bytes
) -> NewEvent:
    basis = memory.user_seq
    name = identify(b"mf.decision", memory.user, *what, basis.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=event,
        key=f"{event.wire_name}/{name}",
        happened_at=said_at,
        lineage=tuple(sorted(lineage)),
        basis=basis,
    )


def _in_pieces(routes: Sequence[Route]) -> Iterable[Sequence[Route]]:
    return (routes[at : at + ROUTES_MAX] for at in range(0, len(routes), ROUTES_MAX))
