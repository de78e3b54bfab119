"""How the command shows things: tables on a terminal, tab-separated lines in a pipe, JSON on demand.

What people said may hold escape sequences; `tidy` takes them out before a terminal sees them.
"""

from __future__ import annotations

import json
import sys
import unicodedata
from dataclasses import dataclass
from datetime import UTC
from functools import cached_property
from typing import TYPE_CHECKING, TypeVar, cast

import click
from rich.console import Console
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence
    from datetime import datetime

    from memforest.client import Client
    from memforest.wire import Call

T = TypeVar("T")


@dataclass(frozen=True)
class Screen:
    """Standard output, in the one form that was asked for."""

    as_json: bool = False

    @cached_property
    def is_terminal(self) -> bool:
        """Someone looks at it; not rich's own idea, which FORCE_COLOR makes true in a pipe."""
        return sys.stdout.isatty()

    def answer(self, client: Client, call: Call[T], show: Callable[[T], None]) -> None:
        """Perform a call and show its result: as the daemon gave it with --json, by `show` otherwise."""
        result = client.request(call.method, call.params, repeatable=call.repeatable)
        if self.as_json:
            self.json(result)
        else:
            show(call.read(result))

    def json(self, value: object) -> None:
        """One JSON document; ASCII only, so that no terminal or locale can spoil it."""
        click.echo(json.dumps(value, indent=2 if self.is_terminal else None))

    def table(self, columns: Sequence[str], rows: Iterable[Sequence[object]], *, empty: str) -> None:
        """A table for people; in a pipe one line a row, cells between tabs, no header.

        `empty` is the sentence for people when there are no rows; columns with nothing in them are left out.
        """
        cells = [[shown(cell, people=self.is_terminal) for cell in row] for row in rows]
        if not self.is_terminal:
            for row in cells:
                click.echo("\t".join(" ".join(cell.split()) for cell in row))
            return
        if not cells:
            click.echo(empty)
            return
        filled = [any(column) for column in zip(*cells, strict=True)]
        columns = [column for column, is_filled in zip(columns, filled, strict=True) if is_filled]
        cells = [[cell for cell, is_filled in zip(row, filled, strict=True) if is_filled] for row in cells]
        table = Table(box=None, header_style="bold", padding=(0, 2, 0, 0))
        for column, first in zip(columns, cells[0], strict=True):
            is_number = first.replace(".", "", 1).isdigit()
            is_id = column == "id"  # It is copied in one piece.
            table.add_column(column, justify="right" if is_number else "left", overflow="fold", no_wrap=is_id)
        # The last column is the text: short columns beside it must not squeeze it to a ribbon.
        console = Console(highlight=False)
        others = sum(max(map(len, column)) + 2 for column in list(zip(columns, *cells, strict=True))[:-1])
        room = console.width - others
        if room > 0:
            table.columns[-1].min_width = min(40, room, max(len(row[-1]) for row in cells))
        for row in cells:
            table.add_row(*(Text(cell) for cell in row))
        console.print(table)

    def passages(self, rows: Iterable[tuple[str, Sequence[object]]], *, empty: str) -> None:
        """Numbered texts with their details underneath, for people; in a pipe a `table` of both."""
        if not self.is_terminal:
            numbered = ((n, *details, text) for n, (text, details) in enumerate(rows, start=1))
            self.table((), numbered, empty=empty)
            return
        console = Console(highlight=False)
        number = 0
        for number, (text, details) in enumerate(rows, start=1):
            grid = Table.grid(padding=(0, 1))
            grid.add_row(Text(f"{number:>2}", style="bold"), Text(tidy(text)))
            below = filter(None, (shown(one, people=True) for one in details))
            grid.add_row("", Text(" · ".join(below), style="dim"))
            console.print(grid)
        if not number:
            click.echo(empty)

    def row(self, depth: int, cells: Sequence[object]) -> None:
        """One line of an indented tale, its last cell the text; in a pipe the depth is the first cell.

        For people the text stands under its details, folded to the terminal; empty cells are left out.
        """
        if not self.is_terminal:
            flat = (" ".join(shown(cell, people=False).split()) for cell in cells)
            click.echo("\t".join((str(depth), *flat)))
            return
        *details, text = (shown(cell, people=True) for cell in cells)
        console = Console(highlight=False)
        indent = (0, 0, 0, 2 * depth)
        console.print(Padding(Text(" · ".join(filter(None, details)), style="dim" if depth else "bold"), indent))
        if text:
            console.print(Padding(Text(text), (0, 0, 0, 2 * depth + 2)))

    def interval(self, start: datetime | None, end: datetime | None) -> str:
        """A stretch of time as one cell: an instant when it has no length; in a pipe as ISO 8601 has it.

        For people whole days are days, without their hours.
        """
        ends = [shown(at, people=self.is_terminal) for at in (start, end) if at is not None]
        if self.is_terminal and len(ends) == 2 and (ends[0][10:], ends[1][10:]) == (" 00:00", " 23:59"):
            ends = [each[:10] for each in ends]
        return (" to " if self.is_terminal else "/").join(dict.fromkeys(ends))

    def until(self, end: datetime | None) -> str:
        """When something ended, as one cell: for people a day where it ended between two days."""
        return shown(end, people=self.is_terminal).removesuffix(" 00:00")

    def line(self, sentence: str) -> None:
        """One plain line of result."""
        click.echo(tidy(sentence))

    def note(self, sentence: str) -> None:
        """A remark beside the result, on standard error so that pipes stay clean."""
        click.echo(tidy(sentence), err=True)


def shown(value: object, *, people: bool) -> str:
    """One cell as text: nothing for None, minutes in UTC for people and ISO 8601 in a pipe."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:.4g}"
    if hasattr(value, "isoformat"):
        when = cast("datetime", value).astimezone(UTC)
        return when.strftime("%Y-%m-%d %H:%M") if people else when.isoformat().replace("+00:00", "Z")
    if isinstance(value, tuple):
        return ", ".join(shown(item, people=people) for item in cast("tuple[object, ...]", value))
    return tidy(str(value))


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where that is right: 1 turn, 2 turns, 2 memories."""
    if number == 1:
        return f"1 {noun}"
    return f"{number} {noun[:-1]}ies" if noun.endswith("y") else f"{number} {noun}s"


def tidy(text: str) -> str:
    """The text without control and direction characters, which could rewrite what a terminal shows."""
    return "".join(
        char if char in "\n\t" or not _acts_on_terminal(char) else "\N{REPLACEMENT CHARACTER}" for char in text
    )


def _acts_on_terminal(char: str) -> bool:
    return (
        unicodedata.category(char) in ("Cc", "Cs")
        or char in "\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069"
    )


def flatten(value: object, name: str = "") -> Iterator[tuple[str, object]]:
    """Nested JSON objects as (dotted name, value) pairs; a list is its JSON."""
    if isinstance(value, dict):
        for key, part in cast("dict[str, object]", value).items():
            yield from flatten(part, f"{name}.{key}" if name else key)
    else:
        yield name, json.dumps(value, ensure_ascii=False) if isinstance(value, list) else value
