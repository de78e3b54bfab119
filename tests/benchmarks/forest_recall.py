"""What mode `forest` costs beside `agpr`, and what many who ask at once cost a daemon that answers in it.

The first with all that a query does in the daemon, in this process; the second over the socket of a daemon of its
own, where the CPU of its process is read from outside.
"""

from __future__ import annotations

import gc
import multiprocessing
import tempfile
import time
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from importlib.util import find_spec
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import anyio
import msgspec
from threadpoolctl import threadpool_limits

from daemon.asking.answers import Answerer
from daemon.asking.forest_search import ForestSearch
from daemon.asking.query_params import QueryParams
from daemon.asking.word_search import WordSearch
from daemon.lifecycle import collect_seldom
from daemon.logs import quiet
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from daemon.offline.static import PACKAGE, StaticEmbedder
from daemon.serving.protocol import Method
from daemon.serving.socket_server import SocketServer
from daemon.vector_source import VectorSource
from events.appending import Batch
from events.decisions import FactsRouted, Route
from events.envelope import NewEvent
from events.log import EventLog
from projections.memory import Memory, MemoryParameters
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER
from tests.benchmarks.folding import grow
from tests.benchmarks.measuring import Figure, Row, Watch, ms, percentile, sized
from tests.benchmarks.node_sets import unit_rows
from tests.benchmarks.samples import Speech, fresh_log
from tests.benchmarks.socket_round_trip import drive
from tests.builders import MONDAY
from tests.scripted_models import ScriptedEmbedder

# Some 10,000 nodes, and the facts of a scene.
TURNS = 4_000
SCENE_FACTS = 30
QUESTIONS = 200
K = 10
DIMENSIONS = 384
FOREST_MAX = 2.0
CLIENTS = 32
ROUNDS = 320
REPEATS = 5
# Of the queries that one client gets for a second of CPU, 32 get this share.
SHARE_MIN = 0.75
START_WITHIN_S = 600.0


def measure(share: float) -> list[Row]:
    """By words alone and with vectors; then one client and 32."""
    turns = sized(TURNS, share, 100)
    thresholds = gc.get_threshold()
    collect_seldom()
    with threadpool_limits(1):
        rows = anyio.run(partial(_measure_modes, turns=turns, questions=sized(QUESTIONS, share, 10)))
    gc.set_threshold(*thresholds)
    return [*rows, _measure_clients(turns, sized(ROUNDS, share, 64))]


@asynccontextmanager
async def _remembering(turns: int) -> AsyncGenerator[tuple[EventLog, Memories, Memory]]:
    """A user with sessions, entities, scenes, and vectors for all of it."""
    async with fresh_log() as (log, _):
        await grow(log, "alice", turns, seed=1)
        memories = Memories(log, MemoryParameters(), quiet)
        user = log.keys.user("alice")
        await log.append(Batch(events=(_route(await memories.catch_up(user)),)))
        memory = await memories.catch_up(user)
        source = VectorSource(log, ScriptedEmbedder(DIMENSIONS))
        await source.fill(memory, memory.nodes.without_vectors(len(memory.nodes)))
        nodes = [node for tree in memory.forest.trees.values() for node in tree.nodes()]
        for node, vector in zip(nodes, unit_rows(len(nodes), 7), strict=True):
            memory.tree_vectors.put(node.digest, vector)
        yield log, memories, memory


def _route(memory: Memory) -> NewEvent:
    """Scenes of so many facts, as they came."""
    facts = list(memory.canon.facts)
    routes = tuple(Route(fact, (facts[n - n % SCENE_FACTS],)) for n, fact in enumerate(facts))
    return NewEvent("alice", None, FactsRouted(1, routes), "routes", MONDAY, basis=memory.user_seq)


async def _measure_modes(turns: int, questions: int) -> list[Row]:
    async with _remembering(turns) as (log, memories, memory):
        rows: list[Row] = [await _measure_layout(memory)]
        ways = [
            ("by words", NO_EMBEDDER, None),
            ("by words and vectors", ANY_EMBEDDER, None),
            ("by words, vectors and related words", ANY_EMBEDDER, _find_words(log)),
        ]
        for what, parameters, words in ways if find_spec(PACKAGE) else ways[:-1]:
            embedder = ScriptedEmbedder(DIMENSIONS) if parameters.cosine_weight else HashingEmbedder()
            answerer = Answerer(log.keys, log, memories, embedder, parameters, lambda _: 0, lambda: 0, words=words)
            rows.append(await _measure_mode(answerer, embedder, what, len(memory.nodes), questions))
        return rows


def _find_words(log: EventLog) -> WordSearch | None:
    """What a daemon with an embedder has, if the package of word vectors is installed."""
    return WordSearch(log, StaticEmbedder()) if find_spec(PACKAGE) else None


