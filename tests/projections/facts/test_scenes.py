"""Scenes as they are folded: where facts are, what a merge keeps, and random histories against a plain oracle."""

from __future__ import annotations

import random
from collections.abc import Iterable
from dataclasses import dataclass, field

import pytest

from events.decisions import FactsRouted, Route, SceneId, ScenesMerged
from events.memory import FactId
from projections.facts.scenes import Scenes, found_scene, scene_scope
from projections.facts.scopes import Scope, ScopeChange
from tests.builders import an_id

F, G, H = (an_id(name) for name in "FGH")
A, B, C, D = (an_id(name) for name in "ABCD")


def routing(*routes: tuple[FactId, tuple[SceneId, ...]]) -> FactsRouted:
    return FactsRouted(1, tuple(Route(fact, scenes) for fact, scenes in routes))


def merging(kept: SceneId, *absorbed: SceneId) -> ScenesMerged:
    return ScenesMerged(1, kept, absorbed)


@pytest.fixture
def scenes() -> Scenes:
    """Three facts, none of them routed."""
    scenes = Scenes()
    for fact in (F, G, H):
        scenes.add_fact(fact)
    return scenes


def route(scenes: Scenes, *routes: tuple[FactId, tuple[SceneId, ...]]) -> list[ScopeChange]:
    return scenes.route(routing(*routes), {F, G, H})


def test_facts_wait_to_be_routed_in_the_order_in_which_they_were_founded(scenes: Scenes) -> None:
    before = list(scenes.unrouted)
    changes = route(scenes, (G, (A, B)))

    assert (before, list(scenes.unrouted)) == ([F, G, H], [F, H])
    assert scenes.scenes_of(G) == (A, B)
    assert scenes.members == {A: {G}, B: {G}}
    assert changes == [ScopeChange(scene_scope(each), frozenset({G}), frozenset()) for each in (A, B)]


def test_a_fact_routed_twice_is_in_the_last_ones(scenes: Scenes) -> None:
    route(scenes, (F, (A, B)), (G, (A,)))
    changes = route(scenes, (F, (B, C)))

    assert scenes.scenes_of(F) == (B, C)
    assert scenes.members == {A: {G}, B: {F}, C: {F}}
    assert {change.scope for change in changes} == {scene_scope(A), scene_scope(C)}, "B keeps what it had"
    assert scenes.scenes_of(F) == (B, C)
    # Within one event as well.
    route(scenes, (F, (A,)), (F, (D,)))
    assert scenes.members == {A: {G}, D: {F}}


def test_a_fact_that_is_taken_out_of_all_scenes_waits_for_nothing(scenes: Scenes) -> None:
    route(scenes, (F, (A,)), (G, ()))
    route(scenes, (F, ()))

    assert scenes.members == {}
    assert list(scenes.unrouted) == [H]
    scenes.add_fact(F)  # another reading of it
    assert list(scenes.unrouted) == [H]


def test_what_is_not_known_is_not_routed(scenes: Scenes) -> None:
    unknown = an_id("unknown")

    assert route(scenes, (unknown, (A,))) == []
    scenes.add_fact(unknown)
    assert list(scenes.unrouted) == [F, G, H, unknown]
    assert scenes.members == {}


def test_a_scene_whose_members_are_all_gone_is_gone(scenes: Scenes) -> None:
    route(scenes, (F, (A, B)), (G, (B,)))
    changes = scenes.remove_fact(F)

    assert scenes.members == {B: {G}}
    assert changes == [ScopeChange(scene_scope(each), frozenset(), frozenset({F})) for each in (A, B)]
    assert scenes.scenes_of(F) == ()
    assert scenes.remove_fact(H) == []
    assert list(scenes.unrouted) == []
    scenes.add_fact(F)
    assert list(scenes.unrouted) == [F]


def test_a_merge_loses_no_member(scenes: Scenes) -> None:
    """Reference code, A12: what was in the absorbed cluster alone had no tree any more."""
    route(scenes, (F, (A,)), (G, (B, A)), (H, (B, C)))
    changes = scenes.merge(merging(A, B))

    assert scenes.members == {A: {F, G, H}, C: {H}}
    assert (scenes.scenes_of(G), scenes.scenes_of(H)) == ((A,), (A, C))
    by_scope = {change.scope: change for change in changes}
    assert by_scope[scene_scope(B)] == ScopeChange(scene_scope(B), frozenset(), frozenset({G, H}))
    assert by_scope[scene_scope(A)] == ScopeChange(scene_scope(A), frozenset({H}), frozenset())


