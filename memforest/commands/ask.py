"""`query` and `users`: reading, which changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memforest import calls
from memforest.commands.answer_view import NOBODY, is_unknown, show_answer, show_explanation
from memforest.commands.completing import complete_user
from memforest.commands.filtering import with_filters
from memforest.commands.options import with_daemon
from memforest.output import Screen, counted, tidy

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.types import Answer, User


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("question")
@click.option("-k", type=click.IntRange(min=1), help="How many memories; 10, or with --max-tokens what fits.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Bound of the context, in tokens.")
@click.option("--mode", type=click.Choice(["agpr", "flat"]), help="flat ranks by words and vectors alone.")
@with_filters
@click.option("--valid-at", metavar="TIME", help="Only what was true at this date, or time with its offset.")
@click.option("--between", nargs=2, metavar="FROM TO", help="Only what was true in between; TO is not included.")
@click.option("--as-of", metavar="USER_SEQ|TIME", help="Ask what was known then; a time with its offset.")
@click.option("--wait-for", metavar="KEY|SEQ", help="First wait until this event is in the memory.")
@click.option("--open-groups", is_flag=True, help="Show the facts inside groups, too.")
@click.option("--context", is_flag=True, help="Print the prompt-ready text instead of the list.")
@click.option("--explain", is_flag=True, help="Show how the answer came about.")
@with_daemon
def query(
    client: Client,
    screen: Screen,
    user: str,
    question: str,
    *,
    wait_for: str | None,
    as_of: str | None,
    open_groups: bool,
    context: bool,
    explain: bool,
    **more: Any,
) -> None:
    """Ask USER's memory a QUESTION."""

    def show(answer: Answer) -> None:
        if context:
            screen.line(answer.context)
        elif answer.explanation is None or screen.is_terminal:  # in a pipe every line is of one kind
            show_answer(screen, answer)
        if answer.explanation is not None:
            show_explanation(screen, answer.explanation)
        _remark(screen, answer, past=as_of is not None)

    call = calls.query(
        user,
        question,
        wait_for=_position(wait_for),
        as_of=_position(as_of),
        open_groups=open_groups or None,
        explain=explain or None,
        **more,
    )
    screen.answer(client, call, show)


def _position(given: str | None) -> str | int | None:
    """All digits are a user_seq, anything else is a key or an instant."""
    return int(given) if given and given.isascii() and given.isdecimal() else given


def _remark(screen: Screen, answer: Answer, *, past: bool) -> None:
    """What has to be known beside the answer."""
    mark = answer.watermark
    if is_unknown(answer) and not past:
        screen.note(NOBODY)
    elif answer.insufficient and answer.memories:
        screen.note("Perhaps none of this answers it.")
    for space in answer.spaces or ():
        if not (space.reached or space.ours) and space.memories:
            model = space.model or "a model without a name"
            screen.note(f"By words alone: {counted(space.memories, 'memory')} with vectors of {tidy(model)}.")
    if answer.redacted:
        screen.note(f"The words of {answer.redacted} events before are gone.")
    if not mark.is_current and not past:
        screen.note(f"Still being built: {mark.pending} pieces of work wait, {mark.lag_s:.1f} s behind.")


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
