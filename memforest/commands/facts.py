"""`facts`: what is known of a user, and setting it right."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.answer_view import NOBODY
from memforest.commands.completing import complete_fact, complete_user
from memforest.commands.options import with_daemon
from memforest.errors import NotFound
from memforest.wire import JsonObject

if TYPE_CHECKING:
    from collections.abc import Sequence

    from memforest.client import Client
    from memforest.fact_types import Fact, FactConflict, FactSettled
    from memforest.output import Screen

# A page of facts stays far below an answer's bound, and a long list starts to show at once.
_PAGE = 500


class _ListUnlessNamed(click.Group):
    """`facts USER` is short for `facts list USER`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Whatever does not begin with a command, or ask for help, is for `list`."""
        if args and args[0] not in {*self.commands, *ctx.help_option_names}:
            args = ["list", *args]
        return super().parse_args(ctx, args)


@click.group(cls=_ListUnlessNamed)
def facts() -> None:
    """List what is known of a user, or set a fact right: `facts USER` lists.

    Ids of facts are in the first column of the list. A user whose name is that of a command: `facts list get`.
    """


@facts.command("list")
@click.argument("user", shell_complete=complete_user)
@click.option("--limit", type=click.IntRange(min=1), help="At most so many; all of them otherwise.")
@click.option("--conflicts", is_flag=True, help="Facts that contradict each other, side by side, and why.")
@with_daemon
def list_facts(client: Client, screen: Screen, user: str, limit: int | None, conflicts: bool) -> None:
    """List what is known of USER, one fact a line; or what contradicts itself in it."""
    call = calls.facts(user, limit=min(limit or _PAGE, _PAGE), conflicts=conflicts)
    found: list[Fact] = []
    pairs: list[FactConflict] = []
    raw: list[object] = []
    raw_pairs: list[object] = []
    while True:
        try:
            result = client.request(call.method, call.params, repeatable=True)
        except NotFound:
            # As `query` answers it: of whom nothing is known there are no facts.
            screen.note(NOBODY)
            break
        page = call.read(result)
        found += page.facts
        raw += result["facts"]
        pairs += page.conflicts
        raw_pairs += result.get("conflicts", ())
        wanted = (limit - len(pairs if conflicts else found)) if limit else _PAGE
        # A page without facts ends it too, or a cursor that stands still would go on for ever.
        if page.next is None or not page.facts or wanted <= 0:
            break
        params: JsonObject = {**call.params, "limit": min(wanted, _PAGE), "after": page.next}
        call = replace(call, params=params)
    if conflicts:
        _show_conflicts(screen, {fact.id: fact for fact in found}, pairs, {"facts": raw, "conflicts": raw_pairs})
    elif screen.as_json:
        screen.json({"facts": raw[:limit]})
    else:
        _show(screen, *found[:limit])


@facts.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("fact", shell_complete=complete_fact)
@with_daemon
def get(client: Client, screen: Screen, user: str, fact: str) -> None:
    """Show one FACT of USER, by its id."""
    screen.answer(client, calls.fact(user, fact), lambda found: _show_one(screen, found))


@facts.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("fact", shell_complete=complete_fact)
@click.argument("text", required=False)
@click.option("--from", "time_start", metavar="TIME", help="Since when it is so; alone: the moment it is about.")
@click.option("--until", "time_end", metavar="TIME", help="Until when; times are ISO 8601 with their offset.")
@with_daemon
def correct(
    client: Client,
    screen: Screen,
    user: str,
    fact: str,
    text: str | None,
    time_start: str | None,
    time_end: str | None,
) -> None:
    """Say that TEXT is so in place of FACT. It holds, whatever is extracted later from the same turns."""
    call = calls.correct_fact(user, fact, text, time_start=time_start, time_end=time_end)
    screen.answer(client, call, lambda settled: _show_settled(screen, settled))


@facts.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("fact", shell_complete=complete_fact)
@with_daemon
def retract(client: Client, screen: Screen, user: str, fact: str) -> None:
    """Say that FACT is not so. The turns that said it stay; `memforest retract` takes those back."""
    screen.answer(client, calls.retract_fact(user, fact), lambda settled: _show_settled(screen, settled))


@facts.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("fact", shell_complete=complete_fact)
@click.option("--off", is_flag=True, help="Let it go again.")
@with_daemon
def pin(client: Client, screen: Screen, user: str, fact: str, off: bool) -> None:
    """Keep FACT as it is: never merged, and not lost when its session is extracted again."""
    call = calls.pin_fact(user, fact, pinned=not off)
    screen.answer(client, call, lambda settled: _show_settled(screen, settled))


def _show(screen: Screen, *found: Fact) -> None:
    screen.table(
        ("id", "when", "kind", "until", "pinned", "sessions", "fact"),
        (_row(screen, fact) for fact in found),
        empty="No facts yet.",
    )


def _row(screen: Screen, fact: Fact) -> tuple[object, ...]:
    interval = screen.interval(fact.time_start, fact.time_end)
    # How long a state held: an event is over with its time.
    until = None
    if fact.attribute is not None:
        until = screen.until(fact.valid_until) or ("still" if screen.is_terminal else None)
    return fact.id, interval, fact.role, until, fact.pinned or None, fact.sessions, fact.text


def _show_one(screen: Screen, fact: Fact) -> None:
    """A fact; and of a state how long it held, and what was before and after it."""
    _show(screen, fact)
    if fact.attribute is not None:
        span = screen.interval(fact.valid_from, fact.valid_until)
        still = "" if fact.valid_until else ", and still"
        near = (("before it", fact.predecessor), ("after it", fact.successor))
        beside = "".join(f"; {where} {neighbour}" for where, neighbour in near if neighbour)
        screen.note(f"{fact.attribute} of {fact.entity}: {span}{still}{beside}")


def _show_conflicts(
    screen: Screen, facts: dict[str, Fact], conflicts: Sequence[FactConflict], raw: JsonObject
) -> None:
    """Each contradiction as two neighbouring lines with the same reason."""
    if screen.as_json:
        screen.json(raw)
        return
    rows = [
        (
            _reason(conflict),
            facts[each].id,
            screen.interval(facts[each].time_start, facts[each].time_end),
            facts[each],
        )
        for conflict in conflicts
        for each in (conflict.one, conflict.other)
        if each in facts
    ]
    screen.table(
        ("conflict", "id", "when", "sessions", "fact"),
        ((reason, fact_id, when, fact.sessions, fact.text) for reason, fact_id, when, fact in rows),
        empty="Nothing contradicts itself.",
    )


def _reason(conflict: FactConflict) -> str:
    return conflict.reason if conflict.attribute is None else f"{conflict.attribute} of {conflict.entity}"


def _show_settled(screen: Screen, settled: FactSettled) -> None:
    if settled.fact is None:
        screen.line(f"Fact {settled.replaces} is known no more.")
    else:
        _show(screen, settled.fact)
