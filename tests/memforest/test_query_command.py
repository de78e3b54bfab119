"""`memforest query` against a daemon that speaks the contract: what is asked for, and what people see."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memforest.cli import cli
from memforest.commands.answer_view import bar
from tests.memforest.fake_daemon import WATERMARK, FakeDaemon, JsonObject, Refusal


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        yield running


def run(daemon: FakeDaemon, *arguments: object) -> Result:
    return CliRunner().invoke(cli, ["query", *map(str, arguments), "--socket", str(daemon.path)])


def asked(daemon: FakeDaemon) -> JsonObject:
    """What the last request asked, without whom and what."""
    return {name: value for name, value in daemon.requests[-1][1].items() if name not in ("user_id", "query")}


def on_a_terminal(daemon: FakeDaemon, *arguments: str) -> str:
    """What a terminal of 100 columns shows."""
    main, other = pty.openpty()
    command = [sys.executable, "-m", "memforest.cli", "query", *arguments, "--socket", str(daemon.path)]
    environ = {**os.environ, "COLUMNS": "100", "TERM": "xterm"}
    child = subprocess.Popen(command, stdout=other, stderr=other, stdin=other, env=environ)
    os.close(other)
    shown = b""
    with suppress(OSError):  # the terminal ends with its last writer
        while piece := os.read(main, 4096):
            shown += piece
    child.wait(timeout=30)
    os.close(main)
    return shown.decode()


@pytest.mark.parametrize(
    ("options", "params"),
    [
        ([], {}),
        (["--session", "s1", "--session", "s2"], {"filters": {"sessions": ["s1", "s2"]}}),
        (["--not-session", "s1", "--role", "user"], {"filters": {"not_sessions": ["s1"], "roles": ["user"]}}),
        (["--kind", "fact", "--entity", "Kim"], {"filters": {"kinds": ["fact"], "entities": ["Kim"]}}),
        (["--agent", "a1", "--not-role", "tool"], {"filters": {"agents": ["a1"], "not_roles": ["tool"]}}),
        (["--metadata", "channel=mail"], {"filters": {"metadata": {"channel": ["mail"]}}}),
        (
            ["--metadata", "floor=3", "--metadata", "floor=x=y"],
            {"filters": {"metadata": {"floor": ["3", 3, "x=y"]}}},
        ),
        (["--since", "2024-07-01"], {"filters": {"said_after": "2024-07-01"}}),
        (["--until", "2024-07-01"], {"filters": {"said_before": "2024-07-01"}}),
        (["--valid-at", "2024-07-01"], {"valid_at": "2024-07-01"}),
        (["--between", "2024-07-01", "2024-07-02"], {"between": ["2024-07-01", "2024-07-02"]}),
        (
            ["--mode", "forest", "--family", "scene", "--family", "entity", "--no-vectors"],
            {"mode": "forest", "families": ["scene", "entity"], "vectors": False},
        ),
        (["--mode", "flat", "--explain", "--open-groups"], {"mode": "flat", "explain": True, "open_groups": True}),
    ],
)
def test_options_become_parameters(daemon: FakeDaemon, options: list[str], params: JsonObject) -> None:
    result = run(daemon, "alice", "Where?", *options)

    assert result.exit_code == 0
    assert asked(daemon) == params


def test_metadata_without_a_value_is_refused_before_anything_is_asked(daemon: FakeDaemon) -> None:
    result = run(daemon, "alice", "Where?", "--metadata", "channel")

    assert (result.exit_code, "channel=email" in result.stderr, daemon.requests) == (2, True, [])


def test_an_error_names_the_option_that_was_typed(daemon: FakeDaemon) -> None:
    def refuse(_: JsonObject) -> JsonObject:
        raise Refusal("invalid", "filters.said_after is a date (2024-07-01)", -32602)

    daemon.answers["query"] = refuse
    result = run(daemon, "alice", "Where?", "--since", "yesterday")

    assert result.stderr == "Error: --since is a date (2024-07-01)\n"


def test_a_user_nobody_knows_is_told_from_one_who_said_nothing_of_it(daemon: FakeDaemon) -> None:
    empty: dict[str, Any] = {"memories": [], "context": "", "watermark": {**WATERMARK, "user_seq": 0}}
    daemon.answers["query"] = lambda _: empty
    unknown = run(daemon, "nobody", "Where?")
    daemon.answers["query"] = lambda _: {**empty, "watermark": WATERMARK}
    known = run(daemon, "alice", "Where?")

    assert unknown.stderr == "Nothing is known of this user.\n"
    assert known.stderr == ""


def test_on_a_terminal_it_is_said_once_that_nobody_knows_a_user(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: {"memories": [], "context": "", "watermark": {**WATERMARK, "user_seq": 0}}

    assert on_a_terminal(daemon, "nobody", "Where?").split("\r\n") == ["Nothing is known of this user.", ""]


def test_of_a_user_who_was_not_known_then_the_clock_that_counts_is_named(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: {"memories": [], "context": "", "watermark": {**WATERMARK, "user_seq": 0}}
    result = run(daemon, "alice", "Where?", "--as-of", "2023-01-01T00:00:00Z")

    assert result.stderr == "Nothing was known of this user then: --as-of goes by when something was recorded.\n"


def test_the_cap_that_ended_the_asking_is_named(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: {**ANSWER, "explanation": None, "capped": "calls"}
    result = run(daemon, "alice", "Where?", "--mode", "deep")

    assert result.stderr == "The cap on calls (--calls-max) ended it: these memories were found until then.\n"


def test_an_answer_that_may_be_none_says_so_beside_it(daemon: FakeDaemon) -> None:
    memory = {"id": "c1", "kind": "fact", "text": "Rex.", "score": 0.1, "sessions": ["s1"]}
    answer = {"memories": [memory], "context": "", "watermark": WATERMARK, "confidence": 0.1, "insufficient": True}
    daemon.answers["query"] = lambda _: answer

    assert run(daemon, "alice", "Where?").stderr == "Perhaps none of this answers it.\n"


CANDIDATE: JsonObject = {
    "id": "c1",
    "kind": "chunk",
    "text": "Kim: Rex swims\nin the lake",
    "said_at": "2024-07-01T09:00:00Z",
    "bm25": 2.5,
    "bm25_by_word": {"Rex": 2.5},
    "cosine": None,
    "fused": 1.0,
    "smoothing": 0.25,
    "similarity": 1.25,
    "anchor": True,
    "propagation": 1.0,
    "score": 1.2125,
    "rank_before": 1,
    "rank": 1,
    "dropped": None,
    "carried_by": [],
}
ANSWER: JsonObject = {
    "memories": [
        {
            "id": "c1",
            "kind": "group",
            "text": "Kim: Rex \x1b[31mswims",
            "said_at": "2024-07-01T09:00:00Z",
            "valid_until": "2024-08-05T00:00:00Z",
            "score": 1.2125,
            "sessions": ["s1"],
            "sources": [{"session_id": "s1", "turn_id": "m-1"}, {"session_id": "s1", "turn_id": None}],
            "parts": [{"kind": "image_url", "reference": "https://a/b.png", "caption": "our dog"}],
            "members": [{"id": "f1", "text": "Rex is a dog.", "said_at": "2024-06-01T09:00:00Z"}],
        }
    ],
    "context": "[1 July 2024] Kim: Rex swims",
    "watermark": WATERMARK,
    "confidence": 0.9,
    "insufficient": False,
    "explanation": {
        "parameters": {
            "mode": "agpr",
            "k": 10,
            "candidates_per_answer": 4,
            "anchor_share": 0.2,
            "time_unit": "hours",
            "gamma": 0.85,
            "smoothing": 0.6,
            "cosine_weight": 0.0,
            "embedder": None,
        },
        "words": [{"word": "Rex", "nodes": 3, "weight": 1.5}],
        "filters": [{"name": "nodes", "nodes": 9}, {"name": "roles", "nodes": 4}],
        "candidates": [
            CANDIDATE,
            {**CANDIDATE, "id": "c2", "rank": None, "rank_before": 2, "dropped": "carried", "carried_by": ["c1"]},
        ],
        "left_off": 0,
        "timings_ms": {"filter": 0.1, "score": 0.2},
    },
}


def test_a_terminal_shows_rank_bar_date_text_parts_members_and_sources(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: {**ANSWER, "explanation": None}
    shown = on_a_terminal(daemon, "alice", "Where?")

    for piece in (
        "1.21",
        "1 July 2024",
        ", until 5 August 2024",
        "group",
        "█" * 8,
        "image_url: https://a/b.png (our dog)",
        "s1/m-1, s1",
    ):
        assert piece in shown
    assert "2024-06-01  Rex is a dog." in shown
    assert "confidence 0.90" in shown
    assert "\x1b[31mswims" not in shown


def test_a_terminal_shows_how_the_answer_came_about(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: ANSWER
    shown = on_a_terminal(daemon, "alice", "Where?", "--explain")

    for piece in ("s = BM25 + 0.6 of each neighbour", "v = 0.85 s + 0.15 p", "Rex 2.50", "roles", "in c1", "1*"):
        assert piece in shown


def test_a_terminal_shows_which_trees_were_gone_down(daemon: FakeDaemon) -> None:
    tree = {
        "id": "t1",
        "kind": "entity",
        "scope": "rex",
        "score": 0.75,
        "by_root": None,
        "by_fact": 0.75,
        "leaves": 4,
    }
    browsed = {"by": "vectors", "trees": [tree], "levels": 2, "leaves": 7, "loose": 1}
    explanation: dict[str, Any] = {**ANSWER["explanation"], "browsed": browsed}
    daemon.answers["query"] = lambda _: {**ANSWER, "explanation": explanation}
    shown = on_a_terminal(daemon, "alice", "Where?", "--explain")

    for piece in ("entity", "rex", "0.750", "Went down by vectors, 2 levels to 7 memories; 1 in no tree."):
        assert piece in shown


def test_in_a_pipe_an_explanation_is_a_line_a_candidate(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: ANSWER
    result = run(daemon, "alice", "Where?", "--explain")
    lines = [line.split("\t") for line in result.stdout.splitlines()]

    assert [line[1] for line in lines] == ["1*", "2*"]
    assert lines[0][-1] == "Kim: Rex swims in the lake"


def test_json_holds_the_explanation_as_it_came(daemon: FakeDaemon) -> None:
    daemon.answers["query"] = lambda _: ANSWER

    assert json.loads(run(daemon, "alice", "Where?", "--explain", "--json").stdout) == ANSWER


@pytest.mark.parametrize(("share", "shown"), [(0, " " * 8), (1, "█" * 8), (0.5, "█" * 4 + " " * 4), (7, "█" * 8)])
def test_a_bar_has_one_width(share: float, shown: str) -> None:
    assert bar(share) == shown
