"""`diff`: what came and what went between two positions, both ways, without words that are gone."""

from __future__ import annotations

import pytest

from daemon.asking.differences import Difference, Differences, DiffParams
from daemon.asking.history import History
from daemon.erasure.receipts import UserUnknown
from daemon.folding import fold_from_nothing
from events.errors import InvalidInput
from events.log import EventLog
from tests.builders import ManualClock, a_batch, a_forgetting
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.daemon.test_deciding import ScriptedComparer, until_decided


async def diff(log: EventLog, a: int | str, b: int | str | None = None) -> Difference:
    return await Differences(log, History(log, SMALL)).diff(DiffParams(user_id="alice", a=a, b=b))


async def grow(log: EventLog, clock: ManualClock) -> tuple[Parts, list[int]]:
    """Three sessions, then a compaction; the positions between them."""
    parts, positions = build_parts(log, clock), [0]
    async with running(parts):
        for session in ("s1", "s2", "s3"):
            said = (f"In {session} came Zoe {number}." for number in range(3))
            await parts.say(*said, "It rained on Zoe.", session_id=session)
            await parts.close(session)
            await parts.until_done()
            positions.append(log.head)
        await parts.compactor.compact(ALICE, 0.3)
        await parts.memory()
    return parts, [*positions, log.head]


async def test_facts_of_a_session_come_with_it(log: EventLog, clock: ManualClock) -> None:
    _, (start, one, two, *_) = await grow(log, clock)
    first, second = await diff(log, start, one), await diff(log, one, two)

    assert sorted(fact.text or "" for fact in first.came) == [
        "In s1 came Zoe 0.",
        "In s1 came Zoe 1.",
        "In s1 came Zoe 2.",
        "It rained on Zoe.",
    ]
    assert (first.went, first.changed) == ([], [])
    assert len(second.came) == 3
    (changed,) = second.changed
    assert (changed.occurrences_before, changed.occurrences) == (1, 2)
    assert changed.text == changed.text_before == "It rained on Zoe."
    zoe = next(scope for scope in second.scopes if scope.scope == "zoe")
    assert (zoe.kind, len(zoe.joined), zoe.left) == ("entity", 7, []), "active from two sessions on"


async def test_a_scene_that_changed_has_a_name_for_people_beside_its_id(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    async with running(parts):
        await parts.say("Zoe came.", "Zoe came back.")
        await parts.close()
        await until_decided(parts)
    difference = await diff(log, 0)

    scenes = [scope for scope in difference.scopes if scope.kind == "scene"]
    assert scenes
    assert {scope.name for scope in scenes} == {"Zoe came back."}
    assert all(scope.name is None for scope in difference.scopes if scope.kind != "scene")


async def test_the_other_way_round_what_came_went(log: EventLog, clock: ManualClock) -> None:
    _, positions = await grow(log, clock)
    there, back = await diff(log, positions[1], positions[-1]), await diff(log, positions[-1], positions[1])

    assert (there.came, there.went) == (back.went, back.came)
    assert (there.groups_made, there.groups_undone) == (back.groups_undone, back.groups_made)
    assert there.groups_made
    assert [(scope.joined, scope.left) for scope in there.scopes] == [
        (scope.left, scope.joined) for scope in back.scopes
    ]


async def test_any_two_positions_differ_as_their_memories_do(log: EventLog, clock: ManualClock) -> None:
    """The oracle: both Memories folded from nothing, and their sets subtracted."""
    await grow(log, clock)
    for a, b in ((5, 20), (9, 9), (30, 12), (1, log.head)):
        found = await diff(log, a, b)
        before, after = [await fold_from_nothing(log, ALICE, SMALL, position) for position in (a, b)]

        assert {fact.id for fact in found.came} == {
            key.hex() for key in after.canon.facts.keys() - before.canon.facts
        }
        assert {fact.id for fact in found.went} == {
            key.hex() for key in before.canon.facts.keys() - after.canon.facts
        }
        moved = {scope.scope: (len(scope.joined), len(scope.left)) for scope in found.scopes}
        assert moved == {
            scope.name or "user": (len(now - was), len(was - now))
            for scope in {*before.members, *after.members}
            if (was := before.members.get(scope, set())) != (now := after.members.get(scope, set()))
        }


async def test_without_a_second_position_it_is_now(log: EventLog, clock: ManualClock) -> None:
    _, positions = await grow(log, clock)

    assert await diff(log, positions[2]) == await diff(log, positions[2], log.head)
    assert (await diff(log, "1999-01-01T00:00:00Z")).a == 0


async def test_words_that_are_gone_are_not_shown(log: EventLog, clock: ManualClock) -> None:
    _, (start, one, *_) = await grow(log, clock)
    await log.append(a_batch(a_forgetting("s1")))
    found = await diff(log, start, one)

    assert found.came == []
    assert found.redacted > 0


async def test_a_user_that_nobody_knows_is_not_found(log: EventLog) -> None:
    with pytest.raises(UserUnknown):
        await diff(log, 0)


async def test_a_position_beyond_the_head_is_invalid(parts: Parts, log: EventLog) -> None:
    await parts.say("One.")
    for a, b in ((2, None), (0, 2)):
        with pytest.raises(InvalidInput):
            await diff(log, a, b)
