"""What questions took, as it is counted and kept: by whom, for what, over restarts, and when the disk is full."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path

import anyio
import msgspec
import pytest

from daemon.asking.answer_judging import AnswerJudge, BudgetUsedUp, JudgeParams
from daemon.models import query_spending
from daemon.models.budget import Budget
from daemon.models.query_spending import QuerySpending, QueryTotals
from daemon.models.query_tasks import QueryTask
from events.errors import StoreUnusable
from events.ledger import DAY_MS, day_of, read_tokens_by_user
from events.log import EventLog
from events.memory import Usage
from events.query_usage import NOBODY
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_turn, a_user_forgetting, seeded_nonces
from tests.daemon.chat.asking import asking
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running, unwritable
from tests.daemon.scripted_asking import ScriptedAsker
from tests.openai_stub import OpenAiStub
from tests.stored import stored_rows
from tests.waiting import wait_until

PLAN, RANK, ANSWER, GRADE = QueryTask.PLAN, QueryTask.RANK, QueryTask.ANSWER, QueryTask.GRADE
BOB = KEYS.user("bob")
ONE = Usage(1, 100, 60, 20, 7, 900)
KEPT = "SELECT task, sum(calls) FROM query_usage GROUP BY task ORDER BY task"


def totals(today: dict[QueryTask, Usage], in_all: dict[QueryTask, Usage] | None = None) -> QueryTotals:
    nothing = dict.fromkeys(QueryTask, Usage())
    return QueryTotals({**nothing, **today}, {**nothing, **(today if in_all is None else in_all)})


@asynccontextmanager
async def keeping(spending: QuerySpending) -> AsyncGenerator[None, None]:
    """As in the life of a daemon."""
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(spending.keep_on)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


@pytest.fixture
async def known(log: EventLog) -> EventLog:
    await log.append(a_batch(a_turn(), a_turn(user_id="bob")))
    return log


async def test_sums_are_told_by_task_of_today_and_ever_before_they_are_kept(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock)
    spending.note(ALICE, PLAN, ONE)
    clock.advance(DAY_MS)
    spending.note(BOB, PLAN, ONE)
    spending.note(None, GRADE, ONE)
    told = await spending.read()

    assert told == totals({PLAN: ONE, GRADE: ONE}, {PLAN: ONE + ONE, GRADE: ONE})
    assert stored_rows(log_path, KEPT) == []


async def test_they_are_kept_a_moment_later_and_all_at_once(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock, keep_after_s=0.01)
    async with keeping(spending):
        for _ in range(50):
            spending.note(ALICE, PLAN, ONE)
        await wait_until(lambda: stored_rows(log_path, KEPT) == [("plan", 50)])
        spending.note(BOB, RANK, ONE)
        await wait_until(lambda: stored_rows(log_path, KEPT) == [("plan", 50), ("rank", 1)])
    told = await spending.read()

    assert (told.today[PLAN].calls, told.today[RANK]) == (50, ONE)


async def test_what_took_nothing_is_not_written_down(known: EventLog, clock: ManualClock, log_path: Path) -> None:
    spending = QuerySpending(known, clock)
    spending.note(ALICE, PLAN, Usage())
    await spending.keep()

    assert stored_rows(log_path, KEPT) == []


async def test_a_daemon_that_ends_leaves_all_of_it_and_the_next_one_goes_on_from_there(
    log_path: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    await log.append(a_batch(a_turn()))
    spending = QuerySpending(log, clock)
    Budget(0, 0, clock, queries=spending).spend_on_query(ALICE, ANSWER, ONE)
    await spending.leave()
    await log.close()
    log = await EventLog.open(log_path, clock, seeded_nonces(2))
    spending = QuerySpending(log, clock)
    budget = Budget(0, 0, clock, queries=spending)
    budget.spend_on_query(ALICE, ANSWER, ONE)  # before anybody asked what was spent
    first = await spending.read()
    await spending.keep()
    await budget.load(log)
    second = await spending.read()
    await log.close()

    assert first == second == totals({ANSWER: ONE + ONE})
    assert budget.spent(ALICE) == budget.spent() == 240


async def test_what_was_spent_before_the_kill_is_on_the_budgets_of_the_day(
    known: EventLog, clock: ManualClock
) -> None:
    spending = QuerySpending(known, clock)
    spending.note(ALICE, PLAN, ONE)
    spending.note(None, GRADE, ONE)
    await spending.keep()
    spending.note(BOB, PLAN, ONE)  # it is killed
    later = Budget(240, 120, clock)
    await later.load(known)
    spent = (later.spent(ALICE), later.spent(BOB), later.spent())
    tomorrow = Budget(240, 120, clock)
    clock.advance(DAY_MS)
    await tomorrow.load(known)

    assert spent == (120, 0, 240)
    assert tomorrow.spent() == 0


async def test_a_user_who_is_forgotten_meanwhile_is_written_down_nowhere(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock)
    spending.note(ALICE, PLAN, ONE)
    await spending.keep()
    spending.note(ALICE, PLAN, ONE)
    await known.append_event(a_user_forgetting())
    await spending.keep()
    fresh = QuerySpending(known, clock)

    assert stored_rows(log_path, "SELECT user, calls FROM query_usage") == [(NOBODY, 2)]
    assert await spending.read() == await fresh.read() == totals({PLAN: ONE + ONE})
    assert await known.read(partial(read_tokens_by_user, day=day_of(clock()))) == {NOBODY: 240}


async def test_while_the_disk_takes_nothing_it_is_counted_and_kept_later(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock, keep_after_s=0.01, pause_s=0.01)
    with unwritable(log_path):
        spending.note(ALICE, PLAN, ONE)
        with pytest.raises(StoreUnusable):
            await spending.keep()
        spending.note(ALICE, PLAN, ONE)
        told = await spending.read()
        await spending.leave()  # it says nothing, and a daemon ends
    async with keeping(spending):
        await wait_until(lambda: stored_rows(log_path, KEPT) == [("plan", 2)])
    after = await spending.read()

    assert told == after == totals({PLAN: ONE + ONE})


async def test_the_room_that_is_left_on_a_full_disk_is_for_others(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock)
    known.reserved = True
    spending.note(ALICE, PLAN, ONE)
    with pytest.raises(StoreUnusable):
        await spending.keep()
    refused = stored_rows(log_path, KEPT)
    known.reserved = False
    await spending.keep()

    assert (refused, stored_rows(log_path, KEPT)) == ([], [("plan", 1)])


async def test_what_waits_for_the_disk_is_bounded_and_no_token_is_lost(
    known: EventLog, clock: ManualClock, log_path: Path
) -> None:
    spending = QuerySpending(known, clock)
    for number in range(query_spending.WAITING_MAX + 500):
        spending.note(KEYS.user(f"u{number}"), PLAN, ONE)
    waiting = len(spending._waiting)  # pyright: ignore[reportPrivateUsage]
    await spending.keep()

    assert waiting == query_spending.WAITING_MAX + 1
    assert stored_rows(log_path, KEPT) == [("plan", query_spending.WAITING_MAX + 500)]


async def test_sums_are_those_of_brute_force_whatever_happens_in_between(
    known: EventLog, clock: ManualClock
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    spending = QuerySpending(known, clock)
    expected: dict[tuple[int, QueryTask], Usage] = defaultdict(Usage)
    for _ in range(200):
        usage, task = Usage(*(chance.randrange(1, 1000) for _ in range(6))), chance.choice(list(QueryTask))
        spending.note(chance.choice((ALICE, BOB, None, KEYS.user("nobody here"))), task, usage)
        expected[day_of(clock()), task] += usage
        async with anyio.create_task_group() as tasks:
            for work in chance.sample((spending.keep, spending.read, spending.read), chance.randrange(4)):
                tasks.start_soon(work)
        if chance.random() < 0.05:
            await spending.keep()
            spending = QuerySpending(known, clock)
        clock.advance(chance.choice((1000, DAY_MS // 7)))
    told = await spending.read()

    today, in_all = day_of(clock()), dict.fromkeys(QueryTask, Usage())
    for (_, task), usage in expected.items():
        in_all[task] += usage
    assert told == totals({task: expected[today, task] for task in QueryTask}, in_all)


# --- what is counted, and what it stops ---


async def test_every_call_of_a_question_is_counted_under_its_task(log: EventLog, clock: ManualClock) -> None:
    asker, spending = ScriptedAsker(), QuerySpending(log, clock)
    budget = Budget(0, 0, clock, queries=spending)
    parts = build_parts(log, clock, asks=asker, budget=budget)
    await tell(parts)
    before = await log.read(lambda db: db.execute("SELECT user, user_seq FROM users").fetchall())
    answer = await parts.ask("Where did Ann live?", mode="deep")
    await spending.keep()
    told = (await spending.read()).in_all
    after = await log.read(lambda db: db.execute("SELECT user, user_seq FROM users").fetchall())

    assert answer.calls == len(asker.asked) > 2
    assert {task: usage.calls for task, usage in told.items()} == {
        task: asker.tasks().count(task) for task in QueryTask
    }
    assert sum(usage.tokens for usage in told.values()) == budget.spent(ALICE) == budget.spent()
    assert after == before


async def tell(parts: Parts) -> None:
    async with running(parts):
        for number in range(1, 4):
            await parts.say(f"Ann lived in town number {number}.", "Ann liked it.", session_id=f"s{number}")
            await parts.close(f"s{number}")
        await parts.until_done()


async def test_a_budget_that_questions_alone_used_up_stops_questions_and_the_background_after_a_restart(
    log: EventLog, clock: ManualClock
) -> None:
    spending = QuerySpending(log, clock)
    parts = build_parts(log, clock, asks=ScriptedAsker(), budget=Budget(0, 0, clock, queries=spending))
    await tell(parts)
    paid = await parts.ask("Where did Ann live?", mode="deep")
    await spending.leave()
    asker, budget = ScriptedAsker(), Budget(0, 100, clock)
    later = build_parts(log, clock, asks=asker, budget=budget)
    answer = await later.ask("Where did Ann live?", mode="deep")
    async with running(later):
        await later.say("Ann moved.", "Ann moved again.", session_id="s9")
        await wait_until(lambda: later.worker.engine.blocks(ALICE) and later.worker.waiting_for_model > 0)

    assert paid.fell_back is None
    assert (answer.fell_back, answer.calls, asker.asked) == ("budget", 0, [])
    assert answer.memories
    assert later.model.calls == []


async def test_what_is_judged_is_kept_also_when_it_came_to_nothing_and_is_for_nobody(
    known: EventLog, clock: ManualClock, stub: OpenAiStub
) -> None:
    stub.chat = lambda _: json.dumps({"reason": "same", "right": True})
    spending = QuerySpending(known, clock)
    budget = Budget(120, 0, clock, queries=spending)
    params = JudgeParams(question="Where is Ann?", gold="Oslo", answer="In Oslo.")
    async with asking(stub) as model:
        await AnswerJudge(known, model, budget).judge(params)
        await spending.leave()
        later = Budget(120, 0, clock)
        with pytest.raises(BudgetUsedUp):
            await AnswerJudge(known, model, later).judge(msgspec.structs.replace(params, user_id="alice"))

    told = (await QuerySpending(known, clock).read()).today[GRADE]
    assert (told.calls, told.tokens) == (1, 120)
    assert len(stub.asked) == 1
