"""`query`, `users` and `status`: reading, which changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.options import with_daemon
from memforest.output import Screen, flatten

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.types import Answer, Status, User


@click.command()
@click.argument("user")
@click.argument("question")
@click.option("-k", type=click.IntRange(min=1), help="How many memories; 10, or with --max-tokens what fits.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Bound of the context, in tokens.")
@click.option("--wait-for", metavar="KEY|SEQ", help="First wait until this event is in the memory.")
@click.option("--as-of", metavar="USER_SEQ|TIME", help="Ask what was known then; a time with its offset.")
@click.option("--context", is_flag=True, help="Print the prompt-ready text instead of the list.")
@with_daemon
def query(
    client: Client,
    screen: Screen,
    user: str,
    question: str,
    k: int | None,
    max_tokens: int | None,
    wait_for: str | None,
    as_of: str | None,
    context: bool,
) -> None:
    """Ask USER's memory a QUESTION."""
    event = int(wait_for) if wait_for and wait_for.isdecimal() else wait_for
    position = int(as_of) if as_of and as_of.isdecimal() else as_of

    def show(answer: Answer) -> None:
        if context:
            screen.line(answer.context)
        else:
            _show_memories(screen, answer)
        mark = answer.watermark
        if answer.redacted:
            screen.note(f"The words of {answer.redacted} events before are gone.")
        if not mark.is_current and as_of is None:
            screen.note(f"Still being built: {mark.pending} pieces of work wait, {mark.lag_s:.1f} s behind.")

    call = calls.query(user, question, k=k, max_tokens=max_tokens, wait_for=event, as_of=position)
    screen.answer(client, call, show)


def _show_memories(screen: Screen, answer: Answer) -> None:
    screen.passages(
        (
            (memory.text, (memory.score, memory.said_at, memory.kind, memory.sessions))
            for memory in answer.memories
        ),
        empty="Nothing is remembered that answers this.",
    )


@click.command()
@with_daemon
def users(client: Client, screen: Screen) -> None:
    """List everyone a memory is kept for."""

    def show(found: tuple[User, ...]) -> None:
        screen.table(
            ("user", "sessions", "turns", "user_seq"),
            ((user.user_id, user.sessions, user.turns, user.user_seq) for user in found),
            empty="No user yet. `memforest publish FILE` brings conversations in.",
        )

    screen.answer(client, calls.users(), show)


@click.command()
@click.option("--user", help="Also show how far this user's memory is built.")
@with_daemon
def status(client: Client, screen: Screen, user: str | None) -> None:
    """Show how the daemon is."""

    def show(report: Status) -> None:
        rows = list(flatten(report.sections))
        if (mark := report.watermark) is not None:
            rows += [
                ("watermark.user_seq", mark.user_seq),
                ("watermark.projected_user_seq", mark.projected_user_seq),
                ("watermark.pending", mark.pending),
                ("watermark.lag_s", mark.lag_s),
            ]
        screen.table(("what", "is"), rows, empty="The daemon says nothing of itself.")

    screen.answer(client, calls.status(user), show)
