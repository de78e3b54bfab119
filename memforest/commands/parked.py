"""`parked`: work that the daemon gave up, and having it tried again."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_parked, complete_user
from memforest.commands.options import with_daemon
from memforest.output import counted

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.origins import Spent
    from memforest.output import Screen
    from memforest.parked import ParkedContent, ParkedPage, ParkedTurn, ParkedWork, Resumed

GONE = "(words erased)"
# Why it was given up, in words; a reason that a newer daemon adds is shown as it is.
REASONS = {
    "model_failed": "the model did not answer, though it answers other questions",
    "answer_invalid": "no answer could be used, also after a repair and in parts",
    "answer_cut": "the model stopped before the end of its answer, also in parts",
    "too_long": "it is longer than the model takes, also in parts",
    "refused": "the model or its filter will not answer it",
}


@click.group()
def parked() -> None:
    """Parked work: what a model was asked for in vain; it waits until it is retried."""


@parked.command(name="list")
@click.argument("user", required=False, shell_complete=complete_user)
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=click.IntRange(0), default=0, help="Where the page before this one ended.")
@with_daemon
def list_parked(client: Client, screen: Screen, user: str | None, limit: int, after: int) -> None:
    """List parked work of USER, or of everybody, newest first."""

    def show(page: ParkedPage) -> None:
        screen.table(
            ("id", "user", "at", "task", "session", "turns", "calls", "tokens", "reason"),
            (
                (
                    one.id,
                    one.user_id,
                    one.at,
                    one.task,
                    one.session_id,
                    _turns(one),
                    *_spent(one.spent),
                    one.reason,
                )
                for one in page.parked
            ),
            empty="Nothing is parked.",
        )
        if page.next is not None:
            screen.note(f"There is more: --after {page.next}")

    screen.answer(client, calls.parked(user, limit=limit, after=after), show)


@parked.command(name="show")
@click.argument("user", shell_complete=complete_user)
@click.argument("work", type=int, shell_complete=complete_parked)
@with_daemon
def show_parked(client: Client, screen: Screen, user: str, work: int) -> None:
    """Show parked WORK of USER with what the model would be asked about. WORK is an id of `parked list`."""

    def show(found: ParkedContent) -> None:
        about = found.parked
        took = counted(about.spent.calls, "call") if about.spent else "no call"
        screen.note(f"{about.task}: {REASONS.get(about.reason, about.reason)} ({took})")
        screen.table(
            ("event", "said", "from", "text"),
            ((one.user_seq, one.said_at, _place(one.source), one.text or GONE) for one in found.asked),
            empty="What it was to be made of is not known.",
        )
        if found.left_off:
            screen.note(f"{found.left_off} more are not shown.")
        screen.note(f"Once the cause is mended: memforest parked retry {shlex.quote(user)} {work}")

    screen.answer(client, calls.parked_work(user, work), show)


@parked.command()
@click.argument("user", required=False, shell_complete=complete_user)
@click.argument("work", type=int, required=False, shell_complete=complete_parked)
@click.option("--all", "everybody", is_flag=True, help="All parked work of all users.")
@with_daemon
def retry(client: Client, screen: Screen, user: str | None, work: int | None, everybody: bool) -> None:
    """Have WORK of USER tried again; without WORK all of USER, with --all that of everybody.

    It waits for the model like any other work. A merge is tried with the next compaction.
    """
    if everybody == (user is not None):
        raise click.UsageError("Say whose work: USER, or --all for everybody's.")

    def show(done: Resumed) -> None:
        pieces = f"{counted(done.resumed, 'piece')} of work"
        screen.line(f"To be tried again: {pieces}." if done.resumed else "Nothing was parked.")

    screen.answer(client, calls.retry_parked(user, work), show)


def _turns(work: ParkedWork) -> tuple[str, ...]:
    return tuple(turn.turn_id or "?" for turn in work.turns)


def _spent(spent: Spent | None) -> tuple[int, int]:
    return (0, 0) if spent is None else (spent.calls, spent.prompt_tokens + spent.completion_tokens)


def _place(turn: ParkedTurn) -> str:
    return "/".join(name for name in (turn.session_id, turn.turn_id) if name)
