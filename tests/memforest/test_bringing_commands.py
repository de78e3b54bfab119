"""`add`, `import`, what `--wait` tells of, `events --follow` before a session, and what the shell completes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from click.testing import CliRunner, Result

from memforest import AsyncClient, Client, InvalidInput
from memforest.adding import add, day_of
from memforest.cli import cli
from memforest.outcome import Before, NotRecorded, count_known, find_not_recorded, look_before
from memforest.output import counted
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = "2024-07-01T23:30:00-02:00"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object, **more: Any) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)], **more)


def messages(daemon: FakeDaemon) -> list[JsonObject]:
    return [message for method, params in daemon.requests if method == "ingest" for message in params["messages"]]


# add


def test_add_publishes_one_turn_in_the_session_of_its_day(daemon: FakeDaemon) -> None:
    result = run(daemon, "add", "alice", "I moved.", "--name", "Alice", "--at", AT, "--id", "m-1")
    again = run(daemon, "add", "alice", "I moved.", "--at", AT, "--id", "m-1")

    assert messages(daemon)[0] == {
        "type": "turn",
        "user_id": "alice",
        "session_id": "2024-07-02",
        "id": "m-1",
        "role": "user",
        "name": "Alice",
        "content": "I moved.",
        "timestamp": AT,
    }
    assert result.stdout == "Turn m-1 of session 2024-07-02 of alice added: message 1 of MEMFOREST.\n"
    assert again.stdout == "Turn m-1 of session 2024-07-02 of alice was known already.\n"


def test_what_goes_with_an_added_turn_is_a_text_or_a_list_by_name(daemon: FakeDaemon) -> None:
    given = ("--metadata", "channel=mail", "--metadata", "tag=a", "--metadata", "tag=b=c")
    run(daemon, "add", "alice", "Hi.", *given)
    wrong = run(daemon, "add", "alice", "Hi.", "--metadata", "channel")

    assert [each["metadata"] for each in messages(daemon)] == [{"channel": "mail", "tag": ["a", "b=c"]}]
    assert (wrong.exit_code, "channel=email" in wrong.stderr) == (2, True)


def test_add_reads_standard_input_and_leaves_the_time_to_the_bus(daemon: FakeDaemon) -> None:
    result = run(
        daemon, "add", "alice", "-", "--session", "s1", "--role", "assistant", "--json", input="Two\nlines.\n"
    )
    (message,) = messages(daemon)
    shown = json.loads(result.stdout)

    assert (message["content"], message["role"], message["session_id"]) == ("Two\nlines.", "assistant", "s1")
    assert "timestamp" not in message
    assert (shown["turn_id"], shown["session_id"], shown["built"]) == (message["id"], "s1", False)


def test_add_waits_until_it_can_be_asked_for(daemon: FakeDaemon) -> None:
    result = run(daemon, "add", "alice", "I moved.", "--session", "s1", "--id", "m-1", "--wait")

    assert result.exit_code == 0
    assert daemon.methods() == ["ingest", "query", "status"]
    assert daemon.requests[1][1]["wait_for"] == "alice/s1/m-1"


@pytest.mark.parametrize(
    "wrong", [("alice", "  "), ("alice", "x", "--at", "yesterday"), ("alice", "x", "--at", "2024-07-01T09:00")]
)
def test_add_refuses_nothing_and_times_without_an_offset(daemon: FakeDaemon, wrong: tuple[str, ...]) -> None:
    assert run(daemon, "add", *wrong).exit_code == 2
    assert daemon.requests == []


async def test_a_client_adds_texts_and_whole_exchanges_and_may_ask_twice(daemon: FakeDaemon) -> None:
    exchange = [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": "Hello.", "id": "own"}]
    daemon.lose_answer = 1
    with Client(daemon.path) as client:
        first = client.add("alice", "I moved.", at=datetime(2024, 7, 1, tzinfo=UTC))
    async with AsyncClient(daemon.path) as other:
        await other.add("alice", exchange, session_id="s1", turn_id="t")
    turns = messages(daemon)

    assert first.duplicate, "the daemon had it when the line broke"
    assert turns[0] == turns[1]
    assert [turn["id"] for turn in turns[2]["turns"]] == ["t-0", "own"]
    assert day_of(None) == datetime.now(UTC).date().isoformat()
    with pytest.raises(InvalidInput):
        add("alice", "x", at="noon")


# import


def an_export(path: Path) -> Path:
    lines: list[object] = [
        {"messages": [{"role": "user", "content": "Hi."}, {"role": "assistant", "content": ""}]}
    ]
    lines += ["Xylophon", {"messages": [{"role": "user", "content": "Bye.", "created_at": 1719824400}]}]
    path.write_text("\n".join(json.dumps(line) for line in lines))
    return path


def test_import_sends_what_it_finds_and_lists_what_it_skips(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = an_export(tmp_path / "chat.jsonl")
    result = run(daemon, "import", path, "--user", "alice")
    again = run(daemon, "import", path, "--user", "alice", "--json")
    shown = json.loads(again.stdout)

    assert result.exit_code == 0
    assert result.stdout == "Published 2 turns, closed 2 sessions.\n"
    assert result.stderr.splitlines()[-3:] == [
        "1 have no time: that of their arrival counts, and is flagged.",
        "Skipped 1: has no `content` (line 1, message 2)",
        "Skipped 1: not a JSON object (line 2)",
    ]
    assert [turn["content"] for turn in daemon.turns] == ["Hi.", "Bye."], "the second time nothing is new"
    assert (shown["duplicates"], shown["skipped"], shown["times"]) == (
        4,
        2,
        {"itself": 1, "session": 0, "nowhere": 1},
    )
    assert "Xylophon" not in result.output + again.output
    assert {each.name for each in tmp_path.iterdir()} == {"chat.jsonl", "d.sock"}


def test_a_dry_run_asks_no_daemon(tmp_path: Path) -> None:
    path = an_export(tmp_path / "chat.jsonl")
    result = CliRunner().invoke(
        cli, ["import", str(path), "--user", "a", "--dry-run", "--socket", "/nowhere/d.sock"]
    )

    assert result.exit_code == 0
    assert result.stdout == "openai: 2 turns in 2 sessions; nothing was sent.\n"


def test_an_interrupted_import_goes_on_where_it_stopped(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "chat.jsonl"
    path.write_text("\n".join(json.dumps({"role": "user", "content": f"Turn {n}."}) for n in range(300)))
    daemon.lose_request = 2
    first = run(daemon, "import", path, "--user", "alice")
    daemon.lose_request = None
    daemon.requests.clear()
    second = run(daemon, "import", path, "--user", "alice")

    assert first.exit_code == 69
    assert "256 of 301 published; the same command again goes on from there." in first.stderr
    assert len(messages(daemon)) == 44
    assert "went on after 256 messages" in second.stdout
    assert len(daemon.turns) == 300


def test_memories_of_others_go_as_memories(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "mem0.json"
    path.write_text(json.dumps({"results": [{"id": "x-1", "memory": "Likes tea.", "created_at": "2024-01-02"}]}))
    result = run(daemon, "import", path, "--user", "alice")

    assert result.stdout == "Published 1 memory, 0 turns, closed 0 sessions.\n"
    assert [(each["type"], each["id"], each["timestamp"]) for each in messages(daemon)] == [
        ("memory", "x-1", "2024-01-02")
    ]


def test_what_the_daemon_refuses_is_skipped_and_keeps_nothing_else_out(daemon: FakeDaemon, tmp_path: Path) -> None:
    path = tmp_path / "mem0.jsonl"
    path.write_text("\n".join(json.dumps({"id": f"x-{n}", "memory": f"Fact {n}."}) for n in range(100)))
    taken: list[str] = []

    def ingest(params: JsonObject) -> JsonObject:
        ids = [message["id"] for message in params["messages"]]
        for place, each in enumerate(ids):
            if each in ("x-0", "x-57", "x-58"):
                raise Refusal("invalid", f"message {place}: too long", -32602)
        taken.extend(ids)
        return {"published": [{"stream": "M", "seq": 1, "duplicate": False, "keys": []} for _ in ids]}

    daemon.answers["ingest"] = ingest
    result = run(daemon, "import", path, "--user", "alice")
    path.write_text(json.dumps({"id": "x-0", "memory": "Fact."}))
    alone = run(daemon, "import", path, "--user", "alice")

    assert taken == [f"x-{n}" for n in range(100) if n not in (0, 57, 58)], "in the order of the file"
    assert result.exit_code == 0
    assert result.stdout == "Published 97 memories, 0 turns, closed 0 sessions.\n"
    assert result.stderr.splitlines()[-1] == "Skipped 3: too long (line 1; line 58; line 59)"
    assert alone.exit_code == 1, "nothing of it was taken"


@pytest.mark.parametrize("text", ["quokkas", '{"messages": []}', "[]"])
def test_a_file_with_nothing_in_it_is_no_success(daemon: FakeDaemon, tmp_path: Path, text: str) -> None:
    path = tmp_path / "file"
    path.write_text(text)
    result = run(daemon, "import", path, "--user", "alice")

    assert result.exit_code in (1, 2)
    assert "quokkas" not in result.output
    assert daemon.requests == []


# What was not recorded


def a_letter(number: int, **more: object) -> JsonObject:
    letter = {
        "id": number,
        "received_at": 0,
        "subject": "s",
        "reason": "r",
        "bytes": 1,
        "stream": "M",
        "seq": number,
    }
    return letter | {"user_id": "alice", "session_id": "s1"} | more


def test_dead_letters_conflicts_and_refusals_of_what_was_sent_are_told_apart(daemon: FakeDaemon) -> None:
    letters = [a_letter(3)]
    event = {"user_seq": 9, "at": 0, "type": "turn.conflicted", "happened_at": 0, "words": "kept"}

    def list_letters(params: JsonObject) -> JsonObject:
        return {"dead_letters": [each for each in letters if each["id"] > params["after"]], "next": None}

    def session_of(params: JsonObject) -> JsonObject:
        if params["session_id"] == "s4":
            raise Refusal("not_found", "no", -32001)
        state = "forgotten" if params["session_id"] == "s2" else "open"
        return {"session_id": params["session_id"], "state": state, "turns": 0}

    daemon.answers |= {
        "dead_letters.list": list_letters,
        "users.list": lambda _: {"users": [{"user_id": "alice", "user_seq": 7, "sessions": 1, "turns": 1}]},
        "sessions.get": session_of,
        "sessions.events": lambda params: {
            "events": [event, event | {"type": "turn.recorded"}] if params["session_id"] == "s3" else [],
            "next": 9,
            "more": False,
        },
    }
    with Client(daemon.path) as client:
        before = look_before(client)
        letters += [a_letter(4), a_letter(5), a_letter(6, session_id="other"), a_letter(7, user_id=None)]
        found = find_not_recorded(client, before, {"alice": {"s1", "s2", "s3", "s4"}})

    assert found == (
        NotRecorded("alice", "s1", "dead letter", 2),
        NotRecorded("alice", "s2", "forgotten session", None),
        NotRecorded("alice", "s3", "conflict", 1),
    )
    assert {params["after"] for method, params in daemon.requests if method == "sessions.events"} == {7}


def test_a_second_import_says_how_many_turns_were_known_already(daemon: FakeDaemon, tmp_path: Path) -> None:
    kept: list[int] = [3, 3]

    def list_users(_: JsonObject) -> JsonObject:
        return {"users": [{"user_id": "alice", "user_seq": 9, "sessions": 1, "turns": kept.pop(0)}]}

    daemon.answers |= {
        "users.list": list_users,
        "sessions.list": lambda _: {"sessions": [{"session_id": "s1", "state": "open", "turns": 3}]},
    }
    path = tmp_path / "chat.jsonl"
    turn = {"type": "turn", "user_id": "alice", "session_id": "s1", "role": "user", "content": "Hi."}
    path.write_text("\n".join(json.dumps(turn | {"id": f"m{number}"}) for number in range(3)))
    again = run(daemon, "publish", path, "--wait")
    kept += [3, 5]
    partly = run(daemon, "publish", path, "--wait", "--json")

    assert again.stdout.startswith("Published 3 turns, closed 0 sessions; known already: 3 turns;")
    assert "Still open: 1 session; last turns" in again.stderr
    assert json.loads(partly.stdout)["turns_known"] == 1


@pytest.mark.parametrize(
    ("turns_before", "turns_after", "lost", "known"),
    [
        ({"alice": 3}, {"alice": 3}, (), 4),
        ({"alice": 3}, {"alice": 7}, (), 0),
        ({}, {"alice": 4}, (), 0),
        ({"alice": 3}, {"alice": 5}, (NotRecorded("alice", "s1", "conflict", 1),), 1),
        ({"alice": 3}, {"alice": 3}, (NotRecorded("alice", "s1", "forgotten session", None),), None),
        ({}, {}, (), None),  # nothing of the user was recorded
        ({"alice": 3}, {"alice": 90}, (), 0),  # others published, too
    ],
)
def test_turns_that_were_sent_and_are_not_new_were_known(
    daemon: FakeDaemon,
    turns_before: dict[str, int],
    turns_after: dict[str, int],
    lost: tuple[NotRecorded, ...],
    known: int | None,
) -> None:
    daemon.answers["users.list"] = lambda _: {
        "users": [
            {"user_id": user_id, "user_seq": 9, "sessions": 1, "turns": turns}
            for user_id, turns in turns_after.items()
        ]
    }
    with Client(daemon.path) as client:
        found = count_known(client, Before(0, {}, turns_before), ["alice"], 4, lost)

    assert found == known


@pytest.mark.parametrize(
    ("number", "noun", "text"),
    [
        (1, "session", "1 session"),
        (0, "session", "0 sessions"),
        (2, "memory", "2 memories"),
        (1, "memory", "1 memory"),
    ],
)
def test_a_number_stands_with_its_noun(number: int, noun: str, text: str) -> None:
    assert counted(number, noun) == text


def test_publish_ends_with_1_when_something_was_not_recorded(daemon: FakeDaemon, tmp_path: Path) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("conflict", "The session of the awaited turn was forgotten; the turn was not taken.", -32002)

    daemon.answers |= {
        "query": refuse,
        "sessions.get": lambda _: {"session_id": "s1", "state": "forgotten", "turns": 0},
        "sessions.list": lambda _: {"sessions": [], "forgotten": 1},
    }
    path = tmp_path / "chat.jsonl"
    turn = {"type": "turn", "id": "m", "user_id": "alice", "session_id": "s1", "role": "user", "content": "Hi."}
    path.write_text(json.dumps(turn))
    waited = run(daemon, "publish", path, "--wait")
    unwaited = run(daemon, "publish", path)

    assert (waited.exit_code, unwaited.exit_code) == (1, 0)
    assert "Refused: the session was forgotten" in waited.stderr
    assert "(session s1 of alice)" in waited.stderr


# events --follow, close and retract


@pytest.mark.parametrize("named", [("--user", "alice"), ()])
def test_following_a_session_that_has_not_begun_waits_for_it(daemon: FakeDaemon, named: tuple[str, ...]) -> None:
    asked: list[int] = []

    def unless_begun(answer: JsonObject) -> JsonObject:
        asked.append(1)
        if len(asked) < 2:
            raise Refusal("not_found", "There is no session of this id.", -32001)
        return answer

    event = {
        "user_seq": 1,
        "at": AT,
        "type": "turn.recorded",
        "happened_at": AT,
        "words": "kept",
        "what": {},
        "text": "Hi.",
    }
    page = {"events": [event], "next": 1, "more": False}
    daemon.answers |= {
        "users.list": lambda _: {"users": [{"user_id": "alice", "user_seq": 1, "sessions": 1, "turns": 1}]},
        "sessions.get": lambda _: unless_begun({"session_id": "s1", "state": "open", "turns": 1}),
        "sessions.events": lambda _: unless_begun(page),
    }
    command = [sys.executable, "-m", "memforest.cli", "events", "--session", "s1", *named, "--follow"]
    follower = subprocess.Popen(
        [*command, "--socket", str(daemon.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    line = follower.stdout.readline()
    os.kill(follower.pid, signal.SIGINT)
    _, errors = follower.communicate(timeout=20)

    assert line.startswith("1\t")
    assert errors.startswith("This session has not begun; waiting for it.\n")
    assert "Traceback" not in errors


@pytest.mark.parametrize("arguments", [("close", "alice", "s9"), ("retract", "alice", "s9", "m-1", "--yes")])
def test_a_name_that_nobody_knows_is_warned_of_and_sent_all_the_same(
    daemon: FakeDaemon, arguments: tuple[str, ...]
) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "There is no session of this id.", -32001)

    daemon.answers |= {"sessions.get": refuse, "turns.retract": lambda _: {"stream": "M", "seq": 1}}
    result = run(daemon, *arguments)

    assert result.exit_code == 0
    assert result.stderr == "No session s9 of alice is known; this makes one of that name.\n"
    assert len(daemon.requests) == 2


# Completion


def completed(daemon: FakeDaemon, *words: str) -> list[str]:
    environ = {
        "_MEMFOREST_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
    }
    runner = CliRunner(env={**environ, "MEMFOREST_SOCKET_PATH": str(daemon.path)})
    result = runner.invoke(cli, prog_name="memforest")
    return [line.partition(",")[2] for line in result.stdout.splitlines()]


def test_ids_are_completed_from_the_running_daemon(daemon: FakeDaemon) -> None:
    daemon.answers |= {
        "users.list": lambda _: {
            "users": [
                {"user_id": name, "user_seq": 1, "sessions": 1, "turns": 1} for name in ("alice", "al\nan", "bob")
            ]
        },
        "sessions.list": lambda params: {
            "sessions": [{"session_id": params["user_id"] + "-1", "state": "open", "turns": 1}]
        },
        "facts.list": lambda _: {"facts": [{"id": "3fa0", "text": "Alice lives in Miami."}]},
        "trees.list": lambda _: {
            "trees": [
                {"scope": "miami", "kind": "entity", "leaves": 1, "height": 0, "nodes": 0},
                {"scope": "aaaa1111", "kind": "scene", "name": "bob", "leaves": 1, "height": 0, "nodes": 0},
            ]
        },
    }

    assert completed(daemon, "memforest", "query", "al") == ["alice"], "not those that a shell cannot hold"
    assert completed(daemon, "memforest", "close", "alice", "") == ["alice-1"]
    assert completed(daemon, "memforest", "facts", "retract", "alice", "3f") == ["3fa0"]
    assert completed(daemon, "memforest", "tree", "alice", "") == ["miami", "aaaa1111"]
    assert completed(daemon, "memforest", "im") == ["import"]


def test_a_daemon_that_is_away_completes_nothing_and_says_nothing(daemon: FakeDaemon) -> None:
    runner = CliRunner(env={"MEMFOREST_SOCKET_PATH": "/nowhere/d.sock", "_MEMFOREST_COMPLETE": "bash_complete"})
    result = runner.invoke(cli, prog_name="memforest", env={"COMP_WORDS": "memforest query ", "COMP_CWORD": "2"})

    assert result.output.strip() == ""


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_of_a_shell_says_where_it_belongs(shell: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell])

    assert result.exit_code == 0
    assert f"# To have it in every shell: memforest completion {shell} > " in result.stdout
    assert "_MEMFOREST_COMPLETE" in result.stdout
    assert shell != "zsh" or result.stdout.startswith("#compdef memforest\n")
