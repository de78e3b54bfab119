"""Which state ends which: chains by hand, and random histories against what a plain reading of the rule says."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from functools import partial
from itertools import permutations
from pathlib import Path

import pytest

from daemon.building.correction_plans import Change, plan_correction, plan_pin, plan_retraction
from events.decisions import PairVerdict
from events.memory import FactId
from events.schema import open_writer
from events.time import Instant, to_datetime
from projections.digests import digest_memory
from projections.facts.conflicts import find_conflicts
from projections.facts.supersession import SUPERSESSIONS_MAX, copy_chains, plan_differences, plan_supersessions
from tests.builders import MONDAY, SECRET, a_forgetting
from tests.projections.facts.state_world import StateWorld, a_state, day
from tests.projections.facts.test_corrections import check

HISTORIES = int(os.environ.get("STATE_HISTORIES", "15"))
BOSTON, DAVIS, MIAMI = "Alice lives in Boston.", "Alice moved to Davis.", "Alice lives in Miami."
NOT_BOSTON = "Alice no longer lives in Boston."


@pytest.fixture
def begin(tmp_path: Path) -> Iterator[Callable[[], StateWorld]]:
    """Begins a world of its own each time."""
    with ExitStack() as stack:

        def begin() -> StateWorld:
            path = tmp_path / f"{len(list(tmp_path.glob('*.db')))}.db"
            connection = stack.enter_context(closing(open_writer(path, MONDAY, SECRET)))
            connection.execute("PRAGMA synchronous = OFF")
            return StateWorld(connection)

        yield begin


@pytest.fixture
def world(begin: Callable[[], StateWorld]) -> StateWorld:
    return begin()


def test_boston_until_davis_until_miami(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.live(MIAMI, "2024-07-01", "s3")
    validity = world.memory.placement.validity

    assert world.spans() == {
        BOSTON: ("2022-03-01", "2023-05-01"),
        DAVIS: ("2023-05-01", "2024-07-01"),
        MIAMI: ("2024-07-01", None),
    }
    assert [world.told_of(validity.successor(world.id(each))) for each in (BOSTON, DAVIS, MIAMI)] == [
        DAVIS, MIAMI, None,
    ]  # fmt: skip
    assert [world.told_of(validity.predecessor(world.id(each))) for each in (BOSTON, DAVIS, MIAMI)] == [
        None, BOSTON, DAVIS,
    ]  # fmt: skip


def test_states_told_in_any_order_make_the_same_chain(begin: Callable[[], StateWorld]) -> None:
    told = ((BOSTON, "2022-03-01"), (DAVIS, "2023-05-01"), (MIAMI, "2024-07-01"))
    worlds = [begin() for _ in range(6)]
    for world, order in zip(worlds, permutations(told), strict=True):
        for n, (text, at) in enumerate(order):
            world.live(text, at, f"s{n}")
    spans = [world.spans() for world in worlds]

    assert spans[0][DAVIS] == ("2023-05-01", "2024-07-01")
    assert all(each == spans[0] for each in spans)


def test_who_says_later_that_she_moved_this_year_did_not_move_back(world: StateWorld) -> None:
    this_year = "Alice moved to Miami this year."
    world.live(BOSTON, "2024-03-01", "s1")
    world.tell(a_state(this_year, "2024-01-01", until="2024-12-31"), session="s2")

    assert world.spans() == {
        BOSTON: ("2024-03-01", "2024-07-01"),
        this_year: ("2024-01-01", None),
    }  # when it was said
    assert world.told_of(world.memory.placement.validity.predecessor(world.id(this_year))) == BOSTON
    assert find_conflicts(
        list(world.memory.canon.facts.values()),
        world.memory.placement.validity.chains(),
        world.memory.placement.validity,
        {},
    ) == []  # fmt: skip


def test_who_is_no_vegan_any_more_may_eat_no_meat_still(world: StateWorld) -> None:
    world.live("Alice is vegan.", "2022-03-01", attribute="diet")
    world.live("Alice doesn't eat meat.", "2022-06-01", attribute="diet")
    world.live("Alice is no longer vegan.", "2023-03-01", attribute="diet")

    assert world.spans()["Alice is vegan."] == ("2022-03-01", "2023-03-01")
    assert world.spans()["Alice doesn't eat meat."] == ("2022-06-01", None)


def test_a_plan_made_elsewhere_is_the_one_made_here(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.say("Hello.", "Well.")
    world.extract(a_state(DAVIS, "2023-05-01"))
    world.admit()
    validity = world.memory.placement.validity
    changed, changes = copy_chains(world.memory), validity.changes
    planned = plan_supersessions(world.memory, 1, plan_differences(changed))
    here = plan_supersessions(world.memory, 1)
    world.retract(DAVIS)

    assert planned == here != []
    assert world.memory.placement.validity.changes != changes


def test_the_same_value_said_again_neither_ends_nor_begins_it(world: StateWorld) -> None:
    again = "Alice still lives in Boston and likes it."
    world.live(BOSTON, "2022-03-01")
    world.live(again, "2023-03-01")
    between = world.spans()
    world.live(DAVIS, "2024-05-01")

    assert between == {BOSTON: ("2022-03-01", None), again: ("2023-03-01", None)}
    assert world.spans()[BOSTON] == ("2022-03-01", "2024-05-01")
    assert world.spans()[again] == ("2023-03-01", "2024-05-01")


def test_who_comes_back_lives_there_again(world: StateWorld) -> None:
    back = "Alice moved back to Boston."
    world.live(BOSTON, "2022-03-01")
    world.live(DAVIS, "2023-05-01")
    world.live(back, "2024-05-01")

    assert world.spans() == {
        BOSTON: ("2022-03-01", "2023-05-01"),
        DAVIS: ("2023-05-01", "2024-05-01"),
        back: ("2024-05-01", None),
    }


def test_a_state_told_late_goes_to_its_place(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.live(MIAMI, "2024-07-01")
    before = world.spans()
    world.live(DAVIS, "2023-05-01")

    assert before[BOSTON] == ("2022-03-01", "2024-07-01")
    assert world.spans()[BOSTON] == ("2022-03-01", "2023-05-01")
    assert world.spans()[DAVIS] == ("2023-05-01", "2024-07-01")


def test_two_values_of_one_day_end_nothing_but_both_are_ended(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2022-03-01", "s2")
    before = world.spans()
    world.live(MIAMI, "2024-07-01", "s3")

    assert before == {BOSTON: ("2022-03-01", None), DAVIS: ("2022-03-01", None)}
    assert world.spans()[BOSTON] == world.spans()[DAVIS] == ("2022-03-01", "2024-07-01")


def test_a_negated_state_ends_without_a_successor(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.live(NOT_BOSTON, "2023-05-01")
    validity = world.memory.placement.validity

    assert world.spans()[BOSTON] == ("2022-03-01", "2023-05-01")
    assert validity.successor(world.id(BOSTON)) is None
    assert validity.superseded[world.id(BOSTON)].by == world.id(NOT_BOSTON)
    assert validity.predecessor(world.id(NOT_BOSTON)) is None


def test_a_negated_state_ends_nothing_but_the_value_that_it_names(world: StateWorld) -> None:
    world.live(DAVIS, "2022-03-01")
    world.live(NOT_BOSTON, "2023-05-01")

    assert world.spans()[DAVIS] == ("2022-03-01", None)


def test_a_past_state_without_a_time_of_its_own_says_nothing_of_today(world: StateWorld) -> None:
    lived = "Alice lived in Boston."
    world.live(DAVIS, "2022-03-01")
    world.say("Hello.", "Well.")
    today = a_state(lived, "2026-01-05")
    world.extract(today)
    world.admit()

    assert world.supersede() == 0
    assert world.spans()[DAVIS] == ("2022-03-01", None)


def test_a_past_state_of_its_own_time_ends_what_was_before_once_there_is_another_and_holds_as_long_as_it_says(
    world: StateWorld,
) -> None:
    lived = "Alice lived in Davis."
    world.live(BOSTON, "2020-03-01")
    world.tell(a_state(lived, "2021-01-01", until="2021-12-31"))
    end = world.spans()
    world.live(MIAMI, "2021-06-01")

    assert end[BOSTON] == ("2020-03-01", None), "she may have come back"
    assert world.spans()[BOSTON] == ("2020-03-01", "2021-01-01")
    assert end[lived] == ("2021-01-01", "2021-12-31")
    assert world.spans()[lived] == ("2021-01-01", "2021-06-01")


@pytest.mark.parametrize(
    ("one", "other", "attribute"),
    [
        ("Alice has a dog, Max.", "Alice has a dog, Rex.", "pet dog"),
        ("Alice speaks French.", "Alice speaks German.", "languages"),
        ("Alice lives in Boston.", "Alice lives with her parents.", "home"),
        ("Alice wants to live in Davis.", "Alice lives in Boston.", "home"),
        ("Alice lives in Boston.", "Alice may move to Davis.", "home"),
    ],
)
def test_what_may_hold_beside_another_one_ends_nothing(
    world: StateWorld, one: str, other: str, attribute: str
) -> None:
    world.live(one, "2022-03-01", attribute=attribute)
    world.live(other, "2023-05-01", attribute=attribute)

    assert world.memory.placement.validity.superseded == {}


def test_attributes_and_entities_are_one_whatever_they_are_called(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", attribute="Residence", entity="Alice")
    world.live(DAVIS, "2023-05-01", attribute="Wohnort", entity="ALICE")
    world.live("Bob lives in Davis.", "2023-06-01", attribute="home", entity="Bob")

    assert world.spans()[BOSTON] == ("2022-03-01", "2023-05-01")
    assert world.spans()[DAVIS] == ("2023-05-01", None)


def test_a_state_under_another_name_of_an_entity_ends_the_one_before_it(world: StateWorld) -> None:
    world.live("Robert lives in Boston.", "2022-03-01", entity="Robert")
    world.live("Bob lives in Davis.", "2023-05-01", entity="Bob")
    before = world.spans()
    world.name("Robert", "Bob")
    world.supersede()

    assert before["Robert lives in Boston."] == ("2022-03-01", None)
    assert world.spans()["Robert lives in Boston."] == ("2022-03-01", "2023-05-01")
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_an_unknown_attribute_is_superseded_by_another_value(world: StateWorld) -> None:
    world.live("Alice drives a Honda.", "2022-03-01", attribute="car")
    world.live("Alice drives a Tesla.", "2023-05-01", attribute="car")

    assert world.spans()["Alice drives a Honda."] == ("2022-03-01", "2023-05-01")


def test_a_retracted_state_ends_nothing_any_more(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.live(MIAMI, "2024-07-01", "s3")
    world.retract(DAVIS)
    open_again = world.spans()
    world.supersede()

    assert open_again[BOSTON] == ("2022-03-01", None)
    assert world.spans()[BOSTON] == ("2022-03-01", "2024-07-01")
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_a_forgotten_session_ends_nothing_any_more(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.live(MIAMI, "2024-07-01", "s3")
    world.write(a_forgetting("s2"))
    open_again = world.spans()
    world.supersede()

    assert open_again == {BOSTON: ("2022-03-01", None), MIAMI: ("2024-07-01", None)}
    assert world.spans()[BOSTON] == ("2022-03-01", "2024-07-01")


def test_a_corrected_value_makes_another_chain(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(DAVIS, "2023-05-01", "s2")
    world.reword(DAVIS, "Alice still lived in Boston in May 2023.")
    world.supersede()

    assert world.spans()[BOSTON] == ("2022-03-01", None)


def test_until_when_somebody_says_a_state_was_so_it_was_so(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01", "s1")
    world.live(MIAMI, "2024-07-01", "s2")
    world.correct(world.fact(MIAMI), partial(plan_correction, change=Change(time_end=day("2025-01-01"))))
    world.supersede()

    assert world.spans() == {BOSTON: ("2022-03-01", "2024-07-01"), MIAMI: ("2024-07-01", "2025-01-01")}
    world.correct(world.fact(MIAMI), partial(plan_correction, change=Change("Alice lives in Miami now.")))
    assert world.spans()["Alice lives in Miami now."] == ("2024-07-01", "2025-01-01")
    assert digest_memory(world.memory) == digest_memory(world.rebuilt())


def test_a_judged_pair_goes_by_the_judgement(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.live("Alice lives with her parents.", "2023-05-01")
    later, earlier = world.fact("Alice lives with her parents."), world.fact(BOSTON)
    verdicts = world.memory.canon.verdicts
    verdicts[later.first.pointer, earlier.first.pointer] = PairVerdict.SUPERSEDES
    world.memory.placement.validity.judge([later.first.pointer])
    world.supersede()
    ended = world.spans()[BOSTON]
    verdicts[later.first.pointer, earlier.first.pointer] = PairVerdict.DIFFERENT
    world.memory.placement.validity.judge([earlier.first.pointer])
    world.supersede()

    assert ended == ("2022-03-01", "2023-05-01")
    assert world.spans()[BOSTON] == ("2022-03-01", None)
    assert world.memory.placement.validity.superseded == {}


def test_nothing_is_planned_where_nothing_changed(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.live(DAVIS, "2023-05-01")

    assert plan_supersessions(world.memory, 1) == []
    assert world.memory.placement.validity.touched == {}


def test_a_plan_that_was_not_recorded_is_made_again(world: StateWorld) -> None:
    world.live(BOSTON, "2022-03-01")
    world.tell(a_state(DAVIS, "2023-05-01"), session="s2")
    world.retract(DAVIS)
    world.tell(a_state(MIAMI, "2024-07-01"), session="s3")
    world.say("Hello.", "Well.")
    world.extract(a_state("Alice moved to Reno.", "2023-08-01"))
    world.admit()

    assert plan_supersessions(world.memory, 1) == plan_supersessions(world.memory, 1) != []


def test_an_event_has_a_limit_and_the_lineage_of_its_sessions(world: StateWorld) -> None:
    world.say("Hello.", "Well.")
    world.extract(
        *(a_state(f"Bob{n} lives in Boston.", "2022-03-01", entity=f"Bob{n}") for n in range(20)),
        *(a_state(f"Bob{n} lives in Davis.", "2023-03-01", entity=f"Bob{n}") for n in range(20)),
    )
    world.admit()
    planned = plan_supersessions(world.memory, 1)

    assert [len(event.supersessions) for event, _ in planned] == [SUPERSESSIONS_MAX, 20 - SUPERSESSIONS_MAX]
    assert len({lineage for _, lineage in planned}) == 1


PLACES = ("Boston", "Davis", "Miami", "Reno")
State = tuple[int, str, bool]


def expected(told: list[State]) -> dict[State, int | None]:
    """The day on which each state (day, place, whether it is left) ends, by a plain reading of the rule."""
    ends: dict[State, int | None] = {}
    for at, place, left in told:
        against = [
            day
            for day, other, gone in told
            if day > at and ((not left and not gone and other != place) or (left != gone and other == place))
        ]
        ends[at, place, left] = min(against, default=None)
    return ends


def known(world: StateWorld) -> dict[FactId, State]:
    """The states that a Memory knows, as their texts and days say them."""
    states: dict[FactId, State] = {}
    for fact in world.memory.canon.facts.values():
        text = world.text_of(fact)
        place = next(place for place in PLACES if place in text)
        states[fact.id] = to_datetime(fact.first.time_start).day, place, "no longer" in text
    return states


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_a_growing_chain_is_the_one_planned_from_nothing(world: StateWorld, seed: int) -> None:
    rng = random.Random(seed)
    print("seed", seed)
    for n in range(rng.randint(3, 9)):
        at, place, verb = rng.randint(1, 28), rng.choice(PLACES), rng.choice(("lives", "lives", "no longer lives"))
        world.live(f"Alice {verb} in {place}.", f"2024-01-{at:02}", f"s{rng.randint(1, 3)}")
        facts = world.memory.canon.facts
        if n and rng.random() < 0.5:
            one, other = rng.choice(sorted(facts)), rng.choice(sorted(facts))
            match rng.choice(("retract", "pin", "merge")):
                case "retract":
                    world.correct(facts[one], plan_retraction)
                case "pin":
                    world.correct(facts[one], plan_pin)
                case _ if one != other and not (facts[one].pinned or facts[other].pinned):
                    world.merge(one, other)
                case _:
                    pass
            world.supersede()
    if rng.random() < 0.3:
        world.write(a_forgetting("s1"))
        world.admit()
        world.supersede()
    validity, states = world.memory.placement.validity, known(world)
    ends = expected(list(states.values()))

    assert {fact: _date_of(validity.until(fact)) for fact in states} == {
        fact: ends[state] for fact, state in states.items()
    }
    validity.touch(states)
    assert plan_supersessions(world.memory, 1) == []
    check(world)


def _date_of(at: Instant | None) -> int | None:
    return None if at is None else to_datetime(at).day
