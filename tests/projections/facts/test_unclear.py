"""Which states a model is asked about: neighbours of which the rules know no answer, each once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from events.decisions import JudgedPair, PairsJudged, PairVerdict
from events.memory import ExtractedFact, FactRole, StateOf
from events.schema import open_writer
from projections.facts.canonical import Pair
from projections.facts.supersession import plan_supersessions
from projections.facts.unclear import find_unclear
from tests.builders import KEYS, MONDAY, SECRET
from tests.projections.facts.fact_world import FactWorld, a_fact

S1 = KEYS.session("alice", "s1")


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FactWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield FactWorld(connection)


def a_state(text: str, day: int, attribute: str = "job") -> ExtractedFact:
    return replace(a_fact(text, day=day), role=FactRole.STATE, state=StateOf("Alice", attribute))


def learn(world: FactWorld, *facts: ExtractedFact) -> None:
    world.say("Hello.", "Well.")
    world.extract(*facts)
    world.admit()


def in_words(world: FactWorld, pairs: tuple[Pair, ...]) -> list[tuple[str, str]]:
    return [(world.text_at(later), world.text_at(earlier)) for later, earlier in pairs]


SENIOR, BRIDGES = "Alice is a senior engineer.", "Alice is an engineer for bridges."


def test_what_the_rule_cannot_tell_is_asked_the_later_state_first(world: FactWorld) -> None:
    learn(world, a_state(BRIDGES, 3), a_state(SENIOR, 0), a_state("Alice is a nurse.", 5))

    assert in_words(world, find_unclear(world.memory)) == [(BRIDGES, SENIOR)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (a_state(SENIOR, 0), a_state(BRIDGES, 0)),
        (a_state("Alice is a nurse.", 0), a_state("Alice is a baker.", 1)),
        (a_state("Alice plays an old piano.", 0, "hobbies"), a_state("Alice plays an old organ.", 1, "hobbies")),
        (a_state("Alice wants to be a senior engineer.", 0), a_state(BRIDGES, 1)),
    ],
    ids=["one day", "clear", "several at a time", "a wish"],
)
def test_of_what_is_clear_nobody_asks(world: FactWorld, one: ExtractedFact, other: ExtractedFact) -> None:
    learn(world, one, other)

    assert find_unclear(world.memory) == ()


def test_a_verdict_is_carried_out_and_ends_the_asking(world: FactWorld) -> None:
    learn(world, a_state(SENIOR, 0), a_state(BRIDGES, 3))
    ((later, earlier),) = find_unclear(world.memory)
    event = PairsJudged(1, (JudgedPair(later, earlier, PairVerdict.SUPERSEDES),), (later.seq,), "m")
    world.write(world._decided(event, {S1}))  # pyright: ignore[reportPrivateUsage]
    ((superseded, _),) = plan_supersessions(world.memory, 1)

    assert find_unclear(world.memory) == ()
    assert [each.fact for each in superseded.supersessions] == [world.fact(SENIOR).id]


def test_what_was_given_up_is_not_asked_again(world: FactWorld) -> None:
    learn(world, a_state(SENIOR, 0), a_state(BRIDGES, 3))
    ((later, earlier),) = find_unclear(world.memory)
    world.memory.canon.note_given_up((earlier.seq, later.seq))

    assert find_unclear(world.memory) == ()
