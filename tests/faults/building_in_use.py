"""Everything that builds, as the daemon ties it together, with its vectors from a stub over HTTP that counts."""

from __future__ import annotations

from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from itertools import count

import anyio

from daemon.building.deciding import Deciding
from daemon.building.worker import Worker
from daemon.derived import DERIVED, DerivedStore
from daemon.memories import Memories
from daemon.models.background import measure, read_background
from daemon.models.embedding import EndpointEmbedder
from daemon.tree_vectors import TreeVectorFiller
from daemon.vector_source import VectorSource
from daemon.vectors import VectorFiller
from events.decisions import Thresholds
from events.log import EventLog
from projections.memory import Memory
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_closing, a_turn
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, QUICK, SMALL
from tests.openai_stub import OpenAiStub
from tests.scripted_models import ScriptedModel
from tests.waiting import wait_until

DERIVED_BYTES = 64 << 20


@dataclass
class Built:
    """A store that is built while its texts are embedded at a stub."""

    log: EventLog
    stub: OpenAiStub
    embedder: EndpointEmbedder
    model: ScriptedModel
    memories: Memories
    worker: Worker
    vectors: VectorFiller
    tree_vectors: TreeVectorFiller
    numbers: count[int]

    async def say(self, *contents: str, session_id: str, day: int = 0) -> None:
        """Turns of a session, a minute apart, on a day."""
        for content in contents:
            number = next(self.numbers)
            at = MONDAY + day * 86_400_000 + number * MINUTE_MS
            await self.log.append(
                a_batch(a_turn(content, session_id=session_id, turn_id=f"t{number}", happened_at=at))
            )

    async def learn(self, *contents: str, session_id: str, day: int = 0) -> None:
        """A session that is said, closed and built to its end, vectors included."""
        await self.say(*contents, session_id=session_id, day=day)
        await self.log.append_event(a_closing(session_id, key=str(next(self.numbers))))
        await self.memory()
        await self.until_done()

    async def memory(self) -> Memory:
        return await self.memories.catch_up(KEYS.user("alice"))

    async def until_done(self) -> None:
        await wait_until(self._is_done, message="the building does not come to an end")

    def texts(self) -> Counter[str]:
        """How often each text of the user was embedded; what an embedder is measured by is nobody's."""
        background = {sentence for subject in read_background() for sentence in subject.sentences} | {"."}
        return Counter(text for text in self.stub.texts if text not in background)

    async def thresholds(self) -> Thresholds:
        """What cosines mean with this embedder."""
        return await measure(self.embedder)

    def _is_done(self) -> bool:
        memory = self.memories.loaded().get(ALICE)
        return (
            memory is not None
            and not self.worker.in_flight
            and memory.user_seq == self.log.head
            and not memory.needs_rebuild
            and not memory.pending()
            and not self.vectors.count_waiting()
            and not self.tree_vectors.count_waiting()
        )


@asynccontextmanager
async def building(log: EventLog, clock: ManualClock, stub: OpenAiStub) -> AsyncGenerator[Built]:
    """The worker, what decides and what makes vectors are at work."""
    reported, model = Reported(), ScriptedModel()
    embedder = EndpointEmbedder(stub.url, "some-model", "sk-Xylophon")
    store = await DerivedStore.open(log.path.parent / DERIVED, log, reported, DERIVED_BYTES)
    source = VectorSource(log, embedder, store)
    memories = Memories(log, SMALL, reported)
    deciding = Deciding(log, memories, embedder, source, reported)
    worker = Worker(log, memories, model, QUICK, clock, reported, deciding=deciding)
    vectors = VectorFiller(memories, embedder, source, reported)
    tree_vectors = TreeVectorFiller(memories, source, vectors, eager=True)
    try:
        async with anyio.create_task_group() as tasks:
            for part in (memories.follow, worker.run, vectors.run, tree_vectors.run):
                tasks.start_soon(part)
            yield Built(log, stub, embedder, model, memories, worker, vectors, tree_vectors, count(1))
            tasks.cancel_scope.cancel()
    finally:
        await store.close()
        await embedder.close()
