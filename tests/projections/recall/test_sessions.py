from __future__ import annotations

import math
import random

import numpy as np
import pytest

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, prepare, recall
from projections.recall.lexical import LexicalIndex
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.sessions import asks_of_many, make_table, score_sessions
from projections.texts import TurnsText
from tests.builders import MONDAY, an_id

DAY_MS = 86_400_000


def a_chunk(name: str, *sessions: str, kind: NodeKind = NodeKind.CHUNK, day: int = 0) -> SearchNode:
    at = MONDAY + day * DAY_MS
    turn = int.from_bytes(an_id(name)[:4])
    return SearchNode(
        an_id(name), kind, TurnsText((turn,)), (turn,), frozenset(map(an_id, sessions)), at, at, at, len(name)
    )


@pytest.mark.parametrize("seed", range(5))
def test_a_session_scores_like_one_text_of_all_its_chunks(seed: int) -> None:
    """Against BM25 written down a second time, over whole sessions."""
    print("seed", seed)
    chance = random.Random(seed)
    words = [f"word{n}" for n in range(12)]
    index, texts, sessions = LexicalIndex(), list[list[str]](), list[int]()
    for row in range(30):
        texts.append(chance.choices(words, k=chance.randint(1, 9)))
        sessions.append(chance.randrange(4))
        index.add(row, texts[row])
    chunks = [chance.random() < 0.8 for _ in texts]
    chunks[:4], sessions[:4] = [True] * 4, [0, 1, 2, 3]
    table = make_table(np.array(sessions, dtype=np.int32), np.array(chunks), index.lengths)
    asked = sorted(set(chance.sample(words, 3)))
    scores = score_sessions(table, index.find(asked))

    joined = [
        [
            word
            for text, session, chunk in zip(texts, sessions, chunks, strict=True)
            if chunk and session == n
            for word in text
        ]
        for n in range(4)
    ]
    mean = sum(map(len, joined)) / 4
    by_hand = np.zeros(4)
    for word in asked:
        holders = sum(word in text for text in joined)
        for n, text in enumerate(joined):
            count = text.count(word)
            penalty = 1.2 * (0.25 + 0.75 * len(text) / mean)
            by_hand[n] += math.log(1 + (4 - holders + 0.5) / (holders + 0.5)) * count / (count + penalty)
    by_hand = (by_hand - by_hand.min()) / (by_hand.max() - by_hand.min())

    np.testing.assert_allclose(scores, by_hand, atol=1e-12)


def test_a_session_scores_the_same_however_often_a_word_of_most_rows_was_asked_for() -> None:
    chance, index = random.Random(3), LexicalIndex()
    for row in range(5_000):
        index.add(row, ["jon", *chance.sample(["cat", "dog", "owl"], 1)] if row % 3 else ["cat"] * (row % 4 + 1))
    of_row = np.array([chance.randrange(9) for _ in range(5_000)], dtype=np.int32)
    chunks, asked = np.array([row % 5 > 0 for row in range(5_000)]), ["jon", "owl", "cat"]
    found: list[bytes] = []
    for _ in range(4):
        table = make_table(of_row, chunks, index.lengths)
        for _ in range(2):
            index.hits(asked)
            found.append(score_sessions(table, index.find(asked)).tobytes())

    assert found[1:] == found[:-1]


def test_sessions_that_do_not_differ_say_nothing() -> None:
    index = LexicalIndex()
    index.add(0, ["rex"])
    table = make_table(np.zeros(1, dtype=np.int32), np.ones(1, dtype=np.bool_), index.lengths)

    assert score_sessions(table, index.find(["rex"])).tolist() == [0.0]
    assert score_sessions(table, index.find(["cat"])).tolist() == [0.0]
    assert score_sessions(table, index.find([])).tolist() == [0.0]


def test_of_two_equal_chunks_the_one_whose_session_is_about_it_comes_first() -> None:
    nodes = NodeSet()
    for day, (session, texts) in enumerate(
        [("elsewhere", ["A trip.", "Rain again."]), ("trip", ["A trip.", "The boat.", "Rome by boat."])]
    ):
        for text in texts:
            nodes.add(a_chunk(f"{session} {text}", session, day=10 * day), text)
    found = recall(nodes, RecallRequest("the trip to Rome", 4, NO_EMBEDDER)).memories
    named = [memory.node.id for memory in found]

    assert named.index(an_id("trip A trip.")) < named.index(an_id("elsewhere A trip."))


def test_what_was_removed_counts_for_no_session_any_more() -> None:
    nodes, alone = NodeSet(), NodeSet()
    for each in (nodes, alone):
        each.add(a_chunk("one", "s1"), "Rex likes bones.")
        each.add(a_chunk("two", "s2"), "Rex sleeps.")
    first = nodes.session_table()
    nodes.add(a_chunk("three", "s2"), "More of Rex.")
    nodes.remove(an_id("three"))
    request = RecallRequest("Rex", 2, NO_EMBEDDER)

    assert nodes.session_table() is not first
    assert nodes.session_table() is nodes.session_table()
    assert recall(nodes, request).memories == recall(alone, request).memories


def test_a_node_of_several_sessions_is_of_the_one_with_the_smallest_reference() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("one", "s1"), "Rex.")
    nodes.add(a_chunk("two", "s2"), "Rex.")
    nodes.add(a_chunk("both", "s1", "s2", kind=NodeKind.FACT), "Rex.")
    of_row = nodes.session_table().of_row
    first = min(("s1", "s2"), key=an_id)

    assert of_row[nodes.row_of[an_id("both")]] == of_row[nodes.row_of[an_id("one" if first == "s1" else "two")]]


@pytest.mark.parametrize(
    "question",
    [
        "What has Mel painted?",
        "Where have they both been?",
        "So, which books HAVE you read",
        "How often has it rained?",
    ],
)
def test_a_question_in_the_perfect_asks_of_many_sessions(question: str) -> None:
    assert asks_of_many(question)


@pytest.mark.parametrize(
    "question",
    [
        "What did Mel paint?",
        "What does she have to do?",
        "Where would they have gone?",
        "I have a dog. What is its name?",
        "What is it, I have forgotten",
        "How many children does she have?",
        "What a hasty haven",
        "",
        "what " * 10_000 + "has",
    ],
)
def test_other_questions_ask_of_one_session(question: str) -> None:
    assert not asks_of_many(question)


def test_a_session_adds_nothing_where_many_are_asked_for() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("a", "one"), "Painted a horse")
    nodes.add(a_chunk("b", "one", day=1), "A horse, painted")
    nodes.add(a_chunk("c", "two", day=90), "It rains")

    def adds(question: str) -> list[float]:
        return list(prepare(nodes, RecallRequest(question, 3, NO_EMBEDDER)).context.sessions)

    assert adds("When did Mel paint the horse?") == [NO_EMBEDDER.session_weight, 0]
    assert adds("What has Mel painted, a horse?") == [0, 0]
