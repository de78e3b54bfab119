"""Near duplicates: what may be one fact by rule, which of it is, and what a model says of the rest."""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from events.decisions import JudgedPair, PairsJudged, PairVerdict
from events.envelope import Reference
from events.memory import (
    Admission,
    ExtractedFact,
    FactRole,
    FactsAdmitted,
    FactsExtracted,
    Mention,
    Pointer,
    StateOf,
)
from projections.facts.admission import plan_admissions
from projections.facts.canonical import Canon, Occurrence, found_fact, read_occurrences
from projections.facts.near import Nearness, Reading, find_candidates
from projections.facts.saying import read_said
from projections.facts.wording import read_wording
from tests.builders import KEYS, MONDAY, an_extraction, as_recorded
from tests.counting import count_calls
from tests.projections.facts.planning import pairs_to_judge, plan_near, wanted_readings

DAY_MS = 86_400_000
NEAR = 0.9


def a_fact(
    text: str, *, day: int = 0, role: FactRole = FactRole.DETAIL, state: str | None = None, doubtful: bool = False
) -> ExtractedFact:
    """A fact that names what is written with a capital; with `doubtful` the first word is only perhaps a name."""
    words = [(n, word.strip(".,")) for n, word in enumerate(text.split()) if word[0].isupper()]
    at = MONDAY + day * DAY_MS
    return ExtractedFact(
        text,
        (0,),
        at,
        at,
        role=role,
        mentions=tuple(Mention(word, doubtful and n == 0) for n, word in words),
        state=None if state is None else StateOf("Ann", state),
    )


def towards(*weights: float) -> NDArray[np.float32]:
    """A unit vector in these directions."""
    vector = np.zeros(8, dtype=np.float32)
    vector[: len(weights)] = weights
    return (vector / np.linalg.norm(vector)).astype(np.float32)


@dataclass
class World:
    """A Canon, and the log it is folded from; `vectors` by text, the same direction for those that have none."""

    vectors: dict[str, NDArray[np.float32]] = field(default_factory=dict[str, NDArray[np.float32]])
    canon: Canon = field(default_factory=Canon)
    log: list[list[Occurrence] | PairsJudged | tuple[FactsAdmitted, frozenset[Reference]]] = field(
        default_factory=list[list[Occurrence] | PairsJudged | tuple[FactsAdmitted, frozenset[Reference]]]
    )
    readings: dict[Pointer, Reading] = field(default_factory=dict[Pointer, Reading])
    seq: int = 0

    def say(self, *facts: ExtractedFact | str, session: str = "s1") -> list[Occurrence]:
        """An extraction of a session."""
        self.seq += 1
        new = an_extraction((self.seq,), session_id=session)
        assert isinstance(new.event, FactsExtracted)
        told = tuple(a_fact(each) if isinstance(each, str) else each for each in facts)
        event = FactsExtracted(1, new.event.chunk, (self.seq,), (), (self.seq,), None, "m", told)
        found = read_occurrences(as_recorded(new, 1, seq=self.seq), event, {self.seq: MONDAY})
        for fact, occurrence in zip(told, found, strict=True):
            wording = read_wording(fact.text, [mention.label for mention in fact.mentions])
            vector = self.vectors.get(fact.text, towards(1))
            self.readings[occurrence.pointer] = Reading(vector, wording, read_said(fact.text))
        self.canon.add_occurrences(found)
        self.log.append(found)
        return found

    def nearness(self, *, judged: bool = False, readings: dict[Pointer, Reading] | None = None) -> Nearness:
        return Nearness(self.readings if readings is None else readings, NEAR, judged)

    def admit(self, nearness: Nearness | None = None) -> list[frozenset[Reference]]:
        """Admit what can be admitted; the lineages of the events."""
        plan = plan_near(self.canon, nearness or self.nearness())
        for decided in plan:
            list(self.canon.apply(decided[0]))
            self.log.append(decided)
        return [lineage for _, lineage in plan]

    def judge(self, *pairs: tuple[Occurrence, Occurrence, PairVerdict]) -> None:
        judged = tuple(JudgedPair(one.pointer, other.pointer, verdict) for one, other, verdict in pairs)
        event = PairsJudged(1, judged, (), "m")
        self.canon.note_judged(event)
        self.log.append(event)

    def refold(self, *forgotten: str) -> Canon:
        """The log folded from nothing, without these sessions."""
        gone = sessions(*forgotten)
        canon = Canon()
        for entry in self.log:
            match entry:
                case list():
                    canon.add_occurrences([each for each in entry if each.session not in gone])
                case PairsJudged():
                    canon.note_judged(entry)
                case (event, lineage):
                    if not lineage & gone:
                        list(canon.apply(event))
        return canon


