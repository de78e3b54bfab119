"""What `why` answers as a graph for Graphviz: what a memory is in above it, what it rests on below.

`to_dot` gives one digraph in the DOT language (graphviz.org/doc/info/lang.html). All names in it are ours; what
people said stands in quoted labels, where it can neither end the string nor be read as an escape.
"""

from __future__ import annotations

import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from memforest.output import counted, tidy

if TYPE_CHECKING:
    from collections.abc import Iterator
    from datetime import datetime

    from memforest.origins import (
        Call,
        FactBehind,
        FactNamed,
        GroupBehind,
        Joined,
        NodeAbove,
        Reading,
        Spent,
        TurnBehind,
        Why,
        Writing,
    )

GONE: Final = "(words erased)"
# Of a text a label shows the beginning, in lines that keep a node narrow.
TEXT_MAX: Final = 160
LINE_MAX: Final = 40
ID_MAX: Final = 8
# The shape of each kind of node; all are Graphviz's own since long.
SHAPES: Final = {
    "group": "component",
    "fact": "box",
    "reading": "ellipse",
    "call": "hexagon",
    "chunk": "tab",
    "turn": "note",
    "message": "cds",
    "summary": "folder",
    "node": "folder",
    "policy": "parallelogram",
    "more": "plaintext",
}
_KINDS_WITH_TEXT: Final = ("fact", "group", "chunk", "summary")


@dataclass(slots=True)
class _Graph:
    """Nodes by what they stand for, and edges between them, each once."""

    names: dict[tuple[object, ...], str] = field(default_factory=dict[tuple[object, ...], str])
    nodes: list[str] = field(default_factory=list[str])
    edges: dict[str, None] = field(default_factory=dict[str, None])

    def node(self, kind: str, key: object, *lines: str | None, text: str | None = None, bold: bool = False) -> str:
        """The name of a node; what is known already keeps its label."""
        known = self.names.get((kind, key))
        if known is not None:
            return known
        name = self.names[kind, key] = f"n{len(self.names)}"
        label = "\n".join([kind, *(_line(each) for each in lines if each), *([] if text is None else _fold(text))])
        more = ", penwidth=3" if bold else ""
        self.nodes.append(f"  {name} [shape={SHAPES[kind]}, label={quote(label)}{more}];")
        return name

    def edge(self, one: str, other: str, label: str = "", style: str = "solid") -> None:
        """From what rests on something to that."""
        self.edges[f"  {one} -> {other} [label={quote(_line(label))}, style={style}];"] = None


def to_dot(found: Why) -> str:
    """One digraph in the DOT language, in ASCII but for what people said; it ends with a line feed."""
    graph = _Graph()
    kind = found.kind if found.kind in _KINDS_WITH_TEXT else "node"
    top = graph.node(
        kind,
        found.id,
        found.id[:ID_MAX],
        ", ".join(found.scopes) or None,
        text=found.text or (GONE if found.words == "erased" else "(not written yet)"),
        bold=True,
    )
    if found.written is not None:
        graph.edge(top, _call(graph, found.written), "written by")
    for tree in found.trees:
        _add_way(graph, top, f"{tree.kind} {tree.scope}", tree.way)
    if found.trees_left_off:
        graph.edge(
            graph.node("more", "trees", f"in {counted(found.trees_left_off, 'tree')} more"), top, style="dotted"
        )
    if found.group is not None:
        _add_group(graph, found.group, top)
    for fact in found.facts:
        name = graph.node("fact", fact.id, fact.id[:ID_MAX], _span(fact), text=fact.text or GONE)
        if name != top:
            graph.edge(top, name)
        _add_fact(graph, name, fact)
    for turn in found.turns:
        graph.edge(top, _turn(graph, turn))
    if found.left_off:
        graph.edge(top, graph.node("more", "behind", f"{found.left_off} more"), style="dotted")
    body = "\n".join([*graph.nodes, *graph.edges])
    return f"digraph why {{\n  rankdir=TB;\n  node [fontsize=10];\n  edge [fontsize=9];\n{body}\n}}\n"


def quote(text: str) -> str:
    """A quoted string of the DOT language that shows as this text, in lines set to the left.

    A backslash begins an escape there, a quotation mark ends the string; control and direction characters, which
    could rewrite what is beside them, are replaced as on a terminal.
    """
    lines = [line.replace("\\", "\\\\").replace('"', '\\"') for line in tidy(text).replace("\t", " ").split("\n")]
    return '"' + "\\n".join(lines) + '"'


def _add_way(graph: _Graph, below: str, tree: str, way: tuple[NodeAbove, ...]) -> None:
    """The nodes above a memory; the root says which tree it is."""
    for step in way:
        label = tree if step is way[-1] else None
        name = graph.node("node", (tree, step.id), step.id[:ID_MAX], label, count_leaves(step.leaves), step.state)
        graph.edge(name, below)
        if step.written is not None:
            graph.edge(name, _call(graph, step.written), "written by")
        below = name


def _add_group(graph: _Graph, group: GroupBehind, top: str) -> None:
    written = group.written
    what = ["trajectory"] * written.trajectory + ["extractive"] * written.extractive
    loss = None if written.loss_bound is None else f"loss at most {written.loss_bound:.5g}"
    lines = (group.id[:ID_MAX], counted(group.members, "fact"), ", ".join(what) or None, loss)
    name = graph.node("group", group.id, *lines)
    if name != top:
        graph.edge(name, top)
        graph.edge(name, _call(graph, written), "written by")
    if group.policy is not None:
        values = (f"{key} {value}" for key, value in group.policy.values.items())
        policy = graph.node("policy", group.policy.user_seq, f"event {group.policy.user_seq}", *values)
        graph.edge(name, policy, "made under", "dashed")


