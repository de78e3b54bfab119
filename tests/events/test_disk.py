"""What the log does when the disk does not: full, refused, torn, and a sync that failed."""

from __future__ import annotations

import random
import resource
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

import anyio
import pytest

from events.appending import Batch
from events.database import (
    DAMAGED,
    DISK_FAILED,
    DISK_FULL,
    FAILED,
    LOCKED,
    NOT_OPENED,
    READ_ONLY,
    SYNC_FAILED,
    name_failure,
)
from events.errors import LogClosed, StoreUnusable
from events.gate import Verdict
from events.integrity import check_start
from events.log import EventLog, LogReader
from events.migrations import MIGRATIONS
from events.reading import read_user
from events.schema import copies_before_migration, open_writer
from events.wal import MOVE_AT_PAGES, wal_bytes
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_forgetting, a_turn, seeded_nonces
from tests.stored import stored_bytes, stored_rows

LONG = "much " * 50_000


def limit_pages(log: EventLog, pages: int | None = None) -> None:
    """A disk that has room for so many pages, or for no more than there are. The writer must be idle."""
    connection = log._writer._connection._conn
    (used,) = connection.execute("PRAGMA page_count").fetchone()
    connection.execute(f"PRAGMA max_page_count = {pages or used}")


async def kinds(log: EventLog, user_id: str = "alice") -> list[str]:
    return [each.type for each in await log.read(partial(read_user, user=KEYS.user(user_id), limit=10_000))]


def an_error(name: str) -> sqlite3.Error:
    """An error as SQLite gives it with an extended result code."""
    error = sqlite3.OperationalError("its text may quote what people said")
    error.sqlite_errorname = name
    return error


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("SQLITE_FULL", DISK_FULL),
        ("SQLITE_IOERR_WRITE", DISK_FAILED),
        ("SQLITE_IOERR_READ", DISK_FAILED),
        ("SQLITE_IOERR_FSYNC", SYNC_FAILED),
        ("SQLITE_IOERR_DIR_FSYNC", SYNC_FAILED),
        ("SQLITE_READONLY", READ_ONLY),
        ("SQLITE_READONLY_DIRECTORY", READ_ONLY),
        ("SQLITE_CANTOPEN", NOT_OPENED),
        ("SQLITE_BUSY", LOCKED),
        ("SQLITE_BUSY_SNAPSHOT", LOCKED),
        ("SQLITE_CORRUPT_INDEX", DAMAGED),
        ("SQLITE_NOTADB", DAMAGED),
        ("SQLITE_ERROR", FAILED),
    ],
)
def test_every_error_of_the_disk_has_a_reason_that_stays(name: str, reason: str) -> None:
    assert name_failure(an_error(name)) == reason


def test_an_error_of_the_sqlite3_module_itself_has_one_too() -> None:
    assert name_failure(sqlite3.ProgrammingError("Cannot operate on a closed database.")) == FAILED


async def test_a_full_disk_refuses_the_batch_and_reading_goes_on_until_a_probe_finds_room(log: EventLog) -> None:
    await log.append_event(a_turn())
    limit_pages(log)
    with pytest.raises(StoreUnusable) as raised:
        await log.append(a_batch(a_turn(LONG, turn_id="t2"), read_to=9))
    failure, read = log.failure, await kinds(log)
    checkpoint = await log.read_checkpoint("MEMFOREST")
    limit_pages(log, 1_000_000)
    await log.probe()
    again = await log.append(a_batch(a_turn(LONG, turn_id="t2"), read_to=9))

    assert (raised.value.reason, failure, log.failure) == (DISK_FULL, DISK_FULL, None)
    assert (read, checkpoint) == (["turn.recorded"], None)
    assert [outcome.user_seq for outcome in again] == [2]


async def test_only_a_probe_ends_a_failure(log: EventLog) -> None:
    await log.append_event(a_turn())
    limit_pages(log)
    with pytest.raises(StoreUnusable):
        await log.append_event(a_turn(LONG, turn_id="t2"))
    await log.answer()
    after_a_read = log.failure
    await log.append_event(a_turn("short", turn_id="t3"))
    after_a_write = log.failure
    await log.probe()

    assert (after_a_read, after_a_write, log.failure) == (DISK_FULL, DISK_FULL, None)


