"""What people say of facts: the rules, and random histories in which the growing Memory equals the rebuilt one."""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

import pytest

from daemon.building.correction_plans import Change, plan_correction, plan_pin, plan_retraction, plan_unpinning
from events.decisions import Route
from events.memory import ExtractedFact
from events.schema import open_writer
from projections.digests import digest_memory
from projections.facts.corrections import SAME_WORDS_MIN
from projections.facts.labels import occurs_in
from projections.facts.scopes import ENTITY_FACTS_MIN, ENTITY_SESSIONS_MIN, Scope, ScopeKind
from projections.facts.wording import likeness_of_words, read_wording
from projections.memory import Memory
from projections.recall.nodes import NodeKind
from tests.builders import KEYS, MONDAY, SECRET, a_closing, a_forgetting, an_id
from tests.daemon.turn_edits import a_retraction, a_revision
from tests.projections.facts.fact_world import FactWorld, a_fact

S1, S2 = (KEYS.session("alice", name) for name in ("s1", "s2"))
HISTORIES = int(os.environ.get("CORRECTION_HISTORIES", "100"))
STEPS = 22
SCENES = [an_id(f"scene {n}") for n in range(6)]
BOSTON, DAVIS, MIAMI = "Alice lives in Boston.", "Alice lives in Davis.", "Alice lives in Miami."
CAT, DOG, TEA = "Bob has a grey cat.", "Bob walks the old dog.", "Carol drinks green tea."


@pytest.fixture
def world(tmp_path: Path) -> Iterator[FactWorld]:
    with closing(open_writer(tmp_path / "events.db", MONDAY, SECRET)) as connection:
        connection.execute("PRAGMA synchronous = OFF")
        yield FactWorld(connection)


def shown(memory: Memory) -> dict[bytes, tuple[object, dict[int, int]]]:
    """Every row of the search with its terms."""
    return {
        key: (memory.nodes.node(row), memory.nodes.lexical.counts_of(row))
        for key, row in memory.nodes.row_of.items()
    }


def check(world: FactWorld) -> None:
    """The growing Memory is the rebuilt one, and each of its parts says the same of every fact."""
    memory, again = world.memory, world.rebuilt()

    assert not again.needs_rebuild
    assert digest_memory(memory) == digest_memory(again)
    assert shown(memory) == shown(again)
    assert list(memory.canon.waiting) == list(again.canon.waiting)
    assert list(memory.placement.scenes.unrouted) == list(again.placement.scenes.unrouted)
    assert {fact.id for fact in memory.canon.facts.values() if fact.pinned} == {
        fact.id for fact in again.canon.facts.values() if fact.pinned
    }
    check_parts(memory)


def check_parts(memory: Memory) -> None:
    facts, grouped = memory.canon.facts, memory.units.group_of
    disclaimed = {each.likeness for each in memory.placement.disclaimers.standing()}
    rows = {
        key for key in memory.nodes.row_of if memory.nodes.node(memory.nodes.row_of[key]).kind == NodeKind.FACT
    }

    assert rows == facts.keys() - grouped.keys()
    assert grouped.keys() <= facts.keys()
    assert not any(fact.pinned for fact in facts.values() if fact.id in grouped)
    assert not any(each.likeness in disclaimed for fact in facts.values() for each in fact.occurrences)
    assert not any(each.likeness in disclaimed for each in memory.canon.waiting.values())
    assert memory.members == members_by_hand(memory) | scenes_by_hand(memory)
    for scope, members in memory.members.items():
        assert {leaf.key for leaf in memory.forest.trees[scope].leaves()} == {
            facts[fact].first.leaf_key for fact in members
        }


def scenes_by_hand(memory: Memory) -> dict[Scope, set[bytes]]:
    """Who is in which scene, counted from where each fact is; a fact is routed or waits, if it is known."""
    scenes = memory.placement.scenes
    routed = dict(scenes.routes())
    assert routed.keys() | scenes.unrouted.keys() == memory.canon.facts.keys()
    assert not routed.keys() & scenes.unrouted.keys()
    held: dict[Scope, set[bytes]] = {}
    for fact, places in routed.items():
        for scene in places:
            held.setdefault(Scope(ScopeKind.SCENE, scene.hex()), set()).add(fact)
    assert {scene.hex(): members for scene, members in scenes.members.items()} == {
        scope.name: members for scope, members in held.items()
    }
    return held


