"""What begins anew after it was forgotten, at awkward moments: before it is erased, and told of from elsewhere."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from events.envelope import BusPosition, NewEvent, Reference
from events.erasure import Unerased, count_erased, erase_slice, read_unerased, truncate_wal
from events.gate import Verdict
from events.hindsight import read_hindsight
from events.log import EventLog
from events.reading import read_user
from events.registry import read_sessions
from events.session import Erasure, SessionErased
from events.tombstones import Tombstone, plant_tombstones, read_planted
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_forgetting,
    a_revision,
    a_turn,
    a_user_forgetting,
    an_erasure,
)
from tests.stored import stored_bytes, stored_rows

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
MINUTE_MS = 60_000


async def say(log: EventLog, clock: ManualClock, new: NewEvent, seq: int) -> Verdict:
    """A message that was published now, a minute after what came before."""
    clock.advance(MINUTE_MS)
    bus = BusPosition("MEMFOREST", "e1", seq, clock.now)
    return (await log.append_event(replace(new, bus=bus, reopens=True))).verdict


async def forget(log: EventLog, clock: ManualClock, wish: NewEvent) -> Verdict:
    clock.advance(MINUTE_MS)
    return (await log.append_event(wish)).verdict


async def erase(log: EventLog, subject: Reference) -> None:
    while not await log.write(partial(erase_slice, subject=subject)):
        pass
    await log.write(truncate_wal)


@pytest.mark.parametrize(
    ("wish", "subject"), [(a_forgetting(), S1), (a_user_forgetting(), ALICE)], ids=["session", "user"]
)
@pytest.mark.parametrize("erased_first", [True, False], ids=["erased", "not erased yet"])
async def test_the_ids_of_a_former_life_are_refused_and_their_messages_unwanted(
    log: EventLog, log_path: Path, clock: ManualClock, wish: NewEvent, subject: Reference, erased_first: bool
) -> None:
    """Nobody can compare them any more; a turn under an old id is most likely an old one."""
    await say(log, clock, a_turn("zqx old", turn_id="m1"), 1)
    await forget(log, clock, wish)
    if erased_first:
        await erase(log, subject)
    under_the_old_id = await say(log, clock, a_turn("zqx again", turn_id="m1"), 2)
    new = await say(log, clock, a_turn("Rex runs.", turn_id="m2"), 3)
    await erase(log, subject)

    assert (under_the_old_id, new) == (Verdict.REFUSED, Verdict.RECORDED)
    assert b"zqx" not in stored_bytes(log_path)
    unwanted = stored_rows(log_path, "SELECT seq, subject FROM unwanted ORDER BY seq")
    assert unwanted == [(1, subject), (2, subject)]


async def test_an_id_of_the_new_life_is_known_as_such(log: EventLog, clock: ManualClock) -> None:
    await say(log, clock, a_turn("old", turn_id="m1"), 1)
    await forget(log, clock, a_forgetting())
    await say(log, clock, a_turn("new", turn_id="m2"), 2)

    assert await say(log, clock, a_turn("new", turn_id="m2"), 3) is Verdict.DUPLICATE
    assert await say(log, clock, a_turn("other", turn_id="m2"), 4) is Verdict.CONFLICTING
    assert await say(log, clock, a_revision("later", turn_id="m2"), 5) is Verdict.RECORDED


async def test_a_user_that_begins_anew_before_it_is_erased_loses_its_old_sessions_and_keeps_the_new_one(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await say(log, clock, a_turn("zqx", session_id="zqx-session"), 1)
    await say(log, clock, a_turn("zqx", session_id="s1"), 2)
    await forget(log, clock, a_user_forgetting())
    await say(log, clock, a_turn("Rex runs.", session_id="s9", turn_id="t9"), 3)
    await say(log, clock, a_turn("Rex sleeps.", session_id="s1", turn_id="t10"), 4)
    await erase(log, ALICE)

    assert b"zqx" not in stored_bytes(log_path)
    names = stored_rows(log_path, "SELECT kind, text FROM names WHERE kind <> 'key' AND text IS NOT NULL")
    assert sorted(names) == [("session", b"s1"), ("session", b"s9"), ("user", b"alice")]
    sessions = {each.session_id: each for each in await log.read(partial(read_sessions, user=ALICE))}
    assert {name: (each.state, each.turns) for name, each in sessions.items()} == {
        None: ("forgotten", 1), "s1": ("open", 1), "s9": ("open", 1),
    }  # fmt: skip
    assert (sessions[None].first_at, sessions[None].bytes) == (None, 0), "no time of before is listed"
    assert sessions["s1"].bytes == len("Rex sleeps.")


async def test_a_session_of_another_store_that_begins_anew_is_forgotten_first_and_keeps_the_new_turn(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await say(log, clock, a_turn("zqx", turn_id="old"), 1)
    clock.advance(MINUTE_MS)
    await log.write(partial(plant_tombstones, tombstones=[Tombstone(S1, ALICE, clock.now)]))
    new = await say(log, clock, a_turn("Rex runs.", turn_id="new"), 2)
    planted = await log.read(read_planted)
    await erase(log, S1)

    assert (new, planted) == (Verdict.RECORDED, ())
    types = [each.type for each in await log.read(partial(read_user, user=ALICE))]
    assert types == ["turn.recorded", "session.forgotten", "turn.recorded"]
    assert (await log.read(partial(read_hindsight, user=ALICE))).tombstones == {S1: 2}
    content = stored_bytes(log_path)
    assert (content.count(b"zqx"), content.count(b"Rex runs.")) == (0, 1)


async def test_a_user_of_another_store_that_begins_anew_is_forgotten_first_too(
    log: EventLog, log_path: Path, clock: ManualClock
) -> None:
    await log.write(partial(plant_tombstones, tombstones=[Tombstone(None, ALICE, MONDAY)]))
    new = await say(log, clock, a_turn("Rex runs."), 2)
    await erase(log, ALICE)

    assert new is Verdict.RECORDED
    assert await log.read(read_planted) == ()
    assert b"Rex runs." in stored_bytes(log_path)
    (session,) = await log.read(partial(read_sessions, user=ALICE))
    assert (session.user_id, session.session_id, session.state) == ("alice", "s1", "open")


def a_receipt(forgotten: int) -> NewEvent:
    """What the erasing records that answers the forgetting at this user_seq."""
    erasure: Erasure = an_erasure()
    event = SessionErased(forgotten, erasure)
    return replace(a_forgetting(key=f"erased/{forgotten}"), event=event)


async def test_a_receipt_closes_only_the_forgetting_that_it_answers(log: EventLog, clock: ManualClock) -> None:
    """The first erasing may end after the session began anew and was forgotten once more."""
    await say(log, clock, a_turn("old", turn_id="old"), 1)
    await forget(log, clock, a_forgetting())
    await say(log, clock, a_turn("new", turn_id="new"), 2)
    again = await forget(log, clock, a_forgetting())
    await log.append_event(a_receipt(2))
    after_the_first = await log.read(read_unerased)
    await log.append_event(a_receipt(4))

    assert again is Verdict.RECORDED
    assert after_the_first == (Unerased(ALICE, S1, forgotten=4),)
    assert await log.read(read_unerased) == ()


async def test_the_receipt_of_a_second_forgetting_does_not_count_what_the_first_took(
    log: EventLog, clock: ManualClock
) -> None:
    await say(log, clock, a_turn("old", turn_id="old"), 1)
    await forget(log, clock, a_forgetting())
    await erase(log, S1)
    first = await log.read(partial(count_erased, subject=S1))
    await log.append_event(a_receipt(2))
    await say(log, clock, a_turn("new", turn_id="new"), 2)
    await forget(log, clock, a_forgetting())
    await erase(log, S1)
    second = await log.read(partial(count_erased, subject=S1))

    assert first.words == second.words > 0, "one turn each"
    assert first.names == second.names
