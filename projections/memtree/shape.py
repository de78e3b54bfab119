"""Where a MemTree puts its boundaries: a fixed function of level and key, so that history leaves no trace.

This decides and remembers nothing; `projections.memtree.tree` asks it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import cache
from hashlib import blake2b

# A group of `least` to `most` children around the target; the exponent makes the mean group as large as
# the target (algorithms.md 1: branching 10.0-10.3 for k = 10).
_LEAST_SHARE = 0.4
_MOST_SHARE = 1.6
_EXPONENT = 2.2
# With fewer than three the groups would hold one child each and the tree would be a list.
_TARGET_MIN = 3
# The draw is a hash of four bytes, and the probability is rounded to as many before they are compared: the
# last bit of a power differs between machines, and the fold must not.
_DRAW_BYTES = 4
_DRAWS = 1 << (8 * _DRAW_BYTES)
_ABOVE_ALL_DRAWS = b"\xff" * (_DRAW_BYTES + 1)


@dataclass(frozen=True, slots=True)
class TreeShape:
    """How many children a node of a MemTree has, and which child is its last.

    `target` is k, the children a node has on average (paper B: k = 10). The walk over a level, left to
    right, may end a group at its n-th child from n = `least` on and must at n = `most`; a level of at
    most `most` nodes is the root's children (algorithms.md 1, "History-independent shape").

    Raises ValueError when the target is below 3.
    """

    target: int = 10
    least: int = field(init=False)
    most: int = field(init=False)
    _limits: tuple[bytes, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if self.target < _TARGET_MIN:
            raise ValueError(f"a node's target is at least {_TARGET_MIN} children, not {self.target}")
        object.__setattr__(self, "least", round(_LEAST_SHARE * self.target))
        object.__setattr__(self, "most", round(_MOST_SHARE * self.target))
        limits = [
            round(self.probability(count) * _DRAWS).to_bytes(_DRAW_BYTES, "big") for count in range(self.most)
        ]
        object.__setattr__(self, "_limits", (*limits, _ABOVE_ALL_DRAWS))

    def probability(self, count: int) -> float:
        """The chance that a group ends at its `count`-th child n, if it came so far.

        ((n - least + 1) / (most - least + 1)) ** 2.2 from n = least on, 0 before; 1 at n = most.
        """
        if count < self.least:
            return 0.0
        if count >= self.most:
            return 1.0
        return float(((count - self.least + 1) / (self.most - self.least + 1)) ** _EXPONENT)

    def closes(self, level: int, key: bytes, count: int) -> bool:
        """Whether a group ends at its `count`-th child, of this key and on this level (leaves: 0).

        The draw is blake2b-32 of the level as four bytes, big end first, and the key.
        """
        return self.find_end(level, (key,), count) is not None

    def find_end(self, level: int, keys: Iterable[bytes], count: int) -> int | None:
        """The number of the child that a group ends at, if it does at one of these.

        `keys`: those of its children from the `count`-th on, up to the one numbered `most`.
        """
        begun, limits = _begin_draw(level), self._limits
        for key in keys:
            drawn = begun.copy()
            drawn.update(key)
            if drawn.digest() < limits[count]:
                return count
            count += 1
        return None


@cache
def _begin_draw(level: int) -> blake2b:
    """The hash of a level, which that of a key goes on from: a copy takes a third of a hash begun anew."""
    return blake2b(level.to_bytes(4, "big"), digest_size=_DRAW_BYTES, person=b"memtree.close")
