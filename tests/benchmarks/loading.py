"""Taking a Memory up from its snapshot against folding it from nothing, and what many users and events cost.

As in the daemon, Python's garbage collector seldom looks at old objects.
"""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from statistics import median
from typing import NamedTuple

import anyio

from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.derived import DERIVED, DerivedStore
from daemon.folding import fold_from_nothing
from daemon.lifecycle import collect_seldom
from daemon.logs import quiet
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from daemon.snapshots import Snapshots
from daemon.vector_source import VectorSource
from events.envelope import Reference
from events.log import EventLog
from projections.memory import MemoryParameters
from projections.recall.agpr import ANY_EMBEDDER, AgprParameters
from tests.benchmarks.folding import grow
from tests.benchmarks.measuring import Beats, Figure, Row, Spent, Watch, heartbeat, ms, percentile, sized
from tests.benchmarks.samples import Speech, fresh_log
from tests.scripted_models import ScriptedEmbedder

# Some 10,000 nodes.
TURNS = 4_000
TURNS_SINCE = 200
# Each with some 25 nodes.
USERS = 1_000
USER_TURNS = 10
QUESTIONS = 400
REPEATS = 5
# The bars: a cold user of 10,000 nodes answers within this, and a store of 100,000 events is ready within that.
FIRST_ANSWER_S = 0.5
READY_S = 1.5
STALL_S = 0.010
DIMENSIONS = 384
STARTS = 3
STORE_USERS = 500
STORE_TURNS = 118
USERS_MAX_RATIO = 1.2
NODE_BYTES = 1_600
ROOM = 1 << 30


def measure(share: float) -> list[Row]:
    """One large user, a thousand small ones, and the start of the process."""
    turns, since = sized(TURNS, share, 100), sized(TURNS_SINCE, share, 20)
    thresholds = gc.get_threshold()
    collect_seldom()
    rows = anyio.run(partial(_measure_loading, turns=turns, since=since))
    rows += anyio.run(partial(_measure_users, users=sized(USERS, share, 20)))
    rows += anyio.run(partial(_measure_start, users=sized(STORE_USERS, share, 1), starts=sized(STARTS, share)))
    gc.set_threshold(*thresholds)
    return rows


@asynccontextmanager
async def _derived(log: EventLog) -> AsyncGenerator[DerivedStore]:
    store = await DerivedStore.open(log.path.parent / DERIVED, log, quiet, ROOM)
    try:
        yield store
    finally:
        await store.close()


def _snapshots(log: EventLog, store: DerivedStore) -> Snapshots:
    return Snapshots(store, log, MemoryParameters(), "benchmark", quiet)


def _answerer(log: EventLog, memories: Memories) -> Answerer:
    return Answerer(log.keys, log, memories, HashingEmbedder(), AgprParameters(), lambda _: 0, lambda: 0)


