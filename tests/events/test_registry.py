from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest

from events.envelope import NewEvent
from events.errors import InvalidInput
from events.log import EventLog
from events.registry import (
    RowKind,
    SessionRow,
    SessionSummary,
    UserSummary,
    WaitingSession,
    read_session_rows,
    read_sessions,
    read_tombstones,
    read_user_references,
    read_users,
    read_waiting_sessions,
)
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_closed_chunk,
    a_closing,
    a_forgetting,
    a_parking,
    a_summary,
    a_turn,
    an_extraction,
)

ALICE = KEYS.user("alice")
BOB = KEYS.user("bob")
S1 = KEYS.session("alice", "s1")
S2 = KEYS.session("alice", "s2")


async def sessions_of(log: EventLog, user: bytes, session: bytes | None = None) -> list[SessionSummary]:
    return list(await log.read(partial(read_sessions, user=user, session=session)))


async def waiting(log: EventLog) -> list[tuple[str, str]]:
    return [(each.user_id, each.session_id) for each in await log.read(read_waiting_sessions)]


async def seqs_to_cut(log: EventLog, session: bytes) -> list[int]:
    return [row.seq for row in await log.read(partial(read_session_rows, session=session))]


async def test_a_session_counts_its_turns_their_bytes_and_its_span(log: EventLog) -> None:
    await log.append(
        a_batch(
            a_turn("Grüße", turn_id="t1", happened_at=MONDAY + 5),  # 7 bytes in UTF-8
            a_turn("hi", turn_id="t2", happened_at=MONDAY - 9),
            a_turn("", turn_id="t3", happened_at=MONDAY),
        )
    )

    assert await sessions_of(log, ALICE) == [
        SessionSummary("alice", "s1", "open", 3, 3, 9, MONDAY - 9, MONDAY + 5),
    ]


async def test_duplicates_conflicts_and_refusals_do_not_count(log: EventLog) -> None:
    await log.append(a_batch(a_turn("hi")))
    await log.append(a_batch(a_turn("hi"), a_turn("ho")))

    (session,) = await sessions_of(log, ALICE)
    assert (session.turns, session.waiting_turns, session.bytes) == (1, 1, 2)


async def test_a_turn_after_the_closing_opens_the_session_again(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_closing()))
    (closed,) = await sessions_of(log, ALICE)
    await log.append_event(a_turn(turn_id="t2"))
    (reopened,) = await sessions_of(log, ALICE)

    assert (closed.state, reopened.state) == ("closed", "open")


async def test_a_closing_alone_makes_a_session_without_turns(log: EventLog) -> None:
    await log.append_event(a_closing())

    assert await sessions_of(log, ALICE) == [SessionSummary("alice", "s1", "closed", 0, 0, 0, None, None)]
    assert await waiting(log) == []


async def test_sessions_are_listed_by_their_first_turn_and_only_those_of_the_user(log: EventLog) -> None:
    await log.append(
        a_batch(
            a_turn(session_id="late", happened_at=MONDAY + 2),
            a_turn(session_id="early", happened_at=MONDAY),
            a_turn(session_id="early", user_id="bob", happened_at=MONDAY + 1),
        )
    )

    assert [each.session_id for each in await sessions_of(log, ALICE)] == ["early", "late"]
    assert [each.user_id for each in await sessions_of(log, BOB)] == ["bob"]
    assert [each.session_id for each in await sessions_of(log, ALICE, KEYS.session("alice", "late"))] == ["late"]
    assert await sessions_of(log, ALICE, KEYS.session("bob", "early")) == []
    assert await sessions_of(log, KEYS.user("nobody")) == []


async def test_sessions_with_waiting_turns_are_told_oldest_first(log: EventLog) -> None:
    await log.append(
        a_batch(
            a_turn(session_id="b"), a_turn(session_id="a", user_id="bob"), a_turn(session_id="b", turn_id="t2")
        )
    )

    assert await log.read(read_waiting_sessions) == (
        WaitingSession(ALICE, "alice", KEYS.session("alice", "b"), "b", 1),
        WaitingSession(BOB, "bob", KEYS.session("bob", "a"), "a", 2),
    )