def members_by_hand(memory: Memory) -> dict[Scope, set[bytes]]:
    """Who is in which scope, counted from the facts alone (all names in these tests are sure)."""
    named: dict[str, set[bytes]] = {}
    sessions: dict[str, set[bytes]] = {}
    for fact in memory.canon.facts.values():
        until = [max((n for n, each in enumerate(fact.occurrences) if label in {m.label for m in each.mentions}))
                 for label in sorted(fact.labels)]  # fmt: skip
        for label, last in zip(sorted(fact.labels), until, strict=True):
            named.setdefault(label, set()).add(fact.id)
            sessions.setdefault(label, set()).update(each.session for each in fact.occurrences[: last + 1])
    owner = memory.scopes.owner
    return {
        Scope(ScopeKind.USER, "") if label == owner else Scope(ScopeKind.ENTITY, label): held
        for label, held in named.items()
        if label == owner or (len(held) >= ENTITY_FACTS_MIN and len(sessions[label]) >= ENTITY_SESSIONS_MIN)
    }


def test_a_retracted_fact_is_known_no_more(world: FactWorld) -> None:
    world.learn(BOSTON, CAT)
    world.retract(BOSTON)

    assert world.known() == [CAT]
    check(world)


def test_a_retracted_fact_stays_away_when_its_chunk_is_extracted_again(world: FactWorld) -> None:
    world.learn(BOSTON, CAT)
    world.retract(BOSTON)
    world.replay(S1, a_fact(BOSTON), a_fact(CAT))
    world.admit()

    assert world.known() == [CAT]
    check(world)


def test_other_words_for_it_from_the_same_turns_stay_away_too_and_its_neighbours_do_not(world: FactWorld) -> None:
    world.learn(CAT)
    world.retract(CAT)
    nearest, near = "Bob has a small grey cat.", "Bob has a grey cat named Tom."
    world.replay(S1, a_fact(near), a_fact(nearest))
    world.admit()

    assert world.known() == [near]
    check(world)


def test_the_same_words_from_other_turns_stay_away_on_the_same_day_only(world: FactWorld) -> None:
    world.learn(CAT)
    world.retract(CAT)
    world.say("It purrs.", "So it does.", session="s2")
    world.extract(a_fact(CAT), a_fact(CAT, day=1), a_fact("Bob has a small grey cat."))
    world.admit()

    assert world.known() == ["Bob has a grey cat.", "Bob has a small grey cat."]
    assert world.fact(CAT).first.time_start > MONDAY
    check(world)


def test_what_waits_for_admission_and_says_it_goes_too(world: FactWorld) -> None:
    world.learn(CAT)
    world.say("It purrs.", "So it does.", session="s2")
    world.extract(a_fact(CAT), a_fact(DOG))
    world.retract(CAT)

    assert len(world.memory.canon.waiting) == 1
    world.admit()
    assert world.known() == [DOG]
    check(world)


def test_what_was_read_beside_a_retracted_fact_stays_when_it_is_admitted_anew(world: FactWorld) -> None:
    beside = "Bob has a small grey cat."
    world.learn(beside, session="s2")
    world.learn(CAT, beside, session="s1")
    world.retract(CAT)
    world.write(a_forgetting("s2"))
    world.admit()

    assert world.known() == [beside]
    check(world)


def test_a_retraction_goes_with_its_turn_and_with_its_session(world: FactWorld) -> None:
    world.learn(CAT)
    world.retract(CAT)
    world.learn(DOG, session="s2")
    world.retract(DOG)
    world.write(a_revision("Hello there.", "t1"))
    world.extract(a_fact(CAT))
    world.write(a_forgetting("s2"))
    world.learn(DOG, session="s3")
    world.admit()

    assert world.known() == [CAT, DOG]
    check(world)


def test_a_retraction_of_what_was_read_in_two_sessions_outlives_one_of_them(world: FactWorld) -> None:
    world.learn(CAT, session="s1")
    world.learn(CAT, session="s2")
    world.retract(CAT)
    world.write(a_forgetting("s1"))
    world.admit()

    assert world.known() == []
    check(world)


def test_a_corrected_fact_is_known_at_once_and_the_old_one_is_gone(world: FactWorld) -> None:
    world.learn(BOSTON, session="s1")
    world.learn(BOSTON, session="s2")
    world.reword(BOSTON, MIAMI)
    fact = world.fact(MIAMI)

    assert world.known() == [MIAMI]
    assert fact.sessions == {S1, S2}
    assert fact.turns == (1, 5)
    assert [mention.label for mention in fact.first.mentions] == ["alice"]
    check(world)


