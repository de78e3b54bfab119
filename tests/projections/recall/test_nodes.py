"""The node set: rows come and go without a trace, and every chunk knows its neighbours in the session."""

from __future__ import annotations

import random

import numpy as np
import pytest

from events.envelope import Reference
from events.memory import Pointer
from events.time import Instant
from projections.recall.nodes import NodeKind, NodeSet, SearchNode, format_date, indexed_text
from projections.recall.tokens import query_terms
from projections.texts import FactText, TurnsText
from tests.builders import KEYS, MONDAY, an_id


def session_of(name: str) -> Reference:
    return KEYS.session("alice", name)


def a_chunk(name: str, turns: tuple[int, ...] = (1, 2), session: str = "s1", at: Instant = MONDAY) -> SearchNode:
    sessions = frozenset((session_of(session),))
    return SearchNode(an_id(name), NodeKind.CHUNK, TurnsText(turns), turns, sessions, at, at, at, 10)


def a_fact(name: str, turns: tuple[int, ...] = (1,), sessions: tuple[str, ...] = ("s1",)) -> SearchNode:
    ref, named = FactText(Pointer(9, 0)), frozenset(map(session_of, sessions))
    return SearchNode(an_id(name), NodeKind.FACT, ref, turns, named, MONDAY, MONDAY, MONDAY, 10)


def found(nodes: NodeSet, question: str) -> set[bytes]:
    """The ids of the live rows that share a word with a question."""
    scores = nodes.lexical.scores(query_terms(question), len(nodes.nodes))
    return {nodes.node(row).id for row in nodes.live_rows().tolist() if scores[row] > 0}


def links(nodes: NodeSet) -> dict[bytes, tuple[bytes | None, bytes | None]]:
    """Previous and next of every live row, by id."""
    previous, following = nodes.neighbours()
    id_of = {row: node.id for row, node in enumerate(nodes.nodes) if node is not None}
    rows = nodes.live_rows().tolist()
    assert all(int(row) in id_of or row == -1 for column in (previous, following) for row in column[rows].tolist())
    return {id_of[row]: (id_of.get(int(previous[row])), id_of.get(int(following[row]))) for row in rows}


def columns(nodes: NodeSet, question: list[str]) -> dict[bytes, tuple[Instant, bytes, float]]:
    """Time, tie and score of every live row, by id."""
    rows = nodes.live_rows()
    scores = nodes.lexical.scores(question, len(nodes.nodes))[rows].tolist()
    listed = zip(rows.tolist(), nodes.said_at(rows).tolist(), nodes.ties(rows).tolist(), scores, strict=True)
    return {nodes.node(row).id: (said_at, tie, score) for row, said_at, tie, score in listed}


def test_a_node_is_found_by_its_words_and_by_its_day() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("chunk"), "Alice: I moved to Miami.")

    assert found(nodes, "miami") == found(nodes, "in July 2024") == {an_id("chunk")}
    assert found(nodes, "Boston") == set()


def test_what_is_searched_begins_with_the_day_in_utc() -> None:
    assert format_date(MONDAY) == "[1 July 2024]"
    assert indexed_text("Alice: hi", MONDAY) == "[1 July 2024] Alice: hi"
    assert format_date(-1) == "[31 December 1969]"


def test_a_removed_node_leaves_no_word_and_no_vector() -> None:
    nodes = NodeSet()
    nodes.add(a_fact("fact"), "Miami")
    kept = nodes.lexical.vocabulary
    nodes.add(a_chunk("chunk"), "zebra crossing in Miami")
    nodes.set_vectors([an_id("chunk")], np.ones((1, 4), np.float32))
    nodes.remove(an_id("chunk"))

    assert nodes.lexical.vocabulary == kept
    assert len(nodes) == 1
    assert an_id("chunk") not in nodes.row_of
    assert nodes.cosines(np.ones(4, np.float32)).tolist() == [0.0, 0.0]
    assert nodes.live_rows().tolist() == [0]


def test_a_node_of_the_same_id_may_come_again_with_other_words() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("open", (1,)), "one")
    nodes.remove(an_id("open"))
    nodes.add(a_chunk("open", (1, 2)), "one two")

    assert found(nodes, "two") == {an_id("open")}
    assert [nodes.node(row).turns for row in nodes.live_rows().tolist()] == [(1, 2)]


def test_removing_what_is_not_there_changes_nothing() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("chunk"), "one")
    with pytest.raises(KeyError):
        nodes.remove(an_id("other"))

    assert found(nodes, "one") == {an_id("chunk")}


def test_replacing_a_node_keeps_its_row_and_its_words() -> None:
    nodes = NodeSet()
    nodes.add(a_fact("fact"), "Miami")
    nodes.replace(a_fact("fact", (1, 5), ("s1", "s2")))

    assert found(nodes, "miami") == {an_id("fact")}
    assert nodes.node(0).turns == (1, 5)
    assert nodes.live_rows(frozenset((session_of("s2"),))).size == 0


