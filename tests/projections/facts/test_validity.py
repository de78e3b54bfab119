"""How long states hold: in the search, in groups, in snapshots and digests, and under an entity's other names."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from events.decisions import FactsSuperseded, Supersession
from events.envelope import Reference
from events.memory import FactId, FactRole
from events.schema import open_writer
from projections.digests import digest_memory
from projections.facts.states import State
from projections.facts.validity import FOR_EVER, Validity
from projections.memory import Memory
from projections.recall.filters import Filters, Span, passing_rows
from projections.snapshot import freeze
from tests.builders import MONDAY, SECRET
from tests.projections.facts.state_world import StateWorld, a_state, day
from tests.projections.thawing import drain, thawed

BOSTON, DAVIS, MIAMI = "Alice lives in Boston.", "Alice moved to Davis.", "Alice lives in Miami."
WON = "Alice won a race."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[StateWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield StateWorld(connection)


@pytest.fixture
def moved(world: StateWorld) -> StateWorld:
    """Alice lived in three towns, one after the other."""
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.live(MIAMI, "2024-07-01", "s3")
    return world


def valid_at(
    world: StateWorld, start: str, end: str | None = None, hidden: frozenset[Reference] = frozenset()
) -> list[str]:
    """The facts and groups that pass, by their texts."""
    memory = world.memory
    span = Span(day(start), day(start) + 1 if end is None else day(end))
    rows, _ = passing_rows(memory.nodes, Filters(about=span), hidden)
    ids = [memory.nodes.node(int(row)).id for row in rows]
    facts = [world.text_of(memory.canon.facts[each]) for each in ids if each in memory.canon.facts]
    return sorted([*facts, *("group" for each in ids if each in memory.units.groups)])


def test_what_is_hidden_ended_nothing(moved: StateWorld) -> None:
    memory, validity = moved.memory, moved.memory.placement.validity
    davis = moved.fact(DAVIS)
    before = moved.spans()[BOSTON]
    memory.forget_session(davis.first.session)

    assert before == ("2022-03-01", "2023-05-01")
    assert valid_at(moved, "2024-01-15", hidden=memory.hidden) == [BOSTON]
    assert (validity.until(moved.id(BOSTON)), validity.successor(moved.id(BOSTON))) == (None, None)


def test_what_a_withdrawn_turn_said_ended_nothing(moved: StateWorld) -> None:
    memory = moved.memory
    (turn,) = (key for key, placed in memory.transcript.placed.items() if placed.seq == moved.fact(DAVIS).turns[0])
    memory.withdraw_turn(turn)

    assert valid_at(moved, "2024-01-15") == [BOSTON]


def test_only_the_state_that_held_then_is_true_then(moved: StateWorld) -> None:
    assert valid_at(moved, "2024-01-15") == [DAVIS]
    assert valid_at(moved, "2022-06-01") == [BOSTON]
    assert valid_at(moved, "2026-06-01") == [MIAMI]
    assert valid_at(moved, "2020-01-01") == []


def test_on_the_day_of_a_change_the_new_state_is_true(moved: StateWorld) -> None:
    assert valid_at(moved, "2023-05-01") == [DAVIS]
    assert valid_at(moved, "2023-04-30") == [BOSTON]


def test_a_stretch_of_time_meets_all_that_held_in_it(moved: StateWorld) -> None:
    assert valid_at(moved, "2023-01-01", "2024-01-01") == [BOSTON, DAVIS]
    assert valid_at(moved, "2023-05-01", "2024-07-01") == [DAVIS]


def test_an_event_is_true_at_its_own_time_only(moved: StateWorld) -> None:
    moved.tell(replace(a_state(WON, "2024-01-15", until="2024-01-16"), role=FactRole.EVENT, state=None))

    assert valid_at(moved, "2024-01-15") == [DAVIS, WON]
    assert valid_at(moved, "2024-01-14") == valid_at(moved, "2024-01-17") == [DAVIS]


def test_a_state_is_searched_again_when_what_ended_it_is_gone(moved: StateWorld) -> None:
    before = valid_at(moved, "2024-01-15")
    moved.retract(DAVIS)
    between = valid_at(moved, "2024-01-15")
    moved.supersede()

    assert (before, between) == ([DAVIS], [BOSTON])
    assert valid_at(moved, "2024-01-15") == [BOSTON]
    assert valid_at(moved, "2025-01-15") == [MIAMI]


def test_a_group_is_true_as_long_as_one_of_its_states(moved: StateWorld) -> None:
    moved.merge(moved.id(BOSTON), moved.id(DAVIS))

    assert valid_at(moved, "2024-01-15") == ["group"]
    assert valid_at(moved, "2025-01-15") == [MIAMI]


def test_a_group_falls_when_a_state_that_had_ended_holds_again(moved: StateWorld) -> None:
    moved.merge(moved.id(BOSTON), moved.id(DAVIS))
    moved.retract(MIAMI)

    assert moved.memory.units.groups == {}
    assert valid_at(moved, "2025-01-15") == [DAVIS]
    assert valid_at(moved, "2022-06-01") == [BOSTON]


def test_states_come_out_of_a_group_as_they_went_in(moved: StateWorld) -> None:
    moved.merge(moved.id(BOSTON), moved.id(DAVIS))
    moved.pin(DAVIS)

    assert valid_at(moved, "2024-01-15") == [DAVIS]
    assert valid_at(moved, "2022-06-01") == [BOSTON]


def test_of_what_is_not_known_nothing_is_kept() -> None:
    validity = Validity()
    event = FactsSuperseded(1, (Supersession(b"one", b"other", 5), Supersession(b"other", None, None)))

    assert validity.apply(event, {b"one"}) == []
    assert validity.superseded == {}


def test_the_last_word_about_a_state_counts() -> None:
    validity, known = Validity(), {b"a", b"b", b"c"}
    validity.apply(FactsSuperseded(1, (Supersession(b"a", b"b", 5),)), known)
    validity.apply(FactsSuperseded(1, (Supersession(b"a", b"c", 3),)), known)
    ended = validity.until(b"a")
    again_without_b = validity.remove_fact(b"b")
    still = validity.until(b"a")
    again_without_c = validity.remove_fact(b"c")

    assert (ended, still, validity.until(b"a")) == (3, 3, None)
    assert (again_without_b, again_without_c) == ([], [b"a"])


def test_what_holds_again_is_recorded_as_holding() -> None:
    validity, known = Validity(), {b"a", b"b"}
    validity.apply(FactsSuperseded(1, (Supersession(b"a", b"b", 5),)), known)
    changed = validity.apply(FactsSuperseded(1, (Supersession(b"a", None, None),)), known)

    assert (changed, validity.superseded, validity.remove_fact(b"b")) == ([b"a"], {}, [])


def test_states_of_one_entity_are_one_chain_once_its_names_are_known(world: StateWorld) -> None:
    names = {"bob": "robert"}
    world.live("Robert lives in Boston.", "2022-03-01", entity="Robert")
    world.live("Bob lives in Davis.", "2023-05-01", entity="Bob")
    validity = Validity(lambda label: names.get(label, label) if known else label)
    known = False
    for fact in world.memory.canon.facts.values():
        validity.add_fact(fact)
    apart = [len(chain) for _, chain in validity.chains()]
    known = True
    validity.rename(["bob", "robert"])

    assert apart == [1, 1]
    assert [(key.entity, len(chain)) for key, chain in validity.chains()] == [("robert", 2)]


def test_how_long_a_state_holds_is_in_the_digest(moved: StateWorld) -> None:
    before = digest_memory(moved.memory)
    moved.memory.placement.validity.take(Supersession(moved.id(BOSTON), moved.id(DAVIS), day("2023-06-01")))

    assert digest_memory(moved.memory).facts != before.facts


def test_a_snapshot_has_the_validity_and_none_of_the_words(moved: StateWorld) -> None:
    moved.tell(a_state("Alice lives in Reno.", "2024-08-01", "Wohnort"), session="s1")
    content = drain(freeze(moved.memory)).lower()
    memory = thawed(moved.memory, moved.events)
    again, live = memory.placement.validity, moved.memory.placement.validity

    assert again.superseded == live.superseded != {}
    assert again.states == live.states
    assert _states(memory) == _states(moved.memory)
    assert digest_memory(memory) == digest_memory(moved.memory)
    assert not [word for word in (b"alice", b"wohnort", b"home", b"boston", b"reno") if word in content]
    moved.memory = memory
    assert valid_at(moved, "2024-01-15") == [DAVIS]
    assert moved.supersede() == 0


def test_what_is_to_be_planned_is_in_a_snapshot_and_nothing_else(moved: StateWorld) -> None:
    moved.say("Hello.", "Well.")
    moved.extract(
        a_state("Alice lives in Reno.", "2024-08-01"), a_state("Bob is a nurse.", "2024-08-01", "job", "Bob")
    )
    moved.admit()
    waiting = set(moved.memory.placement.validity.touched)
    moved.memory = thawed(moved.memory, moved.events)

    assert set(moved.memory.placement.validity.touched) == waiting
    assert {key.entity for key in waiting} == {"alice", "bob"}
    assert moved.supersede() == 1
    moved.supersede()
    moved.memory = thawed(moved.memory, moved.events)
    assert moved.memory.placement.validity.touched == {}


def test_a_state_ends_no_later_than_for_ever(moved: StateWorld) -> None:
    validity = moved.memory.placement.validity

    assert validity.holds_until(moved.id(MIAMI)) == FOR_EVER
    assert validity.holds_until(moved.id(DAVIS)) == day("2024-07-01")
    assert validity.interval(moved.fact(MIAMI)).until is None


def _states(memory: Memory) -> dict[FactId, State | None]:
    return {fact.id: fact.first.state for fact in memory.canon.facts.values()}
