"""`memforest query --answer`: the answer and its numbered sources, or why there is none."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from memforest import Client
from memforest.cli import cli
from memforest.commands.in_words import why_unanswered
from tests.memforest.fake_daemon import WATERMARK, FakeDaemon, JsonObject


def a_memory(memory_id: str, text: str, score: float) -> JsonObject:
    return {"id": memory_id, "kind": "fact", "text": text, "score": score, "sessions": ["s1"]}


ANSWERED: JsonObject = {
    "mode": "forest",
    "why_mode": "list",
    "memories": [a_memory("c1", "Rex naps.", 0.9), a_memory("c2", "Rex swims.", 0.8), a_memory("c3", "Kim.", 0.7)],
    "context": "Rex naps.",
    "watermark": WATERMARK,
    "insufficient": True,
    "answer": "In the\nlake\x1b[31m.",
    "citations": ["c3", "c2"],
    "abstained": False,
    "answered_by": {"model": "endpoint-m", "prompt": "answer-1", "spent": {"calls": 1, "prompt_tokens": 9}},
    "unanswered": None,
}


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        running.answers["query"] = lambda _: ANSWERED
        yield running


def run(daemon: FakeDaemon, *arguments: str) -> Result:
    return CliRunner().invoke(cli, ["query", "alice", "Where?", *arguments, "--socket", str(daemon.path)])


def test_the_wish_goes_out_only_when_it_is_given(daemon: FakeDaemon) -> None:
    run(daemon)
    run(daemon, "--answer", "--mode", "auto")

    assert [params.get("answer") for _, params in daemon.requests] == [None, True]
    assert daemon.requests[1][1]["mode"] == "auto"


def test_the_answer_stands_above_what_it_cites_in_that_order(daemon: FakeDaemon) -> None:
    result = run(daemon, "--answer")
    first, *sources = result.stdout.splitlines()

    assert first == "In the lake�[31m."
    assert [line.split("\t")[0] + line.split("\t")[-1] for line in sources] == ["1Kim.", "2Rex swims."]
    assert result.stderr == ""


@pytest.mark.parametrize(
    ("changes", "printed"),
    [
        ({}, "The memories do not say.\n"),
        ({"memories": [], "watermark": {**WATERMARK, "user_seq": 0}}, "Nothing is known of this user.\n"),
    ],
)
def test_an_abstention_is_one_line(daemon: FakeDaemon, changes: dict[str, Any], printed: str) -> None:
    abstained = {**ANSWERED, "answer": None, "citations": [], "abstained": True, **changes}
    daemon.answers["query"] = lambda _: abstained

    assert run(daemon, "--answer").stdout == printed


def test_without_an_answer_the_memories_are_shown_and_why(daemon: FakeDaemon) -> None:
    unanswered = {**ANSWERED, "answer": None, "citations": [], "unanswered": "budget"}
    daemon.answers["query"] = lambda _: unanswered
    result = run(daemon, "--answer")

    assert len(result.stdout.splitlines()) == 3
    assert "tokens of today are used up" in result.stderr


def test_a_reason_that_is_new_is_shown_as_it_is() -> None:
    assert why_unanswered("strike\x1b") == "Not answered in words: strike�."


def test_programs_get_it_typed(daemon: FakeDaemon) -> None:
    with Client(daemon.path) as memory:
        answer = memory.query("alice", "Where?", answer=True)

    assert (answer.mode, answer.why_mode, answer.citations) == ("forest", "list", ("c3", "c2"))
    assert answer.answered_by is not None
    assert (answer.answered_by.model, answer.answered_by.spent.prompt_tokens) == ("endpoint-m", 9)
