"""A client that speaks newline-delimited JSON-RPC 2.0: its lines started in order, answered as they are ready."""

from __future__ import annotations

from collections import deque
from functools import partial

from daemon.serving import protocol
from daemon.serving.calls import Call, Calls, Workers
from daemon.serving.line_buffer import LineBuffer
from daemon.serving.protocol import BatchAnswer, LineTooLong, LineTooSlow, Refused, Request
from daemon.serving.socket_connection import AT_ONCE_MAX, Connection


class RpcWire:
    """The requests of one client that are in flight, and those of a batch that wait for a slot."""

    def __init__(self, connection: Connection, calls: Calls, workers: Workers) -> None:
        self._connection = connection
        self._calls = calls
        self._workers = workers
        self._lines = LineBuffer(calls.limits.line_bytes_max)
        self._lines_taken = 0
        self._waiting: deque[tuple[Request | Refused, BatchAnswer | None]] = deque()
        self._in_flight = 0
        self._at_end = False
        self._stopped = False
        self._is_starting = False
        self._lets_others = False

    @property
    def wants_more(self) -> bool:
        """Whether there is a slot for what comes."""
        has_slot = self._in_flight < self._calls.limits.in_flight_per_connection_max
        return has_slot and not self._waiting and not self._lets_others

    @property
    def is_busy(self) -> bool:
        """Whether requests run or wait, or lines are here that are not begun."""
        return bool(
            self._in_flight or self._waiting or self._lets_others or (self._at_end and self._lines.started)
        )

    @property
    def started(self) -> int | None:
        """The number of the line that has begun to arrive."""
        return self._lines_taken if self._lines.started else None

    def feed(self, piece: bytes) -> None:
        """Start what every complete line asks for, while there are slots."""
        self._lines.feed(piece)
        self.resume()

    def end(self) -> None:
        """What is left is a line, too."""
        self._at_end = True
        self.resume()

    def stop(self) -> None:
        """Take no more lines. A batch of which some requests have started is started to its end."""
        self._stopped = True
        self._lines = LineBuffer(0)

    def refuse_slowness(self) -> None:
        """Say so; the rest of the line is not waited for."""
        self._lines = LineBuffer(0)
        self._send(protocol.encode_error(None, LineTooSlow()))

    def resume(self) -> None:
        """Start requests while there are slots and the client reads its answers."""
        if self._is_starting:
            return  # An answer that is there at once comes back here: the loop below goes on, the stack does not.
        self._is_starting, self._lets_others = True, False
        begun = 0
        try:
            while self._in_flight < self._calls.limits.in_flight_per_connection_max:
                if self._connection.is_writing or not (self._waiting or self._take_line()):
                    return
                if begun == AT_ONCE_MAX:
                    self._lets_others = True
                    self._connection.later(self.resume)
                    return
                begun += 1
                self._start(*self._waiting.popleft())
        finally:
            self._is_starting = False

    def _take_line(self) -> bool:
        """Read one line into requests; whether there was any."""
        if self._stopped:
            return False
        try:
            line = self._lines.next_line(at_end=self._at_end)
        except LineTooLong as error:
            self._lines_taken += 1
            self._waiting.append((Refused(None, error), None))
            return True
        if line is None:
            return False
        self._lines_taken += 1
        asked = protocol.decode_line(line)
        if isinstance(asked, tuple):
            batch = BatchAnswer(len(asked))
            self._waiting.extend((member, batch) for member in asked)
        else:
            self._waiting.append((asked, None))
        return True

    def _start(self, asked: Request | Refused, batch: BatchAnswer | None) -> None:
        if isinstance(asked, Refused):
            self._calls.failed("", asked.error)
            self._answer(protocol.encode_error(asked.id, asked.error), batch)
            return
        try:
            call = self._calls.admit(asked.method, asked.params)
        except Exception as error:
            self._fail(asked, error, batch)
            return
        self._in_flight += 1
        self._workers.start(partial(self._run, asked, call, batch))

    async def _run(self, asked: Request, call: Call, batch: BatchAnswer | None) -> None:
        """A request from its start to its answer."""
        connection = self._connection
        try:
            try:
                result = await self._calls.run(call, connection.asker)
                answer = self._calls.check_size(protocol.encode_result(asked.id, result))
            finally:
                self._in_flight -= 1
        except Exception as error:
            # A task's top.
            done = partial(self._fail, asked, error, batch)
        except BaseException:
            connection.abort()
            raise
        else:
            done = partial(self._answer, None if asked.is_notification else answer, batch)
        connection.guard(done, self.resume)

    def _fail(self, asked: Request, error: Exception, batch: BatchAnswer | None) -> None:
        self._calls.failed(asked.method, error)
        self._answer(None if asked.is_notification else protocol.encode_error(asked.id, error), batch)

    def _answer(self, answer: bytes | None, batch: BatchAnswer | None) -> None:
        if batch is not None:
            answer = batch.add(answer)
        if answer is not None:
            self._send(answer)

    def _send(self, answer: bytes) -> None:
        self._connection.send(answer + b"\n")
