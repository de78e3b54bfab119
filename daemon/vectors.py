"""Nodes get their vectors in the background, while they are searched by words already."""

from __future__ import annotations

from collections.abc import Sequence

import anyio
import anyio.to_thread

from daemon.logs import Report, quiet
from daemon.memories import Memories
from daemon.vector_source import VectorSource
from events.envelope import Reference
from events.errors import LogDamaged, StoreUnusable
from projections.memory import Memory
from projections.ports import Embedder, EmbedderUnavailable, TextRefused
from projections.recall.nodes import SearchNode

# Nodes of a batch: what an endpoint takes at once, and 20 to 2,000 ms of a model in this process.
TEXTS_MAX = 128
# Batches under way at once, of all users: an endpoint is waited for eight times less; a model in this process
# takes them one after the other all the same.
BATCHES_MAX = 8
# After an embedder failed; it has its own ideas of when to try again.
FAILED_PAUSE_S = 2.0
# Texts that a model refuses, remembered so that they are not asked for again; beyond this they are.
REFUSED_MAX = 10_000


class VectorFiller:
    """Gives the nodes of the Memories that are here their vectors; a node without one has cosine 0 until then."""

    def __init__(
        self,
        memories: Memories,
        embedder: Embedder,
        source: VectorSource,
        report: Report = quiet,
    ) -> None:
        self._memories = memories
        self._embedder = embedder
        self._source = source
        self._report = report
        self._filling: set[Reference] = set()
        self._batches = anyio.CapacityLimiter(BATCHES_MAX)
        # Ids of nodes whose texts the model does not take.
        self._refused: set[bytes] = set()
        self._trouble: str | None = None

    def count_waiting(self) -> int:
        """Nodes of the Memories that are here which have no vector yet."""
        waiting = 0
        for memory in self._memories.loaded().values():
            if memory.nodes.settled_at != memory.user_seq or self._refused:
                waiting += memory.nodes.count_without_vectors(self._source.our_spaces(memory))
        return waiting

    def is_behind(self, memory: Memory) -> bool:
        """Whether nodes of a Memory still get their vectors.

        Costs a look at two numbers for a Memory that did not change: this is asked of all that are here.
        """
        if memory.nodes.settled_at == memory.user_seq:
            return False
        if self._without_vectors(memory, 1):
            return True
        memory.nodes.settled_at = memory.user_seq
        return False

    async def run(self) -> None:
        """Fill for ever, every user by itself: one with much to do keeps no other waiting."""
        await self._try_until_ready()
        async with anyio.create_task_group() as fills:
            while True:
                changed = self._memories.changed
                self._report_state()
                if self._embedder.trouble is not None:
                    await anyio.sleep(FAILED_PAUSE_S)
                    await self._try_until_ready()
                for user, memory in self._memories.loaded().items():
                    if user not in self._filling and self.is_behind(memory):
                        self._filling.add(user)
                        fills.start_soon(self._fill_user, user, name="vectors.fill_user")
                await self._memories.wait_a_moment(changed)

    async def _try_until_ready(self) -> None:
        """Load the model, learn how wide an endpoint's vectors are, or see that it works again."""
        while True:
            try:
                await self._embedder.embed(["."])
            except EmbedderUnavailable:
                self._report_state()
                await anyio.sleep(FAILED_PAUSE_S)
            else:
                self._report_state()
                return

    def _report_state(self) -> None:
        if self._embedder.trouble != self._trouble:
            self._trouble = self._embedder.trouble
            self._report("embedder.state_changed", reason=self._trouble or "")

    async def _fill_user(self, user: Reference) -> None:
        """Fill until nothing is missing, the user's Memory is gone, or the embedder fails."""
        try:
            while await self._fill_some(user):
                pass
            await self._build_graph(user)
        finally:
            self._filling.discard(user)

    async def _fill_some(self, user: Reference) -> bool:
        """Embed some nodes of a user, in batches side by side; whether there were any and all went well."""
        memory = self._memories.loaded().get(user)
        if memory is None:
            return False  # it went while another's texts were embedded; nobody asks it now
        nodes = self._without_vectors(memory, TEXTS_MAX * BATCHES_MAX)
        went_well: list[bool] = []

        async def fill(batch: Sequence[SearchNode]) -> None:
            async with self._batches:
                went_well.append(await self._fill_batch(memory, batch))

        async with anyio.create_task_group() as tasks:
            for at in range(0, len(nodes), TEXTS_MAX):
                tasks.start_soon(fill, nodes[at : at + TEXTS_MAX], name="vectors.fill_batch")
        return bool(went_well) and all(went_well)

    async def _build_graph(self, user: Reference) -> None:
        """A graph of so many vectors as `search.graph_from_nodes` says takes minutes; queries go on without it."""
        memory = self._memories.loaded().get(user)
        plan = memory.nodes.plan_graph() if memory is not None else None
        if memory is not None and plan is not None:
            memory.nodes.use_graph(await anyio.to_thread.run_sync(plan))

    async def _fill_batch(self, memory: Memory, nodes: Sequence[SearchNode]) -> bool:
        try:
            await self._source.fill(memory, nodes)
        except TextRefused:
            return await self._fill_one_by_one(memory, nodes)
        except (EmbedderUnavailable, LogDamaged, StoreUnusable):
            return False  # whoever follows the log reports damage, and `run` what became of the embedder
        return True

    async def _fill_one_by_one(self, memory: Memory, nodes: Sequence[SearchNode]) -> bool:
        """One of these texts is refused: find it, and do without its vector."""
        if len(nodes) > 1:
            return all([await self._fill_batch(memory, [node]) for node in nodes])
        if len(self._refused) >= REFUSED_MAX:
            self._refused.clear()
        self._refused.add(nodes[0].id)
        return True

    def _without_vectors(self, memory: Memory, limit: int) -> list[SearchNode]:
        found = self._source.without_vectors(memory, limit + len(self._refused))
        return [node for node in found if node.id not in self._refused][:limit]


class BroughtFiller:
    """Gives nodes the vectors that memories of other systems came with; no embedder is asked for these."""

    def __init__(self, memories: Memories, source: VectorSource) -> None:
        self._memories = memories
        self._source = source

    async def run(self) -> None:
        """Fill for ever, some of each user's in turn."""
        while True:
            changed = self._memories.changed
            more = False
            for memory in self._memories.loaded().values():
                try:
                    more |= await self._source.fill_brought(memory)
                except (LogDamaged, StoreUnusable):
                    continue  # whoever follows the log reports it; it is tried again
            if not more:
                await self._memories.wait_a_moment(changed)
