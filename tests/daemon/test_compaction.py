"""Compaction: the ratio, the caps, one call a group, and what stops, fails or is forgotten in the middle."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.building.compacted import CompactionRunning
from daemon.building.live_nodes import copy_standing, live_nodes
from daemon.models.budget import Budget
from daemon.serving.handlers import CompactParams
from events.eventtree import NodesMerged, UnitsPartitioned
from events.log import EventLog
from events.memory import ParkReason, Task, Usage, WorkParked
from events.reading import read_user
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from projections.ports import ModelFailed, ModelUnavailable
from tests.builders import KEYS, ManualClock
from tests.daemon.parts_in_use import (
    ALICE,
    QUICK,
    Parts,
    build_parts,
    event_types,
    learn,
    merges,
    running_forgetter,
)
from tests.stored import stored_bytes
from tests.waiting import wait_until


async def groups_of(parts: Parts) -> list[int]:
    """How many facts each group has."""
    memory = await parts.memory()
    return [len(group.members) for group in memory.units.groups.values()]


@pytest.mark.parametrize(("ratio", "cap"), [(0.3, 2), (0.5, 3), (0.7, 5)])
async def test_the_ratio_is_reached_with_groups_no_larger_than_its_cap(
    parts: Parts, ratio: float, cap: int
) -> None:
    await learn(parts, 40)
    result = await parts.compactor.compact(ALICE, ratio)
    sizes = await groups_of(parts)

    assert (result.facts, result.nodes_before, result.nodes_after) == (40, 40, round(40 * (1 - ratio)))
    assert result.cut == pytest.approx(ratio)
    assert (result.groups, result.units) == (len(sizes), 2)
    assert 2 <= min(sizes) <= max(sizes) <= cap
    assert len(merges(parts)) == len(sizes), "one call a group, not one a merge"


async def test_without_a_ratio_that_of_the_configuration_counts(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, eventtree=EventTreeParameters(ratio=0.25))
    await learn(parts, 20)

    assert (await parts.compactor.compact(ALICE)).nodes_after == 15


async def test_a_group_answers_in_place_of_its_members(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()

    grouped = set(memory.units.group_of)
    assert len(live_nodes(copy_standing(memory))) == 10
    assert not grouped & memory.nodes.row_of.keys()
    assert memory.units.groups.keys() <= memory.nodes.row_of.keys()


async def test_partitions_and_merges_have_the_lineage_of_the_facts_they_joined(parts: Parts) -> None:
    await learn(parts, 12, "s1")
    await learn(parts, 12, "s2")
    await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=1000))

    decisions = [event for event in events if isinstance(event.event, UnitsPartitioned | NodesMerged)]
    assert decisions
    for recorded in decisions:
        assert isinstance(recorded.event, UnitsPartitioned | NodesMerged)
        event = recorded.event
        facts = (
            [fact for unit in event.units for fact in unit.facts]
            if isinstance(event, UnitsPartitioned)
            else event.members
        )
        joined = {memory.canon.facts[fact].first.session for fact in facts}
        assert len(joined) == 1 or isinstance(event, NodesMerged)
        assert set(recorded.lineage) == joined


async def test_a_second_run_with_the_same_ratio_changes_nothing(parts: Parts) -> None:
    await learn(parts, 40)
    await parts.compactor.compact(ALICE, 0.5)
    head, calls, digest = parts.log.head, len(merges(parts)), digest_memory(await parts.memory())
    again = await parts.compactor.compact(ALICE, 0.5)

    assert (again.groups, again.nodes_before, again.nodes_after, again.units) == (0, 20, 20, 2)
    assert (len(merges(parts)), parts.log.head) == (calls, head)
    assert digest_memory(await parts.memory()) == digest


async def test_only_units_that_changed_are_recorded(parts: Parts) -> None:
    await learn(parts, 40)
    await parts.compactor.compact(ALICE, 0.0)
    await parts.compactor.compact(ALICE, 0.3)
    types = await event_types(parts.log)

    assert types.count("units.partitioned") == 1, "the same nodes, the same units"
    assert types.count("nodes.merged") > 0


async def test_nothing_to_compact_is_no_error(parts: Parts) -> None:
    result = await parts.compactor.compact(ALICE, 0.5)

    assert (result.facts, result.groups, result.cut) == (0, 0, 0.0)


async def test_a_merge_that_is_given_up_is_parked_with_the_lineage_of_its_facts_and_the_others_are_recorded(
    parts: Parts,
) -> None:
    await learn(parts, 20, "s1")
    await learn(parts, 20, "s2")
    # What comes to nothing is tried three times.
    parts.model.queue.extend(["a text", "another text", *[ModelFailed("thing 3", Usage(calls=2))] * 200])
    result = await parts.compactor.compact(ALICE, 0.5)
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=1000))

    parked = [each for each in events if isinstance(each.event, WorkParked)]
    assert len(parked) == result.parked > 3
    for each in parked:
        assert isinstance(each.event, WorkParked)
        assert (each.event.task, each.event.reason) == (Task.MERGE, ParkReason.MODEL_FAILED)
        assert each.event.usage == Usage(calls=6)
        assert each.event.request in (await parts.memory()).units.parked
        assert set(each.lineage) <= {KEYS.session("alice", "s1"), KEYS.session("alice", "s2")} != set()
    assert (result.groups, len(await groups_of(parts)), result.waiting) == (2, 2, 0)
    assert parts.compactor.running == {}


async def test_parked_merges_are_not_asked_again(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.queue.extend([ModelFailed("thing 3")] * 200)
    first = await parts.compactor.compact(ALICE, 0.5)
    parts.model.queue.clear()
    asked, head = len(merges(parts)), parts.log.head
    again = await parts.compactor.compact(ALICE, 0.5)

    assert (3 * first.parked, again.parked) == (asked, first.parked)
    assert (len(merges(parts)), parts.log.head) == (asked, head)


async def test_a_merge_that_fails_is_tried_again_and_the_calls_before_are_counted(parts: Parts) -> None:
    await learn(parts, 4)
    parts.model.queue.extend([ModelFailed("thing 3", Usage(calls=1, prompt_tokens=7)), RuntimeError("thing 3")])
    result = await parts.compactor.compact(ALICE, 0.3)
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=1000))

    (merged,) = [each.event for each in events if isinstance(each.event, NodesMerged)]
    assert (result.groups, result.parked, len(merges(parts))) == (1, 0, 3)
    assert merged.usage == Usage(calls=1, prompt_tokens=7)


async def test_a_model_that_is_away_for_a_moment_is_waited_for(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.queue.append(ModelUnavailable("it is away", 0.05))
    result = await parts.compactor.compact(ALICE, 0.5)

    assert (result.nodes_after, result.waiting, result.waits_for) == (10, 0, None)


async def test_what_a_model_that_stays_away_leaves_undone_is_said_and_done_the_next_time(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.queue.extend(["a text", *[ModelUnavailable("it is away", 0.05)] * 200])
    first = await parts.compactor.compact(ALICE, 0.5)
    parts.model.queue.clear()
    await wait_until(lambda: parts.worker.engine.away is None)
    again = await parts.compactor.compact(ALICE, 0.5)

    assert (first.groups, first.waits_for) == (1, "it is away")
    assert first.waiting > 3
    assert (again.nodes_after, again.waiting) == (10, 0)
    assert not [each for each in await event_types(parts.log) if each == "work.parked"]


async def test_nobody_waits_for_a_budget_that_is_spent(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, budget=Budget(100, 0, clock))
    await learn(parts, 20)
    parts.worker.engine.budget.spend(ALICE, Usage(prompt_tokens=100))
    result = await parts.compactor.compact(ALICE, 0.5)

    assert (result.groups, merges(parts)) == (0, [])
    assert result.waiting > 3
    assert "models.tokens_per_day" in (result.waits_for or "")


async def test_no_more_groups_are_begun_than_can_be_asked_and_written(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=3))
    await learn(parts, 40)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(3)
        begun = len(anyio.get_running_tasks())
        parts.model.release()

    assert begun <= 2 * 3 + 3, "three fusings, as many that are next, the compaction, the test and what runs it"


async def test_while_answers_are_written_the_next_groups_are_asked_for(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, worker=replace(QUICK, concurrency=3))
    await learn(parts, 40)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(3)
        async with parts.worker.planner(ALICE):  # nothing is recorded meanwhile
            for call in parts.model.waiting():
                call.answer()
            await parts.until_asked(3)
            recorded = len((await parts.memory()).units.groups)
        parts.model.release()

    assert recorded == 0


async def test_a_second_compaction_of_the_same_user_is_told_to_wait(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(1)
        with pytest.raises(CompactionRunning) as raised:
            await parts.compactor.compact(ALICE, 0.5)
        await parts.compactor.compact(KEYS.user("bob"), 0.5)
        parts.model.release()

    assert raised.value.code == "busy"
    assert (await parts.compactor.compact(ALICE, 0.5)).nodes_after == 10, "and may run when the first is done"


async def test_all_groups_are_asked_at_once_and_everything_goes_on_meanwhile(parts: Parts) -> None:
    await learn(parts, 40)
    parts.model.held = True
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(8)  # the concurrency of these tests
        with anyio.fail_after(30):  # what hangs is never released meanwhile
            await parts.say("The dog is Rex.", session_id="s2")
            answer = await parts.ask("Rex", wait_for=parts.log.head)
        planned = answer.watermark.pending
        parts.model.release()

    assert answer.memories[0].text == "Alice: The dog is Rex."
    assert planned >= 8, "groups that are planned and not fused are pending"
    assert (await parts.ask("Rex")).watermark.pending == 0


async def test_a_group_whose_member_was_forgotten_during_the_call_is_not_recorded(
    parts: Parts, log_path: Path
) -> None:
    await learn(parts, 10, "s1")
    await learn(parts, 10, "s2")
    parts.model.held = True
    parts.model.queue.extend(["Zanzibar"] * 20)
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.3)
        await wait_until(lambda: len(merges(parts)) == 6)
        await parts.forgetter.forget("alice", "s1")
        await parts.forgetter.forget("alice", "s2")
        parts.model.release()

    assert await groups_of(parts) == []
    assert b"Zanzibar" not in stored_bytes(log_path)


async def test_groups_of_others_are_recorded_although_a_session_was_forgotten_during_their_calls(
    parts: Parts,
) -> None:
    """Forgetting makes their decision stale: it is decided again, and the model is not asked again."""
    await learn(parts, 20, "s1")
    await parts.say("a secret", session_id="other")
    parts.model.held = True
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.3)
        await wait_until(lambda: len(merges(parts)) == 6)
        await parts.forgetter.forget("alice", "other")
        parts.model.release()

    assert len(await groups_of(parts)) == 6 == len(merges(parts))


def test_the_parameters_of_a_compaction_have_no_ratio_unless_one_is_given() -> None:
    assert CompactParams(user_id="alice").ratio is None