def sessions(*names: str) -> frozenset[Reference]:
    return frozenset(KEYS.session("alice", name) for name in names)


def facts_of(canon: Canon) -> list[list[Pointer]]:
    """Which occurrences are one fact, in order."""
    return sorted([each.pointer for each in fact.occurrences] for fact in canon.facts.values())


def check(canon: Canon) -> None:
    """What is looked up agrees with the facts."""
    for fact in canon.facts.values():
        for each in fact.occurrences:
            assert canon.holder(each.pointer) is fact
            assert canon.occurrence(each.pointer) is each
            assert fact in canon.block(each.likeness.block)
            assert canon.find(each.likeness) is not None
    assert sum(map(len, canon._by_block.values())) == len(canon.facts)
    assert set(canon._by_likeness.values()) <= canon.facts.keys()
    assert set(canon._fact_of.values()) <= canon.facts.keys()


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        (a_fact("Ann bought a red car."), a_fact("Ann has bought a red car."), True),
        (a_fact("Ann bought a red car."), a_fact("Ann has bought a red car.", day=1), False),
        (a_fact("Ann bought a red car."), a_fact("Bob has bought a red car."), False),
        (a_fact("Ann bought a red car."), a_fact("Ann and Bob have bought a red car."), False),
        (a_fact("Ann bought 2 red cars."), a_fact("Ann has bought 3 red cars."), False),
        (a_fact("Ann bought two red cars."), a_fact("Ann has bought 2 red cars."), True),
        (a_fact("Ann bought two red cars."), a_fact("Ann has bought three red cars."), False),
        (a_fact("Ann bought 2 cars and 3 bikes."), a_fact("Ann has bought 3 cars and 2 bikes."), False),
        (a_fact("Ann bought a red car."), a_fact("Ann has not bought a red car."), False),
        (a_fact("Ann bought a red car."), a_fact("Ann hasn't bought a red car."), False),
        (a_fact("Ann swims every Monday."), a_fact("Ann goes swimming every Friday."), False),
        (a_fact("Ann gave Bob a book."), a_fact("Bob gave Ann a book."), False),
        (a_fact("Ann gave Bob a book."), a_fact("Ann has given Bob the book."), True),
        (a_fact("Ann bought a red car.", doubtful=True), a_fact("Ann has bought a red car."), True),
        (a_fact("Cars Ann likes.", doubtful=True), a_fact("Ann likes cars."), True),
        (a_fact("Will likes cars.", doubtful=True), a_fact("Bob likes cars.", doubtful=True), False),
        (a_fact("小明买了两辆车。"), a_fact("小明买了三辆车。"), False),
        (a_fact("小明买了两辆车。"), a_fact("小明已经买了两辆车。"), True),
        (a_fact("Ann is ill.", role=FactRole.STATE), a_fact("Ann is ill now.", role=FactRole.PLAN), False),
        (a_fact("Ann is ill.", role=FactRole.STATE), a_fact("Ann is ill now."), True),
        (a_fact("Ann swam in the lake."), a_fact("Ann liked it. [Ann swam in the lake.]"), False),
        (a_fact("Ann liked it. [Ann swam.]"), a_fact("Ann was tired. [Ann swam.]"), False),
        (a_fact("Ann liked it. [Ann swam.]"), a_fact("Ann liked it. [Ann has swum.]"), True),
        (
            a_fact("Ann is in Oslo.", role=FactRole.STATE, state="home"),
            a_fact("Ann is now in Oslo.", role=FactRole.STATE, state="place of work"),
            False,
        ),
        (
            a_fact("Ann lives in Oslo.", role=FactRole.STATE, state="home"),
            a_fact("Ann now lives in Oslo.", role=FactRole.STATE, state="residence"),
            True,
        ),
        (
            a_fact("Ann lives in Oslo.", role=FactRole.STATE, state="home"),
            a_fact("Ann once lived in Oslo.", role=FactRole.STATE, state="home"),
            False,
        ),
    ],
    ids=lambda value: value.text if isinstance(value, ExtractedFact) else str(value),
)
def test_near_texts_are_one_fact_if_days_names_numbers_negation_and_state_agree(
    one: ExtractedFact, other: ExtractedFact, same: bool
) -> None:
    for first, second in ((one, other), (other, one)):
        world = World()
        world.say(first)
        world.say(second, session="s2")
        world.admit()

        assert len(world.canon.facts) == (1 if same else 2)
        check(world.canon)


