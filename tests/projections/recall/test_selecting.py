"""Which ranked memories are shown: what others carry goes, what people said comes first, what fits."""

from __future__ import annotations

import random

import msgspec
import pytest

from events.memory import Pointer
from projections.recall.nodes import NodeKind, SearchNode
from projections.recall.selecting import SHORTER_SCORE_MIN, Ranked, drop_carried, fit, put_first
from projections.texts import FactText, TurnsText
from tests.builders import KEYS, MONDAY, an_id

S1 = frozenset((KEYS.session("alice", "s1"),))


def a_node(name: str, *turns: int, length: int = 10, kind: NodeKind = NodeKind.FACT) -> SearchNode:
    ref = TurnsText(turns) if kind is NodeKind.CHUNK else FactText(Pointer(9, 0))
    at = MONDAY + turns[0] * 60_000
    return SearchNode(an_id(name), kind, ref, turns, S1, at, at, at, length)


def ranked(*nodes: SearchNode) -> list[Ranked]:
    """Memories with these nodes, best first."""
    return [Ranked(node, 1 - place / 10, 0.5, 0.5) for place, node in enumerate(nodes)]


def names(memories: list[Ranked], nodes: tuple[SearchNode, ...]) -> list[int]:
    """Which of the nodes the memories are."""
    return [nodes.index(memory.node) for memory in memories]


def dropped(*nodes: SearchNode, by_length: bool = False) -> list[int]:
    return names(drop_carried(ranked(*nodes), by_length=by_length), nodes)


def test_a_memory_whose_turns_a_better_one_carries_is_dropped() -> None:
    assert dropped(a_node("chunk", 1, 2), a_node("fact", 1), a_node("other", 3)) == [0, 2]


def test_a_memory_whose_turns_several_better_ones_carry_together_is_dropped() -> None:
    assert dropped(a_node("a", 1, 2), a_node("b", 3, 4), a_node("c", 2, 3)) == [0, 1]


def test_a_memory_that_carries_a_better_ones_turns_and_more_takes_its_place() -> None:
    assert dropped(a_node("fact", 1), a_node("other", 5), a_node("chunk", 1, 2)) == [2, 1]


def test_what_the_taker_of_a_place_carries_besides_is_dropped() -> None:
    assert dropped(a_node("one", 1), a_node("two", 2), a_node("far", 9), a_node("both", 1, 2)) == [3, 2]


def a_chunk(name: str, *turns: int) -> SearchNode:
    return a_node(name, *turns, kind=NodeKind.CHUNK)


def a_group(name: str, *turns: int) -> SearchNode:
    return a_node(name, *turns, kind=NodeKind.GROUP)


def test_a_group_takes_no_place_of_a_chunk_since_it_says_a_part_of_each_turn() -> None:
    assert dropped(a_chunk("chunk", 1, 2), a_group("group", 1, 2, 3)) == [0, 1]


def test_a_chunk_is_not_carried_by_groups_and_facts() -> None:
    assert dropped(a_group("group", 1, 2, 9), a_chunk("chunk", 1, 2)) == [0, 1]
    assert dropped(a_node("fact", 1, 8), a_node("other", 2, 9), a_chunk("chunk", 1, 2)) == [0, 1, 2]


def test_a_chunk_takes_the_place_of_a_fact_of_the_same_turns() -> None:
    assert dropped(a_node("fact", 1, 2), a_node("other", 5), a_chunk("chunk", 1, 2)) == [2, 1]


def test_a_group_gives_its_place_to_the_chunk_with_which_all_its_turns_are_in_chunks() -> None:
    first, group, far, second = (
        a_chunk("first", 1, 2),
        a_group("group", 2, 3),
        a_chunk("far", 8),
        a_chunk("second", 3, 4),
    )

    assert dropped(first, group, far, second) == [0, 3, 2]


def test_a_group_keeps_its_place_where_a_chunk_that_it_needs_stands_below_it() -> None:
    """An answer of two would otherwise show nothing of turn 2."""
    group, second, first = a_group("group", 2, 3), a_chunk("second", 3, 4), a_chunk("first", 1, 2)

    assert dropped(group, second, first) == [0, 1, 2]


