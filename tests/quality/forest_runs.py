"""LoCoMo in mode `forest`, as the daemon recalls it: trees with vectors of summaries, time, related words.

The rows of `agpr` beside it are asked of the same Memories, through the same parts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from daemon.asking.explanations import Stopwatch
from daemon.asking.forest_recalling import ForestRecalling
from daemon.asking.forest_search import ForestSearch
from daemon.asking.query_params import QueryParams, count_from, read_query
from daemon.asking.recalling import Recalling
from daemon.asking.showing import Found
from daemon.asking.spaces import Aim
from daemon.asking.word_search import find_word_search
from daemon.memories import Memories
from daemon.texts import join_texts, read_behind
from events.log import EventLog
from memforest.bench.evidence import Retrieved, recall_at, recall_within, reciprocal_rank
from projections.memory import Memory
from projections.ports import Embedder
from projections.recall.agpr import AgprParameters
from projections.recall.answering import CHARACTERS_PER_TOKEN
from tests.builders import KEYS
from tests.quality.in_process import K_WITHIN_BUDGET, Remembered, building, read_remembered
from tests.quality.locomo import Category, Conversation, Question
from tests.quality.measure import Scores, recall_worded

_ON_LOOP = 10**9


@dataclass(frozen=True, slots=True)
class Asked:
    """A question, its scores by mode, and of mode `forest` how sure it is and what its best memory scored."""

    conversation: int
    category: Category
    scores: Mapping[str, Scores]
    confidence: float
    insufficient: bool
    top: float


@dataclass(frozen=True, slots=True)
class _Talk:
    """A conversation that is asked."""

    remembered: Remembered
    memory: Memory
    recalling: Recalling

    async def score(self, number: int, question: Question, modes: Sequence[str]) -> Asked:
        """Each mode as a user would ask for it; of adversarial questions only how sure the answer is."""
        answerable = question.category != Category.ADVERSARIAL
        scores = {mode: await self._score(question, mode) for mode in modes if answerable}
        found = await self._find(question.text, "forest", 10)
        top = found.memories[0].score if found.memories else 0.0
        confidence = found.confidence
        return Asked(number, question.category, scores, confidence.value, confidence.insufficient, top)

    async def _score(self, question: Question, mode: str) -> Scores:
        gold, text = question.gold, question.text
        five, ten, twenty = [await self._first(text, mode, k) for k in (5, 10, 20)]
        within = [await self._first(text, mode, K_WITHIN_BUDGET, size) for size in (2_000, 4_000, 8_000)]
        return Scores(
            recall_at(five, gold, 5),
            recall_at(ten, gold, 10),
            recall_at(twenty, gold, 20),
            reciprocal_rank(ten, gold),
            recall_within(within[0], gold, 2_000),
            recall_within(within[1], gold, 4_000),
            recall_within(within[2], gold, 8_000),
            recall_worded(within[1], question, 4_000),
        )

    async def _first(self, text: str, mode: str, k: int, characters: int | None = None) -> list[Retrieved]:
        found = await self._find(text, mode, k, characters)
        ids = [memory.node.id for memory in found.memories]
        return [Retrieved(self.remembered.turn_ids[each], self.remembered.texts[each]) for each in ids]

    async def _find(self, text: str, mode: str, k: int, characters: int | None = None) -> Found:
        budget = None if characters is None else characters // CHARACTERS_PER_TOKEN
        user_id = self.remembered.conversation.conversation_id
        params = QueryParams(user_id=user_id, query=text, k=k, mode=mode, max_tokens=budget)
        asked = count_from(read_query(params, KEYS), self.remembered.conversation.sessions[-1].started_at)
        vector = await self.recalling.embed(asked, Aim())
        return await self.recalling.recall(self.memory, asked, Aim(ours=vector), Stopwatch())


async def ask_forest(
    conversations: Sequence[Conversation],
    embedder: Embedder,
    parameters: AgprParameters,
    modes: Sequence[str] = ("agpr", "forest"),
) -> list[Asked]:
    """Every question of the conversations, adversarial ones too if they were loaded."""
    async with building(conversations) as (log, memories):
        asked: list[Asked] = []
        words = find_word_search(log, embedder)
        forest = ForestRecalling(ForestSearch(), _ON_LOOP, words)
        recalling = Recalling(embedder, parameters, None, _ON_LOOP, forest)
        for number, conversation in enumerate(conversations):
            talk = await _prepare(log, memories, conversation, embedder, recalling)
            asked += [await talk.score(number, question, modes) for question in conversation.questions]
        return asked


async def _prepare(
    log: EventLog, memories: Memories, conversation: Conversation, embedder: Embedder, recalling: Recalling
) -> _Talk:
    remembered = await read_remembered(log, memories, conversation)
    memory = await memories.catch_up(KEYS.user(conversation.conversation_id))
    if embedder.ranks:
        ids = list(remembered.texts)
        memory.nodes.set_vectors(ids, await embedder.embed([remembered.texts[each] for each in ids]))
        await _give_vectors(log, memory, embedder)
    return _Talk(remembered, memory, recalling)


async def _give_vectors(log: EventLog, memory: Memory, embedder: Embedder) -> None:
    """The nodes of trees theirs, of their summaries."""
    forest = memory.forest
    nodes = [node for tree in forest.trees.values() for node in tree.nodes()]
    refs = {node.digest: forest.refs_of(node) for node in nodes if forest.has_text(node)}
    recorded = await read_behind(log, [ref for each in refs.values() for ref in each])
    texts = {digest: join_texts(each, recorded) for digest, each in refs.items()}
    known = {digest: text for digest, text in texts.items() if text}
    vectors: NDArray[np.float32] = await embedder.embed(list(known.values()))
    for digest, vector in zip(known, vectors, strict=True):
        memory.tree_vectors.put(digest, vector)
