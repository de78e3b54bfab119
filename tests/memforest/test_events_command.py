"""`memforest events`, `memforest diff` and `query --as-of` against a daemon that speaks the contract."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from memforest.cli import cli
from memforest.client import Client
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = "2024-07-01T09:00:00Z"
ID = "63ccf064e2d2fc6b3982da74b637e5d8"


def an_event(user_seq: int, text: str | None = "Alice: Hello.", **more: object) -> JsonObject:
    event: JsonObject = {
        "user_seq": user_seq,
        "at": AT,
        "type": "turn.recorded",
        "happened_at": AT,
        "caused_by": None,
        "words": "kept",
        "what": {"characters": 6},
        "text": text,
        "a_field_of_a_later_version": 1,
    }
    return event | more


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, [*map(str, arguments), "--socket", str(daemon.path)])


def pages(*events: list[JsonObject]) -> list[JsonObject]:
    """The daemon's pages, one after the other; each goes on behind its last event."""
    return [
        {"events": page, "next": page[-1]["user_seq"] if page else 0, "more": page is not events[-1]}
        for page in events
    ]


def test_events_in_a_pipe_are_one_line_each(daemon: FakeDaemon) -> None:
    erased = an_event(2, None, words="erased", what={})
    two_facts = an_event(5, "One.\nTwo.", type="facts.extracted", what={"facts": 2, "chunk": ID})
    left = pages([an_event(1), erased, two_facts])
    daemon.answers["sessions.events"] = lambda _: left.pop(0)
    result = run(daemon, "events", "--session", "s1", "--user", "alice")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"1\t{AT}\tturn.recorded\tcharacters=6\tAlice: Hello.",
        f"2\t{AT}\tturn.recorded\t\t(words erased)",
        f"5\t{AT}\tfacts.extracted\tfacts=2 chunk={ID}\tOne. / Two.",
    ]
    assert daemon.requests == [
        ("sessions.events", {"user_id": "alice", "session_id": "s1", "after": 0, "limit": 500}),
    ]


def test_pages_are_fetched_to_the_last(daemon: FakeDaemon) -> None:
    left = pages([an_event(3)], [an_event(8)], [an_event(9)])
    daemon.answers["sessions.events"] = lambda _: left.pop(0)
    result = run(daemon, "events", "--session", "s1", "--user", "alice", "--after", "2", "--json")

    assert [json.loads(line)["user_seq"] for line in result.stdout.splitlines()] == [3, 8, 9]
    assert [params["after"] for _, params in daemon.requests] == [2, 3, 8]


def test_a_cursor_that_stands_still_ends_it(daemon: FakeDaemon) -> None:
    daemon.answers["sessions.events"] = lambda _: {"events": [], "next": 0, "more": True}
    result = run(daemon, "events", "--session", "s1", "--user", "alice")

    assert (result.exit_code, result.stdout) == (0, "")
    assert len(daemon.requests) == 1


def test_the_owner_of_a_session_is_found_when_there_is_one(daemon: FakeDaemon) -> None:
    owners = {"alice", "carol"}

    def get(params: JsonObject) -> JsonObject:
        if params["user_id"] not in owners:
            raise Refusal("not_found", "There is no such session.", -32001)
        return {"session_id": "s1", "state": "open", "turns": 1}

    daemon.answers["users.list"] = lambda _: {
        "users": [
            {"user_id": name, "user_seq": 1, "sessions": 1, "turns": 1} for name in ("alice", "bob", "carol")
        ]
    }
    daemon.answers["sessions.get"] = get
    daemon.answers["sessions.events"] = lambda p: pages([an_event(1, p["user_id"])])[0]
    both = run(daemon, "events", "--session", "s1")
    owners.remove("alice")
    one = run(daemon, "events", "--session", "s1")
    owners.clear()
    none = run(daemon, "events", "--session", "s1")

    assert (both.exit_code, one.exit_code, none.exit_code) == (2, 0, 1)
    assert "--user" in both.output
    assert one.stdout.endswith("carol\n")