def test_a_correction_outlives_extraction_again_and_joins_what_says_the_same(world: FactWorld) -> None:
    world.learn(BOSTON)
    world.reword(BOSTON, MIAMI)
    world.replay(S1, a_fact(BOSTON), a_fact(MIAMI))
    world.admit()

    assert world.known() == [MIAMI]
    assert len(world.fact(MIAMI).occurrences) == 2
    check(world)


def test_a_correction_can_be_corrected_and_retracted(world: FactWorld) -> None:
    world.learn(BOSTON)
    world.reword(BOSTON, MIAMI)
    world.reword(MIAMI, DAVIS)
    check(world)
    world.reword(DAVIS, BOSTON)
    check(world)

    assert world.known() == [BOSTON], "the last word counts, also when it is the first again"
    world.retract(BOSTON)
    assert world.known() == []
    check(world)


def test_how_a_fact_is_written_can_be_corrected_alone(world: FactWorld) -> None:
    world.learn("alice lives in boston.", session="s1")
    world.learn("alice lives in boston.", session="s2")
    world.reword("alice lives in boston.", BOSTON)
    world.replay(S1, a_fact("alice lives in boston."))
    world.admit()

    assert world.known() == [BOSTON]
    assert world.fact(BOSTON).sessions == {S1, S2}
    check(world)


def test_a_pinned_fact_stays_when_its_chunk_says_something_else(world: FactWorld) -> None:
    world.learn(CAT, DOG)
    world.pin(CAT)
    before = world.fact(CAT).id
    world.replay(S1, a_fact(TEA))
    world.admit()

    assert world.known() == [CAT, TEA]
    assert (world.fact(CAT).id, world.fact(CAT).pinned) == (before, True)
    check(world)


def test_a_pin_that_is_undone_keeps_nothing(world: FactWorld) -> None:
    world.learn(CAT, DOG)
    world.pin(CAT)
    world.replay(S1, a_fact(TEA))
    world.admit()
    world.unpin(CAT)

    assert world.known() == [TEA]
    check(world)


def test_a_pinned_fact_leaves_its_group_and_the_others_come_back_alone(world: FactWorld) -> None:
    world.learn(CAT, DOG, TEA)
    world.merge(*world.memory.canon.facts)
    world.pin(CAT)

    assert world.memory.units.groups == {}
    check(world)
    world.merge(world.fact(DOG).id, world.fact(TEA).id)
    world.merge(world.fact(DOG).id, world.fact(CAT).id)
    assert [len(group.members) for group in world.memory.units.groups.values()] == [2], "never with the pinned one"
    check(world)


def test_a_group_that_held_a_retracted_fact_is_undone(world: FactWorld) -> None:
    world.learn(CAT, DOG, TEA)
    world.merge(*world.memory.canon.facts)
    world.retract(DOG)

    assert world.memory.units.groups == {}
    assert world.known() == [CAT, TEA]
    check(world)


def test_members_of_a_group_come_back_when_a_pin_no_longer_broke_it_up(world: FactWorld) -> None:
    world.learn(CAT, DOG, TEA)
    world.merge(*world.memory.canon.facts)
    world.pin(CAT)
    world.merge(world.fact(DOG).id, world.fact(TEA).id)
    world.unpin(CAT)

    assert [len(group.members) for group in world.memory.units.groups.values()] == [2]
    check(world)


@pytest.mark.parametrize(
    ("gone", "left"), [(("Rome",), 3), (("Oslo",), 0), (("Rome", "Davis"), 0), (("Rome", "Rome again"), 0)]
)
def test_an_entity_is_left_below_three_facts_or_two_sessions(
    world: FactWorld, gone: tuple[str, ...], left: int
) -> None:
    world.learn("Dan left Rome.", "Dan left Davis.", "Dan left Rome again.", session="s1")
    world.learn("Dan left Oslo.", session="s2")
    scope = Scope(ScopeKind.ENTITY, "dan")

    assert len(world.memory.members[scope]) == 4
    for place in gone:
        world.retract(f"Dan left {place}.")
    assert len(world.memory.members.get(scope, ())) == left
    assert (scope in world.memory.forest.trees) is bool(left)
    check(world)


