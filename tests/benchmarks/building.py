"""A real run in one process: turns come in, the worker builds, and someone asks all the while.

The models are the offline ones, which take CPU of the loop where an endpoint would only take time.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC
from statistics import median

import anyio
import msgspec

from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.building.worker import Worker, WorkerParameters
from daemon.bus.bus_messages import BusMessage
from daemon.decoders.decoding import Decoder
from daemon.folding import fold_from_nothing
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.language_model import OfflineLanguageModel
from events.appending import Batch
from events.dead_letters import DeadLetter
from events.envelope import NewEvent
from events.log import GROUP_EVENTS_MAX, READERS, EventLog
from events.memory import Task
from events.session import TurnRecorded
from projections.memory import MemoryParameters
from projections.ports import ChunkText, FactsRead, IntervalText, MemberText, PairsRead, PairText, TextWritten
from projections.recall.agpr import NO_EMBEDDER
from tests.benchmarks.measuring import Figure, Row, Spent, StepTimer, Watch, ms, percentile, sized, us
from tests.benchmarks.samples import SESSION_GAP_MS, Speech, fresh_log, turns_of
from tests.builders import MONDAY, ManualClock

TURNS = 2_000
SESSION_TURNS = 20
USER = "alice"
# A question so often while it runs, and so many when it is done.
ASK_EVERY_S = 0.05
IDLE_QUESTIONS = 200
LOOK_EVERY_S = 0.2


class TimedModel:
    """The offline model with a timer around it."""

    def __init__(self) -> None:
        self.extracting, self.summarising = StepTimer(), StepTimer()
        self.extractions = self.summaries = 0
        self._model = OfflineLanguageModel()

    @property
    def name(self) -> str:
        return self._model.name

    def version_of(self, task: Task) -> str:
        return self._model.version_of(task)

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        self.extractions += 1
        return await self.extracting.time(self._model.extract_facts(chunk))

    async def summarise(self, interval: IntervalText) -> TextWritten:
        self.summaries += 1
        return await self.summarising.time(self._model.summarise(interval))

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        return await self._model.merge(members)

    async def judge(self, pairs: Sequence[PairText]) -> PairsRead:
        return await self._model.judge(pairs)


@dataclass(slots=True)
class _Run:
    """What a run is made of, and what was measured in it."""

    log: EventLog
    memories: Memories
    answerer: Answerer
    worker: Worker
    model: TimedModel
    asking: StepTimer = field(default_factory=StepTimer)
    spent: Spent = field(default_factory=lambda: Spent(0, 0, 0))
    writer_s: float = 0.0
    readers_s: float = 0.0
    decoding_s: float = 0.0
    questions_s: float = 0.0
    folding_s: float = 0.0
    busy_waits_s: list[float] = field(default_factory=list[float])
    idle_waits_s: list[float] = field(default_factory=list[float])


def measure(share: float) -> list[Row]:
    """Where the CPU of a turn goes, and how long a question waits meanwhile."""
    return anyio.run(_measure, sized(TURNS, share, 2 * SESSION_TURNS), sized(IDLE_QUESTIONS, share, 20))


async def _measure(turns: int, idle_questions: int) -> list[Row]:
    async with fresh_log() as (log, _):
        run = _make_run(log)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(run.memories.follow)
            tasks.start_soon(run.worker.run)
            await _build(run, _messages(turns))
            run.idle_waits_s = [await _ask(run, n) for n in range(idle_questions)]
            tasks.cancel_scope.cancel()
        # What folding took in the run cannot be told from what it stood between; the same events fold alike.
        watch = Watch()
        await fold_from_nothing(log, log.keys.user(USER), MemoryParameters())
        run.folding_s = watch.read().thread_s
    parts = _parts(run)
    built_s = sum(parts.values())
    waits = _wait_rows(run.busy_waits_s, run.idle_waits_s)
    return [*_cpu_rows(parts, built_s, turns), _wall_row(run, built_s, turns), *waits]


def _make_run(log: EventLog) -> _Run:
    memories = Memories(log, MemoryParameters(), _keep_silent)
    clock, model = ManualClock(), TimedModel()
    answerer = Answerer(log.keys, log, memories, HashingEmbedder(), NO_EMBEDDER, lambda _: 0, clock)
    worker = Worker(log, memories, model, WorkerParameters(), clock, _keep_silent)
    return _Run(log, memories, answerer, worker, model)


async def _build(run: _Run, messages: Sequence[BusMessage]) -> None:
    """From the first message to a Memory for which nothing waits, with a question now and then."""
    writer, readers = await _thread_cpu(run.log)
    watch = Watch()
    async with anyio.create_task_group() as asking:
        asking.start_soon(_keep_asking, run)
        await _ingest(run, messages)
        await _wait_until_built(run)
        asking.cancel_scope.cancel()
    run.spent = watch.read()
    writer_now, readers_now = await _thread_cpu(run.log)
    run.writer_s, run.readers_s = writer_now - writer, readers_now - readers
    run.questions_s = run.asking.cpu_s


def _parts(run: _Run) -> dict[str, float]:
    """CPU by what it was spent on, in seconds, without that of the questions."""
    extracting, summarising = run.model.extracting.cpu_s, run.model.summarising.cpu_s
    on_the_loop = run.decoding_s + extracting + summarising + run.folding_s + run.questions_s
    return {
        "decoding messages": run.decoding_s,
        "appending (the writer's thread)": run.writer_s,
        "reading, for the questions too (the readers' threads)": run.readers_s,
        "extraction": extracting,
        "summaries on the loop": summarising,
        "summaries on other threads": run.spent.cpu_s - run.spent.thread_s - run.writer_s - run.readers_s,
        "folding": run.folding_s,
        "planning and the rest of the loop": run.spent.thread_s - on_the_loop,
    }


def _cpu_rows(parts: dict[str, float], built_s: float, turns: int) -> list[Row]:
    of = f"all CPU of building {turns:,} turns"
    return [
        Row(name, cpu / built_s, of, (Figure("cpu_us_per_turn", us(cpu) / turns),)) for name, cpu in parts.items()
    ]


def _wall_row(run: _Run, built_s: float, turns: int) -> Row:
    figures = (
        Figure("wall_s", run.spent.wall_s),
        Figure("cpu_ms_per_turn", ms(built_s) / turns),
        Figure("extractions", run.model.extractions),
        Figure("summaries", run.model.summaries),
        Figure("questions_cpu_s", run.questions_s),
    )
    return Row(f"building {turns:,} turns, wall", run.spent.wall_s / built_s, "its CPU", figures)


def _wait_rows(busy: list[float], idle: list[float]) -> list[Row]:
    figures = tuple(
        Figure(f"{when}_ms_{label}", ms(percentile(waits, at)))
        for when, waits in (("busy", busy), ("idle", idle))
        for label, at in (("p50", 0.5), ("p99", 0.99))
    )
    middle, tail = median(busy) / median(idle), percentile(busy, 0.99) / percentile(idle, 0.99)
    count = Figure("questions", len(busy))
    return [
        Row("a query while it builds, p50", middle, "the same when it is built", (*figures, count), goal=1.5),
        Row("a query while it builds, p99", tail, "the same when it is built", (), goal=10.0),
    ]


def _messages(turns: int) -> list[BusMessage]:
    """What a chat service would have published: the turns of sessions, each closed at its end."""
    speech, messages = Speech(1), list[BusMessage]()
    for number in range(turns // SESSION_TURNS):
        session = f"s{number}"
        said = turns_of(speech, session, SESSION_TURNS, started_at=MONDAY + number * SESSION_GAP_MS)
        closing: dict[str, object] = {"type": "session.close", "id": "end"}
        for kind, body in [*(("turns", _turn_body(turn)) for turn in said), ("control", closing)]:
            payload = msgspec.json.encode({**body, "user_id": USER, "session_id": session})
            subject = f"memforest.{kind}.{USER}.{session}"
            messages.append(BusMessage(subject, payload, {}, "MEMFOREST", len(messages) + 1, MONDAY))
    return messages


def _turn_body(turn: NewEvent) -> dict[str, object]:
    event = turn.event
    assert isinstance(event, TurnRecorded)
    body = {"type": "turn", "id": event.turn_id, "role": event.role, "name": event.name, "content": event.content}
    return {**body, "timestamp": turn.happened_at}


async def _ingest(run: _Run, messages: Sequence[BusMessage]) -> None:
    """Everything at once, as after a time without a daemon."""
    decoder = Decoder(run.log.keys, UTC)
    for at in range(0, len(messages), GROUP_EVENTS_MAX):
        watch = Watch()
        decoded = [decoder.decode(message, "e1") for message in messages[at : at + GROUP_EVENTS_MAX]]
        run.decoding_s += watch.read().thread_s
        assert not any(isinstance(each, DeadLetter) for each in decoded)
        events = tuple(event for each in decoded if isinstance(each, tuple) for event in each)
        await run.log.append(Batch(events=events))


async def _wait_until_built(run: _Run) -> None:
    user = run.log.keys.user(USER)
    while True:
        memory = await run.memories.catch_up(user)
        if not memory.pending():
            return
        await anyio.sleep(LOOK_EVERY_S)


async def _keep_asking(run: _Run) -> None:
    while True:
        await anyio.sleep(ASK_EVERY_S)
        run.busy_waits_s.append(await _ask(run, len(run.busy_waits_s)))


async def _ask(run: _Run, number: int) -> float:
    """How long one question waits, everything but the socket included."""
    began = time.perf_counter()
    params = QueryParams(user_id=USER, query=QUESTIONS[number % len(QUESTIONS)])
    await run.asking.time(run.answerer.query(params))
    return time.perf_counter() - began


async def _thread_cpu(log: EventLog) -> tuple[float, float]:
    """CPU so far of the writer's thread, and of the readers' threads, who take turns."""
    return await log.write(_own_cpu), sum([await log.read(_own_cpu) for _ in range(READERS)])


def _own_cpu(_: object) -> float:
    return time.thread_time()


def _keep_silent(event: str, /, **fields: object) -> None:
    """No log lines in a benchmark."""


QUESTIONS = [Speech(7).question(Speech(n).turn()) for n in range(20)]
