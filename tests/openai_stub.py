"""A server that speaks as much of OpenAI's API as is asked of it, over real HTTP, and misbehaves as it is told.

It answers embeddings, and chat as `chat` says. A fault is taken from `faults` for each request, first come first
served; without one the answer is right: vectors from hashes of the words.
"""

from __future__ import annotations

import asyncio
import json
import socket
import struct
from collections import deque
from collections.abc import AsyncGenerator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, TypeAlias

Item: TypeAlias = dict[str, Any]


@dataclass(frozen=True)
class Asked:
    """A request as it came in."""

    path: str
    headers: Mapping[str, str]
    body: Mapping[str, Any]

    @property
    def texts(self) -> list[str]:
        return list(self.body["input"])

    @property
    def prompt(self) -> str:
        """What the last of a chat's messages says."""
        return str(self.body["messages"][-1]["content"])

    @property
    def is_chat(self) -> bool:
        return self.path.partition("?")[0].endswith("/chat/completions")

    @property
    def messages(self) -> list[Item]:
        return list(self.body["messages"])


@dataclass(frozen=True)
class Answers:
    """Another status, with headers and a body."""

    status: int = 200
    headers: Mapping[str, str] = field(default_factory=dict[str, str])
    body: bytes = b'{"error": {"message": "refused", "code": null}}'


@dataclass(frozen=True)
class Mangles:
    """The right answer, spoilt: its items are changed in place or returned anew."""

    spoil: Callable[[list[Item]], list[Item]]


class Hangs:
    """Reads the request and says nothing."""


class Drips:
    """An answer that begins and goes on a byte at a time, for ever."""


class Resets:
    """Cuts the connection in the middle of the answer, with an RST."""


@dataclass(frozen=True)
class Floods:
    """An answer of so many bytes, which says how long it is or does not."""

    size_bytes: int
    is_announced: bool = False


Fault: TypeAlias = Answers | Mangles | Hangs | Drips | Resets | Floods


