"""The vectors that memories of other systems came with: from the cache, or read from the log and kept there.

No embedder is asked, so they are there even while it is away; each is compared within its own space alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final

import numpy as np
from numpy.typing import NDArray

from events.envelope import Reference
from events.log import EventLog
from events.reading import read_events
from events.session import MemoryImported
from projections.facts.imported import read_vector
from projections.memory import Memory
from projections.ports import BROUGHT, CachedVector, VectorCache, Vectors
from projections.recall.nodes import SearchNode
from projections.spaces import Space
from projections.texts import FactText, name_text

# Memories that are read from the log at once: twenty kilobytes each at 3,072 numbers.
READ_MAX: Final = 128
# And nodes that are given theirs at once: some milliseconds of the loop.
FILLED_MAX: Final = 512

Row = NDArray[np.float16]


class BroughtVectors:
    """Finds vectors that were brought, and gives nodes of a Memory theirs."""

    def __init__(self, log: EventLog, cache: VectorCache) -> None:
        self._log = log
        self._cache = cache

    async def find(self, user: Reference, refs: Sequence[FactText], width: int) -> Vectors:
        """One unit row a memory, shape (len(refs), width), rounded to what float16 holds; zeros for what is gone.

        Raises `LogDamaged` or `StoreUnusable`.
        """
        rows = await self._find(user, refs, width)
        found = np.zeros((len(refs), width), dtype=np.float32)
        for at, ref in enumerate(refs):
            if ref in rows:
                found[at] = rows[ref]
        return found

    async def fill(self, memory: Memory, nodes: Sequence[SearchNode], *, kept_only: bool = False) -> None:
        """Give these nodes of a Memory their vectors, each in its space; `FILLED_MAX` at once are enough.

        `kept_only`: those alone that the cache has, and the log is not read.

        Raises `LogDamaged` or `StoreUnusable`.
        """
        by_space: dict[Space, dict[FactText, bytes]] = {}
        for node in nodes:
            if node.space and isinstance(node.ref, FactText):
                by_space.setdefault(memory.spaces.known[node.space - 1], {})[node.ref] = node.id
        for space, ids in by_space.items():
            rows = await self._find(memory.user, list(ids), space.width, kept_only=kept_only)
            if rows:
                memory.nodes.set_vectors([ids[ref] for ref in rows], np.stack(list(rows.values())), space.number)

    async def _find(
        self, user: Reference, refs: Sequence[FactText], width: int, *, kept_only: bool = False
    ) -> dict[FactText, Row]:
        """The rows of these that are there, in their order."""
        names = {ref: name_text(ref) for ref in refs}
        kept = await self._cache.load(user, BROUGHT, list(names.values()))
        rows = {ref: kept[key] for ref, key in names.items() if key in kept and kept[key].shape == (width,)}
        missing = [] if kept_only else [ref for ref in names if ref not in rows]
        for at in range(0, len(missing), READ_MAX):
            rows |= await self._read(user, missing[at : at + READ_MAX], width)
        return {ref: rows[ref] for ref in names if ref in rows} if missing else rows

    async def _read(self, user: Reference, refs: Sequence[FactText], width: int) -> Mapping[FactText, Row]:
        seqs = [ref.occurrence.seq for ref in refs]
        recorded = await self._log.read(partial(read_events, seqs=seqs))
        rows: dict[FactText, Row] = {}
        for ref, seq in zip(refs, seqs, strict=True):
            event = recorded[seq].event if seq in recorded else None
            vector = read_vector(event) if isinstance(event, MemoryImported) else None
            if vector is not None and vector.size == width:
                rows[ref] = vector.astype(np.float16)
        kept = [CachedVector(name_text(ref), (ref.occurrence.seq,), row) for ref, row in rows.items()]
        if kept:
            await self._cache.keep(user, BROUGHT, kept)
        return rows
