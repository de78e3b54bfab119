"""`why --format dot`: one graph a memory, valid whatever people said, and `--format json` beside it."""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from memforest.cli import cli
from memforest.origins import Why
from memforest.why_graph import SHAPES, quote, to_dot
from memforest.wire import read_as
from tests.memforest.dot_reading import Graph, read_dot
from tests.memforest.fake_daemon import FakeDaemon, JsonObject

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT, LATER = "2024-07-01T09:00:00Z", "2024-07-03T09:00:00Z"
HOSTILE = '"; evil [label="x"]; \\" \\N \\\\ }\n\x1b[31m\x00\u202ex\u2066 <b>&amp;</b> \u2028 ' + "ü漢" * 200
CALL = {"model": "m", "user_seq": 5, "at": LATER, "prompt": "00aa", "request": "ff"}
SPENT = {"calls": 2, "prompt_tokens": 300, "cached_tokens": 0, "completion_tokens": 40, "cost": 0.0125}
BUS = {"stream": "MEMFOREST", "seq": 41, "subject": "memforest.turns.alice.s1"}
TURN = {
    "user_seq": 1,
    "session_id": "s1",
    "turn_id": "m-1",
    "said_at": AT,
    "words": "kept",
    "text": "Alice: I live in Davis.",
    "bus": BUS,
}
OTHER = {"id": "f0", "words": "kept", "text": "Alice lives in Boston."}
NEXT = {"id": "f9", "words": "kept", "text": "Alice lives in Miami."}
READING = CALL | {
    "how": "extracted",
    "words": "kept",
    "text": "Alice lives in Davis.",
    "chunk": "c1",
    "turns": [TURN],
}
NEAR = {"rule": "near", "user_seq": 12, "at": LATER, "like": 5, "cosine": 0.97, "threshold": 0.94}
STATE = {
    "entity": "alice",
    "attribute": "home",
    "valid_from": AT,
    "valid_until": LATER,
    "predecessor": OTHER,
    "successor": NEXT,
    "ended_by": NEXT,
    "user_seq": 20,
    "at": LATER,
}
FACT = {
    "id": "f1",
    "words": "kept",
    "text": "Alice lives in Davis.",
    "said_at": AT,
    "time_start": AT,
    "time_end": AT,
    "pinned": False,
    "group": "g1",
    "readings": [
        READING | {"spent": SPENT, "joined": {"rule": "founded", "user_seq": 6, "at": LATER}},
        READING
        | {"user_seq": 11, "joined": NEAR | {"rule": "judged", "call": CALL | {"user_seq": 10, "model": "judge"}}},
        {"how": "corrected", "user_seq": 30, "at": LATER, "words": "kept", "replaces": "f7", "was": "Davos."},
    ],
    "left_off": 4,
    "state": STATE,
    "judged": [{"verdict": "different", "later": True, "other": OTHER, "call": CALL | {"user_seq": 13}}],
}
WRITTEN = CALL | {"user_seq": 40, "loss_bound": 0.25, "extractive": True, "spent": SPENT}
GROUP = {
    "id": "g1",
    "unit": "u1",
    "members": 3,
    "written": WRITTEN,
    "policy": {"user_seq": 2, "values": {"ratio": 0.5}},
}
NODE = {"id": "n1", "level": 1, "state": "summarised", "leaves": 3, "time_start": AT, "time_end": LATER}
ROOT = NODE | {"id": "n2", "level": 2, "leaves": 9, "written": CALL | {"user_seq": 50}}
TREE = {"id": "t1", "kind": "entity", "scope": "alice", "leaves": 9, "way": [NODE, ROOT]}
WHY: JsonObject = {
    "id": "f1",
    "kind": "fact",
    "words": "kept",
    "text": "Alice lives in Davis.",
    "facts": [FACT],
    "turns": [],
    "scopes": [],
    "left_off": 0,
    "user_seq": 60,
    "group": GROUP,
    "trees": [TREE],
    "trees_left_off": 1,
    "redacted": 2,
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "daemon.sock") as fake:
        yield fake


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)])


def graph_of(answer: JsonObject) -> Graph:
    return read_dot(to_dot(read_as(Why, answer)))