def _add_fact(graph: _Graph, name: str, fact: FactBehind) -> None:
    """Readings, and the facts beside it: before, after, compared."""
    for n, reading in enumerate(fact.readings):
        _add_reading(graph, name, (fact.id, n), reading)
    if fact.left_off:
        graph.edge(
            name,
            graph.node("more", (fact.id, "readings"), f"{counted(fact.left_off, 'reading')} more"),
            style="dotted",
        )
    for label, other in _beside(fact):
        graph.edge(name, graph.node("fact", other.id, other.id[:ID_MAX], text=other.text or GONE), label, "dashed")


def _beside(fact: FactBehind) -> Iterator[tuple[str, FactNamed]]:
    """The facts that one is told with, and how they stand to it."""
    state = fact.state
    if state is not None:
        of = f" as {state.attribute} of {state.entity}"
        if state.predecessor is not None:
            yield f"came after{of}", state.predecessor
        if state.successor is not None:
            yield f"gave way to{of}", state.successor
        if state.ended_by is not None and state.ended_by != state.successor:
            yield f"ended by{of}", state.ended_by
    for each in fact.judged:
        if each.other is not None:
            yield f"judged: {each.verdict}", each.other


def _add_reading(graph: _Graph, fact: str, key: tuple[str, int], reading: Reading) -> None:
    erased = GONE if reading.words == "erased" else None
    joined = None if reading.joined is None else tell_joined(reading.joined)
    name = graph.node(
        "reading", key, reading.how, f"event {reading.user_seq}, {_at(reading.at)}", joined, text=erased
    )
    graph.edge(fact, name)
    if reading.joined is not None and reading.joined.call is not None:
        graph.edge(name, _call(graph, reading.joined.call), "judged by", "dashed")
    above = name
    if reading.how == "extracted":
        call = _call(graph, reading)
        graph.edge(name, call, "read by")
        above = call
    if reading.replaces is not None:
        was = graph.node("fact", reading.replaces, reading.replaces[:ID_MAX], text=reading.was or GONE)
        graph.edge(name, was, "in place of", "dashed")
    if reading.chunk is not None:
        chunk = graph.node("chunk", reading.chunk, reading.chunk[:ID_MAX])
        graph.edge(above, chunk)
        above = chunk
    for turn in reading.turns:
        graph.edge(above, _turn(graph, turn))


def _turn(graph: _Graph, turn: TurnBehind) -> str:
    """The node of a turn, and below it its message on the bus."""
    names = "/".join(each for each in (turn.session_id, turn.turn_id) if each)
    where = f"event {turn.user_seq}, {_at(turn.said_at)}"
    name = graph.node("turn", turn.user_seq, names or None, where, text=turn.text or GONE)
    if turn.bus is not None:
        place = f"{turn.bus.stream} {turn.bus.seq}"
        graph.edge(name, graph.node("message", (turn.bus.stream, turn.bus.seq), place, turn.bus.subject))
    return name


def _call(graph: _Graph, call: Call | Reading | Writing) -> str:
    """The node of a model's answer: one event, however many facts came of it."""
    prompt = f"prompt {call.prompt}" if call.prompt else None
    spent = tell_spent(call.spent) or None
    return graph.node(
        "call", call.user_seq, call.model or GONE, prompt, spent, f"event {call.user_seq}, {_at(call.at)}"
    )


def tell_joined(joined: Joined) -> str:
    """How a reading came to its fact, in a line."""
    how = {
        "founded": "founded it",
        "same": "says the same",
        "near": "the same words otherwise",
        "judged": "judged to be the same",
        "bridge": "came with another fact",
    }.get(joined.rule, joined.rule)
    if joined.took_up is not None:
        how += f" ({joined.took_up[:ID_MAX]})"
    like = None if joined.like is None else f"like event {joined.like}"
    cosine = None if joined.cosine is None else f"cosine {joined.cosine:.5g}"
    threshold = None if joined.threshold is None else f"from {joined.threshold:.5g} on"
    event = None if joined.user_seq is None else f"event {joined.user_seq}"
    return ", ".join(filter(None, (how, like, cosine, threshold, event)))


def count_leaves(number: int) -> str:
    """So many leaves."""
    return "1 leaf" if number == 1 else f"{number} leaves"


def tell_spent(spent: Spent | None) -> str:
    """What a call took: calls, tokens, and cost if it had any."""
    if spent is None:
        return ""
    tokens = counted(spent.prompt_tokens + spent.completion_tokens, "token")
    cost = f", cost {spent.cost:.4g}" if spent.cost else ""
    return f"{counted(spent.calls, 'call')}, {tokens}{cost}"


def _span(fact: FactBehind) -> str:
    ends = dict.fromkeys(_at(each) for each in (fact.time_start, fact.time_end))
    return " to ".join(ends) + (", pinned" if fact.pinned else "")


def _at(when: datetime) -> str:
    return when.isoformat(timespec="minutes").replace("+00:00", "Z")


def _line(text: str) -> str:
    """The beginning of a text; white space of all kinds is one blank."""
    words = " ".join(text.split())
    return words if len(words) <= TEXT_MAX else words[: TEXT_MAX - 1] + "…"


def _fold(text: str) -> list[str]:
    """The beginning of a text in short lines."""
    return textwrap.wrap(_line(text), LINE_MAX, break_on_hyphens=False)
