"""Vectors of several models in one node set: never compared with each other, and told on one scale."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from events.envelope import identify
from events.memory import Pointer
from projections.recall.agpr import AgprParameters
from projections.recall.answering import RecallRequest, recall
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.rooms import SearchOptions
from projections.recall.slab import VectorRefused, restore
from projections.recall.spaces import SpaceVectors
from projections.texts import FactText, WrittenText
from tests.builders import KEYS, MONDAY

# By vectors alone, and nothing of time.
VECTORS = AgprParameters(cosine_weight=1.0, gamma=1.0, smoothing=0.0, session_weight=0.0, entity_weight=0.0)
HALF = replace(VECTORS, cosine_weight=0.5)


def an_id(name: str) -> bytes:
    return identify(b"test", name.encode())


def a_node(name: str, space: int = 0, kind: NodeKind = NodeKind.FACT) -> SearchNode:
    seq = int.from_bytes(an_id(name)[:4], "big")
    ref = FactText(Pointer(seq, 0)) if kind is NodeKind.FACT else WrittenText(seq)
    session = frozenset((KEYS.session("alice", "s1"),))
    return SearchNode(an_id(name), kind, ref, (seq,), session, MONDAY, MONDAY, MONDAY, 10, space=space)


def unit(*numbers: float) -> NDArray[np.float32]:
    vector = np.array(numbers, dtype=np.float64)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


def put(nodes: NodeSet, name: str, vector: NDArray[np.float32], space: int = 0, text: str = "words") -> None:
    nodes.add(a_node(name, space), text)
    nodes.set_vectors([an_id(name)], vector.reshape(1, -1), space)


def names_of(nodes: NodeSet, request: RecallRequest, among: list[str]) -> list[str]:
    by_id = {an_id(name): name for name in among}
    return [by_id[memory.node.id] for memory in recall(nodes, request).memories]


def test_vectors_of_two_widths_stand_beside_each_other_and_each_is_asked_by_its_own() -> None:
    nodes = NodeSet()
    put(nodes, "ours near", unit(1, 0.1))
    put(nodes, "ours far", unit(-1, 0))
    put(nodes, "theirs near", unit(0, 0, 1), 1)
    put(nodes, "theirs far", unit(1, 0, -1), 1)
    names = ["ours near", "ours far", "theirs near", "theirs far"]
    ask_us = RecallRequest("nothing", 4, VECTORS, unit(1, 0))
    ask_them = replace(ask_us, query_vector=None, elsewhere={1: unit(0, 0.1, 1)})

    assert names_of(nodes, ask_us, names)[0] == "ours near"
    assert names_of(nodes, ask_us, names)[-1] == "ours far"
    assert names_of(nodes, ask_them, names)[0] == "theirs near"
    assert names_of(nodes, ask_them, names)[-1] == "theirs far"
    assert nodes.count_by_space() == {0: 2, 1: 2}


def test_one_model_gives_high_cosines_to_everything_and_buries_no_other_model_s_memory() -> None:
    """All of theirs lie at .9 of the question, one of ours at .5, where the rest of ours is at 0."""
    nodes = NodeSet()
    chance = np.random.default_rng(7)
    for number in range(20):
        noise = 0.05 * chance.normal(size=8)
        put(nodes, f"theirs {number}", unit(2, 1, *noise), 1)
        put(nodes, f"ours {number}", unit(0, *(1 + noise)))
    put(nodes, "ours, meant", unit(1, *[0.6] * 8))
    names = [*(f"{whose} {n}" for whose in ("ours", "theirs") for n in range(20)), "ours, meant"]
    request = RecallRequest("nothing", 3, VECTORS, unit(1, *[0.0] * 8), elsewhere={1: unit(1, *[0.0] * 9)})

    assert names_of(nodes, request, names)[0] == "ours, meant"


def test_where_no_vector_reaches_words_decide_and_nothing_sinks() -> None:
    """A memory of theirs that holds the word, beside ours a little off: want of a vector does not sink it."""
    nodes = NodeSet()
    put(nodes, "theirs", unit(1, 0, 0), 1, "Rex likes tea")
    for number in range(6):
        put(nodes, f"ours {number}", unit(1, number / 3), 0, "other words")
    names = ["theirs", *(f"ours {n}" for n in range(6))]
    request = RecallRequest("tea", 7, HALF, unit(1, 0))

    assert names_of(nodes, request, names)[0] == "theirs"
    assert recall(nodes, request).leading.cosine is not None


def test_a_memory_at_a_right_angle_to_the_question_has_a_vector_all_the_same() -> None:
    nodes = NodeSet()
    put(nodes, "same", unit(1, 0), 1)
    put(nodes, "other", unit(0, 1), 1)
    request = RecallRequest("nothing", 2, VECTORS, elsewhere={1: unit(1, 0)})

    assert names_of(nodes, request, ["same", "other"]) == ["same", "other"]


def test_a_set_of_one_space_alone_ranks_as_it_did_without_spaces() -> None:
    """Stretched to one scale, deviations are an affine picture of cosines: the order of one space is its own."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = np.random.default_rng(seed)
    plain, apart = NodeSet(), NodeSet()
    names = [f"n{number}" for number in range(40)]
    for name in names:
        vector = unit(*chance.normal(size=6))
        put(plain, name, vector)
        put(apart, name, vector, 1)
    question = unit(*chance.normal(size=6))
    one = recall(plain, RecallRequest("nothing", 40, VECTORS, question)).memories
    other = recall(apart, RecallRequest("nothing", 40, VECTORS, elsewhere={1: question})).memories

    assert [each.node.id for each in one] == [each.node.id for each in other]
    assert [each.similarity for each in one] == pytest.approx([each.similarity for each in other], abs=1e-4)