async def test_another_program_in_the_way_is_another_reason(log: EventLog, log_path: Path) -> None:
    other = sqlite3.connect(log_path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreUnusable) as raised:
        await log.append_event(a_turn())
    with pytest.raises(StoreUnusable):
        await log.probe()
    other.close()
    await log.probe()

    assert (raised.value.reason, log.failure) == (LOCKED, None)


async def test_what_takes_something_back_is_written_in_the_last_room_and_nothing_else_is(log: EventLog) -> None:
    await log.append_event(a_turn())
    limit_pages(log)
    asked: list[None] = []

    def make_room() -> bool:
        asked.append(None)
        limit_pages(log, 1_000_000)
        return len(asked) == 1

    log.make_room = make_room
    with pytest.raises(StoreUnusable):
        await log.append_event(a_turn(LONG, turn_id="t2"))
    asked_by_a_turn = len(asked)
    verdicts: dict[str, Verdict | str] = {}

    async def append(name: str, batch: Batch) -> None:
        try:
            verdicts[name] = (await log.append(batch))[0].verdict
        except StoreUnusable as error:
            verdicts[name] = error.reason

    async with log._turn, anyio.create_task_group() as tasks:  # so that both come into one transaction
        tasks.start_soon(append, "turn", a_batch(a_turn(LONG, turn_id="t3")))
        tasks.start_soon(append, "forgetting", a_batch(a_forgetting()))
        await anyio.wait_all_tasks_blocked()
        tasks.start_soon(anyio.lowlevel.checkpoint)
        log._turn.release()
        await anyio.wait_all_tasks_blocked()
        await log._turn.acquire()

    assert asked_by_a_turn == 0
    assert verdicts == {"turn": DISK_FULL, "forgetting": Verdict.RECORDED}
    assert len(asked) == 1


async def test_upkeep_is_written_in_the_last_room_too_unless_it_can_wait(log: EventLog) -> None:
    await log.append_event(a_turn())

    def grow(db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO refusals VALUES (zeroblob(200000), 1)")

    def make_room() -> bool:
        limit_pages(log, 1_000_000)
        return True

    limit_pages(log)
    log.make_room = make_room
    with pytest.raises(StoreUnusable):
        await log.write(grow, urgent=False)
    await log.write(grow)


async def test_while_the_room_is_reserved_turns_are_refused_as_on_a_full_disk(log: EventLog) -> None:
    await log.append_event(a_turn())
    log.reserved = True
    with pytest.raises(StoreUnusable) as raised:
        await log.append_event(a_turn(turn_id="t2"))
    forgotten = await log.append_event(a_forgetting())
    log.reserved = False
    after = await log.append_event(a_turn(user_id="bob"))

    assert raised.value.reason == DISK_FULL
    assert (forgotten.verdict, after.verdict) == (Verdict.RECORDED, Verdict.RECORDED)


async def test_after_a_failed_fsync_nothing_is_written_any_more(log: EventLog, log_path: Path) -> None:
    await log.append_event(a_turn())
    told: list[int] = []
    log.on_sync_failure = lambda: told.append(log.head)

    def fail(_: sqlite3.Connection) -> None:
        raise an_error("SQLITE_IOERR_FSYNC")

    with pytest.raises(StoreUnusable, match="SQLITE_IOERR_FSYNC"):
        await log.write(fail)
    for call in (partial(log.append_event, a_turn(turn_id="t2")), log.probe, log.answer):
        with pytest.raises(StoreUnusable) as raised:
            await call()
        assert raised.value.reason == SYNC_FAILED

    log.failure = None  # or it would not be closed properly either

    assert told == [1]
    assert await kinds(log) == ["turn.recorded"]
    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(1,)]


async def test_the_write_ahead_log_is_moved_under_load_and_its_errors_are_seen(log: EventLog) -> None:
    """SQLite's automatic checkpoint would ignore them."""
    most = 0
    for n in range(24):
        await log.append(a_batch(*(a_turn("x" * 100_000, turn_id=f"{n}/{m}") for m in range(16))))
        most = max(most, log.pages_to_move)

    assert await log.write(lambda db: db.execute("PRAGMA wal_autocheckpoint").fetchone()) == (0,)
    assert MOVE_AT_PAGES / 2 < most < MOVE_AT_PAGES
    assert log.pages_to_move < most