async def _measure_loading(turns: int, since: int) -> list[Row]:
    async with fresh_log() as (log, _), _derived(log) as store:
        await grow(log, "alice", turns, seed=1)
        user, snapshots = log.keys.user("alice"), _snapshots(log, store)
        memory = await fold_from_nothing(log, user, MemoryParameters())
        watch = Watch()
        await snapshots.leave(memory)
        left, nodes, size_bytes = watch.read(), len(memory.nodes), (await store.measure()).bytes
        async with heartbeat() as leaving:
            await snapshots.leave(memory)
        source = VectorSource(log, ScriptedEmbedder(DIMENSIONS), store)
        await source.fill(memory, memory.nodes.without_vectors(nodes))
        del memory
        rows = await _measure_first_answers(log, snapshots, source, nodes)
        async with heartbeat() as beats:
            await _load(
                Memories(log, MemoryParameters(), quiet, snapshots=snapshots, furnish=source.furnish), user
            )
        await grow(log, "alice", since, seed=2, first_session=10_000)
        taking, folding = list[Spent](), list[Spent]()
        for n in range(REPEATS):
            taking.append(await _load(Memories(log, MemoryParameters(), quiet, snapshots=snapshots), user))
            if n < 2:  # it takes long
                folding.append(await _load(Memories(log, MemoryParameters(), quiet), user))
        traced = await _trace(log, user)
    taken_s, folded_s = median(each.cpu_s for each in taking), median(each.cpu_s for each in folding)
    name = f"{nodes:,} nodes"
    return [
        Row(
            f"taking up {name} and folding {since} turns since, CPU",
            taken_s / folded_s,
            "folding them from nothing",
            (
                Figure("taken_cpu_ms", ms(taken_s)),
                Figure("folded_cpu_ms", ms(folded_s)),
                Figure("snapshot_bytes_per_node", size_bytes / nodes),
            ),
            goal=0.2,
        ),
        Row(
            f"leaving a snapshot of {name}, CPU",
            left.cpu_s / folded_s,
            "folding them from nothing",
            (Figure("left_cpu_ms", ms(left.cpu_s)),),
        ),
        *rows,
        _stalls(f"taking up {name} and their vectors", beats),
        _stalls(f"leaving a snapshot of {name}", leaving),
        Row(
            "memory of the node set a node, without vectors",
            traced[1] / nodes / NODE_BYTES,
            f"{NODE_BYTES:,} bytes",
            (
                Figure("node_set_bytes_per_node", traced[1] / nodes),
                Figure("memory_bytes_per_node", traced[0] / nodes),
                Figure("estimated_bytes_per_node", traced[2] / nodes),
            ),
        ),
    ]


def _stalls(name: str, beats: Beats) -> Row:
    longest = max(beats.cpu_s, default=0.0)
    figures = (
        Figure("stall_cpu_ms_max", ms(longest)),
        Figure("stall_cpu_ms_p99", ms(percentile(beats.cpu_s, 0.99))),
    )
    return Row(f"longest stall of the loop, {name}", longest / STALL_S, f"{ms(STALL_S):g} ms", figures, goal=1.0)


async def _measure_first_answers(
    log: EventLog, snapshots: Snapshots, source: VectorSource, nodes: int
) -> list[Row]:
    """A cold user's first answer and the next one, by words alone and with vectors that are kept."""
    rows = list[Row]()
    for name in ("", ", with vectors"):
        first, following = list[float](), list[float]()
        for _ in range(REPEATS):
            took = await _ask_cold(log, snapshots, source if name else None)
            first.append(took[0])
            following.append(took[1])
        figures = Figure("first_ms", ms(median(first))), Figure("next_ms", ms(median(following)))
        title = f"first answer of a cold user of {nodes:,} nodes{name}, wall"
        rows.append(Row(title, median(first) / FIRST_ANSWER_S, f"{ms(FIRST_ANSWER_S):g} ms", figures, goal=1.0))
    return rows


async def _load(memories: Memories, user: Reference) -> Spent:
    watch = Watch()
    async with memories.use(user):
        return watch.read()


async def _ask_cold(log: EventLog, snapshots: Snapshots, source: VectorSource | None) -> tuple[float, float]:
    """How long the first answer and the second one take, wall."""
    furnish = source.furnish if source else None
    memories = Memories(log, MemoryParameters(), quiet, snapshots=snapshots, furnish=furnish)
    embedder, recall = (
        (ScriptedEmbedder(DIMENSIONS), ANY_EMBEDDER) if source else (HashingEmbedder(), AgprParameters())
    )
    answerer = Answerer(log.keys, log, memories, embedder, recall, lambda _: 0, lambda: 0, vectors=source)
    speech, took = Speech(3), list[float]()
    for _ in range(2):
        began = time.perf_counter()
        await answerer.query(QueryParams(user_id="alice", query=speech.turn()))
        took.append(time.perf_counter() - began)
    return took[0], took[1]


async def _trace(log: EventLog, user: Reference) -> tuple[int, int, int]:
    """Bytes of a whole Memory, of its node set, and what the Memory says of itself."""
    tracemalloc.start()
    memory = await fold_from_nothing(log, user, MemoryParameters())
    whole, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return whole, memory.nodes.size_bytes, memory.size_bytes