def test_a_group_has_the_sum_of_its_members_in_their_space() -> None:
    nodes = NodeSet()
    put(nodes, "a", unit(1, 0, 0), 1)
    put(nodes, "b", unit(0, 1, 0), 1)
    for name in ("a", "b"):
        nodes.set_aside(an_id(name))
    nodes.add_group(a_node("g", 1, NodeKind.GROUP), (an_id("a"), an_id("b")), text="both")
    asked = RecallRequest("nothing", 1, VECTORS, elsewhere={1: unit(1, 1, 0)})
    cosine = recall(nodes, asked).leading.cosine
    nodes.remove(an_id("g"))
    for name in ("a", "b"):
        nodes.bring_back(a_node(name, 1))

    assert cosine is not None
    assert cosine[0] == pytest.approx(1, abs=1e-3)
    wanted = {node.id for node in nodes.without_vectors(9, {1})}
    assert wanted == {an_id("a"), an_id("b")}, "the members want theirs again"


def test_a_group_of_two_spaces_waits_for_no_vector_and_is_found_by_words() -> None:
    nodes = NodeSet()
    put(nodes, "ours", unit(1, 0))
    put(nodes, "theirs", unit(0, 1, 0), 1)
    for name in ("ours", "theirs"):
        nodes.set_aside(an_id(name))
    nodes.add_group(a_node("g", 0, NodeKind.GROUP), (an_id("ours"), an_id("theirs")), text="tea")
    request = RecallRequest("tea", 1, HALF, unit(1, 0), elsewhere={1: unit(0, 1, 0)})

    assert [memory.node.id for memory in recall(nodes, request).memories] == [an_id("g")]
    assert nodes.without_vectors(9) == []
    assert nodes.ids_without_vectors() == []


def test_what_is_wanted_is_told_by_space() -> None:
    nodes = NodeSet()
    for name, space in (("a", 0), ("b", 1), ("c", 2)):
        nodes.add(a_node(name, space), "words")

    assert [node.id for node in nodes.without_vectors(9, {1, 2})] == [an_id("b"), an_id("c")]
    assert nodes.ids_without_vectors({0}) == [an_id("a")]
    assert (nodes.count_without_vectors({2}), nodes.count_without_vectors()) == (1, 3)


def test_another_width_than_that_of_its_space_changes_nothing() -> None:
    nodes = NodeSet()
    put(nodes, "a", unit(1, 0, 0), 1)
    nodes.add(a_node("b", 1), "words")
    for refused in (unit(1, 0), np.zeros(3, dtype=np.float32), np.array([np.nan, 0, 0], dtype=np.float32)):
        with pytest.raises(VectorRefused):
            nodes.set_vectors([an_id("b")], refused.reshape(1, -1), 1)

    assert [node.id for node in nodes.without_vectors(9)] == [an_id("b")]


def test_a_vector_is_overwritten_with_its_row_and_its_place_used_again() -> None:
    vectors = SpaceVectors(2, SearchOptions())
    for row in (70, 3, 900):
        vectors.put([row], vectors.check(unit(row, 1).reshape(1, -1)))
    vectors.clear(3)
    rows, picture = vectors.picture()

    assert rows.tolist() == [70, -1, 900]
    assert restore(picture.take(np.array([1])))[0].tolist() == [0, 0]
    vectors.put([5], vectors.check(unit(0, 1).reshape(1, -1)))
    assert vectors.picture()[0].tolist() == [70, 5, 900]
    assert sorted(vectors.rows().tolist()) == [5, 70, 900]


def test_few_memories_of_a_wide_space_among_many_cost_their_own_rows_alone() -> None:
    nodes = NodeSet()
    for number in range(2_000):
        nodes.add(a_node(f"n{number}"), "words")
    before = nodes.size_bytes
    for number in range(3):
        put(nodes, f"wide {number}", unit(*np.random.default_rng(number).normal(size=3_072)), 1)

    assert nodes.size_bytes - before < 1_000_000


def test_random_histories_agree_with_the_simplest_model() -> None:
    """Nodes of three spaces come, go, are grouped and ungrouped: each asks alone for what it has, and gets it."""
    seed = random.randrange(2**32)
    print("seed", seed)
    chance, dice = random.Random(seed), np.random.default_rng(seed)
    nodes, widths = NodeSet(), {0: 4, 1: 3, 2: 5}
    held: dict[str, tuple[int, NDArray[np.float32]]] = {}
    for step in range(200):
        name = f"n{step}"
        if held and chance.random() < 0.35:
            gone = chance.choice(sorted(held))
            nodes.remove(an_id(gone))
            del held[gone]
        else:
            space = chance.randrange(3)
            held[name] = space, unit(*dice.normal(size=widths[space]))
            put(nodes, name, held[name][1], space)
    questions = {space: unit(*dice.normal(size=width)) for space, width in widths.items()}
    for space, question in questions.items():
        elsewhere = {space: question} if space else {}
        request = RecallRequest("nothing", 200, VECTORS, None if space else question, elsewhere=elsewhere)
        found = recall(nodes, request)
        cosine = found.leading.cosine
        assert cosine is not None
        shown = dict(zip((nodes.node(int(row)).id for row in found.rows), cosine.tolist(), strict=True))
        expected = {
            an_id(name): float(vector.astype(np.float16).astype(np.float64) @ question) if own == space else 0.0
            for name, (own, vector) in held.items()
        }

        assert shown == pytest.approx(expected, abs=1e-3)
