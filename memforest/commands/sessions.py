"""`sessions` and `close`: what is kept, session by session."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import warn_of_unknown, with_daemon

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.output import Screen
    from memforest.types import Session, SessionClosed


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("session", required=False, shell_complete=complete_session)
@with_daemon
def sessions(client: Client, screen: Screen, user: str, session: str | None) -> None:
    """List USER's sessions, or show one SESSION."""

    def show(found: tuple[Session, ...]) -> None:
        screen.table(
            (
                *("session", "state", "turns", "first", "last", "chunks", "waiting", "facts", "bytes"),
                *("no facts", "calls", "tokens", "cost"),
            ),
            (
                (
                    *(one.session_id, one.state, one.turns, one.first_at, one.last_at),
                    *(one.chunks, one.waiting_chunks, one.facts, one.bytes),
                    *(one.zero_chunks, one.model_calls, one.tokens, one.cost),
                )
                for one in found
            ),
            empty="No session of this user yet.",
        )

    if session is None:
        screen.answer(client, calls.sessions(user), show)
    else:
        screen.answer(client, calls.session(user, session), lambda one: show((one,)))


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("session", shell_complete=complete_session)
@with_daemon
def close(client: Client, screen: Screen, user: str, session: str) -> None:
    """Say that SESSION of USER is over, so that its memory is built now."""

    def show(closed: SessionClosed) -> None:
        screen.line(f"Closing published as message {closed.seq} of {closed.stream}.")

    warn_of_unknown(client, screen, user, session)
    screen.answer(client, calls.close_session(user, session), show)
