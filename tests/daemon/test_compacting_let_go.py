"""Compaction in the background where Memories come and go: it ends, wakes up by the clock, and leaves nothing."""

from __future__ import annotations

from dataclasses import replace

import anyio
import anyio.lowlevel

from daemon.building.compacting import Compacting
from daemon.offline.extraction import extract_facts
from events.eventtree import Policy
from events.log import EventLog
from projections.ports import ChunkText, FactsRead
from tests.builders import KEYS, ManualClock, a_batch, a_closing, a_turn
from tests.daemon.parts_in_use import ALICE, QUICK, Parts, build_parts, merges, running
from tests.daemon.test_compacting import (
    FACTS,
    MONTH_S,
    ONLINE,
    MergesHeld,
    a_policy,
    is_compacted,
    learn,
    leave_merges_unanswered,
    until_compacted,
)
from tests.daemon.test_deciding import ScriptedComparer
from tests.daemon.test_partitioning import NO_MERGES, until_placed
from tests.scripted_models import ScriptedModel
from tests.waiting import HANGS_AFTER_S, wait_until

BOB = KEYS.user("bob")
DAY_MS = 86_400_000
HOMES = ("I live in Boston.", "I moved to Davis this week.", "I just moved to Miami!")


class Rules(ScriptedModel):
    """Reads facts by the rules that come with the daemon."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        await super().extract_facts(chunk)
        return FactsRead(extract_facts(chunk), self.usage)


async def push_out(parts: Parts) -> None:
    """Another user's Memory takes the place of Alice's, as soon as nobody uses that."""
    with anyio.fail_after(HANGS_AFTER_S):
        while parts.memories.holds(ALICE):
            async with parts.memories.use(BOB):
                await anyio.lowlevel.checkpoint()


def compacting_of(parts: Parts) -> Compacting:
    assert parts.worker.compacting is not None
    return parts.worker.compacting


async def test_a_user_larger_than_all_room_is_compacted_to_the_end_and_then_left_in_peace(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=ONLINE, memories_bytes=1)
    gone = 0
    forget = parts.memories.on_let_go

    def note(user: bytes) -> None:
        nonlocal gone
        gone += 1
        forget(user)

    parts.memories.on_let_go = note
    async with running(parts):
        await learn(parts)
        await wait_until(lambda: bool(merges(parts)) and is_compacted(parts))

    assert gone == 0, "each time it would be folded and planned anew, for ever"


async def test_states_that_ended_are_merged_when_they_are_old_enough(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=Rules(), online=replace(ONLINE, min_age_s=MONTH_S))
    async with running(parts):
        for number, content in enumerate(HOMES):
            said_at = clock() + (number - len(HOMES)) * DAY_MS
            turn = a_turn(content, session_id=str(number), turn_id=f"t{number}", name="Bob", happened_at=said_at)
            await log.append(a_batch(turn))
            await log.append_event(a_closing(str(number), key=str(number)))
            await parts.until_done()
        await until_compacted(parts)
        early, memory = len(merges(parts)), await parts.memory()
        ended = len(memory.placement.validity.superseded)
        clock.advance(MONTH_S * 1000)
        await wait_until(lambda: len(merges(parts)) == 1, message="nobody wakes up for it")
        await until_compacted(parts)

    assert (early, ended) == (0, 2)


async def test_who_is_too_young_is_merged_in_time_though_the_memory_went(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=replace(ONLINE, min_age_s=MONTH_S), memories_max=1)
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        await push_out(parts)
        async with parts.memories.use(ALICE):  # a question brings it back, and nothing is planned of it then
            pass
        await push_out(parts)
        clock.advance((MONTH_S + 2 * FACTS * 60) * 1000)
        await wait_until(lambda: len(merges(parts)) > 0, message="nobody wakes up for it")


async def test_nothing_is_left_of_plans_that_came_to_nothing(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE, memories_max=1)
    compacting = compacting_of(parts)
    async with running(parts):
        await learn(parts)
        await parts.until_asked(QUICK.concurrency // 2)
        await log.append_event(a_policy(Policy(online=False)))
        parts.model.release()
        await until_compacted(parts)
        await push_out(parts)

    assert compacting.count_held() == 0
    assert not compacting.remembers(ALICE)


async def test_groups_that_wait_for_the_model_are_pending_though_the_memory_went(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE, memories_max=1)
    async with running(parts):
        await learn(parts)
        await leave_merges_unanswered(parts, 60)
        await wait_until(lambda: parts.worker.waiting_for_model > 0 and not parts.worker.in_flight)
        await push_out(parts)
        pending = (await parts.ask("thing 3")).watermark.pending

    assert pending > 0


async def test_while_the_embedder_is_away_nobody_is_planned_at_every_tick(
    log: EventLog, clock: ManualClock
) -> None:
    before = build_parts(log, clock, online=NO_MERGES)
    async with running(before):
        await learn(before)
        await until_placed(before)
    embedder = ScriptedComparer(away=True)
    parts = build_parts(log, clock, online=ONLINE, compared_by=embedder)
    async with running(parts):
        await wait_until(lambda: embedder.calls > 0)
        due = compacting_of(parts).find_due()
        pending = parts.worker.count_planned(ALICE)
        embedder.away = False
        await wait_until(lambda: bool(merges(parts)) and is_compacted(parts), message="it is not gone on with")

    assert pending > 0
    assert due == []


async def test_of_all_whose_groups_waited_too_long_one_is_planned_at_a_time(
    log: EventLog, clock: ManualClock
) -> None:
    impatient = replace(QUICK, concurrency=4, refresh_age_s=0.05, tick_s=3600)
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE, worker=impatient)
    compacting, users = compacting_of(parts), ("alice", "bob", "carol")
    async with running(parts):
        for name in users:
            await parts.say(*(f"thing {number} of {name}." for number in range(FACTS)), user_id=name)
            await parts.close(user_id=name)
        await wait_until(lambda: all(compacting.is_overdue(KEYS.user(name)) for name in users))
        one = compacting.find_due()
        other = compacting.find_due(one)

    assert (len(one), len(other)) == (1, 1), "the slots are taken: to plan them all at every tick changes nothing"
    assert one != other


async def test_of_a_user_who_is_forgotten_in_the_middle_nothing_stays_planned(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE)
    compacting = compacting_of(parts)
    async with running(parts):
        await learn(parts)
        await parts.until_asked(QUICK.concurrency // 2)
        await parts.forgetter.forget_user("alice")
        parts.model.release()
        await until_compacted(parts)
        memory = await parts.memory()

    assert (len(memory.units.groups), len(memory.units.facts_of), compacting.count_held()) == (0, 0, 0)
    assert ALICE not in compacting._held
