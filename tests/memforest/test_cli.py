"""The `memforest` command against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner, Result

from memforest.cli import cli
from memforest.output import tidy
from tests.memforest.fake_daemon import WATERMARK, FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

TURNS = 600


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


@pytest.fixture
def conversation(tmp_path: Path) -> Path:
    """600 turns (three batches) and a closing."""
    address = {"user_id": "alice", "session_id": "s1"}
    lines = [
        {"type": "turn", "id": f"m-{n}", **address, "role": "user", "content": f"Turn {n}."} for n in range(TURNS)
    ]
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(json.dumps(line) for line in [*lines, {"type": "session.close", **address}]))
    return path


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)])


def sent_ids(daemon: FakeDaemon) -> list[str]:
    return [m["id"] for method, p in daemon.requests if method == "ingest" for m in p["messages"]]


def test_publish_sends_every_message_once_and_leaves_no_file(daemon: FakeDaemon, conversation: Path) -> None:
    result = run(daemon, "publish", conversation)

    assert result.exit_code == 0
    assert result.stdout == "Published 600 turns, closed 1 session.\n"
    assert sent_ids(daemon) == [f"m-{n}" for n in range(TURNS)]
    assert daemon.methods() == ["ingest", "ingest", "ingest", "sessions.close"]
    assert daemon.requests[-1][1]["id"].endswith("-601")
    assert result.stderr.splitlines()[-1] == "published 601 of 601"
    assert {p.name for p in conversation.parent.iterdir()} == {"chat.jsonl", "d.sock"}


def test_an_interrupted_publish_goes_on_without_repeating(daemon: FakeDaemon, conversation: Path) -> None:
    daemon.lose_request = 2
    first = run(daemon, "publish", conversation)
    daemon.requests.clear()
    daemon.lose_request = None
    second = run(daemon, "publish", conversation)

    assert first.exit_code == 69
    assert "256 of 601 published; the same command again goes on from there." in first.stderr
    assert second.exit_code == 0
    assert "went on after 256 messages" in second.stdout
    assert sent_ids(daemon) == [f"m-{n}" for n in range(256, TURNS)]
    assert [turn["id"] for turn in daemon.turns] == [f"m-{n}" for n in range(TURNS)]
    assert not conversation.with_name("chat.jsonl.memforest-progress").exists()


def test_a_batch_whose_answer_was_lost_is_kept_once(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "no ids.jsonl"
    turn = {"type": "turn", "user_id": "a", "session_id": "s", "role": "user", "content": "Hi."}
    path.write_text("\n".join([json.dumps(turn)] * 300))
    daemon.lose_answer = 2
    first = run(daemon, "publish", path)
    second = run(daemon, "publish", path, "--json")

    assert first.exit_code == 69
    assert len(daemon.turns) == 300
    assert json.loads(second.stdout) == {
        "messages": 44,
        "turns": 44,
        "memories": 0,
        "sessions_closed": 0,
        "duplicates": 44,
        "turns_known": None,
        "resumed_from": 256,
        "users": ["a"],
        "built": False,
        "open_sessions": 0,
        "not_recorded": [],
    }


def test_restart_begins_anew(daemon: FakeDaemon, conversation: Path) -> None:
    daemon.lose_request = 3
    run(daemon, "publish", conversation)
    daemon.lose_request = None
    result = run(daemon, "publish", conversation, "--restart")

    assert "known already: 512 messages" in result.stdout


def test_a_changed_file_does_not_go_on_from_the_old_one(daemon: FakeDaemon, conversation: Path) -> None:
    daemon.lose_request = 2
    run(daemon, "publish", conversation)
    daemon.requests.clear()
    daemon.lose_request = None
    conversation.write_text(conversation.read_text().replace("Turn 3.", "Turn three."))
    run(daemon, "publish", conversation)

    assert sent_ids(daemon)[0] == "m-0"


def test_a_keyboard_interrupt_keeps_what_was_confirmed(daemon: FakeDaemon, conversation: Path) -> None:
    children: list[subprocess.Popen[str]] = []
    received: list[int] = []

    def interrupt(params: JsonObject) -> JsonObject:
        received.append(len(params["messages"]))
        if len(received) == 2:
            children[0].send_signal(signal.SIGINT)
        seq = {"stream": "M", "seq": 1, "duplicate": False}
        return {"published": [{**seq, "keys": [m["id"]]} for m in params["messages"]]}

    daemon.answers["ingest"] = interrupt
    command = [sys.executable, "-m", "memforest.cli", "publish", str(conversation), "--socket", str(daemon.path)]
    # The daemon must not answer before the child is known.
    with daemon.pause():
        children.append(subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True))
    _, stderr = children[0].communicate(timeout=30)

    assert children[0].returncode == 1
    assert "256 of 601 published" in stderr
    assert "Traceback" not in stderr
    assert json.loads(conversation.with_name("chat.jsonl.memforest-progress").read_text())["done"] == 256


def test_nothing_is_sent_of_a_file_with_a_bad_line(daemon: FakeDaemon, conversation: Path) -> None:
    with conversation.open("a") as file:
        file.write("\nquokkas\n")
    result = run(daemon, "publish", conversation)

    assert result.exit_code == 2
    assert "line 602: not JSON" in result.stderr
    assert "quokkas" not in result.output
    assert daemon.requests == []


def a_locomo_file(path: Path) -> Path:
    def sample(name: str) -> dict[str, Any]:
        turns = [{"speaker": "Ines", "dia_id": f"D1:{n}", "text": "Hello."} for n in (1, 2)]
        talk = {"session_1_date_time": "1:00 pm on 8 May, 2023", "session_1": turns}
        return {"sample_id": name, "conversation": talk}

    path.write_text(json.dumps([sample("conv-1"), sample("conv-2")], indent=1))
    return path


def test_locomo_is_recognised_filtered_and_waited_for(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = a_locomo_file(tmp_path / "locomo.json")
    daemon.answers["sessions.list"] = lambda _: {
        "sessions": [{"session_id": "session_1", "state": "closed", "turns": 2}]
    }
    result = run(daemon, "publish", path, "--sample", "conv-2", "--wait")

    assert result.exit_code == 0
    assert result.stdout == "Published 2 turns, closed 1 session; everything closed is built.\n"
    assert daemon.closed == [("conv-2", "session_1")]
    assert daemon.methods() == [
        *("dead_letters.list", "users.list", "ingest", "sessions.close", "query", "status"),
        *("dead_letters.list", "sessions.get", "sessions.events", "users.list", "sessions.list"),
    ]
    assert daemon.requests[4][1]["wait_for"] == "conv-2/session_1/close"


def test_a_sample_of_a_native_file_is_a_usage_error(daemon: FakeDaemon, conversation: Path) -> None:
    result = run(daemon, "publish", conversation, "--sample", "conv-1")

    assert result.exit_code == 2
    assert daemon.requests == []


def test_an_answer_in_a_pipe_is_one_line_a_memory(daemon: FakeDaemon) -> None:
    result = run(daemon, "query", "alice", "two\nlines", "-k", 3, "--max-tokens", 90, "--wait-for", "17")

    assert result.stdout == "1\t0.75\t2024-07-01T09:00:00Z\tfact\ts1\tabout two lines\n"
    assert daemon.requests[0][1] == {
        "user_id": "alice",
        "query": "two\nlines",
        "k": 3,
        "wait_for": 17,
        "max_tokens": 90,
    }


def test_json_is_what_the_daemon_said(daemon: FakeDaemon) -> None:
    result = run(daemon, "query", "alice", "q", "--json")

    answer = json.loads(result.stdout)
    assert answer["memories"][0]["a_field_of_a_later_version"] == 1
    assert answer["watermark"] == WATERMARK


def test_an_answer_that_lags_says_so_beside_the_result(daemon: FakeDaemon) -> None:
    late = {**WATERMARK, "pending": 3, "lag_s": 1.5}
    daemon.answers["query"] = lambda _: {"memories": [], "context": "", "watermark": late}
    result = run(daemon, "query", "alice", "q")

    assert result.stdout == ""
    assert result.stderr == "Still being built: 3 pieces of work wait, 1.5 s behind.\n"


def test_an_error_of_the_daemon_is_a_sentence_and_exit_code_one(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "No session of this name is in the registry.")

    daemon.answers["sessions.get"] = refuse
    result = run(daemon, "sessions", "alice", "s9")

    assert result.exit_code == 1
    assert result.stderr == "Error: No session of this name is in the registry.\n"


@pytest.mark.parametrize(
    "arguments",
    [["status"], ["query", "a", "q"], ["forget", "a", "s", "--yes"], ["users", "--json"], ["facts", "a"]],
    ids=" ".join,
)
def test_an_unreachable_daemon_is_exit_code_69_and_advice(tmp_path: Path, arguments: list[str]) -> None:
    result = CliRunner().invoke(cli, [*arguments, "--socket", str(tmp_path / "none.sock")])

    assert result.exit_code == 69
    assert "memforestd run" in result.stderr
    assert result.stdout == ""


def test_forget_asks_for_a_yes_and_shows_the_receipt(daemon: FakeDaemon) -> None:
    daemon.answers["sessions.forget"] = lambda _: {
        "forgotten_user_seq": 9,
        "events_voided": 4,
        "words_erased": 12,
        "names_erased": 2,
        "complete": False,
        "waiting_for": "bus",
    }
    unsure = run(daemon, "forget", "alice", "s1")
    asked_before = daemon.methods()
    sure = run(daemon, "forget", "alice", "s1", "--yes")

    assert unsure.exit_code == 2
    assert asked_before == []
    assert "4 events voided; 12 words, 2 names, 0 dead letters" in sure.stdout
    assert "Not complete: the bus is away" in sure.stderr


def test_sessions_are_one_line_each(daemon: FakeDaemon) -> None:
    known = {"state": "open", "turns": 3, "first_at": "2024-07-01T09:00:00Z", "last_at": None}
    counts = {"chunks": 2, "waiting_chunks": 1, "facts": 0, "bytes": 77}
    spent = {"zero_chunks": 4, "model_calls": 5, "tokens": 6789, "cost": 0.001234567}
    daemon.answers["sessions.list"] = lambda _: {"sessions": [{"session_id": "s1", **known, **counts}]}
    of_before = run(daemon, "sessions", "alice")
    daemon.answers["sessions.list"] = lambda _: {"sessions": [{"session_id": "s1", **known, **counts, **spent}]}
    result = run(daemon, "sessions", "alice")

    assert result.stdout == "s1\topen\t3\t2024-07-01T09:00:00Z\t\t2\t1\t0\t77\t4\t5\t6789\t0.001235\n"
    assert of_before.stdout == "s1\topen\t3\t2024-07-01T09:00:00Z\t\t2\t1\t0\t77\t0\t0\t0\t0\n"


def test_facts_are_fetched_page_by_page_up_to_the_limit(daemon: FakeDaemon) -> None:
    def page(params: JsonObject) -> JsonObject:
        start = int(params.get("after", "0"))
        ids = range(start, min(start + min(params["limit"], 2), 5))
        facts = [{"id": f"f{n}", "text": f"Fact {n}", "role": "user", "sessions": ["s1"]} for n in ids]
        return {"facts": facts, "next": str(ids.stop) if ids.stop < 5 else None}

    daemon.answers["facts.list"] = page
    everything = run(daemon, "facts", "alice")
    some = run(daemon, "facts", "alice", "--limit", 3, "--json")

    assert [line.split("\t")[-1] for line in everything.stdout.splitlines()] == [f"Fact {n}" for n in range(5)]
    assert [fact["id"] for fact in json.loads(some.stdout)["facts"]] == ["f0", "f1", "f2"]


def test_status_and_users_are_plain_lines(daemon: FakeDaemon) -> None:
    daemon.answers["users.list"] = lambda _: {
        "users": [{"user_id": "al", "user_seq": 7, "sessions": 2, "turns": 5}]
    }

    assert run(daemon, "users").stdout == "al\t2\t5\t7\n"
    assert run(daemon, "status").stdout == "daemon.version\tx\n"
    assert "watermark.pending\t0\n" in run(daemon, "status", "--user", "al").stdout


def test_a_terminal_gets_a_table_without_what_could_rewrite_it(daemon: FakeDaemon) -> None:
    evil = {"id": "f1", "text": "red \x1b[31mtext\u202e", "time_start": 1719824400000, "role": "user"}
    daemon.answers["facts.list"] = lambda _: {"facts": [evil]}
    ours, theirs = pty.openpty()
    command = [sys.executable, "-m", "memforest.cli", "facts", "alice", "--socket", str(daemon.path)]
    environ = {**os.environ, "NO_COLOR": "1", "TERM": "dumb", "COLUMNS": "100"}
    done = subprocess.run(command, stdout=theirs, env=environ, timeout=30, check=False)
    os.close(theirs)
    shown = os.read(ours, 10_000).decode()
    os.close(ours)

    assert done.returncode == 0
    assert "fact" in shown.splitlines()[0]
    assert "2024-07-01 09:00" in shown
    assert "red \ufffd[31mtext\ufffd" in shown


def test_tidy_keeps_text_and_takes_what_acts_on_a_terminal() -> None:
    assert tidy("tab\t line\n 你好 é 👍🏽") == "tab\t line\n 你好 é 👍🏽"
    assert tidy("\x1b]0;title\x07 \x9b \r \ud800") == "\ufffd]0;title\ufffd \ufffd \ufffd \ufffd"


def test_every_command_has_json_socket_and_a_sentence_of_help() -> None:
    groups = [cli, *(each for each in cli.commands.values() if isinstance(each, click.Group))]
    commands = {name: each for group in groups for name, each in group.commands.items()}
    for name, command in commands.items():
        if isinstance(command, click.Group) or name == "completion":
            continue  # prints what the shell reads, without asking anyone
        options = {option for parameter in command.params for option in parameter.opts}

        assert {"--json", "--socket"} <= options, name
        assert command.get_short_help_str(), name
