"""Random histories of a node set: as it grew, as it was built afresh, and as it came out of a snapshot."""

from __future__ import annotations

import random

import msgspec
import pytest

from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.state import NodeSetState
from projections.recall.tokens import query_terms
from projections.steps import at_once
from tests.builders import an_id
from tests.projections.recall.made_nodes import a_chunk, a_fact, links, make_group

# What the facts of these histories are called, and how they stand.
NAMES: dict[bytes, str] = {}
NAMED: dict[bytes, SearchNode] = {}


@pytest.mark.parametrize("seed", range(4))
def test_what_lived_what_was_rebuilt_and_what_was_frozen_are_the_same(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes = NodeSet(b"alice")
    for number in range(150):
        one_step(nodes, chance, number)
    state = at_once(nodes.freeze())
    thawed = NodeSet.thaw(msgspec.msgpack.decode(msgspec.msgpack.encode(state), type=NodeSetState), b"alice")

    assert at_once(thawed.freeze()) == state
    for number in range(150, 300):
        steps = random.Random(f"{seed} {number}")
        again = random.Random(f"{seed} {number}")
        one_step(nodes, steps, number)
        one_step(thawed, again, number)
    assert picture(thawed) == picture(nodes)
    assert thawed.row_of == nodes.row_of
    assert at_once(thawed.freeze()) == at_once(nodes.freeze())
    assert links(thawed) == links(nodes)
    afresh = NodeSet(b"alice")
    for node in nodes.nodes_at(sorted(nodes.row_of.values())):
        marks = [mark for mark in range(5) if nodes.row_of[node.id] in nodes.marks.rows(mark).tolist()]
        inside = nodes.inside(node.id)
        for each in inside:
            afresh.add(each.node, text_of(each.node))
            afresh.set_aside(each.node.id)
        if inside and not int(NAMES[node.id][1:]) % 2:
            afresh.add_group(node, [each.node.id for each in inside], marks)
        else:
            afresh.add(node, text_of(node), marks)
    assert picture(afresh) == picture(nodes)
    assert afresh.lexical.vocabulary == nodes.lexical.vocabulary


def one_step(nodes: NodeSet, chance: random.Random, number: int) -> None:
    """Something happens that may happen to the set as it is."""
    standing = nodes.nodes_at(nodes.row_of.values())
    facts = sorted(node.id for node in standing if node.kind is NodeKind.FACT)
    groups = sorted(node.id for node in standing if node.kind is NodeKind.GROUP)
    match chance.randrange(8):
        case 0 if len(facts) > 2:
            text = "together" if number % 2 else None
            NAMES[an_id(f"group{number}")] = f"g{number}"
            make_group(nodes, f"group{number}", *(NAMES[each] for each in chance.sample(facts, 2)), text=text)
        case 1 if groups:
            group = chance.choice(groups)
            members = at_once(nodes.freeze()).groups[group]
            nodes.remove(group)
            for member in members:
                nodes.bring_back(NAMED[member])
        case 2 if facts:
            nodes.remove(chance.choice(facts))
        case 3 if facts:
            each = chance.choice(facts)
            nodes.replace(a_fact(NAMES[each], (1, number), ("s1", f"s{number % 3}")), [chance.randrange(5)])
            NAMED[each] = nodes.node(nodes.row_of[each])
        case 4 if facts:
            nodes.add_marks(chance.choice(facts), [chance.randrange(5)])
        case 5:
            nodes.add(a_chunk(f"c{number}", (number,), f"s{number % 4}"), words_of(number), [number % 5])
        case _:
            node = a_fact(f"f{number}", (number,), (f"s{number % 4}",))
            NAMES[node.id], NAMED[node.id] = f"f{number}", node
            nodes.add(node, text_of(node), [chance.randrange(5)])


def words_of(number: int) -> str:
    return f"word{number % 11} " * (number % 40) + f"shared{number % 3}"


def text_of(node: SearchNode) -> str:
    if node.kind is NodeKind.GROUP:
        return "together"
    return words_of(int(NAMES[node.id][1:]) if node.id in NAMES else node.turns[0])


def picture(nodes: NodeSet) -> dict[bytes, object]:
    """All that can be asked of each node, but for its row."""
    rows = sorted(nodes.row_of.values())
    scores = nodes.lexical.scores(query_terms("word1 word7 shared2 July"), nodes.size)
    marks = {mark: set(nodes.marks.rows(mark).tolist()) for mark in range(5)}
    return {
        node.id: (node, scores[row], [mark for mark in marks if row in marks[mark]], nodes.lexical.counts_of(row))
        for row, node in zip(rows, nodes.nodes_at(rows), strict=True)
    }
