"""Exactly those nodes answer that pass the filters, before anything is ranked; compared with plain membership."""

from __future__ import annotations

import json
import random
from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
import pytest

from events.envelope import Reference
from events.session import TurnRecorded
from projections.recall import answering
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER, AgprParameters
from projections.recall.answering import RecallRequest
from projections.recall.filters import (
    METADATA_PAIRS_MAX,
    Filters,
    Span,
    Wanted,
    agent_mark,
    entity_mark,
    label_marks,
    metadata_marks,
    passing_rows,
    role_mark,
    session_mark,
    turn_marks,
)
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import TurnsText
from tests.builders import KEYS, MONDAY, an_id

HOUR_MS = 3_600_000
SESSIONS = [KEYS.session("alice", f"s{n}") for n in range(4)]
ROLES = ["user", "assistant", "tool"]
AGENTS = [None, "a1", "a2"]
METADATA: list[dict[str, object]] = [{}, {"channel": "mail"}, {"channel": "sms", "floor": 3}, {"floor": [3, 4]}]
LABELS = ["rex", "kim", "miami"]
WORDS = ["miami", "boston", "rex", "nate", "swims", "runs"]


@dataclass(frozen=True)
class Attributes:
    """What a filter may ask of a node, kept beside it for the oracle."""

    node: SearchNode
    role: str
    agent: str | None
    metadata: dict[str, object]
    labels: frozenset[str]

    @property
    def session(self) -> Reference:
        (session,) = self.node.sessions
        return session


def a_turn(
    role: str = "user", agent: str | None = None, metadata: dict[str, object] | None = None
) -> TurnRecorded:
    return TurnRecorded("text", role, agent_id=agent, metadata=None if metadata is None else json.dumps(metadata))


