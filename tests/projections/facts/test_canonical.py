"""Which occurrences are one fact, what their admissions are recorded as, and what forgetting takes of them."""

from __future__ import annotations

import random
from dataclasses import dataclass, replace

import pytest

from events.envelope import Reference
from events.memory import ExtractedFact, FactsAdmitted, FactsExtracted, Mention, Pointer
from events.time import Instant
from projections.facts.admission import ADMISSIONS_MAX, plan_admissions
from projections.facts.canonical import (
    Canon,
    Occurrence,
    found_fact,
    make_leaf_key,
    read_occurrences,
)
from tests.builders import KEYS, MONDAY, an_extraction, an_id, as_recorded

DAY_MS = 86_400_000


@dataclass
class Said:
    """Occurrences as extractions at growing seqs would give them."""

    seq: int = 0

    def fact(
        self, text: str, session: str = "s1", at: Instant = MONDAY, until: Instant | None = None
    ) -> Occurrence:
        (occurrence,) = self.facts([ExtractedFact(text, (0,), at, at if until is None else until)], session)
        return occurrence

    def facts(self, facts: list[ExtractedFact], session: str = "s1") -> list[Occurrence]:
        self.seq += 1
        new = an_extraction((self.seq,), session_id=session)
        assert isinstance(new.event, FactsExtracted)
        event = replace(new.event, facts=tuple(facts))
        return read_occurrences(as_recorded(new, 1, seq=self.seq), event, {self.seq: MONDAY})


def admit(canon: Canon) -> list[frozenset[Reference]]:
    """Admit all that waits; the lineages of the events."""
    decisions = plan_admissions(canon, 1)
    for event, _ in decisions:
        list(canon.apply(event))
    return [lineage for _, lineage in decisions]


def canon_of(*occurrences: Occurrence) -> Canon:
    """A Canon into which these were admitted one by one."""
    canon = Canon()
    for occurrence in occurrences:
        canon.add_occurrences([occurrence])
        admit(canon)
    return canon


def sessions(*names: str) -> frozenset[Reference]:
    return frozenset(KEYS.session("alice", name) for name in names)


def shape_of(canon: Canon) -> dict[bytes, list[bytes]]:
    """What must not depend on the way: facts and their occurrences in order."""
    return {fact.id: [each.leaf_key for each in fact.occurrences] for fact in canon.facts.values()}


@pytest.mark.parametrize("other", ["Alice lives in Oslo.", "alice  LIVES in\nOslo. ", "Ａlice lives in Oslo."])
def test_equal_text_of_one_day_is_one_fact_with_two_occurrences(other: str) -> None:
    said = Said()
    first, second = said.fact("Alice lives in Oslo."), said.fact(other, "s2", MONDAY + 3_600_000)
    canon = canon_of(first, second)
    (fact,) = canon.facts.values()

    assert fact.id == found_fact(first)
    assert fact.occurrences == [first, second]
    assert fact.sessions == sessions("s1", "s2")
    assert fact.turns == (*first.turns, *second.turns)


@pytest.mark.parametrize(
    ("text", "at", "until"),
    [
        ("Alice swims.", MONDAY + DAY_MS, MONDAY + DAY_MS),
        ("Alice swims.", MONDAY, MONDAY + DAY_MS),
        ("Alice swam.", MONDAY, MONDAY),
        ("Alice swims", MONDAY, MONDAY),
    ],
    ids=["another day", "a longer time", "another text", "another sign"],
)
def test_another_day_or_another_text_is_another_fact(text: str, at: Instant, until: Instant) -> None:
    said = Said()

    assert len(canon_of(said.fact("Alice swims."), said.fact(text, "s2", at, until)).facts) == 2


def test_the_same_said_twice_in_one_chunk_is_one_fact() -> None:
    said = Said()
    canon = Canon()
    canon.add_occurrences(said.facts([ExtractedFact("Alice swims.", (0,), MONDAY, MONDAY)] * 2))

    assert admit(canon) == [sessions("s1")]
    assert [len(fact.occurrences) for fact in canon.facts.values()] == [2]


def test_the_same_text_about_two_intervals_of_one_answer_gives_two_leaves() -> None:
    facts = [ExtractedFact("Alice is away.", (0,), MONDAY, MONDAY + days * DAY_MS) for days in (0, 1)]
    one, other = Said().facts(facts)

    assert one.likeness != other.likeness
    assert one.leaf_key != other.leaf_key


def test_a_leaf_key_needs_the_nonce() -> None:
    keys = {make_leaf_key(nonce, n, at, "x") for nonce in (b"1", b"2") for n in (0, 1) for at in (-1, 0, 1)}

    assert len(keys) == 12


