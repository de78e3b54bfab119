"""`memforestd`: every end has its exit code and its sentence, and no stored word or stack trace is shown."""

from __future__ import annotations

import json
import os
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from daemon import cli, command_line
from daemon.lifecycle import DirectoryInUse, lock_directory
from events.errors import InvalidInput, LogDamaged, StoreIsNewer, StoreUnusable
from events.log import EventLog
from events.migrations import MIGRATIONS
from tests.builders import ManualClock, a_turn
from tests.stored import damage

ROOT = Path(__file__).resolve().parents[2]


def invoke(*arguments: str, data: Path) -> Result:
    return CliRunner().invoke(cli.main, [*arguments, "--data", str(data)], env={"MEMFOREST_BUS_EMBEDDED": "true"})


def run_daemon(data: Path) -> subprocess.CompletedProcess[str]:
    """`memforestd run`, which is expected to end by itself."""
    return subprocess.run(
        [sys.executable, "-m", "daemon", "run", "--data", str(data)],
        cwd=ROOT,
        env={**os.environ, "MEMFOREST_LOG_FORMAT": "json"},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )


@pytest.fixture
async def store(tmp_path: Path, clock: ManualClock) -> Path:
    """A data directory with two turns in it and no daemon."""
    folder = tmp_path / "data"
    folder.mkdir(mode=0o700)
    log = await EventLog.open(folder / "events.db", clock)
    await log.append_event(a_turn("Xylophon one", turn_id="t1"))
    await log.append_event(a_turn("Xylophon two", turn_id="t2"))
    await log.close()
    return folder


class Surprise(Exception):
    """What nobody expected."""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (DirectoryInUse(), command_line.EX_TEMPFAIL),
        (StoreIsNewer(), command_line.EX_CONFIG),
        (LogDamaged("the event at seq 3"), command_line.EX_DATAERR),
        (StoreUnusable(), command_line.EX_IOERR),
        (InvalidInput(), command_line.EX_UNAVAILABLE),
        (PermissionError(13, "Permission denied", "/data"), command_line.EX_IOERR),
        (Surprise("Xylophon"), command_line.EX_SOFTWARE),
    ],
)
def test_each_end_of_the_daemon_has_its_exit_code_and_sentence(error: Exception, code: int) -> None:
    found, sentence = command_line.explain(error)

    assert found == code
    assert sentence
    assert "Xylophon" not in sentence


def test_the_first_error_is_found_however_deep_it_stands() -> None:
    inner = StoreUnusable()
    group = ExceptionGroup("a", [ExceptionGroup("b", [ExceptionGroup("c", [inner]), ValueError()])])

    assert command_line.first_error(group) is inner


def test_a_daemon_on_a_directory_in_use_ends_with_75(tmp_path: Path) -> None:
    lock = lock_directory(tmp_path)
    ended = run_daemon(tmp_path)
    os.close(lock)

    assert ended.returncode == command_line.EX_TEMPFAIL
    assert ended.stderr.splitlines() == [f"memforestd: {DirectoryInUse()}"]


def test_a_daemon_on_a_store_of_a_newer_release_ends_with_78(store: Path) -> None:
    with sqlite3.connect(store / "events.db") as connection:
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS) + 1}")
    connection.close()
    ended = run_daemon(store)

    assert ended.returncode == command_line.EX_CONFIG
    assert ended.stderr.splitlines() == [f"memforestd: {StoreIsNewer()}"]


def test_verify_without_a_daemon_or_a_digest_says_that_nothing_was_compared(store: Path) -> None:
    result = invoke("verify", data=store)
    as_json = json.loads(invoke("verify", "--json", data=store).output)

    assert result.exit_code == 0
    assert result.output.splitlines()[-1] == "verify: 1 users, 0 compared, 0 different"
    assert as_json == {"users": [{"user_id": "alice", "events": 2, "compared": False, "difference": None}]}


def test_verify_of_a_damaged_log_ends_with_65_and_quotes_nothing(store: Path) -> None:
    damage(store / "events.db", "UPDATE words SET text = CAST('Xylophon 2' AS BLOB) WHERE seq = 2 AND n = 0")
    result = invoke("verify", data=store)

    assert result.exit_code == command_line.EX_DATAERR
    assert "seq 2" in result.output
    assert "Xylophon" not in result.output


def test_verify_without_a_store_ends_with_74(tmp_path: Path) -> None:
    result = invoke("verify", data=tmp_path)

    assert result.exit_code == command_line.EX_IOERR
    assert "Traceback" not in result.output


def test_verify_of_a_digest_that_differs_ends_with_1(store: Path) -> None:
    with sqlite3.connect(store / "events.db") as connection:
        connection.execute("INSERT INTO digests SELECT user, user_seq, 'f', 's', 't', 'u' FROM users")
    connection.close()
    result = invoke("verify", data=store)

    assert result.exit_code == command_line.EX_DIFFERENT
    assert "DIFFERENT  facts: folded " in result.output


def test_doctor_tells_each_finding_with_its_mend_and_ends_with_1_at_an_error(store: Path) -> None:
    store.chmod(0o755)
    warned = invoke("doctor", data=store)
    (store / "events.db").write_bytes(b"no database" * 1000)
    failed = invoke("doctor", data=store)
    found = json.loads(invoke("doctor", "--json", data=store).output)

    assert warned.exit_code == 0
    assert f"-> chmod 700 {store}" in warned.output
    assert failed.exit_code == command_line.EX_DIFFERENT
    assert {finding["level"] for finding in found["findings"]} >= {"ok", "error"}


def test_config_as_json_holds_every_key(tmp_path: Path) -> None:
    shown = json.loads(invoke("config", "--json", data=tmp_path).output)

    assert shown["data.dir"] == str(tmp_path)
    assert shown["bus.embedded"] is True


def test_a_start_does_not_wait_for_libraries_that_are_wanted_later_or_never() -> None:
    later = ("nats", "aiohttp", "prometheus_client", "openai", "sklearn", "memforest", "wordllama")
    code = f"import sys, daemon.cli; print([each for each in {later} if each in sys.modules])"
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)

    assert ran.stdout.strip() == "[]"
