"""`compact`: merging what is alike in a memory, seeing beforehand what that would do, and taking it back."""

from __future__ import annotations

import math
import sys
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from memforest import calls, unit_calls
from memforest.client import Client
from memforest.commands.completing import complete_user
from memforest.commands.options import with_daemon
from memforest.errors import MemForestError
from memforest.output import Screen, counted

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from memforest.structures import Apart, Compaction, Undone

# A compaction takes as long as the model takes for its groups; the daemon ends one after an hour at the latest.
COMPACT_WITHIN_S = 3_660.0
# How often it is looked how far a compaction is.
LOOK_EVERY_S = 0.5


@click.command()
@click.argument("groups", nargs=-1, metavar="[GROUP]...")
@click.option("--user", required=True, shell_complete=complete_user, help="Whose memory.")
@click.option(
    "--ratio",
    type=click.FloatRange(0, 1, max_open=True),
    help="The share of nodes to merge away; without it that of the user's policy.",
)
@click.option("--dry-run", is_flag=True, help="Only show what it would do and take; no model is asked.")
@click.option("--undo", is_flag=True, help="Take groups apart again: those named by their ids, else all.")
@click.option("--reindex", is_flag=True, help="Make the units anew first; groups stay.")
@with_daemon
def compact(
    client: Client,
    screen: Screen,
    groups: tuple[str, ...],
    user: str,
    ratio: float | None,
    dry_run: bool,
    undo: bool,
    reindex: bool,
) -> None:
    """Merge what is alike in a user's memory into groups. The words stay.

    Interrupted, the same command goes on from there. What was undone is merged again only when it is asked for.
    """
    if undo and (ratio is not None or dry_run or reindex):
        raise click.UsageError("--undo stands alone: it takes groups apart and merges nothing.")
    if groups and not undo:
        raise click.UsageError("A group is named to be taken apart; say --undo.")
    if undo:
        screen.answer(
            client, unit_calls.undo_compaction(user, groups or None), lambda done: _show_undone(screen, done)
        )
        return
    call = unit_calls.compact(user, ratio, dry_run=dry_run, reindex=reindex)
    patient = Client(client.socket_path, timeout_s=COMPACT_WITHIN_S)
    # Shown when the bar is gone, or the two would write over each other.
    with patient, _watching(client, user, shows=not dry_run):
        result = patient.request(call.method, call.params)
    if screen.as_json:
        screen.json(result)
    else:
        _show(screen, call.read(result))


def _show(screen: Screen, done: Compaction) -> None:
    became = "would become" if done.dry_run else "became"
    loss = "" if done.loss_bound is None else f" Loss bound {done.loss_bound:.4g}."
    screen.line(
        f"{counted(done.facts, 'fact')} in {counted(done.units, 'unit')}: "
        f"{counted(done.nodes_before, 'node')} {became} {done.nodes_after} "
        f"({done.cut:.1%} less, {counted(done.groups, 'group')}).{loss}"
    )
    if done.dry_run and done.calls:
        about = f", about {counted(done.tokens or 0, 'token')} (four characters each)"
        screen.line(f"It would ask the model {counted(done.calls, 'question')}{about}.")
    elif done.dry_run:
        screen.line(
            "It would cost nothing: groups are put together by rule, or their answers are in the log already."
        )
    elif done.calls:
        spent = f" for {counted(done.tokens, 'token')}" if done.tokens else ""
        screen.line(f"Asked the model {counted(done.calls, 'question')}{spent}.")
    if done.extractive:
        screen.line(
            f"{counted(done.extractive, 'group')} put together of the members' own texts, without a model."
        )
    apart = _say_apart(done.apart)
    if apart:
        screen.line(f"By themselves stay: {apart}.")
    if _is_short(done) and not (done.waiting or done.parked):
        screen.line(
            "No merge that is left is allowed: the member cap, or what stays by itself, holds the cut there."
        )
    if done.parked:
        screen.line(f"{counted(done.parked, 'planned group')} given up; see: memforest parked list")
    if done.waiting:
        why = f": {done.waits_for}" if done.waits_for else ""
        screen.line(f"{counted(done.waiting, 'planned group')} left for later{why}. Run it again to go on.")


def _is_short(done: Compaction) -> bool:
    """Whether more nodes stand than the ratio leaves of so many facts, rounded up."""
    return done.ratio is not None and done.nodes_after > math.ceil(round((1 - done.ratio) * done.facts, 9))


def _say_apart(apart: Apart) -> str:
    kinds = (
        (apart.pinned, f"{apart.pinned} pinned"),
        (apart.states, f"{counted(apart.states, 'state')} that may still end"),
        (apart.kinds, f"{apart.kinds} of kinds that are never merged"),
        (apart.young, f"{apart.young} too young"),
    )
    return ", ".join(said for number, said in kinds if number)


def _show_undone(screen: Screen, done: Undone) -> None:
    if not done.groups:
        screen.line("No group to take apart.")
        return
    screen.line(
        f"{counted(done.groups, 'group')} taken apart: {counted(done.facts, 'fact')} stand by themselves again. "
        "The background leaves them so; `memforest compact` merges them again."
    )


@contextmanager
def _watching(client: Client, user: str, *, shows: bool) -> Generator[None]:
    """Show how many of the planned groups are fused while somebody waits for them, on standard error.

    A thread asks, on the connection that is idle meanwhile; that the daemon does not tell is no reason to stop.
    """
    if not shows:
        yield
        return
    over = threading.Event()

    def watch() -> None:
        with _shown_progress() as show:
            while not over.wait(LOOK_EVERY_S):
                try:
                    progress = client.call(calls.status(user)).compaction
                except MemForestError:
                    return
                if progress is not None and progress.groups:
                    show(progress.fused + progress.parked, progress.groups)

    watcher = threading.Thread(target=watch, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        over.set()
        watcher.join(timeout=1)


@contextmanager
def _shown_progress() -> Generator[Callable[[int, int], None]]:
    """A bar on a terminal, which goes when it is over; otherwise a line for each tenth."""
    if not sys.stderr.isatty():
        last = 0

        def tell(done: int, total: int) -> None:
            nonlocal last
            if done * 10 // total > last:
                last = done * 10 // total
                click.echo(f"fused {done} of {total}", err=True)

        yield tell
        return
    columns = (TextColumn("Fusing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as bar:
        task = bar.add_task("fuse", total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)
