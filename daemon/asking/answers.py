"""`query`: wait if asked to, recall, read the texts, and say how fresh the answer is."""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final

from daemon.asking.answer_types import Answer, Watermark
from daemon.asking.auto_choosing import answer_nothing, judge_first
from daemon.asking.auto_mode import WhyMode
from daemon.asking.deep.params import DeepAsked, ModelNotConfigured, read_deep
from daemon.asking.explanations import Stopwatch
from daemon.asking.fallen import find_fallen
from daemon.asking.forest_recalling import ForestRecalling
from daemon.asking.forest_search import ForestSearch
from daemon.asking.freshness import Freshness, check_target
from daemon.asking.history import History, locate, read_moment
from daemon.asking.modes import MAY_ASK, Mode
from daemon.asking.query_params import Asked, QueryParams, count_from, read_query
from daemon.asking.recalled import NOTHING_TOLD, Recalled, abstain, find_ended_inside, tell
from daemon.asking.recalling import Recalling
from daemon.asking.showing import Found, make_answer
from daemon.asking.spaces import Aim, show_spaces
from daemon.asking.standpoints import Now, Seen, Standpoint, Then
from daemon.asking.time_asked import first_members
from daemon.config_query import Query
from daemon.memories import Memories
from daemon.vector_source import VectorSource
from events.envelope import Keys, RecordedEvent, Reference
from events.log import LogReader
from events.reading import read_events
from events.registry import knows_user
from events.time import Instant
from projections.memory import Memory
from projections.ports import Embedder
from projections.recall.agpr import AgprParameters
from projections.spaces import Spaces

if TYPE_CHECKING:
    from daemon.asking.deep.deepening import Deepening, DeepFound
    from daemon.asking.grounded import Grounding
    from daemon.asking.word_search import WordSearch
    from daemon.tree_vectors import TreeVectorFiller