@pytest.mark.parametrize(
    ("one", "other", "alike"),
    [
        ("Bob has a grey cat.", "Bob has a small grey cat.", True),
        ("Bob has a grey cat.", "Bob owns some pets.", False),
        ("Alice lives in Boston.", "Alice lives in Miami.", False),
        ("Alice met Bob at the new cafe.", "Alice met Carol at the new cafe.", False),
        ("Bob has 2 grey cats and a dog.", "Bob has 3 grey cats and a dog.", False),
        ("Bob likes cats.", "Bob does not like cats.", False),
        ("Bob likes cats.", "Bob doesn't like cats.", False),
        ("小明在北京的大学工作。", "小明在北京大学工作。", True),
        ("小明喜欢喝茶。", "小明不喜欢喝茶。", False),
    ],
)
def test_readings_are_alike_when_most_words_and_all_firm_ones_agree(one: str, other: str, alike: bool) -> None:
    labels = [word.strip(".") for word in (*one.split(), *other.split()) if word[0].isupper()]
    wordings = [read_wording(text, [label for label in labels if label in text]) for text in (one, other)]
    share = likeness_of_words(*wordings)

    assert (share >= SAME_WORDS_MIN) is alike
    assert share == likeness_of_words(*reversed(wordings))


@pytest.mark.parametrize(
    ("label", "text", "there"),
    [
        ("ann", "ann met annabel.", True),
        ("ann", "annabel met joann.", False),
        ("c++", "she writes c++, not c#.", True),
        ("new york", "she moved to new york city.", True),
        ("北京", "小明在北京工作。", True),
        ("bob", "", False),
    ],
)
def test_a_label_occurs_as_words_of_its_own(label: str, text: str, there: bool) -> None:
    assert occurs_in(label, text) is there


def test_a_route_of_a_fact_goes_with_the_session_that_said_it(world: FactWorld) -> None:
    world.learn(CAT, session="s1")
    world.learn(DOG, session="s2")
    cat, dog = world.fact(CAT).id, world.fact(DOG).id
    world.route(Route(cat, (SCENES[0],)), Route(dog, (SCENES[0], SCENES[1])))
    world.write(a_forgetting("s1"))

    assert world.memory.placement.scenes.members == {SCENES[0]: {dog}, SCENES[1]: {dog}}
    check(world)
    world.retract(DOG)
    assert world.memory.placement.scenes.members == {}
    assert not [scope for scope in world.memory.forest.trees if scope.kind is ScopeKind.SCENE]
    check(world)


def test_a_fact_that_was_said_elsewhere_as_well_waits_again_when_its_route_goes(world: FactWorld) -> None:
    world.learn(CAT, session="s1")
    world.learn(CAT, session="s2")
    cat = world.fact(CAT).id
    world.route(Route(cat, (SCENES[0],)))
    world.write(a_forgetting("s2"))

    assert list(world.memory.placement.scenes.unrouted) == [cat]
    assert world.memory.placement.scenes.members == {}
    check(world)


def test_scenes_that_were_merged_stay_so_whoever_is_forgotten(world: FactWorld) -> None:
    world.learn(CAT, session="s1")
    world.learn(DOG, session="s2")
    cat, dog = world.fact(CAT).id, world.fact(DOG).id
    world.route(Route(cat, (SCENES[0],)), Route(dog, (SCENES[1],)))
    world.merge_scenes(SCENES[0], SCENES[1])
    world.write(a_forgetting("s1"))

    assert world.memory.placement.scenes.members == {SCENES[0]: {dog}}
    check(world)


