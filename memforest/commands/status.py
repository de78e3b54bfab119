"""`status`: how the daemon is, a line for each part."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import click

from memforest import calls
from memforest.commands.completing import complete_user
from memforest.commands.options import with_daemon
from memforest.output import flatten, shown

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.client import Client
    from memforest.output import Screen
    from memforest.types import Status

_SIZES = ("bytes", "KiB", "MiB", "GiB", "TiB")


@click.command()
@click.option("--user", shell_complete=complete_user, help="Also show how far this user's memory is built.")
@with_daemon
def status(client: Client, screen: Screen, user: str | None) -> None:
    """Show how the daemon is. In a pipe one value a line, named as the daemon names it."""

    def show(report: Status) -> None:
        sections: dict[str, object] = dict(report.sections)
        if (mark := report.watermark) is not None:
            sections["watermark"] = {
                "user_seq": mark.user_seq,
                "projected_user_seq": mark.projected_user_seq,
                "pending": mark.pending,
                "lag_s": mark.lag_s,
            }
        if screen.is_terminal:
            if mark is not None and not mark.pending:
                sections.pop("waits", None)
            lines = [
                line
                for name, part in sections.items()
                # A list of parts, the other streams, has a line for each.
                for each in (cast("list[object]", part) if isinstance(part, list) else [part])
                for line in _lines(each, name)
            ]
            width = max((len(name) for name, _ in lines), default=0)
            for name, phrases in lines:
                screen.line(f"{name:<{width}}  {' · '.join(phrases)}")
        else:
            screen.table(("what", "is"), tuple(flatten(sections)), empty="The daemon says nothing of itself.")

    screen.answer(client, calls.status(user), show)


def _lines(part: object, name: str) -> Iterator[tuple[str, list[str]]]:
    """The lines of a section, each with its name: first its own values, then those of each part in it.

    Left out are values that are empty, and parts in which nothing has happened yet.
    """
    if not isinstance(part, dict):
        return
    values = cast("dict[str, object]", part)
    phrases = [_phrase(key, value) for key, value in values.items() if _says_something(value)]
    if phrases:
        yield name, phrases
    for key, value in values.items():
        if isinstance(value, dict) and any(each for _, each in flatten(cast("object", value))):
            yield from _lines(cast("object", value), f"{name} {key.replace('_', ' ')}")


def _says_something(value: object) -> bool:
    return not isinstance(value, dict) and value not in (None, "", [])


def _phrase(name: str, value: object) -> str:
    words = name.replace("_", " ")
    if isinstance(value, int | float) and not isinstance(value, bool):
        if name.endswith("bytes"):
            return f"{words.removesuffix('bytes')}{readable_size(value)}"
        if name.endswith("_s"):
            return f"{words.removesuffix(' s')} {readable_time(value)}"
    return f"{words} {shown(value, people=True)}"


def readable_size(count: float) -> str:
    """A number of bytes with three digits that count."""
    power = 0
    while count >= 1024 and power < len(_SIZES) - 1:
        count, power = count / 1024, power + 1
    return f"{count:.3g} {_SIZES[power]}" if count < 1000 else f"{count:.0f} {_SIZES[power]}"


def readable_time(seconds: float) -> str:
    """A span in its two largest units."""
    if seconds < 60:
        return f"{seconds:.3g} s"
    days, rest = divmod(int(seconds), 86_400)
    hours, rest = divmod(rest, 3_600)
    parts = ((days, "d"), (hours, "h"), (rest // 60, "min"))
    return " ".join(f"{count} {unit}" for count, unit in parts if count)[:20]
