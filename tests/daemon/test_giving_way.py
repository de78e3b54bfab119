"""What takes long gives way to others: it goes in small steps, counted in calls, or off the loop."""

from __future__ import annotations

import gc
import subprocess
import sys
import threading
from collections.abc import Callable, Generator
from functools import partial

import anyio
import anyio.lowlevel
import numpy as np
import pytest

from daemon import folding
from daemon.asking.differences import outline
from daemon.asking.listings import Listings, NoParams, UserParams, count_by_session
from daemon.asking.structures import FactsParams, PageParams, Structures, look_at_page, outline_page
from daemon.asking.unit_listing import look_at_units
from daemon.building.work import Origin
from daemon.folding import fold_from_nothing, read_in_slices
from daemon.lifecycle import collect_seldom
from daemon.scene_names import scene_in_steps
from daemon.serving.schemas import Schemas
from events.eventtree import UnitMembers, UnitsPartitioned
from events.log import EventLog
from events.reading import read_user
from projections.digests import collect_parts
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory, MemoryParameters
from projections.recall.forest_columns import ForestColumns, TreeLayout
from projections.steps import Steps, at_once, each_of
from tests.benchmarks.folding import grow
from tests.benchmarks.samples import fresh_log
from tests.counting import count_calls
from tests.daemon.parts_in_use import ALICE, Parts, running
from tests.daemon.test_worker import say_chunks
from tests.projections.memtree.test_dirty import a_leaf

TURNS = 120
# Calls of a step: a look at one thing, whose parts are few.
STEP_CALLS_MAX = 300


async def _grow() -> Memory:
    async with fresh_log() as (log, _):
        await grow(log, "alice", TURNS, seed=1)
        return await fold_from_nothing(log, log.keys.user("alice"), MemoryParameters())


@pytest.fixture(scope="module")
def grown() -> Memory:
    """A Memory of some hundred facts, each in a unit of its own."""
    memory = anyio.run(_grow)
    units = tuple(UnitMembers(unit=fact, facts=(fact,)) for fact in memory.units.unplaced)
    memory.units.apply_partition(UnitsPartitioned(generation=1, units=units))
    return memory


def calls_of(steps: Generator[None, None, object]) -> list[int]:
    """How many functions each step calls."""
    calls = list[int]()
    done = False

    def go_on() -> None:
        nonlocal done
        try:
            next(steps)
        except StopIteration:
            done = True

    while not done:
        calls.append(count_calls(go_on))
    return calls


def hash_of(memory: Memory) -> Steps[object]:
    return at_once(collect_parts(memory)).hash_in_steps()


def scene_of(memory: Memory) -> Steps[object]:
    """Of the largest scope: how scenes are named has nothing to do with how facts came into them."""
    return scene_in_steps(memory, max(memory.members, key=lambda scope: len(memory.members[scope])))


@pytest.mark.parametrize(
    "look",
    [
        collect_parts,
        hash_of,
        scene_of,
        outline,
        count_by_session,
        partial(look_at_page, limit=100, after=None),
        partial(outline_page, limit=100, after=None),
        partial(look_at_units, limit=100, after=None),
    ],
    ids=["digest", "hashes", "scene", "outline", "sessions", "facts", "trees", "units"],
)
async def test_a_memory_is_read_in_small_steps(grown: Memory, look: Callable[[Memory], Steps[object]]) -> None:
    calls = calls_of(look(grown))

    assert max(calls) <= STEP_CALLS_MAX
    assert sum(calls) >= 5 * max(calls)


async def test_what_is_dirty_is_found_in_small_steps_when_a_log_was_folded(log: EventLog) -> None:
    await grow(log, "alice", TURNS, seed=1)
    recorded = await log.read(partial(read_user, user=ALICE))
    memory = Memory(ALICE, MemoryParameters())
    for each in recorded:
        memory.apply(each)
    calls = calls_of(memory.forest.look_in_steps())
    folded = await fold_from_nothing(log, ALICE, MemoryParameters())

    assert len(calls) >= 20
    assert max(calls) <= STEP_CALLS_MAX
    assert count_calls(memory.forest.dirty_digests) <= 10, "nothing is left to find"
    assert folded.forest.dirty_digests() == memory.forest.dirty_digests()


async def test_a_snapshot_of_the_node_set_is_made_in_several_steps(grown: Memory) -> None:
    assert len(calls_of(grown.nodes.freeze())) >= 5


async def test_a_memory_that_changes_while_it_is_read_is_read_anew(
    grown: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "SLICE_S", -1.0)  # others run after every step
    begun = list[int]()

    def read() -> Steps[list[int]]:
        begun.append(grown.user_seq)
        return each_of(range(5), lambda _: grown.user_seq)

    async def change() -> None:
        grown.user_seq += 1

    seen = set[int]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change)
        seen.update(await read_in_slices(grown, read))

    assert begun == [grown.user_seq - 1, grown.user_seq]
    assert seen == {grown.user_seq}


