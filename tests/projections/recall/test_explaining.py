"""An explanation adds up: its numbers make the scores of the answer, and every fate is told and true."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest

from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from projections.recall.answering import RecallRequest, recall
from projections.recall.explaining import CANDIDATES_MAX, Explained, explain
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id

WORDS = ["miami", "boston", "rex", "nate", "swims", "runs"]
MINUTE_MS = 60_000


def add(nodes: NodeSet, name: str, text: str, *turns: int, session: str = "s1") -> bytes:
    at = MONDAY + turns[0] * MINUTE_MS
    sessions = frozenset((KEYS.session("alice", session),))
    node = SearchNode(an_id(name), NodeKind.CHUNK, TurnsText(turns), turns, sessions, at, at, at, len(text))
    nodes.add(node, text)
    return node.id


def fill(seed: int, count: int = 60) -> NodeSet:
    chance = random.Random(seed)
    nodes = NodeSet()
    for n in range(count):
        turns = (n,) if chance.random() < 0.5 else (n, n + 1)
        add(nodes, f"n{n}", " ".join(chance.choices(WORDS, k=4)), *turns, session=f"s{n // 7}")
    vectors = np.random.default_rng(seed).normal(size=(count, 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes.set_vectors([an_id(f"n{n}") for n in range(count)], vectors)
    return nodes


def explained(nodes: NodeSet, request: RecallRequest) -> Explained:
    return explain(nodes, request, recall(nodes, request))


@pytest.mark.parametrize("parameters", [NO_EMBEDDER, ANY_EMBEDDER, replace(ANY_EMBEDDER, smoothing=0.6)])
@pytest.mark.parametrize("budget", [None, 120])
@pytest.mark.parametrize("seed", range(3))
def test_the_numbers_of_a_candidate_make_its_score(
    seed: int, budget: int | None, parameters: AgprParameters
) -> None:
    print("seed", seed)
    nodes = fill(seed)
    vector = np.ones(8, dtype=np.float32) / np.float32(np.sqrt(8))
    request = RecallRequest("Does Rex swim in Miami?", 5, parameters, vector, characters_max=budget)
    found = recall(nodes, request)
    candidates = explain(nodes, request, found).candidates

    assert [each.rank_before for each in candidates] == list(range(1, len(candidates) + 1))
    assert len(candidates) == 20, "L k"
    assert sum(each.anchor for each in candidates) == 1, "lambda k"
    assert max(candidates, key=lambda each: each.similarity).anchor
    for each in candidates:
        assert each.score == pytest.approx(
            parameters.gamma * each.similarity + (1 - parameters.gamma) * each.propagation, abs=2e-5
        )
        around = each.fused + each.smoothing + each.session
        assert each.similarity == pytest.approx(around * (1 + each.named), abs=5e-5)
        assert each.smoothing >= -1e-5
        assert each.bm25 == pytest.approx(sum(each.bm25_by_word.values()), abs=1e-4)
        assert (each.cosine is None) == (parameters.cosine_weight == 0)
    shown = {each.rank: each.node.id for each in candidates if each.rank is not None}
    assert shown == {place + 1: memory.node.id for place, memory in enumerate(found.memories)}


@pytest.mark.parametrize("budget", [None, 60, 120])
@pytest.mark.parametrize("seed", range(6))
def test_what_is_not_in_the_answer_says_truly_why(seed: int, budget: int | None) -> None:
    print("seed", seed)
    nodes = fill(seed)
    request = RecallRequest("Does Rex swim in Miami?", 4, NO_EMBEDDER, characters_max=budget)
    found = recall(nodes, request)
    turns_of = {memory.node.id: set(memory.node.turns) for memory in found.selected}
    for each in explain(nodes, request, found).candidates:
        assert (each.rank is None) == (each.dropped is not None)
        if each.dropped == "carried":
            assert each.carried_by
            assert all(turns_of[carrier] & set(each.node.turns) for carrier in each.carried_by)
            assert set(each.node.turns) <= set().union(*(turns_of[carrier] for carrier in each.carried_by))
        elif each.dropped == "budget":
            assert budget is not None
            assert each.node.id in turns_of
        elif each.dropped == "rank":
            assert len(found.memories) == 4 or budget is not None


def test_words_are_those_of_the_question_and_not_those_of_the_index() -> None:
    nodes = NodeSet()
    add(nodes, "a", "Rex swims.", 1)
    add(nodes, "b", "Kim moved to Miami.", 2)
    found = explained(nodes, RecallRequest("Who is swimming, Rex?", 2, NO_EMBEDDER))

    assert [(word.word, word.nodes) for word in found.words] == [("swimming", 1), ("Rex", 1)]
    assert set(found.candidates[0].bm25_by_word) == {"swimming", "Rex"}
    assert found.candidates[1].bm25_by_word == {}


def test_two_words_that_are_searched_as_one_count_once() -> None:
    nodes = NodeSet()
    add(nodes, "a", "Rex swims.", 1)
    (candidate,) = explained(
        nodes, RecallRequest("Swimming, swims, swim? Rex, REX's Rex", 2, NO_EMBEDDER)
    ).candidates

    assert list(candidate.bm25_by_word) == ["Swimming", "Rex"]
    assert candidate.bm25 == pytest.approx(sum(candidate.bm25_by_word.values()), abs=1e-4)


def test_a_word_that_nobody_said_is_told_with_its_weight() -> None:
    nodes = NodeSet()
    add(nodes, "a", "Rex swims.", 1)
    (word,) = explained(nodes, RecallRequest("Zanzibar?", 2, NO_EMBEDDER)).words

    assert (word.word, word.nodes) == ("Zanzibar", 0)
    assert word.weight > 0


def test_candidates_are_bounded_and_what_is_left_off_is_counted() -> None:
    found = explained(fill(1, 300), RecallRequest("rex", 100, NO_EMBEDDER))

    assert (len(found.candidates), found.left_off) == (CANDIDATES_MAX, 100)


def test_an_empty_memory_has_an_empty_explanation() -> None:
    found = explained(NodeSet(), RecallRequest("rex", 10, NO_EMBEDDER))

    assert (found.candidates, found.left_off, [each.nodes for each in found.filters]) == ([], 0, [0])
