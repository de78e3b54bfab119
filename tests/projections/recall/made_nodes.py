"""Nodes for tests of the node set, and what can be asked of a whole set."""

from __future__ import annotations

from events.envelope import Reference
from events.memory import Pointer
from events.time import Instant
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import FactText, TurnsText, WrittenText
from tests.builders import KEYS, MONDAY, an_id


def session_of(name: str) -> Reference:
    """The reference of one of Alice's sessions."""
    return KEYS.session("alice", name)


def a_chunk(name: str, turns: tuple[int, ...] = (1, 2), session: str = "s1", at: Instant = MONDAY) -> SearchNode:
    """A chunk of these turns."""
    sessions = frozenset((session_of(session),))
    return SearchNode(an_id(name), NodeKind.CHUNK, TurnsText(turns), turns, sessions, at, at, at, 10)


def a_fact(name: str, turns: tuple[int, ...] = (1,), sessions: tuple[str, ...] = ("s1",)) -> SearchNode:
    """A fact from these turns."""
    ref, named = FactText(Pointer(9, 0)), frozenset(map(session_of, sessions))
    return SearchNode(an_id(name), NodeKind.FACT, ref, turns, named, MONDAY, MONDAY, MONDAY, 10)


def links(nodes: NodeSet) -> dict[bytes, tuple[bytes | None, bytes | None]]:
    """Previous and next of every live row, by id."""
    previous, following = nodes.neighbours()
    rows = nodes.live_rows().tolist()
    id_of = {row: nodes.node(row).id for row in rows}
    assert all(int(row) in id_of or row == -1 for column in (previous, following) for row in column[rows].tolist())
    return {id_of[row]: (id_of.get(int(previous[row])), id_of.get(int(following[row]))) for row in rows}


def make_group(nodes: NodeSet, name: str, *members: str, text: str | None = "together") -> None:
    """Set these facts aside for a group of this name, with a text of its own or (None) found by theirs."""
    ids = [an_id(member) for member in members]
    group = SearchNode(an_id(name), NodeKind.GROUP, WrittenText(9), (1,), frozenset(), 0, 0, 0, 1)
    for each in ids:
        nodes.set_aside(each)
    nodes.add_group(group, ids, [2], text)
