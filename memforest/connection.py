"""One open connection of `AsyncClient`: many requests in flight, answers matched to callers by id."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import anyio
from anyio.streams.buffered import BufferedByteReceiveStream

from memforest.errors import ConnectionLost, MemForestError, ProtocolError
from memforest.wire import ANSWER_BYTES_MAX, JsonObject, Response, decode_response

if TYPE_CHECKING:
    from anyio.abc import SocketStream, UNIXSocketStream

_BROKEN = (anyio.EndOfStream, anyio.IncompleteRead, anyio.BrokenResourceError, anyio.ClosedResourceError)


# Requests whose callers went away before the answer: the daemon is still at them, and takes only so many of one
# connection. With half of those lost another one is better; the end of this one ends what nobody waits for.
ABANDONED_MAX = 16


@dataclass(slots=True)
class _Waiter:
    """A caller that waits; `outcome` is set before `done`."""

    done: anyio.Event = field(default_factory=anyio.Event)
    outcome: Response | MemForestError = field(default_factory=ConnectionLost)


class Connection:
    """Requests go out through one writer task, so a cancelled caller never leaves half a line behind."""

    def __init__(self, stream: SocketStream | UNIXSocketStream) -> None:
        self.lost = False
        self._stream = stream
        self._waiting: dict[int, _Waiter] = {}
        self._abandoned: set[int] = set()
        self._running: anyio.CancelScope | None = None
        self._outgoing, self._to_write = anyio.create_memory_object_stream[bytes](0)

    @property
    def is_crowded(self) -> bool:
        """So much that nobody waits for is under way that the next request had better go elsewhere."""
        return len(self._abandoned) >= ABANDONED_MAX

    async def ask(self, request_id: int, line: bytes) -> JsonObject:
        """Send one line and wait for its answer; raises the daemon's error, or ConnectionLost."""
        waiter = self._waiting[request_id] = _Waiter()
        try:
            if self.lost:
                raise ConnectionLost
            await self._outgoing.send(line)
            await waiter.done.wait()
        except (anyio.BrokenResourceError, anyio.ClosedResourceError):
            raise ConnectionLost from None
        finally:
            self._waiting.pop(request_id, None)
            if not waiter.done.is_set():
                self._abandoned.add(request_id)
            if self.is_crowded and not self._waiting and self._running is not None:
                self._running.cancel()
        if isinstance(waiter.outcome, MemForestError):
            raise waiter.outcome
        return waiter.outcome.unwrap()

    async def run(self) -> None:
        """Serve the connection until it breaks; then everyone who waits is told."""
        reason: MemForestError | None = None
        try:
            async with anyio.create_task_group() as tasks:
                self._running = tasks.cancel_scope
                tasks.start_soon(self._write, name="memforest.connection.write")
                try:
                    await self._read()
                except MemForestError as error:
                    reason = error
                tasks.cancel_scope.cancel()
        finally:
            self.lost = True
            self._to_write.close()
            self._outgoing.close()
            for waiter in self._waiting.values():
                if not waiter.done.is_set():
                    waiter.outcome = reason or ConnectionLost()
                    waiter.done.set()
            await anyio.aclose_forcefully(self._stream)

    async def _write(self) -> None:
        try:
            async for line in self._to_write:
                await self._stream.send(line)
        except _BROKEN:
            # The reader sees the same end and tells the callers; closing makes it see it at once.
            await anyio.aclose_forcefully(self._stream)

    async def _read(self) -> None:
        lines = BufferedByteReceiveStream(self._stream)
        while True:
            try:
                line = await lines.receive_until(b"\n", ANSWER_BYTES_MAX)
            except anyio.DelimiterNotFound:
                raise ProtocolError(f"The daemon's answer is longer than {ANSWER_BYTES_MAX} bytes.") from None
            except _BROKEN:
                return
            response = decode_response(line)
            if response.id is None and response.error is not None:
                # One of our lines was unreadable and we cannot know which: all of them fail with it.
                raise response.error
            if response.id is None:
                continue
            self._abandoned.discard(response.id)
            waiter = self._waiting.get(response.id)
            if waiter is not None:
                waiter.outcome = response
                waiter.done.set()
