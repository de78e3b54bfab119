from __future__ import annotations

from dataclasses import replace

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.answering import RecallRequest, recall
from projections.recall.filters import label_marks
from projections.recall.naming import QUESTION_WORDS_MAX, named_shares
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.builders import MONDAY, an_id


def a_node_set(*facts: tuple[str, tuple[str, ...]]) -> NodeSet:
    nodes = NodeSet(b"alice")
    for turn, (text, labels) in enumerate(facts):
        node = SearchNode(
            an_id(text),
            NodeKind.FACT,
            TurnsText((turn,)),
            (turn,),
            frozenset((an_id("s1"),)),
            MONDAY,
            MONDAY,
            MONDAY,
            len(text),
        )
        nodes.add(node, text, label_marks(labels, nodes.mark))
    return nodes


def shares(nodes: NodeSet, question: str) -> list[float] | None:
    found = named_shares(nodes, question)
    return None if found is None else found.tolist()


def test_a_fact_has_the_share_of_the_named_entities_that_it_names() -> None:
    nodes = a_node_set(("a", ("jon", "gina")), ("b", ("gina",)), ("c", ()))

    assert shares(nodes, "Did Jon meet Gina?") == [1.0, 0.5, 0.0]
    assert shares(nodes, "What does GINA's shop sell?") == [1.0, 1.0, 0.0]
    assert shares(nodes, "And Gina?") == shares(nodes, "Gina’s?")


def test_a_question_that_names_nobody_says_nothing() -> None:
    nodes = a_node_set(("a", ("jon",)), ("b", ("gina",)))

    assert shares(nodes, "Who went to Rome?") is None
    assert shares(nodes, "?!") is None
    assert shares(NodeSet(), "Jon") is None


def test_names_of_several_words_and_signs_are_found() -> None:
    nodes = a_node_set(("a", ("new york city",)), ("b", ("c++",)), ("c", ("o'neill",)))

    assert shares(nodes, "How is New York City?") == [1.0, 0.0, 0.0]
    assert shares(nodes, "Is C++ hard?") == [0.0, 1.0, 0.0]
    assert shares(nodes, "Where is O'Neill?") == [0.0, 0.0, 1.0]


def test_only_the_beginning_of_a_long_question_is_looked_at() -> None:
    nodes = a_node_set(("a", ("jon",)))

    assert shares(nodes, "word " * (QUESTION_WORDS_MAX - 1) + "Jon") == [1.0]
    assert shares(nodes, "word " * QUESTION_WORDS_MAX + "Jon") is None


def test_of_two_equal_facts_the_one_about_the_named_person_comes_first() -> None:
    texts = ("Swims on Mondays.", "Swims on Mondays, too.")
    for named, other in (texts, texts[::-1]):
        nodes = a_node_set((named, ("jon",)), (other, ("gina",)), ("A cat sleeps.", ()))
        found = recall(nodes, RecallRequest("When does Jon swim on Mondays?", 3, NO_EMBEDDER)).memories
        unweighted = recall(
            nodes, RecallRequest("When does Jon swim on Mondays?", 3, replace(NO_EMBEDDER, entity_weight=0.0))
        ).memories

        assert found[0].node.id == an_id(named)
        assert {memory.node.id for memory in found} == {memory.node.id for memory in unweighted}
