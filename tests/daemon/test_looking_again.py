"""Receipts that say neither too much nor too little: what was left is looked for again, what is unread counts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import anyio

from daemon.bus.subjects import control_subject, turn_subject
from daemon.erasure.fingerprints import Fingerprints
from daemon.erasure.forgetting import LEFT_MAX, Forgetter
from daemon.erasure.receipts import Receipt
from daemon.erasure.residue import IsKept, Residue, ScanResult
from events.envelope import BusPosition
from tests.builders import ManualClock, a_batch, a_turn
from tests.daemon.parts_in_use import Parts, event_types, running_forgetter
from tests.daemon.test_erasing import KEPT_TEXT, Store, a_message, an_empty_store
from tests.scripted_bus import ScriptedEraser
from tests.stored import stored_bytes
from tests.waiting import wait_until

LONG = "The quick brown xylophon jumps over forty-two lazy marimbas in Reykjavik, again and again."


def a_forgetter(parts: Parts, wait_s: float = 5) -> Forgetter:
    """One that remembers nothing of the last."""
    parts.forgetter = Forgetter(parts.erasing, parts.memories, wait_s=wait_s)
    return parts.forgetter


class Search:
    """Finds something at one place, until it is `clean`."""

    clean = False

    async def __call__(self, folder: Path, samples: Fingerprints, is_kept: IsKept) -> ScanResult:
        residues = () if self.clean else (Residue("a copy", 1),)
        return ScanResult(files=1, bytes_read=1, windows=len(samples), residues=residues, shared=0, unread=())


def searching(parts: Parts) -> Search:
    """A search that costs nothing, for a forgetter that remembers nothing of the last."""
    search = Search()
    parts.erasing = replace(parts.erasing, search=search, pause_s=0.001)
    a_forgetter(parts)
    return search


async def say(store: Store, said: Sequence[tuple[str, str]]) -> None:
    """Turns of sessions, in the log and on the bus."""
    places = await store.publish(*(a_message(text) for _, text in said))
    turns = [
        a_turn(text, session_id=session, turn_id=f"t{n}", bus=place)
        for n, ((session, text), place) in enumerate(zip(said, places, strict=True))
    ]
    await store.parts.log.append(a_batch(*turns))


async def test_what_others_said_is_no_residue_where_a_quotation_mark_of_the_file_completes_the_sample(
    tmp_path: Path, clock: ManualClock
) -> None:
    """The message of s2 reads `"content": "I prefer tea to coffee."` and s1 began so, too, after such a mark."""
    async with an_empty_store(tmp_path, clock) as store:
        await say(store, [("s1", '"I prefer tea to every coffee." said she.'), ("s2", KEPT_TEXT)])
        receipt = await store.forget()

        assert store.residues() == set()
        assert (receipt.residues, receipt.complete, receipt.proven) == (0, True, True)


async def test_what_others_said_is_no_residue_where_the_length_of_the_next_row_completes_the_sample(
    parts: Parts, log_path: Path
) -> None:
    """In a page of SQLite the row before follows, and it begins with its length: a blank is 32 bytes."""
    # The last sample of 16 bytes is the sentence and a blank.
    await parts.say("We met Marta in Porto. ", session_id="s1")
    turns = [
        a_turn("We met Marta in Porto.", session_id="s2", turn_id=f"s2-{n}", name="x" * n) for n in range(1, 30)
    ]
    await parts.log.append(a_batch(*turns))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert b"Marta in Porto. " in stored_bytes(log_path), "there is something to be taken for a residue"
    assert (receipt.residues, receipt.complete, receipt.proven) == (0, True, True)


async def test_who_asks_again_once_a_copy_was_removed_gets_a_receipt_that_is_complete(
    parts: Parts, log_path: Path
) -> None:
    copy = log_path.parent / "a copy"
    copy.write_text(LONG)
    await parts.say(LONG)
    a_forgetter(parts, wait_s=30)
    async with running_forgetter(parts):
        before = await parts.forgetter.forget("alice", "s1")
        still = await parts.forgetter.forget("alice", "s1")
        copy.unlink()
        after = await parts.forgetter.forget("alice", "s1")
        again = await parts.forgetter.forget("alice", "s1")

    assert (before.complete, before.waiting_for, before.residues > 0) == (False, "operator", True)
    assert still == before
    assert (after.complete, after.proven, after.waiting_for, after.residues) == (True, True, None, 0)
    assert (before.erased_user_seq, after.erased_user_seq) == (3, 4)
    assert again == after
    assert await event_types(parts.log) == ["turn.recorded", "session.forgotten", *["session.erased"] * 2]


async def test_many_who_ask_again_at_once_make_one_more_receipt(parts: Parts) -> None:
    search = searching(parts)
    await parts.say(LONG)
    async with running_forgetter(parts):
        await parts.forgetter.forget("alice", "s1")
        search.clean = True
        async with anyio.create_task_group() as tasks:
            for _ in range(4):
                tasks.start_soon(parts.forgetter.forget, "alice", "s1")

    assert (await event_types(parts.log)).count("session.erased") == 2


async def test_after_a_restart_what_was_left_stays_left(parts: Parts) -> None:
    """Nobody knows any more what to look for."""
    search = searching(parts)
    await parts.say(LONG)
    async with running_forgetter(parts):
        await parts.forgetter.forget("alice", "s1")
    search.clean = True
    a_forgetter(parts)
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.complete, receipt.waiting_for) == (False, "operator")


async def test_samples_are_kept_of_the_last_few_receipts_alone(parts: Parts) -> None:
    search = searching(parts)
    sessions = [f"s{number}" for number in range(LEFT_MAX + 1)]
    async with running_forgetter(parts):
        for session in sessions:
            await parts.say(LONG, session_id=session)
            await parts.forgetter.forget("alice", session)
        search.clean = True
        complete = [(await parts.forgetter.forget("alice", session)).complete for session in sessions]

    assert complete == [False, *[True] * LEFT_MAX]


async def test_a_session_is_not_complete_while_the_erasing_of_its_user_has_taken_over_its_messages(
    parts: Parts,
) -> None:
    bus = parts.erasing.bus
    assert isinstance(bus, ScriptedEraser)
    place = BusPosition("MEMFOREST", "e1", 1)
    bus.kept.add(place)
    await parts.log.append_event(a_turn(bus=place))
    async with running_forgetter(parts):
        await parts.forgetter.forget("alice", "s1")
        await parts.forgetter.forget_user("alice")
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.bus_messages_left, receipt.complete, receipt.waiting_for) == (1, False, "operator")


async def test_a_receipt_is_not_complete_while_the_bus_may_have_messages_that_nobody_read(parts: Parts) -> None:
    bus = parts.erasing.bus
    assert isinstance(bus, ScriptedEraser)
    await parts.say(LONG)
    receipts: list[Receipt] = []
    async with running_forgetter(parts):
        for unread in (None, 0):
            bus.unread = unread
            receipts.append(await parts.forgetter.forget("alice", "s1"))
    bus.unread = 1
    a_forgetter(parts, wait_s=0.1)
    async with running_forgetter(parts):
        receipts.append(await parts.forgetter.forget("alice", "s1"))

    assert [each.waiting_for for each in receipts] == ["bus", None, "bus"]
    assert [each.complete for each in receipts] == [False, True, False]
    assert [each.proven for each in receipts] == [False, True, False]


async def test_who_forgets_waits_for_messages_that_are_about_to_be_read_and_for_their_deletion(
    parts: Parts,
) -> None:
    bus = parts.erasing.bus
    assert isinstance(bus, ScriptedEraser)
    bus.unread = 1
    late = BusPosition("MEMFOREST", "e1", 2)
    receipts: list[Receipt] = []

    async def forget() -> None:
        receipts.append(await parts.forgetter.forget("alice", "s1"))

    await parts.say(LONG)
    a_forgetter(parts)
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(forget)
        await wait_until(lambda: parts.log.head == 3)  # the turn, the wish, the receipt
        await parts.log.append_event(a_turn("late words", turn_id="t9", bus=late))
        bus.unread = 0

    assert bus.erased == [late]
    assert [(each.complete, each.bus_messages_erased, each.waiting_for) for each in receipts] == [(True, 1, None)]


async def test_while_others_write_the_bus_is_not_asked_with_every_commit(parts: Parts) -> None:
    bus = parts.erasing.bus
    assert isinstance(bus, ScriptedEraser)
    bus.unread, commits, counted = 1, 100, 0
    await parts.say(LONG)
    a_forgetter(parts, wait_s=30)
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.forgetter.forget, "alice", "s1")
        await wait_until(lambda: bus.counted > 0)
        for n in range(commits):
            await parts.log.append_event(a_turn("Something else.", user_id="bob", turn_id=f"t{n}"))
        counted, bus.unread = bus.counted, 0

    assert counted < commits / 4


async def test_messages_of_a_session_that_nobody_has_read_are_counted_by_their_subjects(
    tmp_path: Path, clock: ManualClock
) -> None:
    async with an_empty_store(tmp_path, clock) as store:
        eraser = store.erasing.bus
        for user, session in (("alice", "s1"), ("alice", "s1"), ("alice", "s10"), ("bob", "s1"), ("é", "s1")):
            await store.bus.publish(turn_subject(user, session), b"{}")
        await store.bus.publish(control_subject("alice", "s1"), b"{}")
        asked = [("alice", "s1"), ("alice", None), ("é", None), ("alice", "s2"), ("al", None)]
        counts = [await eraser.count_messages(user, session) for user, session in asked]
        # Forgotten while it has a turn in the log and three messages that only the bus knows.
        await store.parts.say(LONG)
        store.parts.forgetter = Forgetter(store.erasing, store.parts.memories, wait_s=0.5)
        async with running_forgetter(store.parts):
            receipt = await store.parts.forgetter.forget("alice", "s1")
        await store.bus.close()

        assert counts == [3, 4, 1, 0, 0]
        assert (receipt.complete, receipt.waiting_for) == (False, "bus")
        assert await eraser.count_messages("alice", "s1") is None
