"""`why`: where a memory comes from, as an indented tale."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_fact, complete_user
from memforest.commands.options import with_daemon
from memforest.output import counted

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.client import Client
    from memforest.origins import FactBehind, Reading, Spent, TurnBehind, Why
    from memforest.output import Screen

GONE = "(words erased)"


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("memory", shell_complete=complete_fact)
@with_daemon
def why(client: Client, screen: Screen, user: str, memory: str) -> None:
    """Show where MEMORY of USER comes from: group, facts, who read them when, turns, messages on the bus.

    MEMORY is an id as `query`, `facts`, `tree` and `units` show it, or its first digits: of a chunk, fact, group
    or summary.
    """

    def show(found: Why) -> None:
        for depth, cells in _lines(screen, found):
            screen.row(depth, cells)
        if found.left_off:
            screen.note(f"{found.left_off} more facts or turns are behind it; `memforest tree` shows them all.")

    screen.answer(client, calls.why(user, memory), show)


def _lines(screen: Screen, found: Why) -> Iterator[tuple[int, tuple[object, ...]]]:
    """Depth and cells of each line: what it is, when, where or who, text."""
    text = found.text or (GONE if found.words == "erased" else "(not written yet)")
    if found.kind != "fact":
        written = found.written
        model = None
        if written is not None:
            what = ["trajectory"] * written.trajectory + ["extractive"] * written.extractive
            model = f"by {written.model or GONE}, event {written.user_seq}{_took(written.spent)}"
            model = ", ".join([*what, model])
        about = " ".join(filter(None, (", ".join(found.scopes), model)))
        yield 0, (found.kind, None if written is None else written.at, about, text)
    depth = 0 if found.kind == "fact" else 1
    for fact in found.facts:
        yield depth, _fact_cells(screen, fact)
        for reading in fact.readings:
            yield depth + 1, _reading_cells(reading, fact)
            for turn in reading.turns:
                yield depth + 2, _turn_cells(turn)
    for turn in found.turns:
        yield 1, _turn_cells(turn)


def _fact_cells(screen: Screen, fact: FactBehind) -> tuple[object, ...]:
    notes = (fact.id, f"in group {fact.group}" if fact.group else "", "pinned" if fact.pinned else "")
    interval = screen.interval(fact.time_start, fact.time_end)
    return "fact", interval, " ".join(filter(None, notes)), fact.text or GONE


def _reading_cells(reading: Reading, fact: FactBehind) -> tuple[object, ...]:
    by = f"by {reading.model}, " if reading.model else ""
    # Said again only where this reading has other words than the fact.
    other = (reading.text or GONE) if reading.text != fact.text else ""
    return reading.how, reading.at, f"{by}event {reading.user_seq}{_took(reading.spent)}", other


def _took(spent: Spent | None) -> str:
    if spent is None:
        return ""
    tokens = counted(spent.prompt_tokens + spent.completion_tokens, "token")
    cost = f", cost {spent.cost:.4g}" if spent.cost else ""
    return f", {counted(spent.calls, 'call')}, {tokens}{cost}"


def _turn_cells(turn: TurnBehind) -> tuple[object, ...]:
    names = "/".join(name for name in (turn.session_id, turn.turn_id) if name)
    place = f"message {turn.bus.seq} of {turn.bus.stream}" if turn.bus else "not from the bus"
    return (
        "turn",
        turn.said_at,
        " ".join(filter(None, (names, f"event {turn.user_seq}, {place}"))),
        turn.text or GONE,
    )