async def _measure_users(users: int) -> list[Row]:
    """The same questions of one user, asked while it is alone and while all are loaded, and of all in turn."""
    names = [f"user {n}" for n in range(users)]
    async with fresh_log() as (log, _):
        for n, name in enumerate(names):
            await grow(log, name, USER_TURNS, seed=n)
        alone, crowd = (Memories(log, MemoryParameters(), quiet) for _ in range(2))
        for name in names:
            await crowd.catch_up(log.keys.user(name))
        await alone.catch_up(log.keys.user(names[0]))
        rng, speech = random.Random(1), Speech(5)
        of_one, of_all = list[float](), list[float]()
        for _ in range(QUESTIONS):
            question = speech.turn()
            of_one.append(await _ask(_answerer(log, alone), names[0], question))
            of_all.append(await _ask(_answerer(log, crowd), rng.choice(names), question))
    return [
        Row(
            f"a question to one of {users:,} users, CPU of the loop",
            median(of_all) / median(of_one),
            "the same question to one user alone",
            (
                Figure("of_many_us", median(of_all) * 1e6),
                Figure("of_one_us", median(of_one) * 1e6),
                Figure("mib_of_all", crowd.size_bytes / (1 << 20)),
            ),
            goal=USERS_MAX_RATIO,
        )
    ]


async def _ask(answerer: Answerer, user_id: str, question: str) -> float:
    watch = Watch()
    await answerer.query(QueryParams(user_id=user_id, query=question))
    return watch.read().thread_s


async def _measure_start(users: int, starts: int) -> list[Row]:
    """From the start of the process to READY=1, with a large store and with none."""
    async with fresh_log() as (log, path):
        for n in range(users):
            await grow(log, f"user {n}", STORE_TURNS, seed=n)
        events = log.head
        await log.close()
        full, empty, python = await anyio.to_thread.run_sync(_start_often, path.parent, starts)
    name = f"ready with {events:,} events"
    figures = (
        Figure("ready_ms", ms(full.wall_s)),
        Figure("ready_cpu_ms", ms(full.cpu_s)),
        Figure("empty_ms", ms(empty.wall_s)),
        Figure("empty_cpu_ms", ms(empty.cpu_s)),
    )
    python_ms = Figure("python_ms", ms(python))
    return [
        Row(f"{name}, wall", full.wall_s / READY_S, f"{READY_S:g} s", figures[:2], goal=1.0),
        Row(f"{name}, CPU", full.cpu_s / empty.cpu_s, "ready with an empty store", figures),
        Row("ready with an empty store, wall", empty.wall_s / python, "python -c pass", (*figures[2:], python_ms)),
    ]


class _Start(NamedTuple):
    """What a start took until the daemon said that it is ready."""

    wall_s: float
    cpu_s: float


def _start_often(folder: Path, starts: int = STARTS) -> tuple[_Start, _Start, float]:
    """Starts with this store and with an empty one, and the seconds in which Python does nothing.

    The quickest of some, after one that leaves bytecode behind, which an installed package has.
    """
    with tempfile.TemporaryDirectory() as other:
        _start_once(Path(other))
        full = min(_start_once(folder) for _ in range(starts))
        empty = min(_start_once(Path(other)) for _ in range(starts))
    began = time.perf_counter()
    subprocess.run([sys.executable, "-c", "pass"], check=True)
    return full, empty, time.perf_counter() - began


def _start_once(folder: Path) -> _Start:
    """One start; the bus is not there."""
    settings = {"MEMFOREST_BUS_URL": "nats://127.0.0.1:1", "MEMFOREST_LOG_FORMAT": "json"}
    environ = {**os.environ, **settings, "PYTHONDONTWRITEBYTECODE": ""}
    began = time.perf_counter()
    command = [sys.executable, "-m", "daemon", "run", "--data", str(folder)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "daemon.started" in line:
                break
        took = _Start(time.perf_counter() - began, _read_cpu(process.pid))
        process.terminate()
        process.stderr.read()
    return took


def _read_cpu(pid: int) -> float:
    """CPU seconds of a process so far (proc(5): utime and stime follow the command's name as 12th and 13th)."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
