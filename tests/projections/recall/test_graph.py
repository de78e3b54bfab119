"""The graph for very many vectors: built elsewhere, never changed, and what it proposes is scored exactly."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.agpr import NO_EMBEDDER
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.rooms import SearchOptions
from projections.recall.scoring import Leading, lead
from projections.texts import WrittenText
from tests.builders import an_id

WIDTH = 32
BOTH = replace(NO_EMBEDDER, cosine_weight=0.7, smoothing=0.0)


def a_set(count: int, least: int) -> NodeSet:
    nodes = NodeSet(b"", SearchOptions(graph_from_nodes=least))
    for number in range(count):
        node = SearchNode(an_id(f"n{number}"), NodeKind.FACT, WrittenText(1), (1,), frozenset(), 0, 0, 0, 1)
        nodes.add(node, f"word{number % 50}")
    nodes.set_vectors(list(nodes.row_of), unit_rows(1, count))
    return nodes


def unit_rows(seed: int, count: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, WIDTH), dtype=np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def leading(nodes: NodeSet, query: NDArray[np.float32], question: str = "word7") -> Leading:
    return lead(nodes.view(query), nodes.lexical.hits([question]), nodes.live_rows(), BOTH, 10)


def build(nodes: NodeSet) -> None:
    plan = nodes.plan_graph()
    assert plan is not None
    nodes.use_graph(plan())


def test_none_is_planned_below_its_size_or_without_the_option() -> None:
    assert a_set(50, 51).plan_graph() is None
    assert a_set(50, 0).plan_graph() is None
    assert NodeSet(b"", SearchOptions(graph_from_nodes=1)).plan_graph() is None


def test_with_a_graph_nearly_the_same_rows_lead_with_the_same_cosines() -> None:
    exact, graphed = a_set(2_000, 0), a_set(2_000, 1_000)
    build(graphed)
    found = 0
    for query in unit_rows(2, 20):
        one, other = leading(exact, query), leading(graphed, query)
        found += len(set(one.rows.tolist()) & set(other.rows.tolist()))
        assert other.cosine is not None
        assert other.cosine.tolist() == graphed.cosines(query)[other.rows].tolist()

    assert found >= 0.95 * 200


def test_the_same_graph_is_built_every_time() -> None:
    one, other = a_set(1_500, 1_000), a_set(1_500, 1_000)
    build(one)
    build(other)

    for query in unit_rows(3, 10):
        assert leading(one, query).rows.tolist() == leading(other, query).rows.tolist()
        assert leading(one, query).smoothed.tolist() == leading(other, query).smoothed.tolist()


def test_what_came_went_or_changed_since_is_known_at_once() -> None:
    nodes = a_set(1_500, 1_000)
    plan = nodes.plan_graph()
    assert plan is not None
    query = unit_rows(4, 1)[0]
    nearest = nodes.node(int(leading(nodes, query).rows[0])).id
    nodes.remove(nearest)  # while it is built
    nodes.use_graph(plan())
    nodes.set_vectors([an_id("n5")], query.reshape(1, -1))
    node = SearchNode(an_id("new"), NodeKind.FACT, WrittenText(1), (1,), frozenset(), 0, 0, 0, 1)
    nodes.add(node, "nothing")
    nodes.set_vectors([node.id], query.reshape(1, -1))
    first = [nodes.node(row).id for row in leading(nodes, query, "word99").rows.tolist()]

    assert set(first[:2]) == {an_id("n5"), node.id}
    assert nearest not in first


@pytest.mark.parametrize(("written", "due"), [(290, False), (310, True)])
def test_it_is_built_anew_when_a_fifth_was_written(written: int, due: bool) -> None:
    nodes = a_set(1_500, 1_000)
    build(nodes)
    nodes.set_vectors([an_id(f"n{number}") for number in range(written)], unit_rows(5, written))

    assert (nodes.plan_graph() is not None) == due
