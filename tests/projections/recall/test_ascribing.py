"""Whose doings: facts about others that hold more of a question speak against its being about whom it names."""

from __future__ import annotations

import numpy as np
import pytest

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, recall
from projections.recall.ascribing import ascribe
from projections.recall.confidence import OTHERS_MIN, Confidence, Evidence, judge
from projections.recall.filters import entity_mark
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.term_scores import Holding
from projections.recall.tokens import query_terms
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id


def remembering(*facts: tuple[str, str]) -> NodeSet:
    """Facts, each with whom it names, among many about neither."""
    nodes = NodeSet()
    ordinary = [("Kim" if n % 2 else "Ann", f"Something ordinary happened, number {n}.") for n in range(60)]
    for n, (name, text) in enumerate((*facts, *ordinary)):
        session = frozenset((KEYS.session("alice", f"s{n}"),))
        node = SearchNode(an_id(str(n)), NodeKind.FACT, TurnsText((n,)), (n,), session, MONDAY, MONDAY, MONDAY, 9)
        nodes.add(node, f"{name}: {text}", [nodes.mark(*entity_mark(name))])
    return nodes


def ask(nodes: NodeSet, question: str) -> Confidence:
    return recall(nodes, RecallRequest(question, 5, NO_EMBEDDER)).confidence


def test_who_asks_of_one_what_the_other_did_is_answered_less_surely() -> None:
    nodes = remembering(("Ann", "I adopted a greyhound from the shelter."), ("Kim", "I like the sea."))
    right = ask(nodes, "When did Ann adopt a greyhound from the shelter?")
    wrong = ask(nodes, "When did Kim adopt a greyhound from the shelter?")

    assert right.value > wrong.value
    assert (right.insufficient, wrong.insufficient) == (False, True)


def test_it_is_the_best_of_theirs_less_the_best_of_others() -> None:
    nodes = remembering(("Ann", "greyhound shelter"), ("Kim", "greyhound"), ("Kim", "shelter"))
    rows = np.arange(nodes.size)
    kim = np.array([0, 1, 1, *([0] * 60)], dtype=np.float32)

    assert ascribe(nodes, Holding(nodes, query_terms("greyhound shelter")), rows, kim) == pytest.approx(
        -1 / 3, abs=0.2
    )
    assert ascribe(nodes, Holding(nodes, query_terms("greyhound shelter")), rows, 1 - kim) > 0
    assert ascribe(nodes, Holding(nodes, query_terms("greyhound shelter")), rows, None) == 0
    assert ascribe(nodes, Holding(nodes, query_terms("greyhound shelter")), rows[:0], kim) == 0
    assert ascribe(nodes, Holding(nodes, query_terms("Kim")), rows, kim) == 0, (
        "a name that half of all hold tells nothing"
    )


def test_a_memory_of_a_few_nodes_is_not_held_to_whom_it_speaks_of() -> None:
    assert judge(Evidence(1.0, 1.0, 1_000, 1.2 * OTHERS_MIN)).insufficient
    assert not judge(Evidence(1.0, 1.0, 5, -1.0)).insufficient
    assert judge(Evidence(1.0, 1.0, 1_000, -0.2)).value < judge(Evidence(1.0, 1.0, 1_000, 0.2)).value
