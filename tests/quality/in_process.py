"""LoCoMo through the product's own fold and recall, in this process: no bus, no socket, any embedder.

What the daemon answers, without its dates in the context; and fast enough to try things with.
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import anyio
import numpy as np
from numpy.typing import NDArray

from daemon.building.worker import Worker
from daemon.memories import Memories
from daemon.offline.language_model import OfflineLanguageModel
from daemon.reading.time_questions.reader import read_time_question
from daemon.texts import read_texts
from events.log import EventLog
from events.reading import read_events
from events.session import TurnRecorded
from memforest.bench.evidence import Retrieved, recall_at, recall_within, reciprocal_rank
from projections.memory import MemoryParameters
from projections.recall.agpr import AgprParameters
from projections.recall.answering import RecallRequest, Recollection, recall
from projections.recall.nodes import NodeSet
from tests.builders import KEYS, SECRET, ManualClock, a_batch, seeded_nonces
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import QUICK
from tests.quality.growing import events_of
from tests.quality.locomo import Category, Conversation, Question
from tests.quality.measure import Scores, recall_worded
from tests.waiting import wait_until

BUILD_WITHIN_S = 600.0
# Memories among which sessions are looked for.
SESSION_DEPTH = 50
# Memories considered when a budget is asked for, as the daemon does it.
K_WITHIN_BUDGET = 100

Vectors = NDArray[np.float32]
# Texts to unit rows; and the question's.
Embed = Callable[[Sequence[str]], Vectors]


@dataclass(frozen=True, slots=True)
class Remembered:
    """A conversation with all that was made of it; texts and turn ids by the node's id."""

    conversation: Conversation
    nodes: NodeSet
    texts: dict[bytes, str]
    turn_ids: dict[bytes, frozenset[str]]

    def ask(self, question: str, k: int, parameters: AgprParameters, vector: Vectors | None) -> Recollection:
        """The k best."""
        return recall(self.nodes, self._request(question, k, parameters, vector))

    def first(self, question: str, k: int, parameters: AgprParameters, vector: Vectors | None) -> list[Retrieved]:
        """The k best, as they are measured."""
        return self._retrieved(self.ask(question, k, parameters, vector))

    def fitting(
        self, question: str, characters: int, parameters: AgprParameters, vector: Vectors | None
    ) -> list[Retrieved]:
        """As many as have so many characters."""
        request = self._request(question, K_WITHIN_BUDGET, parameters, vector)
        return self._retrieved(recall(self.nodes, replace(request, characters_max=characters)))

    def score(self, question: Question, parameters: AgprParameters, vector: Vectors | None) -> Scores:
        """Each measure as a user would ask for it: so many memories, or so many characters."""
        text, gold = question.text, question.gold
        ten = self.first(text, 10, parameters, vector)
        budgets = {size: self.fitting(text, size, parameters, vector) for size in (2_000, 4_000, 8_000)}
        return Scores(
            recall_at(self.first(text, 5, parameters, vector), gold, 5),
            recall_at(ten, gold, 10),
            recall_at(self.first(text, 20, parameters, vector), gold, 20),
            reciprocal_rank(ten, gold),
            recall_within(budgets[2_000], gold, 2_000),
            recall_within(budgets[4_000], gold, 4_000),
            recall_within(budgets[8_000], gold, 8_000),
            recall_worded(budgets[4_000], question, 4_000),
        )

    def _request(self, question: str, k: int, parameters: AgprParameters, vector: Vectors | None) -> RecallRequest:
        """As the daemon asks; relative dates count from the end of the conversation, states are not looked up."""
        end = max(session.turns[-1].said_at for session in self.conversation.sessions if session.turns)
        return RecallRequest(question, k, parameters, vector, time=read_time_question(question, end))

    def _retrieved(self, found: Recollection) -> list[Retrieved]:
        ids = [memory.node.id for memory in found.memories]
        return [Retrieved(self.turn_ids[each], self.texts[each]) for each in ids]


async def remember(conversations: Iterable[Conversation]) -> list[Remembered]:
    """Build the Memories of the conversations with the offline model, as the daemon does."""
    asked = list(conversations)
    async with building(asked) as (log, memories):
        return [await read_remembered(log, memories, conversation) for conversation in asked]


