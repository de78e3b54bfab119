"""`memforestd backup`, `restore` and `migrate`: nothing is lost on the way, and nothing forgotten comes back."""

from __future__ import annotations

import hashlib
import json
import os
import resource
import shutil
import signal
import sqlite3
import sys
from collections.abc import Callable, Sequence
from contextlib import closing
from functools import partial
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner, Result

from daemon import command_line
from daemon.bus.tombstone_sources import TombstoneList
from daemon.cli import main
from daemon.lifecycle import lock_directory
from daemon.upkeep.backup import back_up
from daemon.upkeep.restore import restore_backup
from events.appending import Batch
from events.backup import read_forgotten, verify_copy
from events.envelope import NewEvent
from events.log import EventLog
from events.migrations import MIGRATIONS
from events.tombstones import Tombstone
from tests.builders import KEYS, MONDAY, SECRET, a_forgetting, a_turn
from tests.stored import damage, stored_bytes, stored_rows, stored_tables

ALICE = KEYS.user("alice")
S1 = Tombstone(KEYS.session("alice", "s1"), ALICE, MONDAY)
S2 = Tombstone(KEYS.session("alice", "s2"), ALICE, MONDAY)


# An embedded bus without a store, so that nobody waits for one to answer.
NO_BUS = {"MEMFOREST_BUS_EMBEDDED": "true"}


def append(folder: Path, *events: NewEvent, secret: bytes = SECRET) -> None:
    """Write events into the store of a data directory, and close it."""

    async def write() -> None:
        log = await EventLog.open(folder / "events.db", lambda: MONDAY, secret=secret)
        await log.append(Batch(events=events))
        await log.close()

    folder.mkdir(mode=0o700, exist_ok=True)
    anyio.run(write)


