"""A daemon without bus and socket: the real log, fold, worker, compactor and forgetter with scripted models."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path

import anyio
import anyio.lowlevel
from anyio.abc import TaskGroup

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.asking.structures import Structures
from daemon.building.compacted import CompactionRunning
from daemon.building.compaction import Compactor
from daemon.building.corrections import Corrections
from daemon.building.deciding import Deciding
from daemon.building.worker import Worker, WorkerParameters
from daemon.erasure.fingerprints import Fingerprints
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import SessionUnknown, UserUnknown
from daemon.erasure.residue import IsKept, ScanResult
from daemon.folding import fold_from_nothing
from daemon.memories import Memories
from daemon.parked import Parked
from daemon.texts import read_texts
from daemon.vector_source import VectorSource
from events.envelope import Reference
from events.erasure import has_emptied, has_retracted
from events.hindsight import Hindsight, read_hindsight
from events.log import EventLog
from events.registry import read_user_references
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory, MemoryParameters
from projections.memtree.shape import TreeShape
from projections.recall.agpr import NO_EMBEDDER
from projections.recall.nodes import NodeKind
from projections.texts import TextRef
from tests.builders import SECRET, ManualClock, seeded_nonces
from tests.scripted_bus import erasing_without_a_server
from tests.scripted_models import ScriptedEmbedder, ScriptedModel
from tests.waiting import wait_until

# Small trees of several levels, and summaries from two sentences on.
PARAMETERS = MemoryParameters(chunk_turns=2, shape=TreeShape(3), concatenation_max=60)
# Small units, and so high a ratio that a few dozen facts are compacted.
EVENTTREE = EventTreeParameters(unit_cap=8, ratio=0.7)
# Rounds without a change after which nothing will change by itself.
QUIET_ROUNDS = 3
BUILT_WITHIN_S = 20.0


@dataclass
class Reports:
    """What the daemon would have logged."""

    names: list[str] = field(default_factory=list[str])

    def __call__(self, event: str, /, **fields: object) -> None:
        self.names.append(event)


@dataclass
class Daemon:
    """The parts of one run, and the tasks they run in."""

    log: EventLog
    memories: Memories
    model: ScriptedModel
    worker: Worker
    forgetter: Forgetter
    compactor: Compactor
    answerer: Answerer
    corrections: Corrections
    parked: Parked
    reports: Reports
    tasks: TaskGroup
    forgetting: int = 0

    def compact_soon(self, user_id: str) -> None:
        """Compact a user in the background, unless that runs already."""
        self.tasks.start_soon(self._compact, self.log.keys.user(user_id))

    def forget_soon(self, user_id: str, session_id: str) -> None:
        """Forget a session in the background."""
        self.tasks.start_soon(self.forget, user_id, session_id)

    async def forget(self, user_id: str, session_id: str) -> bool:
        """Forget a session and wait for the receipt; False for one that was never heard of."""
        self.forgetting += 1
        try:
            await self.forgetter.forget(user_id, session_id)
        except SessionUnknown:
            return False
        finally:
            self.forgetting -= 1
        return True

    async def forget_user(self, user_id: str) -> bool:
        """Forget all of a user and wait for the receipt; False for one that was never heard of."""
        self.forgetting += 1
        try:
            await self.forgetter.forget_user(user_id)
        except UserUnknown:
            return False
        finally:
            self.forgetting -= 1
        return True

    async def ask(self, user_id: str, question: str) -> Answer:
        return await self.answerer.query(QueryParams(user_id=user_id, query=question))

    async def settle(self) -> None:
        """Return once nothing moves any more until a test lets a model answer."""
        quiet = 0
        seen = self._signature()
        while quiet < QUIET_ROUNDS:
            # The writer's thread takes things in order, so what was under way is done behind it.
            await self.log.write(_nothing)
            await self.log.read(_nothing)
            await anyio.lowlevel.checkpoint()
            quiet = quiet + 1 if self._signature() == seen and not self._is_busy() else 0
            seen = self._signature()

    async def build(self) -> None:
        """Answer everything, and return once nothing is pending for any user and nothing is to be erased."""
        self.model.release()
        await wait_until(lambda: not self.compactor.running and not self.forgetting, BUILT_WITHIN_S, "not idle")
        with anyio.fail_after(BUILT_WITHIN_S):
            while await self.pending() or await self.log.read(has_retracted) or await self.log.read(has_emptied):
                await self.settle()

    async def pending(self) -> int:
        """What is still to be done, for all users."""
        total = len(self.worker.in_flight)
        for user in await self.users():
            total += (await self.memories.catch_up(user)).pending() + self.worker.count_planned(user)
        return total

    async def users(self) -> tuple[Reference, ...]:
        return await self.log.read(read_user_references)

    async def check(self) -> None:
        """Assert that each Memory is what a fold from nothing gives."""
        for user in await self.users():
            while True:
                before = await self._undone(user)
                memory = await self.memories.catch_up(user)
                live, waits, places = digest_memory(memory), _what_waits(memory), _places_waiting(memory)
                texts = await self.chunk_texts(memory)
                user_seq, registered = await self.log.read(partial(_read_waiting, user=user))
                folded = await fold_from_nothing(self.log, user, PARAMETERS, live.user_seq)
                # What was undone meanwhile the fold leaves out, and the live one could not know.
                if before == await self._undone(user):
                    break

            assert not memory.needs_rebuild
            assert digest_memory(folded) == live
            assert await self.chunk_texts(folded) == texts
            assert _what_waits(folded) == waits
            assert user_seq > live.user_seq or registered == places

    async def chunk_texts(self, memory: Memory) -> dict[Reference, list[str | None]]:
        """What is searched of the chunks of each session, verbatim, in order."""
        found: dict[Reference, list[tuple[int, TextRef]]] = {}
        for row in memory.nodes.live_rows(frozenset()):
            node = memory.nodes.node(int(row))
            if node.kind is NodeKind.CHUNK:
                (session,) = node.sessions
                place = min(memory.transcript.placed[turn].place for turn in self._turns_of(memory, node.turns))
                found.setdefault(session, []).append((place, node.ref))
        return {
            session: await read_texts(self.log, [ref for _, ref in sorted(chunks, key=lambda each: each[0])])
            for session, chunks in found.items()
        }

    @staticmethod
    def _turns_of(memory: Memory, seqs: tuple[int, ...]) -> list[Reference]:
        return [turn for turn, placed in memory.transcript.placed.items() if placed.seq in seqs]

    async def _undone(self, user: Reference) -> Hindsight:
        """What is undone by now, without how far the log is."""
        return replace(await self.log.read(partial(read_hindsight, user=user)), user_seq=0)

    def _signature(self) -> tuple[object, ...]:
        projected = tuple(sorted((user, each.user_seq) for user, each in self.memories.loaded().items()))
        return self.log.head, frozenset(self.worker.in_flight), len(self.model.calls), projected

    def _is_busy(self) -> bool:
        """Whether something is under way that a model does not hold back."""
        held = len(self.model.waiting())
        planned = sum(map(self.compactor.count_planned, self.compactor.running))
        compacting = bool(self.compactor.running) and not planned
        return compacting or held < min(len(self.worker.in_flight) + planned, self.worker.engine.slots.limit)

    async def _compact(self, user: Reference) -> None:
        try:
            await self.compactor.compact(user)
        except CompactionRunning:
            return


@asynccontextmanager
async def running(path: Path, clock: ManualClock, *, held: bool, online: bool = False) -> AsyncGenerator[Daemon]:
    """One life of a daemon on the store at `path`: ended like by a signal, whatever is under way.

    With `online` units and groups are made in the background, too.
    """
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    try:
        async with anyio.create_task_group() as tasks:
            daemon = _build(log, clock, ScriptedModel(held=held), tasks, EVENTTREE if online else None)
            parts: list[Callable[[], Coroutine[object, object, None]]] = [
                daemon.memories.follow,
                daemon.worker.run,
                daemon.forgetter.run,
            ]
            for part in parts:
                tasks.start_soon(part)
            yield daemon
            tasks.cancel_scope.cancel()
    finally:
        await log.close()


def _build(
    log: EventLog, clock: ManualClock, model: ScriptedModel, tasks: TaskGroup, online: EventTreeParameters | None
) -> Daemon:
    reports = Reports()
    memories = Memories(log, PARAMETERS, reports)
    # A failed call is tried again at once; chunks of quiet sessions are closed by the history itself.
    pace = WorkerParameters(first_pause_s=0, tick_s=3600)
    deciding = Deciding(log, memories, report=reports, eventtree=online)
    worker = Worker(log, memories, model, pace, clock, reports, deciding=deciding)
    embedder = ScriptedEmbedder()
    source = VectorSource(log, embedder)
    compactor = Compactor(log, memories, worker, source, EventTreeParameters(), clock)
    # The test looks into the files itself, in the end; a search in a process of its own each time would take long.
    erasing = replace(erasing_without_a_server(log, log.path.parent, clock, reports), search=_find_nothing)
    forgetter = Forgetter(erasing, memories)
    answerer = Answerer(log.keys, log, memories, embedder, NO_EMBEDDER, worker.count_planned, clock)
    corrections = Corrections(log, memories, worker, Structures(log, memories), clock)
    said_and_done = (answerer, corrections, Parked(log, clock))
    return Daemon(log, memories, model, worker, forgetter, compactor, *said_and_done, reports, tasks)


def _what_waits(memory: Memory) -> tuple[object, ...]:
    """What is to be extracted, written and not merged."""
    forest = memory.forest
    return set(memory.waiting_chunks), forest.dirty_count(), list(memory.units.parked), memory.pending()


def _places_waiting(memory: Memory) -> set[int]:
    """The places of turns that no extraction covers, and no parked one."""
    chunks = [chunk.turns for chunk in memory.waiting_chunks.values()]
    waiting = {turn for turns in (*chunks, *map(memory.open_chunk, memory.session_ids)) for turn in turns}
    return {placed.place for placed in memory.transcript.placed.values() if placed.seq in waiting}


def _read_waiting(connection: sqlite3.Connection, user: Reference) -> tuple[int, set[int]]:
    """The same by the registry, with the user_seq that it stands at."""
    rows = connection.execute(
        """SELECT t.seq FROM turns t JOIN sessions s ON s.session = t.session
           WHERE s.user = ? AND s.forgotten IS NULL AND t.closing = 0 AND t.extraction IS NULL
               AND t.standing IS NOT NULL""",
        (user,),
    )
    places = {seq for (seq,) in rows}
    (user_seq,) = connection.execute("SELECT user_seq FROM users WHERE user = ?", (user,)).fetchone()
    return int(user_seq), places


async def _find_nothing(_: Path, samples: Fingerprints, __: IsKept) -> ScanResult:
    return ScanResult(files=0, bytes_read=0, windows=len(samples), residues=(), shared=0, unread=())


def _nothing(connection: sqlite3.Connection) -> None:
    connection.execute("SELECT 1").fetchone()
