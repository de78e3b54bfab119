"""`export`: what a memory holds, written out for use elsewhere."""

from __future__ import annotations

import json
import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from memforest import unit_calls
from memforest.commands.completing import complete_user
from memforest.commands.options import with_daemon
from memforest.output import counted

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator
    from typing import TextIO

    from memforest.client import Client
    from memforest.output import Screen
    from memforest.wire import JsonObject

# Pages are bounded by their texts, too; the daemon ends one sooner.
_PAGE = 200


@click.command()
@click.option(
    "--pairs", type=click.Choice(["merges"]), required=True, help="What is written: members and merged text."
)
@click.option("--user", shell_complete=complete_user, help="Of this user alone; without it, of all.")
@click.option(
    "--out", type=click.Path(dir_okay=False, path_type=Path), help="The file; without it, standard output."
)
@click.option("--extractive", is_flag=True, help="Also texts that no model wrote: members put together by rule.")
@with_daemon
def export(
    client: Client, screen: Screen, pairs: str, user: str | None, out: Path | None, extractive: bool
) -> None:
    """Write what models learn from: JSON lines, one a group.

    Each line has the texts of a group's facts in time order (members), the one text that a model made of them
    (text), the model, and whether it is extractive. IT CONTAINS WHAT PEOPLE SAID: keep the file as safe as the
    store, and write it anew after something was forgotten. With --out it is readable for you alone.
    """
    owners = [user] if user is not None else [each.user_id for each in client.users()]
    written = 0
    with _opened(out) as file:
        for owner in owners:
            for merged in _read(client, owner, extractive=extractive):
                line = {
                    "user_id": owner,
                    **{name: merged[name] for name in ("members", "text", "model", "extractive")},
                }
                file.write(json.dumps(line, ensure_ascii=not out) + "\n")
                written += 1
    if screen.as_json and out is not None:
        screen.json({"pairs": pairs, "written": written, "users": len(owners), "out": str(out)})
    elif out is not None:
        screen.line(f"{counted(written, 'pair')} of {counted(len(owners), 'user')} written to {out}.")


def _read(client: Client, user: str, *, extractive: bool) -> Iterator[JsonObject]:
    """The groups of a user, of which one page is in memory at a time."""
    after: int | None = None
    while True:
        call = unit_calls.merges(user, limit=_PAGE, after=after, extractive=extractive)
        result = client.request(call.method, call.params, repeatable=True)
        page = call.read(result)
        yield from result["merges"]
        # A cursor that stands still would ask for the same page for ever.
        if page.next is None or page.next == after:
            return
        after = page.next


@contextmanager
def _opened(out: Path | None) -> Generator[TextIO]:
    """Standard output, or a file that only its owner reads."""
    if out is None:
        yield sys.stdout
        return
    out.touch(mode=0o600)
    with out.open("w", encoding="utf-8") as file:
        yield file
