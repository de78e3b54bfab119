"""`memforest dlq` against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from memforest.cli import cli
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

REASON = "the message is not valid JSON in UTF-8"
UNKNOWN = "There is no dead letter of this id; `dead_letters.list` names those there are."


def a_letter(number: int, **more: object) -> JsonObject:
    letter: JsonObject = {
        "id": number,
        "received_at": "2024-07-01T09:00:00Z",
        "user_id": "alice",
        "session_id": "s1",
        "subject": "memforest.turns.alice.s1",
        "reason": REASON,
        "bytes": 7,
        "stream": "MEMFOREST",
        "seq": 40 + number,
        "a_field_of_a_later_version": 1,
    }
    return letter | more


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["dlq", *map(str, arguments), "--socket", str(daemon.path)])


def run_on_terminal(daemon: FakeDaemon, *arguments: object, typed: bytes = b"") -> tuple[int, str]:
    """The exit code, and what someone at a terminal of 80 columns sees who typed this."""
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "memforest.cli", "dlq", *map(str, arguments), "--socket", str(daemon.path)]
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "dumb"}
    os.write(ours, typed)
    done = subprocess.run(
        command, stdin=theirs, stdout=theirs, stderr=theirs, env=environ, timeout=30, check=False
    )
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)
    return done.returncode, shown


def test_letters_in_a_pipe_are_one_line_each(daemon: FakeDaemon) -> None:
    nobodys = a_letter(2, user_id=None, session_id=None)
    daemon.answers["dead_letters.list"] = lambda _: {"dead_letters": [a_letter(1), nobodys], "next": None}
    result = run(daemon, "list")

    at = "2024-07-01T09:00:00Z"
    assert result.exit_code == 0
    assert result.stdout == f"1\t{at}\tMEMFOREST\talice\ts1\t7\t{REASON}\n2\t{at}\tMEMFOREST\t\t\t7\t{REASON}\n"
    assert result.stderr == ""
    assert daemon.requests == [("dead_letters.list", {"limit": 100, "after": 0})]


def test_a_page_that_is_not_the_last_says_how_to_go_on(daemon: FakeDaemon) -> None:
    daemon.answers["dead_letters.list"] = lambda p: {
        "dead_letters": [a_letter(p["after"] + 1), a_letter(p["after"] + 2)],
        "next": p["after"] + 2,
    }
    result = run(daemon, "list", "--limit", 2, "--after", 4)

    assert daemon.requests == [("dead_letters.list", {"limit": 2, "after": 4})]
    assert [line.split("\t")[0] for line in result.stdout.splitlines()] == ["5", "6"]
    assert result.stderr == "There are more: --after 6\n"


@pytest.mark.parametrize("option", [("--limit", 0), ("--limit", 1001), ("--after", -1)])
def test_a_page_out_of_range_is_refused_before_anyone_is_asked(
    daemon: FakeDaemon, option: tuple[str, int]
) -> None:
    result = run(daemon, "list", *option)

    assert result.exit_code == 2
    assert daemon.requests == []


def test_people_get_a_table_with_a_head(daemon: FakeDaemon) -> None:
    evil = a_letter(1, session_id="s\x1b[31m1", reason="it is no JSON")
    daemon.answers["dead_letters.list"] = lambda _: {"dead_letters": [evil], "next": 1}
    code, shown = run_on_terminal(daemon, "list")

    head, line = shown.splitlines()[:2]
    assert code == 0
    assert head.split() == ["id", "received", "stream", "user", "session", "bytes", "reason"]
    assert all(part in line for part in ("2024-07-01 09:00", "alice", "s\ufffd[31m1", "it is no JSON"))
    assert "\x1b[31m" not in shown
    assert "There are more: --after 1" in shown


def test_a_long_reason_is_folded_and_no_word_of_it_is_lost(daemon: FakeDaemon) -> None:
    """A dumb terminal has 80 columns, as most have."""
    daemon.answers["dead_letters.list"] = lambda _: {
        "dead_letters": [a_letter(1, session_id="support-2024-07-01")],
        "next": None,
    }
    _, shown = run_on_terminal(daemon, "list")

    assert set(REASON.split()) <= set(shown.split())


def test_no_letters_is_a_sentence_for_people_and_nothing_in_a_pipe(daemon: FakeDaemon) -> None:
    daemon.answers["dead_letters.list"] = lambda _: {"dead_letters": [], "next": None}
    piped = run(daemon, "list")
    _, shown = run_on_terminal(daemon, "list")

    assert (piped.exit_code, piped.stdout) == (0, "")
    assert shown.strip() == "No dead letters."


def test_the_content_goes_to_a_pipe_and_the_reason_beside_it(daemon: FakeDaemon) -> None:
    daemon.answers["dead_letters.get"] = lambda p: {
        "letter": a_letter(p["id"]),
        "encoding": "utf-8",
        "payload": 'no "JSON" \x1b[2J',
    }
    result = run(daemon, "show", 3)

    assert daemon.requests == [("dead_letters.get", {"id": 3})]
    assert result.stdout == 'no "JSON" \ufffd[2J\n'
    assert result.stderr == f"memforest.turns.alice.s1: {REASON} (utf-8)\n"


def test_a_retry_tells_what_was_recorded(daemon: FakeDaemon) -> None:
    daemon.answers["dead_letters.retry"] = lambda p: {"id": p["id"], "recorded": 2, "other": 1}
    result = run(daemon, "retry", 3)

    assert daemon.requests == [("dead_letters.retry", {"id": 3})]
    assert (result.exit_code, result.stdout) == (0, "Letter 3: 2 recorded, 1 not new.\n")


def test_dropping_needs_a_yes_where_nobody_can_be_asked(daemon: FakeDaemon) -> None:
    daemon.answers["dead_letters.drop"] = lambda p: {"dropped": p["id"]}
    unsure = run(daemon, "drop", 3)
    asked_before = list(daemon.requests)
    sure = run(daemon, "drop", 3, "--yes")

    assert (unsure.exit_code, asked_before) == (2, [])
    assert "--yes" in unsure.stderr
    assert (sure.exit_code, sure.stdout) == (0, "Letter 3 is gone.\n")
    assert daemon.requests == [("dead_letters.drop", {"id": 3})]


@pytest.mark.parametrize(("typed", "code", "asked"), [(b"y\n", 0, ["dead_letters.drop"]), (b"n\n", 1, [])])
def test_someone_at_a_terminal_is_asked_first(
    daemon: FakeDaemon, typed: bytes, code: int, asked: list[str]
) -> None:
    daemon.answers["dead_letters.drop"] = lambda p: {"dropped": p["id"]}
    done, shown = run_on_terminal(daemon, "drop", 3, typed=typed)

    assert "Erase dead letter 3 for good?" in shown
    assert (done, daemon.methods()) == (code, asked)
    assert ("Letter 3 is gone." in shown) == bool(asked)


@pytest.mark.parametrize(
    ("method", "arguments", "answer"),
    [
        ("list", ["list"], {"dead_letters": [a_letter(1)], "next": None}),
        ("get", ["show", "1"], {"letter": a_letter(1), "encoding": "base64", "payload": "/wA="}),
        ("retry", ["retry", "1"], {"id": 1, "recorded": 1, "other": 0}),
        ("drop", ["drop", "1", "--yes"], {"dropped": 1}),
    ],
)
def test_json_is_what_the_daemon_said(
    daemon: FakeDaemon, method: str, arguments: list[str], answer: JsonObject
) -> None:
    daemon.answers[f"dead_letters.{method}"] = lambda _: answer
    result = run(daemon, *arguments, "--json")

    assert result.exit_code == 0
    assert json.loads(result.stdout) == answer
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("method", "arguments", "code", "sentence"),
    [
        ("get", ["show", "9"], "not_found", UNKNOWN),
        ("retry", ["retry", "9"], "conflict", f"it still cannot be decoded: {REASON}"),
        ("drop", ["drop", "9", "--yes", "--json"], "not_found", UNKNOWN),
        ("list", ["list", "--json"], "unavailable", "the store could not be read: SQLITE_FULL"),
    ],
)
def test_a_refusal_is_one_sentence_and_no_result(
    daemon: FakeDaemon, method: str, arguments: list[str], code: str, sentence: str
) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal(code, sentence)

    daemon.answers[f"dead_letters.{method}"] = refuse
    result = run(daemon, *arguments)

    assert (result.exit_code, result.stdout) == (1, "")
    sentence = sentence.replace("dead_letters.list", "memforest dlq list")  # what someone at a shell can do
    as_json = json.dumps({"error": {"code": code, "message": sentence}})
    assert result.stderr == (as_json if "--json" in arguments else f"Error: {sentence}") + "\n"


@pytest.mark.parametrize(("method", "arguments"), [("retry", ["retry", "1"]), ("drop", ["drop", "1", "--yes"])])
def test_what_may_have_been_done_is_not_asked_a_second_time(
    daemon: FakeDaemon, method: str, arguments: list[str]
) -> None:
    daemon.answers[f"dead_letters.{method}"] = lambda p: {"id": p["id"], "dropped": p["id"]}
    daemon.lose_answer = 1
    result = run(daemon, *arguments)

    assert (result.exit_code, result.stdout) == (69, "")
    assert daemon.methods() == [f"dead_letters.{method}"]


@pytest.mark.parametrize("arguments", [["show", "one"], ["retry"], ["drop", "1.5", "--yes"]])
def test_a_letter_is_named_by_its_number(daemon: FakeDaemon, arguments: list[str]) -> None:
    result = run(daemon, *arguments)

    assert result.exit_code == 2
    assert daemon.requests == []
