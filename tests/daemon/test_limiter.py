"""How many requests an endpoint gets at once: as many as it bears, and who goes first."""

from __future__ import annotations

import asyncio
import heapq
import random

import anyio
import pytest

from daemon.models.limiter import (
    EASE,
    FIRST_IN_A_ROW,
    FLOOR_GROWS,
    KINDS_MAX,
    LEFT_MIN,
    SLOW_TIMES,
    WINDOW_ANSWERS,
    AdaptiveLimiter,
    Aimd,
)
from tests.waiting import wait_until


def answered(aimd: Aimd, times: int, *, at: float, took_s: float = 1.0, kind: str = "") -> None:
    """So many answers in a row, the limit being used up."""
    for _ in range(times):
        aimd.note_answer(kind, aimd.limit, at - took_s, at)


def test_it_begins_with_all_that_is_allowed_and_halves_down_to_one() -> None:
    aimd = Aimd(16)
    limits = [aimd.limit]
    for second in range(6):
        aimd.note_overload(second, second + 0.5)
        limits.append(aimd.limit)

    assert limits == [16, 8, 4, 2, 1, 1, 1]


def test_requests_that_went_out_before_the_last_decrease_do_not_decrease_again() -> None:
    aimd = Aimd(64)
    for _ in range(64):
        aimd.note_overload(1.0, 2.0)
    once = aimd.limit
    aimd.note_overload(2.0, 3.0)

    assert (once, aimd.limit) == (32, 16)


def test_as_many_answers_as_the_limit_make_it_one_more() -> None:
    aimd = Aimd(16)
    aimd.note_overload(0.0, 0.0)
    aimd.note_overload(0.0, 0.0)  # 4
    limits = list[int]()
    for _ in range(3):
        answered(aimd, aimd.limit, at=10.0)
        answered(aimd, 1, at=10.0)  # 1/4 and then less: the last of them comes with the next answer
        limits.append(aimd.limit)

    assert limits == [5, 6, 7]


def test_it_grows_back_and_never_above_what_is_allowed() -> None:
    aimd = Aimd(16)
    for second in range(4):
        aimd.note_overload(second, second)
    answered(aimd, 160, at=10.0)
    back = aimd.limit
    answered(aimd, 1_000, at=10.0)

    assert 14 <= back <= 16
    assert aimd.limit == 16


def test_where_it_was_too_much_it_rises_slowly_and_past_that_as_before() -> None:
    aimd = Aimd(64)
    for second in range(3):
        aimd.note_overload(second, second)  # 8, and 16 was too many
    needed = list[int]()
    for goal in range(9, 20):
        needed.append(0)
        while aimd.limit < goal:
            answered(aimd, 1, at=10.0)
            needed[-1] += 1

    assert all(answers <= 16 for answers in needed[:7])  # to 15
    assert all(140 <= answers <= 180 for answers in needed[7:9])  # to 17
    assert all(answers <= 20 for answers in needed[9:])


def test_answers_from_before_the_decrease_and_from_an_idle_endpoint_do_not_raise_it() -> None:
    aimd = Aimd(16)
    aimd.note_overload(10.0, 10.0)
    answered(aimd, 100, at=10.5)  # went out at 9.5
    for _ in range(100):
        aimd.note_answer("", 1, 11.0, 12.0)  # one at a time would do

    assert aimd.limit == 8


def test_answers_that_take_far_longer_than_they_did_ease_it_and_single_long_ones_do_not() -> None:
    aimd = Aimd(20)
    answered(aimd, WINDOW_ANSWERS, at=10.0)
    for _ in range(10):
        answered(aimd, WINDOW_ANSWERS - 1, at=20.0)
        answered(aimd, 1, at=20.0, took_s=10.0)
    unmoved = aimd.limit
    answered(aimd, WINDOW_ANSWERS, at=30.0, took_s=4 * SLOW_TIMES)

    assert unmoved == 20
    assert aimd.limit == int(20 * EASE)


def test_what_is_slow_for_one_kind_is_not_for_another() -> None:
    aimd = Aimd(20)
    answered(aimd, WINDOW_ANSWERS, at=10.0, took_s=0.1, kind="extract")
    answered(aimd, WINDOW_ANSWERS * 3, at=20.0, took_s=5.0, kind="summarise")

    assert aimd.limit == 20


