"""`publish`: a file of conversations into the daemon, through its socket, once, however often begun."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memforest.commands.options import with_daemon
from memforest.locomo import read_locomo
from memforest.native import LINE_BYTES_MAX, read_native
from memforest.publishing import ProgressFile, Tally, file_digest, publish, wait_until_built
from memforest.wire import decode_json

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

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
@click.option("--wait-timeout", "wait_timeout_s", type=click.FloatRange(min=0), default=3600.0, hidden=True)
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
    when it is started again.
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
    digest = file_digest(file)
    progress = ProgressFile.beside(
        file, digest=digest, socket_path=client.socket_path, selection=" ".join((form, *sorted(samples)))
    )
    start = 0 if restart else min(progress.load(), total)
    tally = _send(client, records(), progress, start, total, digest[:16])
    progress.remove()
    if wait:
        wait_until_built(client, tally.last_keys, wait_timeout_s)
    open_sessions = _count_open(client, tally) if wait else 0
    _report(screen, tally, start, built=wait, open_sessions=open_sessions)


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


def _send(
    client: Client, records: Iterable[Record], progress: ProgressFile, start: int, total: int, prefix: str
) -> Tally:
    tally = Tally(done=start)
    sent = False
    try:
        with _shown_progress(start, total) as advance:
            for tally in publish(client, records, done=start, id_prefix=prefix):
                progress.save(tally.done)
                advance(tally.done)
        sent = True
    finally:
        if not sent and tally.done:
            click.echo(f"{tally.done} of {total} published; the same command again goes on from there.", err=True)
    return tally


@contextmanager
def _shown_progress(start: int, total: int) -> Generator[Callable[[int], None]]:
    """A bar on a terminal; otherwise a line for each tenth. On standard error both."""
    if not sys.stderr.isatty():
        last = start * 10 // total if total else 0

        def advance(done: int) -> None:
            nonlocal last
            if done * 10 // total > last:
                last = done * 10 // total
                click.echo(f"published {done} of {total}", err=True)

        yield advance
        return
    columns = (TextColumn("Publishing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as bar:
        task = bar.add_task("publish", total=total, completed=start)
        yield lambda done: bar.update(task, completed=done)


def _count_open(client: Client, tally: Tally) -> int:
    """How many sessions of these users go on: the turns of their open chunks are no facts yet."""
    sessions = [each for user_id in tally.last_keys for each in client.sessions(user_id)]
    return sum(each.state == "open" for each in sessions)


def _report(screen: Screen, tally: Tally, start: int, *, built: bool, open_sessions: int) -> None:
    if screen.as_json:
        screen.json(
            {
                "messages": tally.done - start,
                "turns": tally.turns,
                "sessions_closed": tally.sessions_closed,
                "duplicates": tally.duplicates,
                "resumed_from": start,
                "users": sorted(tally.last_keys),
                "built": built,
                "open_sessions": open_sessions,
            }
        )
        return
    parts = [f"Published {tally.turns} turns, closed {tally.sessions_closed} sessions"]
    if tally.duplicates:
        parts.append(f"{tally.duplicates} messages were known already")
    if start:
        parts.append(f"went on after {start} messages")
    screen.line("; ".join(parts) + ("; everything closed is built." if built else "."))
    if built and open_sessions:
        screen.note(
            f"{open_sessions} sessions are open: their last turns become facts once they are closed or quiet."
        )
