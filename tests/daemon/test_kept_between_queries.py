"""What queries keep of a Memory is what they would make anew, whatever happened in between: trees and words."""

from __future__ import annotations

import random
from typing import Any

import anyio
import pytest

from daemon.asking.forest_search import ForestSearch
from daemon.asking.word_search import WordSearch
from daemon.memories import Memories
from events.log import EventLog
from projections.memory import Memory
from projections.recall.agpr import NO_EMBEDDER
from projections.recall.forest_columns import ForestColumns
from tests.builders import ManualClock
from tests.bus_in_use import Reported
from tests.daemon.lived import Life
from tests.daemon.parts_in_use import ALICE, SMALL, build_parts
from tests.daemon.test_validity import Rules
from tests.daemon.test_word_search import AlikeWords

QUESTION = "Who rained on a dog in Boston?"


def describe(columns: ForestColumns, memory: Memory) -> dict[object, Any]:
    """Of each tree its items, what is below them, and by which nodes its leaves are found."""
    found: dict[object, Any] = {}
    for scope, layout, start in zip(columns.scopes, columns.layouts, columns.starts.tolist(), strict=True):
        rows = columns.rows[start : start + len(layout.items)].tolist()
        nodes = [None if row < 0 else memory.nodes.node(row).id for row in rows]
        shape = (columns.count[start : start + len(rows)].tolist(), layout.entries.tolist())
        found[scope] = ([item.digest for item in layout.items], nodes, shape)
    return found


@pytest.mark.parametrize("seed", range(2))
async def test_trees_and_words_that_were_kept_are_those_of_a_fresh_look(
    log: EventLog, clock: ManualClock, seed: int
) -> None:
    """While somebody browses all the time, and words are undone and sessions forgotten meanwhile."""
    print(f"seed {seed}")
    parts = build_parts(log, clock, model=Rules(), agpr=NO_EMBEDDER)
    life = Life(parts, clock, random.Random(seed))
    search, words = ForestSearch(), WordSearch(log, AlikeWords())

    async def browse() -> None:
        while True:
            memory = await parts.memory()
            await search.columns(memory, by_vectors=False)
            await words.find(memory, QUESTION)
            await anyio.sleep(0.001)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(browse)
        for _ in range(3):
            await life.live(6, undoing=True)
            memory = await parts.memory()
            kept = describe(await search.columns(memory, by_vectors=False), memory)
            assert kept == describe(await ForestSearch().columns(memory, by_vectors=False), memory)
            assert any(any(nodes) for _, nodes, _ in kept.values())
        tasks.cancel_scope.cancel()
    memory = await parts.memory()
    anew = await Memories(log, SMALL, Reported()).catch_up(ALICE)
    fresh = WordSearch(log, AlikeWords())
    related = [await each.find(of, QUESTION) for each, of in ((words, memory), (fresh, anew))]
    mine, theirs = memory.nodes.words, anew.nodes.words

    assert memory.user_seq == anew.user_seq
    assert related[0] == related[1]
    assert mine is not None
    assert theirs is not None
    assert (mine.node_ids, len(mine), mine.missing) == (theirs.node_ids, len(theirs), set())


async def test_what_browsing_keeps_counts_as_memory(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=Rules(), agpr=NO_EMBEDDER)
    await Life(parts, clock, random.Random(5)).live(12)
    memory = await parts.memory()
    before = memory.size_bytes
    columns = await ForestSearch().columns(memory, by_vectors=False)

    assert memory.size_bytes - before > 100 * columns.size > 0
