"""The watch over the disk, and when ingest waits for it: on a real folder, with free room as the test says."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import anyio
import anyio.lowlevel
import pytest

from daemon.backpressure import Backpressure
from daemon.disk import MIB, Ballast, Disk, free_bytes
from daemon.memories import Memories
from events.database import DISK_FULL, LOCKED
from events.errors import StoreUnusable
from events.log import EventLog
from tests.builders import a_batch, a_forgetting, a_turn
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, unwritable
from tests.waiting import wait_until

BALLAST = 256 * 1024


class Room:
    """The free room of a disk, as the test sets it."""

    def __init__(self, free: int) -> None:
        self.free = free

    def __call__(self, _: Path) -> int:
        return self.free


def watch(log: EventLog, room: Room, reported: Reported, **more: int) -> Disk:
    return Disk(log, reported, ballast_bytes=BALLAST, free_min_bytes=MIB, pause_s=0.01, free=room, **more)


@pytest.fixture
def reported() -> Reported:
    return Reported()


def test_the_ballast_really_takes_its_room_and_gives_it_back(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", BALLAST)
    before = ballast.is_whole()
    made = ballast.make()
    found = ballast.path.stat()
    whole = ballast.is_whole()

    assert (before, made, whole) == (False, True, True)
    assert (found.st_size, found.st_mode & 0o777) == (BALLAST, 0o600)
    assert found.st_blocks * 512 >= BALLAST, "a hole would be no room"
    assert (ballast.give_up(), ballast.path.exists(), ballast.give_up()) == (True, False, False)


def test_a_ballast_of_another_size_or_with_holes_is_made_again(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", BALLAST)
    ballast.path.write_bytes(b"x")
    other_size = ballast.is_whole()
    with ballast.path.open("r+b") as file:
        file.truncate(BALLAST)
    holes = ballast.is_whole()
    ballast.make()

    assert (other_size, holes, ballast.is_whole()) == (False, False, True)


def test_a_ballast_of_nothing_is_always_whole_and_leaves_no_file(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", 0)

    assert (ballast.is_whole(), ballast.make(), ballast.path.exists()) == (True, True, False)


def test_a_ballast_that_does_not_fit_leaves_nothing_behind(tmp_path: Path) -> None:
    ballast = Ballast(tmp_path / "ballast", 1 << 55)

    assert (ballast.make(), ballast.path.exists()) == (False, False)


def test_the_free_room_of_a_folder_that_is_not_there_is_that_of_the_one_above(tmp_path: Path) -> None:
    assert free_bytes(tmp_path / "not" / "there") > 0


async def test_the_ballast_is_made_only_with_room_to_spare(log: EventLog, reported: Reported) -> None:
    room = Room(MIB + 2 * BALLAST - 1)
    disk = watch(log, room, reported)
    await disk.look()
    before = disk.ballast.path.exists()
    room.free += 1
    await disk.look()

    assert (before, disk.ballast.is_whole()) == (False, True)
    assert reported.events == []


async def test_little_room_is_told_once_and_ends_above_where_it_began(log: EventLog, reported: Reported) -> None:
    room = Room(MIB)
    disk = watch(log, room, reported)
    seen: list[str | None] = []
    for free in (MIB, MIB - 1, MIB, MIB + MIB // 4 - 1, MIB + MIB // 4, MIB):
        room.free = free
        await disk.look()
        seen.append(disk.trouble())

    assert seen == [None, "disk low", "disk low", "disk low", None, None]
    assert reported.events == [
        ("store.degraded", {"reason": "disk low", "free_bytes": MIB - 1}),
        ("store.recovered", {}),
    ]


async def test_after_a_failed_write_it_is_tried_until_it_works_again(
    log: EventLog, log_path: Path, reported: Reported
) -> None:
    disk = watch(log, Room(100 * MIB), reported)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(disk.run)
        with unwritable(log_path):
            with pytest.raises(StoreUnusable):
                await log.append_event(a_turn())
            await wait_until(lambda: reported.names() == ["store.degraded"])
            during = disk.trouble()
        await wait_until(lambda: reported.names() == ["store.degraded", "store.recovered"])
        tasks.cancel_scope.cancel()

    assert (during, disk.trouble()) == (LOCKED, None)
    assert reported.fields("store.degraded")[0]["reason"] == LOCKED
    assert (await log.append_event(a_turn())).seq == 1


async def test_the_ballast_is_given_up_for_forgetting_and_turns_wait_until_it_is_back(
    log: EventLog, reported: Reported
) -> None:
    room = Room(100 * MIB)
    disk = watch(log, room, reported)
    await disk.look()
    await log.append_event(a_turn())

    def fill(_: sqlite3.Connection) -> None:
        """A transaction that finds no room as long as the ballast takes it."""
        if disk.ballast.path.exists():
            error = sqlite3.OperationalError()
            error.sqlite_errorname = "SQLITE_FULL"
            raise error

    room.free = 0
    await log.write(fill)
    with pytest.raises(StoreUnusable) as raised:
        await log.append_event(a_turn(turn_id="t2"))
    await log.append_event(a_forgetting())
    await disk.look()
    during = disk.trouble()
    room.free = 100 * MIB
    await disk.look()
    await log.append_event(a_turn(user_id="bob"))

    assert raised.value.reason == during == DISK_FULL
    assert (disk.trouble(), disk.ballast.is_whole()) == (None, True)
    assert reported.names() == ["store.ballast_given_up", "store.degraded", "store.recovered"]
    assert reported.fields("store.ballast_given_up") == [{"bytes": BALLAST}]


async def test_an_idle_log_is_moved_and_a_long_one_cut(log: EventLog, reported: Reported) -> None:
    disk = watch(log, Room(100 * MIB), reported)
    await log.append_event(a_turn())
    await disk.look()  # it grew since
    busy = log.pages_to_move
    await disk.look()
    moved, size = log.pages_to_move, log.wal_bytes
    await log.append(a_batch(*(a_turn("x" * 500_000, turn_id=f"t{n}") for n in range(2, 12))))
    long = log.wal_bytes
    for _ in range(2):
        await disk.look()

    assert busy > 0
    assert (moved, size > 0) == (0, True)
    assert (long > 4 * MIB, log.wal_bytes) == (True, 0)


async def test_a_reader_that_keeps_the_write_ahead_log_is_told_once(
    log: EventLog, log_path: Path, reported: Reported
) -> None:
    disk = watch(log, Room(100 * MIB), reported, wal_large_bytes=MIB)
    await log.append_event(a_turn())
    other = sqlite3.connect(f"{log_path.as_uri()}?mode=ro", uri=True)
    held = other.execute("SELECT * FROM events, (SELECT 1 UNION SELECT 2)")
    held.fetchone()
    for n in range(4):
        await log.append_event(a_turn("x" * 500_000, turn_id=f"large {n}"))
        await disk.look()
    large = disk.wal_is_large
    held.close()
    other.close()
    for _ in range(2):
        await disk.look()

    assert [name for name in reported.names() if name == "store.wal_large"] == ["store.wal_large"]
    assert int(str(reported.fields("store.wal_large")[0]["bytes"])) > MIB
    assert (large, disk.wal_is_large) == (True, False)


class Waiting:
    """A Backpressure on a log with Memories that only a test folds."""

    def __init__(self, log: EventLog, lag_wait_s: float = 60) -> None:
        self.log = log
        self.room = Room(100 * MIB)
        self.reported = Reported()
        self.memories = Memories(log, SMALL, self.reported)
        disk = watch(log, self.room, self.reported)
        self.backpressure = Backpressure(
            log, self.memories, disk, self.reported, lag_events_max=8, pause_s=0.01, lag_wait_s=lag_wait_s
        )

    async def say(self, turns: int, user_id: str = "alice", session_id: str = "s1") -> None:
        """So many turns of a session."""
        events = (a_turn(turn_id=f"{n}", user_id=user_id, session_id=session_id) for n in range(turns))
        await self.log.append(a_batch(*events))

    async def wait(self, done: anyio.Event) -> None:
        """What ingest does before a fetch."""
        await self.backpressure.wait()
        done.set()


async def test_ingest_waits_while_the_disk_is_low_and_goes_on_by_itself(log: EventLog) -> None:
    waiting = Waiting(log)
    await waiting.backpressure.wait()
    waiting.room.free = 0
    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting.wait, done)
        await wait_until(lambda: waiting.backpressure.paused == "disk low")
        assert not done.is_set()
        waiting.room.free = 100 * MIB

    assert waiting.backpressure.paused is None
    assert waiting.reported.events == [("ingest.paused", {"reason": "disk low"}), ("ingest.resumed", {})]


async def test_ingest_waits_for_memories_that_are_far_behind_until_they_are_near_again(log: EventLog) -> None:
    waiting = Waiting(log)
    await waiting.say(20, user_id="bob")
    await waiting.backpressure.wait()  # bob's Memory is not loaded: nobody waits for it
    async with waiting.memories.use(ALICE):
        await waiting.say(9)
    done = anyio.Event()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(waiting.wait, done)
        await wait_until(lambda: waiting.backpressure.paused == "fold lag")
        assert not done.is_set()
        await waiting.memories.catch_up(ALICE)

    assert waiting.reported.names() == ["ingest.paused", "ingest.resumed"]


async def test_once_it_waits_a_lag_must_fall_to_a_quarter(log: EventLog) -> None:
    waiting = Waiting(log)
    async with waiting.memories.use(ALICE):
        await waiting.say(8)
    await waiting.backpressure.wait()
    within = waiting.reported.names()
    waiting.backpressure.paused = "fold lag"
    with anyio.move_on_after(0.1) as scope:
        await waiting.backpressure.wait()

    assert (within, scope.cancelled_caught) == ([], True)


async def test_a_memory_that_never_catches_up_does_not_stop_ingest_for_ever(log: EventLog) -> None:
    waiting = Waiting(log, lag_wait_s=0.1)
    async with waiting.memories.use(ALICE):
        await waiting.say(9)
    with anyio.fail_after(5):
        await waiting.backpressure.wait()

    assert waiting.reported.names() == ["ingest.paused", "ingest.resumed"]


async def test_a_backlog_for_the_models_never_stops_ingest(log: EventLog) -> None:
    waiting = Waiting(log)
    async with waiting.memories.use(ALICE):
        await waiting.say(40)
        memory = await waiting.memories.catch_up(ALICE)
    await waiting.backpressure.wait()

    assert memory.user_seq == 40, "folded, and no model was asked about any of it"
    assert waiting.reported.names() == []
