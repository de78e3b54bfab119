"""How far a benchmark is, on standard error: a bar on a terminal, else a line for each step and each tenth."""

from __future__ import annotations

import sys
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click
from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from memforest.output import tidy

if TYPE_CHECKING:
    from collections.abc import Generator

    from memforest.bench.flow import Watch


@contextmanager
def shown_progress(done: int, total: int) -> Generator[Watch]:
    """Who is told how far it is; `total` questions in all rows, of which `done` were asked before."""
    if not sys.stderr.isatty():
        yield _Lines(done, total)
        return
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True)) as progress:
        yield _Bar(progress, progress.add_task("", total=total, completed=done))


class _Bar:
    def __init__(self, progress: Progress, task: TaskID) -> None:
        self._progress = progress
        self._task = task
        self._doing = ""

    def doing(self, sentence: str) -> None:
        self._doing = escape(tidy(sentence))
        self._progress.update(self._task, description=self._doing)

    def waiting(self, pending: int) -> None:
        self._progress.update(self._task, description=f"{self._doing}: {pending} pieces of work wait")

    def done(self) -> None:
        self._progress.advance(self._task)


class _Lines:
    def __init__(self, done: int, total: int) -> None:
        self._done = done
        self._total = total

    def doing(self, sentence: str) -> None:
        click.echo(tidy(sentence), err=True)

    def waiting(self, pending: int) -> None:
        """Would be a line each time somebody looks."""

    def done(self) -> None:
        tenth = self._done * 10 // self._total
        self._done += 1
        if self._done * 10 // self._total > tenth:
            click.echo(f"asked {self._done} of {self._total}", err=True)