class History:
    """One random history: whoever writes next is drawn, and so is what."""

    def __init__(self, world: FactWorld, rng: random.Random) -> None:
        self.world, self.rng = world, rng
        self.steps: list[tuple[int, Callable[[], None]]] = [
            (6, self.say), (7, self.extract), (7, self.admit), (1, self.close),
            (4, self.merge), (1, self.summarise), (5, self.route), (2, self.merge_scenes), (1, self.join),
            (3, self.compare), (3, self.retract), (3, self.correct), (3, self.pin), (2, self.unpin),
            (1, self.revise), (1, self.take_back), (1, self.forget), (1, self.replay),
        ]  # fmt: skip
        for session in ("s1", "s2"):
            world.say(*[self.text() for _ in range(4)], session=session)
        self.extract()
        self.admit()

    def step(self) -> str:
        weights = [weight for weight, _ in self.steps]
        (_, act), = self.rng.choices(self.steps, weights)  # fmt: skip
        act()
        return act.__name__

    def text(self) -> str:
        name = self.rng.choice(["Alice", "Bob", "Dan"])
        what = self.rng.choice(
            ["has a cat", "has a grey cat", "has a small grey cat", "likes 2 dogs", "lives in Rome"]
        )
        return f"{name} {what}."

    def read(self, turns: int) -> list[ExtractedFact]:
        texts = dict.fromkeys(self.text() for _ in range(self.rng.randrange(1, 4)))
        return [a_fact(text, (self.rng.randrange(turns),), self.rng.choice([0, 0, 0, 1])) for text in texts]

    def say(self) -> None:
        self.world.say(*[self.text() for _ in range(self.rng.randrange(1, 4))], session=self.session())

    def session(self) -> str:
        forgotten = self.world.memory.hindsight.tombstones
        left = [name for name in ("s1", "s2", "s3") if KEYS.session("alice", name) not in forgotten]
        return self.rng.choice(left or ["s4"])

    def extract(self) -> None:
        while self.world.memory.waiting_chunks:
            chunk = next(iter(self.world.memory.waiting_chunks.values()))
            self.world.extract(*self.read(len(chunk.turns)), chunk=chunk)

    def admit(self) -> None:
        self.world.admit()

    def close(self) -> None:
        self.world.write(a_closing(self.session(), key=str(self.world.memory.user_seq)))

    def summarise(self) -> None:
        self.world.summarise()

    def merge(self) -> None:
        facts = [fact.id for fact in self.world.memory.canon.facts.values() if not fact.pinned]
        if len(facts) > 1:
            self.world.merge(*self.rng.sample(facts, min(len(facts), self.rng.randrange(2, 4))))

    def route(self) -> None:
        """Some facts, those that wait and others, to scenes that are there, were absorbed, or are new."""
        facts = list(self.world.memory.canon.facts)
        some = self.rng.sample(facts, min(len(facts), self.rng.randrange(1, 5)))
        self.world.route(*(Route(fact, tuple(self.rng.sample(SCENES, self.rng.randrange(3)))) for fact in some))

    def merge_scenes(self) -> None:
        self.world.merge_scenes(*self.rng.sample(SCENES, self.rng.randrange(2, 4)))

    def join(self) -> None:
        facts = [fact.id for fact in self.world.memory.canon.facts.values()]
        if len(facts) > 1:
            self.world.join(*self.rng.sample(facts, 2))

    def compare(self) -> None:
        self.world.compare()

    def retract(self) -> None:
        self._correct(plan_retraction)

    def correct(self) -> None:
        start = MONDAY if self.rng.random() < 0.3 else None
        self._correct(partial(plan_correction, change=Change(self.text(), start)))

    def pin(self) -> None:
        self._correct(plan_pin)

    def unpin(self) -> None:
        self._correct(plan_unpinning, pinned=True)

    def _correct(self, plan: Callable[..., object], *, pinned: bool = False) -> None:
        facts = [fact for fact in self.world.memory.canon.facts.values() if fact.pinned or not pinned]
        if facts:
            self.world.correct(self.rng.choice(facts), plan)  # type: ignore[arg-type]

    def revise(self) -> None:
        turn = self.turn()
        if turn is not None:
            seq = self.world.memory.user_seq
            self.world.write(a_revision(self.text(), turn[0], revision=seq, session_id=turn[1]))

    def take_back(self) -> None:
        turn = self.turn()
        if turn is not None:
            self.world.write(a_retraction(*turn))

    def turn(self) -> tuple[str, str] | None:
        """A turn that stands, and its session."""
        keys = {KEYS.key(f"turn/alice/{session}/t{n}/0"): (f"t{n}", session)
                for session in ("s1", "s2", "s3", "s4")
                for n in range(1, self.world.turns + 1)}  # fmt: skip
        placed = [keys[key] for key in self.world.memory.transcript.placed if key in keys]
        return self.rng.choice(placed) if placed else None

    def forget(self) -> None:
        if self.rng.random() < 0.5:
            self.world.write(a_forgetting(self.session()))

    def replay(self) -> None:
        sessions = sorted(self.world.memory.session_ids)
        if sessions:
            self.world.replay(self.rng.choice(sessions), *self.read(1))


@pytest.mark.parametrize("part", range(4))
def test_the_growing_memory_equals_the_rebuilt_one_in_random_histories(part: int, tmp_path: Path) -> None:
    only = os.environ.get("CORRECTION_SEED")
    for seed in [int(only)] if only else range(part, HISTORIES, 4):
        rng = random.Random(seed)
        with closing(open_writer(tmp_path / f"{seed}.db", MONDAY, SECRET)) as connection:
            connection.execute("PRAGMA synchronous = OFF")
            history = History(FactWorld(connection), rng)
            done: list[str] = []
            try:
                for _ in range(STEPS):
                    done.append(history.step())
                    if rng.random() < 0.2:
                        check(history.world)
                check(history.world)
            except BaseException:
                print(f"CORRECTION_SEED={seed}: {' '.join(done)}")
                raise
