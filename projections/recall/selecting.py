"""Which of the ranked memories an answer shows: what others carry goes, what people said comes first, what fits.

Pure functions over ranked memories (design 3.4).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol, TypeAlias

import msgspec
from msgspec.structs import replace

from events.time import Instant
from projections.recall.nodes import NodeKind, SearchNode, format_date

# A fact may say another sentence of a turn than the one asked for. Counting only texts that hold the answer's
# words, recall within 4,000 characters on LoCoMo is 79.8 when any fact stands for its turns, 82.3 from here on.
SHORTER_SCORE_MIN = 0.7


class Carrier(Protocol):
    """What decides whether a node is shown; only those that are shown are read whole."""

    @property
    def id(self) -> bytes:
        """Its id."""
        ...

    @property
    def kind(self) -> NodeKind:
        """A chunk has all that was said in its turns, a fact or group a part of it."""
        ...

    @property
    def turns(self) -> tuple[int, ...]:
        """The source turns that it carries."""
        ...

    @property
    def said_at(self) -> Instant:
        """When they were said."""
        ...

    @property
    def length(self) -> int:
        """Characters of its text."""
        ...

    @property
    def stated(self) -> bool:
        """Whether a person had a say in it."""
        ...


class Ranked(msgspec.Struct, frozen=True, gc=False):
    """A node that may be shown, and how it came to its rank."""

    node: Carrier
    score: float
    similarity: float
    propagation: float


class Recalled(msgspec.Struct, frozen=True, gc=False):
    """A memory of an answer: its node, and how it came to its rank."""

    node: SearchNode
    score: float
    similarity: float
    propagation: float


def put_first(ranked: Iterable[Ranked], stated: Iterable[SearchNode], rest: Iterable[Ranked]) -> list[Ranked]:
    """What people said of facts stands before the turns it is about, which may say otherwise.

    `ranked` are those of the `stated` nodes that the question found by itself; they keep their rank if it is
    better. Nothing carries them, and they carry nothing.
    """
    own = list(ranked)
    of_turns = sorted(stated, key=lambda node: (node.time_start, node.id))
    shown: dict[bytes, Ranked] = {}
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


def drop_carried(memories: Iterable[Ranked], *, by_length: bool = False) -> list[Ranked]:
    """Drop each memory all of whose source turns are carried by better-ranked ones.

    Places are what is scarce in an answer of k: a memory that carries the turns of a better-ranked one and
    more takes that one's place (R@10 +1.2 points on LoCoMo, R@5 +1.5), and what it carries besides goes.
    Facts and groups say a part of their turns. So they take no place of a chunk there and carry none, and give
    their own to the chunk that says, with the chunks above them, all of theirs. (With LoCoMo compacted to half,
    counting only texts that hold the answer's words, R@10 is .7 to 1.7 points lower where groups carry chunks.)
    With `by_length` characters are: of two that carry the same turns the shorter one takes the better one's
    place, unless it scores far less.
    """
    kept: list[_Kept] = []
    carried: set[int] = set()
    for memory in memories:
        turns = frozenset(memory.node.turns)
        find_place = _place_of_longer if by_length else _place_of_less
        place = None if carried.isdisjoint(turns) else find_place(kept, memory, turns)
        if place is not None and by_length:
            better, _ = kept[place]
            kept[place] = replace(better, node=memory.node), turns
        elif place is not None:
            kept[place] = memory, turns
            kept = _without_carried(kept)
        elif not carried.issuperset(turns) or (_is_chunk(memory) and not by_length):
            kept.append((memory, turns))
        carried.update(turns)
    return [memory for memory, _ in kept]


def fit(memories: Iterable[Ranked], characters_max: int) -> Iterable[Ranked]:
    """The longest prefix whose texts, as lines with their dates, have at most so many characters together."""
    left = characters_max
    for memory in memories:
        left -= len(format_date(memory.node.said_at)) + 1 + memory.node.length + 1
        if left < 0:
            return
        yield memory


# A memory and its source turns.
_Kept: TypeAlias = tuple[Ranked, frozenset[int]]


def _without_carried(memories: list[_Kept]) -> list[_Kept]:
    """The chunks, and what has a source turn that no better-ranked one carries."""
    kept: list[_Kept] = []
    carried: set[int] = set()
    for memory, turns in memories:
        if _is_chunk(memory) or not carried.issuperset(turns):
            kept.append((memory, turns))
            carried.update(turns)
    return kept


def _is_chunk(memory: Ranked) -> bool:
    return memory.node.kind is NodeKind.CHUNK


def _place_of_less(kept: list[_Kept], memory: Ranked, turns: frozenset[int]) -> int | None:
    """The first kept fact or group that this one stands for: a chunk by its words, others by more turns."""
    is_chunk = _is_chunk(memory)
    for place, (better, others) in enumerate(kept):
        if others.isdisjoint(turns) or _is_chunk(better):
            continue
        if others < turns or (is_chunk and _are_in_chunks(others - turns, kept[:place])):
            return place
    return None


def _are_in_chunks(turns: frozenset[int], kept: list[_Kept]) -> bool:
    return turns.issubset(turn for memory, others in kept if _is_chunk(memory) for turn in others)


def _place_of_longer(kept: list[_Kept], memory: Ranked, turns: frozenset[int]) -> int | None:
    """The first kept memory that says more of the same turns, and is not far better."""
    for place, (better, others) in enumerate(kept):
        shorter = memory.node.length < better.node.length
        if shorter and turns == others and memory.score >= SHORTER_SCORE_MIN * better.score:
            return place
    return None