@asynccontextmanager
async def building(conversations: Sequence[Conversation]) -> AsyncGenerator[tuple[EventLog, Memories]]:
    """The log and the Memories once they are built, while they are needed."""
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        clock = ManualClock()
        log = await EventLog.open(Path(folder) / "events.db", clock, seeded_nonces(1), SECRET)
        try:
            memories = Memories(log, MemoryParameters(), Reported())
            worker = Worker(log, memories, OfflineLanguageModel(), QUICK, clock, Reported())
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(memories.follow)
                tasks.start_soon(worker.run)
                await _build(log, memories, worker, conversations)
                yield log, memories
                tasks.cancel_scope.cancel()
        finally:
            await log.close()


async def _build(log: EventLog, memories: Memories, worker: Worker, conversations: Sequence[Conversation]) -> None:
    for conversation in conversations:
        for events in events_of(conversation):
            await log.append(a_batch(*events))
    for conversation in conversations:
        await memories.catch_up(KEYS.user(conversation.conversation_id))

    def is_built() -> bool:
        built = memories.loaded().values()
        whole = sum(memory.user_seq for memory in built) == log.head
        return not worker.in_flight and whole and not any(memory.pending() for memory in built)

    await wait_until(is_built, timeout_s=BUILD_WITHIN_S)


async def read_remembered(log: EventLog, memories: Memories, conversation: Conversation) -> Remembered:
    """What is searched for a conversation, with its texts."""
    memory = await memories.catch_up(KEYS.user(conversation.conversation_id))
    nodes = memory.nodes.nodes_at(memory.nodes.live_rows().tolist())
    texts = await read_texts(log, [node.ref for node in nodes])
    recorded = await log.read(lambda db: read_events(db, {seq for node in nodes for seq in node.turns}))
    said = {seq: each.event.turn_id for seq, each in recorded.items() if isinstance(each.event, TurnRecorded)}
    return Remembered(
        conversation,
        memory.nodes,
        {node.id: text or "" for node, text in zip(nodes, texts, strict=True)},
        {node.id: frozenset(turn_id for seq in node.turns if (turn_id := said[seq])) for node in nodes},
    )


def give_vectors(remembered: Iterable[Remembered], embed: Embed) -> None:
    """Embed everything that is searched."""
    for each in remembered:
        ids = list(each.texts)
        each.nodes.set_vectors(ids, embed([each.texts[node_id] for node_id in ids]))


def measure(
    remembered: Iterable[Remembered], parameters: AgprParameters, embed_question: Embed | None = None
) -> list[tuple[Category, Scores]]:
    """The category and the scores of every answerable question."""
    return [
        (question.category, each.score(question, parameters, _vector(question.text, embed_question)))
        for each in remembered
        for question in each.conversation.questions
        if question.category != Category.ADVERSARIAL
    ]


def _vector(question: str, embed_question: Embed | None) -> Vectors | None:
    return None if embed_question is None else embed_question([question])[0]


@dataclass(frozen=True, slots=True)
class SessionScores:
    """Which sessions an answer of `SESSION_DEPTH` memories leads to first: the share of those with evidence, and
    whether one of them is there.
    """

    recall_5: float
    recall_10: float
    any_5: float
    any_10: float


def measure_sessions(
    remembered: Iterable[Remembered], parameters: AgprParameters, embed_question: Embed | None = None
) -> list[SessionScores]:
    """The scores of every question, adversarial ones too, if they were loaded."""
    return [
        _score_sessions(each, question, parameters, _vector(question.text, embed_question))
        for each in remembered
        for question in each.conversation.questions
    ]


def _score_sessions(
    remembered: Remembered, question: Question, parameters: AgprParameters, vector: Vectors | None
) -> SessionScores:
    session_of = {
        turn.turn_id: session.session_id for session in remembered.conversation.sessions for turn in session.turns
    }
    ranking: dict[str, None] = {}  # each session at its first memory
    for memory in remembered.first(question.text, SESSION_DEPTH, parameters, vector):
        ranking.update(dict.fromkeys(sorted(session_of[turn_id] for turn_id in memory.turn_ids)))
    gold = {session_of[turn_id] for turn_id in question.gold}
    first_5, first_10 = (len(gold.intersection(list(ranking)[:k])) for k in (5, 10))
    return SessionScores(first_5 / len(gold), first_10 / len(gold), float(first_5 > 0), float(first_10 > 0))
