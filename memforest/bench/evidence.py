"""How much of what answers a question the memories of an answer carry: recall of gold turns, by rank and by
length.

The measures of tests/quality, which takes them from here. A turn counts as carried when a memory names it as a
source.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from memforest.bench.records import Evidence, SessionsFound

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

# What is asked for: so many memories, or so many characters of them (BENCHMARKS.md, b2000 to b8000).
RANKS = (5, 10, 20)
LENGTHS = (2_000, 4_000, 8_000)
# The reciprocal rank is looked for among so many.
MRR_RANKS = 10


@dataclass(frozen=True, slots=True)
class Retrieved:
    """A memory of an answer: its text, and the turns it may be credited with."""

    turn_ids: frozenset[str]
    text: str


def measure(
    by_rank: Sequence[Sequence[Retrieved]], by_length: Sequence[Sequence[Retrieved]], gold: frozenset[str]
) -> Evidence:
    """All measures of one question; `gold` is not empty.

    One answer for each of RANKS, and one for each of LENGTHS: what ranks highest depends on how many are asked
    for.
    """
    five, ten, twenty = (recall_at(found, gold, rank) for found, rank in zip(by_rank, RANKS, strict=True))
    short, middle, long = (
        recall_within(found, gold, length) for found, length in zip(by_length, LENGTHS, strict=True)
    )
    rank = reciprocal_rank(by_rank[RANKS.index(MRR_RANKS)][:MRR_RANKS], gold)
    return Evidence(five, ten, twenty, short, middle, long, rank)


def find_sessions(by_rank: Sequence[Sequence[frozenset[str]]], gold: frozenset[str]) -> SessionsFound:
    """The share of the gold sessions that the first memories are from, for each of RANKS; `gold` is not empty."""
    shares = [
        len(gold.intersection(each for sessions in found[:rank] for each in sessions)) / len(gold)
        for found, rank in zip(by_rank, RANKS, strict=True)
    ]
    return SessionsFound(*shares)


def recall_at(ranking: Sequence[Retrieved], gold: frozenset[str], k: int) -> float:
    """The share of the gold turns that the first k memories carry."""
    return _carried(ranking[:k], gold)


def recall_within(ranking: Iterable[Retrieved], gold: frozenset[str], characters: int) -> float:
    """The share in the longest prefix of at most so many characters; the first text that does not fit ends it."""
    return _carried(longest_prefix(ranking, characters), gold)


def longest_prefix(ranking: Iterable[Retrieved], characters: int) -> list[Retrieved]:
    """The first memories, as long as their texts sum to at most so many characters."""
    prefix: list[Retrieved] = []
    for memory in ranking:
        characters -= len(memory.text)
        if characters < 0:
            break
        prefix.append(memory)
    return prefix


def reciprocal_rank(ranking: Iterable[Retrieved], gold: frozenset[str]) -> float:
    """1 / the rank of the first memory that carries a gold turn, 0 without one."""
    hits = (1 / place for place, memory in enumerate(ranking, start=1) if memory.turn_ids & gold)
    return next(hits, 0.0)


def _carried(memories: Iterable[Retrieved], gold: frozenset[str]) -> float:
    carried = {turn_id for memory in memories for turn_id in memory.turn_ids}
    return len(carried & gold) / len(gold)
