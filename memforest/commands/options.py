"""What every command shares: how it finds the daemon, and what its output looks like."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from memforest import calls
from memforest.client import Client
from memforest.errors import NotFound
from memforest.output import Screen

if TYPE_CHECKING:
    from collections.abc import Callable

# A forget or a compaction of a large memory takes minutes; whoever waits can interrupt.
TIMEOUT_S = 600.0


def with_daemon(function: Callable[..., None]) -> Callable[..., None]:
    """Add --socket and --json, and hand the command a `Client` and a `Screen` before its own values."""

    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON.")
    @click.option(
        "--socket",
        metavar="PATH",
        help="The daemon's socket; otherwise $MEMFOREST_SOCKET_PATH or the usual places.",
    )
    @wraps(function)
    def command(socket: str | None, as_json: bool, **given: Any) -> None:
        with Client(socket, timeout_s=TIMEOUT_S) as client:
            function(client, Screen(as_json), **given)

    return command


def warn_of_unknown(client: Client, screen: Screen, user: str, session: str) -> None:
    """Say that a name which is about to go over the bus is new: a typing error would make a session of it."""
    try:
        client.call(calls.session(user, session))
    except NotFound:
        screen.note(f"No session {session} of {user} is known; this makes one of that name.")
