"""`add`: one thing that was said, from the command line over the bus into the memory."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import click

from memforest import adding
from memforest.commands.completing import complete_session, complete_user
from memforest.commands.options import with_daemon
from memforest.commands.sending import WAIT_TIMEOUT_S
from memforest.publishing import Tally, wait_until_built

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memforest.client import Client
    from memforest.output import Screen

# As long as a message on the bus may be.
TEXT_BYTES_MAX = 1 << 20


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("text")
@click.option(
    "--session", shell_complete=complete_session, help="Which session; otherwise that of the day in UTC."
)
@click.option("--role", default="user", show_default=True, help="Who speaks: user, assistant, system or tool.")
@click.option("--name", help="The speaker's name.")
@click.option("--at", metavar="TIME", help="When it was said, in ISO 8601 with its offset; otherwise now.")
@click.option("--id", "turn_id", help="The turn's id: a second time with the same one it is kept once.")
@click.option(
    "--metadata",
    multiple=True,
    metavar="NAME=VALUE",
    help="Goes with it, for `query --metadata`; can be repeated.",
)
@click.option("--wait", is_flag=True, help="Return when it can be asked for and nothing of USER waits.")
@with_daemon
def add(
    client: Client,
    screen: Screen,
    user: str,
    text: str,
    session: str | None,
    role: str,
    name: str | None,
    at: str | None,
    turn_id: str | None,
    metadata: Sequence[str],
    wait: bool,
) -> None:
    """Add TEXT, which USER's memory is to know, as one turn of a session; `-` reads standard input."""
    said = _read_standard_input() if text == "-" else text
    if not said.strip():
        raise click.UsageError("There is nothing to add.")
    session = session or adding.day_of(None if at is None else adding.read_instant(at))
    call = adding.add(
        user,
        said,
        session_id=session,
        role=role,
        name=name,
        at=at,
        turn_id=turn_id,
        metadata=_read_metadata(metadata),
    )
    result = client.request(call.method, call.params, repeatable=call.repeatable)
    published = call.read(result)
    if wait:
        sent = Tally(last_keys={user: published.keys[-1]}, last_seq=published.seq)
        wait_until_built(client, sent, WAIT_TIMEOUT_S, tell=screen.note)
    if screen.as_json:
        sent = call.params["messages"][0]
        screen.json({**result["published"][0], "session_id": session, "turn_id": sent["id"], "built": wait})
        return
    turn = f"Turn {call.params['messages'][0]['id']} of session {session} of {user}"
    screen.line(
        f"{turn} was known already."
        if published.duplicate
        else f"{turn} added: message {published.seq} of {published.stream}."
    )


def _read_metadata(given: Sequence[str]) -> dict[str, object]:
    """The texts by name; several for one name become a list."""
    values: dict[str, list[str]] = {}
    for each in given:
        name, equals, text = each.partition("=")
        if not name or not equals:
            raise click.BadParameter("is a name and a value: channel=email", param_hint="--metadata")
        values.setdefault(name, []).append(text)
    return {name: texts[0] if len(texts) == 1 else texts for name, texts in values.items()}


def _read_standard_input() -> str:
    raw = sys.stdin.buffer.read(TEXT_BYTES_MAX + 1)
    if len(raw) > TEXT_BYTES_MAX:
        raise click.UsageError(f"A turn has at most {TEXT_BYTES_MAX} bytes; `memforest import` takes files.")
    try:
        return raw.decode("utf-8-sig").strip()
    except UnicodeDecodeError:
        raise click.UsageError("Standard input is not text in UTF-8.") from None
