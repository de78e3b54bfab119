"""`diff`: what a memory learned, and what it no longer knows, between two positions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.options import with_daemon
from memforest.output import counted, shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from memforest.client import Client
    from memforest.output import Screen
    from memforest.past import Difference, StateEnded

GONE = "(words erased)"


@click.command()
@click.argument("a")
@click.argument("b", required=False)
@click.option("--user", required=True, help="Whose memory.")
@with_daemon
def diff(client: Client, screen: Screen, a: str, b: str | None, user: str) -> None:
    """Show what the memory knew at B (now, unless given) and not at A, and the other way round.

    A position is a user_seq, or a time in ISO 8601 with its offset: 2024-07-01T09:00:00Z.
    """

    def show(difference: Difference) -> None:
        screen.table(
            ("", "what", "id", "text"),
            _rows(difference),
            empty=f"The same is known at {difference.a} and at {difference.b}.",
        )
        if difference.left_off:
            screen.note(f"Not shown: {difference.left_off} more; take positions that are closer together.")
        if difference.redacted:
            screen.note(f"Without its words by now: {counted(difference.redacted, 'event')} before.")

    screen.answer(client, calls.diff(user, read_position(a), None if b is None else read_position(b)), show)


def _until(state: StateEnded, texts: Mapping[str, str | None]) -> str:
    """When a state ended, and by what: in its words where they are at hand."""
    until = f"until {shown(state.until, people=True)[:10]}" if state.until else "until it ended"
    if state.by is None:
        return until
    said = texts.get(state.by)
    return f'{until}, by "{said}"' if said else f"{until}, by {state.by}"


def read_position(text: str) -> int | str:
    """A user_seq when it is a number, otherwise an instant, which the daemon reads."""
    return int(text) if text.isascii() and text.isdecimal() else text


def _rows(difference: Difference) -> Iterator[tuple[str, str, str, str]]:
    yield from (("+", "fact", fact.id, fact.text or GONE) for fact in difference.came)
    yield from (("-", "fact", fact.id, fact.text or GONE) for fact in difference.went)
    for fact in difference.changed:
        if fact.text_before != fact.text:
            yield "-", "fact", fact.id, fact.text_before or GONE
            yield "+", "fact", fact.id, fact.text or GONE
        else:
            read = f"read {counted(fact.occurrences, 'time')}, {fact.occurrences_before} before"
            yield "~", "fact", fact.id, f"{fact.text or GONE} ({read})"
    for scope in difference.scopes:
        moved = f"{counted(len(scope.joined), 'fact')} joined, {len(scope.left)} left"
        yield "~", scope.kind, scope.scope, f"{scope.name}: {moved}" if scope.name else moved
    texts = {fact.id: fact.text for fact in difference.came} | {fact.id: fact.text for fact in difference.changed}
    for state in difference.ended:
        yield "~", "ended", state.id, f"{state.text or GONE} ({_until(state, texts)})"
    yield from (("~", "holds again", fact.id, fact.text or GONE) for fact in difference.standing)
    yield from (("+", "group", group.id, group.text or GONE) for group in difference.groups_made)
    yield from (("-", "group", group.id, group.text or GONE) for group in difference.groups_undone)
