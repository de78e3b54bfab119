"""`doctor`, check by check: what each mistake is called and how it is mended."""

from __future__ import annotations

import fcntl
import os
import socket
from dataclasses import replace
from pathlib import Path

import anyio
import pytest
from click.testing import CliRunner

from daemon.bus.jetstream_api import NANOSECONDS, StreamConfiguration, stream_configuration
from daemon.bus.subjects import CONTROL_SUBJECTS, TURN_SUBJECTS
from daemon.bus.subscriptions import Subscription
from daemon.cli import main
from daemon.config import Bus, Config, Data
from daemon.disk import MIB
from daemon.upkeep.doctor import create_stream
from daemon.upkeep.doctor_bus import CREATE, examine_bus, examine_clock, examine_stream
from daemon.upkeep.doctor_host import (
    examine_files,
    examine_memory,
    examine_mount,
    examine_python,
    examine_sqlite,
    examine_zones,
    memory_limit_bytes,
    mount_of,
)
from daemon.upkeep.doctor_store import examine_running, examine_socket, examine_store, lock_holder
from daemon.upkeep.findings import Finding
from events.log import EventLog
from tests.builders import ManualClock, a_turn
from tests.nats_rights import server_denying
from tests.nats_server import running_server
from tests.stored import damage

MOUNTS = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
40 22 0:35 / /srv rw shared:2 - nfs4 server:/export rw
41 40 8:2 / /srv/local\\040disk rw - xfs /dev/sdb rw
42 22 0:36 / /tmp rw - tmpfs tmpfs rw
43 22 0:37 / /media ro,nosuid - ext4 /dev/sdc ro
"""
SUBJECTS = (TURN_SUBJECTS, CONTROL_SUBJECTS)


def levels(*findings: Finding) -> list[str]:
    return [finding.level for finding in findings]


@pytest.mark.parametrize(
    ("path", "kind", "level"),
    [
        ("/home/alice", "ext4", "ok"),
        ("/srv/memforest", "nfs4", "error"),
        ("/srv/local disk/memforest", "xfs", "ok"),
        ("/srvs", "ext4", "ok"),
        ("/tmp/memforest", "tmpfs", "warning"),
        ("/media/stick", "ext4", "error"),
    ],
)
def test_the_file_system_below_a_directory_is_told_and_judged(path: str, kind: str, level: str) -> None:
    mount = mount_of(Path(path), MOUNTS)

    assert mount is not None
    assert (mount.kind, examine_mount(mount).level) == (kind, level)


def test_packages_that_are_missing_are_an_error_and_old_ones_a_warning() -> None:
    good = {"numpy": "1.26.4", "nats-py": "2.12"}
    required = ["numpy>=1.26", "nats-py[nkeys]>=2.12"]
    missing = examine_python((3, 11, 7), {**good, "numpy": None}, required)
    old = examine_python((3, 11, 7), {**good, "nats-py": "2.9.1"}, required)

    assert levels(examine_python((3, 11, 7), good, required), missing, old) == ["ok", "error", "warning"]
    assert missing.mend.endswith("-m pip install numpy")
    assert old.sentence == "3.11.7; too old: nats-py"


def test_limits_that_are_too_small_are_warnings() -> None:
    assert levels(examine_files(1024), examine_files(-1), examine_files(256)) == ["ok", "ok", "warning"]
    assert levels(examine_memory(None, 512 * MIB), examine_memory(2048 * MIB, 512 * MIB)) == ["ok", "ok"]
    assert examine_memory(256 * MIB, 0).sentence == "only 256 MiB"
    assert examine_memory(600 * MIB, 512 * MIB).mend == "MEMFOREST_DATA_MEMORIES_MB=360"
    assert levels(examine_sqlite((3, 51, 3)), examine_sqlite((3, 40, 1))) == ["ok", "warning"]
    assert levels(examine_zones(), examine_zones("Nowhere/Atlantis")) == ["ok", "warning"]


def test_the_least_limit_of_a_control_group_and_those_above_counts(tmp_path: Path) -> None:
    inner = tmp_path / "system.slice" / "memforest.service"
    inner.mkdir(parents=True)
    (inner / "memory.max").write_text("max\n")
    unlimited = memory_limit_bytes(tmp_path, "0::/system.slice/memforest.service\n")
    (inner.parent / "memory.max").write_text("734003200\n")

    assert unlimited is None
    assert memory_limit_bytes(tmp_path, "0::/system.slice/memforest.service\n") == 700 * MIB
    assert memory_limit_bytes(tmp_path, "4:memory:/old\n") is None


def test_who_holds_the_lock_is_seen_without_taking_it(tmp_path: Path) -> None:
    lock = tmp_path / "lock"
    before = lock_holder(lock)
    descriptor = os.open(lock, os.O_RDWR | os.O_CREAT)
    unlocked = lock_holder(lock)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    held = lock_holder(lock)
    os.close(descriptor)

    assert (before, unlocked, held, lock_holder(lock)) == (None, None, os.getpid(), None)


def test_what_stands_where_the_socket_is_to_be_is_told(tmp_path: Path) -> None:
    path = tmp_path / "m.sock"
    absent = examine_socket(path, tmp_path, runs=False)
    vanished = examine_socket(path, tmp_path, runs=True)
    path.write_text("a file")
    file = examine_socket(path, tmp_path, runs=False)
    path.unlink()
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(path))
        listener.listen()
        ours, taken = (examine_socket(path, tmp_path, runs=runs) for runs in (True, False))
    stale = examine_socket(path, tmp_path, runs=False)
    deaf = examine_socket(path, tmp_path, runs=True)

    assert levels(absent, vanished, file) == ["ok", "error", "error"]
    assert levels(ours, taken, stale, deaf) == ["ok", "error", "ok", "warning"]
    assert "another" in taken.mend
    assert stale.sentence.endswith("left from an earlier run; the daemon replaces it")


def test_a_directory_without_a_daemon_says_so(tmp_path: Path) -> None:
    lock, path = examine_running(Config(data=Data(str(tmp_path))))

    assert (lock.sentence, path.level) == ("no daemon runs on this directory", "ok")


@pytest.mark.parametrize(
    ("statement", "sentence"),
    [
        ("SELECT 1", "the last 256 events are sound"),
        (
            "UPDATE words SET text = CAST('Xylophon' AS BLOB) WHERE seq = 3 AND n = 0",
            "do not match its commitment",
        ),
        ("DELETE FROM events WHERE seq = 2", "the event at seq 2 is missing"),
        ("DELETE FROM events WHERE seq = 4", "the log ends at seq 3 and should end at 4"),
    ],
)
async def test_a_damaged_end_of_the_log_is_an_error_without_its_words(
    tmp_path: Path, clock: ManualClock, statement: str, sentence: str
) -> None:
    log = await EventLog.open(tmp_path / "events.db", clock)
    for number in range(4):
        await log.append_event(a_turn(turn_id=f"t{number}"))
    await log.close()
    damage(tmp_path / "events.db", statement)
    findings = {finding.subject: finding for finding in await examine_store(Config(data=Data(str(tmp_path))))}
    found = findings["end of the log"]

    assert sentence in found.sentence
    assert found.level == ("ok" if "sound" in sentence else "error")
    assert "Xylophon" not in str(found)


def test_the_stream_that_we_make_ourselves_is_in_order() -> None:
    made = stream_configuration("MEMFOREST", SUBJECTS)
    known = {name: made[name] for name in StreamConfiguration.__struct_fields__ if name in made}

    assert levels(*examine_stream("MEMFOREST", StreamConfiguration(**known), own=True)) == ["ok"]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("wrong", "level", "mend"),
    [
        ({"subjects": ("memforest.turns.>",)}, "error", "--subjects="),
        ({"subjects": ("memforest.turns.*", "memforest.control.>")}, "error", "--subjects="),
        ({"storage": "memory"}, "warning", "nats stream rm"),
        ({"max_age": 3600 * NANOSECONDS}, "warning", "--max-age=7d"),
        ({"max_bytes": 1 << 20}, "warning", "--max-bytes=1GB"),
        ({"discard": "new", "max_msgs": 1000}, "warning", "--discard=old"),
        ({"max_msg_size": 1000}, "warning", "--max-msg-size=-1"),
    ],
)
def test_a_stream_that_would_lose_or_refuse_turns_is_told_with_its_mend(
    wrong: dict[str, object], level: str, mend: str
) -> None:
    stream = StreamConfiguration(**{"subjects": SUBJECTS, **wrong})  # type: ignore[arg-type]
    (finding,) = examine_stream("MEMFOREST", stream, own=True)

    assert (finding.level, mend in finding.mend, bool(finding.why)) == (level, True, True)


@pytest.mark.parametrize("subjects", [("memforest.>",), (">",), ("memforest.*.>",), SUBJECTS])
def test_wider_subjects_take_ours_too(subjects: tuple[str, ...]) -> None:
    assert levels(*examine_stream("M", StreamConfiguration(subjects=subjects), own=True)) == ["ok"]


def test_a_clock_that_is_wrong_is_told_with_its_direction() -> None:
    late = examine_clock(theirs=1100.0, before=1000.0, after=1001.0)
    early = examine_clock(theirs=900.0, before=1000.0, after=1001.0)

    assert examine_clock(theirs=1000.5, before=1000.0, after=1001.0).level == "ok"
    assert (late.level, late.sentence) == ("warning", "ours is 99 s behind the bus's")
    assert (early.level, early.sentence) == ("warning", "ours is 100 s before the bus's")


def a_config(folder: Path, url: str) -> Config:
    return replace(Config(data=Data(str(folder))), bus=Bus(url=url))


async def test_a_server_that_lets_us_not_in_is_told_apart_from_one_without_rights(tmp_path: Path) -> None:
    async with server_denying(tmp_path / "nats", "$JS.API.STREAM.INFO.MEMFOREST") as server:
        stranger = server.reader_url.replace("reader:reader", "reader:Xylophon")
        (denied,) = await examine_bus(a_config(tmp_path, server.reader_url))
        (refused,) = await examine_bus(a_config(tmp_path, stranger))

    assert "no right to $JS.API.STREAM.INFO.MEMFOREST" in denied.sentence
    assert "deploy/nats" in denied.mend
    assert "does not let us in" in refused.sentence
    assert "bus.credentials" in refused.mend
    assert "Xylophon" not in str(refused)


async def test_streams_of_subscriptions_that_are_not_there_are_errors(tmp_path: Path) -> None:
    async with running_server(tmp_path / "nats") as server:
        config = replace(a_config(tmp_path, server.url), subscriptions=(Subscription("chat-events"),))
        missing = await examine_bus(config)
        made = await create_stream(config)
        found = {finding.subject: finding for finding in await examine_bus(config)}

    assert [finding.mend for finding in missing] == [CREATE]
    assert made.startswith("stream MEMFOREST was created")
    assert levels(found["bus"], found["stream"], found["clock"]) == ["ok", "ok", "ok"]
    assert (found["subscription"].level, found["subscription"].sentence) == (
        "error",
        "there is no stream chat-events",
    )


def test_credentials_that_cannot_be_read_are_named(tmp_path: Path) -> None:
    config = replace(Config(data=Data(str(tmp_path))), bus=Bus(credentials=str(tmp_path / "absent.creds")))
    (finding,) = anyio.run(examine_bus, config)

    assert (finding.level, "absent.creds" in finding.sentence) == ("error", True)


def test_a_misspelt_key_is_a_finding_with_what_may_have_been_meant(tmp_path: Path) -> None:
    file = tmp_path / "memforest.toml"
    file.write_text("[bus]\nulr = 'nats://127.0.0.1:4222'\n")
    told = CliRunner().invoke(main, ["doctor", "--config", str(file), "--json"])
    environment = CliRunner(env={"MEMFOREST_BUS_STREM": "X"}).invoke(main, ["doctor"])

    assert told.exit_code == environment.exit_code == 78
    assert "unknown key bus.ulr (did you mean url?)" in told.stdout
    assert "did you mean MEMFOREST_BUS_STREAM?" in environment.stdout
