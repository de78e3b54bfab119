"""Units and groups that are made in the background, when a session is forgotten or what they rest on is edited."""

from __future__ import annotations

from collections import Counter

import pytest

from daemon.folding import fold_from_nothing
from events.envelope import RecordedEvent
from events.eventtree import NodesMerged, UnitsPartitioned
from events.log import EventLog
from events.memory import Task
from events.reading import read_user
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from tests.builders import MONDAY, ManualClock, a_revision
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, SMALL, Parts, build_parts, running
from tests.waiting import wait_until

FACTS, SHARED = 26, 6


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock, online=EventTreeParameters())


async def learn(parts: Parts) -> None:
    """Three sessions; some of what is said in the first is said in the second, too.

    Each is compacted before the next: a round plans what is above its target when it begins, so how much is left
    for the next round depends on which facts came in the middle of one.
    """
    for session in ("s1", "s2", "s3"):
        own = [f"thing {number} of {session}." for number in range(FACTS)]
        shared = [f"thing {number} of all." for number in range(SHARED)] if session != "s3" else []
        await parts.say(*shared, *own, session_id=session)
        await parts.close(session)
        await until_compacted(parts)


async def until_compacted(parts: Parts) -> None:
    def is_compacted() -> bool:
        return parts.is_done() and parts.worker.count_planned(ALICE) == 0

    await wait_until(is_compacted, message="the compaction does not come to an end")


async def events_after(parts: Parts, seq: int) -> list[RecordedEvent]:
    events = await parts.log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [each for each in events if each.seq > seq]


def calls(parts: Parts) -> int:
    return sum(call.task is Task.MERGE for call in parts.model.calls)


async def assert_as_folded(parts: Parts) -> None:
    live = await parts.memory()
    folded = await fold_from_nothing(parts.log, ALICE, SMALL)

    assert digest_memory(folded) == digest_memory(live)


async def test_after_a_forgetting_a_fact_is_placed_at_most_once_and_no_group_is_made_to_fall_again(
    parts: Parts,
) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        known, standing, asked = set(before.canon.facts), set(before.units.groups), calls(parts)
        head = parts.log.head
        await parts.forgetter.forget("alice", "s1")
        await until_compacted(parts)
        after, events = await parts.memory(), await events_after(parts, head)
    placed = Counter(
        fact
        for each in events
        if isinstance(each.event, UnitsPartitioned)
        for unit in each.event.units
        for fact in unit.facts
    )
    made = [each.event.members for each in events if isinstance(each.event, NodesMerged)]
    new = after.canon.facts.keys() - known

    assert len(new) == SHARED, "what the second session said, too, is another fact now"
    assert placed.keys() == new
    assert max(placed.values()) == 1
    assert list(after.units.unplaced) == []
    assert len(made) == len(after.units.groups.keys() - standing)
    assert calls(parts) - asked == len(made) <= 6
    await assert_as_folded(parts)


async def test_after_an_edit_only_what_is_read_anew_is_placed_and_few_groups_are_made(parts: Parts) -> None:
    async with running(parts):
        await learn(parts)
        before = await parts.memory()
        known, standing, asked, head = (
            set(before.canon.facts),
            set(before.units.groups),
            calls(parts),
            parts.log.head,
        )
        at = MONDAY + (SHARED + 1) * MINUTE_MS
        await parts.log.append_event(a_revision("thing 100 of s1.", turn_id=f"t{SHARED + 1}", happened_at=at))
        await until_compacted(parts)
        after, events = await parts.memory(), await events_after(parts, head)
    placed = [
        fact
        for each in events
        if isinstance(each.event, UnitsPartitioned)
        for unit in each.event.units
        for fact in unit.facts
    ]
    made = [each.event.members for each in events if isinstance(each.event, NodesMerged)]

    assert sorted(placed) == sorted(after.canon.facts.keys() - known)
    assert len(placed) == 2, "the chunk has two turns, of a fact each"
    assert len(made) == len(after.units.groups.keys() - standing)
    assert calls(parts) - asked == len(made) <= 2
    await assert_as_folded(parts)