def test_a_server_that_is_slower_for_good_is_believed_in_the_end() -> None:
    aimd = Aimd(20)
    answered(aimd, WINDOW_ANSWERS, at=10.0, took_s=1.0)
    windows = 0
    while FLOOR_GROWS**windows < 3.0 / SLOW_TIMES * 2:
        windows += 1
    for window in range(windows * 3):
        answered(aimd, WINDOW_ANSWERS, at=20.0 + 10 * window, took_s=SLOW_TIMES * 2)
    limit = aimd.limit
    answered(aimd, WINDOW_ANSWERS * 20, at=10_000.0, took_s=SLOW_TIMES * 2)

    assert limit >= 1
    assert aimd.limit == 20


def test_kinds_without_end_take_no_room_without_end() -> None:
    aimd = Aimd(4)
    for number in range(1_000):
        aimd.note_answer(f"kind {number}", 1, 0.0, 1.0)

    assert len(aimd._times) <= KINDS_MAX + 1


def test_no_history_brings_it_out_of_its_bounds() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    for _ in range(50):
        most = chance.randrange(1, 70)
        aimd, now = Aimd(most), 0.0
        for _ in range(300):
            now += chance.random()
            sent_at = now - chance.expovariate(1.0)
            before = aimd.limit
            if chance.random() < 0.1:
                aimd.note_overload(sent_at, now)
                assert aimd.limit >= before // 2
            else:
                aimd.note_answer(chance.choice("ab"), chance.randrange(1, most + 1), sent_at, now)
                assert before * EASE - 1 <= aimd.limit <= before + 1

            assert 1 <= aimd.limit <= most


def simulate(slots: int, most: int, calls: int, chance: random.Random) -> tuple[float, int, list[int]]:
    """A server with few slots that refuses at once what it has no room for, and a client that always wants more.

    Seconds until all are answered, how many requests were refused, and the limit at each answer.
    """
    aimd, now, refused, answers = Aimd(most), 0.0, 0, 0
    busy, out = 0, 0
    limits = list[int]()
    # When, number (for ties), whether it is answered, when it went out.
    events: list[tuple[float, int, bool, float]] = []
    number = 0
    while answers < calls:
        while out < aimd.limit:
            number += 1
            out += 1
            takes = busy < slots
            busy += takes
            took_s = chance.uniform(0.5, 1.5) if takes else 0.01
            heapq.heappush(events, (now + took_s, number, takes, now))
        now, _, was_answered, sent_at = heapq.heappop(events)
        if was_answered:
            aimd.note_answer("", out, sent_at, now)
            answers += 1
            busy -= 1
            limits.append(aimd.limit)
        else:
            aimd.note_overload(sent_at, now)
            refused += 1
        out -= 1
    return now, refused, limits


