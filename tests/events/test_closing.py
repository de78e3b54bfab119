"""Closing a log whose last checkpoint fails: it is told, nothing is lost, and no thread stays behind."""

from __future__ import annotations

import resource
import sqlite3
import threading
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

import pytest

from events.errors import LogClosed, StoreUnusable
from events.log import EventLog
from tests.builders import ManualClock, a_batch, a_turn
from tests.stored import stored_bytes, stored_rows
from tests.waiting import wait_until


@contextmanager
def full_disk(path: Path) -> Generator[None]:
    """No file grows any more: what the checkpoint has to write into the main file does not fit."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


def threads() -> set[threading.Thread]:
    return set(threading.enumerate())


async def until_ended(before: set[threading.Thread]) -> None:
    """A thread tells that it has closed its connection just before it ends."""
    await wait_until(lambda: threads() <= before, message="a thread of the log stays behind")


async def open_and_fill(path: Path, clock: ManualClock) -> EventLog:
    """A log whose words stand in the write-ahead log alone."""
    log = await EventLog.open(path, clock)
    for number in range(4):
        await log.append(a_batch(a_turn("Xylophon " * 1000, turn_id=f"t{number}")))
    return log


async def test_a_checkpoint_that_does_not_fit_on_the_disk_is_told_and_ends_every_thread(
    log_path: Path, clock: ManualClock
) -> None:
    before = threads()
    log = await open_and_fill(log_path, clock)
    during = threads()
    with full_disk(log_path), pytest.raises(StoreUnusable) as raised:
        await log.close()

    assert len(during - before) >= 3
    await until_ended(before)
    assert "write-ahead log" in str(raised.value)
    assert isinstance(raised.value.__cause__, sqlite3.Error)


async def test_nothing_is_lost_by_it_and_closing_again_does_nothing(log_path: Path, clock: ManualClock) -> None:
    log = await open_and_fill(log_path, clock)
    with full_disk(log_path), pytest.raises(StoreUnusable):
        await log.close()
    await log.close()
    with pytest.raises(LogClosed):
        await log.append(a_batch(a_turn(turn_id="late")))
    again = await EventLog.open(log_path, clock)
    head = again.head
    await again.close()

    assert head == 4
    assert len(stored_rows(log_path, "SELECT seq FROM events")) == 4
    assert b"Xylophon" in stored_bytes(log_path)


async def test_a_writer_that_is_gone_already_is_told_and_ends_every_thread(
    log_path: Path, clock: ManualClock
) -> None:
    before = threads()
    log = await open_and_fill(log_path, clock)
    await log.write(lambda connection: connection.close())
    with pytest.raises(StoreUnusable):
        await log.close()

    await until_ended(before)