def test_what_is_routed_to_an_absorbed_scene_goes_to_the_one_that_kept_it_through_all_merges(
    scenes: Scenes,
) -> None:
    scenes.merge(merging(B, A))
    scenes.merge(merging(C, B))
    route(scenes, (F, (A,)), (G, (B, C)), (H, (C, A)))

    assert scenes.members == {C: {F, G, H}}
    assert {scenes.resolve(each) for each in (A, B, C)} == {C}
    assert scenes.scenes_of(H) == (C,)


def test_merges_in_a_circle_are_one_scene(scenes: Scenes) -> None:
    route(scenes, (F, (A,)), (G, (B,)))
    scenes.merge(merging(A, B))

    assert scenes.merge(merging(B, A)) == []
    assert scenes.merge(merging(A, A)) == []
    assert scenes.members == {A: {F, G}}


def test_a_merge_into_a_scene_that_is_unknown_keeps_the_members_all_the_same(scenes: Scenes) -> None:
    route(scenes, (F, (A,)), (G, (B,)))
    scenes.merge(merging(D, A, B))

    assert scenes.members == {D: {F, G}}


def test_a_fact_founds_a_scene_whose_id_is_not_taken() -> None:
    first = found_scene(F)
    second = found_scene(F, {first})

    assert len({F, first, second, found_scene(G)}) == 4
    assert found_scene(F, {second}) == first


@dataclass
class Plainly:
    """All that happened, and where each fact is because of it, counted anew."""

    happened: list[FactsRouted | ScenesMerged | tuple[str, FactId]] = field(default_factory=list)

    def names(self) -> dict[SceneId, SceneId]:
        """What each scene that was ever merged is called in the end: every merge renames all it takes."""
        names: dict[SceneId, SceneId] = {}
        for event in self.happened:
            if isinstance(event, ScenesMerged):
                for each in (event.kept, *event.absorbed):
                    names.setdefault(each, each)
                taken = {names[each] for each in event.absorbed}
                names.update((name, names[event.kept]) for name in names if names[name] in taken)
        return names

    def places(self) -> tuple[dict[FactId, tuple[SceneId, ...]], list[FactId]]:
        """Where facts are, and those that wait."""
        places: dict[FactId, tuple[SceneId, ...]] = {}
        waiting: list[FactId] = []
        for event in self.happened:
            if isinstance(event, FactsRouted):
                for each in event.routes:
                    if each.fact in places or each.fact in waiting:
                        places[each.fact] = each.scenes
                        waiting = [fact for fact in waiting if fact != each.fact]
            elif isinstance(event, tuple):
                does, fact = event
                if does == "goes":
                    places.pop(fact, None)
                    waiting = [each for each in waiting if each != fact]
                elif fact not in places and fact not in waiting:
                    waiting.append(fact)
        names = self.names()
        return {fact: unique(names.get(each, each) for each in scenes) for fact, scenes in places.items()}, waiting


def unique(scenes: Iterable[SceneId]) -> tuple[SceneId, ...]:
    return tuple(dict.fromkeys(scenes))


def test_random_histories_are_folded_as_a_plain_count_says() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(60):
        facts, names = [an_id(f"f{n}") for n in range(8)], [an_id(f"s{n}") for n in range(6)]
        scenes, plainly, trees = Scenes(), Plainly(), dict[Scope, set[FactId]]()
        known: set[FactId] = set()
        for _ in range(30):
            fact = chance.choice(facts)
            does = chance.choices(["comes", "goes", "routes", "merges"], [4, 1, 6, 1])[0]
            changes: list[ScopeChange] = []
            if does == "routes":
                some = chance.choices(facts, k=chance.randint(1, 3))
                event = routing(*((each, tuple(chance.sample(names, chance.randint(0, 2)))) for each in some))
                plainly.happened.append(event)
                changes = scenes.route(event, known)
            elif does == "merges":
                kept, *absorbed = chance.sample(names, chance.randint(2, 3))
                plainly.happened.append(merging(kept, *absorbed))
                changes = scenes.merge(merging(kept, *absorbed))
            elif does == "comes":
                known.add(fact)
                plainly.happened.append((does, fact))
                scenes.add_fact(fact)
            else:
                known.discard(fact)
                plainly.happened.append((does, fact))
                changes = scenes.remove_fact(fact)
            for change in changes:
                held = trees.setdefault(change.scope, set())
                assert held.isdisjoint(change.joining)
                assert held >= change.leaving
                held |= change.joining
                held -= change.leaving
                if not held:
                    del trees[change.scope]

        places, waiting = plainly.places()
        assert dict(scenes.routes()) == places
        assert list(scenes.unrouted) == waiting
        members: dict[SceneId, set[FactId]] = {}
        for fact, where in places.items():
            for scene in where:
                members.setdefault(scene, set()).add(fact)
        assert scenes.members == members
        assert trees == {scene_scope(scene): held for scene, held in members.items()}
        assert known == places.keys() | set(waiting)
