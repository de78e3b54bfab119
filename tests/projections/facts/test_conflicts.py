"""Contradictions: two values of one state, another number or a negation, what a model said."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from events.decisions import PairVerdict
from events.memory import ExtractedFact, Mention
from events.schema import open_writer
from projections.facts.canonical import Fact
from projections.facts.conflicts import Conflict, Reason, find_conflicts, find_wording_conflicts, suspects
from tests.builders import MONDAY, SECRET
from tests.counting import count_calls
from tests.projections.facts.state_world import StateWorld, day

BOSTON, DAVIS, MIAMI = "Alice lives in Boston.", "Alice lives in Davis.", "Alice lives in Miami."
CONTRADICTS, DIFFERENT = PairVerdict.CONTRADICTS, PairVerdict.DIFFERENT


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StateWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield StateWorld(connection)


def a_statement(text: str, at: str = "2024-01-02") -> ExtractedFact:
    names = [word.strip(".,") for word in text.split() if word[0].isupper()]
    return ExtractedFact(text, (0,), day(at), day(at), mentions=tuple(map(Mention, dict.fromkeys(names))))


def conflicts(world: StateWorld) -> list[tuple[str, str, str]]:
    """All contradictions, in words."""
    memory = world.memory
    facts, verdicts = list(memory.canon.facts.values()), memory.canon.verdicts
    texts = {fact.id: world.text_of(fact) for fact in facts}
    found = find_conflicts(facts, memory.placement.validity.chains(), memory.placement.validity, verdicts)
    found += find_wording_conflicts(suspects(facts), texts, verdicts)
    pairs = [(min(pair), max(pair)) for each in found for pair in ((texts[each.one], texts[each.other]),)]
    return [(*pair, each.reason.value) for pair, each in zip(pairs, found, strict=True)]


def test_two_homes_of_one_day_contradict_each_other_across_sessions(world: StateWorld) -> None:
    world.live(BOSTON, "2024-01-02", "s1")
    world.live(DAVIS, "2024-01-02", "s2")

    assert conflicts(world) == [(BOSTON, DAVIS, "state")]


def test_a_state_that_ended_contradicts_nothing(world: StateWorld) -> None:
    world.live(BOSTON, "2022-01-02", "s1")
    world.live(DAVIS, "2023-01-02", "s2")

    assert conflicts(world) == []


def test_of_three_only_those_that_hold_at_one_time_contradict_each_other(world: StateWorld) -> None:
    world.live(BOSTON, "2022-01-02", "s1")
    world.live(DAVIS, "2023-01-02", "s2")
    world.live(MIAMI, "2023-01-02", "s3")

    assert conflicts(world) == [(DAVIS, MIAMI, "state")]


def test_a_state_and_its_end_of_one_day_contradict_each_other(world: StateWorld) -> None:
    world.live(BOSTON, "2024-01-02", "s1")
    world.live("Alice no longer lives in Boston.", "2024-01-02", "s2")

    assert (BOSTON, "Alice no longer lives in Boston.", "state") in conflicts(world)


@pytest.mark.parametrize(
    ("one", "other", "attribute"),
    [
        ("Alice speaks French.", "Alice speaks German.", "languages"),
        (BOSTON, "Alice still lives in Boston.", "home"),
        (BOSTON, "Alice lives with her parents.", "home"),
    ],
)
def test_what_may_be_so_at_one_time_contradicts_nothing(
    world: StateWorld, one: str, other: str, attribute: str
) -> None:
    world.live(one, "2024-01-02", attribute=attribute)
    world.live(other, "2024-01-02", attribute=attribute)

    assert conflicts(world) == []


@pytest.mark.parametrize(
    ("one", "other", "reason"),
    [
        ("Alice has 2 dogs.", "Alice has 3 dogs.", "number"),
        ("Alice has two dogs.", "Alice has three dogs.", "number"),
        ("Alice met Bob at 5 pm.", "Alice met Bob at 6 pm.", "number"),
        ("Alice likes the sea.", "Alice does not like the sea.", "negation"),
        ("Alice: Ich mag das Meer.", "Alice: Ich mag das Meer nicht.", "negation"),
        ("Alice: 我有二只猫。", "Alice: 我有三只猫。", "number"),
    ],
)
def test_other_numbers_and_negations_contradict_each_other(
    world: StateWorld, one: str, other: str, reason: str
) -> None:
    world.tell(a_statement(one), session="s1")
    world.tell(a_statement(other), session="s2")

    assert conflicts(world) == [(*sorted((one, other)), reason)]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("Alice has 2 dogs.", "Alice has 3 cats."),
        ("Alice has 2 dogs.", "Bob has 3 dogs."),
        ("Alice has dogs.", "Alice has 3 dogs."),
        ("Alice likes the sea.", "Alice likes the mountains."),
    ],
)
def test_other_words_and_other_entities_contradict_nothing(world: StateWorld, one: str, other: str) -> None:
    world.tell(a_statement(one), session="s1")
    world.tell(a_statement(other), session="s2")

    assert conflicts(world) == []


def test_the_same_words_of_another_day_contradict_nothing(world: StateWorld) -> None:
    world.tell(a_statement("Alice ran 5 miles."), session="s1")
    world.tell(a_statement("Alice ran 3 miles.", "2024-01-03"), session="s2")

    assert conflicts(world) == []


def test_of_many_variants_each_is_shown_with_the_next(world: StateWorld) -> None:
    for n in (2, 4, 3):
        world.tell(a_statement(f"Alice has {n} dogs."), session=f"s{n}")

    assert (
        conflicts(world)
        == [
            ("Alice has 2 dogs.", "Alice has 3 dogs.", "number"),
            ("Alice has 3 dogs.", "Alice has 4 dogs.", "number"),
        ]
        or len(conflicts(world)) == 2
    )


def test_what_a_model_calls_a_contradiction_is_one_and_what_it_calls_different_is_none(world: StateWorld) -> None:
    world.tell(a_statement("Alice sold the car."), a_statement("Alice still drives to work."))
    world.tell(a_statement("Alice has 2 dogs."), a_statement("Alice has 3 dogs."), session="s2")
    firsts = {world.text_of(fact): fact.first.pointer for fact in world.memory.canon.facts.values()}
    verdicts = world.memory.canon.verdicts
    verdicts[firsts["Alice still drives to work."], firsts["Alice sold the car."]] = CONTRADICTS
    verdicts[firsts["Alice has 3 dogs."], firsts["Alice has 2 dogs."]] = DIFFERENT

    assert conflicts(world) == [("Alice sold the car.", "Alice still drives to work.", "judged")]


def test_two_facts_are_one_conflict_however_many_reasons_there_are(world: StateWorld) -> None:
    world.live(BOSTON, "2024-01-02", "s1")
    world.live(DAVIS, "2024-01-02", "s2")
    pointers = [world.fact(text).first.pointer for text in (DAVIS, BOSTON)]
    world.memory.canon.verdicts[pointers[0], pointers[1]] = CONTRADICTS
    memory = world.memory
    validity = memory.placement.validity
    found = find_conflicts(list(memory.canon.facts.values()), validity.chains(), validity, memory.canon.verdicts)

    assert [each.reason for each in found] == [Reason.JUDGED]


def test_ten_thousand_facts_are_looked_through_with_a_few_calls_each(world: StateWorld) -> None:
    world.live(BOSTON, "2024-01-02", "s1")
    world.live(DAVIS, "2024-01-02", "s2")
    (one, other) = world.memory.canon.facts.values()
    many = [Fact(n.to_bytes(16, "big"), (one if n % 2 else other).occurrences) for n in range(10_000)]
    validity = world.memory.placement.validity
    found: list[Conflict] = []
    calls = count_calls(lambda: found.extend(find_conflicts([one, other, *many], validity.chains(), validity, {})))
    blocks: list[list[Fact]] = []
    calls += count_calls(lambda: blocks.extend(suspects(many)))
    print("calls", calls)

    assert len(found) == 1
    assert sum(map(len, blocks)) == 10_000
    assert calls < 100 * len(many)