@pytest.mark.parametrize("taken", [an_extraction((1, 2)), a_parking((1, 2))], ids=["extraction", "parking"])
async def test_what_an_extraction_or_a_parking_took_waits_no_longer(log: EventLog, taken: NewEvent) -> None:
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in range(4)), a_turn(session_id="s2")))
    await log.append_event(taken)

    assert await seqs_to_cut(log, S1) == [3, 4]
    assert await seqs_to_cut(log, S2) == [5]
    (first, second) = await sessions_of(log, ALICE)
    assert {first.waiting_turns, second.waiting_turns} == {2, 1}
    assert await waiting(log) == [("alice", "s1"), ("alice", "s2")]


async def test_a_session_that_was_read_to_its_end_does_not_wait(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_closing()))
    await log.append_event(an_extraction((1,), ()))

    assert await seqs_to_cut(log, S1) == []
    assert await waiting(log) == []


async def test_cutting_gets_turns_and_closings_from_the_first_waiting_turn_on(
    log: EventLog, clock: ManualClock
) -> None:
    await log.append(a_batch(a_turn(turn_id="t1"), a_turn(turn_id="t2"), a_closing(key="1")))
    clock.advance(1000)
    await log.append(
        a_batch(
            a_turn(session_id="s2"),
            a_turn(turn_id="t3"),
            a_closed_chunk(5),
            a_summary(),
            a_turn(turn_id="t4"),
            a_closing(key="2"),
        )
    )
    before = await seqs_to_cut(log, S1)
    await log.append_event(an_extraction((1, 2)))

    assert before == [1, 2, 3, 5, 6, 8, 9]
    assert await log.read(partial(read_session_rows, session=S1)) == (
        SessionRow(5, RowKind.TURN, None, MONDAY + 1000),
        SessionRow(6, RowKind.CHUNK_CLOSED, 5, MONDAY + 1000),
        SessionRow(8, RowKind.TURN, None, MONDAY + 1000),
        SessionRow(9, RowKind.SESSION_CLOSED, None, MONDAY + 1000),
    )


async def test_a_forgotten_session_waits_for_nothing_and_leaves_a_tombstone(log: EventLog) -> None:
    await log.append(a_batch(a_turn(user_id="bob"), a_turn(), a_turn(session_id="s2"), a_forgetting("s1")))

    assert await log.read(partial(read_tombstones, user=ALICE)) == {S1: 3}  # user_seq, not seq
    assert await log.read(partial(read_tombstones, user=BOB)) == {}
    assert await seqs_to_cut(log, S1) == []
    assert await waiting(log) == [("bob", "s1"), ("alice", "s2")]
    states = {each.session_id: (each.state, each.waiting_turns) for each in await sessions_of(log, ALICE)}
    assert states == {"s1": ("forgotten", 0), "s2": ("open", 1)}


async def test_users_are_listed_by_name_without_their_forgotten_sessions(log: EventLog) -> None:
    await log.append(
        a_batch(
            a_turn(user_id="zoe"),
            a_turn(session_id="s1"),
            a_turn(session_id="s2"),
            a_turn(session_id="s2", turn_id="t2"),
            a_forgetting("s1"),
        )
    )

    assert await log.read(read_users) == (UserSummary("alice", 4, 1, 2), UserSummary("zoe", 1, 1, 1))


async def test_user_references_come_with_the_latest_event_first(log: EventLog) -> None:
    await log.append(
        a_batch(a_turn(user_id="bob"), a_turn(), a_turn(user_id="zoe"), a_turn(user_id="bob", turn_id="t2"))
    )

    users = await log.read(read_user_references)
    assert users == (BOB, KEYS.user("zoe"), ALICE)


async def test_an_event_without_the_session_it_belongs_to_is_refused_and_changes_nothing(log: EventLog) -> None:
    orphan = replace(a_turn(), session_id=None)

    with pytest.raises(InvalidInput):
        await log.append(a_batch(a_turn(turn_id="t0"), orphan))

    assert await sessions_of(log, ALICE) == []
    assert log.head == 0
