"""Forgetting while another program reads the store: nothing is said to be gone that still stands in the WAL."""

from __future__ import annotations

import sqlite3
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from daemon.erasure.forgetting import Forgetter
from events.log import EventLog
from tests.builders import SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import Parts, build_parts, event_types, running_forgetter
from tests.stored import stored_bytes
from tests.waiting import wait_until


@contextmanager
def reading(path: Path) -> Generator[sqlite3.Connection]:
    """Another program in the middle of a read transaction, such as a backup."""
    other = sqlite3.connect(f"{path.as_uri()}?mode=ro", uri=True, isolation_level=None)
    try:
        other.execute("BEGIN")
        other.execute("SELECT count(*) FROM events").fetchone()
        yield other
    finally:
        other.close()


def impatient(parts: Parts) -> Forgetter:
    """Waits a moment only; the erasing is the business of the one that runs."""
    return Forgetter(parts.erasing, parts.memories, wait_s=0.2)


async def until_busy(parts: Parts, times: int) -> None:
    await wait_until(lambda: len(parts.reported.fields("forgetting.wal_busy")) >= times)


async def test_however_often_it_is_tried_nothing_is_said_to_be_erased_while_a_reader_is_there(
    parts: Parts, log_path: Path
) -> None:
    await parts.say("Xylophon")
    async with running_forgetter(parts):
        with reading(log_path):
            receipts = [await impatient(parts).forget("alice", "s1") for _ in range(2)]
            await until_busy(parts, 3)
            types, words_left = await event_types(parts.log), b"Xylophon" in stored_bytes(log_path)
            seen = await parts.texts("Xylophon")
        done = await parts.forgetter.forget("alice", "s1")

    assert [receipt.complete for receipt in receipts] == [False, False]
    assert types == ["turn.recorded", "session.forgotten"]
    assert (words_left, seen) == (True, [])
    assert done.complete
    assert await event_types(parts.log) == [*types, "session.erased"]
    assert b"Xylophon" not in stored_bytes(log_path)


async def test_turns_are_taken_and_found_while_a_reader_holds_up_the_erasing(parts: Parts, log_path: Path) -> None:
    await parts.say("Xylophon")
    async with running_forgetter(parts):
        with reading(log_path):
            await impatient(parts).forget("alice", "s1")
            await parts.say("Marimba", session_id="s2")
            await until_busy(parts, 2)
            texts = await parts.texts("Marimba")
        done = await parts.forgetter.forget("alice", "s1")

    assert texts == ["Alice: Marimba"]
    assert done.complete
    assert b"Marimba" in stored_bytes(log_path)


async def test_a_session_forgotten_behind_one_that_is_held_up_is_erased_after_it(
    parts: Parts, log_path: Path
) -> None:
    await parts.say("Xylophon", session_id="s1")
    await parts.say("Marimba", session_id="s2")
    async with running_forgetter(parts):
        with reading(log_path):
            held = [await impatient(parts).forget("alice", session) for session in ("s1", "s2")]
        done = [await parts.forgetter.forget("alice", session) for session in ("s1", "s2")]

    stored = stored_bytes(log_path)
    assert [receipt.complete for receipt in (*held, *done)] == [False, False, True, True]
    assert (b"Xylophon" in stored, b"Marimba" in stored) == (False, False)


async def test_a_restart_does_not_take_it_for_erased(log_path: Path, clock: ManualClock) -> None:
    log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
    parts = build_parts(log, clock)
    await parts.say("Xylophon")
    with reading(log_path):
        async with running_forgetter(parts):
            await impatient(parts).forget("alice", "s1")
            await until_busy(parts, 1)
        await log.close()
        log = await EventLog.open(log_path, clock, seeded_nonces(1), SECRET)
        later = build_parts(log, clock)
        async with running_forgetter(later):
            await until_busy(later, 1)
            again = await impatient(later).forget("alice", "s1")
            types = await event_types(log)
    async with running_forgetter(later):
        done = await later.forgetter.forget("alice", "s1")
    await log.close()

    assert (again.complete, done.complete) == (False, True)
    assert "session.erased" not in types
    assert b"Xylophon" not in stored_bytes(log_path)
