"""`units`: the EventTree units of a memory and the groups in them, to be read on a terminal."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from memforest import unit_calls
from memforest.commands.completing import complete_user
from memforest.commands.options import with_daemon
from memforest.commands.trees import show_nobody
from memforest.errors import NotFound
from memforest.output import counted, shown

if TYPE_CHECKING:
    from memforest.client import Client
    from memforest.output import Screen
    from memforest.structures import Group, Unit, Units
    from memforest.wire import JsonObject

# A page stays far below an answer's bound.
_PAGE = 500


@click.command()
@click.argument("user", shell_complete=complete_user)
@with_daemon
def units(client: Client, screen: Screen, user: str) -> None:
    """List the EventTree units of USER with the groups that stand for their members in answers.

    A group's text was written by a model, or is extractive: put together of its members' own. A trajectory holds
    the values of one state, one after the other.
    """
    call = unit_calls.units(user, limit=_PAGE)
    found: list[tuple[Unit, list[Group]]] = []
    raw: JsonObject = {"units": [], "groups": []}
    whole: Units | None = None
    while True:
        try:
            result = client.request(call.method, call.params, repeatable=True)
        except NotFound:
            show_nobody(screen, raw)
            return
        page = call.read(result)
        whole = whole or page
        # Lists go on from page to page; what else a page says is of all of them.
        for name, value in result.items():
            raw[name] = raw.get(name, []) + value if isinstance(value, list) else value
        found += [(unit, [group for group in page.groups if group.unit == unit.id]) for unit in page.units]
        # A cursor that stands still would ask for the same page for ever.
        if page.next is None or not page.units:
            break
        call = replace(call, params={**call.params, "after": page.next})
    if screen.as_json:
        screen.json(raw)
        return
    if not found and screen.is_terminal:
        screen.line("No units yet; they come with the facts, and `memforest compact` makes them at once.")
    for unit, groups in found:
        _show_unit(screen, unit, groups)
    _show_whole(screen, whole)


def _show_unit(screen: Screen, unit: Unit, groups: list[Group]) -> None:
    """A line for a unit, and one below it for each of its groups with the text."""
    size = f"{counted(unit.facts, 'fact')} in {counted(unit.nodes, 'node')}, {counted(unit.groups, 'group')}"
    loss = f", loss bound {unit.loss_bound:.4g}" if unit.loss_bound else ""
    screen.row(0, ("unit", unit.id, size + loss, ""))
    for group in groups:
        interval = " to ".join(
            dict.fromkeys(shown(at, people=True)[:10] for at in (group.time_start, group.time_end))
        )
        what = [counted(len(group.members), "fact"), interval]
        what += ["trajectory"] * group.trajectory + ["extractive"] * group.extractive
        screen.row(1, ("group", group.id, ", ".join(what), group.text))


def _show_whole(screen: Screen, page: Units | None) -> None:
    """What is so of all units together, beside the list."""
    if page is None or not page.facts:
        return
    if screen.is_terminal:
        cut = 1 - page.nodes / page.facts
        screen.note(
            f"{counted(page.facts, 'fact')} in {counted(page.nodes, 'node')} ({cut:.1%} less), "
            f"loss bound {page.loss_bound:.4g}."
        )
    if page.compaction is not None:
        done = page.compaction
        screen.note(f"A compaction is running: {done.fused} of {counted(done.groups, 'group')} fused.")