def turns_of(*sessions: str) -> list[NewEvent]:
    return [
        a_turn(f"Xylophon {session} {n}", session_id=session, turn_id=f"{n}") for session in sessions for n in "ab"
    ]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data directory with three sessions in it and no daemon."""
    append(tmp_path / "data", *turns_of("s1", "s2", "s3"))
    return tmp_path / "data"


@pytest.fixture
def backup(folder: Path, tmp_path: Path) -> Path:
    """A backup of `folder`."""
    back_up(folder, tmp_path / "backup.db")
    return tmp_path / "backup.db"


def invoke(*arguments: str | Path, data: Path) -> Result:
    return CliRunner().invoke(main, [*map(str, arguments), "--data", str(data)], env=NO_BUS)


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


def lasting_in(folder: Path) -> set[str]:
    """Without what a reader may leave beside a store, since it cannot remove it."""
    return names_in(folder) - {"events.db-wal", "events.db-shm"}


def events_of(path: Path) -> int:
    """How many events a store holds; it must be sound, and stand without a write-ahead log."""
    assert not path.with_name(f"{path.name}-wal").exists()
    return verify_copy(path).head_seq


# Backing up


def test_a_backup_is_a_verified_copy_with_its_hash_for_the_owner_alone(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"
    result = invoke("backup", target, data=folder)

    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    assert result.exit_code == 0
    assert result.stdout == (
        f"{target}: verified, 6 events, 1 users, {target.stat().st_size} bytes, head seq 6, sha256 {digest}\n"
    )
    assert "the store's secret" in result.stderr
    assert target.stat().st_mode & 0o777 == 0o600
    assert stored_tables(target) == stored_tables(folder / "events.db")
    assert names_in(tmp_path) == {"data", "backup.db"}


def test_a_backup_says_what_is_forgotten_and_not_erased_in_it(folder: Path, tmp_path: Path) -> None:
    append(folder, a_forgetting("s1"))
    result = invoke("backup", tmp_path / "backup.db", "--json", data=folder)

    assert json.loads(result.stdout)["forgotten_not_erased"] == 1
    assert "1 sessions or users in it are forgotten and not erased yet" in result.stderr


@pytest.mark.parametrize("kind", ["file", "folder", "broken link"])
def test_a_backup_overwrites_nothing(folder: Path, tmp_path: Path, kind: str) -> None:
    target = tmp_path / "backup.db"
    if kind == "file":
        target.write_text("somebody's")
    elif kind == "folder":
        target.mkdir()
    else:
        target.symlink_to(tmp_path / "nowhere")
    result = invoke("backup", target, data=folder)

    assert result.exit_code in (command_line.EX_USAGE, 2)  # click itself refuses a folder
    assert names_in(tmp_path) == {"data", "backup.db"}
    assert kind != "file" or target.read_text() == "somebody's"


def test_a_backup_that_finds_another_of_its_name_at_the_end_leaves_that(folder: Path, tmp_path: Path) -> None:
    target = tmp_path / "backup.db"

    def come_between(step: str, _share: float) -> None:
        if step == "hashing":
            target.write_text("somebody's")

    with pytest.raises(Exception, match="overwrites nothing"):
        back_up(folder, target, come_between)
    assert target.read_text() == "somebody's"
    assert names_in(tmp_path) == {"data", "backup.db"}


def test_a_backup_in_the_data_directory_is_refused(folder: Path) -> None:
    result = invoke("backup", folder / "backup.db", data=folder)

    assert result.exit_code == command_line.EX_USAGE
    assert "backup.db" not in names_in(folder)


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        ("UPDATE words SET text = CAST('Xylophon!' AS BLOB) WHERE seq = 2 AND n = 0", command_line.EX_DATAERR),
        (f"PRAGMA user_version = {len(MIGRATIONS) + 1}", command_line.EX_CONFIG),
        ("PRAGMA application_id = 7", command_line.EX_IOERR),
    ],
)
def test_a_store_that_is_not_sound_gives_no_backup(folder: Path, tmp_path: Path, harm: str, code: int) -> None:
    damage(folder / "events.db", harm)
    result = invoke("backup", tmp_path / "backup.db", data=folder)

    assert result.exit_code == code
    assert result.stderr.startswith("memforestd: ")
    assert "Xylophon" not in result.output
    assert names_in(tmp_path) == {"data"}


def test_a_data_directory_without_a_store_gives_no_backup(tmp_path: Path) -> None:
    result = invoke("backup", tmp_path / "backup.db", data=tmp_path / "nothing")

    assert result.exit_code == command_line.EX_IOERR
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize("step", ["copying", "checking the file", "hashing"])
def test_a_backup_that_is_ended_leaves_no_file(folder: Path, tmp_path: Path, step: str) -> None:
    append(folder, *(a_turn("long " * 200, turn_id=f"t{n}") for n in range(1000)))

    def end(now: str, _share: float) -> None:
        if now == step:
            os.kill(os.getpid(), signal.SIGINT)

    with pytest.raises(KeyboardInterrupt):
        back_up(folder, tmp_path / "backup.db", end)
    assert names_in(tmp_path) == {"data"}


def in_child(work: Callable[[], object]) -> int:
    """Do `work` in a process of its own, which it may harm; how that ended (as of waitpid)."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)
    return os.waitpid(child, 0)[1]


@pytest.mark.parametrize("command", ["backup", "restore"])
def test_a_full_disk_leaves_no_partial_file_and_a_clear_sentence(tmp_path: Path, command: str) -> None:
    data, target, said = tmp_path / "data", tmp_path / "backup.db", tmp_path / "said.json"
    append(data, *(a_turn("long " * 200, turn_id=f"t{n}") for n in range(1000)))
    if command == "restore":
        back_up(data, target)
    before = names_in(tmp_path), stored_tables(data / "events.db")

    def run_without_room() -> None:
        # Python ignores SIGXFSZ, so a write above the limit fails as on a full disk.
        resource.setrlimit(resource.RLIMIT_FSIZE, (400_000, 400_000))
        result = invoke(command, target, data=data)
        said.write_text(json.dumps([result.exit_code, result.output]))

    in_child(run_without_room)
    ended = json.loads(said.read_text())
    said.unlink()

    assert ended == [
        command_line.EX_IOERR,
        "memforestd: there is no room for the copy, or its disk fails\n",
    ]
    assert names_in(tmp_path) == before[0]
    assert lasting_in(data) == {"events.db"} | ({"lock"} if command == "restore" else set())
    assert stored_tables(data / "events.db") == before[1]


# Restoring


