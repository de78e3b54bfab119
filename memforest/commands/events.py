"""`events`: everything that happened in and because of a session, and what is happening now."""

from __future__ import annotations

import json
import time
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import with_daemon
from memforest.errors import InvalidInput, NotFound
from memforest.output import shown, tidy

if TYPE_CHECKING:
    from collections.abc import Callable

    from memforest.client import Client
    from memforest.output import Screen
    from memforest.past import SessionEvent
    from memforest.wire import JsonObject

# The daemon holds a question for so long when nothing new is there (its own bound is 30 s).
FOLLOW_S = 25.0
_PAGE = 500
# How often it is looked whether a session has begun.
LOOK_AGAIN_S = 0.5
# Nothing else runs in this process meanwhile.
_pause: Callable[[float], None] = time.sleep
# Without --user every user is asked for the session; of more the owner must be named.
USERS_ASKED_MAX = 100


@click.command()
@click.option("--session", "session", required=True, shell_complete=complete_session, help="Which session.")
@click.option(
    "--user",
    shell_complete=complete_user,
    help="Whose session; found by itself when only one user has one of this id.",
)
@click.option("--after", type=click.IntRange(0), default=0, help="Only events behind this user_seq.")
@click.option("--follow", is_flag=True, help="Go on with what comes, until interrupted.")
@with_daemon
def events(client: Client, screen: Screen, session: str, user: str | None, after: int, follow: bool) -> None:
    """Show what happened in and because of a session: turns, extractions, summaries, decisions.

    One event a line; with --json one object a line. With --follow a session that has not begun is waited for.
    """
    owner, told = user, False
    try:
        while True:
            try:
                owner = owner or _find_owner(client, session)
                wait_s = FOLLOW_S if follow else None
                call = calls.session_events(owner, session, after=after, limit=_PAGE, wait_s=wait_s)
                result = client.request(call.method, call.params, repeatable=True)
            except NotFound:
                if not follow:
                    raise
                if not told:
                    screen.note("This session has not begun; waiting for it.")
                told = True
                _pause(LOOK_AGAIN_S)
                continue
            page = call.read(result)
            for raw, event in zip(result["events"], page.events, strict=True):
                _show(screen, raw, event)
            # A cursor that stands still would ask for the same page for ever.
            if not follow and (not page.more or page.next <= after):
                return
            after = max(after, page.next)
    except KeyboardInterrupt:
        if not follow:
            raise


def _find_owner(client: Client, session: str) -> str:
    """The one user who has a session of this id; raises NotFound or InvalidInput."""
    users = client.call(calls.users())
    if len(users) > USERS_ASKED_MAX:
        raise InvalidInput("There are many users; say with --user whose session it is.")
    found: list[str] = []
    for user in users:
        try:
            client.call(calls.session(user.user_id, session))
        except NotFound:
            continue
        found.append(user.user_id)
    if not found:
        raise NotFound("No user has a session of this id.")
    if len(found) > 1:
        raise InvalidInput("Several users have a session of this id; say with --user whose it is.")
    return found[0]


def _show(screen: Screen, raw: JsonObject, event: SessionEvent) -> None:
    """Written out at once, so that whoever follows through a pipe sees it now."""
    if screen.as_json:
        click.echo(json.dumps(raw))
        return
    people = screen.is_terminal
    numbers = " ".join(f"{name}={_shorten(value, people=people)}" for name, value in event.what.items())
    text = "(words erased)" if event.words == "erased" else " / ".join((event.text or "").split("\n"))
    cells = (event.user_seq, event.at, event.type, numbers, text)
    gap = "  " if people else "\t"
    click.echo(
        gap.join(
            " ".join(shown(tidy(cell) if isinstance(cell, str) else cell, people=people).split()) for cell in cells
        )
    )


def _shorten(value: object, *, people: bool) -> str:
    """Ids are for programs: people see how they begin."""
    text = str(value)
    return f"{text[:8]}…" if people and isinstance(value, str) and len(text) > 24 else text
