"""From a question's columns to the memories of an answer: score, rank, and drop what is carried twice.

Pure functions over a NodeSet. Design 3.4, algorithms.md 3.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from projections.recall.agpr import AgprParameters, RankedRow, fuse, rank, smooth
from projections.recall.nodes import NodeSet, SearchNode, format_date
from projections.recall.tokens import query_terms

# An answer of k memories needs more ranked rows than k, since some carry the same turns.
ROWS_PER_MEMORY = 3
# Characters a token: what tokenizers of common models average on English prose.
CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Recalled:
    """A memory of an answer: its node, and how it came to its rank."""

    node: SearchNode
    score: float
    similarity: float
    propagation: float


def recall(
    nodes: NodeSet,
    question: str,
    k: int,
    parameters: AgprParameters,
    *,
    query_vector: NDArray[np.float32] | None = None,
    hidden: frozenset[Reference] = frozenset(),
    characters_max: int | None = None,
) -> list[Recalled]:
    """The best k memories for a question, best first; with `characters_max` no more than fit.

    Deterministic: the same nodes and question give the same answer, to the last digit.
    """
    rows = nodes.live_rows(hidden)
    if not rows.size:
        return []
    lexical = nodes.lexical.scores(query_terms(question), len(nodes.nodes))
    cosine = None if query_vector is None else nodes.cosines(query_vector)
    previous, following = nodes.neighbours()
    scores = smooth(fuse(lexical, cosine, parameters.cosine_weight), previous, following, parameters.smoothing)
    depth = k * ROWS_PER_MEMORY
    ranked = rank(scores[rows], nodes.said_at(rows), k, parameters, nodes.ties(rows), depth=depth)
    memories = [_recalled(nodes, int(rows[each.row]), each) for each in ranked]
    stated = [node for node in nodes.stated.values() if not node.sessions & hidden]
    rest = drop_carried(
        [memory for memory in memories if not memory.node.stated], by_length=characters_max is not None
    )
    memories = put_first([memory for memory in memories if memory.node.stated], stated, rest)[:k]
    return memories if characters_max is None else list(fit(memories, characters_max))


def _recalled(nodes: NodeSet, row: int, ranked: RankedRow) -> Recalled:
    return Recalled(nodes.node(row), ranked.score, ranked.similarity, ranked.propagation)


def put_first(
    ranked: Iterable[Recalled], stated: Iterable[SearchNode], rest: Iterable[Recalled]
) -> list[Recalled]:
    """What people said of facts stands before the turns it is about, which may say otherwise.

    `ranked` are those of the `stated` nodes that the question found by itself; they keep their rank if it is
    better. Nothing carries them, and they carry nothing.
    """
    own = list(ranked)
    of_turns = sorted(stated, key=lambda node: (node.time_start, node.id))
    shown: dict[bytes, Recalled] = {}
    for memory in rest:
        for each in own:
            if each.score > memory.score:
                shown.setdefault(each.node.id, each)
        for node in of_turns:
            if not set(node.turns).isdisjoint(memory.node.turns):
                shown.setdefault(node.id, replace(memory, node=node))
        shown[memory.node.id] = memory
    for each in own:
        shown.setdefault(each.node.id, each)
    return list(shown.values())


def drop_carried(memories: Iterable[Recalled], *, by_length: bool = False) -> list[Recalled]:
    """Drop each memory all of whose source turns are carried by better-ranked ones.

    Places are what is scarce in an answer of k: a memory that carries the turns of a better-ranked one and
    more takes that one's place (R@10 +1.2 points on LoCoMo, R@5 +1.5), and what it carries besides goes.
    With `by_length` characters are: of two that carry the same turns the shorter one takes the better one's
    place.
    """
    kept: list[Recalled] = []
    carried: set[int] = set()
    for memory in memories:
        place = _place_to_take(kept, memory, by_length=by_length)
        if place is not None and by_length:
            kept[place] = replace(kept[place], node=memory.node)
        elif place is not None:
            kept = _without_carried([*kept[:place], memory, *kept[place + 1 :]])
        elif not carried.issuperset(memory.node.turns):
            kept.append(memory)
        carried.update(memory.node.turns)
    return kept


def _without_carried(memories: list[Recalled]) -> list[Recalled]:
    """The memories that have a source turn which no better-ranked one carries."""
    kept: list[Recalled] = []
    carried: set[int] = set()
    for memory in memories:
        if not carried.issuperset(memory.node.turns):
            kept.append(memory)
        carried.update(memory.node.turns)
    return kept


def _place_to_take(kept: list[Recalled], memory: Recalled, *, by_length: bool) -> int | None:
    """The first kept memory that this one stands for better."""
    turns = set(memory.node.turns)
    for place, better in enumerate(kept):
        if better.node.turns[0] not in turns:
            continue
        if by_length:
            if turns == set(better.node.turns) and memory.node.length < better.node.length:
                return place
        elif turns > set(better.node.turns):
            return place
    return None


def fit(memories: Iterable[Recalled], characters_max: int) -> Iterable[Recalled]:
    """The longest prefix whose texts, as lines with their dates, have at most so many characters together."""
    left = characters_max
    for memory in memories:
        left -= len(format_date(memory.node.said_at)) + 1 + memory.node.length + 1
        if left < 0:
            return
        yield memory