def test_labels_come_in_their_normal_form_and_times_from_the_turns_that_say_it() -> None:
    fact = ExtractedFact(
        "José met Ann.", (1, 0), 5, 6, mentions=(Mention(" José "), Mention("Ann", uncertain=True))
    )
    new = an_extraction((3, 4))
    assert isinstance(new.event, FactsExtracted)
    (found,) = read_occurrences(
        as_recorded(new, 1, seq=9), replace(new.event, facts=(fact,)), {3: MONDAY, 4: MONDAY + 1}
    )

    assert found.mentions == (Mention("josé"), Mention("ann", uncertain=True))
    assert (found.pointer, found.turns, found.said_at) == (Pointer(9, 0), (4, 3), MONDAY + 1)
    assert (found.time_start, found.time_end, found.length) == (5, 6, len(fact.text))


def test_admissions_of_other_lineage_go_into_other_events() -> None:
    said = Said()
    canon = canon_of(said.fact("Alice swims."))
    canon.add_occurrences([said.fact("Alice swims.", "s2"), said.fact("Alice runs.", "s2"), said.fact("Bo runs.")])

    assert sorted(map(len, admit(canon))) == [1, 1, 2]
    assert canon.waiting == {}


def test_a_third_session_that_joins_names_all_that_were_there() -> None:
    said = Said()
    canon = canon_of(said.fact("Alice swims."), said.fact("Alice swims.", "s2"))
    canon.add_occurrences([said.fact("Alice swims.", "s3")])

    assert admit(canon) == [sessions("s1", "s2", "s3")]


def test_a_fact_is_founded_before_it_is_joined_whatever_else_is_admitted_with_it() -> None:
    said = Said()
    canon = canon_of(said.fact("Alice swims."))
    # The first to be decided on has two sessions, and so has the one that joins the new fact.
    joins_old, founds = said.fact("Alice swims.", "s2"), said.fact("Alice runs.")
    joins_new = said.fact("Alice runs.", "s2")
    canon.add_occurrences([joins_old, founds, joins_new])

    assert admit(canon) == [sessions("s1"), sessions("s1", "s2")]
    assert canon.facts[found_fact(founds)].occurrences == [founds, joins_new]


def test_an_event_holds_a_bounded_number_of_admissions() -> None:
    canon = Canon()
    facts = [ExtractedFact(f"Fact {n}.", (0,), MONDAY, MONDAY) for n in range(2 * ADMISSIONS_MAX + 1)]
    canon.add_occurrences(Said().facts(facts))
    counts = [len(event.admissions) for event, _ in plan_admissions(canon, 1)]

    assert counts == [ADMISSIONS_MAX, ADMISSIONS_MAX, 1]


def test_an_admission_of_a_voided_occurrence_changes_nothing() -> None:
    said = Said()
    canon = Canon()
    canon.add_occurrences([said.fact("Alice swims.")])
    ((event, _),) = plan_admissions(canon, 1)
    innocent = Canon()

    assert list(innocent.apply(event)) == []
    assert (innocent.facts, innocent.waiting) == ({}, {})


def test_a_plan_changes_nothing_and_is_the_same_every_time() -> None:
    said = Said()
    occurrences = [said.fact(f"Fact {n % 4}.", f"s{n % 3}") for n in range(12)]
    canon, other = Canon(), Canon()
    canon.add_occurrences(occurrences)
    other.add_occurrences(occurrences[::-1])

    assert plan_admissions(canon, 1) == plan_admissions(canon, 1) == plan_admissions(other, 1)
    assert canon.facts == {}


@pytest.mark.parametrize("seed", range(20))
def test_survivors_of_a_forgotten_session_are_admitted_as_if_it_had_never_been(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    said = Said()
    occurrences = [said.fact(f"Fact {chance.randrange(8)}.", f"s{chance.randrange(4)}") for _ in range(40)]
    canon = Canon()
    log = list(occurrences)
    events: list[tuple[FactsAdmitted, frozenset[Reference]]] = []
    while log:
        size = chance.randint(1, 8)
        canon.add_occurrences(log[:size])
        log = log[size:]
        for event, lineage in plan_admissions(canon, 1):
            list(canon.apply(event))
            events.append((event, lineage))
    gone = KEYS.session("alice", "s1")
    survivors = [each for each in occurrences if each.session != gone]
    folded = Canon()
    folded.add_occurrences(survivors)
    for event, lineage in events:
        if gone not in lineage:
            list(folded.apply(event))
    admit(folded)

    assert shape_of(folded) == shape_of(canon_of(*survivors))
    assert folded.waiting == {}


def test_a_fact_is_known_by_its_extraction_and_place() -> None:
    said = Said()
    occurrence = said.fact("Alice swims.")

    assert found_fact(occurrence) == found_fact(replace(occurrence, pointer=Pointer(99, 0), length=1))
    assert found_fact(occurrence) != found_fact(replace(occurrence, pointer=Pointer(occurrence.pointer.seq, 1)))
    assert found_fact(occurrence) != found_fact(replace(occurrence, origin=an_id("another extraction")))
