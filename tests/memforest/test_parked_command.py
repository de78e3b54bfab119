"""`memforest parked` against a daemon that speaks the contract over a real Unix socket."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner, Result

from events.memory import ParkReason
from memforest import Client
from memforest.cli import cli
from memforest.commands.completing import complete_parked
from memforest.commands.parked import REASONS
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

AT = "2024-07-01T09:00:00Z"
SPENT = {"calls": 2, "prompt_tokens": 300, "cached_tokens": 100, "completion_tokens": 40, "cost": 1.5}
UNKNOWN = "No work was parked under this id; `parked.list` names what stands parked."


def a_piece(number: int, **more: object) -> JsonObject:
    piece: JsonObject = {
        "user_id": "alice",
        "id": number,
        "task": "extract",
        "reason": "answer_cut",
        "at": AT,
        "session_id": "s1",
        "turns": [{"session_id": "s1", "turn_id": "m-1"}, {"session_id": "s1", "turn_id": None}],
        "spent": SPENT,
        "a_field_of_a_later_version": 1,
    }
    return piece | more


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["parked", *map(str, arguments), "--socket", str(daemon.path)])


def test_parked_work_in_a_pipe_is_one_line_each(daemon: FakeDaemon) -> None:
    nobodys = a_piece(7, task="merge", session_id=None, turns=[], spent=None)
    daemon.answers["parked.list"] = lambda _: {"parked": [a_piece(9), nobodys], "next": None}
    result = run(daemon, "list")

    assert result.exit_code == 0
    assert result.stdout.splitlines() == [
        f"9\talice\t{AT}\textract\ts1\tm-1, ?\t2\t340\tanswer_cut",
        f"7\talice\t{AT}\tmerge\t\t\t0\t0\tanswer_cut",
    ]
    assert result.stderr == ""
    assert daemon.requests == [("parked.list", {"limit": 100, "after": 0})]


def test_a_page_of_one_user_says_how_to_go_on(daemon: FakeDaemon) -> None:
    daemon.answers["parked.list"] = lambda _: {"parked": [a_piece(9)], "next": 1234}
    result = run(daemon, "list", "alice", "--limit", 1, "--after", 2000)

    assert result.stderr == "There is more: --after 1234\n"
    assert daemon.requests == [("parked.list", {"user_id": "alice", "limit": 1, "after": 2000})]


def test_a_piece_is_shown_with_its_reason_in_words_and_what_would_be_asked(daemon: FakeDaemon) -> None:
    asked = [
        {
            "user_seq": 5,
            "type": "turn.recorded",
            "source": {"session_id": "s1", "turn_id": "m-1"},
            "said_at": AT,
            "text": "Alice: I\tmoved.\x1b[2J",
        },
        {
            "user_seq": 6,
            "type": "turn.recorded",
            "source": {"session_id": None, "turn_id": None},
            "said_at": AT,
            "text": None,
        },
    ]
    daemon.answers["parked.get"] = lambda _: {"parked": a_piece(9), "asked": asked, "left_off": 3}
    result = run(daemon, "show", "alice", 9)

    assert result.stdout.splitlines() == [
        f"5\t{AT}\ts1/m-1\tAlice: I moved.\N{REPLACEMENT CHARACTER}[2J",
        f"6\t{AT}\t\t(words erased)",
    ]
    assert result.stderr.splitlines() == [
        "extract: the model stopped before the end of its answer, also in parts (2 calls)",
        "3 more are not shown.",
        "Once the cause is mended: memforest parked retry alice 9",
    ]
    assert daemon.requests == [("parked.get", {"user_id": "alice", "id": 9})]


def test_every_reason_is_told_in_words() -> None:
    assert set(REASONS) == {reason.value for reason in ParkReason}


@pytest.mark.parametrize(
    ("typed", "asked"),
    [
        (["alice", 9], {"user_id": "alice", "id": 9}),
        (["alice"], {"user_id": "alice"}),
        (["--all"], {}),
    ],
)
def test_one_piece_all_of_a_user_or_everybodys_is_retried(
    daemon: FakeDaemon, typed: list[object], asked: JsonObject
) -> None:
    daemon.answers["parked.retry"] = lambda _: {"resumed": 2}
    result = run(daemon, "retry", *typed)

    assert result.stdout == "To be tried again: 2 pieces of work.\n"
    assert daemon.requests == [("parked.retry", asked)]


def test_when_nothing_was_parked_that_is_said(daemon: FakeDaemon) -> None:
    daemon.answers["parked.retry"] = lambda _: {"resumed": 0}

    assert run(daemon, "retry", "--all").stdout == "Nothing was parked.\n"


@pytest.mark.parametrize("typed", [[], ["alice", "--all"], ["alice", 9, "--all"]])
def test_whose_work_is_to_be_retried_must_be_said_once(daemon: FakeDaemon, typed: list[object]) -> None:
    result = run(daemon, "retry", *typed)

    assert result.exit_code == 2
    assert "--all" in result.stderr
    assert daemon.requests == []


def test_an_unknown_piece_is_told_in_the_words_of_the_command(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("not_found", UNKNOWN)

    daemon.answers["parked.get"] = refuse
    result = run(daemon, "show", "alice", 9)

    assert result.exit_code == 1
    assert "`memforest parked list` names what stands parked" in result.stderr


def test_with_json_it_is_what_the_daemon_said(daemon: FakeDaemon) -> None:
    page = {"parked": [a_piece(9)], "next": None}
    daemon.answers["parked.list"] = lambda _: page

    assert json.loads(run(daemon, "list", "--json").stdout) == page


def test_ids_are_completed_for_the_user_that_was_named(daemon: FakeDaemon) -> None:
    daemon.answers["parked.list"] = lambda _: {"parked": [a_piece(19), a_piece(25), a_piece(1)], "next": None}
    command = cli.commands["parked"].commands["show"]  # type: ignore[attr-defined]
    context = command.make_context("show", ["alice", "1", "--socket", str(daemon.path)])
    found = complete_parked(context, command.params[1], "1")

    assert [(each.value, each.help) for each in found] == [
        ("19", "extract: answer_cut"),
        ("1", "extract: answer_cut"),
    ]


def test_the_client_reads_what_the_daemon_says(daemon: FakeDaemon) -> None:
    daemon.answers["parked.list"] = lambda _: {"parked": [a_piece(9)], "next": None}
    with Client(daemon.path) as client:
        (piece,) = client.parked("alice").parked

    assert (piece.id, piece.task, piece.turns[0].turn_id) == (9, "extract", "m-1")
    assert piece.spent is not None
    assert (piece.spent.calls, piece.spent.cost) == (2, 1.5)
