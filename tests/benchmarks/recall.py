"""What a whole `recall` costs, without reading texts, against one product of numpy's of as many rows.

`--share 10` measures up to a million nodes.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from statistics import median

import msgspec
import numpy as np
from threadpoolctl import threadpool_limits

from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from projections.recall.answering import RecallRequest, recall
from projections.recall.nodes import NodeSet
from projections.recall.state import NodeSetState
from projections.steps import at_once
from tests.benchmarks.measuring import Figure, Row, Spent, ms, percentile, sized, spend
from tests.benchmarks.node_sets import DIMENSIONS, add_vectors, fill, unit_rows

SIZES = (1_000, 10_000, 100_000)
# What is aimed at by size: an exact search as fast as the product alone, and much faster where memory is slow.
GOALS = {10_000: 1.0, 100_000: 0.3, 1_000_000: 0.25}
QUESTIONS = 200
K = 10
LEADING = 40
NODE_BYTES_MAX = 1_600
THAW_MS_MAX = 100.0


def measure(share: float) -> list[Row]:
    """Recall by words, and by words and vectors; what a node weighs; how fast a node set comes back."""
    rows = list[Row]()
    with threadpool_limits(1):
        for full in SIZES:
            size = sized(full, share, 100)
            nodes, questions = fill(size, sized(QUESTIONS, min(share, 1.0), 10))
            rows += _measure(nodes, questions, NO_EMBEDDER, "recall by words", GOALS.get(size))
            add_vectors(nodes)
            rows += _measure(nodes, questions, ANY_EMBEDDER, "recall by words and vectors", GOALS.get(size))
            rows.append(_scan(nodes))
            if full == SIZES[1]:
                rows += [_leading(nodes), _thaw(nodes), _weigh(size)]
    return rows


def _measure(
    nodes: NodeSet, questions: list[str], parameters: AgprParameters, what: str, goal: float | None
) -> list[Row]:
    size = len(nodes)
    matrix, vector = unit_rows(size, 4), unit_rows(1, 5)[0]
    asked = vector if parameters.cosine_weight else None

    def ask(question: str) -> object:
        return recall(nodes, RecallRequest(question, K, parameters, query_vector=asked))

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


def _scan(nodes: NodeSet) -> Row:
    """The part of a recall that reads every vector: nothing exact can take less."""
    size = len(nodes)
    view, matrix, vector = nodes.view(unit_rows(1, 5)[0]), unit_rows(size, 4), unit_rows(1, 5)[0]
    scan = partial(view.scan, np.empty(0), LEADING)
    turns = [(spend(scan), spend(partial(np.matmul, matrix, vector))) for _ in range(30)]
    scans, products = ([each.thread_s for each in side] for side in zip(*turns, strict=True))
    return Row(
        f"of that, reading all vectors, {size:,} nodes",
        median(scans) / median(products),
        f"f32 product of {size:,} x {DIMENSIONS}, one thread",
        (Figure("scan_cpu_ms_p50", ms(median(scans))),),
    )


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


def _leading(nodes: NodeSet) -> Row:
    """By vectors alone: who leads by the scan of bytes, against float64 products of the same vectors."""
    vectors = unit_rows(len(nodes), 3).astype(np.float16).astype(np.float64)
    parameters = replace(NO_EMBEDDER, cosine_weight=1.0, smoothing=0.0)
    wanted = min(LEADING, len(nodes))
    missed = 0
    queries = unit_rows(50, 6)
    for query in queries:
        found = recall(nodes, RecallRequest("", K, parameters, query_vector=query)).leading.rows
        exact = np.argsort(-(vectors @ query.astype(np.float64)), kind="stable")[:wanted]
        missed += len(set(exact.tolist()) - set(found.tolist()))
    return Row(
        f"missed of the top {LEADING} by vectors, {len(nodes):,} nodes",
        missed / (wanted * len(queries)),
        "an exact float64 search",
        (),
        goal=0.001,
    )


def _thaw(nodes: NodeSet) -> Row:
    """A node set from a snapshot, without its vectors."""
    content = msgspec.msgpack.encode(at_once(nodes.freeze()))
    spent = [
        spend(lambda: NodeSet.thaw(msgspec.msgpack.decode(content, type=NodeSetState), b"alice")) for _ in range(7)
    ]
    took_ms = ms(median(each.thread_s for each in spent))
    figures = (Figure("thaw_cpu_ms", took_ms), Figure("snapshot_bytes_a_node", len(content) / len(nodes)))
    return Row(f"thaw of {len(nodes):,} nodes, CPU", took_ms / THAW_MS_MAX, f"{THAW_MS_MAX:.0f} ms", figures, 1.0)


def _weigh(size: int) -> Row:
    """Resident memory of a process before and after it made a node set, all included."""
    program = f"from tests.benchmarks.node_sets import weigh; print(weigh({size}))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    weight = float(done.stdout)
    return Row(
        f"memory of a node, {size:,} nodes x {DIMENSIONS}",
        weight / NODE_BYTES_MAX,
        f"{NODE_BYTES_MAX:,} bytes",
        (Figure("node_bytes", weight),),
        goal=1.0,
    )
