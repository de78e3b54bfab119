"""Routing to scenes: hand-made vectors with known answers, and a plain oracle, one fact at a time with loops."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from events.decisions import Route, SceneId, Thresholds
from events.memory import FactId
from projections.facts.scene_planning import Arrival, SceneSum, plan_routes, plan_scene_merges
from projections.facts.scenes import found_scene
from tests.builders import MONDAY, an_id
from tests.counting import count_calls

DAY_MS = 86_400_000
# The reference's, for its embedder.
THRESHOLDS = Thresholds(near=93_000, assign=65_000, second=55_000, spawn=50_000, merge=88_000)
# Between two thresholds that are equal there is no room for a bonus.
TIMELESS = THRESHOLDS._replace(spawn=65_000)
FAR_MS = 400 * DAY_MS


def at_angle(degrees: float) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    """A unit vector of two dimensions."""
    return np.array([math.cos(math.radians(degrees)), math.sin(math.radians(degrees))], np.float32)


def a_scene(name: str, degrees: float, size: int = 1, at: int = MONDAY) -> SceneSum:
    return SceneSum(an_id(name), at_angle(degrees) * np.float32(size), size, at)


def an_arrival(name: str, degrees: float, at: int = MONDAY) -> Arrival:
    return Arrival(an_id(name), at_angle(degrees), at)


def routed(arrival: Arrival, *scenes: SceneSum, thresholds: Thresholds = THRESHOLDS) -> tuple[SceneId, ...]:
    (route,) = plan_routes([arrival], scenes, thresholds)
    assert route.fact == arrival.fact
    return route.scenes


def test_a_fact_goes_to_the_nearest_scene() -> None:
    north, east = a_scene("north", 90), a_scene("east", 0)

    assert routed(an_arrival("f", 20), north, east) == (east.id,)
    assert routed(an_arrival("f", 70), north, east) == (north.id,)


def test_a_fact_near_two_scenes_is_in_both_the_nearest_first() -> None:
    # cos 30 = .866 and cos 50 = .643: at or above assign, and at or above second.
    one, other = a_scene("one", 0), a_scene("other", 80)

    assert routed(an_arrival("f", 30), one, other, thresholds=TIMELESS) == (one.id, other.id)
    # cos 60 = .5 is below second.
    assert routed(an_arrival("f", 20), one, other, thresholds=TIMELESS) == (one.id,)


def test_of_three_near_scenes_a_fact_is_in_two() -> None:
    scenes = [a_scene(name, degrees) for name, degrees in (("a", 0), ("b", 10), ("c", 20))]

    assert routed(an_arrival("f", 2), *scenes) == (scenes[0].id, scenes[1].id)


def test_a_fact_that_is_far_from_all_founds_a_scene() -> None:
    lonely = an_arrival("f", 90)

    assert routed(lonely, a_scene("east", 0)) == (found_scene(lonely.fact),)
    assert routed(lonely) == (found_scene(lonely.fact),)


def test_between_spawn_and_assign_only_scenes_below_half_of_the_cap_accept() -> None:
    between = an_arrival("f", 55, MONDAY + FAR_MS)  # cos 55 = .574

    assert routed(between, a_scene("small", 0, 29)) == (an_id("small"),)
    assert routed(between, a_scene("half", 0, 30)) == (found_scene(between.fact),)
    # The nearest that does, not the nearest of all.
    assert routed(between, a_scene("half", 0, 30), a_scene("small", -1, 29)) == (an_id("small"),)


def test_a_full_scene_accepts_nothing() -> None:
    fact = an_arrival("f", 0)
    full, room, other = a_scene("full", 0, 60), a_scene("room", 0, 59), a_scene("other", 30)

    assert routed(fact, full) == (found_scene(fact.fact),)
    assert routed(fact, room) == (room.id,)
    assert routed(fact, full, other) == (other.id,)
    # Nor as the second one.
    assert routed(fact, other, a_scene("also full", 31, 60)) == (other.id,)


def test_what_belongs_to_a_full_scene_founds_another_rather_than_joining_a_lesser_fit() -> None:
    fact = an_arrival("f", 0, MONDAY + FAR_MS)
    full, lesser = a_scene("full", 5, 60), a_scene("lesser", 55, 2)

    assert routed(fact, lesser) == (lesser.id,)
    assert routed(fact, full, lesser) == (found_scene(fact.fact),)


def test_a_scene_fills_up_within_one_plan() -> None:
    facts = [an_arrival(f"f{n}", 0) for n in range(70)]
    routes = plan_routes(facts, [a_scene("subject", 0, 50)], THRESHOLDS)

    assert [route.scenes for route in routes[:10]] == [(an_id("subject"),)] * 10
    assert {route.scenes for route in routes[10:]} == {(found_scene(facts[10].fact),)}


def test_being_said_at_the_same_time_makes_a_scene_nearer() -> None:
    # cos 51 = .629; half the way between .50 and .65 is .075, a quarter of the horizon takes a quarter of it.
    scene = a_scene("s", 0, 30)

    assert routed(an_arrival("f", 51, MONDAY), scene) == (scene.id,)
    assert routed(an_arrival("f", 51, MONDAY - 11 * DAY_MS), scene) == (scene.id,)
    assert routed(an_arrival("f", 51, MONDAY + 45 * DAY_MS), scene) == (found_scene(an_id("f")),)


def test_time_alone_never_carries_a_fact_past_both_thresholds() -> None:
    narrow = THRESHOLDS._replace(assign=56_000, second=56_000)
    # cos 61 = .485 is below spawn; with the .08 of the reference it would be above assign.
    fact, scene = an_arrival("f", 61), a_scene("s", 0, 30)

    assert routed(fact, scene, thresholds=narrow) == (found_scene(fact.fact),)


def test_a_scene_follows_its_members() -> None:
    # Each is 40 degrees from the one before: cos 80 = .174 from the first, but the centroid moves along.
    facts = [an_arrival("f0", 0), an_arrival("f1", 40), an_arrival("f2", 65)]
    first = found_scene(facts[0].fact)

    assert [route.scenes for route in plan_routes(facts, [], TIMELESS)] == [(first,)] * 3
    # cos 65 = .423
    assert [route.scenes[0] for route in plan_routes(facts[::2], [], TIMELESS)] == [
        first,
        found_scene(facts[2].fact),
    ]


def test_a_tie_goes_to_the_lower_id_whatever_the_order() -> None:
    scenes = [a_scene(name, 0) for name in ("a", "b", "c")]
    lowest, next_one, _ = sorted(scene.id for scene in scenes)

    assert routed(an_arrival("f", 0), *scenes) == (lowest, next_one)
    assert routed(an_arrival("f", 0), *reversed(scenes)) == (lowest, next_one)


def test_a_fact_that_founds_a_scene_again_gets_another_id() -> None:
    fact = an_arrival("f", 90)
    own = SceneSum(found_scene(fact.fact), at_angle(0), 1, MONDAY)
    (route,) = plan_routes([fact], [], THRESHOLDS, taken=[found_scene(fact.fact)])

    assert routed(fact, own) == route.scenes != (own.id,)
    assert route.scenes == (found_scene(fact.fact, [own.id]),)


def test_a_vector_of_zeros_is_near_nothing_and_breaks_nothing() -> None:
    empty = Arrival(an_id("f"), np.zeros(2, np.float32), MONDAY + FAR_MS)
    scenes = [SceneSum(an_id("void"), np.zeros(2, np.float32), 2, MONDAY), a_scene("s", 0)]

    assert routed(empty, *scenes) == (found_scene(empty.fact),)
    assert plan_scene_merges(scenes, THRESHOLDS) == ()


def test_nothing_to_route_is_no_plan() -> None:
    assert plan_routes([], [a_scene("s", 0)], THRESHOLDS) == ()


@pytest.mark.parametrize("count", [24, 90])
def test_many_facts_at_once_make_the_same_scenes_in_whatever_order_they_come(count: int) -> None:
    # Three subjects, 120 degrees apart, each spread over 40; one by one, the order would decide: 25 and 60 and 95.
    degrees = [subject * 120 + 40 * n / (count // 3 - 1) for subject in range(3) for n in range(count // 3)]
    facts = [an_arrival(f"f{n}", each) for n, each in enumerate(degrees)]
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(10):
        shuffled = chance.sample(facts, len(facts))
        scenes = scenes_of(plan_routes(shuffled, [], TIMELESS))

        assert {frozenset(members) for members in scenes.values()} == {
            frozenset(fact.fact for fact in facts[start : start + count // 3])
            for start in range(0, count, count // 3)
        }


def test_a_bootstrap_leaves_every_scene_that_was_there() -> None:
    before = [a_scene("old", 0, 15), a_scene("other", 180, 1)]
    facts = [an_arrival(f"f{n}", 90 + n) for n in range(30)]
    routes = plan_routes(facts, before, TIMELESS)

    assert [route.fact for route in routes] == [fact.fact for fact in facts]
    assert {scene for route in routes for scene in route.scenes}.isdisjoint({an_id("old"), an_id("other")})
    # What is near an old scene joins it, and founds none.
    near = [an_arrival(f"n{n}", n) for n in range(30)]
    assert set(scenes_of(plan_routes(near, before, TIMELESS))) == {an_id("old")}


def test_scenes_that_are_very_close_are_merged_into_the_larger_one() -> None:
    small, large, far = a_scene("small", 0, 2), a_scene("large", 10, 3), a_scene("far", 90, 1)

    assert plan_scene_merges([small, large, far], THRESHOLDS) == ((large.id, (small.id,)),)


def test_scenes_whose_members_do_not_fit_in_one_stay_two() -> None:
    assert plan_scene_merges([a_scene("a", 0, 31), a_scene("b", 0, 30)], THRESHOLDS) == ()
    assert len(plan_scene_merges([a_scene("a", 0, 30), a_scene("b", 0, 30)], THRESHOLDS)) == 1


def test_the_closest_pair_is_merged_first_and_each_scene_once_a_round() -> None:
    scenes = [a_scene(name, degrees) for name, degrees in (("a", 0), ("b", 10), ("c", 16), ("d", 30))]
    kept, absorbed = sorted((an_id("b"), an_id("c")))

    assert plan_scene_merges(scenes, THRESHOLDS) == ((kept, (absorbed,)),)
    # `a` and `d` are cos 30 = .866 apart.
    assert len(plan_scene_merges(scenes, THRESHOLDS._replace(merge=86_000))) == 2


def test_only_pairs_with_a_scene_that_changed_are_looked_at() -> None:
    scenes = [a_scene(name, degrees) for name, degrees in (("a", 0), ("b", 1), ("c", 90), ("d", 91))]
    (merge,) = plan_scene_merges(scenes, THRESHOLDS, touched=[an_id("c")])

    assert {merge[0], *merge[1]} == {an_id("c"), an_id("d")}
    assert plan_scene_merges(scenes, THRESHOLDS, touched=[]) == ()
    assert len(plan_scene_merges(scenes, THRESHOLDS)) == 2


def scenes_of(routes: Sequence[Route]) -> dict[SceneId, set[FactId]]:
    members: dict[SceneId, set[FactId]] = {}
    for route in routes:
        for scene in route.scenes:
            members.setdefault(scene, set()).add(route.fact)
    return members


@dataclass
class PlainScene:
    """A scene of the oracle."""

    id: SceneId
    total: list[float]
    size: int
    last_at: int

    def cosine(self, vector: Sequence[float]) -> float:
        return dot(self.total, vector) / math.hypot(*self.total) / math.hypot(*vector)


def dot(one: Sequence[float], other: Sequence[float]) -> float:
    return sum(a * b for a, b in zip(one, other, strict=True))


def parts(cosine: float) -> int:
    return round(cosine * 100_000)


def plainly(arrivals: Sequence[Arrival], scenes: Sequence[SceneSum], thresholds: Thresholds) -> list[Route]:
    """The rule as it is told, one fact at a time."""
    now = [PlainScene(each.id, [float(x) for x in each.total], each.size, each.last_at) for each in scenes]
    vectors = {each.fact: [float(x) for x in each.vector] for each in arrivals}
    founders = plain_seeds(vectors, now, thresholds) if 24 <= len(arrivals) > len(scenes) else []
    at = {each.fact: each.at for each in arrivals}
    now += [PlainScene(found_scene(fact), vectors[fact], 1, at[fact]) for fact in founders]
    routes: list[Route] = []
    for arrival in arrivals:
        if arrival.fact in founders:
            routes.append(Route(arrival.fact, (found_scene(arrival.fact),)))
            continue
        vector = vectors[arrival.fact]
        most = min(8_000, (thresholds.assign - thresholds.spawn) // 2)
        scored: list[tuple[int, SceneId, PlainScene]] = []
        for scene in now:
            apart = abs(arrival.at - scene.last_at)
            bonus = most * (45 * DAY_MS - apart) // (45 * DAY_MS) if apart < 45 * DAY_MS else 0
            scored.append((-parts(scene.cosine(vector)) - bonus, scene.id, scene))
        scored.sort(key=lambda each: each[:2])
        sure = [scene for score, _, scene in scored if -score >= thresholds.assign]
        chosen = [scene for scene in sure if scene.size < 60][:1]
        if chosen:
            second = [scene for score, _, scene in scored if -score >= thresholds.second and scene.size < 60]
            chosen = second[:2]
        elif not sure:
            chosen = [scene for score, _, scene in scored if -score >= thresholds.spawn and scene.size < 30][:1]
        if not chosen:
            chosen = [PlainScene(found_scene(arrival.fact), [0.0] * len(vector), 0, arrival.at)]
            now += chosen
        for scene in chosen:
            scene.total = [a + b for a, b in zip(scene.total, vector, strict=True)]
            scene.size += 1
            scene.last_at = max(scene.last_at, arrival.at)
        routes.append(Route(arrival.fact, tuple(scene.id for scene in chosen)))
    return routes


def plain_seeds(
    vectors: dict[FactId, list[float]], scenes: Sequence[PlainScene], thresholds: Thresholds
) -> list[FactId]:
    """Farthest first, until nothing is far."""
    sample = sorted(vectors)[:400]
    seeds: list[FactId] = []

    def nearest(fact: FactId) -> int:
        to_scenes = [parts(scene.cosine(vectors[fact])) for scene in scenes if scene.size < 60]
        return max(to_scenes + [parts(dot(vectors[fact], vectors[seed])) for seed in seeds])

    if not [scene for scene in scenes if scene.size < 60]:
        among = {fact: sum(parts(dot(vectors[fact], vectors[each])) for each in sample) for fact in sample}
        seeds.append(min(sample, key=lambda fact: (among[fact], fact)))
    while True:
        far = {fact: nearest(fact) for fact in sample if fact not in seeds}
        far = {fact: near for fact, near in far.items() if near < thresholds.spawn}
        if not far:
            return seeds
        seeds.append(min(far, key=lambda fact: (far[fact], fact)))


def a_unit_vector(chance: random.Random, dimensions: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
    vector = np.array([chance.gauss(0, 1) for _ in range(dimensions)])
    return np.array(vector / np.linalg.norm(vector), np.float32)


def test_plans_are_those_of_the_oracle() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    for turn in range(120):
        dimensions = chance.choice([2, 3, 4])
        assign, second, spawn = sorted((chance.randrange(40_000, 95_000) for _ in range(3)), reverse=True)
        thresholds = THRESHOLDS._replace(assign=assign, second=second, spawn=spawn)
        scenes = [
            SceneSum(
                an_id(f"s{turn}.{n}"),
                a_unit_vector(chance, dimensions) * np.float32(size),
                size,
                MONDAY + chance.randrange(90) * DAY_MS,
            )
            for n in range(chance.choice([0, 1, 5, 20]))
            for size in [chance.choice([1, 2, 28, 29, 30, 58, 59, 60])]
        ]
        arrivals = [
            Arrival(
                an_id(f"f{turn}.{n}"), a_unit_vector(chance, dimensions), MONDAY + chance.randrange(90) * DAY_MS
            )
            for n in range(chance.choice([1, 3, 23, 24, 40, 70]))
        ]

        assert list(plan_routes(arrivals, scenes, thresholds)) == plainly(arrivals, scenes, thresholds)


def test_merges_are_those_of_an_oracle_that_looks_at_every_pair() -> None:
    seed = random.randrange(10**6)
    print("seed", seed)
    chance = random.Random(seed)
    for turn in range(60):
        scenes = [
            SceneSum(an_id(f"s{turn}.{n}"), a_unit_vector(chance, 3) * np.float32(size), size, MONDAY)
            for n in range(chance.choice([0, 1, 2, 12, 40]))
            for size in [chance.choice([1, 2, 20, 30, 40, 59, 60])]
        ]
        totals = {scene.id: [float(x) for x in scene.total] for scene in scenes}
        pairs = sorted(
            (-parts(PlainScene(a.id, totals[a.id], 1, 0).cosine(totals[b.id])), a.id, b.id, a.size, b.size)
            for a in scenes
            for b in scenes
            if a.id < b.id and a.size + b.size <= 60
        )
        expected: list[tuple[SceneId, tuple[SceneId, ...]]] = []
        used: set[SceneId] = set()
        for score, one, other, size, other_size in pairs:
            if -score >= 88_000 and not used & {one, other}:
                used |= {one, other}
                expected.append((other, (one,)) if other_size > size else (one, (other,)))

        assert plan_scene_merges(scenes, THRESHOLDS) == tuple(expected)


def test_the_same_question_has_the_same_answer_to_the_bit() -> None:
    chance = random.Random(7)
    vectors = [a_unit_vector(chance, 64) for _ in range(300)]
    arrivals = [Arrival(an_id(f"f{n}"), vector, MONDAY) for n, vector in enumerate(vectors)]
    copies = [Arrival(each.fact, each.vector.copy(), each.at) for each in arrivals]

    assert plan_routes(arrivals, [], THRESHOLDS) == plan_routes(copies, [], THRESHOLDS)


def test_the_first_400_facts_of_1024_dimensions_are_routed_with_some_fifty_calls_each() -> None:
    """The reference multiplied in plain Python, which took 58 s for the same (reference-code.md B8)."""
    chance = np.random.default_rng(1)
    centres = chance.standard_normal((40, 1024)).astype(np.float32)
    rows = centres[chance.integers(40, size=400)] + 0.7 * chance.standard_normal((400, 1024)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    arrivals = [Arrival(an_id(f"f{n}"), row.astype(np.float32), MONDAY) for n, row in enumerate(rows)]
    routes: list[Route] = []
    calls = count_calls(lambda: routes.extend(plan_routes(arrivals, [], THRESHOLDS)))

    assert len(scenes_of(routes)) == 40
    assert calls < 100 * len(arrivals)
