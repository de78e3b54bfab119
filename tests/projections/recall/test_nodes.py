"""The node set: rows come and go without a trace, and every chunk knows its neighbours in the session."""

from __future__ import annotations

import random

import numpy as np
import pytest

from events.time import Instant
from projections.recall.nodes import NodeKind, NodeSet, SearchNode, format_date, indexed_text
from projections.recall.slab import VectorRefused
from projections.recall.tokens import query_terms
from projections.texts import TurnsText, WrittenText, name_text
from tests.builders import MONDAY, an_id
from tests.projections.recall.made_nodes import a_chunk, a_fact, links, make_group, session_of


def found(nodes: NodeSet, question: str) -> set[bytes]:
    """The ids of the live rows that share a word with a question."""
    scores = nodes.lexical.scores(query_terms(question), nodes.size)
    return {nodes.node(row).id for row in nodes.live_rows().tolist() if scores[row] > 0}


def columns(nodes: NodeSet, question: list[str]) -> dict[bytes, tuple[Instant, bytes, float]]:
    """Time, tie and score of every live row, by id."""
    rows = nodes.live_rows()
    scores = nodes.lexical.scores(question, nodes.size)[rows].tolist()
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

    assert nodes.ties(nodes.live_rows()).tolist() == [an_id(name) for name in ("one", "two")]


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
    assert nodes.size < 400, "rows are used again"
    assert columns(nodes, question) == columns(afresh, question)


@pytest.mark.parametrize("seed", range(3))
def test_live_rows_links_and_outlines_are_right_after_each_change(seed: int) -> None:
    print("seed", seed)
    chance, nodes = random.Random(seed), NodeSet()
    for number in range(60):
        if len(nodes) and chance.random() < 0.45:
            nodes.remove(chance.choice(list(nodes.row_of)))
        else:
            kinds = (a_chunk(f"n{number}", (number, 99), f"s{number % 3}"), a_fact(f"n{number}", (number,)))
            nodes.add(chance.choice(kinds), "words")
        rows, view, (_, following) = nodes.live_rows(), nodes.view(), nodes.neighbours()
        standing = nodes.nodes_at(rows.tolist())
        outlines = [(each.id, each.turns, each.said_at, each.length, each.stated) for each in nodes.outlines(rows)]

        assert rows.tolist() == sorted(nodes.row_of.values())
        assert dict(zip(view.before.tolist(), view.after.tolist(), strict=True)) == {
            row: after for row, after in enumerate(following.tolist()) if after >= 0
        }
        assert outlines == [(each.id, each.turns, each.said_at, each.length, each.stated) for each in standing]


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


def test_a_group_is_never_wanted_a_vector_and_has_the_normalised_sum_of_its_members() -> None:
    nodes = NodeSet()
    for name in ("f", "g"):
        nodes.add(a_fact(name), name)
    nodes.set_vectors([an_id("f")], np.array([[1, 0, 0]], np.float32))
    make_group(nodes, "group", "f", "g")

    assert [node.id for node in nodes.without_vectors(9)] == [an_id("g")]
    assert nodes.without_vectors(9)[0] == a_fact("g")
    nodes.set_vectors([an_id("g")], np.array([[0, 1, 0]], np.float32))
    assert nodes.without_vectors(9) == []
    row = nodes.row_of[an_id("group")]
    assert nodes.cosines(np.array([1, 0, 0], np.float32))[row] == pytest.approx(0.5**0.5, abs=5e-4)
    assert nodes.cosines(np.array([0, 1, 0], np.float32))[row] == pytest.approx(0.5**0.5, abs=5e-4)
    assert nodes.cosines(np.array([0, 0, 1], np.float32))[row] == 0


def test_texts_of_nodes_without_vectors_are_named_without_reading_the_nodes() -> None:
    nodes = NodeSet()
    for name in ("f", "g", "h"):
        nodes.add(a_fact(name), name)
    nodes.add(a_chunk("c"), "c")
    nodes.set_vectors([an_id("h")], np.array([[1, 0, 0]], np.float32))
    make_group(nodes, "group", "f", "g")
    wanted = nodes.without_vectors(9)
    ids = nodes.ids_without_vectors()

    assert ids == [node.id for node in wanted]
    assert set(ids) == {an_id("c"), an_id("f"), an_id("g")}
    assert nodes.name_texts([*ids, an_id("nobody")]) == {node.id: name_text(node.ref) for node in wanted}


