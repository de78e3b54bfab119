"""`publish`: a file of conversations into the daemon, through its socket, once, however often begun."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from memforest.commands.options import with_daemon
from memforest.commands.sending import WAIT_TIMEOUT_S, Waiting, send_file, show_summary, summary_of
from memforest.locomo import read_locomo
from memforest.native import LINE_BYTES_MAX, read_native
from memforest.wire import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from memforest.client import Client
    from memforest.native import Record
    from memforest.output import Screen


@click.command(name="publish")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option(
    "--format",
    "form",
    type=click.Choice(["auto", "native", "locomo"]),
    default="auto",
    show_default=True,
    help="native: JSONL, one message a line; locomo: the data set's JSON.",
)
@click.option("--sample", "samples", metavar="ID", multiple=True, help="LoCoMo: only this one; repeatable.")
@click.option("--wait", is_flag=True, help="Return when the memory is built.")
@click.option(
    "--wait-timeout", "wait_timeout_s", type=click.FloatRange(min=0), default=WAIT_TIMEOUT_S, hidden=True
)
@click.option("--restart", is_flag=True, help="Begin anew where an earlier run was interrupted.")
@with_daemon
def publish_file(
    client: Client,
    screen: Screen,
    file: Path,
    form: str,
    samples: tuple[str, ...],
    wait: bool,
    wait_timeout_s: float,
    restart: bool,
) -> None:
    """Publish the conversations of FILE.

    The whole file is checked before anything is sent. An interrupted run goes on where it stopped
    when it is started again. With --wait it also says what was not recorded, and then ends with 1.
    """
    form = form_of(file) if form == "auto" else form
    if samples and form != "locomo":
        raise click.UsageError("--sample is for LoCoMo files.")
    records: Callable[[], Iterable[Record]]
    if form == "locomo":
        conversations = read_locomo(file, samples)
        records, total = (lambda: conversations), len(conversations)
    else:
        # Read twice: once to refuse a bad file before it is half published, once to publish.
        records, total = (lambda: read_native(file)), sum(1 for _ in read_native(file))
    selection = " ".join((form, *sorted(samples)))
    waiting = Waiting(wait, wait_timeout_s)
    sent = send_file(client, file, records(), total, selection, waiting, restart)
    if screen.as_json:
        screen.json(summary_of(sent))
    else:
        show_summary(screen, sent)
    if sent.not_recorded:
        click.get_current_context().exit(1)


def form_of(path: Path) -> str:
    """native or locomo: a JSONL file begins with an object that has a `type`."""
    with path.open("rb") as file:
        first = file.readline(LINE_BYTES_MAX)
        while first and not first.strip():
            first = file.readline(LINE_BYTES_MAX)
    try:
        value = decode_json(first)
    except ValueError:
        # A document over several lines, or one longer than any message; a broken JSONL line is
        # told by the file's name.
        return "native" if path.suffix in (".jsonl", ".ndjson") else "locomo"
    is_locomo = isinstance(value, list) or (isinstance(value, dict) and "conversation" in value)
    return "locomo" if is_locomo else "native"
