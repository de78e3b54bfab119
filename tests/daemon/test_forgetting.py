"""Forgetting: hidden at once, erased in the background, finished after a restart, and a receipt that says so."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import pytest

from daemon.erasure.forgetting import Forgetter
from daemon.erasure.receipts import Receipt, SessionUnknown
from events.log import EventLog
from events.registry import read_sessions
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_dead_letter, a_turn, seeded_nonces
from tests.daemon.parts_in_use import (
    ALICE,
    Parts,
    build_parts,
    event_types,
    running,
    running_forgetter,
    unwritable,
)
from tests.stored import stored_bytes, stored_rows
from tests.waiting import wait_until

S1 = KEYS.session("alice", "s1")


async def give_up_waiting(parts: Parts) -> None:
    """Ask for s1 to be forgotten, and stop waiting once that is recorded: nobody erases yet."""
    head = parts.log.head
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.forgetter.forget, "alice", "s1")
        await wait_until(lambda: parts.log.head > head)
        tasks.cancel_scope.cancel()


async def test_the_receipt_counts_what_is_gone_and_no_file_of_the_log_holds_it(
    parts: Parts, log_path: Path
) -> None:
    async with running(parts):
        await parts.say("Xylophon one.", "Xylophon two.", session_id="s1")
        await parts.close("s1")
        await parts.until_done()
        receipt = await parts.forgetter.forget("alice", "s1")

    # Two turns (content, role, turn id, name), the closing, an extraction, an admission, a route and a summary of
    # the scene.
    assert receipt.complete
    assert receipt.events_voided == 7
    assert receipt.words_erased >= 2 * 4 + 3
    assert b"Xylophon" not in stored_bytes(log_path)
    assert (await event_types(parts.log))[-2:] == ["session.forgotten", "session.erased"]


async def test_asking_twice_gives_the_same_receipt_and_no_second_event(parts: Parts) -> None:
    async with running_forgetter(parts):
        await parts.say("one", "two")
        first = await parts.forgetter.forget("alice", "s1")
        head = parts.log.head
        second = await parts.forgetter.forget("alice", "s1")

    assert first == second
    assert parts.log.head == head


async def test_many_who_ask_at_once_all_get_the_receipt(parts: Parts) -> None:
    receipts: list[Receipt] = []

    async def forget(session_id: str) -> None:
        receipts.append(await parts.forgetter.forget("alice", session_id))

    async with running_forgetter(parts):
        for session in ("s1", "s2", "s3"):
            await parts.say("one", "two", session_id=session)
        with anyio.fail_after(5):
            async with anyio.create_task_group() as tasks:
                for session in ("s1", "s2", "s3", "s1", "s2", "s3"):
                    tasks.start_soon(forget, session)

    wanted = sorted(KEYS.session("alice", session).hex() for session in ("s1", "s2", "s3") for _ in range(2))
    assert sorted(receipt.tombstone.session or "" for receipt in receipts) == wanted
    assert all(receipt.complete for receipt in receipts)


async def test_a_session_that_nobody_knows_is_refused_and_nothing_is_written(parts: Parts) -> None:
    await parts.say("one")
    with pytest.raises(SessionUnknown) as raised:
        await parts.forgetter.forget("alice", "Xylophon")
    with pytest.raises(SessionUnknown):
        await parts.forgetter.forget("bob", "s1")

    assert raised.value.code == "not_found"
    assert "Xylophon" not in str(raised.value)
    assert parts.log.head == 1


async def test_a_session_of_dead_letters_alone_can_be_forgotten(parts: Parts, log_path: Path) -> None:
    await parts.log.append(a_batch(letters=(a_dead_letter(b"Xylophon"),)))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert (receipt.dead_letters_erased, receipt.words_erased) == (1, 0)
    assert b"Xylophon" not in stored_bytes(log_path)


async def test_nothing_is_shown_from_the_moment_the_wish_is_durable(parts: Parts) -> None:
    """Nobody erases here: hiding must not wait for it."""
    await parts.say("Xylophon", session_id="s1")
    await parts.say("harmless", session_id="s2")
    await parts.memory()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(parts.forgetter.forget, "alice", "s1")
        await wait_until(lambda: parts.log.head == 3)
        texts = await parts.texts("Xylophon")
        tasks.cancel_scope.cancel()

    assert texts == ["Alice: harmless"]


async def test_no_turn_of_it_is_taken_any_more(parts: Parts) -> None:
    async with running_forgetter(parts):
        await parts.say("one")
        await parts.forgetter.forget("alice", "s1")
        head = parts.log.head
        await parts.say("one more")

    assert parts.log.head == head


async def test_who_gave_up_waiting_is_served_all_the_same(parts: Parts, log_path: Path) -> None:
    await parts.say("Xylophon")
    await give_up_waiting(parts)
    before = stored_bytes(log_path)
    async with running_forgetter(parts):
        await wait_until(lambda: bool(parts.reported.fields("forgetting.erased")))

    assert b"Xylophon" in before
    assert b"Xylophon" not in stored_bytes(log_path)


async def test_a_restart_finishes_what_was_begun(log_path: Path, clock: ManualClock) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    await parts.say("Xylophon")
    await give_up_waiting(parts)
    await log.close()
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    later = build_parts(log, clock)
    async with running_forgetter(later):
        await wait_until(lambda: log.head == 3)
    await log.close()

    assert b"Xylophon" not in stored_bytes(log_path)


async def test_erasing_goes_on_after_the_disk_failed(parts: Parts, log_path: Path) -> None:
    await parts.say("Xylophon")
    await give_up_waiting(parts)
    with unwritable(log_path):
        async with running_forgetter(parts):
            await wait_until(lambda: len(parts.reported.fields("forgetting.write_failed")) >= 2)
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "s1")

    assert receipt.complete
    assert parts.reported.fields("forgetting.write_failed")[0] == {"code": "unavailable"}


async def test_the_receipt_is_incomplete_while_a_reader_keeps_the_words_in_the_write_ahead_log(
    parts: Parts, log_path: Path
) -> None:
    await parts.say("Xylophon")
    impatient = Forgetter(parts.erasing, parts.memories, wait_s=0.3)
    other = sqlite3.connect(f"{log_path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM events").fetchone()
    async with running_forgetter(parts):
        receipt = await impatient.forget("alice", "s1")
        held_back = await event_types(parts.log)
        other.close()
        await wait_until(lambda: b"Xylophon" not in stored_bytes(log_path))
        again = await parts.forgetter.forget("alice", "s1")

    assert not receipt.complete
    assert "session.erased" not in held_back, "nothing is reported as done when it is not"
    assert (receipt.waiting_for, again.waiting_for) == ("erasing", None)
    assert (again.complete, again.words_erased) == (True, receipt.words_erased)


async def test_other_sessions_and_users_keep_everything(parts: Parts) -> None:
    async with running_forgetter(parts):
        await parts.say("one", session_id="s1")
        await parts.say("two", session_id="s2")
        await parts.say("three", session_id="s1", user_id="bob")
        await parts.forgetter.forget("alice", "s1")
        alice, bob = await parts.texts("two"), await parts.texts("three", "bob")

    assert (alice, bob) == (["Alice: two"], ["Alice: three"])


async def test_large_sessions_go_slice_by_slice_with_turns_in_between(parts: Parts, log_path: Path) -> None:
    batch = a_batch(*(a_turn(f"Xylophon {number}", turn_id=f"x{number}") for number in range(1000)))
    await parts.log.append(batch)
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(parts.forgetter.forget, "alice", "s1")
        await wait_until(lambda: parts.log.head == 1001)
        await parts.say("in between", session_id="s2")
        await wait_until(lambda: parts.log.head == 1003)

    types = stored_rows(log_path, "SELECT type FROM events WHERE seq > 1000 ORDER BY seq")
    assert types == [("session.forgotten",), ("turn.recorded",), ("session.erased",)]
    assert b"Xylophon" not in stored_bytes(log_path)


async def test_the_registry_keeps_that_there_was_a_session_and_no_name_of_it(parts: Parts) -> None:
    async with running_forgetter(parts):
        await parts.say("one", session_id="a-telling-name")
        await parts.forgetter.forget("alice", "a-telling-name")
        (row,) = await parts.log.read(lambda db: read_sessions(db, ALICE))

    assert (row.session_id, row.state, row.first_at, row.bytes) == (None, "forgotten", None, 0)
    assert "a-telling-name" not in str(parts.reported.events)
