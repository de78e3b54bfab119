"""The running of what clients ask: deadlines, limits, what is cut short, and what is counted.

It knows nothing of sockets, JSON-RPC or HTTP, so that the same methods run under the same limits whatever a
client speaks (`daemon/serving/rpc_wire.py`, `daemon/serving/http_wire.py`).
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import Counter, defaultdict, deque
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import TypeAlias

import anyio
import msgspec
from anyio.abc import TaskGroup

from daemon.logs import Report, place_of
from daemon.serving import protocol
from daemon.serving.protocol import Handlers, Method, MethodUnknown
from events.errors import MemForestError

# Upper bounds of the latency histogram: from an answer out of memory to a long poll.
LATENCY_BOUNDS_S = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)

Work: TypeAlias = Callable[[], Awaitable[None]]


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

    line_bytes_max: int = 1 << 20  # A line, or the body of an HTTP request; the longest turn of the bus fits.
    head_bytes_max: int = 16 << 10  # Request line and headers of HTTP; ids of 1 KiB fit, percent-encoded.
    answer_bytes_max: int = 16 << 20
    read_timeout_s: float = 10.0  # From the first byte of a request to its end; silence between them is free.
    write_timeout_s: float = 5.0  # For one answer; then the client is not reading and is let go.
    in_flight_per_connection_max: int = 32  # Above it the connection is not read.
    in_flight_max: int = 256  # Above it the answer is `busy`, at once.
    streams_max: int = 64  # Those that follow a session without end; they leave room for who only asks.
    accept_pause_s: float = 0.1  # Without descriptors the listener stays readable: do not spin on it.


class Asker:
    """Whoever waits for answers: its running queries end when it leaves, its writes do not."""

    def __init__(self) -> None:
        self.gone = False
        self.queries: set[anyio.CancelScope] = set()

    def leave(self) -> None:
        """Cancel what only this asker wanted."""
        self.gone = True
        self.cancel_queries()

    def cancel_queries(self) -> None:
        """End what is under way and changes nothing."""
        for query in self.queries:
            query.cancel()


@dataclass(slots=True)
class Latencies:
    """How long the answered requests of one method took: how many in each class, and seconds in all."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(LATENCY_BOUNDS_S) + 1))
    seconds: float = 0.0

    def add(self, seconds: float) -> None:
        """Count one request."""
        self.counts[bisect_left(LATENCY_BOUNDS_S, seconds)] += 1
        self.seconds += seconds


class Tally:
    """What was asked since the start, by method and by code; only names of methods that exist are kept."""

    def __init__(self) -> None:
        self.in_flight = 0
        self.streams = 0
        self.connections = 0
        self.latencies: defaultdict[str, Latencies] = defaultdict(Latencies)
        self.errors: Counter[str] = Counter()


@dataclass(frozen=True, slots=True)
class Call:
    """A request that was let in: its method and its parameters in the method's own type."""

    name: str
    method: Method
    params: msgspec.Struct


class Calls:
    """Lets requests in under one limit for all, and runs each under its method's deadline."""

    def __init__(
        self, handlers: Handlers, limits: SocketLimits, report: Report, tally: Tally | None = None
    ) -> None:
        self.limits = limits
        self.report = report
        self.tally = tally or Tally()
        self._handlers = handlers

    def find(self, name: str) -> Method:
        """The method of this name. Raises MethodUnknown."""
        method = self._handlers.get(name)
        if method is None:
            raise MethodUnknown
        return method

    def admit(self, name: str, given: object) -> Call:
        """Let a request in; it then must be run. Raises MethodUnknown, ParamsRefused, TooBusy."""
        method = self.find(name)
        params = protocol.read_params(name, given, method)
        if self.tally.in_flight >= self.limits.in_flight_max:
            raise TooBusy
        self.tally.in_flight += 1
        return Call(name, method, params)

    def admit_again(self, call: Call, params: msgspec.Struct) -> Call:
        """The next part of a request that was let in before: it is not refused half-way."""
        self.tally.in_flight += 1
        return Call(call.name, call.method, params)

    async def run(self, call: Call, asker: Asker) -> object:
        """What the method returns, under its deadline.

        Raises what the method raises, DeadlinePassed, ClientGone.
        """
        method, now = call.method, asyncio.get_running_loop().time
        began = now()
        deadline_s = method.deadline_s + method.more_s(call.params)
        scope = anyio.CancelScope(deadline=began + deadline_s)
        try:
            if not method.write:
                if asker.gone:
                    raise ClientGone
                asker.queries.add(scope)
            with scope:
                return await method.call(call.params)
        finally:
            self.tally.in_flight -= 1
            self.tally.latencies[call.name].add(now() - began)
            asker.queries.discard(scope)
        if now() < scope.deadline:
            raise ClientGone
        if method.write:
            advice = "it may have been done, look before you send it again"
        elif getattr(call.params, "wait_for", None) is not None:
            advice = "perhaps what `wait_for` names was never published"
        else:
            advice = "ask for less"
        raise DeadlinePassed(f"The request was stopped after {deadline_s:g} s; {advice}.")

    def check_size(self, answer: bytes) -> bytes:
        """The answer, if it may be sent. Raises AnswerTooLarge."""
        if len(answer) > self.limits.answer_bytes_max:
            raise AnswerTooLarge
        return answer

    def failed(self, name: str, error: Exception) -> None:
        """Count an error answer, and tell the log of those that are not the client's affair."""
        if isinstance(error, ClientGone):
            return  # Nobody is answered.
        code = protocol.code_of(error)
        self.tally.errors[code] += 1
        if code == "internal" or isinstance(error, DeadlinePassed):
            # An error's own text may quote what someone said: only its type and place are told.
            kind, place = type(error).__name__, place_of(error)
            self.report("socket.request_failed", method=name, code=code, error=kind, place=place)


class Workers:
    """Tasks that run requests, each one at a time: to wake one that waits costs a fraction of a new one.

    There are as many as requests were ever under way at once, which `in_flight_max` limits.
    """

    def __init__(self, tasks: TaskGroup) -> None:
        self._tasks = tasks
        self._idle: list[asyncio.Future[Work]] = []
        self._wanted: deque[Work] = deque()
        self._is_wanted = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def start(self, work: Work) -> None:
        """Run this soon."""
        if self._idle:
            self._idle.pop().set_result(work)
        else:
            self._wanted.append(work)
            self._is_wanted.set()

    async def hire(self) -> None:
        """Start tasks for what found none idle; in a task, because callbacks of the loop may start none."""
        while True:
            await self._is_wanted.wait()
            self._is_wanted.clear()
            while self._wanted:
                self._tasks.start_soon(self._run, self._wanted.popleft(), name="socket.worker")

    async def _run(self, work: Work) -> None:
        while True:
            try:
                await work()
            except asyncio.CancelledError:
                task = asyncio.current_task()
                if task is None or task.cancelling():
                    raise
                # What a method waited for was cancelled, not we; its connection has ended, others go on.
            waiting: asyncio.Future[Work] = self._loop.create_future()
            self._idle.append(waiting)
            work = await waiting
