"""Memories by user: loaded once, followed, replaced after forgetting while queries go on, bounded in number."""

from __future__ import annotations

import time
from pathlib import Path

import anyio
import pytest
from anyio.lowlevel import checkpoint

from daemon.folding import fold_from_nothing
from daemon.memories import Memories
from events.appending import Batch
from events.envelope import NewEvent, Reference
from events.erasure import erase_slice
from events.errors import LogDamaged
from events.log import EventLog
from events.memory import ExtractedFact, FactsExtracted
from projections.digests import digest_memory
from projections.recall.agpr import AgprParameters
from projections.recall.answering import RecallRequest, recall
from tests.builders import (
    KEYS,
    MONDAY,
    SECRET,
    ManualClock,
    a_batch,
    a_forgetting,
    a_turn,
    an_extraction,
    an_id,
    lineage_of,
    seeded_nonces,
)
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running_forgetter
from tests.stored import damage
from tests.waiting import wait_until

S1, S2 = KEYS.session("alice", "s1"), KEYS.session("alice", "s2")


class CountingLog(EventLog):
    """Counts how often it is read, which is how a test sees who folded."""

    reads = 0

    async def read(self, work):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await super().read(work)


class HoldingLog(EventLog):
    """Lets so many reads through; the next one waits for ever. None: all."""

    reads_left: int | None = None

    async def read(self, work):  # type: ignore[no-untyped-def]
        if self.reads_left == 0:
            await anyio.sleep_forever()
        if self.reads_left is not None:
            self.reads_left -= 1
        return await super().read(work)


@pytest.fixture
def memories(log: EventLog) -> Memories:
    return Memories(log, SMALL, Reported())


async def say(log: EventLog, *contents: str, user_id: str = "alice", session_id: str = "s1") -> None:
    turns = [
        a_turn(content, user_id=user_id, session_id=session_id, turn_id=f"{log.head}-{number}")
        for number, content in enumerate(contents)
    ]
    await log.append(a_batch(*turns))


async def forget_and_erase(log: EventLog, session: Reference = S1, session_id: str = "s1") -> None:
    await log.append_event(a_forgetting(session_id))
    await log.write(lambda db: erase_slice(db, session))


def shown(memories: Memories, user: Reference = ALICE) -> list[frozenset[Reference]]:
    """The sessions of every row that may answer now."""
    memory = memories.loaded()[user]
    return [memory.nodes.node(int(row)).sessions for row in memory.nodes.live_rows(memory.hidden)]


async def test_many_who_ask_at_once_share_one_fold(log_path: Path, clock: ManualClock) -> None:
    log = await CountingLog.open(log_path, clock)
    assert isinstance(log, CountingLog)
    await say(log, *("turn" for _ in range(600)))
    memories = Memories(log, SMALL, Reported())
    user = log.keys.user("alice")
    used: list[object] = []

    async def use() -> None:
        async with memories.use(user) as memory:
            used.append(memory)

    log.reads = 0
    async with anyio.create_task_group() as tasks:
        for _ in range(50):
            tasks.start_soon(use)
    await log.close()

    assert len({id(memory) for memory in used}) == 1
    # Tombstones, three pages of 256, and a look at what came meanwhile.
    assert log.reads <= 4 + 1


async def test_who_looks_again_reads_only_what_came_since(log_path: Path, clock: ManualClock) -> None:
    log = await CountingLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, CountingLog)
    memories = Memories(log, SMALL, Reported())
    try:
        await log.append(a_batch(a_turn("The dog is Rex.")))
        memory = await memories.catch_up(ALICE)
        log.reads = 0
        for _ in range(5):
            await memories.catch_up(ALICE)
        idle = log.reads
        await log.append(a_batch(a_turn("He is old.", turn_id="t2")))
        await memories.catch_up(ALICE)
    finally:
        await log.close()

    assert (idle, log.reads) == (0, 1)
    assert memory.user_seq == 2


async def test_the_least_recently_used_memory_goes_first(log: EventLog) -> None:
    memories = Memories(log, SMALL, Reported(), memories_max=2)
    for name in ("alice", "bob", "alice", "carol"):
        async with memories.use(KEYS.user(name)):
            pass

    assert list(memories.loaded()) == [KEYS.user("alice"), KEYS.user("carol")]


async def test_a_memory_in_use_stays_however_many_others_come(log: EventLog) -> None:
    memories = Memories(log, SMALL, Reported(), memories_max=1)
    async with memories.use(ALICE) as memory:
        for name in ("bob", "carol", "dave"):
            async with memories.use(KEYS.user(name)):
                pass
        during = memories.loaded().get(ALICE)
    async with memories.use(KEYS.user("bob")):
        pass

    assert during is memory
    assert list(memories.loaded()) == [KEYS.user("bob")]


async def test_one_that_was_dropped_comes_back_as_it_was(parts: Parts) -> None:
    small = build_parts(parts.log, parts.clock, memories_max=1)
    await small.say("one", "two", "three")
    before = digest_memory(await small.memory("alice"))
    await small.memory("bob")
    dropped = ALICE not in small.memories.loaded()

    assert dropped
    assert digest_memory(await small.memory("alice")) == before


