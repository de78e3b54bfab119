"""Vectors of the nodes that are searched, for when cosines count: made in the background, kept in memory."""

from __future__ import annotations

import anyio

from daemon.memories import Memories
from daemon.texts import read_texts
from events.envelope import Reference
from events.errors import LogDamaged, StoreUnusable
from events.log import EventLog
from projections.ports import Embedder

# Texts embedded at once, between two looks at who else waits.
TEXTS_MAX = 128


class VectorFiller:
    """Embeds the nodes of the Memories that are here; a node without its vector has cosine 0 until then."""

    def __init__(self, log: EventLog, memories: Memories, embedder: Embedder) -> None:
        self._log = log
        self._memories = memories
        self._embedder = embedder

    async def run(self) -> None:
        """Fill for ever."""
        while True:
            changed = self._memories.changed
            filled = [await self._fill(user) for user in list(self._memories.loaded())]
            if not any(filled):
                await self._memories.wait_a_moment(changed)

    async def _fill(self, user: Reference) -> bool:
        """Embed some nodes of a user; whether there were any."""
        if not self._memories.holds(user):
            return False  # it went while another's texts were embedded; nobody asks it now
        try:
            async with self._memories.use(user) as memory:
                nodes = memory.nodes.without_vectors(TEXTS_MAX)
                if not nodes:
                    return False
                texts = await read_texts(self._log, [node.ref for node in nodes])
                vectors = await self._embedder.embed([text or "" for text in texts])
                memory.nodes.set_vectors([node.id for node in nodes], vectors)
                await anyio.lowlevel.checkpoint()
                return True
        except (LogDamaged, StoreUnusable):
            return False  # whoever follows the log reports it
