"""The daemon's parts on one real log, with scripted models and a clock moved by hand; without bus and socket."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import anyio

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.deep.calls import AsksModel
from daemon.asking.deep.deepening import Deepening
from daemon.asking.deep.levels import PROMPT_BYTES_MAX
from daemon.asking.grounded import Grounding
from daemon.asking.query_params import QueryParams
from daemon.building.compaction import Compactor
from daemon.building.deciding import Deciding, DecidingParameters
from daemon.building.worker import Worker, WorkerParameters
from daemon.chat.model import EndpointLanguageModel
from daemon.config_query import Query
from daemon.erasure.erasing import Erasing
from daemon.erasure.forgetting import Forgetter
from daemon.memories import MEMORIES_BYTES, MEMORIES_MAX, Memories
from daemon.models.budget import Budget
from daemon.reading.recalled import GivenOut
from daemon.vector_source import VectorSource
from events.envelope import Reference
from events.log import EventLog
from events.memory import Task
from events.reading import read_user
from events.registry import read_user_references
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.ports import Embedder
from projections.recall.agpr import AgprParameters
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_closing, a_turn
from tests.bus_in_use import Reported
from tests.scripted_bus import erasing_without_a_server
from tests.scripted_models import Call, ScriptedEmbedder, ScriptedModel
from tests.waiting import wait_until

ALICE = KEYS.user("alice")
MINUTE_MS = 60_000

# Two turns a chunk, three children a node, and a summary for every node.
SMALL = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=0)
# Everything that waits, waits for hundredths of a second; what the clock decides waits until it is moved.
QUICK = WorkerParameters(concurrency=8, first_pause_s=0.01, write_pause_s=0.05, tick_s=0.02)
# How long a compaction waits for a model that is not there.
PATIENCE_S = 0.3


@dataclass
class Parts:
    """What `build_parts` ties together, and what most tests do with it."""

    log: EventLog
    clock: ManualClock
    model: ScriptedModel
    memories: Memories
    worker: Worker
    forgetter: Forgetter
    erasing: Erasing
    compactor: Compactor
    answerer: Answerer
    reported: Reported
    turns: int = field(default=0)

    async def say(
        self, *contents: str, session_id: str = "s1", user_id: str = "alice", role: str = "user"
    ) -> None:
        """Turns of a session, a minute apart."""
        for content in contents:
            self.turns += 1
            turn = a_turn(
                content,
                user_id=user_id,
                session_id=session_id,
                turn_id=f"t{self.turns}",
                role=role,
                happened_at=MONDAY + self.turns * MINUTE_MS,
            )
            await self.log.append(a_batch(turn))

    async def close(self, session_id: str = "s1", user_id: str = "alice") -> None:
        """The session is over."""
        await self.log.append_event(a_closing(session_id, user_id=user_id, key=str(self.turns)))

    async def memory(self, user_id: str = "alice") -> Memory:
        """The Memory of a user, up to the log's end."""
        return await self.memories.catch_up(KEYS.user(user_id))

    async def ask(self, question: str, user_id: str = "alice", **more: Any) -> Answer:
        """The answer to a question."""
        return await self.answerer.query(QueryParams(user_id=user_id, query=question, **more))

    async def texts(self, question: str, user_id: str = "alice") -> list[str]:
        """The texts of the best hundred memories."""
        return [memory.text for memory in (await self.ask(question, user_id, k=100)).memories]

    def is_done(self) -> bool:
        """Nothing is under way, and every Memory that is here has nothing left to do."""
        memories = self.memories.loaded().values()
        return (
            not self.worker.in_flight
            and sum(memory.user_seq for memory in memories) == self.log.head
            and not any(memory.needs_rebuild or memory.pending() for memory in memories)
        )

    async def until_done(self) -> None:
        await wait_until(self.is_done, message="the worker does not come to an end")

    async def until_asked(self, calls: int) -> None:
        """Return once so many calls wait for their answer."""
        await wait_until(
            lambda: len(self.model.waiting()) >= calls,
            message=f"{calls} calls were expected, {len(self.model.waiting())} are out",
        )


