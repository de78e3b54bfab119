"""The literal mode of preset "paper": pair by pair, each merge after the one before, and what breaks the chain."""

from __future__ import annotations

import anyio
import numpy as np
import pytest

from daemon.building.compacted import CompactionResult
from events.log import EventLog
from projections.eventtree.literal import merge_pairwise
from projections.eventtree.merging import UnitNodes
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory
from projections.ports import ModelFailed, ModelUnavailable
from tests.builders import ManualClock
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, event_types, merges, running, running_forgetter
from tests.scripted_models import Call, ScriptedEmbedder
from tests.waiting import wait_until

PAPER = EventTreeParameters(preset="paper")


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock, eventtree=PAPER)


async def learn(parts: Parts, facts: int, session_id: str = "s1") -> list[str]:
    """So many facts of one session, in one unit; their texts in time order."""
    texts = [f"thing {number} of {session_id}." for number in range(facts)]
    async with running(parts):
        await parts.say(*texts, session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()
    return texts


async def until_asked(parts: Parts, number: int) -> None:
    """Return once so many merges were asked for."""
    await wait_until(lambda: len(merges(parts)) == number)


def texts_of(call: Call) -> list[str]:
    assert isinstance(call.question, tuple)
    return [each.text for each in call.question]  # type: ignore[union-attr]


def members_by_text(memory: Memory) -> set[frozenset[int]]:
    """The groups by when their facts were said, in minutes from the first."""
    first = min(fact.first.said_at for fact in memory.canon.facts.values())
    return {
        frozenset((memory.canon.facts[each].first.said_at - first) // 60_000 for each in group.members)
        for group in memory.units.groups.values()
    }


async def expected(texts: list[str], ratio: float) -> tuple[list[list[str]], set[frozenset[int]]]:
    """What the oracle does with these facts of one unit: the pairs as they are asked, and the groups."""
    embedder = ScriptedEmbedder()
    asked: list[list[str]] = []
    written = list(texts)
    rows = (await embedder.embed(texts)).astype(np.float16).astype(np.float32)

    def fuse(one: int, other: int) -> np.ndarray[tuple[int], np.dtype[np.float32]]:
        asked.append([written[one], written[other]])
        written.append(f"{written[one]} {written[other]}")
        row = embedder._row(written[-1]).astype(np.float16).astype(np.float32)
        return np.asarray(row)

    ids = [index.to_bytes(4, "big") for index in range(len(texts))]
    nodes = UnitNodes(rows, range(len(texts)), ids, [0] * len(texts))
    done = merge_pairwise(nodes, EventTreeParameters(preset="paper", ratio=ratio), fuse)
    return asked, {frozenset(group) for group in done.groups}


async def test_the_pairs_and_groups_are_those_of_the_oracle(parts: Parts) -> None:
    texts = await learn(parts, 16)
    result = await parts.compactor.compact(ALICE, 0.5)
    asked, groups = await expected(texts, 0.5)

    assert [texts_of(call) for call in merges(parts)] == asked
    assert members_by_text(await parts.memory()) == groups
    assert (result.nodes_after, result.units, result.groups) == (8, 1, len(groups))
    assert (await event_types(parts.log)).count("nodes.merged") == 8, "each merge is recorded"


async def test_no_merge_is_asked_for_before_the_one_before_is_recorded(parts: Parts) -> None:
    await learn(parts, 12)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        for number in range(1, 7):
            await until_asked(parts, number)
            assert len(parts.model.waiting()) == 1
            assert (await event_types(parts.log)).count("nodes.merged") == number - 1
            progress = parts.compactor.show_progress(ALICE)
            assert progress is not None
            assert (progress.groups, progress.fused) == (6, number - 1)
            parts.model.waiting()[0].answer()

    assert (await parts.memory()).units.groups


async def test_a_chain_that_is_broken_off_goes_on_from_the_merges_it_recorded(parts: Parts) -> None:
    texts = await learn(parts, 16)
    parts.model.held = True
    with anyio.CancelScope() as cancelled:
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
            for number in range(1, 4):
                await until_asked(parts, number)
                parts.model.waiting()[0].answer()
            await wait_until(lambda: len(merges(parts)) == 4)
            cancelled.cancel()
    recorded = (await event_types(parts.log)).count("nodes.merged")
    parts.model.held = False
    result = await parts.compactor.compact(ALICE, 0.5)

    assert recorded == 3
    assert result.nodes_after == len(texts) // 2
    assert (await event_types(parts.log)).count("nodes.merged") == 8, "none was made twice"


async def test_a_dry_run_counts_a_call_a_merge_and_asks_none(parts: Parts) -> None:
    await learn(parts, 16)
    told = await parts.compactor.preview(ALICE, 0.5)

    assert (told.calls, merges(parts), told.nodes_after) == (8, [], 8)
    assert told.tokens > 8


async def test_a_model_that_is_away_is_waited_for_and_then_the_rest_waits(parts: Parts) -> None:
    await learn(parts, 12)
    parts.model.queue.extend(["thing 0", "thing 1", *[ModelUnavailable("it is away", 0.05)] * 200])
    first = await parts.compactor.compact(ALICE, 0.5)
    parts.model.queue.clear()
    await wait_until(lambda: parts.worker.engine.away is None)
    again = await parts.compactor.compact(ALICE, 0.5)

    assert (first.waits_for, first.waiting, first.nodes_after) == ("it is away", 4, 10)
    assert (again.waiting, again.nodes_after) == (0, 6)


async def test_a_merge_that_is_given_up_ends_the_chain_and_is_told(parts: Parts) -> None:
    await learn(parts, 12)
    parts.model.queue.extend(["thing 0", *[ModelFailed("it fails")] * 50])
    result = await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()

    assert (result.parked, result.waiting, result.nodes_after) == (1, 4, 11)
    assert len(memory.units.parked) == 1
    assert len(memory.units.groups) == 1


async def test_when_a_session_is_forgotten_the_chain_is_planned_again_from_what_stands(parts: Parts) -> None:
    await learn(parts, 8, "s1")
    await learn(parts, 8, "s2")
    parts.model.held = True
    results: list[CompactionResult] = []

    async def compact() -> None:
        results.append(await parts.compactor.compact(ALICE, 0.5))

    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(compact)
        await wait_until(lambda: len(merges(parts)) == 1)
        await parts.forgetter.forget("alice", "s2")
        parts.model.release()

    memory = await parts.memory()

    assert (results[0].facts, results[0].nodes_after) == (8, 4)
    assert all(len(group.members) > 1 for group in memory.units.groups.values())