def test_a_restored_store_is_the_backup_and_knows_what_was_forgotten_since(folder: Path, backup: Path) -> None:
    append(folder, a_turn("Xylophon later", session_id="s4", turn_id="a"), a_forgetting("s1"))
    (folder / "derived.db").touch()
    (folder / "derived.db-wal").touch()
    (folder / "ballast").touch()
    result = invoke("restore", backup, data=folder)

    assert result.exit_code == 0
    assert result.stdout == (
        "restored and verified: 6 events, 1 users, head seq 6; tombstones: store 1; 1 of them new to it;"
        " 1 sessions or users to be erased at the next start\n"
    )
    assert names_in(folder) == {"events.db", "lock", "ballast"}
    assert (folder / "events.db").stat().st_mode & 0o777 == 0o600
    assert events_of(folder / "events.db") == 6
    assert read_forgotten(folder / "events.db") == (S1,)
    assert stored_rows(folder / "events.db", "SELECT seq, text FROM words") == stored_rows(
        backup, "SELECT seq, text FROM words"
    )
    assert b"Xylophon later" not in stored_bytes(folder / "events.db")


def test_what_the_backup_forgot_itself_is_no_tombstone_from_elsewhere(folder: Path, tmp_path: Path) -> None:
    append(folder, a_forgetting("s2"))
    back_up(folder, tmp_path / "backup.db")
    append(folder, a_forgetting("s1"))
    done = restore_backup(tmp_path / "backup.db", folder, MONDAY)

    assert (done.tombstones, done.tombstones_added) == ({"store": 2}, 1)
    assert stored_rows(folder / "events.db", "SELECT session FROM tombstones") == [(S1.session,)]


def test_a_restore_without_a_source_is_refused_and_changes_nothing(backup: Path, tmp_path: Path) -> None:
    result = invoke("restore", backup, data=tmp_path / "new")

    assert result.exit_code == command_line.EX_UNAVAILABLE
    assert "--receipts" in result.stderr
    assert "no store stands in the data directory" in result.stderr
    assert "the embedded bus has no store yet" in result.stderr
    assert names_in(tmp_path / "new") == {"lock"}


def test_a_forced_restore_says_what_that_means(backup: Path, tmp_path: Path) -> None:
    result = invoke("restore", backup, "--force", data=tmp_path / "new")

    assert result.exit_code == 0
    assert "WARNING: nothing told what was forgotten since this backup" in result.stderr
    assert events_of(tmp_path / "new" / "events.db") == 6


def test_receipts_are_a_source(backup: Path, tmp_path: Path) -> None:
    assert S1.session is not None
    lines: Sequence[object] = [
        {"session_id": "s1", "complete": True, "tombstone": a_line(S1, MONDAY)},
        a_line(S2, "2024-07-01T09:00:00Z"),
        {"session": None, "user": KEYS.user("bob").hex(), "forgotten_at": 7},
    ]
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text("\n".join(json.dumps(line) for line in lines) + "\n\n")
    result = invoke("restore", backup, "--receipts", receipts, "--json", data=tmp_path / "new")

    assert result.exit_code == 0
    assert json.loads(result.stdout)["tombstones"] == {"receipts": 3}
    assert set(read_forgotten(tmp_path / "new" / "events.db")) == {S1, S2, Tombstone(None, KEYS.user("bob"), 7)}


def a_line(tombstone: Tombstone, forgotten_at: object) -> dict[str, object]:
    assert tombstone.session is not None
    return {"session": tombstone.session.hex(), "user": tombstone.user.hex(), "forgotten_at": forgotten_at}


@pytest.mark.parametrize(
    "line",
    [
        "no JSON",
        "{}",
        json.dumps({"user": ALICE.hex(), "forgotten_at": 1}),  # not to be read as the whole user
        json.dumps({"session": "zz", "user": ALICE.hex(), "forgotten_at": 1}),
        json.dumps({"session": "00", "user": ALICE.hex(), "forgotten_at": 1}),
        json.dumps(a_line(S1, None)),
        json.dumps(a_line(S1, "yesterday")),
        json.dumps(a_line(S1, "2024-07-01T09:00:00")),
        json.dumps(a_line(S1, 1 << 60)),
    ],
)
def test_a_line_that_is_no_receipt_is_named_and_nothing_is_restored(
    backup: Path, tmp_path: Path, line: str
) -> None:
    receipts = tmp_path / "receipts.jsonl"
    receipts.write_text(json.dumps(a_line(S2, MONDAY)) + "\n" + line + "\n")
    result = invoke("restore", backup, "--receipts", receipts, data=tmp_path / "new")

    assert result.exit_code == command_line.EX_USAGE
    assert "line 2" in result.stderr
    assert not (tmp_path / "new" / "events.db").exists()


