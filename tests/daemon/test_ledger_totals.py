"""What the ledger adds up to, against sums made by hand and by brute force; and the watch over facts found."""

from __future__ import annotations

import random
from collections import defaultdict

import anyio

from daemon.extraction_watch import ExtractionWatch
from daemon.ledger_totals import ExtractionCounts, LedgerTotals
from daemon.zero_facts import ZeroFacts
from events.log import EventLog
from events.memory import Task, Usage
from tests.builders import ManualClock
from tests.bus_in_use import Reported
from tests.daemon.model_answers import Answers
from tests.waiting import wait_until

DAY_MS = 86_400_000
ASKED = Usage(calls=1, prompt_tokens=100, completion_tokens=10)


async def test_of_an_empty_log_all_is_nothing(log: EventLog, clock: ManualClock) -> None:
    totals = await LedgerTotals(log, clock).read()

    assert totals.today == totals.in_all == dict.fromkeys(Task, Usage())
    assert (totals.extractions, totals.zero_facts) == (ExtractionCounts(), ZeroFacts())


async def test_answers_and_what_was_given_up_are_added_up_by_task(log: EventLog, clock: ManualClock) -> None:
    answers = Answers(log)
    await answers.extract(2, Usage(2, 1000, 600, 50, 7_000, 1200))
    await answers.park(Usage(3, 10, 0, 1, 5, 100))
    await answers.summarise(Usage(1, 200, 0, 20, 30, 400), "s1", "s2")
    await answers.merge(Usage(1, 300, 100, 30, 40, 500))
    await answers.judge(Usage(1, 90, 0, 9, 7, 60), "s1", "s2")
    totals = await LedgerTotals(log, clock).read()

    assert totals.in_all == {
        Task.EXTRACT: Usage(5, 1010, 600, 51, 7_005, 1300),
        Task.JUDGE: Usage(1, 90, 0, 9, 7, 60),
        Task.SUMMARISE: Usage(1, 200, 0, 20, 30, 400),
        Task.MERGE: Usage(1, 300, 100, 30, 40, 500),
    }
    assert totals.today == totals.in_all


async def test_every_chunk_has_facts_or_none_or_was_skipped(log: EventLog, clock: ManualClock) -> None:
    answers = Answers(log)
    for _ in range(3):
        await answers.extract(2, ASKED)
    await answers.extract(0, ASKED, missed=4)
    await answers.extract(0, ASKED)
    await answers.extract(1, ASKED, missed=2)
    await answers.extract(0, Usage(), skipped=True)
    await answers.extract(0, Usage())  # by the rules here: no endpoint was asked
    await answers.extract(1, Usage())
    await answers.park(ASKED)
    totals = await LedgerTotals(log, clock).read()

    assert totals.extractions == ExtractionCounts(
        answers=9, with_facts=5, zero=3, skipped=1, flagged=2, asked=7, asked_zero=3
    )
    assert totals.zero_facts == ZeroFacts(recent=7, recent_zero=3)


async def test_today_begins_anew_at_midnight_in_utc(log: EventLog, clock: ManualClock) -> None:
    answers, totals = Answers(log), LedgerTotals(log, clock)
    await answers.extract(1, ASKED)
    clock.now += DAY_MS - clock.now % DAY_MS - 1  # the last millisecond of the day
    await answers.extract(1, ASKED)
    before = (await totals.read()).today[Task.EXTRACT]
    clock.advance(1)
    fresh = (await totals.read()).today[Task.EXTRACT]
    await answers.extract(1, ASKED)
    after = await totals.read()
    clock.advance(-1)
    set_back = (await totals.read()).today[Task.EXTRACT]

    assert (before.calls, fresh.calls, after.today[Task.EXTRACT].calls, set_back.calls) == (2, 0, 1, 2)
    assert after.in_all[Task.EXTRACT] == ASKED + ASKED + ASKED


async def test_only_the_last_100_answers_are_recent_also_after_a_restart(
    log: EventLog, clock: ManualClock
) -> None:
    answers, looking = Answers(log), LedgerTotals(log, clock)
    for _ in range(60):
        await answers.extract(1, ASKED)
    await looking.read()
    for number in range(70):
        await answers.extract(0 if number % 2 else 1, ASKED)
        if number % 20 == 0:
            await looking.read()

    expected = ZeroFacts(recent=100, recent_zero=35, before=30, before_zero=0)
    assert (await looking.read()).zero_facts == expected
    assert (await LedgerTotals(log, clock).read()).zero_facts == expected


