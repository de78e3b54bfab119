"""Two clients of the daemon's socket: `AsyncClient` (anyio, pipelined) and `Client` (plain blocking).

What is asked and how answers are read stands once, in `calls` and `wire`; here is only the talking.
"""

from __future__ import annotations

import inspect
import socket
import threading
import time
from functools import update_wrapper
from itertools import count
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio
import anyio.abc

from memforest import adding, calls, judged, query_calls, unit_calls
from memforest.connection import Connection
from memforest.errors import AnswerOverdue, ConnectionLost, DaemonUnreachable, ProtocolError
from memforest.model_time import model_time_s
from memforest.socket_path import find_socket
from memforest.wire import ANSWER_BYTES_MAX, decode_response, encode_request

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Coroutine
    from types import TracebackType
    from typing import Self

    from memforest.wire import Call, JsonObject

P = ParamSpec("P")
T = TypeVar("T")

# Long enough for a forget that scans files or a query held by `wait_for`; both are bounded by the daemon. What
# models may take comes on top.
TIMEOUT_S = 60.0
# The daemon serves so many requests of one connection at a time and answers `busy` beyond it.
IN_FLIGHT_MAX = 32
_READ_BYTES = 1 << 16


def _blocking(build: Callable[P, Call[T]]) -> Callable[Concatenate[Client, P], T]:
    """The method of `Client` that performs what `build` describes."""

    def method(self: Client, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return self.call(build(*args, **kwargs))

    return _named_after(build, method)


def _awaited(build: Callable[P, Call[T]]) -> Callable[Concatenate[AsyncClient, P], Coroutine[Any, Any, T]]:
    """The method of `AsyncClient` that performs what `build` describes."""

    async def method(self: AsyncClient, /, *args: P.args, **kwargs: P.kwargs) -> T:
        return await self.call(build(*args, **kwargs))

    return _named_after(build, method)


_Method = TypeVar("_Method", bound="Callable[..., object]")


def _named_after(build: Callable[..., object], method: _Method) -> _Method:
    """Name, docstring and (for `help`) the parameters of `build`, with `self` before them."""
    update_wrapper(method, build)
    signature = inspect.signature(build)
    own = inspect.Parameter("self", inspect.Parameter.POSITIONAL_OR_KEYWORD)
    method.__dict__["__signature__"] = signature.replace(
        parameters=[own, *signature.parameters.values()], return_annotation=inspect.Signature.empty
    )
    return method


class Client:
    """A blocking client; one request at a time, safe to share between threads.

    Connects when first asked. Reads are asked once more when the daemon was restarted meanwhile;
    writes never are, because the first may have been done. An answer is waited for `timeout_s`, and for
    as long as the daemon may wait for a language model.
    """

    query = _blocking(query_calls.query)
    judge_answer = _blocking(judged.judge_answer)
    ingest = _blocking(calls.ingest)
    add = _blocking(adding.add)
    close_session = _blocking(calls.close_session)
    sessions = _blocking(calls.sessions)
    session = _blocking(calls.session)
    session_events = _blocking(calls.session_events)
    diff = _blocking(calls.diff)
    forget_session = _blocking(calls.forget_session)
    forget_user = _blocking(calls.forget_user)
    preview_forgetting = _blocking(calls.preview_forgetting)
    retract_turn = _blocking(calls.retract_turn)
    replay_session = _blocking(calls.replay_session)
    users = _blocking(calls.users)
    facts = _blocking(calls.facts)
    fact = _blocking(calls.fact)
    correct_fact = _blocking(calls.correct_fact)
    retract_fact = _blocking(calls.retract_fact)
    pin_fact = _blocking(calls.pin_fact)
    trees = _blocking(calls.trees)
    tree = _blocking(calls.tree)
    units = _blocking(unit_calls.units)
    merges = _blocking(unit_calls.merges)
    policy = _blocking(unit_calls.policy)
    set_policy = _blocking(unit_calls.set_policy)
    why = _blocking(calls.why)
    compact = _blocking(unit_calls.compact)
    undo_compaction = _blocking(unit_calls.undo_compaction)
    digest = _blocking(calls.digest)
    dead_letters = _blocking(calls.dead_letters)
    dead_letter = _blocking(calls.dead_letter)
    retry_letter = _blocking(calls.retry_letter)
    drop_letter = _blocking(calls.drop_letter)
    parked = _blocking(calls.parked)
    parked_work = _blocking(calls.parked_work)
    retry_parked = _blocking(calls.retry_parked)
    status = _blocking(calls.status)

    def __init__(self, socket_path: str | os.PathLike[str] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.socket_path = find_socket(socket_path)
        self.timeout_s = timeout_s
        self._lock = threading.Lock()
        self._ids = count(1)
        self._socket: socket.socket | None = None
        self._unread = bytearray()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Hang up. The next request connects again."""
        if self._socket is not None:
            self._socket.close()
        self._socket = None
        self._unread.clear()

    def call(self, call: Call[T]) -> T:
        """Perform one call; raises DaemonError, DaemonUnreachable or ProtocolError."""
        return call.read(self.request(call.method, call.params, repeatable=call.repeatable))

    def request(self, method: str, params: JsonObject, *, repeatable: bool = False) -> JsonObject:
        """The bare result of a method, for what this package has no type for; raises like `call`."""
        with self._lock:
            request_id = next(self._ids)
            line = encode_request(request_id, method, params)
            deadline = time.monotonic() + self.timeout_s + model_time_s(method, params)
            try:
                return self._ask(request_id, line, deadline)
            except ConnectionLost:
                if not repeatable:
                    raise
            return self._ask(request_id, line, deadline)

    def _ask(self, request_id: int, line: bytes, deadline: float) -> JsonObject:
        try:
            connection = self._connected(deadline)
            connection.settimeout(_left(deadline))
            connection.sendall(line)
            while True:
                response = decode_response(self._read_line(connection, deadline))
                # One request is in flight, so an error without an id can only mean this one.
                if response.id == request_id or (response.id is None and response.error):
                    break
        except TimeoutError:
            self.close()
            raise AnswerOverdue from None
        except OSError:
            self.close()
            raise ConnectionLost from None
        except BaseException:
            # Interrupted half-way: what is left on this line belongs to nobody.
            self.close()
            raise
        return response.unwrap()

    def _connected(self, deadline: float) -> socket.socket:
        if self._socket is not None and _hung_up(self._socket):
            # Nothing was sent on it yet, so this is safe for writes too.
            self.close()
        if self._socket is None:
            fresh = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                fresh.settimeout(_left(deadline))
                fresh.connect(str(self.socket_path))
            except OSError as error:
                fresh.close()
                raise DaemonUnreachable.at(self.socket_path, error) from None
            self._socket = fresh
        return self._socket

    def _read_line(self, connection: socket.socket, deadline: float) -> bytes:
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            if searched > ANSWER_BYTES_MAX:
                raise ProtocolError(f"The daemon's answer is longer than {ANSWER_BYTES_MAX} bytes.")
            # Set anew for each read: a daemon that drips must not hold us for ever.
            connection.settimeout(_left(deadline))
            received = connection.recv(_READ_BYTES)
            if not received:
                raise ConnectionResetError
            self._unread += received
        line = bytes(self._unread[:end])
        del self._unread[: end + 1]
        return line


def _left(deadline: float) -> float:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        raise TimeoutError
    return left_s


def _hung_up(connection: socket.socket) -> bool:
    """The other side closed while we were idle (a restarted daemon), seen without taking a byte."""
    # MSG_DONTWAIT is not enough: with a timeout set, Python waits for bytes before it calls recv.
    connection.setblocking(False)
    try:
        return not connection.recv(1, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except OSError:
        return True


class AsyncClient:
    """An anyio client: `async with AsyncClient() as client`. Concurrent calls share one connection.

    Answers may arrive in any order. Reads are asked once more when the connection breaks. `timeout_s` as of
    `Client`.
    """

    query = _awaited(query_calls.query)
    judge_answer = _awaited(judged.judge_answer)
    ingest = _awaited(calls.ingest)
    add = _awaited(adding.add)
    close_session = _awaited(calls.close_session)
    sessions = _awaited(calls.sessions)
    session = _awaited(calls.session)
    session_events = _awaited(calls.session_events)
    diff = _awaited(calls.diff)
    forget_session = _awaited(calls.forget_session)
    forget_user = _awaited(calls.forget_user)
    preview_forgetting = _awaited(calls.preview_forgetting)
    retract_turn = _awaited(calls.retract_turn)
    replay_session = _awaited(calls.replay_session)
    users = _awaited(calls.users)
    facts = _awaited(calls.facts)
    fact = _awaited(calls.fact)
    correct_fact = _awaited(calls.correct_fact)
    retract_fact = _awaited(calls.retract_fact)
    pin_fact = _awaited(calls.pin_fact)
    trees = _awaited(calls.trees)
    tree = _awaited(calls.tree)
    units = _awaited(unit_calls.units)
    merges = _awaited(unit_calls.merges)
    policy = _awaited(unit_calls.policy)
    set_policy = _awaited(unit_calls.set_policy)
    why = _awaited(calls.why)
    compact = _awaited(unit_calls.compact)
    undo_compaction = _awaited(unit_calls.undo_compaction)
    digest = _awaited(calls.digest)
    dead_letters = _awaited(calls.dead_letters)
    dead_letter = _awaited(calls.dead_letter)
    retry_letter = _awaited(calls.retry_letter)
    drop_letter = _awaited(calls.drop_letter)
    parked = _awaited(calls.parked)
    parked_work = _awaited(calls.parked_work)
    retry_parked = _awaited(calls.retry_parked)
    status = _awaited(calls.status)

    def __init__(self, socket_path: str | os.PathLike[str] | None = None, *, timeout_s: float = TIMEOUT_S) -> None:
        self.socket_path = find_socket(socket_path)
        self.timeout_s = timeout_s
        self._ids = count(1)
        self._in_flight = anyio.Semaphore(IN_FLIGHT_MAX)
        self._connecting = anyio.Lock()
        self._connection: Connection | None = None
        self._tasks: anyio.abc.TaskGroup | None = None

    async def __aenter__(self) -> Self:
        self._tasks = await anyio.create_task_group().__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        tasks, self._tasks = self._tasks, None
        if tasks is not None:
            tasks.cancel_scope.cancel()
            # Not given the caller's exception, or it would come out wrapped in an ExceptionGroup.
            await tasks.__aexit__(None, None, None)

    async def call(self, call: Call[T]) -> T:
        """Perform one call; raises DaemonError, DaemonUnreachable or ProtocolError."""
        return call.read(await self.request(call.method, call.params, repeatable=call.repeatable))

    async def request(self, method: str, params: JsonObject, *, repeatable: bool = False) -> JsonObject:
        """The bare result of a method, for what this package has no type for; raises like `call`."""
        request_id = next(self._ids)
        line = encode_request(request_id, method, params)
        try:
            with anyio.fail_after(self.timeout_s + model_time_s(method, params)):
                async with self._in_flight:
                    try:
                        return await (await self._connected()).ask(request_id, line)
                    except ConnectionLost:
                        if not repeatable:
                            raise
                    return await (await self._connected()).ask(request_id, line)
        except TimeoutError:
            raise AnswerOverdue from None

    async def _connected(self) -> Connection:
        async with self._connecting:
            if self._tasks is None:
                raise RuntimeError("AsyncClient is used inside `async with`")
            if self._connection is None or self._connection.lost or self._connection.is_crowded:
                try:
                    stream = await anyio.connect_unix(self.socket_path)
                except OSError as error:
                    raise DaemonUnreachable.at(self.socket_path, error) from None
                self._connection = Connection(stream)
                self._tasks.start_soon(self._connection.run, name="memforest.connection")
            return self._connection
