"""`query`: wait if asked to, recall, read the texts, and say how fresh the answer is."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial

import numpy as np
from anyio import to_thread
from numpy.typing import NDArray

from daemon.asking.answer_types import Answer, Watermark
from daemon.asking.explanations import Stopwatch, show_parameters
from daemon.asking.freshness import Freshness, check_target, find_lag
from daemon.asking.history import History, agree, count_redacted, locate
from daemon.asking.query_params import Asked, QueryParams, read_query
from daemon.asking.showing import Found, Member, find_ended, find_members, make_answer
from daemon.memories import Memories
from daemon.vector_source import VectorSource
from events.envelope import Keys, Reference
from events.errors import InvalidInput
from events.hindsight import read_hindsight
from events.log import LogReader
from events.reading import read_events
from events.registry import knows_user
from events.time import Instant
from projections.memory import Memory
from projections.ports import Embedder, EmbedderUnavailable
from projections.recall.agpr import SCORE_DECIMALS, AgprParameters
from projections.recall.answering import (
    CHARACTERS_PER_TOKEN,
    RecallRequest,
    Recollection,
    choose,
    prepare,
    score_rows,
)
from projections.recall.explaining import explain

# Up to so many nodes are scored in less than 5 ms; a hop to another thread costs a tenth of one.
NODES_ON_LOOP_MAX = 30_000


class Answerer:
    """Answers queries from the Memories."""

    def __init__(
        self,
        keys: Keys,
        reader: LogReader,
        memories: Memories,
        embedder: Embedder,
        parameters: AgprParameters,
        planned: Callable[[Reference], int],
        clock: Callable[[], Instant],
        history: History | None = None,
        vectors: VectorSource | None = None,
        nodes_on_loop_max: int = NODES_ON_LOOP_MAX,
        give_out: Callable[[Reference, str], None] = lambda _, __: None,
    ) -> None:
        """`reader` is for queries alone, or they would queue behind what the worker reads.

        `planned` says how many groups of a user are planned and not fused. Without a `history` it has its own.
        `vectors` order the inside of an opened group; without them it is in the order of time. `give_out` is told
        for whom which context was given out.
        """
        self._keys = keys
        self._reader = reader
        self._memories = memories
        self._embedder = embedder
        self._parameters = parameters
        self._freshness = Freshness(keys, reader, memories, planned, clock)
        self._history = history or History(reader, memories.parameters)
        self._vectors = vectors
        self._nodes_on_loop_max = nodes_on_loop_max
        self._give_out = give_out

    async def query(self, params: QueryParams) -> Answer:
        """The memories for a question. An unknown user has none.

        Raises `InvalidInput`, and for `wait_for` `TurnDeadLettered`, `TurnInConflict` or `TurnRefused`.
        """
        asked, watch = read_query(params, self._keys), Stopwatch()
        self._check_vector(asked)
        user = self._keys.user(params.user_id)
        if params.wait_for is not None:
            check_target(params.user_id, params.wait_for)
            await self._freshness.wait_for(user, params.wait_for)
            watch.lap("wait")
        # Asked only when the Memory is not here: each reading costs a query a hop to another thread.
        if not self._memories.holds(user) and not await self._reader.read(partial(knows_user, user=user)):
            return Answer()
        if params.as_of is not None:
            return await self._query_past(user, asked, params.as_of, watch)
        vector = await self._embed(asked)
        watch.lap("embed")
        async with self._memories.use(user) as memory:
            watch.lap("load")
            projected = memory.user_seq
            found = await self._recall(memory, asked, vector, watch)
            if vector is not None and found.members:
                found = replace(found, members=await self._order_members(user, found.members, vector))
            recorded, lag = await self._reader.read(
                lambda db: (read_events(db, found.seqs), find_lag(db, user, projected))
            )
            watermark = self._freshness.make_watermark(memory, projected, *lag)
            watch.lap("read")
            answer = make_answer(found, recorded, watermark, watch.laps_ms)
            self._give_out(user, answer.context)
            return answer

    async def watermark(self, memory: Memory) -> Watermark:
        """How far a Memory reaches now."""
        return await self._freshness.watermark(memory)

    async def _query_past(self, user: Reference, asked: Asked, as_of: int | str, watch: Stopwatch) -> Answer:
        """What the memory knew then. By words alone, since a past Memory has no vectors."""
        user_seq = await self._reader.read(partial(locate, user=user, position=as_of))
        while True:
            async with self._history.at(user, user_seq) as (memory, hindsight):
                watch.lap("load")
                found = await self._recall(memory, asked, None, watch)
                recorded, known_now, redacted = await self._reader.read(
                    lambda db: (
                        read_events(db, found.seqs),  # noqa: B023
                        read_hindsight(db, user, user_seq),
                        count_redacted(db, user_seq, hindsight),
                    )
                )
                if agree(known_now, hindsight):  # otherwise something was forgotten since it was folded
                    watermark = Watermark(user_seq, user_seq, memory.pending(), 0.0)
                    watch.lap("read")
                    answer = make_answer(found, recorded, watermark, watch.laps_ms, redacted)
                    self._give_out(user, answer.context)
                    return answer

    async def _recall(
        self, memory: Memory, asked: Asked, vector: NDArray[np.float32] | None, watch: Stopwatch
    ) -> Found:
        """The memories for a question, without their texts."""
        params, agpr = asked.params, self._parameters
        if params.mode == "flat":
            agpr = replace(agpr, gamma=1.0, smoothing=0.0, session_weight=0.0, entity_weight=0.0)
        request = RecallRequest(
            question=params.query,
            k=asked.k,
            parameters=agpr,
            query_vector=vector,
            filters=asked.filters,
            hidden=memory.hidden,
            # Every character is a quarter of a token at least, so what is left out here would not fit anyway.
            characters_max=None if params.max_tokens is None else params.max_tokens * CHARACTERS_PER_TOKEN,
        )
        recollection = await self._look(memory, request, watch)
        explained = explain(memory.nodes, request, recollection) if params.explain else None
        watch.lap("explain")
        embedder = None if vector is None else self._embedder.name
        return Found(
            asked=asked,
            memories=recollection.memories,
            confidence=recollection.confidence,
            members=find_members(memory, recollection.memories) if params.open_groups else {},
            ended=find_ended(memory, recollection.memories),
            explained=explained,
            parameters=show_parameters(request, params.mode, embedder),
        )

    async def _order_members(
        self, user: Reference, members: Mapping[bytes, tuple[Member, ...]], vector: NDArray[np.float32]
    ) -> dict[bytes, tuple[Member, ...]]:
        """The facts inside opened groups, the nearest to the question first, as far as their vectors are kept."""
        if self._vectors is None:
            return dict(members)
        kept = await self._vectors.kept(user, [member.ref for inside in members.values() for member in inside])

        def nearness(member: Member) -> float:
            row = kept.get(member.ref)
            fits = row is not None and row.shape == vector.shape
            return (
                round(float(row.astype(np.float32) @ vector), SCORE_DECIMALS) if fits and row is not None else -1.0
            )

        return {group: tuple(sorted(inside, key=nearness, reverse=True)) for group, inside in members.items()}

    async def _look(self, memory: Memory, request: RecallRequest, watch: Stopwatch) -> Recollection:
        """`recall`, with the part that takes long for many nodes in another thread; nothing waits for it here."""
        prepared = prepare(memory.nodes, request)
        watch.lap("filter")
        if memory.nodes.size <= self._nodes_on_loop_max:
            leading = score_rows(prepared, request)
        else:
            leading = await to_thread.run_sync(score_rows, prepared, request, abandon_on_cancel=True)
            request = replace(request, hidden=memory.hidden)  # something may have been forgotten meanwhile
        watch.lap("score")
        recollection = choose(memory.nodes, request, prepared, leading)
        watch.lap("rank")
        return recollection

    async def _embed(self, asked: Asked) -> NDArray[np.float32] | None:
        """The vector of the question: the caller's own, ours when vectors count, None to go by words alone."""
        if asked.vector is not None or not self._parameters.cosine_weight:
            return asked.vector
        try:
            return await self._embedder.embed_question(asked.params.query)
        except EmbedderUnavailable:
            return None  # words are there; `status` says what became of the embedder

    def _check_vector(self, asked: Asked) -> None:
        """Vectors of two models have nothing to say to each other. Raises `InvalidInput` with the mend."""
        if asked.vector is None:
            return
        if not self._parameters.cosine_weight:
            raise InvalidInput(
                "this daemon ranks by words alone and has no vectors to compare an embedding with; leave it out, "
                "or choose an embedder in the daemon's configuration (models.embedder)"
            )
        dimensions = self._embedder.dimensions
        if dimensions and len(asked.vector) != dimensions:
            raise InvalidInput(
                f"embedding has {len(asked.vector)} numbers, and the vectors here have {dimensions}, made by "
                f"{self._embedder.name}; embed the question with that model, or leave embedding out"
            )
