"""What a whole `recall` costs, without reading texts, against one product of numpy's of as many rows."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import numpy as np
from numpy.typing import NDArray
from threadpoolctl import threadpool_limits

from events.envelope import identify
from projections.recall.agpr import NO_EMBEDDER, AgprParameters
from projections.recall.answering import recall
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.benchmarks.measuring import Figure, Row, Spent, ms, percentile, sized, spend
from tests.benchmarks.samples import Speech
from tests.builders import MONDAY, an_id

SIZES = (1_000, 10_000, 50_000)
HYBRID_SIZES = (1_000, 10_000)
# What is aimed at by size: an exact search as fast as the product alone.
GOALS = {10_000: 1.0}
DIMENSIONS = 384
QUESTIONS = 200
CHUNKS_PER_SESSION = 10
CHUNK_MS = 60_000
DAY_MS = 86_400_000
K = 10


def measure(share: float) -> list[Row]:
    """Recall by words at three sizes, and with vectors at two."""
    rows = list[Row]()
    hybrid = replace(NO_EMBEDDER, cosine_weight=0.5)
    with threadpool_limits(1):
        for size in SIZES:
            nodes, questions = _fill(sized(size, share, 100), sized(QUESTIONS, share, 10))
            rows += _measure(nodes, questions, NO_EMBEDDER, "recall by words", GOALS.get(size))
            if size in HYBRID_SIZES:
                _add_vectors(nodes)
                rows += _measure(nodes, questions, hybrid, "recall by words and vectors", GOALS.get(size))
    return rows


def _fill(size: int, questions: int) -> tuple[NodeSet, list[str]]:
    """Chunks of sessions a day apart, and a question about each of some of them."""
    nodes, speech, texts = NodeSet(), Speech(1), list[str]()
    for row in range(size):
        session, place = divmod(row, CHUNKS_PER_SESSION)
        said_at = MONDAY + session * DAY_MS + place * CHUNK_MS
        text = f"Alice: {speech.turn()}\nWren: {speech.turn()}"
        turns = (2 * row + 1, 2 * row + 2)
        node = SearchNode(
            id=identify(b"mf.chunk", row.to_bytes(8, "big")),
            kind=NodeKind.CHUNK,
            ref=TurnsText(turns),
            turns=turns,
            sessions=frozenset((an_id(f"session {session}"),)),
            said_at=said_at,
            time_start=said_at,
            time_end=said_at + CHUNK_MS,
            length=len(text),
        )
        nodes.add(node, text)
        texts.append(text)
    chosen = random.Random(2).choices(texts, k=questions)
    return nodes, [speech.question(text) for text in chosen]


def _unit_rows(count: int, seed: int) -> NDArray[np.float32]:
    vectors = np.random.default_rng(seed).standard_normal((count, DIMENSIONS), dtype=np.float32)
    unit: NDArray[np.float32] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    return unit


def _add_vectors(nodes: NodeSet) -> None:
    ids = list(nodes.row_of)
    nodes.set_vectors(ids, _unit_rows(len(ids), 3))


def _measure(
    nodes: NodeSet, questions: list[str], parameters: AgprParameters, what: str, goal: float | None
) -> list[Row]:
    size = len(nodes)
    matrix, vector = _unit_rows(size, 4), _unit_rows(1, 5)[0]
    asked = vector if parameters.cosine_weight else None

    def ask(question: str) -> object:
        return recall(nodes, question, K, parameters, query_vector=asked)

    ours, products = _interleave(ask, questions, partial(np.matmul, matrix, vector))
    cpu, product_cpu = [each.thread_s for each in ours], [each.thread_s for each in products]
    walls = [each.wall_s for each in ours]
    figures = (
        Figure("recall_cpu_ms_p50", ms(median(cpu))),
        Figure("recall_cpu_ms_p99", ms(percentile(cpu, 0.99))),
        Figure("recall_ms_p50", ms(median(walls))),
        Figure("recall_ms_p99", ms(percentile(walls, 0.99))),
        Figure("product_cpu_ms_p50", ms(median(product_cpu))),
    )
    name = f"{what}, {size:,} nodes"
    product = f"f32 product of {size:,} x {DIMENSIONS}, one thread"
    return [
        Row(f"{name}, CPU p50", median(cpu) / median(product_cpu), product, figures, goal),
        Row(f"{name}, CPU p99", percentile(cpu, 0.99) / median(cpu), "its p50", (), goal=3.0),
    ]


def _interleave(
    ask: Callable[[str], object], questions: list[str], product: Callable[[], object]
) -> tuple[list[Spent], list[Spent]]:
    """Each question once, each time beside the product; the first of both are for warming up."""
    ask(questions[0])
    product()
    ours, products = list[Spent](), list[Spent]()
    for question in questions:
        ours.append(spend(partial(ask, question)))
        products.append(spend(product))
    return ours, products
