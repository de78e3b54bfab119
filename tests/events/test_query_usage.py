"""What questions took: added up by user, day and task, on one budget with all else, nobody's once forgotten."""

from __future__ import annotations

import random
import sqlite3
from collections import defaultdict
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from events.database import immediate
from events.erasure import read_unerased
from events.kept import find_elsewhere
from events.ledger import read_tokens_by_user
from events.log import EventLog
from events.memory import Usage
from events.query_usage import (
    EARLIER,
    NOBODY,
    SLICE_SUMS,
    Spent,
    add_query_usage,
    disown_query_usage,
    read_query_usage,
)
from tests.builders import KEYS, MONDAY, a_batch, a_place, a_turn, a_user_forgetting, an_extraction
from tests.stored import stored_rows, stored_tables

ALICE, BOB, STRANGER = KEYS.user("alice"), KEYS.user("bob"), KEYS.user("a stranger")
ONE = Usage(calls=1, prompt_tokens=100, cached_tokens=60, completion_tokens=20, cost_nano=7, latency_ms=900)
# 2024-07-01, the day of the clock.
MONDAY_DAY = 19_905
PLAN, ANSWER = "plan", "answer"


async def add(log: EventLog, *spent: tuple[Spent, Usage]) -> None:
    await log.write(partial(add_query_usage, spent=dict(spent)))


@pytest.fixture
async def two_users(log: EventLog) -> EventLog:
    await log.append(a_batch(a_turn(), a_turn(user_id="bob")))
    return log


async def test_it_adds_up_by_day_and_task(two_users: EventLog) -> None:
    for user in (ALICE, ALICE, BOB):
        await add(two_users, (Spent(user, 1, PLAN), ONE), (Spent(user, 2, ANSWER), ONE))

    three = ONE + ONE + ONE
    assert await two_users.read(read_query_usage) == {(1, PLAN): three, (2, ANSWER): three}
    assert await two_users.read(partial(read_tokens_by_user, day=1)) == {ALICE: 240, BOB: 120}
    assert await two_users.read(partial(read_tokens_by_user, day=3)) == {}


async def test_days_long_past_become_one_and_nothing_is_lost(two_users: EventLog, log_path: Path) -> None:
    """On which days somebody asked is nobody's business once no budget depends on it."""
    for day in range(100, 110):
        await add(two_users, *((Spent(user, day, PLAN), ONE) for user in (ALICE, BOB)))
    clock_set_back = Spent(ALICE, 100, ANSWER)
    await add(two_users, (clock_set_back, ONE))
    days = stored_rows(log_path, "SELECT day, task, calls FROM query_usage WHERE user = ? ORDER BY day", ALICE)
    sums = await two_users.read(read_query_usage)

    assert days == [(EARLIER, PLAN, 7), (100, ANSWER, 1), *((day, PLAN, 1) for day in (107, 108, 109))]
    assert sum(usage.calls for usage in sums.values()) == 21
    assert sums[EARLIER, PLAN] == Usage(*(7 * 2 * each for each in (1, 100, 60, 20, 7, 900)))
    assert await two_users.read(partial(read_tokens_by_user, day=109)) == {ALICE: 120, BOB: 120}


async def test_many_sums_of_a_day_that_is_over_go_in_slices(log: EventLog, log_path: Path) -> None:
    names = [f"u{n}" for n in range(SLICE_SUMS + 50)]
    await log.append(a_batch(*(a_turn(user_id=name) for name in names)))
    await add(log, *((Spent(KEYS.user(name), 1, PLAN), ONE) for name in names))
    left: list[int] = []
    for _ in range(2):
        await add(log, (Spent(KEYS.user("u0"), 9, PLAN), ONE))
        left += stored_rows(log_path, "SELECT count(*) FROM query_usage WHERE day = 1")[0]

    assert left == [50, 0]
    assert (await log.read(read_query_usage))[EARLIER, PLAN].calls == len(names)


async def test_questions_and_answers_in_the_log_are_on_one_budget(two_users: EventLog) -> None:
    reading = an_extraction((1,))
    usage: dict[str, Any] = {"usage": Usage(calls=1, prompt_tokens=1_000)}
    await two_users.append_event(replace(reading, event=replace(reading.event, **usage)))
    await add(two_users, (Spent(ALICE, MONDAY_DAY, PLAN), ONE), (Spent(BOB, MONDAY_DAY, PLAN), ONE))

    assert await two_users.read(partial(read_tokens_by_user, day=MONDAY_DAY)) == {ALICE: 1_120, BOB: 120}


