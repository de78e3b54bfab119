"""From a question to an answer: the best first, as many as asked for, and the same again to the last digit."""

from __future__ import annotations

import math
import random
from dataclasses import replace
from typing import Any

import msgspec
import numpy as np
import pytest

from events.memory import Pointer
from projections.recall import answering
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from projections.recall.answering import ROWS_PER_MEMORY, RecallRequest
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.selecting import Recalled
from projections.recall.term_scores import Holding
from projections.texts import FactText, TurnsText
from tests.builders import KEYS, MONDAY, an_id

S1 = frozenset((KEYS.session("alice", "s1"),))


def a_node(name: str, *turns: int, length: int = 10, kind: NodeKind = NodeKind.FACT) -> SearchNode:
    ref = TurnsText(turns) if kind is NodeKind.CHUNK else FactText(Pointer(9, 0))
    at = MONDAY + turns[0] * 60_000
    return SearchNode(an_id(name), kind, ref, turns, S1, at, at, at, length)


def recall(nodes: NodeSet, question: str, k: int, parameters: AgprParameters, **more: Any) -> list[Recalled]:
    """The memories of an answer."""
    return answering.recall(nodes, RecallRequest(question, k, parameters, **more)).memories


def a_set(seed: int, count: int = 60) -> NodeSet:
    chance = random.Random(seed)
    nodes = NodeSet()
    for turn in range(count):
        words = " ".join(chance.choices(["miami", "boston", "rex", "nate", "swims", "runs"], k=4))
        nodes.add(a_node(f"n{turn}", turn, kind=NodeKind.CHUNK), words)
    return nodes


def test_an_opened_group_gives_its_place_to_the_chunk_that_says_what_it_was_found_for() -> None:
    nodes = NodeSet()
    nodes.add(a_node("said", 1, 2, kind=NodeKind.CHUNK), "rex barks when it rains, and so he did")
    nodes.add(a_node("other", 5, 6, kind=NodeKind.CHUNK), "rex sleeps on the sofa all day long")
    facts = a_node("barks", 1), a_node("swims", 30), a_node("runs", 60)
    for fact, text in zip(facts, ("rex barks", "nate swims", "nate runs"), strict=True):
        nodes.add(fact, text)
        nodes.set_aside(fact.id)
    nodes.add_group(a_node("group", 1, 30, 60, kind=NodeKind.GROUP), [fact.id for fact in facts])
    shown = recall(nodes, "rex barks", 2, NO_EMBEDDER, opens=lambda _: True)
    closed = recall(nodes, "rex barks", 2, NO_EMBEDDER)

    assert [each.node.id for each in shown] == [an_id("said"), an_id("other")]
    assert [each.node.kind for each in closed] == [NodeKind.GROUP, NodeKind.CHUNK]


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
    return msgspec.structs.replace(a_node(name, *turns), stated=True)


def test_an_answer_of_k_holds_a_correction_in_place_of_what_it_pushes_out() -> None:
    nodes = NodeSet()
    nodes.add(a_node("chunk", 1, 2, kind=NodeKind.CHUNK), "Kim: I live in Paris.")
    nodes.add(stated("corrected", 1), "Kim lives in Zanzibar.")
    nodes.add(a_node("other", 5, kind=NodeKind.CHUNK), "Kim: I like tea.")

    found = recall(nodes, "Is Paris where Kim lives?", 2, AgprParameters())

    assert [memory.node.id for memory in found] == [an_id("corrected"), an_id("chunk")]


def test_a_node_without_its_vector_does_not_level_the_cosines_of_the_others() -> None:
    """All cosines of some models lie close together, far above 0."""
    nodes = NodeSet()
    for turn in range(40):
        nodes.add(a_node(f"n{turn}", turn), f"Word{turn} Rex.")
    vectors = np.ones((40, 8), dtype=np.float32)
    vectors[:, 0] += np.linspace(0, 1, 40, dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes.set_vectors([an_id(f"n{turn}") for turn in range(40)], vectors)
    parameters = replace(ANY_EMBEDDER, smoothing=0.0)
    request = RecallRequest("Rex", 5, parameters, vectors[39])
    before = [(each.node.id, each.similarity) for each in answering.recall(nodes, request).memories]
    nodes.add(a_node("late", 40), "Rex late.")
    after = [(each.node.id, each.similarity) for each in answering.recall(nodes, request).memories]

    assert [each for each, _ in after] == [each for each, _ in before]
    assert [score for _, score in after] == pytest.approx([score for _, score in before], abs=0.02)


def test_a_candidate_that_has_another_row_by_now_is_shown_and_one_that_is_gone_is_not() -> None:
    nodes, request = a_set(4), RecallRequest("rex in miami", 5, NO_EMBEDDER)
    prepared = answering.prepare(nodes, request)
    leading = answering.score_rows(prepared, request)
    moved, gone = (nodes.node(int(row)) for row in leading.rows[:2])
    nodes.remove(gone.id)
    nodes.remove(moved.id)
    nodes.add(a_node("another", 500), "words")
    nodes.add(moved, "rex in miami")
    found = answering.choose(nodes, request, prepared, leading)

    assert nodes.row_of[moved.id] != leading.rows[0]
    assert moved in [memory.node for memory in found.memories]
    assert gone.id not in [nodes.node(row).id for row in found.rows.tolist()]
    assert len(found.rows) == len(leading.rows) - 1
    assert [nodes.node(row).id for row in found.rows.tolist()] == [
        bytes(prepared.view.ids[row]).ljust(16, b"\0") for row in found.leading.rows
    ]


def test_a_share_of_the_question_is_held_by_the_best_memory_and_by_all_together() -> None:
    nodes = NodeSet()
    for turn, text in enumerate(["rex barks", "rex swims", "nate runs"]):
        nodes.add(a_node(text, turn, kind=NodeKind.CHUNK), text)
    rows = [nodes.row_of[an_id(each)] for each in ("rex barks", "rex swims")]
    # One that nobody says counts as one that a single memory has.
    common, rare = math.log(1 + 1.5 / 2.5), math.log(1 + 2.5 / 1.5)
    total = common + 3 * rare

    best, together = Holding(nodes, ["rex", "bark", "swim", "cow", "rex"]).share(rows)

    assert best == pytest.approx((common + rare) / total)
    assert together == pytest.approx((common + 2 * rare) / total)
    assert Holding(nodes, []).share(rows) == (0.0, 0.0)
