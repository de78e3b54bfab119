"""Confidence: a share, none for an empty answer, and never less for a memory that holds more of the question."""

from __future__ import annotations

import itertools

import pytest

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, recall
from projections.recall.confidence import Evidence, judge
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id


def remembering(*texts: str) -> NodeSet:
    """A chunk for each text."""
    nodes = NodeSet()
    for n, text in enumerate(texts):
        at, session = MONDAY + n, frozenset((KEYS.session("alice", "s1"),))
        nodes.add(SearchNode(an_id(str(n)), NodeKind.CHUNK, TurnsText((n,)), (n,), session, at, at, at, 9), text)
    return nodes


def test_an_empty_answer_is_not_sufficient() -> None:
    found = recall(NodeSet(), RecallRequest("Rex?", 10, NO_EMBEDDER))

    assert (found.confidence.value, found.confidence.insufficient) == (0.0, True)


def test_it_lies_between_0_and_1_and_grows_with_what_is_held() -> None:
    shares = [0.0, 0.3, 0.7, 1.0]
    for best, together in itertools.product(shares, shares):
        value = judge(Evidence(best, together, 1_000)).value
        assert 0 <= value <= 1
        assert value <= judge(Evidence(best, 1.0, 1_000)).value
        assert value <= judge(Evidence(1.0, together, 1_000)).value


def test_a_question_about_what_was_said_is_surer_than_one_about_what_was_not() -> None:
    others = [f"Kim: Something else happened, number {n}." for n in range(39)]
    nodes = remembering("Kim: I adopted a dog called Rex.", *others)
    said = recall(nodes, RecallRequest("Which dog did Kim adopt?", 5, NO_EMBEDDER)).confidence
    unsaid = recall(nodes, RecallRequest("Which yacht did Kim charter in Zanzibar?", 5, NO_EMBEDDER)).confidence

    assert said.value > unsaid.value
    assert (said.insufficient, unsaid.insufficient) == (False, True)


@pytest.mark.parametrize(
    ("texts", "question"),
    [
        (["Alice: I moved from Davis to Miami."], "Where did Alice move from?"),
        (["Alice: I moved from Davis to Miami."], "Which city is Alice's home?"),
        (["Alice: My cat Miso is three.", "Alice: I am a nurse at the harbour."], "What is my job?"),
        (["Alice: My cat Miso is three.", "Alice: I am a nurse at the harbour."], "How old is the animal?"),
    ],
)
def test_in_a_memory_of_one_or_two_turns_other_words_do_not_count_as_never_said(
    texts: list[str], question: str
) -> None:
    found = recall(remembering(*texts), RecallRequest(question, 10, NO_EMBEDDER)).confidence

    assert not found.insufficient


def test_the_more_is_remembered_the_more_a_word_says_that_is_not_there() -> None:
    values = [judge(Evidence(0.1, 0.2, nodes)).value for nodes in (1, 10, 100, 1_000, 100_000)]
    sure = [judge(Evidence(1.0, 1.0, nodes)).value for nodes in (1, 10, 100, 1_000, 100_000)]

    assert values == sorted(values, reverse=True)
    assert sure == sorted(sure)
    assert values[0] > 0.5
    assert values[-1] < 0.15


def test_between_two_answers_from_few_memories_the_one_with_the_words_is_surer() -> None:
    nodes = remembering("Alice: I moved to Miami.", "Alice: I have a dog.", "Alice: It rained.")
    said = recall(nodes, RecallRequest("Where did Alice move?", 10, NO_EMBEDDER)).confidence
    unsaid = recall(nodes, RecallRequest("Which yacht did Nate charter?", 10, NO_EMBEDDER)).confidence

    assert said.value > unsaid.value