def test_the_cosine_decides_among_those_that_agree() -> None:
    for cosine, facts in ((0.89998, 2), (0.9, 1)):
        world = World({"Ann drives.": towards(1), "Ann is driving.": towards(cosine, (1 - cosine**2) ** 0.5)})
        world.say("Ann drives.")
        world.say("Ann is driving.")
        world.admit()

        assert len(world.canon.facts) == facts


@pytest.mark.parametrize(
    ("one", "other", "facts"),
    [
        ("Ann stretched the front of her leg.", "Ann stretched the front of her hip.", 2),
        ("Ann sold resin tags.", "Ann sold blue resin tags.", 2),
        ("Ann sold blue resin tags.", "Ann sold resin tags.", 2),
        ("Ann helps a friend.", "Ann is helping a friend.", 1),
    ],
)
def test_no_vector_joins_what_says_something_else_or_more(one: str, other: str, facts: int) -> None:
    world = World()
    world.say(one)
    world.say(other, session="s2")
    world.admit()

    assert len(world.canon.facts) == facts
    check(world.canon)


def test_what_is_near_to_two_facts_makes_one_of_them() -> None:
    apart = {"Ann sat.": towards(1, 0), "Ann has sat.": towards(0.8, 0.6), "Ann was sitting.": towards(0.95, 0.31)}
    world = World(apart)
    (one,), (other,) = world.say("Ann sat.", session="s1"), world.say("Ann has sat.", session="s2")
    world.admit()
    before = facts_of(world.canon)
    (bridge,) = world.say("Ann was sitting.", session="s3")
    lineages = world.admit()
    (fact,) = world.canon.facts.values()

    assert before == [[one.pointer], [other.pointer]]
    assert fact.id == found_fact(one)
    assert fact.occurrences == [one, other, bridge]
    assert lineages == [sessions("s1", "s2", "s3")]
    check(world.canon)
    # Without any one of the three the others are what they were, and those that wait found facts.
    assert facts_of(world.refold("s3")) == [[one.pointer], [other.pointer]]
    assert facts_of(world.refold("s1")) == [[other.pointer]]
    assert facts_of(world.refold("s2")) == [[one.pointer]]
    assert list(world.refold("s1").waiting) == [bridge.pointer]


def test_all_three_of_them_waiting_make_one_fact_too() -> None:
    world = World(
        {"Ann sat.": towards(1, 0), "Ann has sat.": towards(0.8, 0.6), "Ann was sitting.": towards(3, 1)}
    )
    said = [*world.say("Ann sat."), *world.say("Ann has sat."), *world.say("Ann was sitting.")]
    world.admit()

    assert facts_of(world.canon) == [[each.pointer for each in said]]
    assert facts_of(world.refold()) == facts_of(world.canon)


