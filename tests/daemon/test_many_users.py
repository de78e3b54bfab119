"""More users than Memories are kept: what is idle is not folded again, what is quiet is extracted all the same."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeVar

import anyio
import pytest

from daemon.building.worker import PLANNERS
from events.envelope import Reference
from events.hindsight import read_hindsight
from events.log import EventLog
from events.reading import read_user
from events.registry import read_waiting_sessions
from tests.builders import SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import MINUTE_MS, QUICK, Parts, build_parts, event_types, running
from tests.stored import stored_rows
from tests.waiting import wait_until

T = TypeVar("T")

USERS = tuple(f"user {number}" for number in range(12))
MEMORIES_MAX = 4
# Looks at quiet sessions after which an idle daemon is believed to be idle.
TICKS = 6


class WatchedLog(EventLog):
    """Counts folds and ticks by what is read, and lets no fold of a `slow` user come to its end."""

    folds = 0
    ticks = 0
    slow: frozenset[Reference] = frozenset()

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        if isinstance(work, partial):
            self.folds += work.func is read_hindsight  # read once before each fold from nothing
            self.ticks += work.func is read_waiting_sessions
            if work.func is read_user and work.keywords["user"] in self.slow:
                await anyio.sleep_forever()
        return await super().read(work)


@pytest.fixture
async def watched(log_path: Path, clock: ManualClock) -> AsyncIterator[WatchedLog]:
    log = await WatchedLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, WatchedLog)
    yield log
    await log.close()


@pytest.fixture
def many(watched: WatchedLog, clock: ManualClock) -> Parts:
    return build_parts(watched, clock, memories_max=MEMORIES_MAX)


async def everyone_says(parts: Parts, *contents: str, closing: bool = False) -> None:
    for user in USERS:
        await parts.say(*contents, user_id=user)
        if closing:
            await parts.close(user_id=user)


def having(path: Path, event_type: str) -> int:
    """How many users have an event of a type."""
    ((users,),) = stored_rows(path, "SELECT count(DISTINCT user) FROM events WHERE type = ?", event_type)
    return int(users)


async def until_all_have(path: Path, event_type: str) -> None:
    await wait_until(
        lambda: having(path, event_type) == len(USERS), message=f"not every user has {event_type} in time"
    )


async def until_still(parts: Parts, log: WatchedLog, ticks: int = TICKS) -> None:
    """Return once so many ticks went by in which the log did not grow and no model was asked."""
    seen, since = (log.head, len(parts.model.calls)), log.ticks

    def is_still() -> bool:
        nonlocal seen, since
        now = (log.head, len(parts.model.calls))
        if now != seen or parts.worker.in_flight:
            seen, since = now, log.ticks
        return log.ticks >= since + ticks

    await wait_until(is_still, message="the daemon does not come to rest")


async def folds_within(log: WatchedLog, ticks: int = TICKS) -> int:
    """How many Memories are folded from nothing while so many ticks go by."""
    folds, end = log.folds, log.ticks + ticks
    await wait_until(lambda: log.ticks >= end)
    return log.folds - folds


async def test_an_idle_daemon_folds_nothing_again(many: Parts, watched: WatchedLog, log_path: Path) -> None:
    await everyone_says(many, "One fact.", "Two facts.", "Three facts.", closing=True)
    async with running(many):
        await until_all_have(log_path, "facts.admitted")
        await until_still(many, watched)
        folds = await folds_within(watched)

    assert watched.folds >= len(USERS), "or this test does not see who folds"
    assert folds == 0
    assert len(many.memories.loaded()) <= MEMORIES_MAX


async def test_sessions_that_are_not_quiet_yet_do_not_fold_again(
    many: Parts, watched: WatchedLog, log_path: Path
) -> None:
    """Their trees wait for a quiet moment, for which the clock of this test does not come."""
    await everyone_says(many, "One fact.", "Two facts.", "Three facts.", "Four facts.")
    async with running(many):
        await until_all_have(log_path, "facts.admitted")
        await until_still(many, watched)
        folds = await folds_within(watched)

    assert folds == 0


async def test_quiet_sessions_of_users_who_are_not_here_are_closed_and_extracted(
    many: Parts, watched: WatchedLog, clock: ManualClock, log_path: Path
) -> None:
    await everyone_says(many, "Only one turn.")
    async with running(many):
        await until_still(many, watched)
        here, too_early = len(many.memories.loaded()), having(log_path, "chunk.closed")
        clock.advance(60 * MINUTE_MS)
        await until_all_have(log_path, "facts.admitted")
        await until_still(many, watched)

    assert (here <= MEMORIES_MAX, too_early) == (True, 0)
    assert having(log_path, "chunk.closed") == len(USERS)
    for user in USERS:
        types = await event_types(watched, watched.keys.user(user))
        assert types[:4] == ["turn.recorded", "chunk.closed", "facts.extracted", "facts.admitted"]
        assert types.count("facts.extracted") == 1


async def test_turns_that_come_while_a_memory_is_not_here_are_extracted(
    many: Parts, watched: WatchedLog, log_path: Path
) -> None:
    async with running(many):
        await everyone_says(many, "One fact.", "Two facts.")
        await until_all_have(log_path, "facts.admitted")
        await everyone_says(many, "Three facts.", "Four facts.")
        await wait_until(
            lambda: (
                stored_rows(log_path, "SELECT count(*) FROM events WHERE type = 'facts.extracted'")
                == [(2 * len(USERS),)]
            )
        )
        answers = [await many.texts("Three", user) for user in USERS]

    assert all(any("Three facts." in text for text in texts) for texts in answers)
    assert len(many.memories.loaded()) <= MEMORIES_MAX


async def test_a_question_of_an_unknown_user_evicts_nobody(many: Parts, watched: WatchedLog) -> None:
    await everyone_says(many, "One fact.")
    for user in USERS[:MEMORIES_MAX]:
        await many.memories.catch_up(watched.keys.user(user))
    here, folds = list(many.memories.loaded()), watched.folds
    answers = [await many.ask("Who?", user_id=f"stranger {number}") for number in range(20)]

    assert [answer.memories for answer in answers] == [[]] * 20
    assert list(many.memories.loaded()) == here
    assert watched.folds == folds


async def test_a_question_of_a_known_user_brings_that_one_here(many: Parts, watched: WatchedLog) -> None:
    await everyone_says(many, "One fact.")
    for user in USERS[:MEMORIES_MAX]:
        await many.memories.catch_up(watched.keys.user(user))
    texts = await many.texts("fact", USERS[-1])

    here = [watched.keys.user(user) for user in (*USERS[1:MEMORIES_MAX], USERS[-1])]
    assert texts == ["Alice: One fact."]
    assert list(many.memories.loaded()) == here


async def test_users_whose_logs_are_long_do_not_hold_up_the_others(
    watched: WatchedLog, clock: ManualClock, log_path: Path
) -> None:
    """All planners but one are at folds without an end; the last one serves everybody else."""
    parts = build_parts(watched, clock, memories_max=MEMORIES_MAX, worker=replace(QUICK, concurrency=2))
    await everyone_says(parts, "One fact.", "Two facts.")
    slow, others = USERS[: PLANNERS - 1], USERS[PLANNERS - 1 :]
    watched.slow = frozenset(watched.keys.user(user) for user in slow)
    async with running(parts):
        await wait_until(lambda: having(log_path, "facts.admitted") == len(others))
        await parts.say("Three facts.", "Four facts.", user_id=others[0])
        await wait_until(lambda: len(parts.model.calls) >= len(others) + 1)

    assert having(log_path, "facts.extracted") == len(others)


async def test_one_whose_turn_never_ends_is_planned_once_at_a_time(
    watched: WatchedLog, clock: ManualClock, log_path: Path
) -> None:
    """However often a slow user speaks, it takes one planner and not all of them."""
    parts = build_parts(watched, clock, memories_max=MEMORIES_MAX)
    slow = USERS[0]
    watched.slow = frozenset([watched.keys.user(slow)])
    async with running(parts):
        for number in range(PLANNERS + 1):
            await parts.say(f"Turn {number}.", user_id=slow)
            await until_still(parts, watched, ticks=1)
        await parts.say("One fact.", "Two facts.", user_id=USERS[1])
        await wait_until(lambda: having(log_path, "facts.admitted") == 1)

    assert len(parts.model.calls) == 1
