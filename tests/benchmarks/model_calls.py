"""What a call of a chat model costs on our side: CPU against the openai client's own call, and wall with many.

Both use the client's fastest transport and ask the same server, a bare asyncio one in a process of its own.
"""

from __future__ import annotations

import asyncio
import json
import math
import multiprocessing
from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Mapping
from contextlib import asynccontextmanager, contextmanager
from functools import partial
from multiprocessing.connection import Connection
from statistics import median
from typing import Any, Final

import anyio

from daemon.chat.answers import read_chat
from daemon.models.endpoint import Endpoint, EndpointKeys, Patience
from tests.benchmarks.measuring import Figure, Row, Watch, ms, percentile, sized, us
from tests.benchmarks.samples import Speech

CALLS: Final = 600
AT_ONCE: Final = (1, 64)
LATENCY_S: Final = 0.2
REPEATS: Final = 5
START_WITHIN_S: Final = 30.0
PATIENCE: Final = Patience(60.0, 120.0)
KEYS: Final = EndpointKeys("models.chat_url", "models.chat_model")
CPU_GOAL: Final = 1.3
WALL_GOAL: Final = 1.2

Call = Callable[[], Awaitable[object]]


def measure(share: float) -> list[Row]:
    """CPU of a call, one at a time and 64 at once; then 600 calls, 64 at once, of 0.2 s each."""
    with _server() as port:
        return anyio.run(_measure, port, sized(CALLS, share, AT_ONCE[-1]))


async def _measure(port: int, calls: int) -> list[Row]:
    rows = list[Row]()
    async with _callers(f"http://127.0.0.1:{port}/at-once/v1") as callers:
        rows += [await _measure_cpu(callers, calls, at_once) for at_once in AT_ONCE]
    async with _callers(f"http://127.0.0.1:{port}/slow/v1") as callers:
        rows.append(await _measure_wall(callers, calls, AT_ONCE[-1]))
    return rows


async def _measure_cpu(callers: Mapping[str, Call], calls: int, at_once: int) -> Row:
    """Interleaved repeats; CPU of this process, in which nothing else is at work."""
    cpu: dict[str, list[float]] = {name: [] for name in callers}
    for _ in range(REPEATS):
        for name, call in callers.items():
            watch = Watch()
            await _drive(call, calls, at_once)
            cpu[name].append(watch.read().cpu_s / calls)
    figures = tuple(Figure(f"{name}_cpu_us", us(median(seconds))) for name, seconds in cpu.items())
    of = f"a chat call, {at_once} at once, CPU"
    ratio = median(cpu["ours"]) / median(cpu["bare"])
    return Row(of, ratio, "chat.completions.create of the openai client, aiohttp transport", figures, CPU_GOAL)


async def _measure_wall(callers: Mapping[str, Call], calls: int, at_once: int) -> Row:
    """Against what the waves of calls take at least: somebody makes the last one, however full it is."""
    walls: dict[str, list[float]] = {name: [] for name in callers}
    took = list[float]()
    for _ in range(REPEATS):
        for name, call in callers.items():
            watch = Watch()
            seconds = await _drive(call, calls, at_once)
            walls[name].append(watch.read().wall_s)
            took += seconds if name == "ours" else []
    bound_s = math.ceil(calls / at_once) * LATENCY_S
    figures = (
        Figure("bound_ms", ms(bound_s)),
        *(Figure(f"{name}_ms", ms(median(seconds))) for name, seconds in walls.items()),
        Figure("call_ms_p50", ms(percentile(took, 0.5))),
        Figure("call_ms_p99", ms(percentile(took, 0.99))),
    )
    of = f"{calls} calls of {LATENCY_S:g} s, {at_once} at once, wall"
    return Row(of, median(walls["ours"]) / bound_s, "waves x seconds of a call", figures, WALL_GOAL)


