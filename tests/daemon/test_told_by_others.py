"""Tombstones of a bucket that another store, or somebody's hand, wrote: read, met once, and done with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from daemon.bus.bus_messages import BusMessage
from daemon.bus.tombstone_bucket import TombstonesUnreadable, read_tombstone
from events.envelope import BusPosition
from events.time import LATEST
from events.tombstones import Tombstone, plant_tombstones, read_planted
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_dead_letter, a_turn
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, Parts, event_types, running_forgetter
from tests.stored import stored_bytes
from tests.waiting import wait_until

S1 = KEYS.session("alice", "s1")
OF_SESSION, OF_USER = Tombstone(S1, ALICE, MONDAY), Tombstone(None, ALICE, MONDAY)
OF_A_GHOST = Tombstone(S1, KEYS.user("ghost"), MONDAY)


def a_message(forgotten_at: int) -> BusMessage:
    payload = f'{{"user": "{ALICE.hex()}", "forgotten_at": {forgotten_at}}}'.encode()
    return BusMessage(f"$KV.b.session.{S1.hex()}", payload, {}, "KV_b", 1, MONDAY)


@pytest.mark.parametrize("forgotten_at", [-1, LATEST + 1, 2**63])
def test_a_time_that_no_store_can_keep_is_refused_at_the_bucket(forgotten_at: int) -> None:
    with pytest.raises(TombstonesUnreadable):
        read_tombstone(a_message(forgotten_at), "$KV.b.")


@pytest.mark.parametrize("forgotten_at", [0, LATEST])
def test_the_first_and_the_last_time_are_read(forgotten_at: int) -> None:
    assert read_tombstone(a_message(forgotten_at), "$KV.b.") == Tombstone(S1, ALICE, forgotten_at)


async def meet(parts: Parts, *tombstones: Tombstone, erasings: int) -> None:
    """Plant them, and let the forgetter come to an end with them."""
    await parts.log.write(partial(plant_tombstones, tombstones=tombstones))
    async with running_forgetter(parts):
        await wait_until(lambda: len(parts.reported.fields("forgetting.erased")) == erasings)
        # The forgetter looks for tombstones whenever the log grows.
        await parts.say("Rex runs.", user_id="bob", session_id="of bob")
        await parts.forgetter.forget("bob", "of bob")


@pytest.mark.parametrize(
    "told",
    [(OF_USER, OF_SESSION), (OF_SESSION, OF_USER), (OF_USER, OF_A_GHOST)],
    ids=["user first", "session first", "a session with a wrong user"],
)
async def test_a_user_and_its_session_together_are_not_met_again_and_again(
    parts: Parts, told: Sequence[Tombstone]
) -> None:
    await parts.say("Zebra xylophon.")
    await meet(parts, *told, erasings=1)

    assert parts.reported.names().count("forgetting.tombstone_met") <= len(told)
    assert await parts.log.read(read_planted) == ()
    assert await event_types(parts.log, ALICE) == ["turn.recorded", "user.forgotten", "user.erased"]


async def test_a_session_with_a_wrong_user_is_forgotten_of_its_own(parts: Parts, log_path: Path) -> None:
    await parts.say("Zebra xylophon.")
    await parts.memory()
    await meet(parts, OF_A_GHOST, erasings=1)

    assert parts.reported.names().count("forgetting.tombstone_met") == 1
    assert await event_types(parts.log, ALICE) == ["turn.recorded", "session.forgotten", "session.erased"]
    assert await parts.texts("xylophon") == []
    assert b"xylophon" not in stored_bytes(log_path)


@pytest.mark.parametrize("told", [OF_USER, OF_SESSION], ids=["user", "session"])
async def test_dead_letters_of_what_nothing_else_is_known_of_are_erased(
    parts: Parts, log_path: Path, told: Tombstone
) -> None:
    await parts.log.append(a_batch(letters=(a_dead_letter(b"Xylophon"),)))
    await meet(parts, told, erasings=1)

    assert b"Xylophon" not in stored_bytes(log_path)


async def test_a_session_that_begins_anew_before_its_tombstone_is_met_keeps_its_new_turn(
    parts: Parts, clock: ManualClock, log_path: Path
) -> None:
    await parts.say("Zebra xylophon.")
    await parts.memory()
    clock.advance(60 * MINUTE_MS)
    await parts.log.write(partial(plant_tombstones, tombstones=[Tombstone(S1, ALICE, clock.now)]))
    clock.advance(MINUTE_MS)
    new = a_turn("Rex runs.", turn_id="new", bus=BusPosition("MEMFOREST", "e1", 2, clock.now))
    await parts.log.append_event(replace(new, reopens=True))
    async with running_forgetter(parts):
        await wait_until(lambda: bool(parts.reported.fields("forgetting.erased")))
        await parts.memory()
        texts = await parts.texts("Rex xylophon")

    assert texts == ["Alice: Rex runs."]
    assert b"xylophon" not in stored_bytes(log_path)