async def test_sums_are_those_of_brute_force_whenever_and_however_often_somebody_looks(
    log: EventLog, clock: ManualClock
) -> None:
    seed = random.randrange(1 << 32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    answers, looking = [Answers(log, name) for name in ("alice", "bob")], LedgerTotals(log, clock)
    expected: dict[tuple[int, Task], Usage] = defaultdict(Usage)
    zeros: list[bool] = []
    for _ in range(150):
        usage = Usage(*(chance.randrange(1, 1000) for _ in range(6)))
        who, task = chance.choice(answers), chance.choice(list(Task))
        match task:
            case Task.EXTRACT if chance.random() < 0.2:
                zeros.append(True)
                await who.park(usage)
            case Task.EXTRACT:
                zeros.append(chance.random() < 0.3)
                await who.extract(0 if zeros[-1] else 1, usage)
            case Task.SUMMARISE:
                await who.summarise(usage)
            case Task.MERGE:
                await who.merge(usage)
            case Task.JUDGE:
                await who.judge(usage)
        expected[clock() // DAY_MS, task] += usage
        clock.advance(chance.choice((1000, 1000, DAY_MS // 3)))
        if chance.random() < 0.2:
            async with anyio.create_task_group() as readers:
                for _ in range(chance.randrange(1, 4)):
                    readers.start_soon(looking.read)
    totals = await looking.read()

    today = clock() // DAY_MS
    assert totals.today == {task: expected[today, task] for task in Task}
    assert totals.in_all == {
        task: sum((usage for (_, of), usage in expected.items() if of is task), start=Usage()) for task in Task
    }
    assert totals.zero_facts == ZeroFacts(
        len(zeros[-100:]), sum(zeros[-100:]), len(zeros[:-100]), sum(zeros[:-100])
    )


# --- the watch ---


async def test_the_alarm_is_told_once_when_it_begins_and_once_when_it_ends(
    log: EventLog, clock: ManualClock
) -> None:
    answers, reported = Answers(log), Reported()
    watch = ExtractionWatch(LedgerTotals(log, clock), reported)
    for _ in range(19):
        await answers.extract(0, ASKED)
        await watch.look()
    calm = watch.trouble
    for _ in range(3):
        await answers.extract(0, ASKED)
        await watch.look()
    alarmed = watch.trouble
    for _ in range(60):
        await answers.extract(1, ASKED)
        await watch.look()

    assert (calm, watch.trouble) == (None, None)
    assert alarmed is not None
    assert "22 of the last 22 chunks" in alarmed
    assert reported.events == [
        ("extraction.zero_facts_rising", {"zero": 20, "answers": 20}),
        # 22 of 55 are two fifths: the alarm ends where it began, less a fifth.
        ("extraction.zero_facts_settled", {"zero": 22, "answers": 55}),
    ]


async def test_chunks_that_are_given_up_are_an_alarm_like_those_without_facts(
    log: EventLog, clock: ManualClock
) -> None:
    answers, reported = Answers(log), Reported()
    for number in range(20):
        await (answers.park(ASKED) if number % 4 else answers.extract(1, ASKED))
    watch = ExtractionWatch(LedgerTotals(log, clock), reported)
    await watch.look()

    assert watch.trouble is not None
    assert "no fact came of 15 of the last 20 chunks" in watch.trouble
    assert reported.events == [("extraction.zero_facts_rising", {"zero": 15, "answers": 20})]


async def test_what_rules_here_found_or_skipped_is_no_alarm(log: EventLog, clock: ManualClock) -> None:
    answers, reported = Answers(log), Reported()
    for _ in range(30):
        await answers.extract(0, Usage())
        await answers.extract(0, Usage(), skipped=True)
    watch = ExtractionWatch(LedgerTotals(log, clock), reported)
    await watch.look()

    assert (watch.trouble, reported.events) == (None, [])


async def test_it_looks_by_itself(log: EventLog, clock: ManualClock) -> None:
    answers, reported = Answers(log), Reported()
    watch = ExtractionWatch(LedgerTotals(log, clock), reported, look_every_s=0.01)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(watch.run)
        for _ in range(20):
            await answers.extract(0, ASKED)
        await wait_until(lambda: watch.trouble is not None, message="no alarm")
        tasks.cancel_scope.cancel()

    assert reported.names() == ["extraction.zero_facts_rising"]
