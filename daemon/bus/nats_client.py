"""nats-py's client as we open and close it, and what its error callback tells of a denied right.

Not here: when to connect, and what the connection is used for (daemon/bus/nats_bus.py).
"""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Generator
from contextlib import contextmanager, suppress
from functools import partial
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Final

import anyio
import anyio.to_thread

if TYPE_CHECKING:
    from nats.aio.client import Client

# nats-py gives up after 60 attempts and notices a silent peer after six minutes unless told otherwise (I11).
RECONNECT_WAIT_S: Final = 1
PING_INTERVAL_S: Final = 20
PINGS_OUTSTANDING_MAX: Final = 2
CLOSE_WITHIN_S: Final = 3.0

_DENIED = re.compile(r'permissions violation for publish to "([^"]+)"')


async def make_client() -> Client:
    """A client that is not connected.

    nats-py is imported here, in a thread, and where its errors are caught: with aiohttp, which it imports where
    that is installed, it takes as long as a third of the daemon, and a start need not wait for it.
    """
    await anyio.to_thread.run_sync(partial(import_module, "nats.aio.client"))
    from nats.aio.client import Client

    return Client()


async def connect(
    client: Client,
    url: str,
    credentials: Path | None,
    on_error: Callable[[Exception], Awaitable[None]],
    on_change: Callable[[], Awaitable[None]],
) -> None:
    """Connect, and reconnect for ever; `on_change` is called when the connection comes or goes.

    Raises OSError for credentials that cannot be read: nats-py looks for them only once a server asks.
    """
    if credentials is not None:
        await anyio.Path(credentials).read_bytes()
    await client.connect(
        servers=[url],
        name="memforest",
        user_credentials=None if credentials is None else str(credentials),
        error_cb=on_error,
        disconnected_cb=on_change,
        reconnected_cb=on_change,
        closed_cb=on_change,
        reconnect_time_wait=RECONNECT_WAIT_S,
        max_reconnect_attempts=-1,
        ping_interval=PING_INTERVAL_S,
        max_outstanding_pings=PINGS_OUTSTANDING_MAX,
        # Nothing is kept to be sent after a reconnect: a publish that failed would be stored later (I5).
        pending_size=0,
    )
    await on_change()


async def close(client: Client) -> None:
    """Let go of the connection within CLOSE_WITHIN_S, whatever state the client is in."""
    # Not drain(): it raises while disconnected and leaves the reconnecting task behind. A client that never
    # began to connect fails an assertion of its own here.
    with anyio.move_on_after(CLOSE_WITHIN_S, shield=True), suppress(Exception):
        await client.close()


def denied_subject(failure: Exception) -> str | None:
    """The subject we may not publish on, in lower case as nats-py hands it over; None for any other error.

    The server says it beside the answer that then never comes (its `Permissions Violation`).
    """
    found = _DENIED.search(str(failure))
    return None if found is None else found[1]


class Denials:
    """Who waits for an answer, and which denied subjects (in lower case) mean that it never comes."""

    def __init__(self) -> None:
        self._asking: dict[anyio.CancelScope, Callable[[str], bool]] = {}

    @contextmanager
    def unless(self, concerns: Callable[[str], bool]) -> Generator[None, None, None]:
        """Leave the block without an exception when the server denies us a subject that concerns it."""
        with anyio.CancelScope() as scope:
            self._asking[scope] = concerns
            try:
                yield
            finally:
                del self._asking[scope]

    def tell(self, failure: Exception) -> bool:
        """Whether an error is the denial of a subject; whoever waits for that waits no more."""
        denied = denied_subject(failure)
        if denied is None:
            return False
        for scope in [scope for scope, concerns in self._asking.items() if concerns(denied)]:
            scope.cancel()
        return True
