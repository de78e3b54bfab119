"""The Unix socket of the daemon: who may connect, how many requests run at once, and when each must end.

What the lines mean is `daemon/protocol.py`; what the methods do is in the table of handlers. Requests are
counted, not connections: an idle client costs a file descriptor and nothing else (engineering.md 1.7).
"""

from __future__ import annotations

import errno
import os
import select
import socket
import stat
from pathlib import Path

import anyio
from anyio.abc import TaskGroup

from daemon.logs import Report
from daemon.protocol import Handlers
from daemon.socket_connection import Calls, Connection, SocketLimits, place_of
from events.errors import MemForestError

PATH_BYTES_MAX = 107  # sun_path holds 108 with its closing zero (unix(7)).
BACKLOG = 1024  # A burst of clients waits here while the loop is at work; the kernel caps it by somaxconn.

__all__ = ["SocketLimits", "SocketServer", "SocketUnusable", "open_listener"]


class SocketUnusable(MemForestError):
    """The socket cannot be opened at this path; choose another with `socket.path`."""

    code = "unavailable"


def open_listener(path: Path, mode: int) -> socket.socket:
    """Listen at `path`, which appears with `mode` before anyone can connect. Raises SocketUnusable.

    The caller holds the lock of the data directory: between looking and removing a stale socket another
    daemon could come, and asyncio's and anyio's own servers remove even a live one.
    """
    if len(os.fsencode(path)) > PATH_BYTES_MAX:
        raise SocketUnusable(f"The socket path is longer than {PATH_BYTES_MAX} bytes; shorten it: {path}")
    _remove_stale(path)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    umask = os.umask(0o177)
    try:
        listener.bind(os.fspath(path))
    except OSError as error:
        listener.close()
        raise SocketUnusable(f"Cannot bind {path}: {os.strerror(error.errno or 0)}.") from error
    finally:
        os.umask(umask)
    try:
        path.chmod(mode)
        listener.listen(BACKLOG)  # Only now: until here a client is refused, whatever the mode.
    except OSError as error:
        path.unlink(missing_ok=True)
        listener.close()
        raise SocketUnusable(f"Cannot listen at {path}: {os.strerror(error.errno or 0)}.") from error
    listener.setblocking(False)
    return listener


def _remove_stale(path: Path) -> None:
    """Make room at `path`, if what is there is a socket that nobody serves."""
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise SocketUnusable(f"{path} exists and is not a socket; move it or change `socket.path`.")
    except FileNotFoundError:
        return
    except OSError as error:
        raise SocketUnusable(f"Cannot look at {path}: {os.strerror(error.errno or 0)}.") from error
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        probe.setblocking(False)  # A full backlog answers EAGAIN, which is a sign of life too.
        refused = probe.connect_ex(os.fspath(path))
    if refused in (0, errno.EAGAIN):
        raise SocketUnusable(f"Another process serves {path}; stop it or change `socket.path`.")
    if refused not in (errno.ECONNREFUSED, errno.ENOENT):
        raise SocketUnusable(f"Cannot tell who serves {path}: {os.strerror(refused)}; change `socket.path`.")
    path.unlink(missing_ok=True)


