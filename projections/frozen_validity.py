"""States and their validity as rows, and back. Only what was recorded is kept; chains are made of the facts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from events.decisions import Supersession
from events.memory import Pointer
from projections.facts.canonical import Canon
from projections.facts.regions import Width
from projections.facts.stances import Stance
from projections.facts.states import State, StateKey
from projections.facts.validity import Validity
from projections.frozen import Reader, Row, Section, Writer


def freeze_validity(validity: Validity, w: Writer) -> Iterator[Section]:
    """The sections of what ended which state, and of the chains that are to be planned, by a fact of each."""
    yield (
        "superseded",
        (
            (w.id(each.fact), None if each.by is None else w.id(each.by), each.until)
            for each in validity.superseded.values()
        ),
    )
    yield "touched", ((w.id(validity.states[key][0].fact),) for key in validity.touched if key in validity.states)


def thaw_validity(r: Reader, validity: Validity, canon: Canon) -> Iterator[None]:
    """Fill an empty one; the facts, the names of their entities and the verdicts are here already."""
    for n, fact in enumerate(canon.facts.values()):
        validity.add_fact(fact)
        if n % 200 == 0:
            yield
    validity.judge(pointer for pair in canon.verdicts for pointer in pair)
    validity.touched.clear()
    for batch in r.batches("touched"):
        validity.touch([r.id(fact) for (fact,) in batch])
    for batch in r.batches("superseded"):
        for number, by, until in batch:
            validity.take(Supersession(r.id(number), None if by is None else r.id(by), until))
        yield


def freeze_state(state: State | None, pointer: Pointer, w: Writer) -> Row | None:
    """What an occurrence says of a state: labels by where the log names them, words as hashes."""
    if state is None:
        return None
    for label in state.key:
        w.place_label(label, pointer)
    return (
        *map(w.label, state.key),
        int(state.stance),
        [sorted(name) for name in state.names],
        sorted(state.words),
        sorted(state.numbers),
        int(state.width),
    )


def thaw_state(row: Sequence[Any] | None, r: Reader) -> State | None:
    """What `freeze_state` gave."""
    if row is None:
        return None
    entity, attribute, stance, names, words, numbers, width = row
    return State(
        StateKey(r.label(entity), r.label(attribute)),
        Stance(stance),
        tuple(map(frozenset, names)),
        frozenset(words),
        frozenset(numbers),
        Width(width),
    )
