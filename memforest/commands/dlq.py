"""`dlq`: what the daemon could not decode, and what to do with it."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.options import with_daemon

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.dead_letters import LetterContent, LetterDropped, LetterPage, LetterRetried
    from memforest.output import Screen


@click.group()
def dlq() -> None:
    """Dead letters: messages that could not be decoded, kept byte for byte with the reason."""


@dlq.command(name="list")
@click.option("--limit", type=click.IntRange(1, 1000), default=100, show_default=True, help="How many.")
@click.option("--after", type=click.IntRange(0), default=0, help="Only letters with a larger id.")
@with_daemon
def list_letters(client: Client, screen: Screen, limit: int, after: int) -> None:
    """List dead letters, oldest first."""

    def show(page: LetterPage) -> None:
        screen.table(
            ("id", "received", "stream", "user", "session", "bytes", "reason"),
            (
                (one.id, one.received_at, one.stream, one.user_id, one.session_id, one.bytes, one.reason)
                for one in page.dead_letters
            ),
            empty="No dead letters.",
        )
        if page.next is not None:
            screen.note(f"There are more: --after {page.next}")

    screen.answer(client, calls.dead_letters(limit=limit, after=after), show)


@dlq.command(name="show")
@click.argument("letter", type=int)
@with_daemon
def show_letter(client: Client, screen: Screen, letter: int) -> None:
    """Show dead LETTER with its content."""

    def show(content: LetterContent) -> None:
        screen.note(f"{content.letter.subject}: {content.letter.reason} ({content.encoding})")
        screen.line(content.payload)

    screen.answer(client, calls.dead_letter(letter), show)


@dlq.command()
@click.argument("letter", type=int)
@with_daemon
def retry(client: Client, screen: Screen, letter: int) -> None:
    """Decode LETTER again, as today's release does, and record what it says."""

    def show(done: LetterRetried) -> None:
        screen.line(f"Letter {done.id}: {done.recorded} recorded, {done.other} not new.")

    screen.answer(client, calls.retry_letter(letter), show)


@dlq.command()
@click.argument("letter", type=int)
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_daemon
def drop(client: Client, screen: Screen, letter: int, yes: bool) -> None:
    """Erase LETTER's content for good."""
    if not yes:
        if not sys.stdin.isatty():
            raise click.UsageError("Nobody is here to confirm; say --yes.")
        click.confirm(f"Erase dead letter {letter} for good?", abort=True, err=True)

    def show(done: LetterDropped) -> None:
        screen.line(f"Letter {done.dropped} is gone.")

    screen.answer(client, calls.drop_letter(letter), show)