@pytest.mark.parametrize("seed", range(10))
def test_every_chunk_is_shown_in_an_answer_of_k_and_no_fact_or_group_that_better_ones_carry(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    chunks = [a_chunk(f"c{n}", 2 * n, 2 * n + 1) for n in range(6)]
    made = [
        a_node(f"n{n}", *sorted(chance.sample(range(12), chance.randint(1, 3))), kind=kind)
        for n, kind in enumerate([NodeKind.FACT, NodeKind.GROUP] * 10)
    ]
    nodes = tuple(chance.sample(chunks + made, len(chunks) + len(made)))
    kept = [memory.node for memory in drop_carried(ranked(*nodes))]
    carried: set[int] = set()
    for node in kept:
        assert node.kind is NodeKind.CHUNK or not set(node.turns) <= carried
        carried |= set(node.turns)

    assert {chunk.id for chunk in chunks} <= {node.id for node in kept}


def test_equal_turns_keep_the_better_one() -> None:
    assert dropped(a_node("long", 1, length=50), a_node("short", 1, length=5)) == [0]


def test_by_length_the_shorter_of_equal_turns_takes_the_better_ones_place_and_rank() -> None:
    nodes = (a_node("long", 1, length=50), a_node("other", 5), a_node("short", 1, length=5))
    kept = drop_carried(ranked(*nodes), by_length=True)

    assert names(kept, nodes) == [2, 1]
    assert kept[0].score == 1.0


@pytest.mark.parametrize(("share", "kept"), [(1.0, 1), (SHORTER_SCORE_MIN, 1), (SHORTER_SCORE_MIN - 0.01, 0)])
def test_by_length_a_shorter_one_that_scores_far_less_takes_no_place(share: float, kept: int) -> None:
    """It may say another sentence of the turn than the one asked for."""
    nodes = (a_node("long", 1, length=50), a_node("short", 1, length=5))
    memories = [Ranked(nodes[0], 2.0, 2.0, 0.0), Ranked(nodes[1], 2.0 * share, 2.0 * share, 0.0)]

    assert names(drop_carried(memories, by_length=True), nodes) == [kept]


def test_by_length_a_longer_memory_takes_no_place_for_carrying_more() -> None:
    assert dropped(a_node("fact", 1), a_node("chunk", 1, 2, length=50), by_length=True) == [0, 1]
    assert dropped(a_node("chunk", 1, 2, length=50), a_node("fact", 1), by_length=True) == [0]


@pytest.mark.parametrize("by_length", [False, True])
@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_lost_and_nothing_is_carried_twice(seed: int, by_length: bool) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes = tuple(
        a_node(f"n{n}", *sorted(chance.sample(range(12), chance.randint(1, 4))), length=chance.randint(1, 99))
        for n in range(30)
    )
    kept = drop_carried(ranked(*nodes), by_length=by_length)
    carried: set[int] = set()
    for memory in kept:
        assert not set(memory.node.turns) <= carried
        carried |= set(memory.node.turns)

    assert carried == {turn for node in nodes for turn in node.turns}


@pytest.mark.parametrize(("characters", "count"), [(0, 0), (24, 0), (25, 1), (59, 1), (60, 2), (79, 2), (80, 3)])
def test_the_longest_prefix_that_fits_is_kept(characters: int, count: int) -> None:
    """Of each line 15 characters are `[1 July 2024] ` and the line's end."""
    memories = ranked(a_node("a", 1), a_node("b", 2, length=20), a_node("c", 3, length=5))

    assert list(fit(memories, characters)) == memories[:count]


def stated(name: str, *turns: int) -> SearchNode:
    return msgspec.structs.replace(a_node(name, *turns), stated=True)


def test_what_a_person_said_of_a_fact_stands_before_the_turns_it_is_about() -> None:
    chunk, other, corrected = a_node("chunk", 1, 2), a_node("other", 5), stated("corrected", 2)

    first, second, third = put_first([], [corrected], ranked(chunk, other))

    assert [each.node for each in (first, second, third)] == [corrected, chunk, other]
    assert first.score == second.score


def test_what_a_person_said_keeps_a_better_rank_of_its_own_and_is_shown_once() -> None:
    chunk, corrected = a_node("chunk", 1, 2), stated("corrected", 2)
    best, second = ranked(corrected, chunk)

    assert put_first([best], [corrected], [second]) == [best, second]


def test_what_a_person_said_is_shown_by_itself_when_none_of_its_turns_is() -> None:
    elsewhere, corrected = a_node("elsewhere", 9), stated("corrected", 2)
    first, second = ranked(elsewhere, corrected)

    assert put_first([second], [corrected], [first]) == [first, second]
