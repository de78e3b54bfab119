"""Receipts: what they count, when they say that all is erased, and when that it was proven."""

from __future__ import annotations

import sqlite3
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

import anyio

from daemon.bus.bus_erasure import BusErasure
from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import Pending, make_receipt
from events.bus_copies import note_unwanted, read_unwanted
from events.database import immediate
from events.envelope import BusPosition, NewEvent
from events.erasure import SLICE_EVENTS, erase_slice
from events.tombstones import Tombstone, plant_tombstones
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_dead_letter,
    a_forgetting,
    a_place,
    a_retraction,
    a_turn,
)
from tests.daemon.parts_in_use import ALICE, MINUTE_MS, Parts, running_forgetter
from tests.scripted_bus import ScriptedEraser
from tests.stored import stored_bytes, stored_rows
from tests.waiting import wait_until

S1 = KEYS.session("alice", "s1")
LONG = "The quick brown xylophon jumps over forty-two lazy marimbas in Reykjavik, again and again."


def bus_of(parts: Parts) -> ScriptedEraser:
    assert isinstance(parts.erasing.bus, ScriptedEraser)
    return parts.erasing.bus


def restart(parts: Parts) -> None:
    """A daemon that remembers nothing of the last one."""
    parts.forgetter = Forgetter(parts.erasing, parts.memories, wait_s=5)


def has_unwanted(parts: Parts) -> bool:
    return bool(stored_rows(parts.log.path, "SELECT 1 FROM unwanted"))


def note_all(connection: sqlite3.Connection, places: Sequence[BusPosition]) -> None:
    """Messages of s1 that must go."""
    with immediate(connection):
        for place in places:
            note_unwanted(connection, place, S1)


async def test_a_session_whose_retracted_turn_is_still_on_the_bus_is_not_complete(parts: Parts) -> None:
    bus_of(parts).kept.add(a_place(1))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    await parts.log.append_event(a_retraction())
    async with running_forgetter(parts):
        await wait_until(lambda: bool(parts.reported.fields("forgetting.bus_not_erased")))
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.bus_messages_left, receipt.complete, receipt.waiting_for) == (1, False, "operator")


async def test_a_user_of_whose_forgotten_session_the_bus_kept_a_message_is_not_complete(parts: Parts) -> None:
    bus_of(parts).kept.add(a_place(1))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    async with running_forgetter(parts):
        of_session = await parts.forgetter.forget("alice", "s1")
        of_user = await parts.forgetter.forget_user("alice")

    assert (of_session.bus_messages_left, of_session.complete) == (1, False)
    assert (of_user.bus_messages_left, of_user.complete) == (1, False)


async def test_a_session_of_which_a_late_message_is_still_on_the_bus_is_not_complete(parts: Parts) -> None:
    bus_of(parts).kept.add(a_place(2))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    await parts.log.append_event(a_forgetting())
    await parts.log.append_event(a_turn("late words", turn_id="t9", bus=a_place(2)))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.bus_messages_erased, receipt.bus_messages_left, receipt.complete) == (1, 1, False)


async def test_a_thousand_messages_that_the_bus_keeps_do_not_keep_the_next_one_from_being_deleted(
    parts: Parts,
) -> None:
    bus = bus_of(parts)
    stuck = [BusPosition("A_OLD", "e0", seq) for seq in range(1, 1001)]
    bus.kept.update(stuck)
    await parts.log.append_event(a_turn(bus=a_place(1)))
    await parts.log.append_event(a_forgetting())
    await parts.log.write(partial(note_all, places=stuck))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert bus.erased == [a_place(1)]
    assert (receipt.bus_messages_erased, receipt.bus_messages_left) == (1, 1000)


async def test_what_the_bus_kept_is_tried_again_after_a_restart_and_then_the_receipt_is_complete(
    parts: Parts,
) -> None:
    bus = bus_of(parts)
    bus.kept.add(a_place(1))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    async with running_forgetter(parts):
        before = await parts.forgetter.forget("alice", "s1")
    bus.kept.clear()  # it expired, or the operator allowed deletes
    restart(parts)
    async with running_forgetter(parts):
        await wait_until(lambda: bool(bus.erased))
        await wait_until(lambda: not has_unwanted(parts))
        after = await parts.forgetter.forget("alice", "s1")

    assert not before.complete
    assert (after.bus_messages_erased, after.bus_messages_left, after.complete) == (1, 0, True)


async def test_what_the_bus_kept_is_tried_again_when_another_message_must_go(parts: Parts) -> None:
    bus = bus_of(parts)
    bus.kept.add(a_place(1))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    async with running_forgetter(parts):
        before = await parts.forgetter.forget("alice", "s1")
        bus.kept.clear()
        await parts.log.append_event(a_turn("late words", turn_id="t9", bus=a_place(2)))
        await parts.say("wake up", session_id="s2")
        await wait_until(lambda: not has_unwanted(parts))
        after = await parts.forgetter.forget("alice", "s1")

    assert not before.complete
    assert sorted(place.seq for place in bus.erased) == [1, 2]
    assert (after.bus_messages_erased, after.complete) == (2, True)


