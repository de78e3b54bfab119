"""The leading rows of a node set, against the formulas worked out for every row in float64."""

from __future__ import annotations

import random
from dataclasses import replace

import numpy as np
import pytest
from numpy.typing import NDArray

from projections.recall.agpr import NO_EMBEDDER, AgprParameters, smooth
from projections.recall.hits import Hits
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.scoring import Context, lead
from projections.recall.sessions import make_table
from projections.recall.tokens import query_terms
from projections.steps import at_once
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id

WIDTH = 48
Column = NDArray[np.float64]


def a_set(seed: int, count: int, vectors: bool = True) -> NodeSet:
    """Chunks of a few sessions in a mixed order, some of them gone again."""
    chance, nodes = random.Random(seed), NodeSet(b"alice")
    for number in range(count):
        session = frozenset((KEYS.session("alice", f"s{chance.randrange(12)}"),))
        turns = (number,)
        at = MONDAY + number
        node = SearchNode(an_id(f"n{number}"), NodeKind.CHUNK, TurnsText(turns), turns, session, at, at, at, 9)
        nodes.add(node, " ".join(f"word{min(int(chance.expovariate(0.1)), 60)}" for _ in range(9)))
    for number in chance.sample(range(count), count // 10):
        nodes.remove(an_id(f"n{number}"))
    if vectors:
        ids = [each for each in nodes.row_of if chance.random() < 0.95]
        nodes.set_vectors(ids, unit_rows(seed, len(ids)))
    return nodes


def unit_rows(seed: int, count: int) -> NDArray[np.float32]:
    rows = np.random.default_rng(seed).standard_normal((count, WIDTH), dtype=np.float32)
    unit: NDArray[np.float32] = rows / np.linalg.norm(rows, axis=1, keepdims=True)
    return unit


def stretched(column: Column, rows: NDArray[np.intp], *, cut: bool) -> Column:
    low, high = column[rows].min(), column[rows].max()
    if low == high:
        return np.zeros_like(column)
    result: Column = ((np.clip(column, low, high) if cut else column) - low) / (high - low)
    return result


def scores_by_hand(
    nodes: NodeSet,
    question: str,
    query: NDArray[np.float32] | None,
    rows: NDArray[np.intp],
    parameters: AgprParameters,
) -> Column:
    """Eq. 9's s of every row: each step over the whole column, nothing approximated."""
    fused = stretched(nodes.lexical.scores(query_terms(question), nodes.size), rows, cut=True)
    if query is not None:
        weight = parameters.cosine_weight
        fused = weight * stretched(nodes.cosines(query), rows, cut=True) + (1 - weight) * fused
    previous, following = nodes.neighbours()
    beside = [
        sum(fused[other] for other in (previous[row], following[row]) if other >= 0) for row in range(nodes.size)
    ]
    result: Column = fused + parameters.smoothing * np.array(beside)
    return result


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("smoothing", [0.0, 0.6])
@pytest.mark.parametrize("filtered", [False, True])
def test_words_alone_lead_as_the_formula_says(seed: int, smoothing: float, filtered: bool) -> None:
    print("seed", seed)
    nodes = a_set(seed, 700, vectors=False)
    rows = nodes.live_rows()[:: 3 if filtered else 1]
    parameters = replace(NO_EMBEDDER, smoothing=smoothing)
    question = "word3 word17 word40 word3"
    expected = scores_by_hand(nodes, question, None, rows, parameters)
    leading = lead(nodes.view(), nodes.lexical.hits(query_terms(question)), rows, parameters, 40)
    best = sorted(rows.tolist(), key=lambda row: (-round(float(expected[row]), 5), nodes.node(row).id))[:40]

    assert leading.rows.tolist() == best
    assert np.allclose(leading.smoothed, expected[best], atol=1e-9)
    assert leading.cosine is None


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("smoothing", [0.0, 0.6])
@pytest.mark.parametrize("filtered", [False, True])
def test_words_and_vectors_lead_nearly_as_the_formula_says(seed: int, smoothing: float, filtered: bool) -> None:
    print("seed", seed)
    nodes = a_set(seed, 1_500)
    rows = nodes.live_rows()[:: 3 if filtered else 1]
    parameters = replace(NO_EMBEDDER, smoothing=smoothing, cosine_weight=0.5)
    found = total = 0
    for number in range(10):
        question, query = f"word{number} word17 word40", unit_rows(100 + number, 1)[0]
        expected = scores_by_hand(nodes, question, query, rows, parameters)
        leading = lead(nodes.view(query), nodes.lexical.hits(query_terms(question)), rows, parameters, 40)
        best = rows[np.argsort(-expected[rows], kind="stable")[:40]]
        found += len(set(leading.rows.tolist()) & set(best.tolist()))
        total += 40

        # The scales are those of the scan, at most its error wider or narrower.
        assert np.abs(leading.smoothed - expected[leading.rows]).max() < 0.05
        assert leading.cosine is not None
        assert np.allclose(leading.cosine, nodes.cosines(query)[leading.rows], atol=1e-6)
    assert found / total >= 0.99


def test_hybrid_leaders_are_those_of_the_exact_scores() -> None:
    """Of 1,000 leaders at most one may be another (performance.md 6)."""
    nodes, parameters = a_set(4, 6_000), replace(NO_EMBEDDER, smoothing=0.2, cosine_weight=0.5)
    rows = nodes.live_rows()
    missed = 0
    for number in range(25):
        query, hits = unit_rows(200 + number, 1)[0], nodes.lexical.hits([f"word{number}", "word17"])
        view = nodes.view(query)
        scan = view.scan(np.empty(0), 40)
        assert scan is not None
        # The exact scores on the scales that the scan gives, which is what scores are told on.
        words = stretched(hits.add_up(nodes.size), rows, cut=True)
        low, high = float(scan[scan != 0].min()), float(scan.max())
        near = (np.maximum(nodes.cosines(query), low) - low) / (high - low)
        fused = 0.5 * near + 0.5 * words
        exact = smooth(fused, *nodes.neighbours(), 0.2)
        best = rows[np.argsort(-exact[rows].round(5), kind="stable")[:40]]
        found = lead(view, hits, rows, parameters, 40).rows
        missed += len(set(best.tolist()) - set(found.tolist()))

    assert missed <= 1


@pytest.mark.parametrize("batch", [1, 13, 900])
def test_a_set_that_comes_back_from_a_snapshot_leads_to_the_last_bit(batch: int) -> None:
    nodes, parameters = a_set(6, 800, vectors=False), replace(NO_EMBEDDER, cosine_weight=0.5)
    thawed = NodeSet.thaw(at_once(nodes.freeze()), b"alice")
    ids, vectors = list(nodes.row_of), unit_rows(6, len(nodes))
    nodes.set_vectors(ids, vectors)
    order = np.random.default_rng(batch).permutation(len(ids))
    for places in np.array_split(order, -(-len(ids) // batch)):
        thawed.set_vectors([ids[place] for place in places.tolist()], vectors[places])
    for number in range(5):
        query, terms = unit_rows(300 + number, 1)[0], [f"word{number}", "word9"]
        expected, again = (
            lead(each.view(query), each.lexical.hits(terms), each.live_rows(), parameters, 40)
            for each in (nodes, thawed)
        )

        assert again.rows.tolist() == expected.rows.tolist()
        assert again.smoothed.tolist() == expected.smoothed.tolist()
        assert again.cosine is not None
        assert expected.cosine is not None
        assert again.cosine.tolist() == expected.cosine.tolist()


def test_scores_that_hardly_differ_are_told_apart() -> None:
    nodes, parameters = a_set(5, 700, vectors=False), replace(NO_EMBEDDER, smoothing=0.6)
    rows = nodes.live_rows()
    # Stretched to 0 .. 1 they are a million times as large in between, where float32 has steps of a sixteenth.
    shares = 10_000 + np.random.default_rng(5).random(rows.size) / 100
    stretched = np.zeros(nodes.size)
    stretched[rows] = (shares - shares.min()) / (shares.max() - shares.min())
    expected = smooth(stretched, *nodes.neighbours(), 0.6)
    best = sorted(rows.tolist(), key=lambda row: (-round(float(expected[row]), 5), nodes.node(row).id))[:40]

    hits = Hits(rows, shares, [slice(0, rows.size)])

    assert lead(nodes.view(), hits, rows, parameters, 40).rows.tolist() == best


def test_no_row_leads_nothing_and_few_rows_all_lead() -> None:
    nodes = a_set(1, 30)
    hits, parameters = nodes.lexical.hits(["word1"]), replace(NO_EMBEDDER, cosine_weight=0.5)
    view = nodes.view(unit_rows(5, 1)[0])

    assert lead(view, hits, np.empty(0, dtype=np.intp), parameters, 5).rows.tolist() == []
    assert (
        sorted(lead(view, hits, nodes.live_rows()[:3], parameters, 5).rows.tolist())
        == nodes.live_rows()[:3].tolist()
    )


def test_level_rows_come_by_their_ids_however_many_there_are() -> None:
    nodes = NodeSet()
    for number in range(900):
        turns = (number,)
        session = frozenset((KEYS.session("alice", f"s{number}"),))
        nodes.add(
            SearchNode(an_id(str(number)), NodeKind.CHUNK, TurnsText(turns), turns, session, 0, 0, 0, 1), "same"
        )
    nodes.set_vectors(list(nodes.row_of), np.tile(unit_rows(1, 1), (900, 1)))
    first = sorted(nodes.row_of)[:10]
    hits = nodes.lexical.hits(["same"])
    for parameters, query in [(NO_EMBEDDER, None), (replace(NO_EMBEDDER, cosine_weight=0.5), unit_rows(2, 1)[0])]:
        leading = lead(nodes.view(query), hits, nodes.live_rows(), parameters, 10)

        assert [nodes.node(row).id for row in leading.rows.tolist()] == first


def test_a_view_answers_as_it_stood_while_rows_go_and_are_used_again() -> None:
    nodes = a_set(3, 800)
    query, parameters = unit_rows(7, 1)[0], replace(NO_EMBEDDER, cosine_weight=0.5)
    hits, rows, view = nodes.lexical.hits(["word3", "word9"]), nodes.live_rows(), nodes.view(query)
    expected = lead(view, hits, rows, parameters, 30)
    gone = [nodes.node(int(row)) for row in rows[::2]]
    for node in gone:
        nodes.remove(node.id)
    for number, node in enumerate(gone):
        nodes.add(replace_id(node, f"again{number}"), "word3 word3 word9")
    nodes.set_vectors([an_id(f"again{n}") for n in range(len(gone))], np.tile(query, (len(gone), 1)))
    again = lead(view, hits, rows, parameters, 30)

    assert again.rows.tolist() == expected.rows.tolist()
    assert again.smoothed.tolist() == expected.smoothed.tolist()
    assert view.ids[again.rows].tolist() == view.ids[expected.rows].tolist()
    assert (
        lead(nodes.view(query), nodes.lexical.hits(["word3"]), rows, parameters, 30).rows.tolist()
        != again.rows.tolist()
    )


def replace_id(node: SearchNode, name: str) -> SearchNode:
    return SearchNode(
        an_id(name),
        node.kind,
        node.ref,
        node.turns,
        node.sessions,
        node.said_at,
        node.time_start,
        node.time_end,
        9,
    )


@pytest.mark.parametrize("per_run", [1, 9])
def test_what_a_session_adds_does_not_depend_on_how_its_rows_lie(per_run: int) -> None:
    of_row = np.repeat(np.random.default_rng(per_run).integers(0, 5, 60), per_run).astype(np.int32)
    table = make_table(of_row, np.ones(of_row.size, dtype=np.bool_), np.ones(of_row.size, dtype=np.int32))
    added = np.array([0.0, 0.1, 0.2, 0.3, 0.4])
    context = Context(table.of_row, added, None, table.runs)

    expected = (np.ones(of_row.size, dtype=np.float32) + added.astype(np.float32)[of_row]).tolist()
    assert context.speak(np.ones(of_row.size, dtype=np.float32)).tolist() == expected