def test_following_asks_behind_what_it_has_until_it_is_interrupted(daemon: FakeDaemon) -> None:
    left = [*pages([an_event(1)]), {"events": [], "next": 4, "more": False}, *pages([an_event(6)])]
    daemon.answers["sessions.events"] = lambda _: left.pop(0) if left else {"events": [], "next": 6, "more": False}
    command = [sys.executable, "-m", "memforest.cli", "events", "--session", "s1", "--user", "alice", "--follow"]
    follower = subprocess.Popen(
        [*command, "--socket", str(daemon.path)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    assert follower.stdout is not None
    lines = [follower.stdout.readline().split("\t")[0] for _ in range(2)]
    os.kill(follower.pid, signal.SIGINT)
    _, errors = follower.communicate(timeout=20)

    assert lines == ["1", "6"]
    assert "Traceback" not in errors
    assert [params["after"] for _, params in daemon.requests[:3]] == [0, 1, 4]
    assert all(params["wait_s"] > 1 for _, params in daemon.requests), "the daemon holds the question"


def test_what_would_act_on_the_terminal_is_made_harmless(daemon: FakeDaemon) -> None:
    daemon.answers["sessions.events"] = lambda _: pages([an_event(1, "Alice: \x1b[2J\tgone\nnext")])[0]
    result = run(daemon, "events", "--session", "s1", "--user", "alice")

    assert "\x1b" not in result.stdout
    assert len(result.stdout.splitlines()) == 1


def a_difference(**more: object) -> JsonObject:
    difference: JsonObject = {
        "a": 3, "b": 9, "came": [], "went": [], "changed": [], "scopes": [],
        "groups_made": [], "groups_undone": [], "left_off": 0, "redacted": 0,
    }  # fmt: skip
    return difference | more


def test_a_difference_is_one_line_a_change(daemon: FakeDaemon) -> None:
    fact: JsonObject = {"id": "f1", "text": "Alice moved.", "said_at": AT, "time_start": AT, "time_end": AT}
    changed = {"id": "f3", "occurrences_before": 1, "occurrences": 2, "text_before": "Rain.", "text": "Rain."}
    corrected = changed | {"id": "f4", "text": "Sun."}
    daemon.answers["diff"] = lambda _: a_difference(
        came=[fact],
        went=[fact | {"id": "f2", "text": None}],
        changed=[changed, corrected],
        scopes=[
            {"scope": "zoe", "kind": "entity", "joined": ["f1"], "left": []},
            {"scope": "5ce", "kind": "scene", "joined": [], "left": ["f1"], "name": "yoga"},
        ],
        groups_made=[{"id": "g1", "text": "All.", "members": ["f1", "f3"]}],
        ended=[{"id": "f5", "text": "Alice lives in Boston.", "until": AT, "by": "f1"}],
        standing=[fact | {"id": "f6", "text": None}],
        left_off=7,
        redacted=2,
    )
    result = run(daemon, "diff", 3, AT, "--user", "alice")

    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        "+\tfact\tf1\tAlice moved.",
        "-\tfact\tf2\t(words erased)",
        "~\tfact\tf3\tRain. (read 2 times, 1 before)",
        "-\tfact\tf4\tRain.",
        "+\tfact\tf4\tSun.",
        "~\tentity\tzoe\t1 fact joined, 0 left",
        "~\tscene\t5ce\tyoga: 0 facts joined, 1 left",
        f'~\tended\tf5\tAlice lives in Boston. (until {AT[:10]}, by "Alice moved.")',
        "~\tholds again\tf6\t(words erased)",
        "+\tgroup\tg1\tAll.",
    ]
    assert "7 more" in result.stderr
    assert "2 events" in result.stderr
    assert daemon.requests == [("diff", {"user_id": "alice", "a": 3, "b": AT})]


def test_no_difference_has_no_lines(daemon: FakeDaemon) -> None:
    daemon.answers["diff"] = lambda _: a_difference()
    result = run(daemon, "diff", 3, "--user", "alice")

    assert (result.exit_code, result.stdout) == (0, "")
    assert daemon.requests == [("diff", {"user_id": "alice", "a": 3})]


@pytest.mark.parametrize(("given", "sent"), [("12", 12), (AT, AT)])
def test_a_question_can_be_put_to_the_past(daemon: FakeDaemon, given: str, sent: int | str) -> None:
    result = run(daemon, "query", "alice", "Where?", "--as-of", given)

    assert result.exit_code == 0, result.output
    assert daemon.requests == [("query", {"user_id": "alice", "query": "Where?", "as_of": sent})]


def test_a_client_reads_pages_and_differences(daemon: FakeDaemon) -> None:
    daemon.answers["sessions.events"] = lambda _: pages([an_event(4)])[0]
    daemon.answers["diff"] = lambda _: a_difference()
    with Client(daemon.path) as client:
        page = client.session_events("alice", "s1", after=3)
        difference = client.diff("alice", 3, 9)

    assert (page.events[0].user_seq, page.events[0].what, page.next) == (4, {"characters": 6}, 4)
    assert (difference.a, difference.b, difference.came) == (3, 9, ())