async def test_follow_keeps_what_is_here_up_to_date_and_loads_nothing(parts: Parts) -> None:
    await parts.memory("alice")
    async with running_forgetter(parts):
        await parts.say("for alice")
        await parts.say("for bob", user_id="bob")
        await wait_until(lambda: parts.memories.loaded()[ALICE].user_seq == 1)
        told: set[Reference] = set()

        def both_were_told() -> bool:
            told.update(parts.memories.take_changed())
            return told == {ALICE, KEYS.user("bob")}

        await wait_until(both_were_told, message="the worker learns of bob all the same")

    assert set(parts.memories.loaded()) == {ALICE}
    assert parts.memories.take_changed() == set()


async def test_looking_without_anything_new_tells_nobody(memories: Memories, log: EventLog) -> None:
    """Whoever plans at every change looks first, and would otherwise wake itself for ever."""
    await say(log, "one")
    await memories.catch_up(ALICE)
    memories.take_changed()
    await memories.catch_up(ALICE)

    assert memories.take_changed() == set()


async def test_a_forgotten_session_is_hidden_at_once_and_gone_after_the_next_fold(
    memories: Memories, log: EventLog
) -> None:
    await say(log, "secret", "words", session_id="s1")
    await say(log, "harmless", session_id="s2")
    old = await memories.catch_up(ALICE)
    await log.append_event(a_forgetting())
    memories.hide(ALICE, S1)
    at_once = shown(memories)
    new = await memories.catch_up(ALICE)

    assert at_once == [frozenset([S2])]
    assert memories.loaded()[ALICE] is old or new is not old
    assert (new.needs_rebuild, S1 in new.session_ids, shown(memories)) == (False, False, [frozenset([S2])])


async def test_queries_go_on_while_a_memory_is_folded_anew_and_never_show_what_was_forgotten(
    memories: Memories, log: EventLog
) -> None:
    await say(log, *("a secret" for _ in range(40)), session_id="s1")
    await say(log, *("a harmless word" for _ in range(500)), session_id="s2")
    old = await memories.catch_up(ALICE)
    await log.append_event(a_forgetting())
    memories.hide(ALICE, S1)
    seen: list[tuple[bool, int]] = []
    done = anyio.Event()

    async def ask() -> None:
        while not done.is_set():
            async with memories.use(ALICE) as memory:
                asked = RecallRequest("secret word", 50, AgprParameters(), hidden=memory.hidden)
                found = recall(memory.nodes, asked).memories
                assert all(S1 not in each.node.sessions for each in found)
                seen.append((memory is old, len(found)))
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        new = await memories.catch_up(ALICE)
        done.set()

    assert new is not old
    assert sum(was_old for was_old, _ in seen) >= 2, "the old one answered while the new one was made"
    assert all(found for _, found in seen)


async def test_a_session_forgotten_while_another_one_is_folded_away_is_hidden_in_the_new_memory(
    memories: Memories, log: EventLog
) -> None:
    for session in ("s1", "s2", "s3"):
        await say(log, *("word" for _ in range(150)), session_id=session)
    await memories.catch_up(ALICE)
    await log.append_event(a_forgetting("s1"))
    memories.hide(ALICE, S1)

    async def forget_the_second() -> None:
        await log.append_event(a_forgetting("s2"))
        memories.hide(ALICE, S2)
        assert {S1, S2}.isdisjoint(frozenset().union(*shown(memories)))

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memories.catch_up, ALICE)
        await checkpoint()
        tasks.start_soon(forget_the_second)
    memory = await memories.catch_up(ALICE)

    assert set(memory.session_ids) == {KEYS.session("alice", "s3")}


async def test_what_is_forgotten_during_a_fold_that_is_given_up_is_hidden_by_the_one_that_goes_on_with_it(
    log_path: Path, clock: ManualClock
) -> None:
    """Whoever asked hung up; the half-folded Memory was begun before the second session was forgotten."""
    log = await HoldingLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, HoldingLog)
    memories = Memories(log, SMALL, Reported())
    for session in ("s1", "s2"):
        await say(log, *("word" for _ in range(150)), session_id=session)
    await say(log, "harmless", session_id="s3")
    await memories.catch_up(ALICE)
    await log.append_event(a_forgetting("s1"))
    memories.hide(ALICE, S1)
    log.reads_left = 3  # what the old Memory has not seen, the hindsight, and the first page
    begun = memories._held[ALICE].begun
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memories.catch_up, ALICE)
        await wait_until(lambda: begun.memory is not None and begun.memory.user_seq > 0)
        await log.append_event(a_forgetting("s2"))
        memories.hide(ALICE, S2)
        tasks.cancel_scope.cancel()
    given_up, log.reads_left = begun.memory, None
    seen: set[Reference] = set()
    done = anyio.Event()

    async def look() -> None:
        while not done.is_set():
            seen.update(*shown(memories))
            await checkpoint()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(look)
        await memories.catch_up(ALICE)
        done.set()
    await log.close()

    assert given_up is not None
    assert seen == {KEYS.session("alice", "s3")}


