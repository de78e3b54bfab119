"""Facts that contradict one another, found on demand and never averaged: both stand, side by side.

Across scopes and sessions: two values of one state at one time, texts that differ in a number or a negation alone
and speak of the same days and entities, and what a model called a contradiction. Blocked, so that it costs as much
as there are facts: states by entity and attribute, texts by days, entities and their other words.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from typing import Final, NamedTuple

from events.decisions import PairVerdict
from events.memory import FactId, Pointer
from projections.facts.attributes import holds_several
from projections.facts.canonical import Fact
from projections.facts.stances import Stance
from projections.facts.states import StateKey
from projections.facts.supersession import Sameness, Verdicts, compare, verdict_of
from projections.facts.validity import FOR_EVER, Told, Validity
from projections.facts.wording import NEGATION, fold_text, read_figures, read_skeleton

# States that hold at one time and are compared with the next one; whoever has more homes has a list.
OPEN_MAX: Final = 16


class Reason(StrEnum):
    """Why two facts cannot both be so."""

    STATE = "state"  # one entity has two values of one attribute at one time
    NUMBER = "number"  # the same words of the same days, with other numbers
    NEGATION = "negation"  # the same words of the same days, and one of them says not
    JUDGED = "judged"  # a model says so


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two facts that contradict each other; the one that speaks of the earlier time first."""

    one: FactId
    other: FactId
    reason: Reason
    state: StateKey | None = None


def find_conflicts(
    facts: Sequence[Fact],
    chains: Iterable[tuple[StateKey, Sequence[Told]]],
    validity: Validity,
    verdicts: Verdicts,
) -> list[Conflict]:
    """All but what only texts tell, in time order. For these see `find_wording_conflicts`."""
    known = {fact.id: fact for fact in facts}
    found = [*_judged(facts, verdicts), *_of_states(known, chains, validity, verdicts)]
    return _in_order(found, known)


def suspects(facts: Iterable[Fact]) -> list[list[Fact]]:
    """The facts whose texts have to be compared: those that speak of the same days and entities, together."""
    blocks: dict[tuple[int, int, frozenset[str]], list[Fact]] = {}
    for fact in facts:
        days = fact.first.likeness
        blocks.setdefault((days.first_day, days.last_day, fact.labels), []).append(fact)
    return [block for block in blocks.values() if len(block) > 1]


def find_wording_conflicts(
    blocks: Iterable[Sequence[Fact]], texts: Mapping[FactId, str], verdicts: Verdicts
) -> list[Conflict]:
    """Texts of one block that differ in their numbers or in a negation alone; of many each with the next."""
    found: list[Conflict] = []
    known: dict[FactId, Fact] = {}
    for block in blocks:
        alike: dict[frozenset[str], list[_Variant]] = {}
        for fact in block:
            text = texts.get(fact.id)
            if text is not None and (skeleton := read_skeleton(text)):
                figures = read_figures(fold_text(text))
                numbers = tuple(figure for figure in figures if figure != NEGATION)
                alike.setdefault(skeleton, []).append(_Variant(numbers, NEGATION in figures, fact))
        for variants in alike.values():
            for one, other, reason in _compare_variants(variants) if len(variants) > 1 else ():
                if verdict_of(other, one, verdicts) is None:
                    known.update(((one.id, one), (other.id, other)))
                    found.append(Conflict(one.id, other.id, reason))
    return _in_order(found, known)


class _Variant(NamedTuple):
    """What a text says besides the words that it shares with others."""

    numbers: tuple[str, ...]
    negated: bool
    fact: Fact


def _compare_variants(variants: Sequence[_Variant]) -> Iterator[tuple[Fact, Fact, Reason]]:
    by_numbers: dict[tuple[str, ...], list[_Variant]] = {}
    for each in variants:
        by_numbers.setdefault(each.numbers, []).append(each)
    counted: list[tuple[int, tuple[str, ...], Fact]] = []
    for numbers, same in by_numbers.items():
        said = {each.negated: each.fact for each in reversed(same)}
        if len(said) > 1:
            yield said[False], said[True], Reason.NEGATION
        if False in said:
            counted.append((len(numbers), numbers, said[False]))
    for one, other in pairwise(sorted(counted, key=lambda each: each[:2])):
        # What only one of them counts is more, not something else.
        if one[0] == other[0]:
            yield one[2], other[2], Reason.NUMBER


def _judged(facts: Sequence[Fact], verdicts: Verdicts) -> Iterator[Conflict]:
    if PairVerdict.CONTRADICTS not in verdicts.values():
        return
    fact_of: dict[Pointer, FactId] = {each.pointer: fact.id for fact in facts for each in fact.occurrences}
    for (one, other), verdict in verdicts.items():
        first, second = fact_of.get(other), fact_of.get(one)
        if verdict is PairVerdict.CONTRADICTS and first is not None and second is not None and first != second:
            yield Conflict(first, second, Reason.JUDGED)


def _of_states(
    known: Mapping[FactId, Fact],
    chains: Iterable[tuple[StateKey, Sequence[Told]]],
    validity: Validity,
    verdicts: Verdicts,
) -> Iterator[Conflict]:
    """States of one kind that hold at one time and have different values."""
    for key, chain in chains:
        holding: list[tuple[Told, int]] = []
        for told in chain:
            if told.fact not in known:
                continue
            holding = [each for each in holding if each[1] > told.begun][-OPEN_MAX:]
            for earlier, _ in holding:
                pair = known[told.fact], known[earlier.fact]
                if _contradict(key, told, earlier) and verdict_of(*pair, verdicts) is None:
                    yield Conflict(earlier.fact, told.fact, Reason.STATE, key)
            holding.append((told, _end_of(told, validity)))


def _contradict(key: StateKey, one: Told, other: Told) -> bool:
    """Whether two states that hold at one time cannot both be so."""
    sameness = compare(one.state, other.state, key.attribute)
    if Stance.ENDED in (one.state.stance, other.state.stance):
        # On a later day it is no contradiction but an end.
        against = {one.state.stance, other.state.stance} == {Stance.HOLDS, Stance.ENDED}
        return against and sameness is Sameness.SAME and one.day == other.day
    # What was so for a time, and something else before and maybe after it, are none.
    both = (one.state.stance is Stance.PAST) == (other.state.stance is Stance.PAST)
    return both and sameness is Sameness.DIFFERENT and not holds_several(key.attribute)


def _end_of(told: Told, validity: Validity) -> int:
    until = validity.holds_until(told.fact)
    if until is None or until == FOR_EVER:
        return told.until + 1 if until is None else FOR_EVER
    return until


def _in_order(found: Iterable[Conflict], known: Mapping[FactId, Fact]) -> list[Conflict]:
    """By the time of the facts; of two facts one conflict, the first that was found."""

    def place(fact: FactId) -> tuple[int, FactId]:
        return known[fact].first.time_start, fact

    pairs: dict[tuple[FactId, FactId], Conflict] = {}
    for each in found:
        one, other = sorted((each.one, each.other), key=place)
        pairs.setdefault((one, other), Conflict(one, other, each.reason, each.state))
    return sorted(pairs.values(), key=lambda each: (place(each.one), place(each.other)))