def test_a_groups_vector_does_not_depend_on_when_those_of_its_members_came() -> None:
    vectors = np.random.default_rng(1).standard_normal((3, 16)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    ids, found = [an_id(name) for name in "abc"], list[list[float]]()
    for before in ([], [0], [2, 1], [0, 1, 2]):
        nodes = NodeSet()
        for name in "abc":
            nodes.add(a_fact(name), name)
        nodes.set_vectors([ids[place] for place in before], vectors[before])
        make_group(nodes, "group", *"abc")
        after = [place for place in (1, 0, 2) if place not in before]
        nodes.set_vectors([ids[place] for place in after], vectors[after])
        found.append(nodes.cosines(vectors[0])[nodes.row_of[an_id("group")]].tolist())

    assert found[1:] == found[:-1]


def test_members_of_a_group_that_is_gone_want_their_own_vectors_again() -> None:
    nodes = NodeSet()
    for name in ("f", "g"):
        nodes.add(a_fact(name), name)
    nodes.set_vectors([an_id("f"), an_id("g")], np.eye(2, dtype=np.float32))
    make_group(nodes, "group", "f", "g")
    nodes.remove(an_id("group"))
    for name in ("f", "g"):
        nodes.bring_back(a_fact(name))

    assert {node.id for node in nodes.without_vectors(9)} == {an_id("f"), an_id("g")}
    nodes.set_vectors([an_id("f"), an_id("g")], np.eye(2, dtype=np.float32))
    assert nodes.cosines(np.array([1, 0], np.float32))[nodes.row_of[an_id("f")]] == 1


def test_a_refused_vector_changes_nothing() -> None:
    nodes = NodeSet()
    nodes.add(a_fact("f"), "f")
    nodes.add(a_fact("g"), "g")
    nodes.set_vectors([an_id("f")], np.array([[1, 0]], np.float32))
    for vectors in ([[0, 1], [0, 0]], [[0, 1], [np.nan, 0]], [[0, 1, 0], [0, 1, 0]]):
        with pytest.raises(VectorRefused):
            nodes.set_vectors([an_id("f"), an_id("g")], np.array(vectors, np.float32))

    assert nodes.cosines(np.array([1, 0], np.float32)).tolist() == [1.0, 0.0]
    with pytest.raises(VectorRefused, match="3 dimensions where others have 2"):
        nodes.view(np.array([1, 0, 0], np.float32))
    with pytest.raises(VectorRefused, match="zeros"):
        nodes.cosines(np.zeros(2, np.float32))


def test_marks_follow_a_node_through_all_that_happens_to_it() -> None:
    nodes = NodeSet(b"alice")
    role, other, s1, s2 = (
        nodes.mark("role", "user"),
        nodes.mark("role", "tool"),
        nodes.mark("session", session_of("s1").hex()),
        nodes.mark("session", session_of("s2").hex()),
    )
    nodes.add(a_fact("f"), "f", [role])
    assert rows_of(nodes, role, s1, s2, other) == [[0], [0], [], []]
    nodes.replace(a_fact("f", sessions=("s1", "s2")))
    assert rows_of(nodes, role, s1, s2, other) == [[0], [0], [0], []]
    nodes.replace(a_fact("f", sessions=("s2",)), [other])
    assert rows_of(nodes, role, s1, s2, other) == [[], [], [0], [0]]
    nodes.add_marks(an_id("f"), [role, other])
    nodes.add_marks(an_id("nobody"), [role])
    nodes.set_aside(an_id("f"))
    assert rows_of(nodes, role, s1, s2, other) == [[], [], [], []]
    nodes.bring_back(a_fact("f"))
    assert rows_of(nodes, role, s1, s2, other) == [[0], [0], [], [0]]
    nodes.remove(an_id("f"))

    assert len(nodes.marks) == 0


def test_a_node_comes_back_as_it_was_added_whatever_it_refers_to() -> None:
    given = [
        a_chunk("a", (3, 4), at=MONDAY + 5),
        a_fact("b", (7, 2**40), ("s1", "s2")),
        SearchNode(b"\0" * 16, NodeKind.GROUP, WrittenText(2**40), (), frozenset(), -5, -9, 2**50, 0, stated=True),
        SearchNode(an_id("d")[:15] + b"\0", NodeKind.FACT, TurnsText((8, 9)), (1,), frozenset(), 0, 0, 0, 1),
    ]
    nodes = NodeSet()
    for node in given:
        nodes.add(node, "")

    assert nodes.nodes_at([3, 0, 2, 1]) == [given[3], given[0], given[2], given[1]]
    assert list(nodes.row_of) == [node.id for node in given]
    with pytest.raises(ValueError, match="id"):
        nodes.add(given[0], "")
    with pytest.raises(ValueError, match="16 bytes"):
        nodes.add(SearchNode(b"short", NodeKind.FACT, WrittenText(1), (), frozenset(), 0, 0, 0, 1), "")


def rows_of(nodes: NodeSet, *marks: int) -> list[list[int]]:
    return [nodes.marks.rows(mark).tolist() for mark in marks]
