"""From scores to an answer: what is dropped because others carry it, what fits, and that it repeats exactly."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from events.memory import Pointer
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from projections.recall.answering import ROWS_PER_MEMORY, Recalled, drop_carried, fit, put_first, recall
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import FactText, TurnsText
from tests.builders import KEYS, MONDAY, an_id

S1 = frozenset((KEYS.session("alice", "s1"),))


def a_node(name: str, *turns: int, length: int = 10, kind: NodeKind = NodeKind.FACT) -> SearchNode:
    ref = TurnsText(turns) if kind is NodeKind.CHUNK else FactText(Pointer(9, 0))
    at = MONDAY + turns[0] * 60_000
    return SearchNode(an_id(name), kind, ref, turns, S1, at, at, at, length)


def ranked(*nodes: SearchNode) -> list[Recalled]:
    """Memories with these nodes, best first."""
    return [Recalled(node, 1 - place / 10, 0.5, 0.5) for place, node in enumerate(nodes)]


def names(memories: list[Recalled], nodes: tuple[SearchNode, ...]) -> list[int]:
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


def test_equal_turns_keep_the_better_one() -> None:
    assert dropped(a_node("long", 1, length=50), a_node("short", 1, length=5)) == [0]


def test_by_length_the_shorter_of_equal_turns_takes_the_better_ones_place_and_rank() -> None:
    nodes = (a_node("long", 1, length=50), a_node("other", 5), a_node("short", 1, length=5))
    kept = drop_carried(ranked(*nodes), by_length=True)

    assert names(kept, nodes) == [2, 1]
    assert kept[0].score == 1.0


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


def a_set(seed: int, count: int = 60) -> NodeSet:
    chance = random.Random(seed)
    nodes = NodeSet()
    for turn in range(count):
        words = " ".join(chance.choices(["miami", "boston", "rex", "nate", "swims", "runs"], k=4))
        nodes.add(a_node(f"n{turn}", turn, kind=NodeKind.CHUNK), words)
    return nodes


def test_an_empty_set_answers_nothing() -> None:
    assert recall(NodeSet(), "miami", 10, NO_EMBEDDER) == []


def test_the_memory_that_says_it_comes_first() -> None:
    nodes = NodeSet()
    for turn, text in enumerate(["I like tea.", "I moved to Miami.", "Rex barks."]):
        nodes.add(a_node(text, turn, kind=NodeKind.CHUNK), text)

    assert recall(nodes, "Who moved to Miami?", 3, NO_EMBEDDER)[0].node.id == an_id("I moved to Miami.")


def test_an_answer_has_k_memories_or_all_there_are() -> None:
    nodes = a_set(1)

    assert len(recall(nodes, "rex in miami", 7, NO_EMBEDDER)) == 7
    assert len(recall(nodes, "rex in miami", 200, NO_EMBEDDER)) == len(nodes)


def test_hidden_sessions_are_in_no_answer() -> None:
    assert recall(a_set(1), "miami", 10, NO_EMBEDDER, hidden=S1) == []


def test_a_budget_of_characters_is_kept() -> None:
    # A text of 10 characters behind `[1 July 2024] ` and with its line's end: 25 each.
    memories = recall(a_set(1), "rex", 50, NO_EMBEDDER, characters_max=4 * 25 + 24)

    assert len(memories) == 4


def test_memories_that_others_carry_do_not_cost_a_place() -> None:
    nodes = NodeSet()
    for turn in range(12):
        nodes.add(a_node(f"chunk {turn}", turn, kind=NodeKind.CHUNK), "miami")
        for n in range(ROWS_PER_MEMORY - 1):
            nodes.add(a_node(f"fact {turn}.{n}", turn), "miami")
    memories = recall(nodes, "miami", 4, NO_EMBEDDER)

    assert len({memory.node.turns for memory in memories}) == len(memories) == 4


@pytest.mark.parametrize("seed", range(5))
def test_the_same_nodes_and_question_give_the_same_answer_whatever_stood_there_before(seed: int) -> None:
    print("seed", seed)
    nodes, afresh = a_set(seed), a_set(seed)
    for turn in range(100, 130):
        nodes.add(a_node(f"gone {turn}", turn, kind=NodeKind.CHUNK), "miami zebra")
    for turn in range(100, 130):
        nodes.remove(an_id(f"gone {turn}"))
    vectors = np.random.default_rng(seed).normal(size=(60, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    for each in (nodes, afresh):
        each.set_vectors([an_id(f"n{turn}") for turn in range(60)], vectors)
    for parameters in (NO_EMBEDDER, ANY_EMBEDDER, replace(NO_EMBEDDER, gamma=1.0)):
        one, other = (
            recall(each, "does Rex swim in Miami", 10, parameters, query_vector=vectors[0])
            for each in (nodes, afresh)
        )

        assert one == other
        assert len(one) == 10


def stated(name: str, *turns: int) -> SearchNode:
    return replace(a_node(name, *turns), stated=True)


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


def test_an_answer_of_k_holds_a_correction_in_place_of_what_it_pushes_out() -> None:
    nodes = NodeSet()
    nodes.add(a_node("chunk", 1, 2, kind=NodeKind.CHUNK), "Kim: I live in Paris.")
    nodes.add(stated("corrected", 1), "Kim lives in Zanzibar.")
    nodes.add(a_node("other", 5, kind=NodeKind.CHUNK), "Kim: I like tea.")

    found = recall(nodes, "Is Paris where Kim lives?", 2, AgprParameters())

    assert [memory.node.id for memory in found] == [an_id("corrected"), an_id("chunk")]
