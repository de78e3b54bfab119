"""The budget: what counts, who waits, and until when."""

from __future__ import annotations

from daemon.models.budget import Budget
from events.ledger import DAY_MS, day_of
from events.log import EventLog
from events.memory import Usage
from tests.builders import KEYS, MONDAY, ManualClock
from tests.daemon.model_answers import Answers

ALICE, BOB = KEYS.user("alice"), KEYS.user("bob")
# MONDAY is some time of a day; this is the midnight after it.
MIDNIGHT = (MONDAY // DAY_MS + 1) * DAY_MS


def test_prompts_and_completions_count_by_user_and_in_all_and_cached_tokens_are_in_the_prompt() -> None:
    budget = Budget(0, 0, ManualClock())
    budget.spend(ALICE, Usage(calls=1, prompt_tokens=70, cached_tokens=60, completion_tokens=5))
    budget.spend(BOB, Usage(calls=1, prompt_tokens=10))

    assert (budget.spent(ALICE), budget.spent(BOB), budget.spent()) == (75, 10, 85)
    assert budget.blocked(ALICE) is None, "a limit of 0 is none"


def test_who_reached_their_own_budget_waits_for_midnight_and_the_others_do_not() -> None:
    clock = ManualClock()
    budget = Budget(0, 100, clock)
    budget.spend(ALICE, Usage(prompt_tokens=99))
    before = budget.blocked(ALICE)
    budget.spend(ALICE, Usage(completion_tokens=1))
    block = budget.blocked(ALICE)

    assert before is None
    assert block is not None
    assert block.until == MIDNIGHT
    assert block.in_s * 1000 == MIDNIGHT - clock()
    assert "models.tokens_per_day_user" in block.reason
    assert (budget.blocked(BOB), budget.blocked()) == (None, None)


def test_the_budget_of_all_stops_everybody() -> None:
    budget = Budget(100, 60, ManualClock())
    budget.spend(ALICE, Usage(prompt_tokens=50))
    budget.spend(BOB, Usage(prompt_tokens=50))
    blocks = [budget.blocked(each) for each in (ALICE, BOB, KEYS.user("carol"), None)]

    assert all(block is not None and "models.tokens_per_day)" in block.reason for block in blocks)


def test_the_log_hears_once_a_day_that_the_budget_of_all_is_used_up() -> None:
    clock = ManualClock()
    heard: list[tuple[str, dict[str, object]]] = []
    budget = Budget(100, 10, clock, lambda event, /, **fields: heard.append((event, fields)))
    budget.spend(ALICE, Usage(prompt_tokens=99))
    before = list(heard)
    for _ in range(2):
        budget.spend(BOB, Usage(prompt_tokens=1))
    first = list(heard)
    clock.advance(DAY_MS)
    budget.spend(BOB, Usage(prompt_tokens=100))

    midnight = "2024-07-02T00:00:00Z"
    assert before == [], "of single users it hears nothing: they may be thousands"
    assert first == [("budget.used_up", {"tokens": 100, "until": midnight})]
    assert [event for event, _ in heard] == ["budget.used_up"] * 2


def test_at_midnight_all_begin_anew() -> None:
    clock = ManualClock()
    budget = Budget(100, 100, clock)
    budget.spend(ALICE, Usage(prompt_tokens=1_000))
    clock.advance(MIDNIGHT - clock() - 1)
    before = budget.blocked(ALICE)
    clock.advance(1)

    assert before is not None
    assert (budget.blocked(ALICE), budget.spent(ALICE), budget.spent()) == (None, 0, 0)


def test_a_clock_that_is_set_back_finds_what_was_spent_on_that_day() -> None:
    clock = ManualClock()
    budget = Budget(0, 100, clock)
    budget.spend(ALICE, Usage(prompt_tokens=100))
    clock.advance(DAY_MS)
    tomorrow = budget.blocked(ALICE)
    clock.advance(-DAY_MS)

    assert tomorrow is None
    assert budget.blocked(ALICE) is not None


def test_a_clock_that_jumps_about_keeps_few_days_in_memory() -> None:
    clock = ManualClock()
    budget = Budget(0, 100, clock)
    for _ in range(1_000):
        clock.advance(DAY_MS)
        budget.spend(ALICE, Usage(prompt_tokens=1))

    assert budget.spent() == 1
    assert len(budget._days) <= 3


def test_what_was_spent_before_a_restart_counts() -> None:
    clock = ManualClock()
    budget = Budget(0, 100, clock)
    budget.take_over(day_of(clock()), {ALICE: 100, BOB: 30})

    assert budget.blocked(ALICE) is not None
    assert (budget.spent(BOB), budget.spent()) == (30, 130)


async def test_a_clock_that_is_set_right_after_the_start_comes_to_a_day_with_its_past(
    log: EventLog, clock: ManualClock
) -> None:
    """A machine without a clock of its own starts in some other year."""
    answers = Answers(log)
    await answers.extract(1, Usage(calls=1, prompt_tokens=90, completion_tokens=10))
    right = clock()
    clock.advance(-400 * DAY_MS)
    budget = Budget(0, 100, clock)
    await budget.load(log)
    wrong_day = budget.is_spent(ALICE)
    clock.now = right
    budget.spend(ALICE, Usage(prompt_tokens=5))  # it was under way
    await budget.load(log)
    await answers.extract(1, Usage(calls=1, prompt_tokens=5))
    await budget.load(log)

    assert not wrong_day
    assert budget.blocked(ALICE) is not None
    assert budget.spent(ALICE) == budget.spent() == 100, "the ledger counts what was spent since as well, and once"