async def test_whoever_is_not_in_the_log_is_nobody(two_users: EventLog) -> None:
    await add(two_users, *((Spent(each, 1, PLAN), ONE) for each in (STRANGER, NOBODY, BOB)))

    assert await two_users.read(partial(read_tokens_by_user, day=1)) == {NOBODY: 240, BOB: 120}


async def test_of_a_forgotten_user_the_sums_are_nobodys_and_of_others_they_stay(
    two_users: EventLog, log_path: Path
) -> None:
    of_alice = [(Spent(ALICE, day, task), ONE) for day in (1, 2) for task in (PLAN, ANSWER)]
    await add(two_users, *of_alice, (Spent(BOB, 1, PLAN), ONE), (Spent(NOBODY, 2, PLAN), ONE))
    before = await two_users.read(read_query_usage)
    await two_users.append_event(a_user_forgetting())
    await add(two_users, (Spent(ALICE, 1, PLAN), ONE))  # it was under way

    assert stored_rows(log_path, "SELECT DISTINCT user FROM query_usage ORDER BY user") == [(NOBODY,), (BOB,)]
    assert await two_users.read(partial(read_tokens_by_user, day=1)) == {NOBODY: 360, BOB: 120}
    assert await two_users.read(read_query_usage) == {**before, (1, PLAN): ONE + ONE + ONE}


async def test_who_begins_anew_begins_with_nothing_spent_on_questions(two_users: EventLog) -> None:
    await add(two_users, (Spent(ALICE, 1, PLAN), ONE))
    await two_users.append_event(a_user_forgetting())
    await two_users.append_event(
        replace(a_turn(turn_id="new", bus=replace(a_place(9), at=MONDAY + 1)), reopens=True)
    )
    await add(two_users, (Spent(ALICE, 1, ANSWER), ONE))

    assert await two_users.read(partial(read_tokens_by_user, day=1)) == {NOBODY: 120, ALICE: 120}


async def test_nothing_else_in_the_store_changes(two_users: EventLog, log_path: Path) -> None:
    """No user_seq, no head, no hash over the events: a past answers the same whatever was asked since."""
    before = stored_tables(log_path)
    await add(two_users, (Spent(ALICE, 1, PLAN), ONE))
    after = stored_tables(log_path)

    assert before.pop("query_usage") == []
    assert len(after.pop("query_usage")) == 1
    assert after == before


async def test_what_cannot_be_written_adds_nothing(two_users: EventLog) -> None:
    too_many = Usage(prompt_tokens=1 << 70)
    with pytest.raises(OverflowError):
        await add(two_users, (Spent(ALICE, 1, PLAN), ONE), (Spent(BOB, 1, PLAN), too_many))

    assert await two_users.read(read_query_usage) == {}


async def test_sums_are_those_of_brute_force(log: EventLog) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    names = [f"u{n}" for n in range(5)]
    await log.append(a_batch(*(a_turn(user_id=name) for name in names)))
    tokens: dict[tuple[int, bytes], int] = defaultdict(int)
    sums: dict[tuple[int, str], Usage] = defaultdict(Usage)
    for _ in range(60):
        user, day, task = KEYS.user(chance.choice(names)), chance.randrange(3), chance.choice((PLAN, ANSWER))
        usage = Usage(*(chance.randrange(1_000) for _ in range(6)))
        await add(log, (Spent(user, day, task), usage))
        tokens[day, user] += usage.tokens
        sums[day, task] += usage
        if chance.random() < 0.1:
            await log.write(partial(_disown, user=user))
            for each in range(3):
                tokens[each, NOBODY] += tokens.pop((each, user), 0)

    assert await log.read(read_query_usage) == sums
    for day in range(3):
        expected = {user: spent for (of, user), spent in tokens.items() if of == day and spent}
        assert await log.read(partial(read_tokens_by_user, day=day)) == expected


def _disown(connection: sqlite3.Connection, user: bytes) -> None:
    with immediate(connection):
        disown_query_usage(connection, user)


async def test_the_name_of_a_task_is_no_residue_of_who_said_the_word(two_users: EventLog) -> None:
    await two_users.append_event(a_user_forgetting())
    (erased,) = await two_users.read(read_unerased)
    look = partial(find_elsewhere, needles={b"grade"}, erased=erased)
    before = await two_users.read(look)
    await add(two_users, (Spent(BOB, 1, "grade"), ONE))

    assert (before, await two_users.read(look)) == (set(), {b"grade"})
