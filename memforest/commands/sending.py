"""What `publish` and `import` share: sending with progress, going on, waiting, the summary."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memforest.outcome import Before, NotRecorded, count_known, find_not_recorded, look_before
from memforest.output import counted, tidy
from memforest.publishing import ProgressFile, Tally, file_digest, publish, wait_until_built

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable
    from pathlib import Path

    from memforest.client import Client
    from memforest.native import Record
    from memforest.output import Screen

WAIT_TIMEOUT_S = 3600.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What was sent in this run: `start` messages were confirmed by earlier ones.

    `turns_known`: how many turns were there before, None where that was not looked at.
    """

    tally: Tally
    start: int
    built: bool
    open_sessions: int
    not_recorded: tuple[NotRecorded, ...]
    turns_known: int | None = None


@dataclass(frozen=True, slots=True)
class Waiting:
    """Whether to return only when the memory is built, and how long that may take in seconds."""

    wanted: bool
    timeout_s: float


def send_file(
    client: Client,
    file: Path,
    records: Iterable[Record],
    total: int,
    selection: str,
    waiting: Waiting,
    restart: bool,
    refused: Callable[[Record, str], None] | None = None,
) -> Sent:
    """Send the messages of a file from where an earlier run stopped; `selection` says what is taken of it.

    `refused` is told what the daemon does not take, and why; without it that ends the sending.
    """
    digest = file_digest(file)
    progress = ProgressFile.beside(file, digest=digest, socket_path=client.socket_path, selection=selection)
    start = 0 if restart else min(progress.load(), total)
    before = look_before(client) if waiting.wanted else None
    tally = _send(client, records, progress, start, total, digest[:16], refused)
    progress.remove()
    if before is None:
        return Sent(tally, start, False, 0, ())
    wait_until_built(client, tally, waiting.timeout_s, tell=tell)
    return _look_after(client, tally, start, before)


def _look_after(client: Client, tally: Tally, start: int, before: Before) -> Sent:
    not_recorded = find_not_recorded(client, before, tally.sessions)
    known = count_known(client, before, tally.sessions, tally.turns, not_recorded)
    return Sent(tally, start, True, _count_open(client, tally), not_recorded, known)


def _send(
    client: Client,
    records: Iterable[Record],
    progress: ProgressFile,
    start: int,
    total: int,
    prefix: str,
    refused: Callable[[Record, str], None] | None,
) -> Tally:
    tally = Tally(done=start)
    sent = False
    try:
        with _shown_progress(start, total) as advance:
            for tally in publish(client, records, done=start, id_prefix=prefix, refused=refused):
                progress.save(tally.done)
                advance(tally.done)
        sent = True
    finally:
        if not sent and tally.done:
            click.echo(f"{tally.done} of {total} published; the same command again goes on from there.", err=True)
    return tally


def tell(sentence: str) -> None:
    """A remark while something is waited for, on standard error."""
    click.echo(tidy(sentence), err=True)


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
    """How many of the sessions that were sent go on: the turns of their open chunks are no facts yet.

    Memories alone wait for nothing: they are facts at once.
    """
    if not tally.turns:
        return 0
    return sum(
        each.state == "open" and each.session_id in session_ids
        for user_id, session_ids in tally.sessions.items()
        for each in client.sessions(user_id)
    )


def summary_of(sent: Sent) -> dict[str, object]:
    """What --json prints of a run."""
    tally = sent.tally
    return {
        "messages": tally.done - sent.start,
        "turns": tally.turns,
        "memories": tally.memories,
        "sessions_closed": tally.sessions_closed,
        "duplicates": tally.duplicates,
        "turns_known": sent.turns_known,
        "resumed_from": sent.start,
        "users": sorted(tally.sessions),
        "built": sent.built,
        "open_sessions": sent.open_sessions,
        "not_recorded": [asdict(each) for each in sent.not_recorded],
    }


def show_summary(screen: Screen, sent: Sent) -> None:
    """A sentence for people, and beside it what they should look at."""
    tally = sent.tally
    memories = f"{counted(tally.memories, 'memory')}, " if tally.memories else ""
    closed = counted(tally.sessions_closed, "session")
    parts = [f"Published {memories}{counted(tally.turns, 'turn')}, closed {closed}"]
    if sent.turns_known:
        parts.append(f"known already: {counted(sent.turns_known, 'turn')}")
    elif tally.duplicates:
        parts.append(f"known already: {counted(tally.duplicates, 'message')}")
    if sent.start:
        parts.append(f"went on after {counted(sent.start, 'message')}")
    screen.line("; ".join(parts) + ("; everything closed is built." if sent.built else "."))
    if sent.built and sent.open_sessions:
        screen.note(
            f"Still open: {counted(sent.open_sessions, 'session')}; last turns become facts once a session is "
            "closed or quiet."
        )
    for each in sent.not_recorded:
        screen.note(f"{_sentence_of(each)} (session {each.session_id} of {each.user_id})")


def _sentence_of(each: NotRecorded) -> str:
    if each.why == "forgotten session":
        return "Refused: the session was forgotten, and what is published of it later is not taken"
    if each.why == "conflict":
        turns = counted(each.count or 0, "turn")
        return f"{turns} with the id of another turn and other words: the first one of an id stands"
    return f"Could not be decoded: {counted(each.count or 0, 'message')}; `memforest dlq list` says why"