# Up to so many nodes are scored in less than 5 ms; a hop to another thread costs a tenth of one.
NODES_ON_LOOP_MAX = 30_000
# With trees and related words a node takes so many times as long.
TREES_TAKE_TIMES = 5
NOBODY_ANSWERS: Final = (
    "an answer in words is written by a language model, and none is configured: set models.chat_model "
    '(README, "Chat models"), or leave out answer'
)


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
        grounding: Grounding | None = None,
        trees: TreeVectorFiller | None = None,
        words: WordSearch | None = None,
        make_deepening: Callable[[Recalling], Deepening] | None = None,
        bounds: Query | None = None,
    ) -> None:
        """`reader` is for queries alone, or they would queue behind what the worker reads.

        `planned` says how many groups of a user are planned and not fused. Without a `history` it has its own.
        `vectors` order the inside of an opened group; without them it is in the order of time. `give_out` is told
        for whom which context was given out. Without a `grounding` nobody writes answers in words. `trees` give
        nodes of trees the vectors that are missing, `words` find what is said in other words than the question.
        `make_deepening` makes what mode `deep` asks a model with, within these `bounds`; without it there is no
        model to ask.
        """
        self._keys = keys
        self._reader = reader
        self._memories = memories
        self._embedder = embedder
        forest = ForestRecalling(ForestSearch(trees), nodes_on_loop_max // TREES_TAKE_TIMES, words)
        self._recalling = Recalling(embedder, parameters, vectors, nodes_on_loop_max, forest)
        self._freshness = Freshness(keys, reader, memories, planned, clock)
        self._history = history or History(reader, memories.parameters)
        self._give_out = give_out
        self._grounding = grounding
        self._deepening = None if make_deepening is None else make_deepening(self._recalling)
        self._bounds = bounds or Query()
        self._clock = clock

    def time_for_models(self, params: QueryParams) -> float:
        """Seconds that this question may wait for a model: where memories are, and how it is answered in words."""
        given, bounds = params.timeout_s, self._bounds
        is_given = given is not None and 0 < given <= bounds.timeout_limit_s
        waits = (params.mode in MAY_ASK) + params.answer
        return waits * (given or 0.0 if is_given else bounds.timeout_s)

    async def query(self, params: QueryParams) -> Answer:
        """The memories for a question, and its answer in words if that is wanted. An unknown user has none.

        Raises `InvalidInput`, `ModelNotConfigured`, and for `wait_for` `TurnDeadLettered`, `TurnInConflict` or
        `TurnRefused`.
        """
        asked, watch = read_query(params, self._keys), Stopwatch()
        if params.answer and self._grounding is None:
            raise ModelNotConfigured(NOBODY_ANSWERS)
        how = read_deep(params, self._bounds)
        if asked.mode is Mode.DEEP and self._deepening is None:
            raise ModelNotConfigured
        user = self._keys.user(params.user_id)
        if params.wait_for is not None:
            check_target(params.user_id, params.wait_for)
            await self._freshness.wait_for(user, params.wait_for)
            watch.lap("wait")
        # Asked only when the Memory is not here: each reading costs a query a hop to another thread.
        if not self._memories.holds(user) and not await self._reader.read(partial(knows_user, user=user)):
            self._recalling.aim(asked, Spaces(user))
            nothing = answer_nothing(asked)
            return abstain(nothing) if params.answer else nothing
        if params.as_of is None:
            asked, at = await self._stand_now(user, asked, watch)
        else:
            asked, at = await self._stand_then(user, asked, params.as_of)
        if asked.mode is not Mode.DEEP:
            recalled = await self._recall(at, asked, how, watch)
            if recalled is not None:
                return await self._give(user, recalled)
            asked = replace(asked, mode=Mode.DEEP, why_mode=WhyMode.UNSURE)
        assert self._deepening is not None
        deep = await self._deepening.find(at, asked, how)
        watch.lap("deep")
        recalled = await self._recall(at, asked, how, watch, deep)
        assert recalled is not None
        return await self._give(user, recalled)

    async def _stand_now(self, user: Reference, asked: Asked, watch: Stopwatch) -> tuple[Asked, Standpoint]:
        """The memory as it is, and the question with its vector and counted from now."""
        asked = count_from(asked, self._clock())
        aimed = Aim()
        if asked.vector is not None:
            async with self._memories.use(user) as memory:
                aimed = await self._recalling.take_aim(memory, asked)
        vector = await self._recalling.embed(asked, aimed)
        watch.lap("embed")

        def aim_in(memory: Memory) -> Aim:
            # Folded anew meanwhile, its spaces may have other numbers.
            return replace(self._recalling.aim(asked, memory.spaces), ours=vector)

        return asked, Now(user, self._memories, self._freshness, aim_in)

    async def _stand_then(self, user: Reference, asked: Asked, as_of: int | str) -> tuple[Asked, Standpoint]:
        """The memory as it was, and the question counted from then."""

        def find(db: sqlite3.Connection) -> tuple[int, Instant | None]:
            position = locate(db, user, as_of)
            return position, read_moment(db, user, position)

        user_seq, moment = await self._reader.read(find)
        return count_from(asked, moment or self._clock()), Then(user, user_seq, self._history)

    async def _recall(
        self, at: Standpoint, asked: Asked, how: DeepAsked, watch: Stopwatch, deep: DeepFound | None = None
    ) -> Recalled | None:
        """What the memory knows from there; None when `auto` has a model look further."""
        behind = {} if deep is None else deep.recorded
        while True:
            async with at.use() as memory:
                watch.lap("load")
                projected, aimed = memory.user_seq, at.aim(memory)
                found = None if deep is None else deep.find_in(memory)
                if found is None:
                    deepened = None if deep is None else deep.deepened
                    found = await self._recalling.recall(memory, asked, aimed, watch, deepened)
                if deep is None:
                    found = judge_first(asked, found, how, has_model=self._deepening is not None)
                    if found.asked.mode is Mode.DEEP:
                        return None
                if found.members:
                    members = await self._recalling.order_members(memory, found.members, aimed)
                    found = replace(found, members=first_members(members, found.told))
                if asked.params.answer:
                    found = replace(found, ended_inside=find_ended_inside(memory, found))
                read = await at.read(
                    self._reader, memory, projected, partial(_read, user=at.user, seqs=found.seqs, behind=behind)
                )
                if read is None:
                    continue
                (recorded, fallen), seen = read
                told = tell(memory, found, recorded) if asked.params.answer else NOTHING_TOLD
                watch.lap("read")
            if deep is not None and fallen:
                deep, behind = deep.without_words(), {}
            make = partial(self._make, found, seen, watch.laps_ms, deep=deep)
            return Recalled(asked, {**behind, **recorded}, make, told)

    async def watermark(self, memory: Memory) -> Watermark:
        """How far a Memory reaches now."""
        return await self._freshness.watermark(memory)

    def _make(
        self,
        found: Found,
        seen: Seen,
        laps_ms: dict[str, float],
        recorded: Mapping[int, RecordedEvent],
        deep: DeepFound | None = None,
    ) -> Answer:
        answer = make_answer(found, recorded, seen.watermark, laps_ms, seen.redacted)
        if deep is not None:
            answer = deep.tell(answer)
        if found.spaces:
            answer = replace(answer, spaces=show_spaces(found.spaces, self._embedder, recorded))
        return answer

    async def _give(self, user: Reference, recalled: Recalled) -> Answer:
        """What was recalled, with the answer in words if that is wanted. No Memory is held meanwhile."""
        answer = recalled.make(recalled.recorded)
        if recalled.asked.params.answer and self._grounding is not None:
            answer = await self._grounding.answer(user, recalled, answer)
        # What was answered comes back in a published turn as likely as what it was made of.
        for given in filter(None, (answer.context, answer.answer)):
            self._give_out(user, given)
        return answer


def _read(
    db: sqlite3.Connection, user: Reference, seqs: Collection[int], behind: Mapping[int, RecordedEvent]
) -> tuple[dict[int, RecordedEvent], frozenset[int]]:
    """The events with the words of an answer, and which of those that a model was shown have fallen since."""
    return read_events(db, seqs), find_fallen(db, user, behind) if behind else frozenset()
