"""Compaction: the ratio, the caps, one call a group, and what stops, fails or is forgotten in the middle."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from daemon.building.compaction import CompactionRunning, live_nodes
from daemon.building.work import AnswerInvalid
from daemon.serving.handlers import CompactParams
from events.log import EventLog
from events.memory import NodesMerged, UnitsPartitioned
from events.reading import read_user
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import KEYS, ManualClock
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, event_types, running, running_forgetter
from tests.scripted_models import Call, ModelFailed
from tests.stored import stored_bytes
from tests.waiting import wait_until


async def learn(parts: Parts, facts: int, session_id: str = "s1", first: int = 0) -> None:
    """So many facts of one session, extracted and admitted; then no worker runs any more."""
    async with running(parts):
        await parts.say(
            *(f"thing {first + number} of {session_id}." for number in range(facts)), session_id=session_id
        )
        await parts.close(session_id)
        await parts.until_done()


def merges(parts: Parts) -> list[Call]:
    return [call for call in parts.model.calls if call.task is None]


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
    assert len(live_nodes(memory)) == 10
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
        joined = {memory.canon.facts[fact].first.session for fact in recorded.event.members}
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

    assert types.count("units.partitioned") == 2, "the same nodes, the same units"
    assert types.count("nodes.merged") > 0


async def test_nothing_to_compact_is_no_error(parts: Parts) -> None:
    result = await parts.compactor.compact(ALICE, 0.5)

    assert (result.facts, result.groups, result.cut) == (0, 0, 0.0)


async def test_a_failed_merge_keeps_what_the_others_paid_for_and_the_next_run_goes_on(parts: Parts) -> None:
    await learn(parts, 40)
    parts.model.queue.extend(["a text", "another text", ModelFailed("thing 3"), *["text"] * 20])
    with pytest.raises(ModelFailed):
        await parts.compactor.compact(ALICE, 0.5)
    after_failure, asked = len(await groups_of(parts)), len(merges(parts))
    parts.model.queue.clear()
    result = await parts.compactor.compact(ALICE, 0.5)

    assert asked - after_failure == 1, "every other answer was recorded"
    assert after_failure >= 8
    assert result.nodes_after == 20
    assert len(merges(parts)) - asked == result.groups <= 2
    assert parts.compactor.planned == {}


async def test_an_empty_answer_makes_no_group(parts: Parts) -> None:
    await learn(parts, 4)
    parts.model.queue.append("  \n")
    with pytest.raises(AnswerInvalid):
        await parts.compactor.compact(ALICE, 0.3)

    assert await groups_of(parts) == []


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
        with anyio.fail_after(2):
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