def test_when_its_first_session_is_forgotten_a_fact_speaks_with_anothers_words() -> None:
    world = World()
    world.say("Ann drives.", session="s1")
    (other,) = world.say("Ann is driving.", session="s2")
    world.admit()
    world.canon = world.refold("s1")
    world.admit()
    (fact,) = world.canon.facts.values()

    assert (fact.id, fact.first) == (found_fact(other), other)


def test_exact_duplicates_need_no_vector() -> None:
    world = World()
    world.say("Ann drives.", "Bob swims.")
    alone = wanted_readings(world.canon)
    world.admit(world.nearness(readings={}))
    world.say("Ann drives.", "bob  SWIMS.", session="s2")
    again = wanted_readings(world.canon)
    world.admit(world.nearness(readings={}))

    assert alone == again == ()
    assert [len(fact.occurrences) for fact in world.canon.facts.values()] == [2, 2]
    assert not world.canon.waiting


def test_only_what_may_be_one_is_read() -> None:
    world = World()
    (drives, _, _), (driving, _) = (
        world.say("Ann drives.", "Bob swims.", "Cid has 2 cats."),
        world.say("Ann is driving.", "Cid has 3 cats."),
    )

    assert wanted_readings(world.canon) == (drives.pointer, driving.pointer)


def test_an_occurrence_waits_for_a_reading_that_is_wanted() -> None:
    world = World()
    (drives,), (driving,) = world.say("Ann drives."), world.say("Ann is driving.")
    world.admit(world.nearness(readings={drives.pointer: world.readings[drives.pointer]}))
    waiting = list(world.canon.waiting)
    world.admit()

    assert waiting == [driving.pointer]
    assert facts_of(world.canon) == [[drives.pointer, driving.pointer]]


def test_a_text_that_has_no_vector_is_like_no_other() -> None:
    world = World()
    (drives,), (driving,) = world.say("Ann drives."), world.say("Ann is driving.")
    readings = {pointer: replace(reading, vector=None) for pointer, reading in world.readings.items()}
    world.admit(world.nearness(readings=readings))

    assert facts_of(world.canon) == [[drives.pointer], [driving.pointer]]


def test_facts_that_were_never_compared_are_joined_once_they_are() -> None:
    world = World()
    (one,), (other,) = world.say("Ann drives."), world.say("Ann is driving.", session="s2")
    for decided in plan_admissions(world.canon, 1):
        list(world.canon.apply(decided[0]))
    fresh = list(world.canon.facts)

    assert plan_near(world.canon, world.nearness()) == []
    assert wanted_readings(world.canon) == ()
    assert wanted_readings(world.canon, fresh[1:]) == (one.pointer, other.pointer)
    world.admit(Nearness(world.readings, NEAR, fresh=fresh[1:]))
    assert facts_of(world.canon) == [[one.pointer, other.pointer]]
    check(world.canon)


def state(world: World, occurrence: Occurrence, *, pinned: bool) -> Occurrence:
    """A person wrote this, or wants to keep it."""
    from dataclasses import replace

    said = replace(occurrence, corrected=not pinned, pinned=pinned)
    del world.canon.waiting[occurrence.pointer]
    world.canon.admit(said)
    return said


def test_what_a_person_wrote_stays_first_and_takes_up_what_was_read() -> None:
    world = World()
    (read,) = world.say("Ann drives.")
    world.admit()
    (written,) = world.say("Ann is driving.", session="s2")
    said = state(world, written, pinned=False)
    world.admit(Nearness(world.readings, NEAR, fresh=list(world.canon.facts)))
    (fact,) = world.canon.facts.values()

    assert fact.occurrences == [said, read]
    assert fact.id == found_fact(said)


