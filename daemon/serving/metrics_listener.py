"""The loopback port for whoever scrapes metrics and asks for health; nothing else is served there.

A Unix socket asks the file system who may connect, a port asks nobody: so no method that knows a user is on it.
"""

from __future__ import annotations

import os
import socket

from daemon.logs import Report
from daemon.serving.accepting import Clients
from daemon.serving.calls import Calls, SocketLimits
from daemon.serving.http_routes import ROUTES_LISTED, Routes
from daemon.serving.protocol import Handlers
from events.errors import MemForestError

METHODS_SERVED = ("metrics", "healthz", "readyz")
BACKLOG = 64


class PortUnusable(MemForestError):
    """The port for metrics cannot be opened; choose another with `metrics.listen`."""

    code = "unavailable"


class MetricsListener:
    """Serves metrics and health on one port: bind, serve; close frees the port."""

    def __init__(self, address: tuple[str, int], handlers: Handlers, report: Report) -> None:
        self.address = address
        served = {name: handlers[name] for name in METHODS_SERVED}
        routes = tuple(route for route in ROUTES_LISTED if route.method in METHODS_SERVED)
        limits = SocketLimits(line_bytes_max=1 << 12, in_flight_max=64)
        # A tally of its own: it answers when the socket is busy, and scrapes are not among what they count.
        self._clients = Clients(Calls(served, limits, report), Routes(routes), only_http=True)
        self._listener: socket.socket | None = None

    def bind(self) -> None:
        """Take the port; with number 0 the system chooses one, and `address` has it. Raises PortUnusable."""
        family = socket.AF_INET6 if ":" in self.address[0] else socket.AF_INET
        listener = socket.socket(family, socket.SOCK_STREAM)
        try:
            listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            listener.bind(self.address)
            listener.listen(BACKLOG)
        except OSError as error:
            listener.close()
            host, port = self.address
            reason = os.strerror(error.errno or 0)
            raise PortUnusable(f"Cannot listen at {host}:{port} (`metrics.listen`): {reason}.") from error
        listener.setblocking(False)
        self.address = listener.getsockname()[:2]
        self._listener = listener

    def close(self) -> None:
        """Free the port. Raises nothing, also when it was never bound."""
        listener, self._listener = self._listener, None
        if listener is not None:
            listener.close()

    async def serve(self) -> None:
        """Answer until cancelled. Raises PortUnusable when `bind` was not called."""
        if self._listener is None:
            raise PortUnusable("The port is not bound; call bind() before serve().")
        async with self._clients.served():
            try:
                await self._clients.accept(self._listener)
            finally:
                self.close()
