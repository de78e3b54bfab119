"""A replay that has nothing left to replace, and faults of ours in planning: neither stops anybody's work."""

from __future__ import annotations

from daemon.building.replaying import Replaying, ReplayParams
from daemon.building.worker import Worker
from daemon.memories import Memories
from events.envelope import Reference
from projections.memory import Memory
from tests.builders import KEYS, a_retraction
from tests.daemon.parts_in_use import QUICK, SMALL, Parts, event_types, running
from tests.waiting import wait_until

S1 = ReplayParams(user_id="alice", session_id="s1")
BOB = KEYS.user("bob")


async def test_a_replay_whose_turns_are_all_retracted_ends(parts: Parts) -> None:
    replaying = Replaying(parts.log, parts.memories, parts.model, parts.clock, wait_s=0.01)
    await parts.say("Nate swims.", "Rex runs.")
    begun = await replaying.replay(S1)
    for turn_id in ("t1", "t2"):
        await parts.log.append_event(a_retraction(turn_id))
    async with running(parts):
        await parts.until_done()
        await wait_until(lambda: not parts.memories.loaded()[KEYS.user("alice")].replays.running)
        await parts.say("Nate sings.", "Rex sleeps.", session_id="s2")
        await parts.until_done()

    assert not begun.complete
    types = await event_types(parts.log)
    assert types.count("session.replayed") == 1
    assert types.count("facts.extracted") == 1, "the others' work goes on"
    assert parts.reported.fields("worker.plan_failed") == []


class FaultyMemories(Memories):
    """Something nobody thought of goes wrong with bob, and its text quotes what he said."""

    async def advance(self, user: Reference) -> Memory:
        if user == BOB:
            raise ZeroDivisionError("Xylophon")
        return await super().advance(user)


async def test_a_fault_in_planning_one_user_is_reported_and_stops_nobody(parts: Parts) -> None:
    parts.memories = FaultyMemories(parts.log, SMALL, parts.reported)
    parts.worker = Worker(parts.log, parts.memories, parts.model, QUICK, parts.clock, parts.reported)
    await parts.say("Xylophon.", "Xylophon.", user_id="bob", session_id="of bob")
    async with running(parts):
        await wait_until(lambda: bool(parts.reported.fields("worker.plan_failed")))
        await parts.say("Nate swims.", "Rex runs.")
        await wait_until(lambda: bool(parts.model.calls))
        await parts.close()
        await wait_until(lambda: KEYS.user("alice") in parts.memories.loaded())
        await wait_until(lambda: not parts.memories.loaded()[KEYS.user("alice")].pending())

    failure = parts.reported.fields("worker.plan_failed")[0]
    assert failure["error"] == "ZeroDivisionError"
    assert "Xylophon" not in repr(parts.reported.events)
    assert "facts.extracted" in await event_types(parts.log, KEYS.user("alice"))
