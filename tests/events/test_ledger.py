"""The ledger: every answer and parking is counted once, what stands is found again, and parked work ends once."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from events.envelope import NewEvent
from events.gate import Verdict
from events.ledger import (
    count_parked,
    day_of,
    find_answer,
    read_parked,
    read_session_usage,
    read_tokens_by_user,
)
from events.log import EventLog
from events.memory import FactsExtracted, ParkReason, Task, Usage, WorkParked
from events.session import Replacement, ReplayStarted, SessionReplayed
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_forgetting,
    a_merge,
    a_parking,
    a_place,
    a_resuming,
    a_retraction,
    a_revision,
    a_summary,
    a_turn,
    a_user_forgetting,
    an_extraction,
    an_id,
    lineage_of,
)
from tests.stored import damage, stored_rows

ALICE, BOB = KEYS.user("alice"), KEYS.user("bob")
S1, S2 = KEYS.session("alice", "s1"), KEYS.session("alice", "s2")
DAY_MS = 86_400_000
# 2024-07-01 is 19,905 days after 1970-01-01.
MONDAY_DAY = 19_905
REQUEST = an_id("a request")
ONE = Usage(calls=1, prompt_tokens=100, cached_tokens=60, completion_tokens=20, cost_nano=7, latency_ms=900)
TWO = Usage(calls=2, prompt_tokens=10, cached_tokens=0, completion_tokens=5, cost_nano=0, latency_ms=50, repairs=1)


def took(new: NewEvent, usage: Usage, request: bytes = REQUEST, **more: object) -> NewEvent:
    """The same answer, with what it took."""
    changes: dict[str, Any] = {"usage": usage, "request": request, **more}
    return replace(new, event=replace(new.event, **changes))


def said(count: int, session_id: str = "s1", user_id: str = "alice") -> list[NewEvent]:
    return [a_turn(session_id=session_id, user_id=user_id, turn_id=f"t{n}") for n in range(1, count + 1)]


async def append(log: EventLog, *events: NewEvent) -> list[int]:
    """The seqs of events that must all be recorded."""
    outcomes = await log.append(a_batch(*events))
    assert {outcome.verdict for outcome in outcomes} == {Verdict.RECORDED}
    return [outcome.seq or 0 for outcome in outcomes]


async def find(log: EventLog, request: bytes = REQUEST, user: bytes = ALICE) -> int | None:
    return await log.read(partial(find_answer, user=user, request=request))


async def parked(log: EventLog) -> list[int]:
    """What stands parked, however it is asked for."""
    seqs = await log.read(read_parked)
    assert await log.read(count_parked) == len(seqs)
    return seqs


def test_a_day_is_a_day_of_utc() -> None:
    assert day_of(MONDAY) == MONDAY_DAY
    assert [day_of(at) for at in (0, DAY_MS - 1, DAY_MS)] == [0, 0, 1]


async def test_what_was_spent_is_told_by_day_and_user_and_by_session(log: EventLog, clock: ManualClock) -> None:
    await append(log, *said(2), *said(2, user_id="bob"), *said(2, "s2"))
    await append(
        log, took(an_extraction((1, 2)), ONE), took(an_extraction((3, 4), user_id="bob"), TWO, an_id("b"))
    )
    clock.advance(DAY_MS)
    await append(
        log,
        took(an_extraction((5, 6), session_id="s2"), TWO, an_id("c")),
        took(a_summary("one", ("s1",), node="one"), ONE, an_id("d")),
        took(a_summary("both", ("s1", "s2"), node="both"), ONE, an_id("e")),
    )

    assert await log.read(partial(read_tokens_by_user, day=MONDAY_DAY)) == {ALICE: 120, BOB: 15}
    assert await log.read(partial(read_tokens_by_user, day=MONDAY_DAY + 1)) == {ALICE: 255}
    assert await log.read(partial(read_tokens_by_user, day=MONDAY_DAY + 2)) == {}
    assert await log.read(partial(read_session_usage, session=S1)) == replace(ONE + ONE, repairs=0)
    assert await log.read(partial(read_session_usage, session=S2)) == replace(TWO, repairs=0)
    assert await log.read(partial(read_session_usage, session=b"nobody's")) == Usage()


async def test_an_answer_is_written_down_with_what_it_came_to(log: EventLog, log_path: Path) -> None:
    await append(log, *said(10))
    await append(
        log,
        took(an_extraction((1, 2), ("One.", "Two.")), ONE, missed=3),
        took(an_extraction((3, 4), ()), ONE),
        took(an_extraction((5, 6), ()), Usage(), skipped=True),
        a_parking((7, 8)),
        a_summary(),
        a_merge(),
    )

    assert stored_rows(log_path, "SELECT task, parked, facts, missed, skipped FROM ledger ORDER BY seq") == [
        ("extract", 0, 2, 3, 0),
        ("extract", 0, 0, 0, 0),
        ("extract", 0, 0, 0, 1),
        ("extract", 1, None, 0, 0),
        ("summarise", 0, None, 0, 0),
        ("merge", 0, None, 0, 0),
    ]


async def test_an_answer_is_found_by_its_request_and_its_user_alone(log: EventLog) -> None:
    await append(log, *said(2))
    (seq,) = await append(log, took(an_extraction((1, 2)), ONE))

    assert await find(log) == seq
    assert await find(log, user=BOB) is None
    assert await find(log, an_id("another")) is None
    assert await find(log, b"") is None


async def test_answers_of_before_requests_were_recorded_are_not_taken_for_one(log: EventLog) -> None:
    await append(log, *said(2), took(an_extraction((1, 2)), ONE, b""))

    assert await find(log, b"") is None


async def test_the_last_answer_that_stands_is_found(log: EventLog) -> None:
    await append(log, *said(2))
    first, second = await append(log, took(a_summary(node="a"), ONE), took(a_summary(node="b"), ONE))
    assert await find(log) == second
    (third,) = await append(log, took(a_summary(node="c", sources=(1,)), ONE))
    assert await find(log) == third
    await append(log, a_revision("I stayed."))

    assert await find(log) == second
    assert first < second < third


async def replay_once(log: EventLog, old: int) -> int:
    """Have turns 1 and 2 extracted again, by another model; the seq of what stands now."""
    (started,) = await append(log, about(ReplayStarted(), f"replay {old}"))
    another = an_extraction((1, 2)).event
    assert isinstance(another, FactsExtracted)
    again = replace(another, replaces=old, request=an_id("another"))
    (new,) = await append(log, about(again, f"again {old}"))
    done = about(SessionReplayed(started, (Replacement(old, new),)), f"replayed {old}")
    await append(log, replace(done, basis=None))
    return new


async def test_an_answer_in_whose_place_a_replay_put_another_is_found_by_who_goes_back_to_its_model(
    log: EventLog,
) -> None:
    *_, old = await append(log, *said(2), took(an_extraction((1, 2)), ONE))
    new = await replay_once(log, old)

    assert (await find(log), await find(log, an_id("another"))) == (old, new)


@pytest.mark.parametrize("undoing", [a_revision("I stayed."), a_retraction(), a_forgetting(), a_user_forgetting()])
async def test_an_answer_that_was_replaced_falls_with_what_it_was_made_of(
    log: EventLog, undoing: NewEvent
) -> None:
    *_, old = await append(log, *said(2), took(an_extraction((1, 2)), ONE))
    await replay_once(log, old)
    await append(log, undoing)

    assert await find(log) is None


async def test_work_that_was_parked_is_no_answer(log: EventLog) -> None:
    await append(log, *said(2), took(a_parking((1, 2)), ONE))

    assert await find(log) is None


@pytest.mark.parametrize("undoing", [a_revision("I stayed."), a_retraction(), a_forgetting(), a_user_forgetting()])
async def test_no_answer_is_found_that_was_made_of_what_was_undone(log: EventLog, undoing: NewEvent) -> None:
    await append(log, *said(2), took(an_extraction((1, 2)), ONE))
    await append(log, undoing)

    assert await find(log) is None


async def test_an_answer_about_two_sessions_falls_with_either(log: EventLog) -> None:
    await append(log, *said(2), *said(2, "s2"), took(a_summary(sessions=("s1", "s2")), ONE))
    await append(log, a_forgetting("s2"))

    assert await find(log) is None


async def test_an_answer_whose_words_are_damaged_is_asked_for_again(log: EventLog, log_path: Path) -> None:
    await append(log, *said(2), took(an_extraction((1, 2)), ONE))
    damage(log_path, "UPDATE words SET text = ? WHERE seq = 3 AND n = 1", b"Something else.")

    assert await find(log) is None


async def test_what_was_spent_on_a_forgotten_session_stays_spent_and_the_next_life_begins_with_nothing(
    log: EventLog, log_path: Path
) -> None:
    await append(log, *said(2), took(an_extraction((1, 2)), ONE))
    await append(log, a_forgetting())
    assert await log.read(partial(read_session_usage, session=S1)) == Usage()
    again = replace(a_turn(turn_id="new", bus=replace(a_place(9), at=MONDAY + 1)), reopens=True)
    (turn,) = await append(log, again)
    await append(log, took(an_extraction((turn,), basis=5), TWO, an_id("new")))

    assert await log.read(partial(read_session_usage, session=S1)) == replace(TWO, repairs=0)
    assert await log.read(partial(read_tokens_by_user, day=MONDAY_DAY)) == {ALICE: 135}
    assert stored_rows(log_path, "SELECT DISTINCT session FROM ledger") == [(S1,)]


async def test_the_session_of_an_answer_is_the_only_one_whose_words_are_in_it(
    log: EventLog, log_path: Path
) -> None:
    await append(log, *said(2), *said(2, "s2"))
    await append(
        log, an_extraction((1, 2)), a_summary(sessions=("s2",), node="one"), a_summary(sessions=("s1", "s2"))
    )

    assert stored_rows(log_path, "SELECT session FROM ledger ORDER BY seq") == [(S1,), (S2,), (None,)]


def about(event: object, key: str, session_id: str = "s1") -> NewEvent:
    given: Any = event
    return NewEvent("alice", session_id, given, key, MONDAY, lineage_of([session_id]), basis=0)


async def test_parked_work_is_listed_newest_first_page_by_page(log: EventLog) -> None:
    await append(log, *said(6), *said(2, user_id="bob"))
    seqs = await append(log, *(a_parking((n, n + 1)) for n in (1, 3, 5)), a_parking((7, 8), user_id="bob"))

    assert await parked(log) == seqs[::-1]
    assert await log.read(partial(read_parked, user=ALICE)) == [seqs[2], seqs[1], seqs[0]]
    assert await log.read(partial(read_parked, before=seqs[2], limit=1)) == [seqs[1]]
    assert await log.read(partial(read_parked, user=BOB, before=seqs[3])) == []


@pytest.mark.parametrize("undoing", [a_revision("I stayed."), a_retraction(), a_forgetting(), a_user_forgetting()])
async def test_work_whose_turns_are_gone_or_say_something_else_is_parked_no_more(
    log: EventLog, undoing: NewEvent
) -> None:
    *_, kept, _ = await append(
        log, *said(2), *said(2, user_id="bob"), a_parking((3, 4), user_id="bob"), a_parking((1, 2))
    )
    await append(log, undoing)

    assert await parked(log) == [kept]


async def test_work_that_was_answered_after_all_is_parked_no_more(log: EventLog) -> None:
    await append(log, *said(4), a_parking((1, 2)), a_parking((3, 4)))
    assert await parked(log) == [6, 5]
    await append(log, an_extraction((3, 4)))

    assert await parked(log) == [5]


async def test_a_summary_that_was_written_after_all_is_parked_no_more(log: EventLog) -> None:
    lost = [WorkParked(Task.SUMMARISE, an_id(node), ParkReason.REFUSED) for node in ("one", "two")]
    *_, one, two = await append(log, *said(2), *(about(each, f"lost {n}") for n, each in enumerate(lost)))
    assert await parked(log) == [two, one]
    await append(log, took(a_summary(node="one"), ONE, an_id("asked")))

    assert await parked(log) == [two]


async def test_what_a_replay_parked_is_over_with_the_replay(log: EventLog) -> None:
    await append(log, *said(4), an_extraction((1, 2)), a_parking((3, 4)), about(ReplayStarted(), "replay"))
    lost = WorkParked(Task.EXTRACT, REQUEST, ParkReason.TOO_LONG)
    await append(log, about(lost, "lost"))
    assert await parked(log) == [8, 6]
    again = an_extraction((1, 2)).event
    assert isinstance(again, FactsExtracted)
    (new,) = await append(log, about(replace(again, replaces=5), "again"))
    await append(log, replace(about(SessionReplayed(7, (Replacement(5, new),)), "replayed"), basis=None))

    assert await parked(log) == [6]


async def test_resumed_work_is_parked_no_more_until_it_is_parked_again(log: EventLog) -> None:
    parking = a_parking((1, 2))
    *_, seq = await append(log, *said(2), parking)
    await append(log, a_resuming(parking, seq))
    assert await parked(log) == []
    (again,) = await append(log, replace(parking, key="parked/again"))

    assert await parked(log) == [again]
