"""The files of a log: opening, closing, opening again, and what else may stand in their place."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import iscoroutinefunction
from pathlib import Path

import aiosqlite
import anyio
import pytest

from events.appending import Outcome
from events.errors import LogClosed, StoreUnusable
from events.gate import Verdict
from events.log import READERS, EventLog, LogReader
from events.reading import read_user
from tests.builders import (
    KEYS,
    SECRET,
    ManualClock,
    a_batch,
    a_partition,
    a_turn,
    seeded_nonces,
)
from tests.stored import stored_bytes, stored_tables
from tests.waiting import wait_until


def connection_threads() -> int:
    """Threads of open connections; one that is left keeps the process from ending."""
    return sum("_connection_worker_thread" in thread.name for thread in threading.enumerate())


async def kinds(log: EventLog, user_id: str = "alice") -> list[str]:
    events = await log.read(partial(read_user, user=KEYS.user(user_id)))
    return [each.type for each in events]


@pytest.mark.parametrize(
    "statement",
    [
        "DELETE FROM events",
        "UPDATE users SET user_seq = 0",
        "CREATE TABLE t (x)",
        "PRAGMA user_version = 7",
        "VACUUM",
    ],
)
async def test_a_reader_can_write_nothing(log: EventLog, statement: str) -> None:
    await log.append_event(a_turn())
    for _ in range(READERS):
        with pytest.raises(StoreUnusable, match="READONLY"):
            await log.read(lambda db: db.execute(statement).fetchall())


async def test_a_store_that_is_opened_again_goes_on_where_it_stopped(log_path: Path, clock: ManualClock) -> None:
    first = await EventLog.open(log_path, clock)
    await first.append(a_batch(a_turn(), read_to=3))
    await first.close()
    again = await EventLog.open(log_path, clock, secret=b"only a new store takes this")
    outcomes = [await again.append_event(each) for each in (a_turn(), a_turn(turn_id="t2"))]
    events = await again.read(partial(read_user, user=again.keys.user("alice")))
    await again.close()

    assert again.keys == first.keys
    assert outcomes == [Outcome(Verdict.DUPLICATE, 1, 1), Outcome(Verdict.RECORDED, 2, 2)]
    assert [each.user_seq for each in events] == [1, 2]


async def test_two_stores_have_two_secrets_and_two_nonces_for_one_sentence(
    tmp_path: Path, clock: ManualClock
) -> None:
    secrets, nonces = set[bytes](), set[bytes]()
    for name in ("one", "two"):
        log = await EventLog.open(tmp_path / name, clock)
        await log.append(a_batch(a_turn(), a_turn(turn_id="t2")))
        nonces |= {each.nonce for each in await log.read(partial(read_user, user=log.keys.user("alice")))}
        secrets.add(log.keys.secret)
        await log.close()

    assert (len(secrets), len(nonces)) == (2, 4)
    assert {len(secret) for secret in secrets} == {32}


async def test_the_same_events_secret_and_nonces_make_the_same_store(tmp_path: Path, clock: ManualClock) -> None:
    tables = []
    for name in ("one", "two"):
        log = await EventLog.open(tmp_path / name, clock, seeded_nonces(3), SECRET)
        await log.append(a_batch(a_turn(), a_turn("I moved to Tampa."), a_partition(), read_to=2))
        await log.close()
        tables.append(stored_tables(tmp_path / name))

    assert tables[0] == tables[1]


async def test_closing_empties_the_write_ahead_log_and_ends_everything(log_path: Path, clock: ManualClock) -> None:
    log = await EventLog.open(log_path, clock)
    assert connection_threads() == 1 + READERS
    await log.append_event(a_turn())
    await log.close()
    await log.close()

    await wait_until(lambda: connection_threads() == 0)
    assert [file.name for file in log_path.parent.iterdir()] == [log_path.name]
    calls: list[Callable[[], object]] = [
        lambda: log.append_event(a_turn()),
        lambda: log.write(lambda db: None),
        lambda: log.read(lambda db: None),
        lambda: log.read_checkpoint("MEMFOREST"),
    ]
    for call in calls:
        with pytest.raises(LogClosed):
            await call()  # type: ignore[misc]


async def test_a_file_of_another_program_is_refused_and_left_as_it_was(log_path: Path, clock: ManualClock) -> None:
    other = sqlite3.connect(log_path)
    other.execute("CREATE TABLE mine (x)")
    other.commit()
    other.close()
    before = stored_bytes(log_path)

    with pytest.raises(StoreUnusable, match="another program"):
        await EventLog.open(log_path, clock)
    assert stored_bytes(log_path) == before


async def test_a_store_of_a_newer_release_is_refused_and_left_as_it_was(
    log_path: Path, clock: ManualClock
) -> None:
    await (await EventLog.open(log_path, clock)).close()
    newer = sqlite3.connect(log_path)
    newer.execute("PRAGMA user_version = 99")
    newer.close()
    before = stored_bytes(log_path)

    with pytest.raises(StoreUnusable, match="newer release"):
        await EventLog.open(log_path, clock)
    with pytest.raises(StoreUnusable, match="newer release"):
        await LogReader.open_to_read(log_path)
    assert stored_bytes(log_path) == before


async def test_a_place_where_no_store_can_be_is_refused_and_no_thread_stays(
    tmp_path: Path, clock: ManualClock
) -> None:
    (tmp_path / "text").write_text("this is no database, whatever its name says " * 50)

    for path in (tmp_path / "missing" / "events.db", tmp_path, tmp_path / "text"):
        with pytest.raises(StoreUnusable):
            await EventLog.open(path, clock)
        with pytest.raises(StoreUnusable):
            await LogReader.open_to_read(path)
    assert connection_threads() == 0


async def test_a_program_beside_the_daemon_reads_and_keeps_nobody_waiting(log: EventLog, log_path: Path) -> None:
    await log.append_event(a_turn())
    beside = await LogReader.open_to_read(log_path)
    read = await beside.read(partial(read_user, user=KEYS.user("alice")))
    await log.append_event(a_turn(turn_id="t2"))
    await beside.close()

    assert [each.seq for each in read] == [1]
    with pytest.raises(LogClosed):
        await beside.read(lambda db: None)


async def test_a_write_that_the_disk_refuses_changes_nothing_and_the_log_works_afterwards(
    log: EventLog, log_path: Path
) -> None:
    await log.append_event(a_turn())
    (pages,) = await log.write(lambda db: db.execute("PRAGMA page_count").fetchone())
    await log.write(lambda db: db.execute(f"PRAGMA max_page_count = {pages}").fetchone())
    with pytest.raises(StoreUnusable, match="SQLITE_FULL"):
        await log.append(a_batch(a_turn("much " * 50_000, turn_id="t2"), read_to=9))
    assert await kinds(log) == ["turn.recorded"]
    await log.write(lambda db: db.execute("PRAGMA max_page_count = 1000000").fetchone())
    again = await log.append_event(a_turn("much " * 50_000, turn_id="t2"))

    assert again == Outcome(Verdict.RECORDED, 2, 2)
    assert await log.read_checkpoint("MEMFOREST") is None


async def test_an_acknowledged_event_survives_a_power_cut(log: EventLog) -> None:
    """synchronous=FULL (2) syncs the write-ahead log at every commit."""
    assert await log.write(lambda db: db.execute("PRAGMA synchronous").fetchone()) == (2,)
    assert await log.write(lambda db: db.execute("PRAGMA journal_mode").fetchone()) == ("wal",)


async def test_aiosqlite_runs_whole_closures_in_order_on_one_thread_as_database_py_relies_on(
    tmp_path: Path,
) -> None:
    """The contract with the private part of aiosqlite; pinned below 0.23."""
    connection = aiosqlite.connect(tmp_path / "x.db")
    execute: Callable[[Callable[[], object]], Awaitable[object]] = connection._execute
    assert iscoroutinefunction(execute)
    await connection
    assert isinstance(connection._conn, sqlite3.Connection)
    order: list[tuple[int, int]] = []

    def note(n: int) -> int:
        order.append((n, threading.get_ident()))
        return n

    async with anyio.create_task_group() as tasks:
        for n in range(20):
            tasks.start_soon(execute, partial(note, n))
    with pytest.raises(ZeroDivisionError):
        await execute(lambda: 1 // 0)
    assert await execute(lambda: 5) == 5
    await connection.close()

    assert [n for n, _ in order] == list(range(20))
    assert {thread for _, thread in order} != {threading.get_ident()}
    assert len({thread for _, thread in order}) == 1
    with pytest.raises(ValueError, match=r"closed|no active"):
        await execute(lambda: 5)
