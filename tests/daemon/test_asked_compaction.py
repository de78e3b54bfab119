"""Compaction that somebody asks for: groups, units, dry run, what stays apart, undoing, and being broken off."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from daemon.building.policies import Policies, PolicyParams
from events.log import EventLog
from events.memory import FactRole, Task, Usage
from projections.eventtree.parameters import EventTreeParameters, one_cap
from projections.memory import Memory
from projections.ports import ModelUnavailable
from tests.builders import SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import ALICE, QUICK, Parts, build_parts, event_types, learn, merges, running
from tests.scripted_models import Call, ScriptedEmbedder
from tests.waiting import wait_until

MINUTE_MS = 60_000
ONE_CALL = Usage(calls=1, prompt_tokens=30, completion_tokens=12)


@asynccontextmanager
async def open_log(path: Path, clock: ManualClock) -> AsyncGenerator[EventLog, None]:
    """A log of its own, with the nonces of every other."""
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    try:
        yield log
    finally:
        await log.close()


def when_said(memory: Memory) -> set[frozenset[int]]:
    """The groups by when their facts were said: ids differ from store to store."""
    return {
        frozenset(memory.canon.facts[member].first.said_at for member in group.members)
        for group in memory.units.groups.values()
    }


async def groups_of(parts: Parts) -> set[frozenset[int]]:
    return when_said(await parts.memory())


async def answer_in_any_order(parts: Parts, chosen: random.Random) -> None:
    """Let calls go one by one, whichever comes out, until the compaction is over."""
    await wait_until(lambda: bool(merges(parts)))
    while True:
        waiting = [call for call in parts.model.waiting() if call.task is Task.MERGE]
        if waiting:
            chosen.choice(waiting).answer()
        await anyio.lowlevel.checkpoint()
        if not parts.compactor.running:
            return


@pytest.mark.parametrize("seed", [1, 2, 3])
async def test_the_groups_are_those_of_one_by_one_whatever_the_order_of_the_answers(
    tmp_path: Path, clock: ManualClock, seed: int
) -> None:
    print(f"seed {seed}")
    found: list[set[frozenset[int]]] = []
    for slots in (1, 8):
        async with open_log(tmp_path / f"{slots}.db", clock) as log:
            parts = build_parts(log, clock, worker=replace(QUICK, concurrency=slots))
            await learn(parts, 40)
            parts.model.held = slots > 1
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
                if slots > 1:
                    await answer_in_any_order(parts, random.Random(seed))
            found.append(await groups_of(parts))
            assert len(merges(parts)) == len(found[-1]), "one call a group"

    assert found[0] == found[1]


async def test_it_says_what_it_asked_and_what_that_took(parts: Parts) -> None:
    await learn(parts, 40)
    parts.model.usage = ONE_CALL
    result = await parts.compactor.compact(ALICE, 0.5)

    assert result.calls == result.groups == len(merges(parts)) > 10
    assert result.tokens == 42 * result.groups
    assert result.extractive == 0
    assert (result.dry_run, result.ratio, result.member_cap) == (False, 0.5, 3)


async def test_a_dry_run_tells_what_the_run_then_does_and_changes_nothing(parts: Parts) -> None:
    await learn(parts, 40)
    parts.model.usage = ONE_CALL
    head = parts.log.head
    told = await parts.compactor.preview(ALICE, 0.5)
    unchanged = (parts.log.head, len(merges(parts)))
    done = await parts.compactor.compact(ALICE, 0.5)

    assert unchanged == (head, 0)
    assert told.dry_run
    same = ("facts", "nodes_before", "nodes_after", "cut", "groups", "units", "calls", "apart")
    assert [getattr(told, name) for name in same] == [getattr(done, name) for name in same]
    assert told.loss_bound == pytest.approx(done.loss_bound)
    assert told.tokens > done.groups


async def test_the_run_goes_by_the_plan_of_the_dry_run_before_it_as_long_as_nothing_changed(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    await learn(parts, 30)
    await parts.compactor.preview(ALICE, 0.5)
    planned = len(embedder.texts)
    done = await parts.compactor.compact(ALICE, 0.5)
    planned_once = len(embedder.texts)
    await parts.compactor.preview(ALICE, 0.7)
    await learn(parts, 10, "s2")
    again = await parts.compactor.compact(ALICE, 0.7)

    assert planned_once == planned > 0, "its vectors were not looked for a second time"
    assert done.groups > 5
    assert again.facts == 40
    assert (await parts.memory()).units.unit_of.keys() == (await parts.memory()).canon.facts.keys()


async def test_a_dry_run_of_another_ratio_is_no_plan(parts: Parts) -> None:
    await learn(parts, 40)
    await parts.compactor.preview(ALICE, 0.7)
    done = await parts.compactor.compact(ALICE, 0.3)

    assert done.cut == pytest.approx(0.3, abs=0.03)


async def test_a_dry_run_asks_nothing_of_what_was_answered_before(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    await parts.compactor.undo(ALICE)
    told = await parts.compactor.preview(ALICE, 0.5)

    assert told.groups > 3
    assert (told.calls, told.tokens) == (0, 0)


async def test_once_is_as_much_as_again_and_again_with_a_call_a_group(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, eventtree=EventTreeParameters(member_caps=one_cap(2)))
    await learn(parts, 60)
    told = await parts.compactor.preview(ALICE, 0.5)
    done = await parts.compactor.compact(ALICE, 0.5)
    again = await parts.compactor.compact(ALICE, 0.5)
    units = (await parts.memory()).units
    singles = Counter(unit for fact, unit in units.unit_of.items() if fact not in units.group_of)

    assert set(singles.values()) <= {1}, "of no unit two are left that may be merged"
    assert (told.nodes_after, done.nodes_after, again.nodes_after) == (done.nodes_after,) * 3
    assert (len(merges(parts)), again.groups) == (done.groups, 0)


async def test_units_stay_where_they_are_and_new_facts_join_them(parts: Parts) -> None:
    await learn(parts, 40)
    await parts.compactor.compact(ALICE, 0.3)
    before = dict((await parts.memory()).units.unit_of)
    await learn(parts, 10, "s2")
    result = await parts.compactor.compact(ALICE, 0.3)
    after = (await parts.memory()).units.unit_of

    assert before.items() <= after.items()
    assert len(after) == 50
    assert result.units == len(set(before.values())) == 2


async def test_units_are_made_anew_when_that_is_asked_and_groups_stay_whole(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.3)
    await learn(parts, 40, "s2")
    groups = await groups_of(parts)
    result = await parts.compactor.compact(ALICE, 0.0, reindex=True)
    memory = await parts.memory()

    assert (result.units, result.groups) == (3, 0), "ceil(.05 x 54 nodes)"
    assert await groups_of(parts) == groups
    for group in memory.units.groups.values():
        assert len({memory.units.unit_of[member] for member in group.members}) == 1


async def test_a_run_that_is_broken_off_keeps_its_groups_and_the_next_one_makes_the_others(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with open_log(tmp_path / "whole.db", clock) as log:
        parts = build_parts(log, clock)
        await learn(parts, 40)
        await parts.compactor.compact(ALICE, 0.5)
        whole = await groups_of(parts)
    async with open_log(tmp_path / "broken.db", clock) as log:
        parts = build_parts(log, clock)
        await learn(parts, 40)
        parts.model.held = True
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
            await parts.until_asked(8)
            for call in parts.model.waiting()[:3]:
                call.answer()
            await wait_until(lambda: parts.compactor.running[ALICE].fused == 3)
            tasks.cancel_scope.cancel()
        kept, over = await groups_of(parts), dict(parts.compactor.running)
        parts.model.held = False
        result = await parts.compactor.compact(ALICE, 0.5)
        again, asked = await groups_of(parts), len(merges(parts))

    assert (len(kept), over) == (3, {})
    assert kept < again == whole
    assert (result.groups, asked) == (len(whole) - 3, len(whole))


async def test_progress_tells_how_many_of_the_planned_groups_are_fused(parts: Parts) -> None:
    await learn(parts, 40)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(8)
        begun = parts.compactor.show_progress(ALICE)
        parts.model.waiting()[0].answer()
        await wait_until(lambda: parts.compactor.running[ALICE].fused == 1)
        later, planned = parts.compactor.show_progress(ALICE), parts.compactor.count_planned(ALICE)
        parts.model.release()

    assert begun is not None
    assert later is not None
    assert (begun.fused, later.fused, later.parked) == (0, 1, 0)
    assert begun.groups == later.groups == len(merges(parts))
    assert planned in (begun.groups - 1, begun.groups)
    assert parts.compactor.show_progress(ALICE) is None


async def test_what_stays_apart_is_counted_by_why(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, eventtree=EventTreeParameters(min_age_s=3600))
    await learn(parts, 10, "s1")
    clock.advance(180 * MINUTE_MS)
    parts.turns += 120  # two hours later
    await learn(parts, 4, "s2")
    result = await parts.compactor.compact(ALICE, 0.5)

    assert result.apart.young == 4
    assert (result.apart.pinned, result.apart.states, result.apart.kinds) == (0, 0, 0)
    assert all(said_at < clock() - 60 * MINUTE_MS for group in await groups_of(parts) for said_at in group)
    assert (result.facts, result.nodes_before) == (14, 14)
    assert result.nodes_after < 14


async def test_a_model_that_is_dead_leaves_units_and_no_half_group(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.queue.extend([ModelUnavailable("it is away", 0.05)] * 200)
    result = await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()

    assert (result.groups, result.nodes_after, result.waits_for) == (0, 20, "it is away")
    assert result.waiting > 3
    assert (memory.units.groups, memory.units.parked) == ({}, {})
    assert "nodes.merged" not in await event_types(parts.log)


async def test_without_a_ratio_the_policy_of_the_user_counts(parts: Parts, clock: ManualClock) -> None:
    await learn(parts, 20)
    policies = Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(), clock)
    await policies.set(PolicyParams(user_id="alice", ratio=0.7, member_cap=2))
    result = await parts.compactor.compact(ALICE)

    assert (result.ratio, result.member_cap) == (0.7, 2)
    assert {len(group) for group in await groups_of(parts)} == {2}
    assert result.nodes_after == 20 - result.groups >= 10, "two a group is half at most"


async def test_what_is_said_meanwhile_to_be_never_merged_is_not_merged_any_more(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=1))
    await learn(parts, 20)
    policies = Policies(parts.log, parts.memories, parts.worker, EventTreeParameters(), clock)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(1)
        await policies.set(PolicyParams(user_id="alice", never_merged=[role.value for role in FactRole]))
        parts.model.release()

    assert 1 <= len(merges(parts)) <= 2, "what was asked for, and what stood in line for a slot"
    assert parts.compactor.count_planned(ALICE) == 0


async def test_merges_that_the_background_began_are_waited_for_and_no_call_is_in_vain(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=EventTreeParameters())
    parts.model.held = True

    def background() -> list[Call]:
        for call in parts.model.waiting():
            if call.task is not Task.MERGE:
                call.answer()
        return [call for call in parts.model.waiting() if call.task is Task.MERGE]

    async with running(parts):
        await parts.say(*(f"thing {number}." for number in range(40)))
        await parts.close()
        await wait_until(lambda: len(background()) >= 2)
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
            await wait_until(lambda: bool(parts.compactor.running))
            parts.model.release()
        await wait_until(lambda: not parts.worker.in_flight)
    recorded = (await event_types(parts.log)).count("nodes.merged")

    assert len(merges(parts)) == recorded > 2, "every answer made a group"
