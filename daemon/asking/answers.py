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
from daemon.asking.showing import Found, Member, find_ended, find_members, make_answer, nearest_first
from daemon.asking.spaces import Aim, aim, find_nearness, find_spaces, show_spaces
from daemon.memories import Memories
from daemon.vector_source import VectorSource
from events.envelope import Keys, Reference
from events.hindsight import read_hindsight
from events.log import LogReader
from events.reading import read_events
from events.registry import knows_user
from events.time import Instant
from projections.memory import Memory
from projections.ports import Embedder, EmbedderUnavailable
from projections.recall.agpr import ANY_EMBEDDER, AgprParameters
from projections.recall.answering import (
    CHARACTERS_PER_TOKEN,
    RecallRequest,
    Recollection,
    choose,
    prepare,
    score_rows,
)
from projections.recall.explaining import explain
from projections.spaces import OURS, Spaces

# Up to so many nodes are scored in less than 5 ms; a hop to another thread costs a tenth of one.
NODES_ON_LOOP_MAX = 30_000
# Memories that a question finds without the vectors they came with and gives them: some ten milliseconds.
BROUGHT_AT_ONCE = 256


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
        user = self._keys.user(params.user_id)
        if params.wait_for is not None:
            check_target(params.user_id, params.wait_for)
            await self._freshness.wait_for(user, params.wait_for)
            watch.lap("wait")
        # Asked only when the Memory is not here: each reading costs a query a hop to another thread.
        if not self._memories.holds(user) and not await self._reader.read(partial(knows_user, user=user)):
            self._aim(asked, Spaces(user))
            return Answer()
        if params.as_of is not None:
            return await self._query_past(user, asked, params.as_of, watch)
        aimed = await self._take_aim(user, asked)
        vector = await self._embed(asked, aimed)
        watch.lap("embed")
        async with self._memories.use(user) as memory:
            watch.lap("load")
            projected = memory.user_seq
            # Folded anew meanwhile, its spaces may have other numbers.
            aimed = self._aim(asked, memory.spaces)
            found = await self._recall(memory, asked, replace(aimed, ours=vector), watch)
            if found.members:
                members = await self._order_members(memory, found.members, replace(aimed, ours=vector))
                found = replace(found, members=members)
            recorded, lag = await self._reader.read(
                lambda db: (read_events(db, found.seqs), find_lag(db, user, projected))
            )
            watermark = self._freshness.make_watermark(memory, projected, *lag)
            watch.lap("read")
            answer = make_answer(found, recorded, watermark, watch.laps_ms)
            if found.spaces:
                answer = replace(answer, spaces=show_spaces(found.spaces, self._embedder, recorded))
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
                found = await self._recall(memory, asked, Aim(), watch)
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
                    if found.spaces:
                        answer = replace(answer, spaces=show_spaces(found.spaces, self._embedder, recorded))
                    self._give_out(user, answer.context)
                    return answer

    async def _recall(self, memory: Memory, asked: Asked, aimed: Aim, watch: Stopwatch) -> Found:
        """The memories for a question with these vectors, without their texts."""
        params, agpr, groups = asked.params, self._parameters, memory.units.groups

        def is_extractive(group: bytes) -> bool:
            return group in groups and groups[group].extractive

        if aimed.elsewhere and not agpr.cosine_weight:
            vectors = ANY_EMBEDDER  # without vectors of our own, those that memories came with count all the same
            agpr = replace(agpr, cosine_weight=vectors.cosine_weight, smoothing=vectors.smoothing)
        if params.mode == "flat":
            agpr = replace(agpr, gamma=1.0, smoothing=0.0, session_weight=0.0, entity_weight=0.0)
        request = RecallRequest(
            question=params.query,
            k=asked.k,
            parameters=agpr,
            query_vector=aimed.ours,
            elsewhere=aimed.elsewhere,
            opens=lambda group: params.open_groups or is_extractive(group),
            filters=asked.filters,
            hidden=memory.hidden,
            # Every character is a quarter of a token at least, so what is left out here would not fit anyway.
            characters_max=None if params.max_tokens is None else params.max_tokens * CHARACTERS_PER_TOKEN,
        )
        recollection = await self._look(memory, request, watch)
        explained = explain(memory.nodes, request, recollection) if params.explain else None
        watch.lap("explain")
        embedder = None if aimed.ours is None else self._embedder.name
        if aimed.elsewhere:
            embedder = asked.params.embedding_model or embedder or "embedding"
        return Found(
            asked=asked,
            memories=recollection.memories,
            confidence=recollection.confidence,
            members=find_members(memory, recollection.inside),
            by_members=frozenset(
                each for each in recollection.inside if asked.filters.about is not None or is_extractive(each)
            ),
            ended=find_ended(memory, recollection.memories),
            explained=explained,
            parameters=show_parameters(request, params.mode, embedder),
            spaces=find_spaces(memory, self._our_spaces(memory), aimed, reaches_us=aimed.ours is not None),
        )

    async def _order_members(
        self, memory: Memory, members: Mapping[bytes, tuple[Member, ...]], aimed: Aim
    ) -> dict[bytes, tuple[Member, ...]]:
        """The facts inside opened groups, the nearest to the question first, as far as their vectors are kept."""
        if self._vectors is None or (aimed.ours is None and not aimed.elsewhere):
            return dict(members)
        inside = {member.id: member.ref for group in members.values() for member in group}
        near = await find_nearness(self._vectors, memory, inside, aimed)
        return {
            group: nearest_first(listed, {each.id: near[each.id] for each in listed if each.id in near})
            for group, listed in members.items()
        }

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

    async def _embed(self, asked: Asked, aimed: Aim) -> NDArray[np.float32] | None:
        """The question's vector in our space: the caller's, ours when it counts, None to go by words alone."""
        if aimed.ours is not None or not self._parameters.cosine_weight or not aimed.asks_us:
            return aimed.ours
        try:
            return await self._embedder.embed_question(asked.params.query)
        except EmbedderUnavailable:
            return None  # words are there; `status` says what became of the embedder

    async def _take_aim(self, user: Reference, asked: Asked) -> Aim:
        """Where the caller's vector belongs; what was just imported there has its own by then.

        Raises `InvalidInput`.
        """
        if asked.vector is None:
            return Aim()
        async with self._memories.use(user) as memory:
            aimed, ours = self._aim(asked, memory.spaces), self._our_spaces(memory)
            if aimed.elsewhere and self._vectors is not None:
                await self._vectors.fill_brought(memory, BROUGHT_AT_ONCE)
            return replace(aimed, asks_us=not ours.isdisjoint(memory.nodes.count_by_space()))

    def _aim(self, asked: Asked, spaces: Spaces) -> Aim:
        ours_rank = bool(self._parameters.cosine_weight)
        return aim(asked.vector, asked.params.embedding_model, spaces, self._embedder, ours_rank=ours_rank)

    def _our_spaces(self, memory: Memory) -> frozenset[int]:
        return frozenset((OURS,)) if self._vectors is None else self._vectors.our_spaces(memory)
