"""A memory of facts, and the same one after half of its nodes were merged away: search by vectors, and bytes."""

from __future__ import annotations

from functools import partial
from statistics import median

import numpy as np
from threadpoolctl import threadpool_limits

from events.envelope import identify
from events.memory import Pointer
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import FactText, WrittenText
from tests.benchmarks.measuring import Figure, Row, ms, sized, spend
from tests.benchmarks.node_sets import DIMENSIONS, add_vectors, unit_rows
from tests.builders import MONDAY, an_id

FACTS = 100_000
MEMBERS = 2
ROUNDS = 30
LEADING = 40
FACTS_PER_SESSION = 20
DAY_MS = 86_400_000
# What a fact's text is made of does not matter to a search by vectors.
WORDS = 1_000


def measure(share: float) -> list[Row]:
    """Half of the nodes are merged into the others, two by two, as the fold does it."""
    nodes, merged = _facts(sized(FACTS, share, 1_000)), _facts(sized(FACTS, share, 1_000))
    size = len(nodes)
    _merge(merged)
    with threadpool_limits(1):
        query = unit_rows(1, 5)[0]
        scans = [partial(each.view(query).scan, np.empty(0), LEADING) for each in (nodes, merged)]
        before, after = zip(*([spend(scan).thread_s for scan in scans] for _ in range(ROUNDS)), strict=True)
    times = (
        Figure("nodes", len(merged)),
        Figure("scan_cpu_ms_p50", ms(median(after))),
        Figure("uncompressed_scan_cpu_ms_p50", ms(median(before))),
    )
    held, was = merged.vector_bytes, nodes.vector_bytes
    sizes = (Figure("vector_bytes_a_fact", held / size), Figure("uncompressed_vector_bytes_a_fact", was / size))
    what = f"{size:,} facts x {DIMENSIONS} as half as many nodes"
    return [
        Row(f"dense search, {what}", median(after) / median(before), "the facts as nodes", times, 0.55),
        Row(f"bytes of node vectors, {what}", held / was, "the facts as nodes", sizes, 0.52),
    ]


def _facts(count: int) -> NodeSet:
    nodes = NodeSet(b"alice")
    for number in range(count):
        text = f"word{number % WORDS} word{number // WORDS}"
        nodes.add(_node(number, NodeKind.FACT, len(text)), text)
    add_vectors(nodes)
    return nodes


def _merge(nodes: NodeSet) -> None:
    """Neighbours become one."""
    members = list(nodes.row_of)
    for number, at in enumerate(range(0, len(members), MEMBERS), len(members)):
        group = members[at : at + MEMBERS]
        for member in group:
            nodes.set_aside(member)
        text = f"word{number % WORDS} word{at % WORDS}"
        nodes.add_group(_node(number, NodeKind.GROUP, len(text), said=at), group, text=text)
        nodes.close_gaps()


def _node(number: int, kind: NodeKind, length: int, said: int | None = None) -> SearchNode:
    session, place = divmod(number if said is None else said, FACTS_PER_SESSION)
    said_at = MONDAY + session * DAY_MS + place
    ref = WrittenText(number + 1) if kind is NodeKind.GROUP else FactText(Pointer(number + 1, 0))
    return SearchNode(
        id=identify(b"mf.bench", number.to_bytes(8, "big")),
        kind=kind,
        ref=ref,
        turns=(number + 1,),
        sessions=frozenset((an_id(f"session {session}"),)),
        said_at=said_at,
        time_start=said_at,
        time_end=said_at,
        length=length,
    )