def test_what_is_pinned_is_never_taken_up() -> None:
    world = World()
    pinned = [state(world, *world.say(text), pinned=True) for text in ("Ann drives.", "Ann is driving.")]
    (third,) = world.say("Ann is now driving.")
    world.admit(Nearness(world.readings, NEAR, fresh=list(world.canon.facts)))

    assert facts_of(world.canon) == [[pinned[0].pointer, third.pointer], [pinned[1].pointer]]
    assert plan_near(world.canon, Nearness(world.readings, NEAR, fresh=list(world.canon.facts))) == []


def test_an_admission_that_would_take_up_what_was_pinned_since_changes_nothing() -> None:
    world = World()
    (read,), (kept,) = world.say("Ann drives."), world.say("Ann is driving.")
    pinned = state(world, kept, pinned=True)
    world.admit(world.nearness(readings={}))
    before = facts_of(world.canon)
    stale = FactsAdmitted(1, (Admission(found_fact(read), pinned.pointer),))

    assert list(world.canon.apply(stale)) == []
    assert facts_of(world.canon) == before


def test_a_name_that_only_one_of_them_has_keeps_them_apart() -> None:
    drives, driving = a_fact("Ann drives a tesla."), a_fact("Ann is driving a tesla.")
    named = replace(driving, mentions=(*driving.mentions, Mention("tesla")))
    for facts in ((drives, named), (named, drives)):
        world = World()
        for fact in facts:
            world.say(fact)
        world.admit()

        assert len(world.canon.facts) == 2


def test_a_fact_is_compared_by_what_it_says_of_those_days_alone() -> None:
    world = World(
        {"Ann drives.": towards(1), "Ann drives off.": towards(0, 1), "Ann is driving off.": towards(0, 1)}
    )
    (drives,), (later,) = world.say("Ann drives."), world.say(a_fact("Ann drives off.", day=1))
    del world.canon.waiting[later.pointer]
    world.admit()
    world.canon.admit(later, found_fact(drives))
    (driving,) = world.say("Ann is driving off.")
    world.admit()

    assert facts_of(world.canon) == [[drives.pointer, later.pointer], [driving.pointer]]


def test_with_a_judge_a_near_pair_waits_for_its_verdict() -> None:
    world = World()
    (one,), (other,), (far,) = world.say("Ann drives."), world.say("Ann is driving."), world.say("Bob drives.")
    judged = world.nearness(judged=True)
    asked = pairs_to_judge(world.canon, judged)
    world.admit(judged)
    waiting = list(world.canon.waiting)
    world.judge((other, one, PairVerdict.SAME))
    world.admit(judged)

    assert asked == ((other.pointer, one.pointer),)
    assert waiting == [other.pointer]
    assert pairs_to_judge(world.canon, judged) == ()
    assert facts_of(world.canon) == [[one.pointer, other.pointer], [far.pointer]]
    assert facts_of(world.refold()) == facts_of(world.canon)


@pytest.mark.parametrize("verdict", [PairVerdict.DIFFERENT, PairVerdict.SUPERSEDES, PairVerdict.CONTRADICTS])
def test_what_a_model_takes_for_two_stays_two_whatever_the_cosine_says(verdict: PairVerdict) -> None:
    world = World()
    (one,), (other,) = world.say("Ann drives."), world.say("Ann is driving.")
    world.judge((other, one, verdict))
    for judged in (True, False):
        world.admit(world.nearness(judged=judged))

        assert facts_of(world.canon) == [[one.pointer], [other.pointer]]


def test_a_verdict_about_other_days_joins_nothing() -> None:
    world = World()
    (one,), (other,) = world.say("Ann drives."), world.say(a_fact("Ann drives.", day=1))
    world.judge((other, one, PairVerdict.SAME))
    world.admit()

    assert len(world.canon.facts) == 2