def fill(seed: int, count: int = 80) -> tuple[NodeSet, list[Attributes], dict[bytes, str]]:
    """Chunks and facts with random attributes, and their texts by id; some rows were used before."""
    chance = random.Random(seed)
    nodes, made, texts = NodeSet(b"key"), list[Attributes](), dict[bytes, str]()
    for n in range(count):
        kind = chance.choice([NodeKind.CHUNK, NodeKind.FACT, NodeKind.GROUP])
        start = MONDAY + chance.randrange(40) * HOUR_MS
        node = SearchNode(
            id=an_id(f"n{n}"),
            kind=kind,
            ref=TurnsText((n,)),
            turns=(n,),
            sessions=frozenset((chance.choice(SESSIONS),)),
            said_at=MONDAY + chance.randrange(40) * HOUR_MS,
            time_start=start,
            time_end=start + chance.choice([0, HOUR_MS, 30 * HOUR_MS]),
            length=20,
            stated=kind is NodeKind.FACT and chance.random() < 0.3,
        )
        attributes = Attributes(
            node,
            chance.choice(ROLES),
            chance.choice(AGENTS),
            chance.choice(METADATA),
            frozenset(chance.sample(LABELS, chance.randrange(3))),
        )
        add(nodes, attributes, " ".join(chance.choices(WORDS, k=4)), texts)
        made.append(attributes)
    for gone in chance.sample(made, count // 8):
        nodes.remove(gone.node.id)
        made.remove(gone)
    return nodes, made, texts


def add(nodes: NodeSet, attributes: Attributes, text: str, texts: dict[bytes, str]) -> None:
    turn = a_turn(attributes.role, attributes.agent, attributes.metadata)
    marks = {*turn_marks(turn, nodes.mark), *label_marks(attributes.labels, nodes.mark)}
    nodes.add(attributes.node, text, marks)
    texts[attributes.node.id] = text


def passing(nodes: NodeSet, filters: Filters) -> set[bytes]:
    rows, _ = passing_rows(nodes, filters)
    return {nodes.node(int(row)).id for row in rows}


def ids(attributes: Iterable[Attributes]) -> set[bytes]:
    return {each.node.id for each in attributes}


@dataclass(frozen=True)
class Choice:
    """A random filter, as it is asked for and as anybody would check it by hand."""

    filters: Filters
    sessions: frozenset[Reference]
    barred: frozenset[str]
    floors: frozenset[int]
    labels: frozenset[str]
    kinds: frozenset[NodeKind]
    said: tuple[int, int]
    about: tuple[int, int]

    def passes(self, each: Attributes) -> bool:
        floors = each.metadata.get("floor", [])
        floors = floors if isinstance(floors, list) else [floors]
        return (
            each.session in self.sessions
            and each.role not in self.barred
            and (not self.floors or bool(self.floors & set(floors)))
            and (not self.labels or bool(self.labels & each.labels))
            and each.node.kind in self.kinds
            and self.said[0] <= each.node.said_at < self.said[1]
            and each.node.time_start < self.about[1]
            and each.node.time_end >= self.about[0]
        )


def choose(chance: random.Random) -> Choice:
    sessions = frozenset(chance.sample(SESSIONS, chance.randint(2, 4)))
    barred = frozenset(chance.sample(ROLES, chance.randrange(2)))
    floors = frozenset(chance.sample([3, 4, 5], chance.randrange(3)))
    labels = frozenset(chance.sample(LABELS, chance.randrange(3)))
    kinds = frozenset(chance.sample(list(NodeKind), chance.randint(1, 3)))
    said = sorted(chance.sample(range(-5, 45), 2))
    about = sorted(chance.sample(range(-5, 75), 2))
    wanted = [Wanted("sessions", tuple(map(session_mark, sessions)))]
    if barred:
        wanted.append(Wanted("not_roles", tuple(map(role_mark, barred)), excluded=True))
    if floors:
        wanted.append(Wanted("metadata", tuple(metadata_marks({"floor": sorted(floors)}))))
    if labels:
        wanted.append(Wanted("entities", tuple(map(entity_mark, labels))))
    spans = [(MONDAY + first * HOUR_MS, MONDAY + last * HOUR_MS) for first, last in (said, about)]
    filters = Filters(tuple(wanted), kinds, Span(*spans[0]), Span(*spans[1]))
    return Choice(filters, sessions, barred, floors, labels, kinds, *spans)


@pytest.mark.parametrize("seed", range(8))
def test_those_and_only_those_pass_that_pass_by_hand(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes, made, _ = fill(seed)
    found = 0
    for _ in range(40):
        choice = choose(chance)
        expected = ids(each for each in made if choice.passes(each))
        found += len(expected)

        assert passing(nodes, choice.filters) == expected
    assert found, "or nothing was compared"


def a_group(nodes: NodeSet, number: int, members: list[Attributes]) -> SearchNode:
    """What stands for these facts."""
    inside = [each.node for each in members]
    for each in inside:
        nodes.set_aside(each.id)
    group = SearchNode(
        id=an_id(f"g{number}"),
        kind=NodeKind.GROUP,
        ref=TurnsText(inside[0].turns),
        turns=tuple(sorted(turn for each in inside for turn in each.turns)),
        sessions=frozenset().union(*(each.sessions for each in inside)),
        said_at=max(each.said_at for each in inside),
        time_start=min(each.time_start for each in inside),
        time_end=max(each.time_end for each in inside),
        length=60,
    )
    turns = [a_turn(each.role, each.agent, each.metadata) for each in members]
    marks = {mark for turn in turns for mark in turn_marks(turn, nodes.mark)}
    marks |= label_marks((label for each in members for label in each.labels), nodes.mark)
    nodes.add_group(group, [each.id for each in inside], marks, "rex")
    return group


@pytest.mark.parametrize("seed", range(4))
def test_of_groups_those_members_are_shown_that_pass_by_hand_and_no_group_without_one(seed: int) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes, made, _ = fill(seed, 160)
    facts = [replace(each) for each in made if each.node.kind is NodeKind.FACT and not each.node.stated]
    groups = {}
    for number in range(len(facts) // 3):
        members = facts[3 * number : 3 * number + 3]
        groups[a_group(nodes, number, members).id] = members
    cut = 0
    for _ in range(60):
        choice = choose(chance)
        filters = replace(choice.filters, kinds=frozenset((NodeKind.GROUP,)))
        every = replace(choice, kinds=frozenset(NodeKind))
        expected = {
            group: inside
            for group, members in groups.items()
            if (inside := ids(each for each in members if every.passes(each)))
        }
        found = answering.recall(nodes, RecallRequest("Rex in Miami", 200, NO_EMBEDDER, filters=filters))
        shown = {
            memory.node.id: found.inside[memory.node.id] for memory in found.memories if memory.node.id in groups
        }
        cut += sum(len(inside) < 3 for inside in expected.values())

        assert {group: {each.node.id for each in inside} for group, inside in shown.items()} == expected
        assert {group for group in expected if len(expected[group]) < 3} == found.narrowed
        assert found.prepared.passed[-1].nodes == found.prepared.rows.size
    assert cut, "or nothing was compared"


@pytest.mark.parametrize("parameters", [NO_EMBEDDER, ANY_EMBEDDER, replace(NO_EMBEDDER, gamma=1.0)])
@pytest.mark.parametrize("seed", range(4))
def test_an_answer_holds_only_what_passes_and_all_of_it_when_asked(seed: int, parameters: AgprParameters) -> None:
    print("seed", seed)
    chance = random.Random(seed)
    nodes, made, _ = fill(seed)
    vectors = np.random.default_rng(seed).normal(size=(len(made), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes.set_vectors([each.node.id for each in made], vectors)
    for _ in range(10):
        choice = choose(chance)
        request = RecallRequest("Rex in Miami", 200, parameters, vectors[0], choice.filters)
        memories = answering.recall(nodes, request).memories

        assert {memory.node.id for memory in memories} == ids(each for each in made if choice.passes(each))


@pytest.mark.parametrize("seed", range(4))
def test_a_filtered_answer_is_that_of_a_set_with_those_nodes_alone(seed: int) -> None:
    """By vectors, since BM25 counts words over all nodes; without neighbours, who may not pass themselves."""
    print("seed", seed)
    nodes, made, texts = fill(seed)
    vectors = np.random.default_rng(seed).normal(size=(len(made), 8)).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    nodes.set_vectors([each.node.id for each in made], vectors)
    parameters = replace(ANY_EMBEDDER, cosine_weight=1.0, smoothing=0.0, session_weight=0.0)
    for role in ROLES:
        alone = NodeSet(b"other")
        kept = [n for n, each in enumerate(made) if each.role == role]
        for n in kept:
            add(alone, made[n], texts[made[n].node.id], {})
        alone.set_vectors([made[n].node.id for n in kept], vectors[kept])
        filters = Filters((Wanted("roles", (role_mark(role),)),))
        request = RecallRequest("anything", 5, parameters, vectors[0], filters)

        assert (
            answering.recall(nodes, request).memories
            == answering.recall(alone, replace(request, filters=Filters())).memories
        )


def test_a_neighbour_that_does_not_pass_still_speaks_for_the_one_beside_it() -> None:
    nodes = NodeSet()
    said = [("user", 0, "Where is Rex?"), ("tool", 0, "Here."), ("tool", 0, "Gone."), ("tool", 1, "Rex again.")]
    for n, (role, session, text) in enumerate(said):
        at, sessions = MONDAY + n * 1_000, frozenset((SESSIONS[session],))
        node = SearchNode(an_id(text), NodeKind.CHUNK, TurnsText((n,)), (n,), sessions, at, at, at, len(text))
        nodes.add(node, text, turn_marks(a_turn(role), nodes.mark))
    parameters = replace(NO_EMBEDDER, session_weight=0.0)
    request = RecallRequest("Rex", 3, parameters, filters=Filters((Wanted("roles", (role_mark("tool"),)),)))
    memories = answering.recall(nodes, request).memories

    assert [memory.node.id for memory in memories] == [an_id(text) for text in ("Rex again.", "Here.", "Gone.")]
    assert [memory.similarity for memory in memories] == [1.0, NO_EMBEDDER.smoothing, 0.0]


def test_the_counts_after_each_filter_begin_with_all_nodes() -> None:
    nodes, made, _ = fill(1)
    filters = Filters((Wanted("roles", (role_mark("user"),)),), frozenset((NodeKind.FACT,)))
    _, passed = passing_rows(nodes, filters)
    users = [each for each in made if each.role == "user"]

    assert [(each.name, each.nodes) for each in passed] == [
        ("nodes", len(made)),
        ("roles", len(users)),
        ("kinds", sum(each.node.kind is NodeKind.FACT for each in users)),
    ]


def test_what_nothing_carries_lets_nothing_pass() -> None:
    nodes, _, _ = fill(1)

    assert passing(nodes, Filters((Wanted("agents", (agent_mark("nobody"),)),))) == set()


@pytest.mark.parametrize(
    ("span", "passes"),
    [
        (Span(10, 20), True),
        (Span(20, 30), True),
        (Span(21, 30), False),
        (Span(5, 10), False),
        (Span(5, 11), True),
        (Span(15, 16), True),
        (Span(None, 10), False),
        (Span(None, 11), True),
        (Span(20, None), True),
        (Span(21, None), False),
    ],
)
def test_a_memory_about_10_to_20_meets_a_stretch_whose_end_is_not_in_it(span: Span, passes: bool) -> None:
    nodes = NodeSet()
    node = SearchNode(an_id("n"), NodeKind.FACT, TurnsText((1,)), (1,), frozenset((SESSIONS[0],)), 99, 10, 20, 1)
    nodes.add(node, "text")

    assert passing(nodes, Filters(about=span)) == ({node.id} if passes else set())


def test_metadata_is_known_by_path_and_value_never_by_its_looks() -> None:
    def marks(metadata: dict[str, object]) -> set[tuple[str, ...]]:
        return set(metadata_marks(metadata))

    assert marks({"device": {"os": "ios"}}) == marks({"device.os": "ios"})
    assert marks({"floor": 3}) == marks({"floor": 3.0})
    assert marks({"floor": 3}).isdisjoint(marks({"floor": "3"}))
    assert marks({"open": True}).isdisjoint(marks({"open": 1}))
    assert marks({"tags": ["a", "b"]}) == marks({"tags": ["a"]}) | marks({"tags": ["b"]})
    assert marks({"none": None}) == {("metadata", "none", "null")}


def test_a_turn_has_no_more_marks_than_its_share() -> None:
    many: dict[str, object] = {f"name {n}": n for n in range(METADATA_PAIRS_MAX * 3)}

    assert len(turn_marks(a_turn(metadata=many), NodeSet().mark)) == METADATA_PAIRS_MAX + 1
