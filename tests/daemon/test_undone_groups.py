"""Groups that are taken apart again: their facts are searched at once, and merged when somebody asks for it."""

from __future__ import annotations

import anyio
import pytest

from daemon.building.compacted import CompactionRunning
from daemon.building.undoing import GroupUnknown
from events.memory import FactId
from tests.daemon.parts_in_use import ALICE, Parts, learn, merges


async def test_undone_groups_give_their_facts_back_at_once_and_the_background_leaves_them_apart(
    parts: Parts,
) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()
    first, *others = memory.units.groups.values()
    one = await parts.compactor.undo(ALICE, [first.id.hex()])
    memory = await parts.memory()
    after_one = (set(first.members) <= memory.nodes.row_of.keys(), first.id in memory.units.groups)
    rest = await parts.compactor.undo(ALICE)
    memory = await parts.memory()

    assert (one.groups, one.facts) == (1, len(first.members))
    assert after_one == (True, False)
    assert (rest.groups, rest.facts) == (len(others), sum(len(group.members) for group in others))
    assert (memory.units.groups, len(memory.nodes.row_of.keys() & memory.canon.facts.keys())) == ({}, 20)
    assert set(memory.units.apart) == apart_of([first.members, *(group.members for group in others)])


def apart_of(groups: list[tuple[FactId, ...]]) -> set[FactId]:
    return {fact for members in groups for fact in members}


async def test_what_was_undone_is_merged_again_when_that_is_asked_and_not_paid_for_twice(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    groups, asked = set((await parts.memory()).units.groups), len(merges(parts))
    await parts.compactor.undo(ALICE)
    await parts.compactor.compact(ALICE, 0.5)

    assert (set((await parts.memory()).units.groups), len(merges(parts))) == (groups, asked)
    assert (await parts.memory()).units.apart == {}


async def test_a_group_that_is_not_there_is_refused_and_nothing_is_undone(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    groups, head = list((await parts.memory()).units.groups), parts.log.head
    for wrong in ("no hex", "00ff"):
        with pytest.raises(GroupUnknown) as raised:
            await parts.compactor.undo(ALICE, [groups[0].hex(), wrong])
        assert raised.value.code == "not_found"

    assert (list((await parts.memory()).units.groups), parts.log.head) == (groups, head)


async def test_a_group_that_is_named_twice_is_undone_once(parts: Parts) -> None:
    await learn(parts, 20)
    await parts.compactor.compact(ALICE, 0.5)
    group = next(iter((await parts.memory()).units.groups.values()))
    undone = await parts.compactor.undo(ALICE, [group.id.hex(), group.id.hex().upper()])

    assert (undone.groups, undone.facts) == (1, len(group.members))


async def test_nothing_is_undone_while_a_compaction_runs(parts: Parts) -> None:
    await learn(parts, 20)
    parts.model.held = True
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.compactor.compact, ALICE, 0.5)
        await parts.until_asked(1)
        with pytest.raises(CompactionRunning):
            await parts.compactor.undo(ALICE)
        with pytest.raises(CompactionRunning):
            await parts.compactor.preview(ALICE)
        parts.model.release()
