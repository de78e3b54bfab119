"""Which readings of a user say the same: compared with the vectors that are here, on a thread when they are many.

What is compared is what there was when it was looked for; the Memory grows meanwhile.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from functools import partial
from typing import Final, TypeVar

import anyio.to_thread

from daemon.building.errands import Errands
from daemon.building.fact_vectors import FactVectors
from events.memory import FactId, Pointer
from projections.facts.canonical import Canon
from projections.facts.near import Candidates, Links, Nearness, find_candidates
from projections.memory import Memory
from projections.ports import Embedder

# So many are compared on the loop, in a few milliseconds; more on a thread.
COMPARED_AT_ONCE_MAX: Final = 128
# More than any cosine.
_NEVER: Final = 2.0

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Compared:
    """Readings that are one, and all that waited when they were compared.

    `by_vectors`: whether some had vectors; `is_complete`: whether none that was wanted was missing.
    """

    links: Links
    waiting: frozenset[Pointer]
    by_vectors: bool
    is_complete: bool


class Comparing:
    """Finds what may be one fact, and which of it is."""

    def __init__(self, embedder: Embedder, vectors: FactVectors, errands: Errands, *, judged: bool) -> None:
        self._embedder = embedder
        self._vectors = vectors
        self._errands = errands
        self._judged = judged

    async def find(self, canon: Canon, fresh: Collection[FactId] = ()) -> tuple[Candidates, tuple[Pointer, ...]]:
        """What may be one by rule, with the readings that tell; `fresh` facts were never compared."""
        candidates = find_candidates(canon, fresh)
        return candidates, await _think(candidates, candidates.wanted)

    async def compare(
        self, memory: Memory, candidates: Candidates, wanted: tuple[Pointer, ...], near: float | None
    ) -> Compared | None:
        """Which of them are one from this cosine on (None: it is being measured); what is missing is being made.

        None when something is missing and cannot be had.
        """
        user, canon = memory.user, memory.canon
        readings = self._vectors.readings(user, wanted)
        missing = {each: canon.occurrence(each) for each in wanted if each not in readings}
        if self._embedder.dimensions:  # else it is asked for them first
            self._vectors.want(user, (), {at: each for at, each in missing.items() if each is not None})
        is_complete = not missing and not (wanted and near is None)
        if not is_complete and self._errands.is_away(user):
            return None
        if near is None:
            readings, near = {}, _NEVER
        links = await _think(candidates, partial(candidates.link, Nearness(readings, near, self._judged)))
        return Compared(links, candidates.waiting, bool(readings), is_complete)


async def _think(candidates: Candidates, think: Callable[[], T]) -> T:
    return think() if len(candidates) <= COMPARED_AT_ONCE_MAX else await anyio.to_thread.run_sync(think)
