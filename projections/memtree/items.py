"""What a MemTree is made of: leaves in time, and nodes over them, each known by a digest."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from hashlib import blake2b
from struct import pack
from typing import ClassVar, TypeAlias

from events.time import Instant

# Where an item stands among its level: the time and the key of its first leaf.
Order: TypeAlias = tuple[Instant, bytes]
# What every node's digest is begun from; a copy takes a third of a hash begun anew.
_NODE_HASH = blake2b(digest_size=16, person=b"memtree.node")


@dataclass(frozen=True, slots=True, order=True)
class Leaf:
    """A fact or a chunk in time; sorts by (time_start, key). Its key is unique in a tree."""

    level: ClassVar[int] = 0
    size: ClassVar[int] = 1

    time_start: Instant
    key: bytes
    time_end: Instant

    @property
    def order(self) -> Order:
        """Where it stands among the leaves."""
        return self.time_start, self.key

    @property
    def digest(self) -> bytes:
        """What it is known by: its key, which already is a hash of its text and time."""
        return self.key


# Not frozen: to make a node would take twice as long, and nodes are what a change of a tree makes.
@dataclass(slots=True, eq=False)
class Node:
    """A stretch of time: two or more children in order, summarised as one. Never changed, only replaced.

    `key` and `order` are its first leaf's, so a change further inside moves no boundary above. `digest`
    (16 bytes) tells everything below: the same digest, the same leaves in the same shape. `size` counts
    leaves; `time_start` is their earliest start, `time_end` their latest end. `level` is 1 just above
    the leaves.
    """

    children: tuple[Item, ...]
    level: int
    key: bytes
    digest: bytes
    size: int
    time_start: Instant
    time_end: Instant

    @property
    def order(self) -> Order:
        """Where it stands among the items of its level."""
        return self.time_start, self.key

    @classmethod
    def over(cls, children: tuple[Item, ...], level: int) -> Node:
        """The node of these children, which are in order."""
        first = children[0]
        return cls(
            children=children,
            level=level,
            key=first.key,
            digest=merkle_digest(children, level),
            size=sum([child.size for child in children]),
            # Children are in order of their start, so the first has the earliest.
            time_start=first.time_start,
            time_end=max([child.time_end for child in children]),
        )


Item: TypeAlias = Leaf | Node


def merkle_digest(children: Sequence[Item], level: int) -> bytes:
    """A hash of the children's digests behind a head: how many, then a number for each, four bytes all.

    It is 0 for a node and the key's length + 1 for a leaf: no leaf passes for a node.
    """
    if level == 1:
        # All are leaves, whose digests are their keys.
        digests = [child.key for child in children]
        marks = [len(key) + 1 for key in digests]
    else:
        digests = [child.digest for child in children]
        marks = [0 if child.level else len(child.key) + 1 for child in children]
    hashed = _NODE_HASH.copy()
    hashed.update(_write_head(tuple(marks)) + b"".join(digests))
    return hashed.digest()


# Most nodes have leaves with keys of one length, or nodes alone.
@lru_cache(maxsize=256)
def _write_head(marks: tuple[int, ...]) -> bytes:
    return pack(f">{len(marks) + 1}I", len(marks), *marks)
