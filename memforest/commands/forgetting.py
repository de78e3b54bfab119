"""`forget`, `retract` and `replay`: taking back what was said, and reading it anew."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import warn_of_unknown, with_daemon
from memforest.output import counted

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.forgotten import Preview, Receipt
    from memforest.output import Screen
    from memforest.types import ReplayState, SessionClosed


def _confirm(what: str, *, yes: bool) -> None:
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError("Nobody is here to confirm; say --yes.")
    click.confirm(f"Erase {what} for good?", abort=True, err=True)


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("session", required=False, shell_complete=complete_session)
@click.option("--everything", is_flag=True, help="In place of SESSION: all of USER, the name too.")
@click.option("--dry-run", is_flag=True, help="Only show what would go.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_daemon
def forget(
    client: Client, screen: Screen, user: str, session: str | None, everything: bool, dry_run: bool, yes: bool
) -> None:
    """Erase SESSION of USER and everything derived from it. It cannot be undone."""
    if (session is None) != everything:
        raise click.UsageError("Name a session, or say --everything; not both.")
    if dry_run:
        screen.answer(
            client, calls.preview_forgetting(user, session), lambda preview: _show_preview(screen, preview)
        )
        return
    _confirm(f"everything of {user}" if session is None else f"session {session} of {user}", yes=yes)
    call = calls.forget_user(user) if session is None else calls.forget_session(user, session)
    screen.answer(client, call, lambda receipt: _show_receipt(screen, receipt))


def _show_preview(screen: Screen, preview: Preview) -> None:
    if preview.forgotten_user_seq is not None:
        screen.line(f"Forgotten already, at user_seq {preview.forgotten_user_seq}; nothing more would go.")
        return
    screen.table(("event type", "voided"), tuple(preview.voided.items()), empty="Nothing of it is here.")
    screen.line(
        f"Would go: {counted(preview.events, 'event')}, {counted(preview.dead_letters, 'dead letter')} and "
        f"{counted(preview.bus_messages, 'message')} on the bus. Texts that also hold words of other sessions and "
        f"would be asked of the model again: {preview.summaries_again + preview.groups_again}."
    )


def _show_receipt(screen: Screen, receipt: Receipt) -> None:
    screen.line(
        f"Forgotten at user_seq {receipt.forgotten_user_seq}: {counted(receipt.events_voided, 'event')} voided; "
        f"{counted(receipt.words_erased, 'word')}, {counted(receipt.names_erased, 'name')}, "
        f"{counted(receipt.dead_letters_erased, 'dead letter')} and "
        f"{counted(receipt.bus_messages_erased, 'message')} on the bus erased."
    )
    if receipt.scan_windows:
        screen.line(
            f"{counted(receipt.scanned_files, 'file')} searched for "
            f"{counted(receipt.scan_windows, 'sample')} of it: found {counted(receipt.residues, 'time')}."
        )
    if receipt.bus_messages_left and receipt.bus_left_until is not None:
        until = receipt.bus_left_until.isoformat()
        screen.note(f"The bus keeps {counted(receipt.bus_messages_left, 'message')}, until {until} at the latest.")
    elif receipt.bus_messages_left:
        screen.note(f"Still to be deleted from the bus: {counted(receipt.bus_messages_left, 'message')}.")
    if not receipt.complete:
        waiting = {
            "bus": "the bus is away, or has messages of it that were not read yet",
            "bus_index": "the bus names it in its index for two and a half minutes more",
            "erasing": "copies are still being removed",
            "operator": "files or the bus keep copies, which the daemon's log names",
        }
        why = waiting.get(receipt.waiting_for or "", "see above")
        screen.note(f"Not complete: {why}. Ask again for the receipt.")


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("session", shell_complete=complete_session)
@click.argument("turn")
@click.option("--yes", is_flag=True, help="Do not ask.")
@with_daemon
def retract(client: Client, screen: Screen, user: str, session: str, turn: str, yes: bool) -> None:
    """Take one TURN back, in every revision, with all that was made of it. It cannot be undone."""
    _confirm(f"turn {turn} of session {session} of {user}", yes=yes)

    def show(published: SessionClosed) -> None:
        screen.line(f"Retraction published as message {published.seq} of {published.stream}.")

    warn_of_unknown(client, screen, user, session)
    screen.answer(client, calls.retract_turn(user, session, turn), show)


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("session", shell_complete=complete_session)
@click.option("--dry-run", is_flag=True, help="Only show what it would cost.")
@with_daemon
def replay(client: Client, screen: Screen, user: str, session: str, dry_run: bool) -> None:
    """Extract SESSION of USER again under today's models; the old facts stand until all of it is done."""

    def show(state: ReplayState) -> None:
        if dry_run:
            asked = state.chunks - (state.recorded or 0)
            size = "" if state.prompt_tokens is None else f", about {state.prompt_tokens} tokens of prompts"
            screen.line(
                f"Would ask the model for {asked} of {state.chunks} chunks{size}; "
                f"the answers for {state.recorded or 0} are recorded already. "
                f"{state.characters} characters in all."
            )
        elif state.complete:
            screen.line(f"Extracted again: {state.chunks} chunks.")
        else:
            screen.line(
                f"{state.done} of {state.chunks} chunks are extracted again; it goes on. Ask again to see."
            )

    screen.answer(client, calls.replay_session(user, session, dry_run=dry_run), show)
