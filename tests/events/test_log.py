from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import cast

import anyio
import numpy as np
import pytest
from anyio.lowlevel import checkpoint

from events.appending import Outcome
from events.errors import InvalidInput
from events.gate import Verdict
from events.log import EventLog
from events.reading import read_after, read_events, read_user
from events.session import TurnConflicted
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_closed_chunk,
    a_dead_letter,
    a_place,
    a_turn,
    seeded_nonces,
)
from tests.stored import stored_rows, stored_tables

# Whoever waits longer than this waits for ever.
PATIENCE_S = 10


async def kinds(log: EventLog, user_id: str = "alice") -> list[str]:
    events = await log.read(partial(read_user, user=KEYS.user(user_id)))
    return [each.type for each in events]


async def test_seq_is_gapless_in_the_log_and_user_seq_for_each_user(log: EventLog, log_path: Path) -> None:
    for n in range(6):
        await log.append(a_batch(a_turn(turn_id=f"t{n}"), a_turn(turn_id=f"t{n // 2}", user_id="bob")))
        with pytest.raises(InvalidInput):
            await log.append_event(a_turn("\ud800", turn_id="unwritable"))

    rows = stored_rows(log_path, "SELECT seq, user, user_seq FROM events ORDER BY seq")
    assert [seq for seq, _, _ in rows] == list(range(1, 10))
    assert [n for _, user, n in rows if user == KEYS.user("alice")] == [1, 2, 3, 4, 5, 6]
    assert [n for _, user, n in rows if user == KEYS.user("bob")] == [1, 2, 3]
    assert log.head == 9


async def test_an_event_is_read_as_it_was_appended(log: EventLog, clock: ManualClock) -> None:
    await log.append_event(a_turn(turn_id="t0"))
    clock.advance(77)
    new = replace(a_turn("\u0000 Grüße \U0001f33b", bus=a_place(5)), caused_by=1, basis=1, happened_at=-3)
    outcome = await log.append_event(new)
    (_, read) = await log.read(partial(read_user, user=KEYS.user("alice")))

    assert outcome == Outcome(Verdict.RECORDED, 2, 2)
    assert (read.seq, read.user_seq, read.happened_at, read.recorded_at) == (2, 2, -3, MONDAY + 77)
    assert (read.user_id, read.session_id, read.type, read.version) == ("alice", "s1", "turn.recorded", 1)
    assert (read.user, read.session, read.key) == (KEYS.user("alice"), new.lineage[0], KEYS.key(new.key))
    assert (read.lineage, read.basis, read.caused_by) == (new.lineage, 1, 1)
    assert (read.bus_stream, read.bus_seq) == ("MEMFOREST", 5)
    assert read.nonce == seeded_nonces(1)(read.key)
    assert read.event == new.event
    assert (await log.read(partial(read_events, seqs=[2, 2, 99]))) == {2: read}
    assert await log.read(partial(read_after, seq=1)) == [(2, KEYS.user("alice"))]


async def test_a_page_of_events_continues_where_the_last_one_ended(log: EventLog) -> None:
    await log.append(a_batch(*(a_turn(turn_id=f"t{n}") for n in range(7))))
    pages: list[list[int]] = []
    after = 0
    while page := await log.read(partial(read_user, user=KEYS.user("alice"), after=after, limit=3)):
        pages.append([each.user_seq for each in page])
        after = page[-1].user_seq

    assert pages == [[1, 2, 3], [4, 5, 6], [7]]


async def test_a_lineage_is_kept_once_a_session_and_in_one_order(log: EventLog) -> None:
    one, two = sorted([KEYS.session("alice", "s1"), KEYS.session("alice", "s2")])
    await log.append_event(replace(a_turn(), lineage=(two, one, two)))
    (read,) = await log.read(partial(read_user, user=KEYS.user("alice")))

    assert read.lineage == (one, two)


