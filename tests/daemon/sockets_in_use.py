"""A socket server with real clients around it, for tests of what is spoken on it."""

from __future__ import annotations

import asyncio
import json
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio

from daemon.serving.calls import SocketLimits
from daemon.serving.protocol import Handlers, Method
from daemon.serving.socket_server import SocketServer
from daemon.untrusted import Params


class Nothing(Params, frozen=True):
    pass


class Sized(Params, frozen=True):
    bytes: int


class Reports:
    """What the server told, with a wait for the first of a kind."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, dict[str, object]]] = []
        self._told: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    def __call__(self, event: str, /, **fields: object) -> None:
        self.lines.append((event, fields))
        self._told[event].set()

    async def wait_for(self, event: str) -> dict[str, object]:
        await self._told[event].wait()
        return next(fields for name, fields in self.lines if name == event)


class Gate:
    """A method that says it was entered and stays until it is let go or cancelled."""

    def __init__(self) -> None:
        self.entered: asyncio.Queue[int] = asyncio.Queue()
        self.cancelled: asyncio.Queue[int] = asyncio.Queue()
        self.passed: asyncio.Queue[int] = asyncio.Queue()
        self.open = asyncio.Event()
        self.calls = 0

    async def __call__(self, params: Any) -> object:
        self.calls += 1
        self.entered.put_nowait(self.calls)
        try:
            await self.open.wait()
        except asyncio.CancelledError:
            self.cancelled.put_nowait(self.calls)
            raise
        self.passed.put_nowait(self.calls)
        return "through"


class Client:
    """A client of the socket, byte by byte or request by request."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, raw: bytes) -> None:
        self.writer.write(raw)

    def ask(self, method: str, request_id: object = 1, **params: object) -> None:
        message = {"jsonrpc": "2.0", "id": request_id, "method": method, "params": params}
        self.send(json.dumps(message).encode() + b"\n")

    def tell(self, method: str) -> None:
        self.send(json.dumps({"jsonrpc": "2.0", "method": method}).encode() + b"\n")

    async def answer(self) -> Any:
        return json.loads(await self.reader.readline())

    async def call(self, method: str, **params: object) -> Any:
        self.ask(method, **params)
        return await self.answer()

    async def at_end(self) -> bool:
        try:
            return await self.reader.read() == b""
        except ConnectionError:
            return True  # What the server had not read when it closed.

    async def close(self) -> None:
        self.writer.close()
        try:
            await self.writer.wait_closed()
        except OSError:
            return  # The server closed first.


@dataclass(frozen=True, slots=True)
class Response:
    """An answer of HTTP; the names of its headers in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """The code of an error."""
        found: str = self.json["error"]["code"]
        return found


class HttpClient(Client):
    """A client that speaks HTTP."""

    def request(self, verb: str, target: str, body: object = None, **headers: str) -> None:
        """Send a request; a body that is no bytes goes as JSON. Underscores in names of headers become dashes."""
        raw = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        shown = {"host": "memforest", **headers}
        if body is not None:
            shown = {"content-length": str(len(raw)), "content-type": "application/json", **shown}
        lines = [
            f"{verb} {target} HTTP/1.1",
            *(f"{name.replace('_', '-')}: {text}" for name, text in shown.items()),
        ]
        self.send("\r\n".join([*lines, "", ""]).encode() + raw)

    async def response(self, *, head_only: bool = False) -> Response:
        """The next answer, whole."""
        status, headers = await self.head()
        if head_only:
            return Response(status, headers, b"")
        if headers.get("transfer-encoding") == "chunked":
            return Response(status, headers, b"".join([part async for part in self.parts()]))
        return Response(status, headers, await self.reader.readexactly(int(headers.get("content-length", "0"))))

    async def head(self) -> tuple[int, dict[str, str]]:
        """Status and headers of the next answer."""
        first, *lines = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
        pairs = [line.partition(":") for line in lines]
        return int(first.split()[1]), {name.lower(): text.strip() for name, _, text in pairs}

    async def parts(self) -> AsyncGenerator[bytes]:
        """The chunks of a body as they come."""
        while size := int(await self.reader.readuntil(b"\r\n"), 16):
            yield await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readexactly(2)

    async def fetch(self, verb: str, target: str, body: object = None, **headers: str) -> Response:
        self.request(verb, target, body, **headers)
        return await self.response(head_only=verb == "HEAD")


@asynccontextmanager
async def http_connected(path: Path) -> AsyncGenerator[HttpClient]:
    client = HttpClient(*await asyncio.open_unix_connection(path, limit=1 << 26))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def connected(path: Path) -> AsyncGenerator[Client]:
    client = Client(*await asyncio.open_unix_connection(path, limit=1 << 26))
    try:
        yield client
    finally:
        await client.close()


@asynccontextmanager
async def serving(
    path: Path, handlers: Handlers, limits: SocketLimits | None = None, reports: Reports | None = None
) -> AsyncGenerator[SocketServer]:
    server = SocketServer(path, handlers=handlers, report=reports or Reports(), limits=limits)
    server.bind()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(server.serve)
        try:
            with anyio.fail_after(20):
                yield server
        finally:
            with anyio.CancelScope(shield=True):
                await server.stop(grace_s=0)


async def pong(params: Any) -> object:
    return "pong"


async def many_bytes(params: Sized) -> object:
    return "x" * params.bytes


PING = Method(Nothing, pong, write=False, deadline_s=5.0)
SIZED = Method(Sized, many_bytes, write=False, deadline_s=5.0)
PINGS: Handlers = {"ping": PING, "sized": SIZED}


def query(gate: Gate, deadline_s: float = 20.0) -> Method:
    return Method(Nothing, gate, write=False, deadline_s=deadline_s)


def write(gate: Gate) -> Method:
    return Method(Nothing, gate, write=True, deadline_s=20.0)
