"""The clients of one listening socket: accepted, told apart by what they speak, noticed when they leave.

Requests are counted, not connections: an idle client costs a file descriptor, some callbacks that never run,
and no task (engineering.md 1.7).
"""

from __future__ import annotations

import errno
import select
import socket
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from daemon.serving.calls import Calls, Workers
from daemon.serving.http_routes import ROUTES, Routes
from daemon.serving.http_wire import HttpWire
from daemon.serving.rpc_wire import RpcWire
from daemon.serving.socket_connection import Connection, Wire

# `errno`s of accept(2) that pass: for want of descriptors or memory.
STARVED = frozenset({errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM})
ACCEPTS_MAX = 64  # In a row, before those who are connected get their turn.
CAPITALS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")  # Every method of HTTP begins with one.


class Clients:
    """Everyone who is connected, and the tasks that do what they ask."""

    def __init__(self, calls: Calls, routes: Routes = ROUTES, *, only_http: bool = False) -> None:
        self._calls = calls
        self._routes = routes
        self._only_http = only_http
        self._connections: dict[int, Connection] = {}
        self._all_left: anyio.Event | None = None

    @asynccontextmanager
    async def served(self) -> AsyncGenerator[None]:
        """While this is entered, who was accepted is served; at the end all are let go."""
        with select.epoll() as self._hangups:
            async with anyio.create_task_group() as tasks:
                self._workers = Workers(tasks)
                tasks.start_soon(self._workers.hire, name="socket.hire")
                tasks.start_soon(self._watch_hangups, name="socket.watch_hangups")
                try:
                    yield
                finally:
                    tasks.cancel_scope.cancel()
                    for connection in list(self._connections.values()):
                        connection.abort()

    async def accept(self, listener: socket.socket) -> None:
        """Take clients for ever. Out of descriptors it waits: those who are connected go on."""
        starved = False
        while True:
            await anyio.wait_readable(listener)
            try:
                for _ in range(ACCEPTS_MAX):
                    client, _address = listener.accept()
                    starved = False
                    self._begin(client)
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in STARVED:
                    raise
                if not starved:
                    self._calls.report("socket.accept_failed", error=errno.errorcode[error.errno])
                starved = True
                await anyio.sleep(self._calls.limits.accept_pause_s)

    async def stop(self, grace_s: float) -> None:
        """Answer what is in flight, at most for so long."""
        self._all_left = anyio.Event()
        for connection in list(self._connections.values()):
            connection.guard(connection.stop)
        with anyio.move_on_after(grace_s):
            while self._connections:
                await self._all_left.wait()

    def _begin(self, client: socket.socket) -> None:
        client.setblocking(False)
        connection = Connection(client, self._calls, self._choose, self._forget)
        self._connections[connection.descriptor] = connection
        self._calls.tally.connections += 1
        # A hang-up is told without being asked for. Closing takes the descriptor out of the set.
        self._hangups.register(client, select.EPOLLET)
        connection.begin()

    def _forget(self, connection: Connection) -> None:
        del self._connections[connection.descriptor]
        self._calls.tally.connections -= 1
        if self._all_left is not None and not self._connections:
            self._all_left.set()

    def _choose(self, first_byte: int, connection: Connection) -> Wire | None:
        """What is spoken, told from the first byte that is not white space (design 4.2)."""
        if first_byte in CAPITALS:
            return HttpWire(connection, self._calls, self._workers, self._routes)
        if first_byte in b"{[" and not self._only_http:
            return RpcWire(connection, self._calls, self._workers)
        return None

    async def _watch_hangups(self) -> None:
        """Tell a connection when its client is gone for good.

        An end of file does not say that: `printf … | nc -N` has only finished asking. And a connection
        that is not read, because enough of its requests are in flight, sees no end of file at all.
        """
        while True:
            await anyio.wait_readable(self._hangups)
            for descriptor, _ in self._hangups.poll(0):
                if descriptor in self._connections:
                    connection = self._connections[descriptor]
                    connection.guard(connection.leave)