def test_facts_that_a_model_takes_for_one_later_are_joined_then() -> None:
    world = World({"Ann drives.": towards(1), "Ann is driving.": towards(0, 1)})
    (one,), (other,) = world.say("Ann drives."), world.say("Ann is driving.")
    world.admit()
    world.judge((other, one, PairVerdict.SAME))
    world.admit()

    assert facts_of(world.canon) == [[one.pointer, other.pointer]]
    assert plan_near(world.canon, world.nearness()) == []


def test_a_judgement_that_is_given_up_falls_back_to_the_rule() -> None:
    world = World()
    (one,), (other,) = world.say("Ann drives."), world.say("Ann is driving.")
    judged = world.nearness(judged=True)
    world.canon.note_given_up((one.pointer.seq, other.pointer.seq))
    given_up = pairs_to_judge(world.canon, judged)
    world.canon.note_resumed((one.pointer.seq, other.pointer.seq))
    resumed = pairs_to_judge(world.canon, judged)
    world.canon.note_given_up((one.pointer.seq, other.pointer.seq))
    world.admit(judged)

    assert given_up == ()
    assert resumed == ((other.pointer, one.pointer),)
    assert facts_of(world.canon) == [[one.pointer, other.pointer]]


@pytest.mark.parametrize(("later", "facts"), [("Ann is driving a van.", 1), ("Ann is driving an old van.", 2)])
def test_what_a_model_cannot_be_asked_about_is_the_same_if_it_has_the_same_words(later: str, facts: int) -> None:
    world = World()
    (one,), (other,) = world.say("Ann drives a van."), world.say(later)
    world.canon.note_given_up((one.pointer.seq, other.pointer.seq))
    world.admit(world.nearness(judged=True))

    assert len(world.canon.facts) == facts


def test_what_says_the_same_as_something_undecided_waits_with_it() -> None:
    world = World()
    (one,), (other, again) = world.say("Ann drives."), world.say("Ann is driving.", "Ann is driving.")
    world.admit(world.nearness(judged=True))

    assert list(world.canon.waiting) == [other.pointer, again.pointer]
    assert facts_of(world.canon) == [[one.pointer]]


def test_what_came_while_the_others_were_compared_waits_to_be_compared_itself() -> None:
    world = World()
    (one,) = world.say("Ann drives.")
    world.admit()
    (other,) = world.say("Ann drives now.")
    candidates = find_candidates(world.canon)
    (late,) = world.say("Ann now drives.")
    links = candidates.link(world.nearness())
    for decided in plan_admissions(world.canon, 1, links, candidates.waiting):
        list(world.canon.apply(decided[0]))
    waiting = list(world.canon.waiting)
    world.admit()

    assert waiting == [late.pointer]
    assert facts_of(world.canon) == [[one.pointer, other.pointer, late.pointer]]


def test_a_verdict_that_is_carried_out_is_looked_at_no_more_also_after_a_fold() -> None:
    world = World({"Ann drives.": towards(1), "Ann is driving.": towards(0, 1)})
    (one,), (other,), (far,) = world.say("Ann drives."), world.say("Ann is driving."), world.say("Bob drives.")
    world.admit()
    world.judge((other, one, PairVerdict.SAME), (far, one, PairVerdict.SAME))
    world.admit()
    find_candidates(world.canon)
    again = world.refold()
    candidates = find_candidates(again)

    assert world.canon.unjoined == again.unjoined == {}
    assert candidates.judged_same == ()
    assert len(world.canon.facts) == 2


def random_world(seed: int) -> tuple[World, list[tuple[str, ExtractedFact]]]:
    """Texts of few kinds and days in directions of which neighbours are near, so that joins are many."""
    chance = random.Random(seed)
    vectors: dict[str, NDArray[np.float32]] = {}
    facts: list[tuple[str, ExtractedFact]] = []
    for _ in range(40):
        name, turn = chance.choice(["Ann", "Bob"]), chance.randrange(12)
        text = f"{name} went{'.' * turn}"
        vectors[text] = towards(np.cos(turn * 0.4), np.sin(turn * 0.4))
        facts.append((f"s{chance.randrange(5)}", a_fact(text, day=chance.randrange(2))))
    return World(vectors), facts