class OpenAiStub:
    """The state of a running stub; `url` is its base URL."""

    def __init__(self, dimensions: int = 8) -> None:
        self.dimensions = dimensions
        self.faults: deque[Fault] = deque()
        # What to do with every request once `faults` is empty.
        self.always: Fault | None = None
        # Decides by request, before all else.
        self.judge: Callable[[Asked], Fault | None] = lambda _: None
        # The right answer to a chat request: a completion, or the content of one.
        self.chat: Callable[[Asked], Item | str] = lambda _: '{"facts": []}'
        self.asked: list[Asked] = []
        self.in_flight = 0
        self.in_flight_most = 0
        self.port = 0
        self.connections: set[asyncio.Task[None]] = set()
        self.connections_most = 0
        self.flooded_bytes = 0
        # Cleared, it holds back every right answer.
        self.let_go = asyncio.Event()
        self.let_go.set()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def texts(self) -> list[str]:
        """Every text it was asked for, in order."""
        return [text for asked in self.asked for text in asked.texts]

    def hold(self) -> None:
        """Answer nothing until `let_go` is set."""
        self.let_go = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection with its requests."""
        task = asyncio.current_task()
        assert task is not None
        self.connections.add(task)
        self.connections_most = max(self.connections_most, len(self.connections))
        try:
            while (asked := await _read_request(reader)) is not None:
                self.asked.append(asked)
                self.in_flight += 1
                self.in_flight_most = max(self.in_flight_most, self.in_flight)
                try:
                    await self._answer(reader, writer, asked)
                finally:
                    self.in_flight -= 1
        except (OSError, asyncio.CancelledError):
            pass  # hung up, or the test is over
        finally:
            self.connections.discard(task)
            writer.transport.abort()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, asked: Asked) -> None:
        fault = self.judge(asked) or (self.faults.popleft() if self.faults else self.always)
        await self.let_go.wait()
        match fault:
            case Hangs():
                await reader.read()  # until the other side hangs up
            case Drips():
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{")
                while True:
                    await asyncio.sleep(0.02)
                    writer.write(b" ")
                    await writer.drain()
            case Resets():
                writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 100000\r\n\r\n{")
                await writer.drain()
                raw = writer.get_extra_info("socket")
                raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                raise ConnectionResetError
            case Floods(size_bytes):
                length = f"content-length: {size_bytes}" if fault.is_announced else "connection: close"
                writer.write(f"HTTP/1.1 200 OK\r\n{length}\r\n\r\n{{".encode())
                while self.flooded_bytes < size_bytes:
                    writer.write(b" " * (64 << 10))
                    await writer.drain()
                    self.flooded_bytes += 64 << 10
                raise ConnectionResetError
            case Answers(status, headers, body):
                await _send(writer, status, headers, body)
            case Mangles(spoil):
                await _send(writer, 200, {}, self._encode(spoil(self._items(asked))))
            case None if asked.is_chat:
                answer = self.chat(asked)
                completion = a_completion(answer) if isinstance(answer, str) else answer
                await _send(writer, 200, {}, json.dumps(completion).encode())
            case None:
                tokens = sum(len(text.split()) for text in asked.texts)
                await _send(writer, 200, {}, self._encode(self._items(asked), tokens))

    def vector(self, text: str) -> list[float]:
        """The vector of a text: the sum of its words' hashes, so that texts that share words are near."""
        words = [self._hash(word) for word in text.lower().split() or [""]]
        return [sum(values) for values in zip(*words, strict=True)]

    def _hash(self, word: str) -> list[float]:
        blocks = [blake2b(word.encode(), salt=bytes([n])).digest() for n in range(self.dimensions * 4 // 64 + 1)]
        return [value / 2**31 for value in struct.unpack_from(f"<{self.dimensions}i", b"".join(blocks))]

    def _items(self, asked: Asked) -> list[Item]:
        return [
            {"object": "embedding", "index": at, "embedding": self.vector(text)}
            for at, text in enumerate(asked.texts)
        ]

    def _encode(self, items: list[Item], tokens: int = 0) -> bytes:
        usage = {"prompt_tokens": tokens, "total_tokens": tokens}
        return json.dumps({"object": "list", "data": items, "model": "stub", "usage": usage}).encode()


def a_completion(content: object, finish_reason: str = "stop", **message: object) -> Item:
    """A chat completion with this content; 40 tokens of 100 were cached, 20 written."""
    return {
        "object": "chat.completion",
        "model": "stub-model",
        "choices": [
            {
                "index": 0,
                "finish_reason": finish_reason,
                "message": {"role": "assistant", "content": content, **message},
            }
        ],
        "usage": {
            "prompt_tokens": 100,
            "completion_tokens": 20,
            "prompt_tokens_details": {"cached_tokens": 40},
        },
    }


@asynccontextmanager
async def running_stub(dimensions: int = 8, kind: type[OpenAiStub] = OpenAiStub) -> AsyncGenerator[OpenAiStub]:
    """A stub on a free port of the loopback, gone on the way out."""
    stub = kind(dimensions)
    server = await asyncio.start_server(stub.serve, "127.0.0.1", 0)
    stub.port = server.sockets[0].getsockname()[1]
    try:
        yield stub
    finally:
        server.close()
        connections = list(stub.connections)
        for task in connections:
            task.cancel()
        await asyncio.gather(*connections, return_exceptions=True)


async def _read_request(reader: asyncio.StreamReader) -> Asked | None:
    try:
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
        headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        body = await reader.readexactly(int(headers.get("content-length", "0")))
    except asyncio.IncompleteReadError:
        return None
    return Asked(first.split(" ")[1], headers, json.loads(body or b"{}"))


async def _send(writer: asyncio.StreamWriter, status: int, headers: Mapping[str, str], body: bytes) -> None:
    head = {"content-type": "application/json", "content-length": str(len(body)), **headers}
    lines = "".join(f"{name}: {value}\r\n" for name, value in head.items())
    writer.write(f"HTTP/1.1 {status} Stub\r\n{lines}\r\n".encode() + body)
    await writer.drain()