async def test_pages_that_wait_are_what_sqlite_itself_says(log: EventLog) -> None:
    for n in range(3):
        await log.append_event(a_turn("x" * 10_000, turn_id=f"t{n}"))
        waiting = log.pages_to_move
        _, pages, moved = await log.write(lambda db: db.execute("PRAGMA wal_checkpoint(PASSIVE)").fetchone())

        assert (waiting > 0, pages, moved) == (True, pages, pages)
        assert (log.pages_to_move, waiting <= pages) == (0, True)
    assert log.wal_bytes >= pages * 4096
    assert wal_bytes(log.path.with_name("none")) == 0


async def test_a_reader_that_holds_a_snapshot_keeps_pages_waiting_and_nobody_else(
    log: EventLog, log_path: Path
) -> None:
    await log.append_event(a_turn())
    other = sqlite3.connect(f"{log_path.as_uri()}?mode=ro", uri=True)
    held = other.execute("SELECT * FROM events, (SELECT 1 UNION SELECT 2)")
    held.fetchone()
    await log.append(a_batch(*(a_turn("x" * 10_000, turn_id=f"t{n}") for n in range(2, 60))))
    await log.probe()
    waiting, read = log.pages_to_move, len(await kinds(log))
    held.close()
    other.close()
    await log.probe()

    assert (waiting > 100, read) == (True, 59)
    assert log.pages_to_move == 0


@contextmanager
def files_up_to(size_bytes: int) -> Iterator[None]:
    """Nothing can be written behind this place of any file. Takes no rights, and Python ignores SIGXFSZ."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


def file_bytes(connection: sqlite3.Connection) -> tuple[int]:
    """The size of the store's main file, as the log sees it."""
    size = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    return (int(connection.execute(size).fetchone()[0]),)


