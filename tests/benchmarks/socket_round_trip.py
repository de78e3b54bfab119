"""What the socket adds to an answer, against a bare asyncio server that sends the same bytes back and forth.

Both servers stand in one process of their own; its CPU is read from outside, so what clients cost is left out.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import socket
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median

import anyio
import msgspec

from daemon.answers import Answer, MemoryShown, Source, Watermark
from daemon.listings import NoParams
from daemon.protocol import Method
from daemon.socket_server import SocketServer
from tests.benchmarks.measuring import Figure, Row, percentile, sized, us
from tests.benchmarks.samples import Speech

ROUNDS = 2_000
CLIENTS = 32
REPEATS = 5
MEMORIES = 10
START_WITHIN_S = 30.0
RECEIVE_BYTES = 1 << 18
METHODS = ("nothing", "query")


def measure(share: float) -> list[Row]:
    """One client and 32, each with a trivial answer and with one of ten memories."""
    rows = list[Row]()
    with _servers() as (folder, clock):
        for method in METHODS:
            for clients in (1, CLIENTS):
                rows += _measure(folder, clock, method, clients, sized(ROUNDS, share, 40))
    return rows


def _measure(folder: Path, clock: int, method: str, clients: int, rounds: int) -> list[Row]:
    """Interleaved repeats, ours and the bare one."""
    paths = {"ours": folder / "ours.sock", "bare": folder / f"{method}.sock"}
    seconds: dict[str, list[float]] = {name: [] for name in paths}
    cpu: dict[str, list[float]] = {name: [] for name in paths}
    for _ in range(REPEATS):
        for name, path in paths.items():
            before = time.clock_gettime(clock)
            walls = _drive(path, _request(method), clients, rounds // (REPEATS * clients) + 1)
            cpu[name].append((time.clock_gettime(clock) - before) / (len(walls) * clients))
            seconds[name] += walls
    name = f"{method}, {clients} client{'s' * (clients > 1)}"
    of = f"asyncio echo of the same bytes ({len(_request(method))} and {len(_answer(method))})"
    walls_of = tuple(
        Figure(f"{who}_us_{label}", us(percentile(seconds[who], at)))
        for who in paths
        for label, at in (("p50", 0.5), ("p99", 0.99))
    )
    cpu_of = tuple(Figure(f"{who}_server_cpu_us", us(median(cpu[who]))) for who in paths)
    return [
        Row(f"{name}, wall p50", median(seconds["ours"]) / median(seconds["bare"]), of, walls_of),
        Row(f"{name}, server CPU a request", median(cpu["ours"]) / median(cpu["bare"]), of, cpu_of),
    ]


def _drive(path: Path, request: bytes, clients: int, rounds: int) -> list[float]:
    """Each round all clients ask, then all are answered; seconds of each round."""
    walls = list[float]()
    with ExitStack() as stack:
        connections = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(clients)]
        for connection in connections:
            connection.connect(str(path))
        for _ in range(rounds):
            began = time.perf_counter()
            for connection in connections:
                connection.sendall(request)
            for connection in connections:
                _receive_line(connection)
            walls.append(time.perf_counter() - began)
    return walls


def _receive_line(connection: socket.socket) -> None:
    while not connection.recv(RECEIVE_BYTES).endswith(b"\n"):
        pass


def _request(method: str) -> bytes:
    params = {"user_id": "alice", "query": "Where did Alice live before Miami?", "k": MEMORIES}
    call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params if method == "query" else {}}
    return msgspec.json.encode(call) + b"\n"


def _answer(method: str) -> bytes:
    """Our answer, byte for byte, for the bare server to send."""
    result: object = _an_answer() if method == "query" else None
    return msgspec.json.encode({"id": 1, "result": result, "jsonrpc": "2.0"}) + b"\n"


def _an_answer() -> Answer:
    """Ten memories of two turns each."""
    speech = Speech(1)
    when = "2024-07-01T09:00:00.000Z"
    memories = [
        MemoryShown(
            id=f"{n:032x}",
            kind="chunk",
            text=f"Alice: {speech.turn()}\nWren: {speech.turn()}",
            said_at=when,
            time_start=when,
            time_end=when,
            score=0.91234,
            similarity=0.87654,
            propagation=0.12345,
            sessions=["s1"],
            sources=[Source("s1", f"t{2 * n}"), Source("s1", f"t{2 * n + 1}")],
            parts=[],
        )
        for n in range(MEMORIES)
    ]
    return Answer(memories, "\n".join(memory.text for memory in memories), Watermark(900, 900, 0, 0.0))


class _QueryParams(NoParams, frozen=True, kw_only=True):
    """Parameters as `query` has them."""

    user_id: str
    query: str
    k: int


class _Echo(asyncio.Protocol):
    """Answers every line with the same bytes."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        if data.endswith(b"\n") and self._transport is not None:
            self._transport.write(self._answer)


async def _serve(folder: Path, started: Connection) -> None:
    answer = _an_answer()

    async def nothing(_: NoParams) -> None:
        return None

    async def query(_: _QueryParams) -> Answer:
        return answer

    handlers = {
        "nothing": Method(NoParams, nothing, False, 10.0),
        "query": Method(_QueryParams, query, False, 10.0),
    }
    loop = asyncio.get_running_loop()
    for method in METHODS:
        await loop.create_unix_server(partial(_Echo, _answer(method)), folder / f"{method}.sock")
    server = SocketServer(folder / "ours.sock", handlers=handlers, report=lambda event, /, **fields: None)
    server.bind()
    started.send(None)
    await server.serve()


def _serve_in(folder: str, started: Connection) -> None:
    anyio.run(_serve, Path(folder), started)


@contextmanager
def _servers() -> Generator[tuple[Path, int]]:
    """The folder of the sockets and the CPU clock of the process that serves them."""
    processes = multiprocessing.get_context("spawn")
    ready, started = processes.Pipe(duplex=False)
    with tempfile.TemporaryDirectory(prefix="mf-bench-") as folder:
        process = processes.Process(target=_serve_in, args=(folder, started), daemon=True)
        process.start()
        try:
            if not ready.poll(START_WITHIN_S) or process.pid is None:
                raise TimeoutError(f"the servers did not start within {START_WITHIN_S:g} s")
            # The CPU clock of another process (clock_getcpuclockid(3), as Linux makes it).
            yield Path(folder), (~process.pid << 3) | 2
        finally:
            process.terminate()
            process.join()
