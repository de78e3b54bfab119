"""One client of a socket: its bytes in and out, and how long it may take over them.

What the bytes mean is a `Wire`'s to know: lines of JSON-RPC (`rpc_wire.py`) or HTTP (`http_wire.py`),
told apart by the first byte. Everything here happens in callbacks of the event loop: a task for each client
and a lock for each answer cost four times what a small answer does.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Protocol

from daemon.logs import place_of
from daemon.serving import protocol
from daemon.serving.calls import Asker, Calls, SocketLimits
from daemon.serving.protocol import LineUnreadable

AT_ONCE_MAX = 32  # Requests of one client that are begun in a row, before others have their turn.
RECEIVE_BYTES = 1 << 16  # What one read takes; a request in the making holds no more above its limit.
BLANK = b" \t\r\n"


class Wire(Protocol):
    """What a client speaks: takes its bytes, starts what they ask for, and gives the answers back."""

    @property
    def wants_more(self) -> bool:
        """Whether more bytes may be read now; not while enough is under way."""
        ...

    @property
    def is_busy(self) -> bool:
        """Whether something was asked that is not answered."""
        ...

    @property
    def started(self) -> int | None:
        """Which request has begun to arrive, by number, while its end is not here; None between requests."""

    def feed(self, piece: bytes) -> None:
        """Take what arrived."""

    def end(self) -> None:
        """The client has asked all it will ask."""

    def resume(self) -> None:
        """All that was sent is written: go on."""

    def stop(self) -> None:
        """Begin nothing more; what has begun is answered."""

    def refuse_slowness(self) -> None:
        """Say that the rest of the request did not come in time; the connection then ends."""


class Connection:
    """One client from its first byte to its last."""

    def __init__(
        self,
        client: socket.socket,
        calls: Calls,
        choose: Callable[[int, Connection], Wire | None],
        on_end: Callable[[Connection], None],
    ) -> None:
        self.asker = Asker()
        self.descriptor = client.fileno()
        self._calls = calls
        self._limits: SocketLimits = calls.limits
        self._client = client
        self._choose = choose
        self._on_end = on_end
        self._loop = asyncio.get_running_loop()
        self._wire: Wire | None = None
        self._asked_all = False
        self._ended = False
        self._is_reading = False
        self._unwritten: deque[memoryview] = deque()
        self._writing_until: asyncio.TimerHandle | None = None
        self._reading_until: asyncio.TimerHandle | None = None
        self._timed: int | None = None

    def begin(self) -> None:
        """Read what comes."""
        self._settle()

    def stop(self) -> None:
        """Ask for nothing more: what is in flight is answered, then the connection ends."""
        self._asked_all = True
        if self._wire is not None:
            self._wire.stop()

    def finish(self) -> None:
        """Read no more; the connection ends once all is answered."""
        self._asked_all = True

    def leave(self) -> None:
        """The client is gone for good: what only it wanted is cancelled, and nothing is written any more."""
        self.asker.leave()
        self._drop_unwritten()
        if self._wire is not None:
            self._wire.resume()

    def abort(self) -> None:
        """Let the client go at once, whatever is under way."""
        self.asker.leave()
        self._drop_unwritten()
        self._asked_all = True
        self._end()

    @property
    def is_writing(self) -> bool:
        """Whether something of an answer has not been taken by the client yet."""
        return bool(self._unwritten)

    def send(self, answer: bytes) -> None:
        """Write it, now or behind what the client has not read yet."""
        if self._unwritten:
            self._unwritten.append(memoryview(answer))
        elif rest := self._write(memoryview(answer)):
            self._unwritten.append(rest)
            self._loop.add_writer(self.descriptor, self.guard, self._write_on)
            self._time_writing(len(answer))

    def later(self, step: Callable[[], None]) -> None:
        """Do it after the others had their turn."""
        self._loop.call_soon(self.guard, step)

    def guard(self, *steps: Callable[[], None]) -> None:
        """A callback's top: what goes wrong with one client is not the others' end."""
        if self._ended:
            return
        try:
            for step in steps:
                step()
            self._settle()
        except Exception as error:
            self._calls.report("socket.connection_failed", error=type(error).__name__, place=place_of(error))
            self.abort()

    def _settle(self) -> None:
        """After anything happened: read or not, mind the time, and end when all is done."""
        wire = self._wire
        if self._asked_all and not self._unwritten and (wire is None or not wire.is_busy):
            self._end()
            return
        wants = not self._asked_all and not self._unwritten and (wire is None or wire.wants_more)
        if wants != self._is_reading:
            self._is_reading = wants
            if wants:
                self._loop.add_reader(self.descriptor, self.guard, self._read)
            else:
                self._loop.remove_reader(self.descriptor)
        self._time_reading(wire.started if wants and wire is not None else None)

    def _read(self) -> None:
        try:
            piece = self._client.recv(RECEIVE_BYTES)
        except BlockingIOError:
            return
        except OSError:
            self.asker.leave()
            piece = b""
        if piece:
            self._feed(piece)
        else:
            self._asked_all = True
            if self._wire is not None:
                self._wire.end()

    def _feed(self, piece: bytes) -> None:
        if self._wire is None:
            piece = piece.lstrip(BLANK)
            if not piece:
                return
            self._wire = self._choose(piece[0], self)
            if self._wire is None:
                self.send(protocol.encode_error(None, LineUnreadable()) + b"\n")
                self._asked_all = True
                return
        self._wire.feed(piece)

    def _write(self, rest: memoryview) -> memoryview:
        """Write what fits now and return the rest, which is nothing for a client that has gone."""
        try:
            return rest[:0] if self.asker.gone else rest[self._client.send(rest) :]
        except BlockingIOError:
            return rest
        except OSError:
            self.asker.leave()
            return rest[:0]

    def _write_on(self) -> None:
        while self._unwritten:
            if rest := self._write(self._unwritten[0]):
                self._unwritten[0] = rest
                return
            self._unwritten.popleft()
            if self._unwritten:
                self._time_writing(len(self._unwritten[0]))
        self._drop_unwritten()
        if self._wire is not None:
            self._wire.resume()

    def _time_writing(self, answer_bytes: int) -> None:
        """Each answer has its own time."""
        if self._writing_until is not None:
            self._writing_until.cancel()
        self._writing_until = self._loop.call_later(self._limits.write_timeout_s, self._give_up, answer_bytes)

    def _give_up(self, answer_bytes: int) -> None:
        self._calls.report("socket.client_not_reading", answer_bytes=answer_bytes)
        with suppress(OSError):
            self._client.shutdown(socket.SHUT_RDWR)  # A torn answer must not be followed by another.
        self.guard(self.leave)

    def _drop_unwritten(self) -> None:
        if self._writing_until is not None:
            self._unwritten.clear()
            self._writing_until.cancel()
            self._writing_until = None
            self._loop.remove_writer(self.descriptor)

    def _time_reading(self, request: int | None) -> None:
        """The time of a request runs from its first byte, and only while it is read."""
        if request == self._timed:
            return
        self._timed = request
        if self._reading_until is not None:
            self._reading_until.cancel()
            self._reading_until = None
        if request is not None:
            until = self._limits.read_timeout_s
            self._reading_until = self._loop.call_later(until, self.guard, self._refuse_slowness)

    def _refuse_slowness(self) -> None:
        self._asked_all = True
        if self._wire is not None:
            self._wire.refuse_slowness()

    def _end(self) -> None:
        if self._is_reading:
            self._is_reading = False
            self._loop.remove_reader(self.descriptor)
        self._time_reading(None)
        if not self._ended:
            self._ended = True
            self._client.close()
            self._on_end(self)
