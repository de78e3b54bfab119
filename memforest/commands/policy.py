"""`policy`: how far a user's memory is compressed, and saying so."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from memforest import unit_calls
from memforest.commands.completing import complete_user
from memforest.commands.options import with_daemon

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.output import Screen
    from memforest.structures import CompactionPolicy

_SECONDS = {"s": 1, "m": 60, "h": 3_600, "d": 86_400, "w": 604_800}


class _Duration(click.ParamType[float]):
    """A number of seconds, or with s, m, h, d or w behind it of those: 90, 12h, 7d."""

    name = "duration"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> float:
        """Seconds."""
        found = re.fullmatch(r"(\d+(?:\.\d+)?)([smhdw]?)", str(value).strip().lower())
        if found is None:
            self.fail("a time is a number of seconds, or with s, m, h, d or w behind it: 12h, 7d", param, ctx)
        return float(found[1]) * _SECONDS[found[2] or "s"]


@click.command()
@click.option("--user", required=True, shell_complete=complete_user, help="Whose memory.")
@click.option("--online/--no-online", default=None, help="Whether it is compressed in the background as it grows.")
@click.option(
    "--ratio", type=click.FloatRange(0, 1, max_open=True), help="The share of nodes to merge away; 0: none."
)
@click.option("--member-cap", type=click.IntRange(0), help="The most facts of one group; 0: no cap.")
@click.option("--time-bonus", type=click.FloatRange(0), help="What nearness in time counts for, beside likeness.")
@click.option("--min-age", type=_Duration(), metavar="AGE", help="How old a fact must be to be merged: 12h, 7d.")
@click.option(
    "--never-merge",
    metavar="KIND,...",
    help='Kinds that are not merged: event, state, preference, constraint, plan, detail, reference; "" for none.',
)
@click.option("--reset", is_flag=True, help="All as the daemon is configured, but for what else is said here.")
@with_daemon
def policy(
    client: Client,
    screen: Screen,
    user: str,
    online: bool | None,
    ratio: float | None,
    member_cap: int | None,
    time_bonus: float | None,
    min_age: float | None,
    never_merge: str | None,
    reset: bool,
) -> None:
    """Show how far a user's memory is compressed, or say it; what is not said stays as it is."""
    given = (online, ratio, member_cap, time_bonus, min_age, never_merge)
    call = unit_calls.policy(user)
    if reset or any(value is not None for value in given):
        call = unit_calls.set_policy(
            user,
            online=online,
            ratio=ratio,
            member_cap=member_cap,
            time_bonus=time_bonus,
            min_age_s=min_age,
            never_merged=None
            if never_merge is None
            else [kind for kind in re.split(r"[,\s]+", never_merge) if kind],
            reset=reset,
        )
    screen.answer(client, call, lambda found: _show(screen, found))


def _in_words(seconds: float) -> str:
    """An age in the largest of these that it is a whole number of: 7d is 1w, 90 is 90s."""
    name, size = next(
        (each for each in reversed(_SECONDS.items()) if seconds and seconds % each[1] == 0), ("s", 1)
    )
    return f"{seconds / size:g}{name}"


def _show(screen: Screen, found: CompactionPolicy) -> None:
    """A line a value with whose it is."""
    values: dict[str, object] = {
        "online": found.online,
        "ratio": found.ratio,
        "member_cap": "none" if found.member_cap is None else found.member_cap,
        "time_bonus": found.time_bonus,
        "min_age": _in_words(found.min_age_s),
        "never_merged": ", ".join(found.never_merged) or "none",
    }
    own = {name.removesuffix("_s") for name in found.set_by_user}
    rows = [(name, value, "user" if name in own else "daemon") for name, value in values.items()]
    screen.table(("policy", "value", "from"), rows, empty="")
    if found.preset != "default":
        screen.note(f'The daemon runs with eventtree.preset = "{found.preset}", which sets some of this itself.')