async def test_messages_of_what_only_another_store_knew_go_from_the_bus(parts: Parts) -> None:
    """There is no erasing that they could belong to."""
    bus = bus_of(parts)
    await parts.log.write(partial(plant_tombstones, tombstones=[Tombstone(S1, ALICE, MONDAY)]))
    await parts.log.append_event(a_turn(bus=a_place(1)))
    await parts.log.append(a_batch(letters=(a_dead_letter(seq=2),)))
    async with running_forgetter(parts):
        await wait_until(lambda: len(bus.erased) == 2)
        await wait_until(lambda: not has_unwanted(parts))

    assert bus.erased == [a_place(1), a_place(2)]


async def test_a_dead_letter_of_a_forgotten_user_goes_from_the_bus(parts: Parts) -> None:
    bus = bus_of(parts)
    await parts.say("One.", session_id="s2")
    async with running_forgetter(parts):
        await parts.forgetter.forget_user("alice")
        await parts.log.append(a_batch(letters=(a_dead_letter(seq=2),)))
        await parts.say("wake up", user_id="bob")
        await wait_until(lambda: bool(bus.erased))
        receipt = await parts.forgetter.forget_user("alice")

    assert bus.erased == [a_place(2)]
    assert (receipt.bus_messages_erased, receipt.complete) == (1, True)


async def test_a_receipt_after_an_undisturbed_erasing_is_complete_and_proven(parts: Parts) -> None:
    await parts.say(LONG)
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.complete, receipt.proven, receipt.residues) == (True, True, 0)
    assert receipt.scanned_files > 0


async def test_a_restart_after_the_words_went_leaves_a_receipt_that_is_complete_and_not_proven(
    parts: Parts,
) -> None:
    """Samples of the words are in memory alone: nobody can look for them any more."""
    await parts.say(LONG)
    await parts.log.append_event(a_forgetting())
    while not await parts.log.write(partial(erase_slice, subject=S1)):
        pass
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.complete, receipt.proven, receipt.scanned_files) == (True, False, 0)


async def test_a_restart_between_two_slices_leaves_a_receipt_that_is_not_proven(
    parts: Parts, log_path: Path
) -> None:
    """What is left is looked for; of the first slice nothing is known."""
    turns = [a_turn(f"{LONG} {number}", turn_id=f"t{number}") for number in range(SLICE_EVENTS + 20)]
    await parts.log.append(a_batch(*turns))
    await parts.log.append_event(a_forgetting())
    whole = await parts.log.write(partial(erase_slice, subject=S1))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert not whole
    assert (receipt.complete, receipt.proven, receipt.scanned_files > 0) == (True, False, True)
    assert b"xylophon" not in stored_bytes(log_path)


class InterruptedEraser(ScriptedEraser):
    """Something happens before the first deletion."""

    def __init__(self, happens: Callable[[], Awaitable[None]]) -> None:
        super().__init__()
        self._happens: Callable[[], Awaitable[None]] | None = happens

    async def erase(self, positions: Sequence[BusPosition], checkpoint: BusPosition | None) -> BusErasure:
        happens, self._happens = self._happens, None
        if happens is not None:
            await happens()
        return await super().erase(positions, checkpoint)


async def test_a_session_that_begins_anew_and_is_forgotten_again_while_it_is_erased_is_erased_twice(
    parts: Parts, clock: ManualClock, log_path: Path
) -> None:
    def published(new: NewEvent, seq: int) -> NewEvent:
        return replace(new, bus=BusPosition("MEMFOREST", "e1", seq, clock.now), reopens=True)

    async def begin_anew_and_forget() -> None:
        clock.advance(MINUTE_MS)
        await parts.log.append_event(published(a_turn("Xylophon", turn_id="new"), 2))
        clock.advance(MINUTE_MS)
        await parts.log.append_event(a_forgetting(key="again"))

    parts.erasing = replace(parts.erasing, bus=InterruptedEraser(begin_anew_and_forget))
    restart(parts)
    await parts.log.append_event(published(a_turn("Zebra", turn_id="old"), 1))
    clock.advance(MINUTE_MS)
    with anyio.fail_after(10):
        async with running_forgetter(parts):
            await parts.forgetter.forget("alice", "s1")
            receipt = await make_receipt(parts.log, S1, Pending())

    assert b"Xylophon" not in stored_bytes(log_path)
    assert (receipt.forgotten_user_seq, receipt.complete) == (4, True)
    assert len(parts.reported.fields("forgetting.erased")) == 2
    assert [each.seq for each in bus_of(parts).erased] == [1, 2]
    assert await parts.log.read(partial(read_unwanted, subject=S1)) == []
