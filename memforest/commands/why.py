"""`why`: where a memory comes from, as an indented tale, as JSON, or as a graph for Graphviz."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import click

from memforest import calls
from memforest.commands.completing import complete_fact, complete_user
from memforest.commands.diff import read_position
from memforest.commands.options import with_daemon
from memforest.output import counted, shown
from memforest.why_graph import GONE, count_leaves, tell_joined, tell_spent, to_dot

if TYPE_CHECKING:
    from collections.abc import Iterator

    from memforest.client import Client
    from memforest.origins import (
        Call,
        FactBehind,
        FactNamed,
        GroupBehind,
        Reading,
        StateTold,
        TreeHolding,
        TurnBehind,
        VerdictTold,
        Why,
        Writing,
    )
    from memforest.output import Screen

# Depth and cells of a line: what it is, when, where or who, text.
_Line = tuple[int, tuple[object, ...]]
# What is said of two facts, the later one first.
_VERDICTS = {"same": "is", "supersedes": "ends", "contradicts": "contradicts", "different": "is not"}


@click.command()
@click.argument("user", shell_complete=complete_user)
@click.argument("memory", shell_complete=complete_fact)
@click.option("--format", "form", type=click.Choice(["text", "json", "dot"]), default="text", help="As what.")
@click.option("--limit", type=click.IntRange(min=1), help="So many facts, turns or readings at most (200).")
@click.option("--after", type=click.IntRange(min=0), help="Go on behind so many of them.")
@click.option("--as-of", metavar="USER_SEQ|TIME", help="What was known then; a time with its offset.")
@with_daemon
def why(
    client: Client,
    screen: Screen,
    user: str,
    memory: str,
    form: str,
    limit: int | None,
    after: int | None,
    as_of: str | None,
) -> None:
    """Show where MEMORY of USER comes from: group, facts, who read them when, turns, messages on the bus.

    MEMORY is an id as `query`, `facts`, `tree` and `units` show it, or its first digits: of a chunk, fact, group
    or summary. `--format dot` is for Graphviz: memforest why alice 3f… --format dot | dot -Tsvg > why.svg
    """
    position = None if as_of is None else read_position(as_of)
    call = calls.why(user, memory, limit=limit, after=after, as_of=position)

    def show(found: Why) -> None:
        if form == "dot":
            click.echo(to_dot(found), nl=False)
        else:
            for depth, cells in _lines(screen, found):
                screen.row(depth, cells)
        if found.left_off:
            onward = "" if found.next is None else f"; --after {found.next} goes on"
            screen.note(f"{found.left_off} more facts, turns or readings are behind it{onward}.")
        if found.redacted:
            screen.note(f"Without its words by now: {counted(found.redacted, 'event')}.")

    replace(screen, as_json=screen.as_json or form == "json").answer(client, call, show)


def _lines(screen: Screen, found: Why) -> Iterator[_Line]:
    """The whole tale."""
    depth = 0
    if found.kind != "fact":
        text = found.text or (GONE if found.words == "erased" else "(not written yet)")
        written = found.written
        writer = None if written is None else _writer(written)
        about = " ".join(filter(None, (", ".join(found.scopes), writer)))
        yield depth, (found.kind, None if written is None else written.at, about, text)
        depth = 1
        yield from _group_lines(depth, found.group, asked=found.kind == "group")
    for fact in found.facts:
        yield depth, _fact_cells(screen, fact)
        yield from _fact_lines(depth + 1, fact)
    if found.kind == "fact":
        yield from _group_lines(1, found.group, asked=False)
    for turn in found.turns:
        yield depth, _turn_cells(turn)
    for tree in found.trees:
        yield from _tree_lines(tree)
    if found.trees_left_off:
        yield 1, ("in", None, f"{counted(found.trees_left_off, 'tree')} more", "")


def _fact_lines(depth: int, fact: FactBehind) -> Iterator[_Line]:
    for reading in fact.readings:
        yield depth, _reading_cells(reading, fact)
        if reading.joined is not None and reading.joined.rule != "founded":
            yield depth + 1, ("joined", reading.joined.at, tell_joined(reading.joined), "")
            if reading.joined.call is not None:
                yield depth + 2, ("judged", reading.joined.call.at, _caller(reading.joined.call), "")
        if reading.replaces is not None:
            yield depth + 1, ("in place of", None, reading.replaces, reading.was or GONE)
        for turn in reading.turns:
            yield depth + 1, _turn_cells(turn)
    if fact.left_off:
        yield depth, ("and", None, f"{counted(fact.left_off, 'reading')} more; ask for the fact itself", "")
    if fact.state is not None:
        yield from _state_lines(depth, fact.state)
    for judged in fact.judged:
        yield depth, _judged_cells(judged)


def _state_lines(depth: int, state: StateTold) -> Iterator[_Line]:
    until = "still" if state.valid_until is None else f"until {shown(state.valid_until, people=False)}"
    event = None if state.user_seq is None else f"event {state.user_seq}"
    about = ", ".join(filter(None, (f"{state.attribute} of {state.entity}", until, event)))
    yield depth, ("state", state.valid_from, about, "")
    for what, other in (("came after", state.predecessor), ("gave way to", state.successor)):
        if other is not None:
            yield depth + 1, _named_cells(what, other)
    if state.ended_by is not None and state.ended_by != state.successor:
        yield depth + 1, _named_cells("ended by", state.ended_by)


def _group_lines(depth: int, group: GroupBehind | None, *, asked: bool) -> Iterator[_Line]:
    """What is told of a group beside its text; who wrote it stands with the text where that was asked for."""
    if group is None:
        return
    loss = group.written.loss_bound
    about = [f"unit {group.unit}", counted(group.members, "fact")]
    about += [] if loss is None else [f"loss at most {loss:.5g}"]
    about = about if asked else [group.id, *about, _writer(group.written)]
    yield depth, ("merged" if asked else "group", group.written.at, ", ".join(about), "")
    if group.policy is not None:
        values = ", ".join(f"{name} {value}" for name, value in group.policy.values.items())
        yield depth + 1, ("policy", None, f"event {group.policy.user_seq}", values)


def _tree_lines(tree: TreeHolding) -> Iterator[_Line]:
    """The way up, the root last."""
    name = " ".join(filter(None, (tree.kind, tree.scope if tree.kind != "user" else "")))
    yield 1, ("tree", None, f"{name}, {count_leaves(tree.leaves)}", "")
    for node in tree.way:
        writer = node.state if node.written is None else _writer(node.written)
        yield 2, ("node", None if node.written is None else node.written.at, f"{node.id} {writer}", "")


def _fact_cells(screen: Screen, fact: FactBehind) -> tuple[object, ...]:
    notes = (fact.id, f"in group {fact.group}" if fact.group else "", "pinned" if fact.pinned else "")
    interval = screen.interval(fact.time_start, fact.time_end)
    return "fact", interval, " ".join(filter(None, notes)), fact.text or GONE


def _reading_cells(reading: Reading, fact: FactBehind) -> tuple[object, ...]:
    by = f"by {reading.model}, " if reading.model else ""
    chunk = f", chunk {reading.chunk}" if reading.chunk else ""
    # Said again only where this reading has other words than the fact.
    other = (reading.text or GONE) if reading.text != fact.text else ""
    return reading.how, reading.at, f"{by}event {reading.user_seq}{_took(reading)}{chunk}", other


def _judged_cells(judged: VerdictTold) -> tuple[object, ...]:
    call = judged.call
    said = _VERDICTS.get(judged.verdict, judged.verdict)
    what = f"this one {said} the other" if judged.later else f"the other {said} this one"
    about = ", ".join(filter(None, (what, None if call is None else _caller(call))))
    other = judged.other
    return "judged", None if call is None else call.at, about, "" if other is None else other.text or GONE


def _named_cells(what: str, other: FactNamed) -> tuple[object, ...]:
    return what, None, other.id, other.text or GONE


def _writer(written: Writing) -> str:
    what = ["trajectory"] * written.trajectory + ["extractive"] * written.extractive
    return ", ".join([*what, f"by {written.model or GONE}, event {written.user_seq}{_took(written)}"])


def _caller(call: Call) -> str:
    return f"by {call.model or GONE}, event {call.user_seq}{_took(call)}"


def _took(call: Call | Reading | Writing) -> str:
    """Prompt and price of a call, as far as there are any."""
    prompt = f"prompt {call.prompt}" if call.prompt else ""
    return "".join(f", {each}" for each in (prompt, tell_spent(call.spent)) if each)


def _turn_cells(turn: TurnBehind) -> tuple[object, ...]:
    names = "/".join(name for name in (turn.session_id, turn.turn_id) if name)
    place = "not from the bus"
    if turn.bus is not None:
        subject = f" on {turn.bus.subject}" if turn.bus.subject else ""
        place = f"message {turn.bus.seq} of {turn.bus.stream}{subject}"
    return (
        "turn",
        turn.said_at,
        " ".join(filter(None, (names, f"event {turn.user_seq}, {place}"))),
        turn.text or GONE,
    )
