"""One client of the socket, and the running of what it asks: deadlines, limits, and what is cut short.

`Calls` knows nothing of sockets, so that HTTP runs the same methods under the same limits. The listener
and its life are `daemon/socket_server.py`.
"""

from __future__ import annotations

import math
import socket
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from daemon import protocol
from daemon.logs import Report
from daemon.protocol import (
    BatchAnswer,
    Handlers,
    LineBuffer,
    LineTooLong,
    LineTooSlow,
    LineUnreadable,
    MethodUnknown,
    Refused,
    Request,
)
from events.errors import MemForestError

RECEIVE_BYTES = 1 << 16  # What one read takes; a line in the making holds no more above its limit.


class TooBusy(MemForestError):
    """The daemon has as many requests in work as it takes; send the request again in a moment."""

    code = "busy"


class DeadlinePassed(MemForestError):
    """The request was stopped because its time was up."""

    code = "unavailable"


class ClientGone(MemForestError):
    """The client closed the connection, so nobody waits for this answer."""

    code = "unavailable"


class AnswerTooLarge(MemForestError):
    """The answer is larger than the socket sends; ask for less at a time."""

    code = "invalid"


@dataclass(frozen=True, slots=True)
class SocketLimits:
    """What one client, and all of them together, may take."""

    line_bytes_max: int = 1 << 20  # The longest turn the bus takes by default fits.
    answer_bytes_max: int = 16 << 20
    read_timeout_s: float = 10.0  # From the first byte of a line to its end; silence between lines is free.
    write_timeout_s: float = 5.0  # For one answer; then the client is not reading and is let go.
    in_flight_per_connection_max: int = 32  # Above it the connection is not read.
    in_flight_max: int = 256  # Above it the answer is `busy`, at once.
    accept_pause_s: float = 0.1  # Without descriptors the listener stays readable: do not spin on it.


class Wire(Enum):
    """What a client speaks."""

    JSON_RPC = "json-rpc"
    UNKNOWN = "unknown"


def sniff(first_byte: int) -> Wire:
    """What is spoken, told from the first byte that is not white space (design 4.2)."""
    return Wire.JSON_RPC if first_byte in b"{[" else Wire.UNKNOWN


class Asker:
    """Whoever waits for answers: its running queries end when it leaves, its writes do not."""

    def __init__(self) -> None:
        self.gone = False
        self.queries: set[anyio.CancelScope] = set()

    def leave(self) -> None:
        """Cancel what only this asker wanted."""
        self.gone = True
        for query in self.queries:
            query.cancel()


class Calls:
    """Runs requests, each under its method's deadline and all of them under one limit."""

    def __init__(self, handlers: Handlers, limits: SocketLimits, report: Report) -> None:
        self.limits = limits
        self.report = report
        self.in_flight = 0
        self._handlers = handlers

    async def answer(self, asked: Request | Refused, asker: Asker) -> bytes | None:
        """The answer to one request, None to a notification. Never raises but when cancelled."""
        if isinstance(asked, Refused):
            return protocol.encode_error(asked.id, asked.error)
        try:
            answer = protocol.encode_result(asked.id, await self.call(asked, asker))
            if len(answer) > self.limits.answer_bytes_max:
                raise AnswerTooLarge
        except Exception as error:
            # A task's top. An error's own text may quote what someone said: only its type and place are told.
            code = error.code if isinstance(error, MemForestError) else "internal"
            if code == "internal" or isinstance(error, DeadlinePassed):
                self.report(
                    "socket.request_failed",
                    method=asked.method,
                    code=code,
                    error=type(error).__name__,
                    place=place_of(error),
                )
            answer = protocol.encode_error(asked.id, error)
        return None if asked.is_notification else answer

    async def call(self, request: Request, asker: Asker) -> object:
        """What the method returns, under its deadline and the limit of all requests together.

        Raises what the method raises, MethodUnknown, ParamsRefused, TooBusy, DeadlinePassed, ClientGone.
        """
        method = self._handlers.get(request.method)
        if method is None:
            raise MethodUnknown
        params = protocol.read_params(request, method)
        if self.in_flight >= self.limits.in_flight_max:
            raise TooBusy
        if asker.gone and not method.write:
            raise ClientGone
        scope = anyio.move_on_after(method.deadline_s)
        if not method.write:
            asker.queries.add(scope)
        self.in_flight += 1
        try:
            with scope:
                return await method.call(params)
        finally:
            self.in_flight -= 1
            asker.queries.discard(scope)
        if anyio.current_time() < scope.deadline:
            raise ClientGone
        advice = "it may have been done, look before you send it again" if method.write else "ask for less"
        raise DeadlinePassed(f"The request was stopped after {method.deadline_s:g} s; {advice}.")


