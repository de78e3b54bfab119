"""`sessions`, `close` and `compact`: what is kept, and making it less."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import warn_of_unknown, with_daemon
from memforest.output import counted

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.output import Screen
    from memforest.structures import Compaction
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


@click.command()
@click.option("--user", required=True, shell_complete=complete_user, help="Whose memory.")
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1, min_open=True, max_open=True),
    default=0.5,
    show_default=True,
    help="The share of nodes to merge away.",
)
@with_daemon
def compact(client: Client, screen: Screen, user: str, ratio: float) -> None:
    """Merge what is alike in a user's memory into groups. The words stay."""

    def show(done: Compaction) -> None:
        loss = "" if done.loss_bound is None else f" Loss bound {done.loss_bound:.4g}."
        screen.line(
            f"{counted(done.facts, 'fact')} in {counted(done.units, 'unit')}: "
            f"{counted(done.nodes_before, 'node')} became {done.nodes_after} "
            f"({done.cut:.1%} less, {counted(done.groups, 'group')}).{loss}"
        )
        if done.parked:
            screen.line(f"{counted(done.parked, 'planned group')} given up; see: memforest parked list")
        if done.waiting:
            why = f": {done.waits_for}" if done.waits_for else ""
            screen.line(f"{counted(done.waiting, 'planned group')} left for later{why}. Run it again to go on.")

    screen.answer(client, calls.compact(user, ratio), show)
