"""Memories that come and go: by their size, from snapshots, with nobody's waiting lost and no word on disk."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import anyio
import pytest

from daemon.derived import DERIVED, DerivedStore
from daemon.leaving import leave
from daemon.memories import Memories
from daemon.snapshots import Snapshots
from daemon.store_files import with_sidecars
from events.log import EventLog
from projections.digests import digest_memory
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_retraction, a_turn, seeded_nonces
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.waiting import wait_until

ROOM = 64 << 20


class CountingLog(EventLog):
    """Counts how often it is read."""

    reads = 0

    async def read(self, work):  # type: ignore[no-untyped-def]
        self.reads += 1
        return await super().read(work)


@pytest.fixture
async def counting(log_path: Path, clock: ManualClock) -> AsyncGenerator[CountingLog]:
    log = await CountingLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, CountingLog)
    yield log
    await log.close()


async def say(log: EventLog, count: int, user_id: str = "alice", session_id: str = "s1") -> None:
    await log.append(
        a_batch(
            *(
                a_turn(f"turn {n}", user_id=user_id, session_id=session_id, turn_id=f"{log.head}-{n}")
                for n in range(count)
            )
        )
    )


@asynccontextmanager
async def derived_of(log: EventLog) -> AsyncGenerator[DerivedStore]:
    store = await DerivedStore.open(log.path.parent / DERIVED, log, Reported(), ROOM)
    try:
        yield store
    finally:
        await store.close()


def memories_of(log: EventLog, store: DerivedStore, bytes_max: int = ROOM, snapshot_events: int = 10) -> Memories:
    reported = Reported()
    snapshots = Snapshots(store, log, SMALL, "1", reported)
    return Memories(
        log, SMALL, reported, bytes_max=bytes_max, snapshots=snapshots, snapshot_events=snapshot_events
    )


@asynccontextmanager
async def keeping(memories: Memories, every_s: float = 0.01) -> AsyncGenerator[None]:
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(memories.keep_snapshots, every_s)
        await anyio.lowlevel.checkpoint()
        yield
        tasks.cancel_scope.cancel()


async def test_memories_go_when_they_take_too_much_and_the_newest_stays(log: EventLog) -> None:
    for name in ("alice", "bob", "carol"):
        await say(log, 40, name)
    roomy = Memories(log, SMALL, Reported())
    async with roomy.use(ALICE):
        pass
    size_bytes = roomy.size_bytes
    memories = Memories(log, SMALL, Reported(), bytes_max=int(2.5 * size_bytes))
    for name in ("alice", "bob", "alice", "carol"):
        async with memories.use(KEYS.user(name)):
            pass

    assert size_bytes > 10_000
    assert list(memories.loaded()) == [ALICE, KEYS.user("carol")]
    assert memories.size_bytes == sum(memory.size_bytes for memory in memories.loaded().values())


async def test_one_that_is_larger_than_all_room_is_there_until_another_one_is_used(log: EventLog) -> None:
    await say(log, 40)
    await say(log, 1, "bob")
    memories = Memories(log, SMALL, Reported(), bytes_max=1)
    async with memories.use(ALICE) as memory:
        pass
    after = memories.holds(ALICE)
    async with memories.use(KEYS.user("bob")) as other:
        pass

    assert after
    assert memory.user_seq == 40
    assert (memories.loaded(), memories.size_bytes) == ({KEYS.user("bob"): other}, other.size_bytes)


async def test_who_gives_up_waiting_costs_nobody_the_fold_that_was_begun(counting: CountingLog) -> None:
    for _ in range(5):
        await say(counting, 250)
    memories = Memories(counting, SMALL, Reported())
    counting.reads = 0
    used = list[int]()

    async def use() -> None:
        async with memories.use(ALICE) as memory:
            used.append(memory.user_seq)

    async with anyio.create_task_group() as others, anyio.create_task_group() as first:
        first.start_soon(use)
        await wait_until(lambda: counting.reads >= 3)
        for _ in range(10):
            others.start_soon(use)
        await anyio.lowlevel.checkpoint()
        first.cancel_scope.cancel()

    assert used == [1_250] * 10
    # Hindsight, five pages and the page that was lost, and for each a look at what came meanwhile.
    assert counting.reads <= 2 + 5 + 1 + 10


async def test_after_a_restart_only_what_came_since_is_folded(counting: CountingLog) -> None:
    for _ in range(6):
        await say(counting, 250)
    async with derived_of(counting) as store:
        before = memories_of(counting, store)
        digest = digest_memory(await before.catch_up(ALICE))
        await leave(before)
    await say(counting, 3, session_id="s2")
    async with derived_of(counting) as store:
        memories = memories_of(counting, store)
        counting.reads = 0
        memory = await memories.catch_up(ALICE)
        reads = counting.reads
    expected = await Memories(counting, SMALL, Reported()).catch_up(ALICE)

    assert digest.user_seq == 1_500
    assert digest_memory(memory) == digest_memory(expected)
    assert memory.session_ids == expected.session_ids
    assert memory.user_id == "alice"
    assert reads <= 8, "link, hindsight, the open chunk, names, and the tail"


async def test_one_that_has_to_go_leaves_a_snapshot_first_and_comes_back_from_it(counting: CountingLog) -> None:
    for _ in range(4):
        await say(counting, 250)
    async with derived_of(counting) as store:
        size_bytes = (await Memories(counting, SMALL, Reported()).catch_up(ALICE)).size_bytes
        memories = memories_of(counting, store, bytes_max=size_bytes * 2 // 3)
        async with keeping(memories, every_s=60):
            async with memories.use(ALICE) as memory:
                digest = digest_memory(memory)
            async with memories.use(KEYS.user("bob")):
                pass
            await wait_until(lambda: not memories.holds(ALICE))
            kept = await store.load_snapshot(ALICE)
            counting.reads = 0
            async with memories.use(ALICE) as memory:
                again, reads = digest_memory(memory), counting.reads

    assert kept is not None
    assert kept.user_seq == 1_000
    assert again == digest
    assert reads <= 7


async def test_a_memory_that_grew_and_rests_has_a_snapshot_soon_and_not_again(log: EventLog) -> None:
    await say(log, 12)
    async with derived_of(log) as store:
        memories = memories_of(log, store)
        await memories.catch_up(ALICE)
        async with keeping(memories):
            await wait_until(lambda: memories._held[ALICE].snapshot_seq == 12)
            await say(log, 5)
            await memories.catch_up(ALICE)
            await memories.leave_snapshots(5)
            few = memories._held[ALICE].snapshot_seq
            await say(log, 5)
            await memories.catch_up(ALICE)
            await wait_until(lambda: memories._held[ALICE].snapshot_seq == 22)
            kept = await store.load_snapshot(ALICE)

    assert few == 12
    assert kept is not None
    assert kept.user_seq == 22


async def test_what_is_undone_makes_the_snapshot_worthless_and_the_next_is_of_what_stands(
    log: EventLog,
) -> None:
    await say(log, 30)
    await say(log, 5, session_id="s2")
    async with derived_of(log) as store:
        memories = memories_of(log, store)
        await memories.catch_up(ALICE)
        await memories.leave_snapshots(5)
        first = await store.load_snapshot(ALICE)
        await log.append_event(a_retraction("0-3"))
        memories.hide_turn(ALICE, KEYS.key("turn/alice/s1/0-3/0"))
        hidden = memories.loaded()[ALICE].needs_rebuild
        await memories.leave_snapshots(5)
        meanwhile = await store.load_snapshot(ALICE)
        folded = digest_memory(await memories.catch_up(ALICE))
        await memories.leave_snapshots(5)
        later = memories_of(log, store)
        taken = digest_memory(await later.catch_up(ALICE))
        second = await store.load_snapshot(ALICE)

    assert hidden
    assert meanwhile == first, "nothing is left of a Memory that hides something"
    assert second is not None
    assert second.user_seq == 36
    assert taken == folded


async def test_forgetting_takes_the_snapshot_out_of_the_file_before_there_is_a_receipt(parts: Parts) -> None:
    async with derived_of(parts.log) as store:
        erasing = replace(parts.erasing, derived=store)
        parts.forgetter._parts = erasing
        parts.memories._snapshots = Snapshots(store, parts.log, SMALL, "1", Reported())
        parts.memories._snapshot_events = 1
        async with running(parts):
            await parts.say("one", "two")
            await parts.say("three", session_id="s2")
            await parts.memory()
            await parts.memories.leave_snapshots(5)
            before = await store.load_snapshot(ALICE)
            receipt = await parts.forgetter.forget("alice", "s1")
            after = await store.load_snapshot(ALICE)
            pieces = with_sidecars(parts.log.path.parent / DERIVED)
            held = b"".join(path.read_bytes() for path in pieces if path.exists())

    assert before is not None
    assert receipt.complete
    assert after is None or after.user_seq > before.user_seq
    assert before.content[-64:] not in held


# Each stands in a turn, as a name, as an entity, as an id or as what a model wrote.
MARKERS = ("Zyxomark", "Quandary", "Wolframite", "Xylograph", "sessionmark", "usermark", "Ytterbium")


async def test_no_word_that_anybody_said_is_in_the_file(log: EventLog, clock: ManualClock) -> None:
    """Of what people said, who they are and whom they name: not in plain text, and not case-folded."""
    parts = build_parts(log, clock)
    async with derived_of(log) as store:
        parts.memories._snapshots = Snapshots(store, log, SMALL, "1", Reported())
        parts.memories._snapshot_events = 1
        async with running(parts):
            for n, session in enumerate(("sessionmark1", "sessionmark2", "sessionmark3")):
                told = (f"I met Zyxomark {n} times.", f"we saw Zyxomark in Wolframite {n}", "Quandary, Xylograph")
                await parts.say(*told, session_id=session, user_id="usermark")
                await parts.close(session, user_id="usermark")
            await parts.say("Ytterbium is in a chunk that is open", session_id="sessionmark4", user_id="usermark")
            await parts.memory("usermark")
            await parts.until_done()
            memory = await parts.memory("usermark")
            entities = [scope.name for scope in memory.members if scope.name]
            await parts.memories.leave_snapshots(5)
            kept = await store.load_snapshot(memory.user)
            names = [path for path in with_sidecars(log.path.parent / DERIVED) if path.exists()]
            held = b"".join(path.read_bytes() for path in names)

    assert "zyxomark" in entities
    assert kept is not None
    assert [marker for marker in MARKERS if marker.lower().encode() in held.lower()] == []
    assert [marker for marker in MARKERS if marker.lower().encode() in kept.content.lower()] == []
    assert memory.user not in held, "or the hashes of words could be guessed from the file alone"