async def test_integers_of_numpy_are_stored_as_the_numbers_they_are(log: EventLog) -> None:
    """The sqlite3 module would bind them as blobs, and the chain would not match on reading."""
    one = cast("int", np.int64(1))
    await log.append(a_batch(a_turn(), replace(a_turn(turn_id="t2"), basis=one, caused_by=one, happened_at=one)))
    (_, read) = await log.read(partial(read_user, user=KEYS.user("alice")))

    assert (read.basis, read.caused_by, read.happened_at) == (1, 1, 1)
    with pytest.raises(InvalidInput):
        await log.append_event(a_closed_chunk(one))


async def test_a_duplicate_is_told_where_the_first_one_stands_and_writes_nothing(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn(user_id="bob"), a_turn()))
    before = stored_tables(log_path)

    assert await log.append_event(a_turn(bus=a_place(8))) == Outcome(Verdict.DUPLICATE, 2, 1)
    # Where its copy stands on the bus is remembered, for the day when the turn must go.
    assert stored_tables(log_path) == {**before, "copies": [("MEMFOREST", "e1", 8, 2)]}


async def test_the_same_turn_twice_in_one_batch_is_one_event(log: EventLog) -> None:
    outcomes = await log.append(a_batch(a_turn(), a_turn(), a_turn("I moved to Tampa.")))

    assert [each.verdict for each in outcomes] == [Verdict.RECORDED, Verdict.DUPLICATE, Verdict.CONFLICTING]
    assert await kinds(log) == ["turn.recorded", "turn.conflicted"]


async def test_what_a_conflicting_turn_said_is_kept_once_a_message(log: EventLog) -> None:
    await log.append_event(a_turn(bus=a_place(1)))
    other = a_turn("I moved to Tampa.", bus=a_place(2))
    for again in (
        other,
        other,
        replace(other, bus=a_place(3)),
        replace(other, bus=None),
        replace(other, bus=None),
    ):
        assert await log.append_event(again) == Outcome(Verdict.CONFLICTING, 1, 1)
    events = await log.read(partial(read_user, user=KEYS.user("alice")))

    assert [each.event for each in events[1:]] == [TurnConflicted(1, "I moved to Tampa.", "user", "Alice")] * 3
    assert [each.bus_seq for each in events] == [1, 2, 3, None]
    assert {(each.caused_by, each.lineage) for each in events[1:]} == {(1, a_turn().lineage)}


async def test_the_head_moves_with_a_conflict_too_so_that_readers_wake(log: EventLog) -> None:
    await log.append_event(a_turn())
    await log.append_event(a_turn("I moved to Tampa."))

    assert log.head == 2
    with anyio.fail_after(PATIENCE_S):
        await log.wait_past(1)


async def test_waiting_for_the_log_to_grow_ends_with_the_next_event_and_not_before(log: EventLog) -> None:
    await log.append_event(a_turn())
    woken = anyio.Event()

    async def wait() -> None:
        await log.wait_past(1)
        woken.set()

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(wait)
        await log.append_event(a_turn())  # a duplicate is no growth
        await checkpoint()
        assert not woken.is_set()
        await log.append_event(a_turn(turn_id="t2"))
        with anyio.fail_after(PATIENCE_S):
            await woken.wait()
    await log.wait_past(0)

    assert log.head == 2


async def test_dead_letters_and_the_checkpoint_stand_with_the_events_of_their_batch(
    log: EventLog, log_path: Path
) -> None:
    letter = a_dead_letter(b"\xff\x00", seq=4)
    await log.append(a_batch(a_turn(), letters=(letter, letter), read_to=4))
    await log.append(a_batch(letters=(letter,), read_to=5))

    assert await log.read_checkpoint("MEMFOREST") == a_place(5)
    assert await log.read_checkpoint("ANOTHER") is None
    rows = stored_rows(log_path, "SELECT user, session, subject, payload, bus_seq FROM dead_letters")
    user, session = KEYS.user("alice"), KEYS.session("alice", "s1")
    assert rows == [(user, session, b"memforest.turns.alice.s1", b"\xff\x00", 4)]
