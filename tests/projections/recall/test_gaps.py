"""Rows that became free are filled with the last nodes: nothing that can be asked changes, and less is scanned."""

from __future__ import annotations

import random

import msgspec
import numpy as np
import pytest

from events.time import Instant
from projections.recall.agpr import ANY_EMBEDDER
from projections.recall.answering import RecallRequest, choose, prepare, recall, score_rows
from projections.recall.nodes import NodeSet
from projections.recall.state import NodeSetState
from projections.steps import at_once
from tests.builders import MONDAY, an_id
from tests.projections.recall.made_nodes import a_chunk, a_fact, links, make_group, session_of

HOUR_MS = 3_600_000
# A free row more than this is filled.
GAPS_LEFT = 64


def _fill(nodes: NodeSet, facts: int) -> None:
    """A fact a turn, a chunk every fourth turn; a vector each, some in a space of their own."""
    rows = np.random.default_rng(5).standard_normal((facts, 8)).astype(np.float32)
    for number in range(facts):
        at: Instant = MONDAY + number * HOUR_MS
        fact = a_fact(f"f{number}", (number,), (f"s{number % 9}",))
        nodes.add(msgspec.structs.replace(fact, said_at=at), f"word{number % 7} other{number % 31}", [number % 5])
        if number % 4 == 0:
            nodes.add(a_chunk(f"c{number}", (number,), f"s{number % 9}", at), f"chunk word{number % 11}")
    nodes.set_vectors([an_id(f"f{n}") for n in range(facts)], rows / np.linalg.norm(rows, axis=1, keepdims=True))
    brought = [an_id(f"c{n}") for n in range(0, facts, 8)]
    nodes.set_vectors(brought, np.eye(4, dtype=np.float32)[np.arange(len(brought)) % 4], space=1)


def _merge(nodes: NodeSet, seed: int, facts: int, merges: int, *, closes: bool) -> None:
    """So many pairs become one; every ninth is given up again, and a few nodes go for good."""
    chance = random.Random(seed)
    names = [f"f{number}" for number in range(facts)]
    chance.shuffle(names)
    for number in range(merges):
        one, other = names.pop(), names.pop()
        kept = [nodes.node(nodes.row_of[an_id(each)]) for each in (one, other)]
        make_group(nodes, f"g{number}", one, other)
        if number % 9 == 0:
            nodes.remove(an_id(f"g{number}"))
            for node in kept:
                nodes.bring_back(node)
        if number % 13 == 0:
            nodes.remove(an_id(names.pop()))
        if closes:
            nodes.close_gaps()


def _told(nodes: NodeSet) -> dict[bytes, object]:
    """What can be asked of each node, but for its row."""
    rows = nodes.live_rows().tolist()
    scores, cosines = nodes.lexical.scores(("word3", "chunk", "gather"), nodes.size), nodes.cosines(np.eye(8)[2])
    marks = {mark: set(nodes.marks.rows(mark).tolist()) for mark in range(5)}
    sessions = {
        n: set(nodes.marks.rows(nodes.mark("session", session_of(f"s{n}").hex())).tolist()) for n in range(9)
    }
    return {
        node.id: (
            node,
            scores[row],
            cosines[row],
            [mark for mark in marks if row in marks[mark]],
            [number for number in sessions if row in sessions[number]],
            nodes.lexical.counts_of(row),
        )
        for row, node in zip(rows, nodes.nodes_at(rows), strict=True)
    }


@pytest.mark.parametrize("seed", range(3))
def test_with_gaps_closed_a_set_tells_the_same_as_without(seed: int) -> None:
    print("seed", seed)
    open_set, closed = NodeSet(b"alice"), NodeSet(b"alice")
    for nodes in (open_set, closed):
        _fill(nodes, 600)
        _merge(nodes, seed, 600, 250, closes=nodes is closed)
    request = RecallRequest("word3 chunk word5", 10, ANY_EMBEDDER, query_vector=np.eye(8, dtype=np.float32)[1])

    assert len(open_set) == len(closed) < open_set.size
    assert closed.size <= len(closed) + GAPS_LEFT
    assert _told(closed) == _told(open_set)
    assert links(closed) == links(open_set)
    assert closed.count_by_space() == open_set.count_by_space()
    one, other = recall(closed, request), recall(open_set, request)
    assert [(each.node.id, each.score) for each in one.memories] == [
        (each.node.id, each.score) for each in other.memories
    ]


def test_a_set_with_closed_gaps_comes_back_from_a_snapshot_and_goes_on() -> None:
    nodes = NodeSet(b"alice")
    _fill(nodes, 400)
    _merge(nodes, 1, 400, 150, closes=True)
    state = at_once(nodes.freeze())
    thawed = NodeSet.thaw(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=NodeSetState), b"alice")

    assert at_once(thawed.freeze()) == state
    for each in (nodes, thawed):
        for number in range(400, 500):
            each.add(a_fact(f"f{number}", (number,)), f"word{number % 7}", [number % 5])
            each.close_gaps()
    assert at_once(thawed.freeze()) == at_once(nodes.freeze())
    assert thawed.row_of == nodes.row_of


def test_a_question_that_was_being_scored_is_answered_as_if_no_row_had_moved() -> None:
    nodes = NodeSet(b"alice")
    _fill(nodes, 400)
    request = RecallRequest("word3 chunk word5", 10, ANY_EMBEDDER, query_vector=np.eye(8, dtype=np.float32)[1])
    # Freed, but not closed yet: what the question found stays where it is till then.
    stays = {each.node.id for each in recall(nodes, request).memories}
    for number in range(300):
        if an_id(f"f{number}") not in stays:
            nodes.remove(an_id(f"f{number}"))
    expected = [each.node.id for each in recall(nodes, request).memories]
    prepared = prepare(nodes, request)
    leading = score_rows(prepared, request)
    size = nodes.size
    for _ in range(100):
        nodes.close_gaps()

    answered = choose(nodes, request, prepared, leading)

    assert nodes.size < size - 200
    assert [each.node.id for each in answered.memories] == expected


def test_a_few_free_rows_are_let_be() -> None:
    nodes = NodeSet(b"alice")
    _fill(nodes, 100)
    for number in range(GAPS_LEFT):
        nodes.remove(an_id(f"f{number}"))
    rows, size = dict(nodes.row_of), nodes.size

    nodes.close_gaps()

    assert (nodes.row_of, nodes.size) == (rows, size)


def test_vectors_take_the_room_of_the_nodes_there_are() -> None:
    nodes = NodeSet(b"alice")
    count = 9_000
    for number in range(count):
        nodes.add(a_fact(f"f{number}", (number,)), "word")
    nodes.set_vectors([an_id(f"f{n}") for n in range(count)], np.eye(64, dtype=np.float32)[np.arange(count) % 64])
    before = nodes.vector_bytes
    for number in range(0, count, 2):
        nodes.remove(an_id(f"f{number}"))
    for _ in range(count // 8):
        nodes.close_gaps()

    assert nodes.size <= 4_500 * 65 / 64 + 1
    assert nodes.vector_bytes <= 0.52 * before
    expected = {an_id(f"f{n}"): np.eye(64)[n % 64] for n in range(1, count, 2)}
    cosines = nodes.cosines(np.full(64, 0.125))
    assert set(nodes.row_of) == set(expected)
    assert cosines[nodes.live_rows()] == pytest.approx(np.full(4_500, 0.125), abs=1e-4)
