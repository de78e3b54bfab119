"""As much of HTTP/1.1 as clients of models use, in callbacks: a task a request would cost more than the answer."""

from __future__ import annotations

import asyncio
import re
import socket
import struct
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

_LENGTH = re.compile(rb"\r\ncontent-length: *(\d+)", re.IGNORECASE)
_REASONS: Final[Mapping[int, str]] = {200: "OK", 400: "Bad Request", 404: "Not Found", 429: "Too Many Requests"}
DRIP_S = 0.05
ENDLESS_PIECE = b"10000\r\n" + b" " * 0x10000 + b"\r\n"


@dataclass(frozen=True, slots=True)
class Request:
    """One request, and the connection to answer it on."""

    method: str
    path: str
    body: bytes
    connection: Connection


class Connection(asyncio.Protocol):
    """One client. Requests are answered in the order they come; the next one is read when the last is answered."""

    def __init__(self, take: Callable[[Request], None], keep: set[Connection]) -> None:
        self._take = take
        self._keep = keep
        self._received = bytearray()
        self._is_busy = False
        self._transport: asyncio.Transport | None = None
        self._paused = False
        self._resume: Callable[[], None] | None = None
        # What to do when the client leaves before it is answered.
        self.on_lost: Callable[[], None] | None = None

    @property
    def is_open(self) -> bool:
        """Whether somebody still listens."""
        return self._transport is not None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client came."""
        assert isinstance(transport, asyncio.Transport)
        self._transport = transport
        self._keep.add(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """The client left, or was cut off."""
        self._transport = None
        self._keep.discard(self)
        if self.on_lost is not None:
            self.on_lost()

    def data_received(self, data: bytes) -> None:
        """Some bytes of requests."""
        self._received += data
        self._take_next()

    def pause_writing(self) -> None:
        """The client reads slower than it is written to."""
        self._paused = True

    def resume_writing(self) -> None:
        """The client has read on."""
        self._paused = False
        if self._resume is not None:
            self._resume()

    def _take_next(self) -> None:
        if self._is_busy or (ends := self._received.find(b"\r\n\r\n")) < 0:
            return
        head = bytes(self._received[:ends])
        length = _LENGTH.search(head)
        size = ends + 4 + (int(length[1]) if length else 0)
        if len(self._received) < size:
            return
        body = bytes(self._received[ends + 4 : size])
        del self._received[:size]
        method, path, _ = head.split(b"\r\n", 1)[0].decode("latin-1").split(" ", 2)
        self._is_busy = True
        self._take(Request(method, path.split("?", 1)[0], body, self))

    def answer(self, status: int, body: bytes, headers: str = "") -> None:
        """A whole answer, JSON unless `headers` say otherwise; these are lines that end with CRLF."""
        if self._transport is None:
            return
        kind = "" if "content-type" in headers else "content-type: application/json\r\n"
        first = f"HTTP/1.1 {status} {_REASONS.get(status, 'Stub')}\r\n"
        head = f"{first}{kind}content-length: {len(body)}\r\n{headers}\r\n"
        self._transport.write(head.encode("latin-1") + body)
        self._is_busy = False
        self.on_lost = None
        self._take_next()

    def drip(self) -> None:
        """Begin an answer and go on a byte at a time until the client leaves."""
        self._begin("content-length: 1000000\r\n")
        self._drip_on()

    def _drip_on(self) -> None:
        if self._transport is not None:
            self._transport.write(b" ")
            asyncio.get_running_loop().call_later(DRIP_S, self._drip_on)

    def pour(self) -> None:
        """Begin an answer without a length and go on as fast as the client reads."""
        self._begin("transfer-encoding: chunked\r\n")
        self._resume = self._pour_on
        self._pour_on()

    def _pour_on(self) -> None:
        if self._transport is not None and not self._paused:
            self._transport.write(ENDLESS_PIECE)
            asyncio.get_running_loop().call_soon(self._pour_on)

    def reset(self) -> None:
        """Begin an answer and cut the connection with an RST."""
        self._begin("content-length: 1000000\r\n")
        if self._transport is not None:
            raw = self._transport.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            self._transport.abort()

    def close(self) -> None:
        """Hang up without an answer."""
        if self._transport is not None:
            self._transport.close()

    def _begin(self, length: str) -> None:
        if self._transport is not None:
            self._transport.write(f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\n{length}\r\n".encode())