def test_of_several_wishes_to_forget_a_session_the_last_one_counts(folder: Path, backup: Path) -> None:
    append(folder, a_forgetting("s1"))
    later = Tombstone(S1.session, ALICE, MONDAY + 5)
    earlier = Tombstone(S1.session, ALICE, MONDAY - 5)
    done = restore_backup(
        backup,
        folder,
        MONDAY,
        (TombstoneList("receipts", (earlier,)),),
        lambda: TombstoneList("bus", (later,)),
    )

    assert done.tombstones == {"receipts": 1, "store": 1, "bus": 1}
    assert read_forgotten(folder / "events.db") == (later,)


def test_a_restore_beside_a_daemon_is_refused(folder: Path, backup: Path) -> None:
    lock = lock_directory(folder)
    result = invoke("restore", backup, data=folder)
    os.close(lock)

    assert result.exit_code == command_line.EX_TEMPFAIL
    assert lasting_in(folder) == {"events.db", "lock"}


@pytest.mark.parametrize(
    ("harm", "code"),
    [
        ("UPDATE words SET text = CAST('Xylophon!' AS BLOB) WHERE seq = 2 AND n = 0", command_line.EX_DATAERR),
        (f"PRAGMA user_version = {len(MIGRATIONS) + 1}", command_line.EX_CONFIG),
        ("PRAGMA application_id = 7", command_line.EX_IOERR),
    ],
)
def test_a_backup_that_is_not_sound_replaces_nothing(folder: Path, backup: Path, harm: str, code: int) -> None:
    append(folder, a_turn("Xylophon later", session_id="s4", turn_id="a"))
    damage(backup, harm)
    result = invoke("restore", backup, data=folder)

    assert result.exit_code == code
    assert lasting_in(folder) == {"events.db", "lock"}
    assert verify_copy(folder / "events.db").head_seq == 7


def test_the_store_of_somebody_else_is_not_replaced_unless_forced(backup: Path, tmp_path: Path) -> None:
    append(tmp_path / "other", a_turn(), secret=b"another secret, of another store")
    refused = invoke("restore", backup, data=tmp_path / "other")
    still = verify_copy(tmp_path / "other" / "events.db").head_seq
    forced = invoke("restore", backup, "--force", data=tmp_path / "other")

    assert (refused.exit_code, still) == (command_line.EX_USAGE, 1)
    assert (forced.exit_code, events_of(tmp_path / "other" / "events.db")) == (0, 6)


def leave_wal(folder: Path, *events: NewEvent) -> None:
    """As after a kill: the last events stand in the write-ahead log only."""
    killed = folder.with_name("killed")

    async def write() -> None:
        log = await EventLog.open(folder / "events.db", lambda: MONDAY)
        await log.append(Batch(events=events))
        copy_files(folder, killed)
        await log.close()

    anyio.run(write)
    copy_files(killed, folder)
    shutil.rmtree(killed)


def copy_files(source: Path, target: Path) -> None:
    target.mkdir(exist_ok=True)
    for path in source.glob("events.db*"):
        (target / path.name).write_bytes(path.read_bytes())


def test_the_write_ahead_log_of_the_replaced_store_is_heard_and_not_replayed(folder: Path, backup: Path) -> None:
    leave_wal(folder, *turns_of("s5"), a_forgetting("s1"))
    done = restore_backup(backup, folder, MONDAY)

    assert done.tombstones == {"store": 1}
    assert names_in(folder) == {"events.db", "lock"}
    assert events_of(folder / "events.db") == 6
    assert read_forgotten(folder / "events.db") == (S1,)