@pytest.mark.parametrize("slots", [1, 2, 4, 8, 32])
def test_a_server_with_few_slots_is_kept_busy_and_refuses_little(slots: int) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    took_s, refused, limits = simulate(slots, 32, 1_000, random.Random(seed))
    settled = limits[len(limits) // 2 :]

    # A fifth is what the retry budget allows for.
    assert refused <= 1_000 * 0.1 + 32
    assert took_s <= 1_000 / slots * 1.2
    assert max(settled) <= min(32, slots + 2)


async def taken(limiter: AdaptiveLimiter, priority: int, order: list[str], name: str) -> None:
    await limiter.acquire(limiter.queue_up(priority))
    order.append(name)


async def test_waiters_are_served_by_priority_and_then_by_arrival() -> None:
    limiter, order = AdaptiveLimiter(1), list[str]()
    await taken(limiter, 0, order, "first")
    async with anyio.create_task_group() as tasks:
        for number, priority in enumerate([2, 1, 0, 1, 0, 2]):
            tasks.start_soon(taken, limiter, priority, order, f"{priority}/{number}")
            await wait_until(lambda number=number: limiter.waiting == number + 1)  # type: ignore[misc]
        for served in range(6):
            limiter.release()
            await wait_until(lambda served=served: len(order) == served + 2)  # type: ignore[misc]

    assert order == ["first", "0/2", "0/4", "1/1", "1/3", "2/0", "2/5"]
    assert (limiter.in_flight, limiter.waiting) == (1, 0)


async def test_a_call_keeps_its_place_over_its_attempts() -> None:
    limiter, order = AdaptiveLimiter(1), list[str]()
    early = limiter.queue_up(1)
    await taken(limiter, 0, order, "holds")

    async def again() -> None:
        await limiter.acquire(early)
        order.append("early")
        limiter.release()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(taken, limiter, 1, order, "late")
        await wait_until(lambda: limiter.waiting == 1)
        tasks.start_soon(again)
        await wait_until(lambda: limiter.waiting == 2)
        limiter.release()

    assert order == ["holds", "early", "late"]


async def test_one_slot_is_left_to_those_who_come_first_and_never_the_last_one() -> None:
    limiter, order = AdaptiveLimiter(3, kept_for_first=1), list[str]()
    single = AdaptiveLimiter(1, kept_for_first=1)
    async with anyio.create_task_group() as tasks:
        for number in range(4):
            tasks.start_soon(taken, limiter, 1, order, f"stored {number}")
        await wait_until(lambda: limiter.waiting == 2)
        await taken(limiter, 0, order, "question")
        in_flight = limiter.in_flight
        for _ in range(3):
            limiter.release()
    await single.acquire(single.queue_up(1))

    assert order[:3] == ["stored 0", "stored 1", "question"]
    assert (in_flight, single.in_flight) == (3, 1)


async def test_a_pause_holds_all_back_and_ends_by_itself() -> None:
    limiter, order = AdaptiveLimiter(2), list[str]()
    limiter.pause(0.1)
    limiter.pause(0.05)  # no shorter for it
    began = anyio.current_time()
    left_s = limiter.pause_left_s()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(taken, limiter, 0, order, "a")
        tasks.start_soon(taken, limiter, 0, order, "b")
    took_s = anyio.current_time() - began

    assert 0.05 < left_s <= 0.1
    assert took_s >= 0.09
    assert (sorted(order), limiter.pause_left_s()) == (["a", "b"], 0.0)


async def test_a_slot_that_comes_with_the_cancelling_is_given_back() -> None:
    limiter = AdaptiveLimiter(1)
    await limiter.acquire(limiter.queue_up(0))
    waiter = asyncio.create_task(limiter.acquire(limiter.queue_up(0)))
    await wait_until(lambda: limiter.waiting == 1)
    limiter.release()  # it is served
    waiter.cancel()  # and cancelled before it could go on
    await asyncio.wait([waiter])

    assert waiter.cancelled()
    assert (limiter.in_flight, limiter.waiting) == (0, 0)


async def test_no_history_of_cancelling_loses_a_slot_or_gives_too_many() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    chance = random.Random(seed)
    limiter = AdaptiveLimiter(4, kept_for_first=1)
    holding = 0
    most = 0

    async def call() -> None:
        nonlocal holding, most
        with anyio.move_on_after(chance.random() * 0.01):
            await limiter.acquire(limiter.queue_up(chance.randrange(3)))
            holding += 1
            most = max(most, holding)
            try:
                await anyio.sleep(chance.random() * 0.002)
            finally:
                holding -= 1
                limiter.release()

    for _ in range(5):
        async with anyio.create_task_group() as tasks:
            for _ in range(100):
                tasks.start_soon(call)
                if chance.random() < 0.05:
                    limiter.pause(0.001)

    assert most <= 4
    assert (limiter.in_flight, limiter.waiting, holding) == (0, 0, 0)


async def test_waiters_that_gave_up_take_no_room_without_end() -> None:
    limiter = AdaptiveLimiter(1)
    await limiter.acquire(limiter.queue_up(0))
    for _ in range(1_000):
        with anyio.move_on_after(0):
            await limiter.acquire(limiter.queue_up(1))

    assert limiter.waiting == 0
    assert max(len(queue._heap) for queue in limiter._queues) <= LEFT_MIN + 1


async def test_work_has_one_slot_in_a_few_however_many_questions_of_people_wait() -> None:
    limiter, order = AdaptiveLimiter(1), list[int]()

    async def call(priority: int) -> None:
        async with limiter.hold(priority):
            order.append(priority)

    await limiter.acquire(limiter.queue_up(0))
    async with anyio.create_task_group() as tasks:
        for _ in range(3 * FIRST_IN_A_ROW):
            tasks.start_soon(call, -1)
        for priority in (1, 0):
            tasks.start_soon(call, priority)
        await wait_until(lambda: limiter.waiting == 3 * FIRST_IN_A_ROW + 2)
        limiter.release()

    some = [-1] * FIRST_IN_A_ROW
    assert order == [*some, 0, *some, 1, *some]


async def test_what_is_refreshed_has_one_slot_in_a_few_however_many_fresh_turns_wait() -> None:
    limiter, order = AdaptiveLimiter(1), list[int]()

    async def call(priority: int) -> None:
        async with limiter.hold(priority):
            order.append(priority)

    await limiter.acquire(limiter.queue_up(0))
    async with anyio.create_task_group() as tasks:
        for _ in range(3 * FIRST_IN_A_ROW):
            tasks.start_soon(call, 0)
        for priority in (2, 1):
            tasks.start_soon(call, priority)
        await wait_until(lambda: limiter.waiting == 3 * FIRST_IN_A_ROW + 2)
        limiter.release()

    some = [0] * FIRST_IN_A_ROW
    assert order == [*some, 1, *some, 2, *some]