async def test_words_that_were_erased_before_they_were_folded_are_passed_over(
    memories: Memories, log: EventLog
) -> None:
    """A fold may lag behind the eraser; that is no damage."""
    await say(log, "first", session_id="s2")
    await memories.catch_up(ALICE)
    await say(log, "one", "two", session_id="s1")
    await forget_and_erase(log)
    await say(log, "last", session_id="s2")
    memory = await memories.catch_up(ALICE)

    assert memory.user_seq == log.head
    assert shown(memories) == [frozenset([S2])]


async def test_words_that_go_while_a_memory_is_folded_from_nothing_are_passed_over(
    log_path: Path, log: EventLog
) -> None:
    await say(log, *("one" for _ in range(600)), session_id="s1")

    class ForgettingLog(EventLog):
        """Forgets s1 between the reading of the tombstones and that of the events."""

        reads = 0

        async def read(self, work):  # type: ignore[no-untyped-def]
            self.reads += 1
            if self.reads == 2:
                await log.append_event(a_forgetting())
                while not await log.write(lambda db: erase_slice(db, S1)):
                    pass
            return await super().read(work)

    reader = ForgettingLog(log._writer, log._readers, KEYS, log.head, lambda: 0, lambda _: b"", log.path)
    memory = await fold_from_nothing(reader, ALICE, SMALL)

    assert (memory.user_seq, len(memory.nodes)) == (601, 0)


async def test_a_user_whose_log_is_damaged_stops_nobody_else(
    log_path: Path, log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    await parts.say("for alice", user_id="alice")
    await parts.say("for bob", user_id="bob")
    damage(log_path, "UPDATE words SET text = ? WHERE seq = 1 AND n = 0", b"for malice")

    async with running_forgetter(parts):
        with pytest.raises(LogDamaged, match="seq 1"):
            await parts.memory("alice")
        await parts.memory("bob")
        await parts.say("more for alice", user_id="alice")
        await parts.say("more for bob", user_id="bob")
        await wait_until(lambda: parts.memories.loaded()[KEYS.user("bob")].user_seq == 2)

    assert ALICE not in parts.memories.loaded()


async def test_an_event_that_cannot_be_folded_is_damage_of_its_user_and_never_half_folded(
    log: EventLog, clock: ManualClock
) -> None:
    """Such as an extraction of turns that this user never had."""
    parts = build_parts(log, clock)
    await parts.say("Xylophon", user_id="alice")
    await parts.memory("alice")
    await parts.memory("bob")
    fact = ExtractedFact("Xylophon", (0,), MONDAY, MONDAY)
    bad = FactsExtracted(1, an_id("chunk"), (999,), (), (999,), None, "m", (fact,))
    event = NewEvent("alice", "s1", bad, "facts/bad", MONDAY, lineage_of(["s1"]), basis=1)

    async with running_forgetter(parts):
        await log.append(Batch(events=(event,)))
        await wait_until(lambda: bool(parts.reported.fields("memory.fold_failed")))
        await parts.say("for bob", user_id="bob")
        await wait_until(lambda: parts.memories.loaded()[KEYS.user("bob")].user_seq == 1)
        with pytest.raises(LogDamaged):
            await parts.memory("alice")

    assert parts.reported.fields("memory.fold_failed") == [
        {"reason": "the event at seq 2 cannot be folded (KeyError)"}
    ], "the place and no word"


async def test_a_long_fold_leaves_the_loop_to_others(memories: Memories, log: EventLog) -> None:
    await say(log, *(f"turn {number} about this and that" for number in range(600)))
    longest = 0.0

    async def watch() -> None:
        nonlocal longest
        while True:
            before = time.thread_time()
            await checkpoint()
            longest = max(longest, time.thread_time() - before)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch)
        await memories.catch_up(ALICE)
        tasks.cancel_scope.cancel()

    # Of CPU, whatever else the machine does: a slice is 4 ms, and the rest is room for one long event.
    assert longest < 0.1


async def test_hundreds_of_users_are_served_with_few_memories(log: EventLog) -> None:
    memories = Memories(log, SMALL, Reported(), memories_max=8)
    names = [f"user{number}" for number in range(100)]
    for name in names:
        await say(log, f"I am {name}", user_id=name)

    async def look(name: str) -> None:
        memory = await memories.catch_up(KEYS.user(name))
        assert (memory.user_id, len(memory.nodes)) == (name, 1)

    async with anyio.create_task_group() as tasks:
        for name in names:
            tasks.start_soon(look, name)

    assert len(memories.loaded()) == 8


async def test_an_extraction_is_folded_by_who_follows(memories: Memories, log: EventLog) -> None:
    await say(log, "one", "two")
    await memories.catch_up(ALICE)
    await log.append_event(an_extraction((1, 2)))
    memory = await memories.catch_up(ALICE)

    assert (len(memory.canon.waiting), memory.waiting_chunks) == (1, {})