async def test_a_memory_that_never_stands_still_is_read_in_one_go_in_the_end(
    grown: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "SLICE_S", -1.0)

    async def change_for_ever() -> None:
        while True:
            grown.user_seq += 1
            await anyio.lowlevel.checkpoint()

    seen = set[int]()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(change_for_ever)
        seen.update(await read_in_slices(grown, lambda: each_of(range(5), lambda _: grown.user_seq)))
        tasks.cancel_scope.cancel()

    assert len(seen) == 1


async def test_listings_and_digest_are_the_same_when_others_run_after_every_step(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    await grow(parts.log, "alice", 60, seed=1)
    structures = Structures(parts.log, parts.memories)

    async def read_all() -> list[object]:
        return [
            await structures.digest(UserParams(user_id="alice")),
            await structures.facts(FactsParams(user_id="alice", limit=20)),
            await structures.trees(PageParams(user_id="alice", limit=20)),
            await Listings(parts.log, parts.memories).sessions(UserParams(user_id="alice")),
        ]

    at_once = await read_all()
    monkeypatch.setattr(folding, "SLICE_S", -1.0)

    assert await read_all() == at_once


async def test_planning_gives_way_between_pieces_and_does_all_there_is(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "SLICE_S", -1.0)
    async with running(parts):
        await say_chunks(parts, 6)
        await parts.close()
        await parts.until_done()
        memory = await parts.memory()

    assert len(memory.canon.facts) == 12
    assert memory.pending() == 0


async def test_of_a_memory_that_changes_whenever_planning_gives_way_something_is_begun_each_time(
    parts: Parts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(folding, "SLICE_S", -1.0)
    monkeypatch.setattr(Origin, "stands", lambda *_: False)
    with anyio.fail_after(10):
        async with running(parts):
            await say_chunks(parts, 6)
            await parts.close()
            await parts.until_done()
            memory = await parts.memory()

    assert len(memory.canon.facts) == 12
    assert memory.pending() == 0


def test_many_trees_are_joined_without_a_look_at_each_of_their_columns() -> None:
    def cost_of(trees: int) -> int:
        parts = [(Scope(ScopeKind.ENTITY, f"e{n}"), TreeLayout.of(a_leaf(n)), np.array([0])) for n in range(trees)]
        return count_calls(lambda: ForestColumns.join(parts))

    assert (cost_of(1_100) - cost_of(100)) / 1_000 <= 4


def test_the_garbage_collector_looks_at_few_young_objects_at_a_time_and_hardly_ever_at_all() -> None:
    before, passes, kept = gc.get_threshold(), list[int](), list[list[int]]()

    def note(phase: str, details: dict[str, int]) -> None:
        if phase == "start":
            passes.append(details["generation"])

    collect_seldom()
    gc.collect()
    gc.callbacks.append(note)
    try:
        kept += ([] for _ in range(100_000))  # all that is made while a log is folded stays
    finally:
        gc.callbacks.remove(note)
        young, middle, old = gc.get_threshold()
        gc.set_threshold(*before)

    assert passes.count(1) >= 5, "none that is looked at a second time is one of many"
    assert 2 not in passes
    assert young * middle * old >= 1_000_000_000


async def test_the_document_of_the_methods_is_made_off_the_loop() -> None:
    made_by = list[int]()

    def make() -> bytes:
        made_by.append(threading.get_ident())
        return b"{}"

    await Schemas(make).openapi(NoParams())

    assert made_by != [threading.get_ident()]


ASKING = """
import asyncio, sys, threading
from daemon.asking.time_asked import make_ready
from daemon.reading.time_questions.reader import read_time_question

compiled = []

def note(frame, event, _):
    if event == "call" and frame.f_code.co_name == "_compile" and "re" in frame.f_code.co_filename:
        compiled.append(frame.f_lineno)

async def ask():
    await make_ready()
    assert "daemon.offline.date_rules" in sys.modules
    assert read_time_question("What did I buy on 3 May 2023?", 0) is not None

assert "daemon.offline.date_rules" not in sys.modules
sys.setprofile(note)  # of this thread, which is the loop's
asyncio.run(ask())
sys.setprofile(None)
print(len(compiled))
"""


def test_the_first_question_of_a_process_compiles_the_patterns_of_dates_off_the_loop() -> None:
    asked = subprocess.run([sys.executable, "-c", ASKING], capture_output=True, text=True, check=True)

    assert int(asked.stdout) <= 2
