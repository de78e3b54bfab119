"""`work.resumed`: what the gate takes, which turns wait again, and that it falls with what was parked."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from events.envelope import NewEvent
from events.gate import CHANGES_FACTS, DECISIONS, Verdict
from events.log import EventLog
from events.memory import WorkResumed
from events.reading import read_user
from events.registry import read_session_rows, read_sessions, read_waiting_sessions
from events.withdrawal import read_voids
from tests.builders import (
    KEYS,
    a_batch,
    a_closed_chunk,
    a_forgetting,
    a_parking,
    a_place,
    a_resuming,
    a_retraction,
    a_revision,
    a_turn,
    a_user_forgetting,
    an_extraction,
)
from tests.stored import stored_rows

ALICE = KEYS.user("alice")
S1 = KEYS.session("alice", "s1")
PARKING = a_parking((1, 2))


async def verdict(log: EventLog, new: NewEvent) -> Verdict:
    return (await log.append_event(new)).verdict


async def fill(log: EventLog) -> None:
    """Two chunks: one that is parked by event 5, and one that was extracted by event 6."""
    turns = [a_turn(turn_id=f"t{n}") for n in range(1, 5)]
    await log.append(a_batch(*turns, PARKING, an_extraction((3, 4))))


async def covered(log_path: Path) -> list[int | None]:
    return [extraction for (extraction,) in stored_rows(log_path, "SELECT extraction FROM turns ORDER BY seq")]


async def test_the_turns_of_resumed_work_wait_again_and_no_others(log: EventLog, log_path: Path) -> None:
    await fill(log)
    assert await log.read(read_waiting_sessions) == ()
    assert await verdict(log, a_resuming(PARKING, 5)) is Verdict.RECORDED

    assert await covered(log_path) == [None, None, 6, 6]
    assert [row.seq for row in await log.read(partial(read_session_rows, session=S1))] == [1, 2]
    (summary,) = await log.read(partial(read_sessions, user=ALICE))
    assert summary.waiting_turns == 2
    (waiting,) = await log.read(read_waiting_sessions)
    assert waiting.first_turn == 1


async def test_turns_of_before_the_answer_are_covered_by_the_answer(log: EventLog, log_path: Path) -> None:
    await fill(log)
    await log.append_event(a_resuming(PARKING, 5))
    await log.append_event(an_extraction((1, 2)))

    assert await covered(log_path) == [8, 8, 6, 6]


async def test_the_next_chunk_is_cut_where_it_would_have_been(log: EventLog) -> None:
    """The first waiting turn begins a chunk, also when it is not the last one that is open."""
    await log.append(a_batch(a_turn(turn_id="t1"), a_closed_chunk(1), a_parking((1,))))
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in (2, 3)), an_extraction((4, 5))))
    await log.append(a_batch(a_turn(turn_id="t4"), a_resuming(a_parking((1,)), 3)))

    rows = await log.read(partial(read_session_rows, session=S1))
    assert [(row.seq, row.kind.name) for row in rows] == [(1, "TURN"), (2, "CHUNK_CLOSED"), (7, "TURN")]


async def test_it_is_resumed_once_and_parked_again_under_another_key(log: EventLog, log_path: Path) -> None:
    await fill(log)
    verdicts = [await verdict(log, a_resuming(PARKING, 5)) for _ in range(2)]
    assert verdicts == [Verdict.RECORDED, Verdict.DUPLICATE]
    assert await verdict(log, replace(PARKING, key="parked/again")) is Verdict.RECORDED
    assert await covered(log_path) == [8, 8, 6, 6]
    assert await verdict(log, a_resuming(PARKING, 8)) is Verdict.RECORDED

    assert await covered(log_path) == [None, None, 6, 6]


@pytest.mark.parametrize("seq", [1, 4, 6, 99])
async def test_what_is_not_parked_cannot_be_resumed(log: EventLog, log_path: Path, seq: int) -> None:
    await fill(log)
    head = log.head

    assert await verdict(log, a_resuming(PARKING, seq)) is Verdict.REFUSED
    assert log.head == head
    assert await covered(log_path) == [5, 5, 6, 6]


async def test_what_another_user_has_parked_cannot_be_resumed(log: EventLog) -> None:
    await fill(log)
    await log.append(a_batch(a_turn(user_id="bob"), a_parking((7,), user_id="bob")))

    assert await verdict(log, a_resuming(PARKING, 8)) is Verdict.REFUSED


async def test_what_was_answered_meanwhile_is_not_resumed(log: EventLog, log_path: Path) -> None:
    """Another question about the same chunk was under way when it was parked."""
    await fill(log)
    await log.append_event(replace(an_extraction((1, 2)), key="of another context"))

    assert await verdict(log, a_resuming(PARKING, 5)) is Verdict.REFUSED
    assert await covered(log_path) == [7, 7, 6, 6]


@pytest.mark.parametrize("undoing", [a_revision("I stayed."), a_retraction(), a_forgetting(), a_user_forgetting()])
@pytest.mark.parametrize("basis", [0, 99])
async def test_what_fell_or_was_forgotten_is_not_resumed(log: EventLog, undoing: NewEvent, basis: int) -> None:
    await fill(log)
    await log.append_event(undoing)

    assert await verdict(log, a_resuming(PARKING, 5, basis=basis)) is Verdict.REFUSED


async def test_nothing_of_a_former_life_is_resumed(log: EventLog) -> None:
    await fill(log)
    await log.append_event(a_forgetting())
    again = replace(a_turn(turn_id="new", bus=replace(a_place(9), at=2**42)), reopens=True)
    assert await verdict(log, again) is Verdict.RECORDED

    assert await verdict(log, a_resuming(PARKING, 5, basis=99)) is Verdict.REFUSED


async def test_a_resumption_falls_with_an_edit_of_its_turns_like_what_was_parked(log: EventLog) -> None:
    await fill(log)
    await log.append_event(a_resuming(PARKING, 5))
    await log.append_event(a_revision("I stayed."))

    voids = await log.read(partial(read_voids, user=ALICE))
    assert {5, 7} <= set(voids)
    assert [row.seq for row in await log.read(partial(read_session_rows, session=S1))] == [1, 2]


async def test_it_reads_back_as_it_was_written(log: EventLog) -> None:
    await fill(log)
    await log.append_event(a_resuming(PARKING, 5))
    *_, last = await log.read(partial(read_user, user=ALICE))

    assert isinstance(last.event, WorkResumed)
    assert (last.event.parked, last.event.turns, last.event.covers) == (5, (1, 2), (1, 2))
    assert last.lineage == (S1,)


def test_it_decides_nothing_about_facts() -> None:
    assert WorkResumed not in {*DECISIONS, *CHANGES_FACTS}