class SocketServer:
    """Serves a table of methods on one Unix socket: bind, serve, stop; close takes the path away."""

    def __init__(
        self,
        path: Path,
        mode: int = 0o600,
        *,
        handlers: Handlers,
        report: Report,
        limits: SocketLimits | None = None,
    ) -> None:
        self.path = path
        self.mode = mode
        self._limits = limits or SocketLimits()
        self._report = report
        self._calls = Calls(handlers, self._limits, report)
        self._connections: dict[int, Connection] = {}
        self._stopping = False
        self._listener: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._accepting: anyio.CancelScope | None = None
        self._served: anyio.Event | None = None
        self._grace_s = 0.0

    def bind(self) -> None:
        """Take the path. Again while serving (SIGHUP), it makes a path anew that someone removed.

        Raises SocketUnusable and changes nothing when the path is another's, a file, or too long.
        """
        if self._owns_path():
            return
        listener = open_listener(self.path, self.mode)
        self.close()
        self._listener = listener
        found = self.path.stat()
        self._inode = (found.st_dev, found.st_ino)

    def close(self) -> None:
        """Stop listening and remove the path if it is still ours. Connections are `serve`'s to end."""
        if self._owns_path():
            self.path.unlink(missing_ok=True)
        # The inode was compared first: its number may be given away once the socket is closed.
        listener, self._listener, self._inode = self._listener, None, None
        if self._accepting is not None:
            self._accepting.cancel()  # Whoever waits on a descriptor closes it, or another takes its number.
        elif listener is not None:
            listener.close()

    async def serve(self) -> None:
        """Answer until `stop`, or until cancelled. Raises SocketUnusable when `bind` was not called."""
        if self._listener is None and not self._stopping:
            raise SocketUnusable("The socket is not bound; call bind() before serve().")
        self._served = anyio.Event()
        try:
            with select.epoll() as self._hangups:
                async with anyio.create_task_group() as watching:
                    watching.start_soon(self._watch_hangups, name="socket.watch_hangups")
                    await self._serve_connections()
                    watching.cancel_scope.cancel()
        finally:
            self.close()
            self._served.set()

    async def stop(self, grace_s: float) -> None:
        """Take no more, give what is in flight `grace_s` to end, and return when `serve` is over."""
        self._grace_s = grace_s
        self._stopping = True
        self.close()
        if self._served is not None:
            await self._served.wait()

    def _owns_path(self) -> bool:
        try:
            found = self.path.lstat()
        except OSError:
            return False
        return self._inode == (found.st_dev, found.st_ino)

    async def _serve_connections(self) -> None:
        async with anyio.create_task_group() as connections:
            while (listener := self._listener) is not None:
                with listener, anyio.CancelScope() as self._accepting:  # `bind` and `close` cancel it.
                    await self._accept(listener, connections)
            self._accepting = None
            for connection in self._connections.values():
                connection.stop_reading()
            connections.cancel_scope.deadline = anyio.current_time() + self._grace_s

    async def _accept(self, listener: socket.socket, connections: TaskGroup) -> None:
        """Take clients for ever. Out of descriptors it waits: those who are connected go on."""
        starved = False
        while True:
            await anyio.wait_readable(listener)
            try:
                client, _ = listener.accept()
            except (BlockingIOError, ConnectionAbortedError):
                continue
            except OSError as error:
                if error.errno not in (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM):
                    raise
                if not starved:
                    self._report("socket.accept_failed", error=errno.errorcode[error.errno])
                starved = True
                await anyio.sleep(self._limits.accept_pause_s)
                continue
            starved = False
            client.setblocking(False)
            connections.start_soon(self._serve_client, client, name="socket.connection")

    async def _serve_client(self, client: socket.socket) -> None:
        descriptor = client.fileno()
        connection = Connection(self._calls, client)
        self._connections[descriptor] = connection
        if self._stopping:
            connection.stop_reading()
        try:
            self._hangups.register(descriptor, select.EPOLLET)  # A hang-up is told without being asked for.
            await connection.run()
        except Exception as error:
            # A task's top: what goes wrong with one client is not the listener's end.
            self._report("socket.connection_failed", error=type(error).__name__, place=place_of(error))
        finally:
            del self._connections[descriptor]
            client.close()  # Closing takes the descriptor out of the epoll set.

    async def _watch_hangups(self) -> None:
        """Tell a connection when its client is gone for good.

        An end of file does not say that: `printf … | nc -N` has only finished asking. And a connection
        that is not read, because enough of its requests are in flight, sees no end of file at all.
        """
        while True:
            await anyio.wait_readable(self._hangups)
            for descriptor, _ in self._hangups.poll(0):
                self._connections[descriptor].asker.leave()