@pytest.mark.parametrize("keep", [False, True])
def test_a_store_that_cannot_be_read_any_more_is_replaced_with_its_write_ahead_log(
    folder: Path, backup: Path, keep: bool
) -> None:
    leave_wal(folder, *turns_of("s5"))
    (folder / "events.db").write_bytes(b"no database any more" * 500)
    refused = invoke("restore", backup, data=folder)
    forced = invoke("restore", backup, "--force", *(["--keep-replaced"] if keep else []), data=folder)

    assert (refused.exit_code, forced.exit_code) == (command_line.EX_UNAVAILABLE, 0)
    assert names_in(folder) == {"events.db", "lock", *(["replaced"] if keep else [])}
    assert not keep or names_in(folder / "replaced") == {"events-1.db", "events-1.db-wal"}
    assert events_of(folder / "events.db") == 6


def test_a_replaced_store_is_kept_only_when_asked_for(folder: Path, backup: Path) -> None:
    append(folder, a_turn("Xylophon later", session_id="s4", turn_id="a"))
    first = restore_backup(backup, folder, MONDAY, keep_replaced=True)
    second = restore_backup(backup, folder, MONDAY, keep_replaced=True)
    third = restore_backup(backup, folder, MONDAY)

    assert [first.kept_at, second.kept_at, third.kept_at] == [
        str(folder / "replaced" / "events-1.db"),
        str(folder / "replaced" / "events-2.db"),
        None,
    ]
    assert [events_of(folder / "replaced" / name) for name in ("events-1.db", "events-2.db")] == [7, 6]


# What a restore changes in folders, as Python's audit hooks see it.
CHANGES = ("os.rename", "os.remove", "os.link", "os.mkdir", "os.chown", "sqlite3.connect")


def die_at(number: int, work: Callable[[], object]) -> bool:
    """Do `work` in a process of its own that is killed right before its `number`-th change; whether it was."""

    def mortal() -> None:
        count = 0

        def hook(event: str, _arguments: object) -> None:
            nonlocal count
            if event in CHANGES:
                count += 1
                if count == number:
                    os.kill(os.getpid(), signal.SIGKILL)

        sys.addaudithook(hook)
        work()

    return os.WIFSIGNALED(in_child(mortal))


def test_a_restore_that_is_killed_anywhere_leaves_the_old_or_the_new_store(
    folder: Path, backup: Path, tmp_path: Path
) -> None:
    leave_wal(folder, a_forgetting("s1"))
    found: list[int] = []
    for number in range(1, 100):
        data = tmp_path / f"data-{number}"
        copy_files(folder, data)
        (data / "derived.db").touch()
        restore = partial(restore_backup, backup, data, MONDAY, keep_replaced=True)
        if not die_at(number, restore):
            break
        found.append(verify_copy(data / "events.db").head_seq)
        assert read_forgotten(data / "events.db") == (S1,)

        # And another try puts an end to it.
        restore_backup(backup, data, MONDAY)
        assert names_in(data) - {"replaced"} == {"events.db", "lock"}
        assert events_of(data / "events.db") == 6

    assert len(found) >= 10
    assert found == sorted(found, reverse=True)  # first the old one, with 7 events, then the restored one
    assert set(found) == {7, 6}


# Migrating


def test_migrate_says_that_there_is_nothing_to_do(folder: Path) -> None:
    result = invoke("migrate", data=folder)

    assert result.exit_code == 0
    assert result.stdout == f"the schema is of version {len(MIGRATIONS)} already\n"


def test_migrate_brings_an_older_store_to_this_schema(tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "events.db")) as connection:
        connection.execute("PRAGMA journal_mode = WAL")  # a store before its first table
    result = invoke("migrate", "--json", data=tmp_path)

    assert json.loads(result.stdout) == {"before": 0, "after": len(MIGRATIONS)}
    assert events_of(tmp_path / "events.db") == 0


def test_migrate_makes_no_store_where_none_is(tmp_path: Path) -> None:
    result = invoke("migrate", data=tmp_path)

    assert result.exit_code == command_line.EX_IOERR
    assert names_in(tmp_path) == set()


def test_migrate_refuses_a_store_of_a_newer_release_and_one_in_use(folder: Path) -> None:
    lock = lock_directory(folder)
    in_use = invoke("migrate", data=folder)
    os.close(lock)
    damage(folder / "events.db", f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    newer = invoke("migrate", data=folder)

    assert (in_use.exit_code, newer.exit_code) == (command_line.EX_TEMPFAIL, command_line.EX_CONFIG)