async def _measure_layout(memory: Memory) -> Row:
    """What the first question after an event pays once more, and what the first one of all does."""
    search, first = ForestSearch(), Watch()
    await search.columns(memory, by_vectors=False)
    first_s, again = first.read().thread_s, list[float]()
    for _ in range(REPEATS):
        memory.user_seq += 1  # as if something had happened that changed no tree
        watch = Watch()
        await search.columns(memory, by_vectors=False)
        again.append(watch.read().thread_s)
    memory.user_seq -= REPEATS
    leaves = sum(len(tree) for tree in memory.forest.trees.values())
    figures = Figure("again_cpu_ms", ms(median(again))), Figure("first_cpu_ms", ms(first_s))
    name = f"laying out trees of {leaves:,} leaves again after an event, CPU"
    return Row(name, median(again) / first_s, "for the first time", figures)


async def _measure_mode(
    answerer: Answerer, embedder: ScriptedEmbedder | HashingEmbedder, what: str, nodes: int, questions: int
) -> Row:
    speech = Speech(3)
    took: dict[str, list[float]] = {"agpr": [], "forest": []}
    asked = 0
    for n in range(questions + 1):
        question = speech.turn()
        for mode, seconds in took.items():
            before = _count_embedded(embedder)
            watch = Watch()
            await answerer.query(QueryParams(user_id="alice", query=question, k=K, mode=mode))
            if n:  # the first one lays the trees out and reads the words
                seconds.append(watch.read().cpu_s)  # of all threads: the embedder of words may have one
            if mode == "forest":
                asked += _count_embedded(embedder) - before
    agpr, forest = took["agpr"], took["forest"]
    figures = (
        Figure("forest_cpu_ms_p50", ms(median(forest))),
        Figure("forest_cpu_ms_p99", ms(percentile(forest, 0.99))),
        Figure("agpr_cpu_ms_p50", ms(median(agpr))),
        Figure("embeddings_a_query", asked / (questions + 1)),
    )
    name = f"a query in mode forest {what}, {nodes:,} nodes, CPU p50"
    return Row(name, median(forest) / median(agpr), "the same in mode agpr", figures, FOREST_MAX)


def _count_embedded(embedder: ScriptedEmbedder | HashingEmbedder) -> int:
    return len(embedder.texts) + len(embedder.questions) if isinstance(embedder, ScriptedEmbedder) else 0


def _measure_clients(turns: int, rounds: int) -> Row:
    """CPU of the daemon's process a query: 32 clients who all ask at once, against one."""
    cpu: dict[int, list[float]] = {1: [], CLIENTS: []}
    walls: dict[int, list[float]] = {1: [], CLIENTS: []}
    with _served(turns) as (path, clock):
        for repeat in range(REPEATS + 1):
            for clients, seconds in cpu.items():
                before = time.clock_gettime(clock)
                took = drive(path, _request(), clients, max(1, rounds // clients))
                asked = clients * len(took) + 1  # one more tells how long an answer is
                if repeat:
                    seconds.append((time.clock_gettime(clock) - before) / asked)
                    walls[clients].append(sum(took) / (clients * len(took)))
    figures = (
        Figure("many_cpu_ms_a_query", ms(median(cpu[CLIENTS]))),
        Figure("one_cpu_ms_a_query", ms(median(cpu[1]))),
        Figure("many_queries_a_s", 1 / median(walls[CLIENTS])),
        Figure("one_queries_a_s", 1 / median(walls[1])),
    )
    name = f"a query in mode forest, {CLIENTS} clients, CPU of the daemon"
    return Row(name, median(cpu[CLIENTS]) / median(cpu[1]), "one client", figures, 1 / SHARE_MIN)


def _request() -> bytes:
    params = {"user_id": "alice", "query": "Where did Alice live before Miami?", "k": K, "mode": "forest"}
    return msgspec.json.encode({"jsonrpc": "2.0", "id": 1, "method": "query", "params": params}) + b"\n"


async def _serve(folder: str, turns: int, started: Connection) -> None:
    async with _remembering(turns) as (log, memories, _):
        embedder = ScriptedEmbedder(DIMENSIONS)
        words = _find_words(log)
        answerer = Answerer(log.keys, log, memories, embedder, ANY_EMBEDDER, lambda _: 0, lambda: 0, words=words)
        handlers = {"query": Method(QueryParams, answerer.query, False, 30.0)}
        server = SocketServer(Path(folder) / "ours.sock", handlers=handlers, report=quiet)
        server.bind()
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(server.serve)
            started.send(None)


def _serve_in(folder: str, turns: int, started: Connection) -> None:
    collect_seldom()
    anyio.run(_serve, folder, turns, started)


@contextmanager
def _served(turns: int) -> Generator[tuple[Path, int]]:
    """The socket, and the CPU clock of the process that serves it."""
    processes = multiprocessing.get_context("spawn")
    ready, started = processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="mf-bench-") as folder:
        process = processes.Process(target=_serve_in, args=(folder, turns, started), daemon=True)
        process.start()
        try:
            if not ready.poll(START_WITHIN_S) or process.pid is None:
                raise TimeoutError(f"the server did not start within {START_WITHIN_S:g} s")
            yield Path(folder) / "ours.sock", (~process.pid << 3) | 2
        finally:
            process.terminate()
            process.join()