def node_of(graph: Graph, *lines: str) -> str:
    """The one node whose label has all these lines."""
    (name,) = [name for name, node in graph.nodes.items() if set(lines) <= set(node["label"].split("\n"))]
    return name


def test_a_fact_leads_down_to_the_message_on_the_bus_and_up_to_its_roots() -> None:
    graph = graph_of(WHY)
    fact = node_of(graph, "fact", "f1")
    readings = [name for name, node in graph.nodes.items() if node["label"].startswith("reading")]
    call, judge = node_of(graph, "call", "event 5, 2024-07-03T09:00Z"), node_of(graph, "call", "judge")
    chunk, turn = node_of(graph, "chunk", "c1"), node_of(graph, "turn", "s1/m-1")
    message = node_of(graph, "message", "MEMFOREST 41", "memforest.turns.alice.s1")
    node, root = node_of(graph, "node", "n1", "3 leaves"), node_of(graph, "node", "n2", "entity alice")
    group, policy = (
        node_of(graph, "group", "g1", "extractive", "loss at most 0.25"),
        node_of(graph, "policy", "ratio 0.5"),
    )
    edges = set(graph.edges)

    assert {(fact, each, "") for each in readings} <= edges
    assert {(readings[0], call, "read by"), (readings[1], judge, "judged by")} <= edges
    assert {(call, chunk, ""), (chunk, turn, ""), (turn, message, "")} <= edges
    assert {(root, node, ""), (node, fact, "")} <= edges
    assert {(group, fact, ""), (group, policy, "made under")} <= edges
    assert (fact, node_of(graph, "fact", "f0"), "came after as home of alice") in edges
    assert (fact, node_of(graph, "fact", "f9"), "gave way to as home of alice") in edges
    assert (fact, node_of(graph, "fact", "f0"), "judged: different") in edges
    assert (readings[2], node_of(graph, "fact", "f7", "Davos."), "in place of") in edges
    assert node_of(graph, "more", "4 readings more")
    assert node_of(graph, "more", "in 1 tree more")
    assert "2 calls, 340 tokens, cost 0.0125" in graph.nodes[call]["label"]
    assert graph.nodes[fact]["penwidth"] == "3"


@pytest.mark.parametrize("kind", ["group", "chunk", "summary", "fact", "a kind of a newer daemon"])
def test_every_kind_has_its_shape_and_nothing_stands_alone(kind: str) -> None:
    graph = graph_of(WHY | {"kind": kind, "id": "m1", "written": WRITTEN, "turns": [TURN], "left_off": 9})
    ends = {end for edge in graph.edges for end in edge[:2]}

    assert ends == graph.nodes.keys()
    for node in graph.nodes.values():
        assert node["shape"] == SHAPES[node["label"].split("\n")[0]]


def test_a_memory_with_nothing_behind_it_is_a_graph_of_one_node() -> None:
    graph = graph_of({"id": "n1", "kind": "summary", "words": "none"})

    assert [node["label"] for node in graph.nodes.values()] == ["summary\nn1\n(not written yet)"]
    assert graph.edges == []


def poisoned(value: object, chance: random.Random) -> object:
    """The same answer with hostile words in most places where words may stand."""
    if isinstance(value, dict):
        kept = ("at", "said_at", "time_start", "time_end", "valid_from", "valid_until", "kind", "words")
        return {key: part if key in kept else poisoned(part, chance) for key, part in value.items()}
    if isinstance(value, list):
        return [poisoned(part, chance) for part in value]
    return HOSTILE[chance.randrange(20) :] if isinstance(value, str) and chance.random() < 0.8 else value


@pytest.mark.parametrize("seed", range(20))
def test_no_words_whatever_break_out_of_a_label(seed: int) -> None:
    print(f"seed {seed}")
    answer = poisoned(WHY, random.Random(seed))
    assert isinstance(answer, dict)
    text = to_dot(read_as(Why, answer))
    graph = read_dot(text)

    assert not any(ord(char) < 32 and char != "\n" for char in text)
    assert not set(text) & {"\x7f", "\u202e", "\u2066", "\u2028"}
    assert len(graph.nodes) <= len(read_dot(to_dot(read_as(Why, WHY))).nodes) + 20
    assert all(name[0] == "n" and name[1:].isdecimal() for name in graph.nodes)
    assert max(len(node["label"]) for node in graph.nodes.values()) < 9_000