def build_parts(
    log: EventLog,
    clock: ManualClock,
    *,
    model: ScriptedModel | None = None,
    embedder: Embedder | None = None,
    worker: WorkerParameters = QUICK,
    memory: MemoryParameters = SMALL,
    memories_max: int = MEMORIES_MAX,
    memories_bytes: int = MEMORIES_BYTES,
    eventtree: EventTreeParameters | None = None,
    agpr: AgprParameters | None = None,
    budget: Budget | None = None,
    given_out: GivenOut | None = None,
    deciding: DecidingParameters | None = None,
    compared_by: Embedder | None = None,
    online: EventTreeParameters | None = None,
    answers_by: EndpointLanguageModel | None = None,
    asking: Query | None = None,
    asks: AsksModel | None = None,
    prompt_bytes_max: int = PROMPT_BYTES_MAX,
) -> Parts:
    """The parts, built as daemon/app.py does it. Without `online` nothing is compacted in the background.

    `answers_by` writes answers in words, within the bounds of `asking`; `asks` is what mode `deep` asks, in
    prompts of so many bytes.
    """
    model = model or ScriptedModel()
    embedder = embedder or ScriptedEmbedder()
    reported = Reported()
    memories = Memories(log, memory, reported, memories_max, bytes_max=memories_bytes)
    given_out = given_out or GivenOut(log.keys.secret, clock)
    decide = Deciding(log, memories, compared_by, report=reported, parameters=deciding, eventtree=online)
    working = Worker(
        log, memories, model, worker, clock, reported, budget=budget, given_out=given_out, deciding=decide
    )
    source, trees = VectorSource(log, embedder), eventtree or EventTreeParameters()
    compactor = Compactor(log, memories, working, source, trees, clock, patience_s=PATIENCE_S)
    if working.compacting is not None:
        working.compacting.gives_way = compactor.running.__contains__
    bounds = (budget or Budget(0, 0, clock), asking or Query())
    answerer = Answerer(
        log.keys,
        log,
        memories,
        embedder,
        agpr or AgprParameters(),
        lambda user: compactor.count_planned(user) + working.count_planned(user),
        clock,
        give_out=given_out.note,
        grounding=None if answers_by is None else Grounding(log, log, answers_by, *bounds),
        make_deepening=None
        if asks is None
        else lambda recalling: Deepening(
            log, log, recalling, asks, budget or Budget(0, 0, clock), prompt_bytes_max, working.refresh
        ),
        bounds=asking,
    )
    erasing = erasing_without_a_server(log, log.path.parent, clock, reported)
    forgetter = Forgetter(erasing, memories, wait_s=5)
    return Parts(log, clock, model, memories, working, forgetter, erasing, compactor, answerer, reported)


@asynccontextmanager
async def running(parts: Parts) -> AsyncGenerator[Parts, None]:
    """The parts with their tasks, cancelled on the way out as the daemon does it."""
    async with anyio.create_task_group() as tasks:
        for part in (parts.memories.follow, parts.worker.run, parts.forgetter.run):
            tasks.start_soon(part)
        try:
            yield parts
        finally:
            tasks.cancel_scope.cancel()


async def learn(parts: Parts, facts: int, session_id: str = "s1", first: int = 0) -> None:
    """So many facts of one session, extracted and admitted; then no worker runs any more."""
    things = (f"thing {first + number} of {session_id}." for number in range(facts))
    async with running(parts):
        await parts.say(*things, session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()


def merges(parts: Parts) -> list[Call]:
    """The questions for the text of a group."""
    return [call for call in parts.model.calls if call.task is Task.MERGE]


@asynccontextmanager
async def running_forgetter(parts: Parts) -> AsyncGenerator[Parts, None]:
    """Erasing and following alone: no model is asked."""
    async with anyio.create_task_group() as tasks:
        for part in (parts.memories.follow, parts.forgetter.run):
            tasks.start_soon(part)
        try:
            yield parts
        finally:
            tasks.cancel_scope.cancel()


@contextmanager
def unwritable(path: Path) -> Generator[None]:
    """Another program holds the store's write lock: every transaction of ours fails, reading goes on."""
    other = sqlite3.connect(path, isolation_level=None, timeout=5)
    try:
        other.execute("BEGIN IMMEDIATE")
        yield
    finally:
        other.close()


async def event_types(log: EventLog, user: Reference | None = None) -> list[str]:
    """The wire names of all events, user by user; or of one user's, in order."""
    users = await log.read(read_user_references) if user is None else (user,)
    found: list[str] = []
    for each in users:
        found += [event.type for event in await log.read(lambda db, each=each: read_user(db, each, limit=10_000))]  # type: ignore[misc]
    return found