async def test_a_move_that_the_disk_refuses_undoes_no_commit_and_works_later(
    log: EventLog, log_path: Path
) -> None:
    """The write-ahead log has room, since it begins anew, and the main file has none."""
    await log.append(a_batch(*(a_turn("x" * 500_000, turn_id=f"t{n}") for n in range(6))))
    await log.probe()
    (size,) = await log.read(file_bytes)
    with files_up_to(size // 2):
        outcome = await log.append_event(a_turn("x" * 100_000, turn_id="after"))
        with pytest.raises(StoreUnusable) as raised:
            await log.probe()
        during, read = log.failure, len(await kinds(log))
    await log.probe()

    assert (outcome.verdict, raised.value.reason, during) == (Verdict.RECORDED, DISK_FAILED, DISK_FAILED)
    assert (read, log.failure, log.pages_to_move) == (7, None, 0)
    assert await log.read(file_bytes) > (size,)


async def test_a_write_that_the_disk_refuses_leaves_the_batch_out_and_the_log_usable(
    log: EventLog, log_path: Path
) -> None:
    await log.append_event(a_turn())
    with files_up_to(200_000):
        with pytest.raises(StoreUnusable) as raised:
            await log.append(a_batch(a_turn(LONG, turn_id="t2"), read_to=9))
        read = await kinds(log)
    again = await log.append(a_batch(a_turn(LONG, turn_id="t2"), read_to=9))

    assert (raised.value.reason, read) == (DISK_FAILED, ["turn.recorded"])
    assert [outcome.seq for outcome in again] == [2]


async def test_a_migration_without_room_for_its_copy_changes_nothing(log_path: Path, clock: ManualClock) -> None:
    await (await EventLog.open(log_path, clock)).close()
    before = stored_bytes(log_path)
    with files_up_to(20_000), pytest.raises(StoreUnusable):
        open_writer(log_path, clock(), migrations=(*MIGRATIONS, "CREATE TABLE added (x);"))

    assert stored_bytes(log_path) == before
    assert [file.name for file in log_path.parent.iterdir() if "before" in file.name] == []


@contextmanager
def mutated_wals(path: Path, folder: Path, count: int, seed: int) -> Iterator[Iterator[Path]]:
    """Copies of a store in use whose write-ahead log is cut somewhere, or has one bit flipped."""
    chance = random.Random(seed)
    wal = path.with_name(f"{path.name}-wal").read_bytes()

    def mutate() -> Iterator[Path]:
        for n in range(count):
            copy = folder / f"{n}" / "events.db"
            copy.parent.mkdir()
            shutil.copy(path, copy)
            content = bytearray(wal)
            at = chance.randrange(len(content))
            if n % 2:
                content[at] ^= 1 << chance.randrange(8)
            else:
                del content[at:]
            copy.with_name("events.db-wal").write_bytes(content)
            yield copy
            shutil.rmtree(copy.parent)

    yield mutate()


async def test_a_torn_or_flipped_write_ahead_log_recovers_a_prefix_and_the_bus_gives_back_the_rest(
    log: EventLog, log_path: Path, clock: ManualClock, tmp_path: Path
) -> None:
    """60 copies; the checkpoint is in the transaction of its events, so it tells where to read on."""
    seed = 20261130
    print("seed", seed)
    batches = [
        a_batch(*(a_turn(f"turn {n}", turn_id=f"t{n}") for n in range(first, first + 3)), read_to=first + 3)
        for first in range(0, 60, 3)
    ]
    for batch in batches:
        await log.append(batch)
    whole = stored_rows(log_path, "SELECT seq, chain FROM events ORDER BY seq")
    kept_counts: set[int] = set()

    with mutated_wals(log_path, tmp_path, 60, seed) as copies:
        for copy in copies:
            try:
                again = await EventLog.open(copy, clock, seeded_nonces(1), SECRET)
            except StoreUnusable:  # not even the schema was moved to the main file when the log was torn
                pytest.fail("a torn write-ahead log keeps nobody from opening the store")
            await again.read(check_start)
            kept = stored_rows(copy, "SELECT seq, chain FROM events ORDER BY seq")
            position = await again.read_checkpoint("MEMFOREST")
            read_to = position.seq if position else 0
            missing = [event for batch in batches[read_to // 3 :] for event in batch.events]
            given_back = await again.append(a_batch(*missing, read_to=60))
            mended = stored_rows(copy, "SELECT seq, chain FROM events ORDER BY seq")
            await again.close()
            kept_counts.add(len(kept))

            assert kept == whole[: len(kept)]
            assert len(kept) == read_to, "the checkpoint stands for exactly what is there"
            assert {outcome.verdict for outcome in given_back} <= {Verdict.RECORDED}
            assert mended == whole

    assert len(kept_counts) > 5, "the copies were torn in different places"


async def test_an_older_schema_is_migrated_and_what_was_is_kept_beside_it(
    log_path: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(log_path, clock)
    await log.append_event(a_turn("words of before"))
    await log.close()
    newer = (*MIGRATIONS, "CREATE TABLE added (x);")
    open_writer(log_path, clock(), migrations=newer).close()
    (copy,) = copies_before_migration(log_path)

    assert copy.name == f"events.db.before-{len(MIGRATIONS)}"
    assert copy.stat().st_mode & 0o777 == 0o600
    assert stored_rows(copy, "SELECT count(*) FROM events") == [(1,)]
    assert stored_rows(copy, "PRAGMA user_version") == [(len(MIGRATIONS),)]
    assert stored_rows(log_path, "PRAGMA user_version") == [(len(newer),)]
    assert stored_rows(log_path, "SELECT * FROM added") == []
    with pytest.raises(StoreUnusable, match="newer release"):
        open_writer(log_path, clock())


@pytest.mark.parametrize(
    "broken", ["CREATE TABLE events (x);", "CREATE TABLE added (x);\nINSERT INTO nowhere VALUES (1);"]
)
async def test_a_migration_that_fails_leaves_the_store_as_it_was(
    log_path: Path, clock: ManualClock, broken: str
) -> None:
    await (await EventLog.open(log_path, clock)).close()
    before = stored_bytes(log_path)
    with pytest.raises(StoreUnusable):
        open_writer(log_path, clock(), migrations=(*MIGRATIONS, broken))

    assert stored_bytes(log_path) == before
    await (await EventLog.open(log_path, clock)).close()


async def test_a_new_store_leaves_no_copy(log: EventLog, log_path: Path) -> None:
    assert copies_before_migration(log_path) == []


async def test_a_closed_log_says_that_it_is_closed_and_not_that_the_disk_failed(
    log_path: Path, clock: ManualClock
) -> None:
    log = await EventLog.open(log_path, clock)
    await log.close()
    reader = await LogReader.open_to_read(log_path)
    await reader.close()

    for call in (log.probe, log.answer):
        with pytest.raises(LogClosed):
            await call()
    assert log.failure is None