def test_chunks_of_a_session_are_neighbours_and_facts_have_none() -> None:
    nodes = NodeSet()
    for node in (a_chunk("a"), a_chunk("x", session="s2"), a_fact("f"), a_chunk("b"), a_chunk("c")):
        nodes.add(node, "word")

    assert links(nodes) == {
        an_id("a"): (None, an_id("b")),
        an_id("b"): (an_id("a"), an_id("c")),
        an_id("c"): (an_id("b"), None),
        an_id("x"): (None, None),
        an_id("f"): (None, None),
    }


@pytest.mark.parametrize(
    ("gone", "expected"),
    [("a", [("b", None, "c")]), ("b", [("a", None, "c")]), ("c", [("a", None, "b")])],
)
def test_the_neighbours_of_a_removed_chunk_become_neighbours(
    gone: str, expected: list[tuple[str, str | None, str]]
) -> None:
    nodes = NodeSet()
    for name in "abc":
        nodes.add(a_chunk(name), "word")
    nodes.remove(an_id(gone))
    ((first, _, second),) = expected

    assert links(nodes) == {an_id(first): (None, an_id(second)), an_id(second): (an_id(first), None)}


def test_hidden_sessions_answer_nothing_not_even_through_a_shared_fact() -> None:
    nodes = NodeSet()
    nodes.add(a_chunk("one", session="s1"), "word")
    nodes.add(a_chunk("two", session="s2"), "word")
    nodes.add(a_fact("shared", sessions=("s1", "s2")), "word")

    assert nodes.live_rows().tolist() == [0, 1, 2]
    assert nodes.live_rows(frozenset((session_of("s1"),))).tolist() == [1]
    assert nodes.live_rows(frozenset((session_of("s9"),))).tolist() == [0, 1, 2]


def test_vectors_of_nodes_that_are_gone_are_dropped() -> None:
    nodes = NodeSet()
    nodes.add(a_fact("one"), "one")
    nodes.add(a_fact("two"), "two")
    nodes.set_vectors([an_id("two"), an_id("gone")], np.eye(2, dtype=np.float32))

    assert [node.id for node in nodes.without_vectors(9)] == [an_id("one")]
    assert nodes.without_vectors(0) == []
    assert nodes.cosines(np.array([1, 0], np.float32)).tolist() == [0.0, 1.0]


def test_ties_are_the_ids_in_one_width() -> None:
    nodes = NodeSet()
    nodes.add(a_fact("one"), "one")
    nodes.add(a_fact("two"), "two")

    assert nodes.ties(nodes.live_rows()).tolist() == [an_id(name).hex().encode() for name in ("one", "two")]


@pytest.mark.parametrize("seed", range(10))
def test_after_any_history_links_words_and_times_are_those_of_the_living(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes = NodeSet()
    living: list[tuple[SearchNode, str]] = []
    for number in range(400):
        if living and chance.random() < 0.45:
            node, _ = living.pop(chance.randrange(len(living)))
            nodes.remove(node.id)
        else:
            session = f"s{chance.randrange(3)}"
            at = MONDAY + chance.randrange(10**9)
            node = a_chunk(f"c{number}", session=session, at=at) if chance.random() < 0.7 else a_fact(f"f{number}")
            text = f"word{number} shared{number % 7}"
            nodes.add(node, text)
            living.append((node, text))
    expected: dict[bytes, tuple[bytes | None, bytes | None]] = {node.id: (None, None) for node, _ in living}
    for sessions in {node.sessions for node, _ in living}:
        chunks = [n.id for n, _ in living if n.kind is NodeKind.CHUNK and n.sessions == sessions]
        for before, each, behind in zip([None, *chunks], chunks, [*chunks[1:], None], strict=False):
            expected[each] = (before, behind)
    afresh = NodeSet()
    for node, text in living:
        afresh.add(node, text)
    question = query_terms("shared1 shared2 July")

    assert links(nodes) == links(afresh) == expected
    assert nodes.lexical.vocabulary == afresh.lexical.vocabulary
    assert len(nodes.nodes) < 400, "rows are used again"
    assert columns(nodes, question) == columns(afresh, question)


def test_a_node_that_was_set_aside_comes_back_as_it_was() -> None:
    nodes = NodeSet()
    fact = a_fact("f")
    nodes.add(fact, "Bob and Bob's cat, the cat.")
    nodes.add(a_fact("g"), "A dog.")
    before, vocabulary = nodes.lexical.scores(query_terms("cat bob"), 1)[0], nodes.lexical.vocabulary
    nodes.set_aside(fact.id)

    assert found(nodes, "cat") == set()
    assert nodes.lexical.vocabulary < vocabulary
    nodes.bring_back(fact)
    row = nodes.row_of[fact.id]
    assert found(nodes, "cat") == {fact.id}
    assert nodes.lexical.vocabulary == vocabulary
    assert nodes.lexical.scores(query_terms("cat bob"), row + 1)[row] == before
