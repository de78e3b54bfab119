"""Compaction of memories with vectors of other models: each by its own vectors, and never across models."""

from __future__ import annotations

import numpy as np
import pytest

from events.eventtree import UnitId
from events.log import EventLog
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory
from tests.builders import ManualClock, a_batch
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.daemon.test_spaces import CHAT, FILM, a_memory
from tests.waiting import wait_until

# So many of each model, about so many rooms; few above a target are let be.
MEMORIES, ROOMS = 60, 3
WIDTHS = {FILM: 24, CHAT: 16}


def room_of(number: int) -> int:
    """One that no rule about words could tell: texts say nothing of it."""
    return number * 7 % ROOMS


async def learn(parts: Parts) -> dict[int, int]:
    """Memories of two models, taking turns, and as many of our own; vectors alone tell which are of one room.

    The room of each by its seq: what is done in the background is recorded in between.
    """
    chance, rooms = np.random.default_rng(3), dict[int, int]()
    for number in range(MEMORIES):
        told = []
        for model, width in WIDTHS.items():
            vector = chance.normal(size=width) / 20
            vector[room_of(number)] += 1
            told.append(a_memory(f"{model}-{number}", f"Thing {number}, {model}.", vector.tolist(), model, model))
        told.append(a_memory(f"own-{number}", f"Piece {number}.", None, None, "own"))
        outcomes = await parts.log.append(a_batch(*told))
        rooms.update((outcome.seq, room_of(number)) for outcome in outcomes if outcome.seq is not None)
    return rooms


def check_apart(memory: Memory) -> dict[int, int]:
    """How many groups there are in each space; no unit and no group has facts of two."""
    units: dict[UnitId, set[int]] = {}
    for fact, unit in memory.units.unit_of.items():
        units.setdefault(unit, set()).add(memory.placement.space_of(fact))
    groups: dict[int, int] = {}
    for group in memory.units.groups.values():
        (space,) = {memory.placement.space_of(fact) for fact in group.members}
        groups[space] = groups.get(space, 0) + 1

    assert all(len(spaces) == 1 for spaces in units.values())
    return groups


def is_done(parts: Parts) -> bool:
    """Nothing waits, all facts are in units, and some of each space in groups."""
    memory = parts.memories.loaded()[ALICE]
    grouped = {memory.placement.space_of(fact) for fact in memory.units.group_of}
    return (
        parts.is_done() and not (memory.units.unplaced or parts.worker.count_planned(ALICE)) and len(grouped) == 3
    )


@pytest.mark.parametrize("in_background", [True, False])
async def test_each_model_s_memories_are_grouped_by_their_own_vectors(
    log: EventLog, clock: ManualClock, in_background: bool
) -> None:
    parts = build_parts(log, clock, online=EventTreeParameters() if in_background else None)
    async with running(parts):
        rooms = await learn(parts)
        if in_background:
            await wait_until(
                lambda: is_done(parts), message="the compaction does not come to an end", timeout_s=60
            )
        else:
            await parts.compactor.compact(ALICE)
        memory = await parts.memory()
    groups = check_apart(memory)
    theirs = [group for group in memory.units.groups.values() if memory.placement.space_of(group.members[0])]
    facts = memory.canon.facts
    of_one_room = [
        group for group in theirs if len({rooms[facts[member].first.pointer.seq] for member in group.members}) == 1
    ]

    assert groups.keys() == {0, 1, 2}, groups
    assert len(of_one_room) >= 0.8 * len(theirs), "their texts are all alike: only their vectors tell"