def groups_by_hand(world: World, said: Sequence[Occurrence]) -> list[list[Pointer]]:
    """Which occurrences are one fact, by comparing each with each until nothing changes."""
    groups = [{each.pointer} for each in said]
    places = {each.pointer: each for each in said}

    def near(one: Occurrence, other: Occurrence) -> bool:
        cosine = float(world.readings[one.pointer].vector @ world.readings[other.pointer].vector)  # type: ignore[operator]
        return cosine >= NEAR and one.time_start == other.time_start and one.mentions == other.mentions

    merged = True
    while merged:
        merged = False
        for one in groups:
            for other in groups:
                if one is not other and any(near(places[a], places[b]) for a in one for b in other):
                    one |= other
                    groups.remove(other)
                    merged = True
                    break
            if merged:
                break
    return sorted(sorted(group) for group in groups)


@pytest.mark.parametrize("seed", range(20))
def test_which_occurrences_are_one_fact_does_not_depend_on_how_many_wait_at_a_time(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    world, facts = random_world(seed)
    said: list[Occurrence] = []
    for session, fact in facts:
        said += world.say(fact, session=session)
        if chance.random() < 0.3:
            world.admit()
            check(world.canon)
    world.admit()

    assert [sorted(each) for each in facts_of(world.canon)] == groups_by_hand(world, said)
    assert facts_of(world.refold()) == facts_of(world.canon)
    assert all(
        fact.id == found_fact(min(fact.occurrences, key=lambda each: each.pointer))
        for fact in world.canon.facts.values()
    )


@pytest.mark.parametrize("seed", range(20))
def test_survivors_are_the_facts_they_would_be_if_a_session_had_never_been(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    world, facts = random_world(seed)
    said: list[Occurrence] = []
    for session, fact in facts:
        said += world.say(fact, session=session)
        if chance.random() < 0.3:
            world.admit()
    world.admit()
    gone = f"s{chance.randrange(5)}"
    world.canon = world.refold(gone)
    check(world.canon)
    world.admit()
    survivors = [each for each in said if each.session not in sessions(gone)]

    assert [sorted(each) for each in facts_of(world.canon)] == groups_by_hand(world, survivors)
    check(world.canon)


def test_a_day_with_a_thousand_facts_costs_little() -> None:
    chance = np.random.default_rng(1)
    world = World()
    names = ["Ann", "Bob", "Cid", "Dan", "Eve"]
    for n in range(1_000):
        text = f"{names[n % 5]} did {chr(97 + n % 26) * 3} {chr(97 + n // 26) * 4}."
        vector = chance.normal(size=384).astype(np.float32)
        world.vectors[text] = (vector / np.linalg.norm(vector)).astype(np.float32)
        world.say(text, session=f"s{n % 9}")
    at_once = count_calls(world.admit)
    world.say("Ann did it.")
    world.vectors.setdefault("Ann did it.", towards(1))
    world.readings[Pointer(world.seq, 0)] = replace(
        world.readings[Pointer(world.seq, 0)], vector=np.resize(towards(1), 384) / np.float32(48**0.5)
    )
    wanted = len(wanted_readings(world.canon))
    one_more = count_calls(world.admit)
    print("calls", at_once, one_more)

    assert wanted == 201
    assert at_once < 200 * 1_000, "each is compared with few of the others"
    assert one_more < 40 * 1_000


def test_a_thousand_of_one_meaning_are_one_fact_and_few_questions() -> None:
    world = World()
    texts = [f"Ann did it{'.' * n}" for n in range(1_000)]
    for text in texts:
        world.say(text)
    asked = len(pairs_to_judge(world.canon, world.nearness(judged=True)))
    calls = count_calls(world.admit)
    print("calls", calls)

    assert asked < 3 * len(texts)
    assert len(world.canon.facts) == 1
    assert calls < 300 * len(texts)
