"""The Unix socket of the daemon: its path and mode, and its life from bind to stop.

Who connects is served by `daemon/serving/accepting.py`; what the methods do is in the table of handlers.
"""

from __future__ import annotations

import errno
import os
import socket
import stat
from pathlib import Path

import anyio

from daemon.logs import Report
from daemon.serving.accepting import Clients
from daemon.serving.calls import Calls, SocketLimits, Tally
from daemon.serving.protocol import Handlers
from events.errors import MemForestError

PATH_BYTES_MAX = 107  # sun_path holds 108 with its closing zero (unix(7)).
BACKLOG = 1024  # A burst of clients waits here while the loop is at work; the kernel caps it by somaxconn.


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
        raise SocketUnusable(
            f"Another process serves {path}, such as the daemon of another data directory; stop it or change "
            "`socket.path`, which MEMFOREST_SOCKET_PATH sets, too."
        )
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
        tally: Tally | None = None,
    ) -> None:
        self.path = path
        self.mode = mode
        self.tally = tally or Tally()
        self._clients = Clients(Calls(handlers, limits or SocketLimits(), report, self.tally))
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
            async with self._clients.served():
                while (listener := self._listener) is not None:
                    with listener, anyio.CancelScope() as self._accepting:  # `bind` and `close` cancel it.
                        await self._clients.accept(listener)
                self._accepting = None
                await self._clients.stop(self._grace_s)
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