async def _drive(call: Call, calls: int, at_once: int) -> list[float]:
    """So many calls by so many tasks; the seconds of each."""
    left = calls
    took = list[float]()

    async def work() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            watch = Watch()
            await call()
            took.append(watch.read().wall_s)

    async with anyio.create_task_group() as tasks:
        for _ in range(at_once):
            tasks.start_soon(work)
    return took


@asynccontextmanager
async def _callers(url: str) -> AsyncGenerator[dict[str, Call]]:
    """Ours and the bare one, both warm."""
    from openai import AsyncOpenAI, DefaultAioHttpClient

    body = _body()
    endpoint = Endpoint(url, "none", KEYS, concurrency=AT_ONCE[-1])
    bare = AsyncOpenAI(
        api_key="none", base_url=url, max_retries=0, http_client=DefaultAioHttpClient(follow_redirects=False)
    )
    read = partial(read_chat, prompt_chars=3_000)

    async def ask_ours() -> object:
        return (await endpoint.post("/chat/completions", body, read, patience=PATIENCE, kind="extract")).text

    async def ask_bare() -> object:
        return (await bare.chat.completions.create(**body)).choices[0].message.content

    callers: dict[str, Call] = {"ours": ask_ours, "bare": ask_bare}
    try:
        for call in callers.values():
            await _drive(call, 2 * AT_ONCE[-1], AT_ONCE[-1])
        yield callers
    finally:
        await endpoint.close()
        await bare.close()


def _body() -> dict[str, Any]:
    """A prompt as long as that of an extraction."""
    speech = Speech(1)
    return {
        "model": "some-model",
        "messages": [
            {"role": "system", "content": " ".join(speech.turn() for _ in range(20))},
            {"role": "user", "content": " ".join(speech.turn() for _ in range(20))},
        ],
        "temperature": 0,
        "max_tokens": 800,
        "response_format": {"type": "json_object"},
    }


def _answer() -> bytes:
    facts = [{"text": text, "topics": ["one"], "turns": [1]} for text in (Speech(2).turn() for _ in range(5))]
    message = {"role": "assistant", "content": json.dumps({"facts": facts}), "refusal": None}
    answer = {
        "id": "chatcmpl-1",
        "object": "chat.completion",
        "created": 1_719_835_200,
        "model": "some-model",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {"prompt_tokens": 700, "completion_tokens": 200, "total_tokens": 900},
    }
    body = json.dumps(answer).encode()
    return b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n%b" % (len(body), body)


class _Server(asyncio.Protocol):
    """Answers every request with the same bytes; under /slow after `LATENCY_S`."""

    def __init__(self, answer: bytes) -> None:
        self._answer = answer
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        assert self._transport is not None
        self._buffer += data
        while (end := self._buffer.find(b"\r\n\r\n")) >= 0:
            head = self._buffer[:end].lower()
            length = int(head.partition(b"content-length:")[2].partition(b"\r\n")[0])
            if len(self._buffer) < end + 4 + length:
                return
            self._buffer = self._buffer[end + 4 + length :]
            if head.startswith(b"post /slow"):
                asyncio.get_running_loop().call_later(LATENCY_S, self._transport.write, self._answer)
            else:
                self._transport.write(self._answer)


async def _serve(started: Connection) -> None:
    server = await asyncio.get_running_loop().create_server(partial(_Server, _answer()), "127.0.0.1", 0)
    started.send(server.sockets[0].getsockname()[1])
    await server.serve_forever()


def _serve_in(started: Connection) -> None:
    asyncio.run(_serve(started))


@contextmanager
def _server() -> Generator[int]:
    """The port of a server in a process of its own."""
    processes = multiprocessing.get_context("spawn")
    ready, started = processes.Pipe(duplex=False)
    process = processes.Process(target=_serve_in, args=(started,), daemon=True)
    process.start()
    try:
        if not ready.poll(START_WITHIN_S):
            raise TimeoutError(f"the server did not start within {START_WITHIN_S:g} s")
        yield ready.recv()
    finally:
        process.terminate()
        process.join()
