"""How the memories for a question are found in a Memory that is loaded: what is compared with what, by mode.

No texts are read here, and nothing waits for a Memory, a turn or a disk.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import numpy as np
from anyio import to_thread
from msgspec.structs import replace as replace_struct
from numpy.typing import NDArray

from daemon.asking.auto_choosing import settle_mode
from daemon.asking.deep.browse import Deepened
from daemon.asking.deep.recalling import look_at_reached
from daemon.asking.explanations import Stopwatch, show_parameters
from daemon.asking.forest_recalling import ForestRecalling, Looked
from daemon.asking.modes import Mode
from daemon.asking.passing import Passing
from daemon.asking.query_params import Asked
from daemon.asking.showing import Found, Member, find_ended, find_members, nearest_first
from daemon.asking.spaces import Aim, aim, find_nearness, find_spaces
from daemon.asking.time_asked import find_time, first_members, make_ready
from daemon.vector_source import VectorSource
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

# Memories that a question finds without the vectors they came with and gives them: some ten milliseconds.
BROUGHT_AT_ONCE = 256


@dataclass(frozen=True, slots=True)
class Recalling:
    """Finds memories by the mode that is asked for.

    `vectors` order the inside of an opened group; without them it is in the order of time. From
    `nodes_on_loop_max` nodes on scores are made in another thread.
    """

    embedder: Embedder
    parameters: AgprParameters
    vectors: VectorSource | None
    nodes_on_loop_max: int
    forest: ForestRecalling

    async def recall(
        self, memory: Memory, asked: Asked, aimed: Aim, watch: Stopwatch, deepened: Deepened | None = None
    ) -> Found:
        """The memories for a question with these vectors, without their texts. `deepened`: of mode `deep`."""
        await make_ready()
        asked, groups = settle_mode(memory, asked), memory.units.groups

        def is_extractive(group: bytes) -> bool:
            return group in groups and groups[group].extractive

        request = self._make_request(memory, asked, aimed, is_extractive)
        time = None
        if asked.reference is not None and asked.mode is not Mode.FLAT:
            time = find_time(memory, asked.params.query, asked.reference)
            request = request if time is None else time.put_in(request, all_members=asked.params.open_groups)
        looked = await self._find(memory, request, asked, watch, deepened)
        recollection = looked.recollection
        explained = explain(memory.nodes, request, recollection) if asked.params.explain else None
        passing = Passing.of(memory, asked.filters)
        memories = [replace_struct(each, node=passing.node(each.node)) for each in recollection.memories]
        if explained is not None:
            shown = [replace(each, node=passing.node(each.node)) for each in explained.candidates]
            explained = replace(explained, candidates=shown)
        watch.lap("explain")
        name = None if aimed.ours is None else self.embedder.name
        if aimed.elsewhere:
            name = asked.params.embedding_model or name or "embedding"
        told_in = frozenset[bytes]() if time is None or asked.params.open_groups else time.groups
        return Found(
            asked=asked,
            memories=memories,
            confidence=recollection.confidence,
            members=first_members(find_members(passing, recollection.inside), () if time is None else time.told),
            by_members=frozenset(
                each
                for each in recollection.inside
                if asked.filters.about is not None or is_extractive(each) or each in told_in
            )
            | recollection.narrowed,
            ended=find_ended(memory, recollection.memories),
            explained=explained,
            parameters=show_parameters(request, asked.mode, name),
            spaces=find_spaces(memory, self._our_spaces(memory), aimed, reaches_us=aimed.ours is not None),
            together=looked.together,
            browsed=looked.browsed,
            time=None if time is None else time.show(),
            told=() if time is None else time.told,
        )

    async def order_members(
        self, memory: Memory, members: Mapping[bytes, tuple[Member, ...]], aimed: Aim
    ) -> dict[bytes, tuple[Member, ...]]:
        """The facts inside opened groups, the nearest to the question first, as far as their vectors are kept."""
        if self.vectors is None or (aimed.ours is None and not aimed.elsewhere):
            return dict(members)
        inside = {member.id: member.ref for group in members.values() for member in group}
        near = await find_nearness(self.vectors, memory, inside, aimed)
        return {
            group: nearest_first(listed, {each.id: near[each.id] for each in listed if each.id in near})
            for group, listed in members.items()
        }

    async def embed(self, asked: Asked, aimed: Aim) -> NDArray[np.float32] | None:
        """The question's vector in our space: the caller's, ours when it counts, None to go by words alone."""
        if aimed.ours is not None or not self.parameters.cosine_weight or not aimed.asks_us:
            return aimed.ours
        if not asked.params.vectors:
            return None
        try:
            return await self.embedder.embed_question(asked.params.query)
        except EmbedderUnavailable:
            return None  # words are there; `status` says what became of the embedder

    def aim(self, asked: Asked, spaces: Spaces) -> Aim:
        """Where the caller's vector belongs. Raises `InvalidInput`."""
        ours_rank = bool(self.parameters.cosine_weight)
        return aim(asked.vector, asked.params.embedding_model, spaces, self.embedder, ours_rank=ours_rank)

    async def take_aim(self, memory: Memory, asked: Asked) -> Aim:
        """The same; what was just imported there has its own vectors by then. Raises `InvalidInput`."""
        aimed, ours = self.aim(asked, memory.spaces), self._our_spaces(memory)
        if aimed.elsewhere and self.vectors is not None:
            await self.vectors.fill_brought(memory, BROUGHT_AT_ONCE)
        return replace(aimed, asks_us=not ours.isdisjoint(memory.nodes.count_by_space()))

    def request_for(self, memory: Memory, asked: Asked, aimed: Aim) -> RecallRequest:
        """What is asked of a Memory, but for the time in the question."""
        groups = memory.units.groups
        return self._make_request(memory, asked, aimed, lambda group: group in groups and groups[group].extractive)

    def _make_request(
        self, memory: Memory, asked: Asked, aimed: Aim, is_extractive: Callable[[bytes], bool]
    ) -> RecallRequest:
        params, agpr = asked.params, self.parameters
        if aimed.elsewhere and not agpr.cosine_weight:
            vectors = ANY_EMBEDDER  # without vectors of our own, those that memories came with count all the same
            agpr = replace(agpr, cosine_weight=vectors.cosine_weight, smoothing=vectors.smoothing)
        if asked.mode is Mode.FLAT:
            agpr = replace(agpr, gamma=1.0, smoothing=0.0, session_weight=0.0, entity_weight=0.0)
        return RecallRequest(
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

    async def _find(
        self,
        memory: Memory,
        request: RecallRequest,
        asked: Asked,
        watch: Stopwatch,
        deepened: Deepened | None,
    ) -> Looked:
        """What the mode finds."""
        if deepened is not None:
            return await look_at_reached(self.forest, memory, request, asked.families, deepened, watch)
        if asked.mode is Mode.FOREST:
            return await self.forest.look(memory, request, asked.families, watch, explains=asked.params.explain)
        if asked.mode is Mode.ROOTS:
            return await self.forest.look_at_roots(memory, request, asked.families, watch)
        return Looked(await self._look(memory, request, watch))

    async def _look(self, memory: Memory, request: RecallRequest, watch: Stopwatch) -> Recollection:
        """`recall`, with the part that takes long for many nodes in another thread; nothing waits for it here."""
        prepared = prepare(memory.nodes, request)
        watch.lap("filter")
        if memory.nodes.size <= self.nodes_on_loop_max:
            leading = score_rows(prepared, request)
        else:
            leading = await to_thread.run_sync(score_rows, prepared, request, abandon_on_cancel=True)
            request = replace(request, hidden=memory.hidden)  # something may have been forgotten meanwhile
        watch.lap("score")
        recollection = choose(memory.nodes, request, prepared, leading)
        watch.lap("rank")
        return recollection

    def _our_spaces(self, memory: Memory) -> frozenset[int]:
        return frozenset((OURS,)) if self.vectors is None else self.vectors.our_spaces(memory)
