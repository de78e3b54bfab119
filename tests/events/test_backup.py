"""A copy of a store is whole, says so only when it is, and holds nothing that was erased."""

from __future__ import annotations

import os
import sqlite3
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import anyio
import pytest

from events.appending import Batch
from events.backup import (
    copy_store,
    read_forgotten,
    read_secret,
    verify_copy,
)
from events.erasure import erase_slice
from events.errors import LogDamaged, StoreIsNewer, StoreUnusable
from events.log import EventLog
from events.migrations import MIGRATIONS
from events.schema import open_reader
from events.tombstones import Tombstone, plant_tombstones
from tests.builders import KEYS, MONDAY, SECRET, a_forgetting, a_turn
from tests.stored import damage, stored_rows, stored_tables

ROOT = Path(__file__).resolve().parents[2]


async def fill(log: EventLog, turns: int, user_id: str = "alice") -> None:
    events = [
        a_turn(f"Xylophon <{n}>", user_id=user_id, session_id=f"s{n % 3}", turn_id=f"t{n}") for n in range(turns)
    ]
    for at in range(0, turns, 100):
        await log.append(Batch(events=tuple(events[at : at + 100])))


def bytes_of(path: Path) -> bytes:
    return path.read_bytes()


def write(path: Path, content: bytes) -> None:
    path.write_bytes(content)


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "copy.db"


async def test_a_copy_of_a_store_that_is_written_has_every_row_of_it(
    log: EventLog, log_path: Path, copy: Path
) -> None:
    await fill(log, 20)
    await fill(log, 5, user_id="bob")
    copy_store(log_path, copy)
    contents = verify_copy(copy)

    assert (contents.schema, contents.head_seq, contents.users, contents.unerased) == (len(MIGRATIONS), 25, 2, 0)
    assert stored_tables(copy) == stored_tables(log_path)
    assert read_secret(copy) == SECRET


async def test_a_copy_made_between_appends_is_a_prefix_of_the_log(
    log: EventLog, log_path: Path, copy: Path
) -> None:
    await fill(log, 30)
    copy_store(log_path, copy)
    await fill(log, 30, user_id="bob")
    chains = stored_rows(log_path, "SELECT seq, chain FROM events ORDER BY seq")

    assert verify_copy(copy).head_seq == 30
    assert stored_rows(copy, "SELECT seq, chain FROM events ORDER BY seq") == chains[:30]


def locks_of_this_process(path: Path) -> set[tuple[str, str]]:
    """First and last byte of each lock that we hold on a file (proc(5), /proc/locks)."""
    inode = str(path.stat().st_ino)
    fields = [line.split() for line in Path("/proc/locks").read_text().splitlines()]
    return {(f[-2], f[-1]) for f in fields if f[-4] == str(os.getpid()) and f[-3].rpartition(":")[2] == inode}


async def test_a_log_that_is_written_shows_to_whoever_copies_it_that_somebody_uses_it(
    log: EventLog, log_path: Path
) -> None:
    """By the lock on byte 128 of its wal-index (os_unix.c, UNIX_SHM_DMS), which goes when we close any file there.

    Without it a copying process takes itself for the first, cuts the wal-index, and we end with SIGBUS.
    """
    await fill(log, 9)

    assert ("128", "128") in locks_of_this_process(log_path.with_name("events.db-shm"))


async def test_a_copy_can_go_on_as_a_log(log: EventLog, log_path: Path, copy: Path) -> None:
    await fill(log, 3)
    copy_store(log_path, copy)
    again = await EventLog.open(copy, lambda: MONDAY)
    await again.append_event(a_turn("And one more.", turn_id="later"))
    await again.close()

    assert verify_copy(copy).head_seq == 4


async def test_a_copy_holds_no_byte_of_what_was_erased(log: EventLog, log_path: Path, copy: Path) -> None:
    await fill(log, 30)
    await log.append_event(a_forgetting("s1"))
    while not await log.write(lambda connection: erase_slice(connection, KEYS.session("alice", "s1"))):
        pass
    copy_store(log_path, copy)

    assert {n for n in range(30) if f"Xylophon <{n}>".encode() in bytes_of(copy)} == {
        n for n in range(30) if n % 3 != 1
    }


async def test_what_is_forgotten_and_not_erased_in_a_copy_is_counted(
    log: EventLog, log_path: Path, copy: Path
) -> None:
    await fill(log, 6)
    await log.append_event(a_forgetting("s1"))
    copy_store(log_path, copy)

    assert verify_copy(copy).unerased == 1


@pytest.mark.parametrize(
    ("harm", "named"),
    [
        ("UPDATE words SET text = CAST('Xylophon!' AS BLOB) WHERE seq = 7 AND n = 0", "seq 7"),
        ("DELETE FROM words WHERE seq = 7", "seq 7"),
        ("UPDATE events SET happened_at = happened_at + 1 WHERE seq = 4", "seq 4"),
        ("DELETE FROM events WHERE seq = 4", "seq 4"),
        ("DELETE FROM events WHERE seq = 9", "seq 9"),
        ("UPDATE head SET seq = 8", "running hash"),
        ("UPDATE head SET running = zeroblob(32)", "running hash"),
        ("UPDATE users SET chain = zeroblob(32)", "last one of its user"),
    ],
)
async def test_a_copy_with_one_thing_changed_is_refused_and_the_place_is_named(
    log: EventLog, log_path: Path, copy: Path, harm: str, named: str
) -> None:
    await fill(log, 9)
    copy_store(log_path, copy)
    verify_copy(copy)
    damage(copy, harm)

    with pytest.raises(LogDamaged, match=named) as refusal:
        verify_copy(copy)
    assert "Xylophon" not in str(refusal.value)


