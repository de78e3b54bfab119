"""A forgotten session that begins anew, where the operator allows it: with messages from after its forgetting."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

from events.envelope import BusPosition, NewEvent
from events.erasure import count_erased, erase_slice, read_unerased, truncate_wal
from events.gate import Verdict
from events.hindsight import read_hindsight
from events.log import EventLog
from events.registry import read_sessions, read_waiting_sessions
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_closed_chunk, a_dead_letter, a_forgetting, a_turn
from tests.stored import stored_bytes, stored_rows

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
MINUTE_MS = 60_000


def published(new: NewEvent, seq: int, at: int, *, reopens: bool = True) -> NewEvent:
    """The event of a message that the bus has had since `at`."""
    return replace(new, bus=BusPosition("MEMFOREST", "e1", seq, at), reopens=reopens)


async def erase_s1(log: EventLog) -> None:
    while not await log.write(partial(erase_slice, subject=S1)):
        pass
    await log.write(truncate_wal)


async def forget_s1(log: EventLog, clock: ManualClock) -> None:
    """A turn, and ten minutes later the forgetting of its session, erased."""
    await log.append_event(published(a_turn("I keep a zebra.", turn_id="old"), 1, clock.now))
    clock.advance(10 * MINUTE_MS)
    await log.append_event(a_forgetting())
    await erase_s1(log)


async def append(log: EventLog, new: NewEvent) -> Verdict:
    return (await log.append_event(new)).verdict


async def test_a_message_from_after_the_forgetting_begins_the_session_anew(
    log: EventLog, clock: ManualClock
) -> None:
    await forget_s1(log, clock)
    late = published(a_turn("I keep a cat.", turn_id="new"), 2, clock.now + MINUTE_MS)
    assert await append(log, late) is Verdict.RECORDED

    (session,) = await log.read(partial(read_sessions, user=ALICE))
    assert (session.session_id, session.state, session.turns) == ("s1", "open", 1)
    hindsight = await log.read(partial(read_hindsight, user=ALICE))
    assert hindsight.tombstones == {S1: 2}, "what came before stays void"
    waiting = await log.read(read_waiting_sessions)
    assert [each.session_id for each in waiting] == ["s1"]


async def test_a_redelivery_from_before_the_forgetting_stays_out_after_the_session_began_anew(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    forgotten_at = clock.now + 10 * MINUTE_MS
    await forget_s1(log, clock)
    await append(log, published(a_turn("I keep a cat.", turn_id="new"), 2, forgotten_at + 1))
    for at in (MONDAY, forgotten_at):
        early = published(a_turn("I keep a zebra.", turn_id=f"early {at}"), 3, at)
        assert await append(log, early) is Verdict.REFUSED

    assert b"zebra" not in stored_bytes(log_path)


async def test_without_leave_nothing_begins_anew(log: EventLog, clock: ManualClock) -> None:
    await forget_s1(log, clock)
    late = published(a_turn("I keep a cat.", turn_id="new"), 2, clock.now + MINUTE_MS, reopens=False)
    on_the_socket = replace(a_turn("I keep a dog.", turn_id="newer"), reopens=True)

    assert await append(log, late) is Verdict.REFUSED
    assert await append(log, on_the_socket) is Verdict.REFUSED, "nobody knows when it was said"


async def test_a_late_answer_about_the_old_words_is_refused_and_a_new_one_is_taken(
    log: EventLog, clock: ManualClock
) -> None:
    await forget_s1(log, clock)
    await append(log, published(a_turn("I keep a cat.", turn_id="new"), 2, clock.now + MINUTE_MS))

    assert await append(log, a_closed_chunk(4, basis=1)) is Verdict.REFUSED
    assert await append(log, a_closed_chunk(3, basis=3)) is Verdict.RECORDED


async def test_a_session_that_began_anew_can_be_forgotten_again_and_an_old_wish_does_not_count_twice(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await forget_s1(log, clock)
    old_wish = published(a_forgetting(), 2, clock.now - 1, reopens=False)
    await append(log, published(a_turn("I keep a cat.", turn_id="new"), 3, clock.now + MINUTE_MS))
    assert await append(log, old_wish) is Verdict.DUPLICATE
    clock.advance(2 * MINUTE_MS)
    assert await append(log, a_forgetting()) is Verdict.RECORDED
    assert await append(log, a_forgetting()) is Verdict.DUPLICATE
    await erase_s1(log)

    assert [each.subject for each in await log.read(read_unerased)] == [S1]
    content = stored_bytes(log_path)
    assert (content.count(b"zebra"), content.count(b"a cat")) == (0, 0)
    counts = await log.read(partial(count_erased, subject=S1))
    assert counts.words > 2, "both times together"


async def test_erasing_that_ends_after_the_new_beginning_takes_nothing_of_it(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await log.append_event(published(a_turn("I keep a zebra.", turn_id="old"), 1, clock.now))
    clock.advance(10 * MINUTE_MS)
    await log.append_event(a_forgetting())
    clock.advance(MINUTE_MS)
    await append(log, published(a_turn("I keep a cat.", turn_id="new"), 2, clock.now))
    letter = replace(a_dead_letter(b"new letter", seq=9), published_at=clock.now)
    await log.append(a_batch(letters=(letter,)))
    await erase_s1(log)

    content = stored_bytes(log_path)
    assert (content.count(b"zebra"), content.count(b"I keep a cat."), content.count(b"new letter")) == (0, 1, 1)
    assert stored_rows(log_path, "SELECT text FROM names WHERE kind = 'session'") == [(b"s1",)]
    assert stored_rows(log_path, "SELECT seq FROM turns") == [(3,)]
