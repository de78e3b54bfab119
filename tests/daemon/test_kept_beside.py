"""What is kept of a user beside the Memory, for deciding: never longer than the Memory that it was made of."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

import anyio

from events.log import EventLog
from tests.builders import KEYS, ManualClock, a_forgetting
from tests.daemon.parts_in_use import ALICE, Parts, build_parts
from tests.daemon.test_deciding import ScriptedComparer, until_decided
from tests.waiting import wait_until

SAID = ("The cat is called Rex.", "Paul went to Rome.")


@asynccontextmanager
async def working(parts: Parts) -> AsyncGenerator[None]:
    """The worker and who follows the log; nothing is erased."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.memories.follow)
        tasks.start_soon(parts.worker.run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def test_no_vector_of_forgotten_words_outlives_the_memory_that_hid_them(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer())
    deciding = parts.worker.deciding
    async with working(parts):
        await parts.say(*SAID)
        await until_decided(parts)
        before = deciding.keeps_vectors(ALICE)
        old = await parts.memory()
        await log.append_event(a_forgetting("s1"))
        await wait_until(lambda: parts.memories.loaded().get(ALICE) is not old)
        after = deciding.keeps_vectors(ALICE)

    assert before
    assert not after


async def test_a_vector_that_comes_after_its_words_were_forgotten_is_not_kept(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedComparer(held=True)
    parts = build_parts(log, clock, compared_by=embedder)
    deciding = parts.worker.deciding
    async with working(parts):
        await parts.say(*SAID)
        await wait_until(lambda: embedder.calls > 0)
        old = await parts.memory()
        await log.append_event(a_forgetting("s1"))
        await wait_until(lambda: parts.memories.loaded().get(ALICE) is not old)
        embedder.release()
        await wait_until(lambda: not deciding.keeps_vectors(ALICE))

        assert embedder.texts


async def test_nothing_is_left_of_users_who_passed_through(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, compared_by=ScriptedComparer(), memories_max=2)
    users = [KEYS.user(f"user {n}") for n in range(12)]
    remembered = 0
    async with working(parts):
        for number, user in enumerate(users):
            await parts.say(*SAID, user_id=f"user {number}")
            await parts.close(user_id=f"user {number}")
            await wait_until(lambda user=user: parts.worker.remembers(user))  # type: ignore[misc]
            remembered += 1
        await wait_until(lambda: sum(map(parts.worker.remembers, users)) <= 4, message="they are kept for ever")

    assert remembered == len(users)