async def test_a_copy_with_a_flipped_page_is_refused(log: EventLog, log_path: Path, copy: Path) -> None:
    await fill(log, 200)
    copy_store(log_path, copy)
    content = bytearray(bytes_of(copy))
    content[4096 * 3 : 4096 * 3 + 64] = bytes(64)  # the header of a b-tree page
    write(copy, bytes(content))

    with pytest.raises((LogDamaged, StoreUnusable)):
        verify_copy(copy)


@pytest.mark.parametrize(
    ("content", "error"), [(b"", StoreUnusable), (b"no database at all" * 100, LogDamaged), (None, StoreUnusable)]
)
def test_a_file_that_is_no_store_is_refused(copy: Path, content: bytes | None, error: type[Exception]) -> None:
    if content is not None:
        copy.write_bytes(content)

    with pytest.raises(error):
        verify_copy(copy)
    assert copy.exists() == (content is not None)


async def test_a_store_of_a_newer_release_is_refused(log: EventLog, log_path: Path, copy: Path) -> None:
    copy_store(log_path, copy)
    with closing(sqlite3.connect(copy)) as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")

    for refuse in (verify_copy, read_secret):
        with pytest.raises(StoreIsNewer):
            refuse(copy)


async def test_a_copy_goes_over_no_file_with_something_in_it(log: EventLog, log_path: Path, copy: Path) -> None:
    write(copy, b"somebody's")

    with pytest.raises(StoreUnusable):
        copy_store(log_path, copy)
    assert bytes_of(copy) == b"somebody's"


class Enough(Exception):
    """Somebody wants no more of it."""


@pytest.mark.parametrize("work", [copy_store, lambda source, _copy, watch: verify_copy(source, watch)])
async def test_whoever_watches_can_end_the_work(
    log: EventLog, log_path: Path, copy: Path, work: Callable[..., object]
) -> None:
    await fill(log, 1500)

    def watch(_step: str, _share: float) -> None:
        raise Enough

    with pytest.raises(Enough):
        work(log_path, copy, watch)


# Python ignores SIGXFSZ, so a write above the limit fails as on a full disk.
COPY_WITHOUT_ROOM = """
import resource, sys
from pathlib import Path
from events.backup import copy_store
resource.setrlimit(resource.RLIMIT_FSIZE, (200_000, 200_000))
copy_store(Path(sys.argv[1]), Path(sys.argv[2]))
"""


async def test_a_copy_that_finds_no_room_is_a_clear_sentence(log: EventLog, log_path: Path, copy: Path) -> None:
    await fill(log, 1500)
    command = [sys.executable, "-c", COPY_WITHOUT_ROOM, str(log_path), str(copy)]
    ended = await anyio.run_process(command, cwd=ROOT, check=False)

    assert b"StoreUnusable: there is no room for the copy, or its disk fails" in ended.stderr


async def test_a_store_tells_what_it_knows_to_be_forgotten(log: EventLog, log_path: Path) -> None:
    alice, bob = KEYS.user("alice"), KEYS.user("bob")
    await fill(log, 6)
    await log.append_event(a_forgetting("s1"))
    elsewhere = (Tombstone(None, bob, 7), Tombstone(KEYS.session("alice", "s9"), alice, 8))
    await log.write(lambda connection: plant_tombstones(connection, elsewhere))

    assert set(read_forgotten(log_path)) == {Tombstone(KEYS.session("alice", "s1"), alice, MONDAY), *elsewhere}


async def test_sessions_of_a_copy_that_others_forgot_are_counted(
    log: EventLog, log_path: Path, copy: Path
) -> None:
    alice = KEYS.user("alice")
    await fill(log, 6)
    await fill(log, 6, user_id="bob")
    known, unknown = KEYS.session("alice", "s1"), KEYS.session("alice", "never here")
    elsewhere = [Tombstone(known, alice, 8), Tombstone(unknown, alice, 8), Tombstone(None, KEYS.user("bob"), 8)]
    await log.write(lambda connection: plant_tombstones(connection, elsewhere))
    copy_store(log_path, copy)

    assert verify_copy(copy).unerased == 2


async def test_reading_a_copy_changes_no_byte_of_it(log: EventLog, log_path: Path, copy: Path) -> None:
    await fill(log, 9)
    copy_store(log_path, copy)
    before = bytes_of(copy)
    verify_copy(copy)
    read_forgotten(copy)
    open_reader(copy).close()

    assert bytes_of(copy) == before
    assert [path.name for path in copy.parent.iterdir() if path.name.startswith("copy")] == ["copy.db"]
