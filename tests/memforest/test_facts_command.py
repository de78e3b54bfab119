"""`memforest facts` and the calls behind it, against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from memforest import Client, ConnectionLost, Fact, FactSettled
from memforest.cli import cli
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = "2024-07-01T09:00:00Z"
MIAMI: JsonObject = {
    "id": "f2",
    "text": "Alice lives in Miami.",
    "time_start": AT,
    "role": "state",
    "sessions": ["s1"],
    "pinned": True,
}
LINE = f"f2\t{AT}\tstate\t\tyes\ts1\tAlice lives in Miami.\n"


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        running.answers["facts.get"] = lambda _: MIAMI
        for method in ("facts.correct", "facts.pin"):
            running.answers[method] = lambda params: {"fact": MIAMI, "replaces": params["fact_id"]}
        running.answers["facts.retract"] = lambda params: {"fact": None, "replaces": params["fact_id"]}
        yield running


def run(daemon: FakeDaemon, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["facts", *arguments, "--socket", str(daemon.path)])


@pytest.mark.parametrize(
    ("arguments", "method", "params"),
    [
        ("get alice f1", "facts.get", {}),
        ("correct alice f1 New", "facts.correct", {"text": "New"}),
        (f"correct alice f1 --from {AT} --until {AT}", "facts.correct", {"time_start": AT, "time_end": AT}),
        ("retract alice f1", "facts.retract", {}),
        ("pin alice f1", "facts.pin", {"pinned": True}),
        ("pin alice f1 --off", "facts.pin", {"pinned": False}),
    ],
)
def test_each_command_asks_one_method_and_shows_the_fact_as_it_is_now(
    daemon: FakeDaemon, arguments: str, method: str, params: JsonObject
) -> None:
    result = run(daemon, *arguments.split())

    assert daemon.requests == [(method, {"user_id": "alice", "fact_id": "f1", **params})]
    assert result.stdout == ("Fact f1 is known no more.\n" if method == "facts.retract" else LINE)
    assert json.loads(run(daemon, *arguments.split(), "--json").stdout)


@pytest.mark.parametrize("arguments", [["alice"], ["list", "alice"], ["--json", "alice"], ["list", "get"]])
def test_without_a_command_facts_are_listed(daemon: FakeDaemon, arguments: list[str]) -> None:
    daemon.answers["facts.list"] = lambda _: {"facts": [MIAMI], "next": None}
    result = run(daemon, *arguments)

    assert [(method, params["user_id"]) for method, params in daemon.requests] == [("facts.list", arguments[-1])]
    assert "Alice lives in Miami." in result.stdout


def test_contradictions_are_shown_side_by_side_with_their_reason(daemon: FakeDaemon) -> None:
    boston = {**MIAMI, "id": "f1", "text": "Alice lives in Boston."}
    pairs = [{"one": "f1", "other": "f2", "reason": "state", "entity": "alice", "attribute": "home"}]
    daemon.answers["facts.list"] = lambda _: {"facts": [boston, MIAMI], "next": None, "conflicts": pairs}
    result = run(daemon, "alice", "--conflicts")

    assert result.stdout.splitlines() == [
        f"home of alice\tf1\t{AT}\ts1\tAlice lives in Boston.",
        f"home of alice\tf2\t{AT}\ts1\tAlice lives in Miami.",
    ]
    assert [params for _, params in daemon.requests] == [{"user_id": "alice", "limit": 500, "conflicts": True}]
    assert json.loads(run(daemon, "alice", "--conflicts", "--json").stdout)["conflicts"] == pairs


def test_a_state_is_shown_with_how_long_it_held_and_what_was_beside_it(daemon: FakeDaemon) -> None:
    until = "2025-01-01T00:00:00Z"
    more = {"attribute": "home", "entity": "alice", "valid_from": AT, "valid_until": until, "successor": "f3"}
    daemon.answers["facts.get"] = lambda _: {**MIAMI, **more}
    result = run(daemon, "get", "alice", "f2")

    assert result.stdout == LINE.replace("state\t", f"state\t{until}")
    assert result.stderr == f"home of alice: {AT}/{until}; after it f3\n"


def test_a_fact_that_is_gone_is_one_sentence_and_exit_code_1(daemon: FakeDaemon) -> None:
    def gone(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", "There is no fact of this id.")

    daemon.answers["facts.pin"] = gone
    result = run(daemon, "pin", "alice", "f1")

    assert (result.exit_code, result.stderr) == (1, "Error: There is no fact of this id.\n")


def test_help_names_the_commands(daemon: FakeDaemon) -> None:
    shown = CliRunner().invoke(cli, ["facts", "--help"]).stdout

    assert all(name in shown for name in ("list", "get", "correct", "retract", "pin"))
    assert daemon.requests == []


def test_the_client_corrects_retracts_and_pins(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as client:
        corrected = client.correct_fact("alice", "f1", "New", time_start=AT)
        retracted = client.retract_fact("alice", "f1")
        let_go = client.pin_fact("alice", "f1", pinned=False)
        fact = client.fact("alice", "f2")

    assert isinstance(corrected.fact, Fact)
    assert (corrected.fact.text, corrected.replaces) == ("Alice lives in Miami.", "f1")
    assert retracted == FactSettled("f1", None)
    assert (let_go.replaces, fact.pinned) == ("f1", True)
    assert [params for _, params in daemon.requests][2] == {"user_id": "alice", "fact_id": "f1", "pinned": False}


def test_a_correction_is_not_asked_twice_when_the_answer_is_lost(daemon: FakeDaemon) -> None:
    daemon.lose_answer = 1
    with Client(daemon.path) as client, pytest.raises(ConnectionLost):
        client.retract_fact("alice", "f1")

    assert len(daemon.requests) == 1
