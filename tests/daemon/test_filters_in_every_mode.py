"""Whatever is filtered out answers in no mode, neither as a memory nor inside a summary."""

from __future__ import annotations

import random
from typing import Any, Final

import pytest

from daemon.asking.query_params import QueryParams, read_query
from events.log import EventLog
from events.time import to_iso
from projections.memory import Memory
from projections.memtree.items import Item, Leaf, Node
from projections.recall.agpr import NO_EMBEDDER
from projections.recall.filters import passing_rows
from projections.texts import TurnsText
from tests.builders import KEYS, ManualClock
from tests.daemon.lived import DAY_MS, QUESTIONS, Life
from tests.daemon.parts_in_use import ALICE, build_parts, running
from tests.daemon.test_validity import Rules

KINDS: Final = ("chunk", "fact", "group", ["chunk", "fact"])


def some_filters(chance: random.Random, sessions: list[str], now: int) -> dict[str, Any]:
    """Parameters of a query."""
    then = now - chance.randrange(60) * DAY_MS
    every = {
        "kinds": chance.choice(KINDS),
        "entities": chance.choice(("Bob", "Zoe", "Rex")),
        "sessions": chance.choice(sessions),
        "roles": "user",
        "said_after": to_iso(then),
        "said_before": to_iso(then),
    }
    names = chance.sample(sorted(every), k=chance.randrange(3))
    if {"said_after", "said_before"} <= {*names}:
        names.remove("said_before")
    about = chance.choice(
        ({}, {"valid_at": to_iso(then)}, {"between": [to_iso(then), to_iso(then + 20 * DAY_MS)]})
    )
    return {"filters": {name: every[name] for name in names}, **about}


def allowed_ids(memory: Memory, given: dict[str, Any]) -> set[str]:
    """What passes."""
    asked = read_query(QueryParams(user_id="alice", query="?", **given), KEYS)
    rows, _ = passing_rows(memory.nodes, asked.filters, memory.hidden)
    return {node.id.hex() for node in memory.nodes.nodes_at(rows.tolist())}


def items_of(memory: Memory) -> dict[str, Item]:
    """Every node of every tree by its id."""
    found: dict[str, Item] = {}
    for tree in memory.forest.trees.values():
        found.update((node.digest.hex(), node) for node in tree.nodes())
    return found


def nodes_below(memory: Memory, item: Item) -> set[str]:
    """The searched nodes that the leaves below an item stand for."""
    if isinstance(item, Node):
        return set().union(*(nodes_below(memory, child) for child in item.children))
    assert isinstance(item, Leaf)
    ref = memory.forest.leaf_ref(item.key)
    if isinstance(ref, TurnsText):
        return {chunk.hex() for chunk in memory.transcript.chunks_of(ref.turns)}
    facts = [fact for fact in memory.canon.facts.values() if fact.occurrences[0].leaf_key == item.key]
    return {memory.units.group_of.get(fact.id, fact.id).hex() for fact in facts}


@pytest.mark.parametrize("seed", range(2))
async def test_what_is_filtered_out_answers_in_no_mode(log: EventLog, clock: ManualClock, seed: int) -> None:
    print(f"seed {seed}")
    parts = build_parts(log, clock, model=Rules(), agpr=NO_EMBEDDER)
    life = Life(parts, clock, random.Random(seed))
    await life.live(40, undoing=True)
    async with running(parts):
        await parts.compactor.compact(ALICE, 0.6)
        await parts.until_done()
    memory = await parts.memory()
    assert memory.units.groups
    items, answered, roots = items_of(memory), 0, 0
    for _ in range(40):
        given = some_filters(life.chance, life.sessions, clock())
        allowed = allowed_ids(memory, given)
        for mode in ("agpr", "flat", "forest", "auto", "roots"):
            question = life.chance.choice(QUESTIONS)
            answer = await parts.ask(question, mode=mode, k=50, vectors=False, **given)
            summaries = [each.id for each in answer.memories if each.kind == "summary"]
            below = set().union(*(nodes_below(memory, items[each]) for each in summaries))
            assert below | {each.id for each in answer.memories} - {*summaries} <= allowed, (mode, given)
            answered, roots = answered + len(answer.memories), roots + len(summaries)

    assert answered > 100
    assert roots > 5
    for session in life.sessions:
        for mode in ("agpr", "flat", "forest", "roots"):
            answer = await parts.ask(
                "Rex in Oslo", mode=mode, k=50, filters={"sessions": session, "kinds": ["fact", "group"]}
            )
            of = {each.session_id for memory in answer.memories for each in memory.sources}
            assert of <= {session}, "also of groups and facts that rest on others, too"
