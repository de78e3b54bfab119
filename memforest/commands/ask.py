"""`query` and `users`: reading, which changes nothing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from memforest import calls, query_calls
from memforest.commands.answer_view import NOBODY, NOBODY_THEN, is_unknown, show_answer, show_explanation
from memforest.commands.completing import complete_user
from memforest.commands.deep import show_taken, why_not_deep, with_deep
from memforest.commands.filtering import with_filters
from memforest.commands.in_words import show_in_words, why_unanswered
from memforest.commands.options import with_daemon
from memforest.output import Screen, counted, tidy

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.types import Answer, User

MODES = ("agpr", "flat", "forest", "roots", "deep", "auto")
FAMILIES = ("session", "entity", "scene")


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("question")
@click.option("-k", type=click.IntRange(min=1), help="How many memories; 10, or with --max-tokens what fits.")
@click.option("--max-tokens", type=click.IntRange(min=1), help="Bound of the context, in tokens.")
@click.option("--mode", type=click.Choice(MODES), help="How memories are found; agpr, unless you say otherwise.")
@click.option(
    "--family", "families", multiple=True, type=click.Choice(FAMILIES), help="Of the trees to recall; all."
)
@click.option("--vectors/--no-vectors", default=None, help="Rank by words alone, as if nothing had a vector.")
@with_deep
@with_filters
@click.option("--valid-at", metavar="TIME", help="Only what was true at this date, or time with its offset.")
@click.option("--between", nargs=2, metavar="FROM TO", help="Only what was true in between; TO is not included.")
@click.option("--as-of", metavar="USER_SEQ|TIME", help="Ask what was known then; a time with its offset.")
@click.option("--reference-date", metavar="TIME", help='What "last week" in the question counts from; today.')
@click.option("--wait-for", metavar="KEY|SEQ", help="First wait until this event is in the memory.")
@click.option("--open-groups", is_flag=True, help="Show the facts inside groups, too.")
@click.option("--answer", "in_words", is_flag=True, help="Have the language model write the answer.")
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
    in_words: bool,
    families: tuple[str, ...],
    **more: Any,
) -> None:
    """Ask USER's memory a QUESTION."""

    def show(answer: Answer) -> None:
        if answer.answer is not None or answer.abstained:
            show_in_words(screen, answer)
        elif context:
            screen.line(answer.context)
        elif answer.explanation is None or screen.is_terminal:  # in a pipe every line is of one kind
            show_answer(screen, answer)
        if answer.explanation is not None:
            show_explanation(screen, answer.explanation)
            show_taken(screen, answer)
        _remark(screen, answer, past=as_of is not None)

    call = query_calls.query(
        user,
        question,
        wait_for=_position(wait_for),
        as_of=_position(as_of),
        open_groups=open_groups or None,
        explain=explain or None,
        answer=in_words or None,
        families=families or None,
        **more,
    )
    screen.answer(client, call, show)


def _position(given: str | None) -> str | int | None:
    """All digits are a user_seq, anything else is a key or an instant."""
    return int(given) if given and given.isascii() and given.isdecimal() else given


def _remark(screen: Screen, answer: Answer, *, past: bool) -> None:
    """What has to be known beside the answer."""
    mark = answer.watermark
    if is_unknown(answer) and not answer.abstained:
        screen.note(NOBODY_THEN if past else NOBODY)
    elif answer.insufficient and answer.memories and answer.answer is None and not answer.abstained:
        screen.note("Perhaps none of this answers it.")
    if answer.unanswered is not None:
        screen.note(why_unanswered(answer.unanswered))
    for sentence in why_not_deep(answer):
        screen.note(sentence)
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
