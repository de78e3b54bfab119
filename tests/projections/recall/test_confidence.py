"""Confidence: a share, none for an empty answer, and never less for a memory that holds more of the question."""

from __future__ import annotations

import itertools

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, recall
from projections.recall.confidence import Evidence, judge
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id


def test_an_empty_answer_is_not_sufficient() -> None:
    found = recall(NodeSet(), RecallRequest("Rex?", 10, NO_EMBEDDER))

    assert (found.confidence.value, found.confidence.insufficient) == (0.0, True)


def test_it_lies_between_0_and_1_and_grows_with_what_is_held() -> None:
    shares = [0.0, 0.3, 0.7, 1.0]
    for best, together in itertools.product(shares, shares):
        value = judge(Evidence(best, together)).value
        assert 0 <= value <= 1
        assert value <= judge(Evidence(best, 1.0)).value
        assert value <= judge(Evidence(1.0, together)).value


def test_a_question_about_what_was_said_is_surer_than_one_about_what_was_not() -> None:
    nodes = NodeSet()
    for n in range(40):
        text = "Kim: I adopted a dog called Rex." if n == 7 else f"Kim: Something else happened, number {n}."
        at, session = MONDAY + n, frozenset((KEYS.session("alice", "s1"),))
        nodes.add(SearchNode(an_id(str(n)), NodeKind.CHUNK, TurnsText((n,)), (n,), session, at, at, at, 9), text)
    said = recall(nodes, RecallRequest("Which dog did Kim adopt?", 5, NO_EMBEDDER)).confidence
    unsaid = recall(nodes, RecallRequest("Which yacht did Kim charter in Zanzibar?", 5, NO_EMBEDDER)).confidence

    assert said.value > unsaid.value
    assert (said.insufficient, unsaid.insufficient) == (False, True)