class Connection:
    """One client: one reader, its requests in flight, and one answer written at a time."""

    def __init__(self, calls: Calls, client: socket.socket) -> None:
        self.asker = Asker()
        self._calls = calls
        self._limits = calls.limits
        self._client = client
        self._stopping = False
        self._waiting = False
        self._reading = anyio.CancelScope()
        self._slots = anyio.Semaphore(calls.limits.in_flight_per_connection_max, fast_acquire=True)
        self._writing = anyio.Lock(fast_acquire=True)

    async def run(self) -> None:
        """Read until the client has asked all, answer all of it, close."""
        async with anyio.create_task_group() as requests:
            with self._reading:
                await self._read(requests)

    def stop_reading(self) -> None:
        """Ask for nothing more: what is in flight is answered, then the connection ends."""
        self._stopping = True
        if self._waiting:
            # Only then: a batch of which some requests have started is started to its end, and answered.
            self._reading.cancel()

    async def _read(self, requests: TaskGroup) -> None:
        lines = LineBuffer(self._limits.line_bytes_max)
        wire: Wire | None = None
        deadline = math.inf
        try:
            while piece := await self._receive(deadline):
                lines.feed(piece)
                if wire is None and lines.first_byte is not None:
                    wire = sniff(lines.first_byte)
                if wire is Wire.UNKNOWN:
                    await self._send(protocol.encode_error(None, LineUnreadable()))
                    return
                if await self._start_lines(lines, requests) or not lines.started:
                    deadline = math.inf
                if lines.started and deadline == math.inf:
                    deadline = anyio.current_time() + self._limits.read_timeout_s
        except LineTooSlow as error:
            await self._send(protocol.encode_error(None, error))
            return
        if not self._stopping:
            await self._start_lines(lines, requests, at_end=True)

    async def _receive(self, deadline: float) -> bytes:
        """What came next, or nothing when nothing more will be read. Raises LineTooSlow at `deadline`."""
        while not self._stopping:
            self._waiting = True
            if deadline == math.inf:  # The common case, and a scope costs a tenth of a round trip.
                await anyio.wait_readable(self._client)
            else:
                with anyio.CancelScope(deadline=deadline) as line:
                    await anyio.wait_readable(self._client)
                if line.cancelled_caught:
                    raise LineTooSlow
            self._waiting = False
            try:
                return self._client.recv(RECEIVE_BYTES)
            except BlockingIOError:
                continue
            except OSError:
                self.asker.leave()
                break
        return b""

    async def _start_lines(self, lines: LineBuffer, requests: TaskGroup, *, at_end: bool = False) -> bool:
        """Start what every complete line asks for; whether there was any."""
        started = False
        while True:
            try:
                line = lines.next_line(at_end=at_end)
            except LineTooLong as error:
                await self._start(Refused(None, error), requests)
            else:
                if line is None:
                    return started
                await self._start(protocol.decode_line(line), requests)
            started = True

    async def _start(
        self, incoming: Request | Refused | tuple[Request | Refused, ...], requests: TaskGroup
    ) -> None:
        """Start the requests of a line, each when there is a slot for it; until then nothing more is read."""
        if not isinstance(incoming, tuple):
            await self._slots.acquire()
            requests.start_soon(self._answer, incoming, None)
            return
        batch = BatchAnswer(len(incoming))
        for member in incoming:
            await self._slots.acquire()
            requests.start_soon(self._answer, member, batch)

    async def _answer(self, asked: Request | Refused, batch: BatchAnswer | None) -> None:
        try:
            answer = await self._calls.answer(asked, self.asker)
            if batch is not None:
                answer = batch.add(answer)
            if answer is not None:
                await self._send(answer)
        finally:
            self._slots.release()

    async def _send(self, answer: bytes) -> None:
        """Write one line, or let the client go when it does not read it in time."""
        async with self._writing:
            rest = self._write(memoryview(answer + b"\n"))
            if not rest:
                return
            with anyio.move_on_after(self._limits.write_timeout_s) as writing:
                while rest:
                    await anyio.wait_writable(self._client)
                    rest = self._write(rest)
            if writing.cancelled_caught:
                self._calls.report("socket.client_not_reading", answer_bytes=len(answer))
                self.asker.leave()
                with suppress(OSError):
                    self._client.shutdown(socket.SHUT_RDWR)  # A torn line must not be followed by another.

    def _write(self, rest: memoryview) -> memoryview:
        """Write what fits now and return the rest, which is nothing for a client that has gone."""
        try:
            return rest[:0] if self.asker.gone else rest[self._client.send(rest) :]
        except BlockingIOError:
            return rest
        except OSError:
            self.asker.leave()
            return rest[:0]


def place_of(error: BaseException) -> str:
    """The file and line that raised, for whoever reads the log."""
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{Path(trace.tb_frame.f_code.co_filename).name}:{trace.tb_lineno}" if trace else ""
