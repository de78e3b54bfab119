"""The transport: HTTP as servers and proxies speak it, by either of the libraries that may be installed."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from importlib.util import find_spec

import pytest

from daemon.models.client import Client
from daemon.models.failures import AnswerRefused, StatusRefused

LOOPBACK = "127.0.0.1"
CONTENT = b'{"facts": []}'
PACKED = gzip.compress(CONTENT)
LIBRARIES = [
    pytest.param(True, id="aiohttp", marks=pytest.mark.skipif(find_spec("aiohttp") is None, reason="not there")),
    pytest.param(False, id="httpx"),
]


class Server:
    """Gives every request the same bytes for an answer, and closes the connection where it is told to: after each
    answer, or in place of the one after so many."""

    def __init__(self, answer: bytes, *, closes: bool = False, hangs_up_after: int = 0) -> None:
        self.answer, self.closes, self.hangs_up_after = answer, closes, hangs_up_after
        self.port = 0
        self.first_lines: list[str] = []
        self.connections: set[asyncio.Task[None]] = set()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        try:
            await self._serve(reader, writer)
        finally:
            writer.close()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answered = 0
        with suppress(asyncio.IncompleteReadError, ConnectionError):
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
                await reader.readexactly(int(head.partition("content-length:")[2].partition("\r\n")[0]))
                if answered and answered == self.hangs_up_after:
                    return
                answered += 1
                self.first_lines.append(head.partition("\r\n")[0])
                writer.write(self.answer)
                await writer.drain()
                if self.closes:
                    return


@asynccontextmanager
async def running(server: Server, host: str = LOOPBACK) -> AsyncGenerator[Server]:
    listening = await asyncio.start_server(server.serve, host, 0)
    server.port = listening.sockets[0].getsockname()[1]
    try:
        yield server
    finally:
        listening.close()
        for task in server.connections:
            task.cancel()
        await asyncio.gather(*server.connections, return_exceptions=True)


async def post(url: str, with_aiohttp: bool, times: int = 1) -> list[bytes]:
    """What so many calls one after the other are answered."""
    client = Client(url, "key", 4, with_aiohttp=with_aiohttp)
    try:
        return [await client.post("/embeddings", b"{}", 5.0, 1 << 20) for _ in range(times)]
    finally:
        await client.close()


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
@pytest.mark.parametrize(
    ("answer", "closes"),
    [
        (b"HTTP/1.0 200 OK\r\n\r\n" + CONTENT, True),
        (b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n7\r\n%b\r\n6\r\n%b\r\n0\r\n\r\n", False),
        (b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n%b", False),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + CONTENT, False),
        # Closed without saying so: the next call goes over a new one.
        (b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + CONTENT, True),
    ],
    ids=["old", "chunked", "packed though not asked for", "continue", "closed between calls"],
)
async def test_an_answer_is_read_in_whatever_form_it_comes(
    answer: bytes, closes: bool, with_aiohttp: bool
) -> None:
    if b"chunked" in answer:
        answer %= (CONTENT[:7], CONTENT[7:])
    elif b"gzip" in answer:
        answer %= (len(PACKED), PACKED)
    async with running(Server(answer, closes=closes)) as server:
        answers = await post(f"http://{LOOPBACK}:{server.port}/v1", with_aiohttp, 3)

    assert answers == [CONTENT] * 3
    assert len(server.first_lines) == 3


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
async def test_a_server_that_hangs_up_between_two_calls_costs_no_call(with_aiohttp: bool) -> None:
    found = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + CONTENT
    async with running(Server(found, hangs_up_after=3)) as server:
        answers = await post(f"http://{LOOPBACK}:{server.port}/v1", with_aiohttp, 20)

    assert answers == [CONTENT] * 20
    assert len(server.first_lines) == 20


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
async def test_a_server_that_hangs_up_at_once_is_not_asked_again_by_the_transport(with_aiohttp: bool) -> None:
    async with running(Server(b"", closes=True)) as server:
        with pytest.raises(Exception, match="isconnected"):
            await post(f"http://{LOOPBACK}:{server.port}/v1", with_aiohttp)

    assert len(server.first_lines) == 1


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
async def test_what_unfolds_without_end_is_cut_off(with_aiohttp: bool) -> None:
    bomb = gzip.compress(bytes(16 << 20), 1)
    head = b"HTTP/1.1 200 OK\r\ncontent-encoding: gzip\r\ncontent-length: %d\r\n\r\n"
    async with running(Server(head % len(bomb) + bomb)) as server:
        with pytest.raises(AnswerRefused, match="longer than 1 MiB"):
            await post(f"http://{LOOPBACK}:{server.port}/v1", with_aiohttp)


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
@pytest.mark.parametrize("host", ["127.0.0.1", "::1"])
@pytest.mark.parametrize(
    ("rest", "path"),
    [
        ("", "/embeddings"),
        ("/v1/", "/v1/embeddings"),
        ("/v1?api-version=1", "/v1/embeddings?api-version=1"),
        ("/v1#models", "/v1/embeddings"),
    ],
)
async def test_an_address_may_have_any_form(host: str, rest: str, path: str, with_aiohttp: bool) -> None:
    async with running(Server(b"HTTP/1.1 204 None\r\n\r\n"), host) as server:
        named = f"[{host}]" if ":" in host else host
        await post(f"http://{named}:{server.port}{rest}", with_aiohttp)

    assert server.first_lines == [f"post {path} http/1.1"]


@pytest.mark.parametrize("with_aiohttp", LIBRARIES)
async def test_the_proxy_of_the_environment_is_used_and_its_exceptions_hold(
    monkeypatch: pytest.MonkeyPatch, with_aiohttp: bool
) -> None:
    found = b"HTTP/1.1 200 OK\r\ncontent-length: 13\r\n\r\n" + CONTENT
    refused = b"HTTP/1.1 502 No\r\ncontent-length: 0\r\n\r\n"
    async with running(Server(found)) as server, running(Server(refused)) as proxy:
        monkeypatch.setenv("http_proxy", f"http://{LOOPBACK}:{proxy.port}")
        monkeypatch.setenv("no_proxy", "localhost,127.0.0.1")
        direct = await post(f"http://{LOOPBACK}:{server.port}/v1", with_aiohttp)
        with pytest.raises(StatusRefused):
            await post("http://models.invalid/v1", with_aiohttp)

    assert direct == [CONTENT]
    assert proxy.first_lines == ["post http://models.invalid/v1/embeddings http/1.1"]