def test_a_quoted_string_shows_what_was_said() -> None:
    said = 'a "b" \\N \\"c\\\\ -> {d}'

    (node,) = read_dot(f"digraph g {{ n0 [label={quote(said)}]; }}").nodes.values()
    assert node["label"] == said
    assert quote("a\x1bb\u202e\r") == '"a\ufffdb\ufffd\ufffd"'


@pytest.mark.parametrize(
    "broken", ['digraph g { n0 [label="a"b"]; }', "digraph g { n0 -> n1 []; }", "digraph g {", "graph"]
)
def test_the_reader_of_this_test_refuses_what_graphviz_refuses(broken: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        read_dot(broken)


def test_the_command_writes_text_json_and_dot(daemon: FakeDaemon) -> None:
    daemon.answers["why"] = lambda _: WHY | {"left_off": 7, "next": 200}
    dot, text = run(daemon, "why", "alice", "f1", "--format", "dot"), run(daemon, "why", "alice", "f1")
    as_json = run(daemon, "why", "alice", "f1", "--format", "json", "--limit", 5, "--after", 10, "--as-of", 60)

    assert read_dot(dot.stdout).nodes
    assert "--after 200 goes on" in dot.stderr
    assert "2 events" in dot.stderr
    assert json.loads(as_json.stdout) == WHY | {"left_off": 7, "next": 200}
    assert daemon.requests[-1] == (
        "why",
        {"user_id": "alice", "memory_id": "f1", "limit": 5, "after": 10, "as_of": 60},
    )
    assert text.exit_code == 0
    assert run(daemon, "why", "alice", "f1", "--format", "svg").exit_code == 2


def test_the_text_tells_all_that_the_graph_tells(daemon: FakeDaemon) -> None:
    daemon.answers["why"] = lambda _: WHY
    lines = run(daemon, "why", "alice", "f1").stdout.splitlines()
    turn = f"2\tturn\t{AT}\ts1/m-1 event 1, message 41 of MEMFOREST on {BUS['subject']}\tAlice: I live in Davis."
    loss = "3 facts, loss at most 0.25, extractive, by m, event 40, prompt 00aa, 2 calls, 340 tokens, cost 0.0125"

    assert lines == [
        f"0\tfact\t{AT}\tf1 in group g1\tAlice lives in Davis.",
        f"1\textracted\t{LATER}\tby m, event 5, prompt 00aa, 2 calls, 340 tokens, cost 0.0125, chunk c1\t",
        turn,
        f"1\textracted\t{LATER}\tby m, event 11, prompt 00aa, chunk c1\t",
        f"2\tjoined\t{LATER}\tjudged to be the same, like event 5, cosine 0.97, from 0.94 on, event 12\t",
        f"3\tjudged\t{LATER}\tby judge, event 10, prompt 00aa\t",
        turn,
        f"1\tcorrected\t{LATER}\tevent 30\t(words erased)",
        "2\tin place of\t\tf7\tDavos.",
        "1\tand\t\t4 readings more; ask for the fact itself\t",
        f"1\tstate\t{AT}\thome of alice, until {LATER}, event 20\t",
        "2\tcame after\t\tf0\tAlice lives in Boston.",
        "2\tgave way to\t\tf9\tAlice lives in Miami.",
        f"1\tjudged\t{LATER}\tthis one is not the other, by m, event 13, prompt 00aa\tAlice lives in Boston.",
        f"1\tgroup\t{LATER}\tg1, unit u1, {loss}\t",
        "2\tpolicy\t\tevent 2\tratio 0.5",
        "1\ttree\t\tentity alice, 9 leaves\t",
        "2\tnode\t\tn1 summarised\t",
        f"2\tnode\t{LATER}\tn2 by m, event 50, prompt 00aa\t",
        "1\tin\t\t1 tree more\t",
    ]
