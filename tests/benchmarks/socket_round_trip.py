"""What the socket adds to an answer: JSON-RPC and HTTP against uvicorn with h11 and against a bare asyncio echo.

All servers give the same result, encoded anew for each request (the echo: the same bytes), in one process of their
own; its CPU is read from outside, so what clients cost is left out.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import re
import resource
import socket
import tempfile
import time
from collections.abc import Generator
from contextlib import ExitStack, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from pathlib import Path
from statistics import median
from typing import Any

import anyio
import msgspec
import uvicorn

from daemon.asking.answer_types import Answer, MemoryShown, Source, Watermark
from daemon.asking.listings import NoParams
from daemon.serving.protocol import Method
from daemon.serving.socket_server import SocketServer
from tests.benchmarks.measuring import Figure, Row, percentile, sized, us
from tests.benchmarks.samples import Speech

ROUNDS = 2_000
CLIENTS = 32
IDLE_CLIENTS = 1_000
REPEATS = 5
MEMORIES = 10
START_WITHIN_S = 30.0
RECEIVE_BYTES = 1 << 18
# The method of each and the HTTP route that leads to it.
METHODS = {"healthz": "GET /healthz", "query": "POST /v1/query"}
SERVERS = ("rpc", "http", "uvicorn", "bare")
# Half of what the usual way costs (engineering.md 1.7), and the same with a thousand who only stand there.
RPC_GOAL = 0.5
IDLE_GOAL = 3.0


def measure(share: float) -> list[Row]:
    """One client and 32, each with a trivial answer and with one of ten memories; then 32 beside idle ones."""
    rows = list[Row]()
    with _servers() as (folder, clock):
        for method in METHODS:
            for clients in (1, CLIENTS):
                rows += _measure(folder, clock, method, clients, sized(ROUNDS, share, 40))
        rows.append(_measure_idle(folder, sized(ROUNDS, share, 40), sized(IDLE_CLIENTS, share)))
    return rows


def _measure(folder: Path, clock: int, method: str, clients: int, rounds: int) -> list[Row]:
    """Interleaved repeats of all servers."""
    seconds: dict[str, list[float]] = {name: [] for name in SERVERS}
    cpu: dict[str, list[float]] = {name: [] for name in SERVERS}
    for _ in range(REPEATS):
        for name in SERVERS:
            before = time.clock_gettime(clock)
            took = drive(_path(folder, name, method), _request(name, method), clients, rounds // clients + 1)
            cpu[name].append((time.clock_gettime(clock) - before) / (len(took) * clients))
            seconds[name] += took
    wall_of = {name: median(seconds[name]) for name in SERVERS}
    cpu_of = {name: median(cpu[name]) for name in SERVERS}
    walls = tuple(
        Figure(f"{name}_us_{label}", us(percentile(seconds[name], at)))
        for name in SERVERS
        for label, at in (("p50", 0.5), ("p99", 0.99))
    )
    cpus = tuple(Figure(f"{name}_server_cpu_us", us(cpu_of[name])) for name in SERVERS)
    of = f"{method}, {clients} client{'s' * (clients > 1)}"
    return [
        Row(f"{of}: JSON-RPC, wall p50", wall_of["rpc"] / wall_of["uvicorn"], "uvicorn+h11", walls, RPC_GOAL),
        Row(f"{of}: JSON-RPC, CPU", cpu_of["rpc"] / cpu_of["uvicorn"], "uvicorn+h11", cpus, RPC_GOAL),
        Row(f"{of}: HTTP, CPU", cpu_of["http"] / cpu_of["uvicorn"], "uvicorn+h11", cpus),
        Row(f"{of}: JSON-RPC, CPU", cpu_of["rpc"] / cpu_of["bare"], "asyncio echo of the same bytes", cpus),
    ]


def _measure_idle(folder: Path, rounds: int, idle_clients: int) -> Row:
    """Busy clients alone and beside many that are connected and silent, interleaved."""
    path, request = _path(folder, "rpc", "query"), _request("rpc", "query")
    alone, beside = list[float](), list[float]()
    for _ in range(REPEATS):
        alone += drive(path, request, CLIENTS, rounds // CLIENTS + 1)
        with ExitStack() as stack:
            _connect(stack, path, idle_clients)
            beside += drive(path, request, CLIENTS, rounds // CLIENTS + 1)
    figures = tuple(
        Figure(f"{name}_us_p99", us(percentile(walls, 0.99)))
        for name, walls in (("alone", alone), ("beside", beside))
    )
    of = f"query, {CLIENTS} clients beside {idle_clients} idle: wall p99"
    return Row(of, percentile(beside, 0.99) / percentile(alone, 0.99), "the same alone", figures, IDLE_GOAL)


def drive(path: Path, request: bytes, clients: int, rounds: int) -> list[float]:
    """Each round all clients ask, then all are answered; seconds of each round."""
    walls = list[float]()
    with ExitStack() as stack:
        connections = _connect(stack, path, clients)
        answer_bytes = _probe(connections[0], request)
        for _ in range(rounds):
            began = time.perf_counter()
            for connection in connections:
                connection.sendall(request)
            for connection in connections:
                _receive(connection, answer_bytes)
            walls.append(time.perf_counter() - began)
    return walls


def _connect(stack: ExitStack, path: Path, clients: int) -> list[socket.socket]:
    connections = [stack.enter_context(socket.socket(socket.AF_UNIX)) for _ in range(clients)]
    for connection in connections:
        connection.connect(str(path))
    return connections


def _probe(connection: socket.socket, request: bytes) -> int:
    """How long the answer is, always the same: a line, or a head with the length of its body."""
    connection.sendall(request)
    answer = b""
    while True:
        answer += connection.recv(RECEIVE_BYTES)
        if not answer.startswith(b"HTTP"):
            if answer.endswith(b"\n"):
                return len(answer)
            continue
        head, end, body = answer.partition(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        if end and length and len(body) == int(length[1]):
            return len(answer)


def _receive(connection: socket.socket, answer_bytes: int) -> None:
    while answer_bytes > 0:
        answer_bytes -= len(connection.recv(RECEIVE_BYTES))


def _path(folder: Path, server: str, method: str) -> Path:
    """Ours are on one socket; the echo has one for each answer."""
    name = {"rpc": "ours", "http": "ours", "bare": f"bare-{method}"}.get(server, server)
    return folder / f"{name}.sock"


def _request(server: str, method: str) -> bytes:
    params = {"user_id": "alice", "query": "Where did Alice live before Miami?", "k": MEMORIES}
    if server in ("rpc", "bare"):
        call = {"jsonrpc": "2.0", "id": 1, "method": method, "params": params if method == "query" else {}}
        return msgspec.json.encode(call) + b"\n"
    head = f"{METHODS[method]} HTTP/1.1\r\nHost: memforest\r\n".encode()
    if method != "query":
        return head + b"\r\n"
    body = msgspec.json.encode(params)
    return b"%bContent-Type: application/json\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


def _answer(method: str) -> bytes:
    """Our answer, byte for byte, for the bare server to send."""
    return msgspec.json.encode({"id": 1, "result": _result(method), "jsonrpc": "2.0"}) + b"\n"


def _result(method: str) -> object:
    return _an_answer() if method == "query" else {"state": "ok"}


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
    context = "\n".join(memory.text for memory in memories)
    return Answer(memories=memories, context=context, watermark=Watermark(900, 900, 0, 0.0))


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


async def _app(scope: dict[str, Any], receive: Any, send: Any) -> None:
    """The same over ASGI: the parameters read and typed, the result encoded."""
    body = b""
    while (piece := await receive())["type"] == "http.request":
        body += piece["body"]
        if not piece["more_body"]:
            break
    if body:
        msgspec.json.decode(body, type=_QueryParams)
    answer = msgspec.json.encode(_RESULTS["query" if scope["path"] == "/v1/query" else "healthz"])
    headers = [(b"content-type", b"application/json"), (b"content-length", str(len(answer)).encode())]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    await send({"type": "http.response.body", "body": answer})


_RESULTS: dict[str, object] = {}


async def _serve(folder: Path, started: Connection) -> None:
    _RESULTS.update({method: _result(method) for method in METHODS})

    async def healthz(_: NoParams) -> object:
        return _RESULTS["healthz"]

    async def query(_: _QueryParams) -> object:
        return _RESULTS["query"]

    handlers = {
        "healthz": Method(NoParams, healthz, False, 10.0),
        "query": Method(_QueryParams, query, False, 10.0),
    }
    loop = asyncio.get_running_loop()
    for method in METHODS:
        await loop.create_unix_server(partial(_Echo, _answer(method)), _path(folder, "bare", method))
    usual = uvicorn.Server(
        uvicorn.Config(
            _app,
            uds=str(_path(folder, "uvicorn", "")),
            http="h11",
            loop="asyncio",
            lifespan="off",
            log_level="error",
            access_log=False,
        )
    )
    server = SocketServer(folder / "ours.sock", handlers=handlers, report=lambda event, /, **fields: None)
    server.bind()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(usual.serve)
        tasks.start_soon(server.serve)
        while not usual.started:  # noqa: ASYNC110 - uvicorn has no event for it
            await anyio.sleep(0.01)
        started.send(None)


def _serve_in(folder: str, started: Connection) -> None:
    _allow_descriptors()
    anyio.run(_serve, Path(folder), started)


@contextmanager
def _servers() -> Generator[tuple[Path, int]]:
    """The folder of the sockets and the CPU clock of the process that serves them."""
    _allow_descriptors()
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


def _allow_descriptors() -> None:
    """As many as the system lets us have."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
