"""How long states hold: which of them ended, as it was recorded, and the states of each kind in time order.

A state holds from its own time on until the one that ended it began; an event, and a state that was told as past,
holds at its own time alone. Everything is reversible: what ended a state is known no more, and it holds again.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import Final, NamedTuple

from events.decisions import FactsSuperseded, Supersession
from events.memory import FactId, Pointer
from events.time import Instant
from projections.facts.attributes import canonical_attribute, holds_several
from projections.facts.canonical import Fact
from projections.facts.stances import Stance
from projections.facts.states import State, StateKey

# Without end. As an instant it is further away than any that a log can hold.
FOR_EVER: Final = 1 << 62
_DAY_MS: Final = 86_400_000


class Told(NamedTuple):
    """A fact that tells a state, in the order of its chain: by time, then by what it says, whenever it came."""

    # By then it had begun: who says in May that she moved "this year" may have lived elsewhere in March.
    begun: Instant
    text: bytes  # hash of its text: it does not depend on the order of arrival
    fact: FactId
    at: Instant  # from when it holds
    until: Instant  # the end of its own time
    state: State

    @property
    def day(self) -> int:
        """The day by which it had begun: finer than that, times of states are chance."""
        return self.begun // _DAY_MS


@dataclass(frozen=True, slots=True)
class Interval:
    """From when until when something holds; `until` None is: still."""

    start: Instant
    until: Instant | None


class Validity:
    """The states of one user by entity and attribute, and which of them ended."""

    def __init__(self, canonical: Callable[[str], str] = lambda label: label) -> None:
        """`canonical`: the label under which an entity with several names is known."""
        self.superseded: dict[FactId, Supersession] = {}
        # Chains in the order of `Told`. Of states that were only wished for, or are long past, none is here.
        self.states: dict[StateKey, list[Told]] = {}
        # Chains in which something changed since all that is to be recorded of them was. No part of the fold: who
        # plans takes them away.
        self.touched: dict[StateKey, None] = {}
        # The same, since their trajectories were planned.
        self.resettled: dict[StateKey, None] = {}
        # Grows with every change of a chain, so that whoever plans elsewhere knows that the plan is stale.
        self.changes = 0
        # Readings that a model compared with others.
        self.judged: set[Pointer] = set()
        self._canonical = canonical
        self._told: dict[FactId, tuple[StateKey, Told]] = {}
        # Which facts a fact ended, and which tell a state of an entity under one of its labels.
        self._ended_by: dict[FactId, set[FactId]] = {}
        self._by_entity: dict[str, set[FactId]] = {}
        # The facts of the readings of states, and the readings of each.
        self._readings: dict[Pointer, FactId] = {}
        self._readings_of: dict[FactId, list[Pointer]] = {}

    def add_fact(self, fact: Fact) -> None:
        """A fact was founded, or joined by another reading of it."""
        if fact.id not in self._told:
            state = next((each.state for each in fact.occurrences if each.state is not None), None)
            told = None if state is None else _tell(fact, state)
            if told is None:
                return
            key = self._key_of(told.state)
            insort(self.states.setdefault(key, []), told)
            self._told[fact.id] = key, told
            self._by_entity.setdefault(told.state.key.entity, set()).add(fact.id)
        # A model may have compared the new reading with others.
        self._readings_of[fact.id] = [each.pointer for each in fact.occurrences]
        self._readings.update(dict.fromkeys(self._readings_of[fact.id], fact.id))
        self._touch(self._told[fact.id][0])

    def remove_fact(self, fact: FactId) -> list[FactId]:
        """A fact is known no more; those that hold again without it."""
        kept = self._told.pop(fact, None)
        if kept is not None:
            key, told = kept
            self._take_out(key, told)
            held = self._by_entity[told.state.key.entity]
            held.discard(fact)
            if not held:
                del self._by_entity[told.state.key.entity]
            for pointer in self._readings_of.pop(fact):
                if self._readings.get(pointer) == fact:
                    del self._readings[pointer]
        self._drop(fact)
        return self.reopen((fact,))

    def ending(self) -> tuple[FactId, ...]:
        """The facts that ended others."""
        return tuple(self._ended_by)

    def reopen(self, facts: Iterable[FactId]) -> list[FactId]:
        """These ended nothing; what holds again."""
        again = sorted(ended for fact in facts for ended in self._ended_by.get(fact, ()))
        for each in again:
            self._drop(each)
        return again

    def rename(self, labels: Iterable[str]) -> None:
        """The entities that have these names may be others now: their states go to the chains of those."""
        for label in labels:
            for fact in sorted(self._by_entity.get(label, ())):
                before, told = self._told[fact]
                key = self._key_of(told.state)
                if key != before:
                    self._take_out(before, told)
                    insort(self.states.setdefault(key, []), told)
                    self._told[fact] = key, told
                    self._touch(key)

    def apply(self, event: FactsSuperseded, known: Collection[FactId]) -> list[FactId]:
        """States ended, or hold again; those that are `known`, as is what ended them."""
        changed: list[FactId] = []
        for each in event.supersessions:
            if each.fact not in known or (each.by is not None and each.by not in known):
                continue
            self.take(each)
            changed.append(each.fact)
        return changed

    def take(self, supersession: Supersession) -> None:
        """A state ended, or holds again; both facts are known."""
        self._drop(supersession.fact)
        self._resettle(supersession.fact)
        if supersession.by is not None:
            self.superseded[supersession.fact] = supersession
            self._ended_by.setdefault(supersession.by, set()).add(supersession.fact)

    def judge(self, readings: Iterable[Pointer]) -> None:
        """A model compared these readings with others: their chains may be other ones."""
        for each in readings:
            self.judged.add(each)
            if each in self._readings:
                self._touch(self._told[self._readings[each]][0])

    def until(self, fact: FactId) -> Instant | None:
        """When a state ended; None: it holds still, or is no state."""
        ended = self.superseded.get(fact)
        return None if ended is None else ended.until

    def holds_until(self, fact: FactId) -> Instant | None:
        """The end of a state's validity, not in it, `FOR_EVER` for one that holds still.

        None for what holds at its own time alone, as events do.
        """
        kept = self._told.get(fact)
        if kept is None:
            return None
        told, until = kept[1], self.until(fact)
        if told.state.stance is Stance.PAST:
            return None if until is None or until > told.until else max(until, told.at + 1)
        return FOR_EVER if until is None else max(until, told.at + 1)

    def interval(self, fact: Fact) -> Interval:
        """From when until when a fact holds."""
        first, until = fact.first, self.holds_until(fact.id)
        end = first.time_end if until is None else None if until == FOR_EVER else until
        return Interval(first.time_start, end)

    def state_of(self, fact: FactId) -> tuple[StateKey, State] | None:
        """Which state a fact tells, under the names that its chain has, if it is in one."""
        kept = self._told.get(fact)
        return None if kept is None else (kept[0], kept[1].state)

    def successor(self, fact: FactId) -> FactId | None:
        """The state that came in place of this one; None when it holds, or only ended."""
        ended = self.superseded.get(fact)
        if ended is None or ended.by is None:
            return None
        by = self._told.get(ended.by)
        return None if by is not None and by[1].state.stance is Stance.ENDED else ended.by

    def predecessor(self, fact: FactId) -> FactId | None:
        """The state in whose place this one came: of all that ended before it began, the last."""
        kept = self._told.get(fact)
        if kept is None or kept[1].state.stance is Stance.ENDED:
            return None
        key, told = kept
        chain = self.states[key]
        for earlier in reversed(chain[: bisect_left(chain, told)]):
            until = self.until(earlier.fact)
            if until is not None and until <= told.begun and earlier.state.stance is not Stance.ENDED:
                return earlier.fact
        return None

    def may_change(self, fact: FactId) -> bool:
        """Whether a fact tells a state of which there is one at a time."""
        kept = self._told.get(fact)
        return kept is not None and not holds_several(kept[0].attribute)

    def changing(self) -> list[FactId]:
        """The facts of which `may_change` is true."""
        single = (chain for key, chain in self.states.items() if not holds_several(key.attribute))
        return [told.fact for chain in single for told in chain]

    def ended_chains(self) -> list[StateKey]:
        """The chains in which a state ended, each once."""
        return list(dict.fromkeys(self._told[fact][0] for fact in self.superseded if fact in self._told))

    def chains(self) -> Iterator[tuple[StateKey, list[Told]]]:
        """All states by what they are about, in time order."""
        yield from self.states.items()

    def touch(self, facts: Iterable[FactId]) -> None:
        """The chains of these facts are to be planned."""
        for fact in facts:
            if fact in self._told:
                self._touch(self._told[fact][0])

    def _resettle(self, fact: FactId) -> None:
        if fact in self._told:
            self.resettled[self._told[fact][0]] = None

    def _touch(self, key: StateKey) -> None:
        self.touched[key] = self.resettled[key] = None
        self.changes += 1

    def _key_of(self, state: State) -> StateKey:
        return StateKey(self._canonical(state.key.entity), canonical_attribute(state.key.attribute))

    def _take_out(self, key: StateKey, told: Told) -> None:
        chain = self.states[key]
        del chain[bisect_left(chain, told)]
        self._touch(key)
        if not chain:
            del self.states[key]

    def _drop(self, fact: FactId) -> None:
        """Nothing ended a fact any more."""
        ended = self.superseded.pop(fact, None)
        if ended is not None:
            self._resettle(fact)
        if ended is not None and ended.by is not None:
            others = self._ended_by[ended.by]
            others.discard(fact)
            if not others:
                del self._ended_by[ended.by]


def _tell(fact: Fact, state: State) -> Told | None:
    """The place of a fact in its chain; None for what is in none.

    A past state without a time of its own ("she lived in Boston once") has no place: it was said today, and may be
    of any day before. Of what a person corrected the times are meant.
    """
    first = fact.first
    if state.stance is Stance.UNSURE:
        return None
    undated = first.time_end // _DAY_MS >= first.said_at // _DAY_MS and not first.corrected
    if state.stance is Stance.PAST and undated:
        return None
    begun = first.time_start
    if state.stance is not Stance.PAST:
        begun = min(first.time_end, max(first.said_at, begun))
    return Told(begun, first.likeness.text, fact.id, first.time_start, first.time_end, state)
