"""s as a whole: words, vectors, neighbours, session and names together, against the same written out plainly."""

from __future__ import annotations

import random

import numpy as np
import pytest

from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, STATIC, AgprParameters, fuse, smooth
from projections.recall.answering import RecallRequest, prepare, score_rows
from projections.recall.filters import label_marks
from projections.recall.naming import named_shares
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.sessions import score_sessions
from projections.recall.tokens import query_terms
from projections.texts import TurnsText
from tests.builders import MONDAY, an_id

WORDS = ["miami", "boston", "rex", "swims", "runs", "paints"]


def fill(seed: int, *, vectors: bool) -> tuple[NodeSet, np.ndarray[tuple[int, ...], np.dtype[np.float32]]]:
    chance, nodes = random.Random(seed), NodeSet(b"alice")
    for n in range(80):
        kind = NodeKind.FACT if n % 3 else NodeKind.CHUNK
        labels = chance.sample(["jon", "gina"], chance.randint(0, 2)) if kind is NodeKind.FACT else []
        at, sessions = MONDAY + n * 60_000, frozenset((an_id(f"s{n // 16}"),))
        node = SearchNode(an_id(f"n{n}"), kind, TurnsText((n,)), (n,), sessions, at, at, at, 9)
        nodes.add(node, " ".join(chance.choices(WORDS, k=4)), label_marks(labels, nodes.mark))
    rows = np.random.default_rng(seed).normal(size=(80, 16)).astype(np.float32)
    rows /= np.linalg.norm(rows, axis=1, keepdims=True)
    rows = rows.astype(np.float16).astype(np.float32)
    if vectors:
        nodes.set_vectors([an_id(f"n{n}") for n in range(80)], rows)
    return nodes, rows[7]


@pytest.mark.parametrize("parameters", [NO_EMBEDDER, STATIC, ANY_EMBEDDER])
@pytest.mark.parametrize("seed", range(4))
def test_the_leading_rows_are_those_of_the_formula(seed: int, parameters: AgprParameters) -> None:
    print("seed", seed)
    by_vectors = parameters.cosine_weight > 0
    nodes, vector = fill(seed, vectors=by_vectors)
    request = RecallRequest("Did Jon swim in Miami?", 5, parameters, vector if by_vectors else None)
    leading = score_rows(prepare(nodes, request), request)

    asked = query_terms(request.question)
    lexical = nodes.lexical.scores(asked, nodes.size)
    cosine = nodes.cosines(vector) if by_vectors else None
    plain = smooth(fuse(lexical, cosine, parameters.cosine_weight), *nodes.neighbours(), parameters.smoothing)
    table = nodes.session_table()
    plain = plain + parameters.session_weight * score_sessions(table, nodes.lexical.find(asked))[table.of_row]
    shares = named_shares(nodes, request.question)
    assert shares is not None
    plain = plain * (1 + parameters.entity_weight * shares)
    best = np.sort(plain)[::-1][: len(leading.rows)]

    assert len(leading.rows) == 20
    np.testing.assert_allclose(leading.smoothed, best, atol=2e-3)
    np.testing.assert_allclose(leading.smoothed, plain[leading.rows], atol=2e-3)
