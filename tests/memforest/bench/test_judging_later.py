"""A run that asked without a judge, taken up with one: the answers in its log are judged, whoever is forgotten."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from memforest.bench.daemons import Daemon
from memforest.bench.datasets.conversations import Conversation, Stage
from memforest.bench.flow import Bench, Plan
from memforest.bench.log import Log
from memforest.bench.records import Asked, Case, Worded
from memforest.bench.rows import make_rows
from memforest.errors import Unavailable
from tests.memforest.fake_daemon import FakeDaemon, JsonObject, Refusal

SETTINGS: JsonObject = {"data_set": "locomo"}
CASES = tuple(
    Case(f"conv/{n}", "conv", "single-hop", "Where is Ann?", answers=("Oslo",), asked_at="2023-06-01")
    for n in range(3)
)
CONVERSATION = Conversation("conv", (Stage((), CASES),))


class Silent:
    """Nobody is told."""

    def doing(self, sentence: str) -> None: ...

    def waiting(self, pending: int) -> None: ...

    def done(self) -> None: ...


def a_bench(log: Log, socket_path: Path, *, judge: bool) -> Bench:
    plan = Plan("locomo", make_rows(["agpr"]), 10, 1, judge, False, 2, 1.0)
    return Bench(plan, [Daemon("", socket_path)], log, Silent())


def judged_by_words(params: JsonObject) -> JsonObject:
    right = "Oslo" in params["answer"]
    spent = {"calls": 1, "prompt_tokens": 90, "completion_tokens": 10}
    return {
        "right": right,
        "reason": "same" if right else "different",
        "model": "m",
        "prompt": "p",
        "spent": spent,
    }


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "d.sock") as running:
        running.answers["answers.judge"] = judged_by_words
        yield running


def write_log(path: Path, *, words: bool = True) -> None:
    """A run that has asked each case once in each row, and forgotten its user."""
    with Log(path, SETTINGS, run_id="r1", words=words) as log:
        for row in ("BM25", "hybrid", "agpr"):
            for case, text in zip(CASES, ("In Oslo.", "Bergen", ""), strict=True):
                log.ask(Asked("", row, case.case_id, case.category, worded=(Worded(text, False),)), case)
        log.forget("", "conv")


def verdicts(log: Log) -> list[bool | None]:
    return [log.known.asked["", "agpr", case.case_id].worded[0].marks.judged for case in CASES]


def test_logged_answers_are_judged_later_for_nobody_in_particular(daemon: FakeDaemon, tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    with Log(tmp_path / "log", SETTINGS, run_id="r2", words=True) as log:
        a_bench(log, daemon.path, judge=True).run([CONVERSATION])
        known = verdicts(log)
    with Log(tmp_path / "log", SETTINGS, run_id="r3", words=True) as log:
        a_bench(log, daemon.path, judge=True).run([CONVERSATION])

        assert verdicts(log) == known == [True, False, False]
    # Three rows, two texts each; what is empty asks nobody, and nothing is judged twice.
    assert daemon.methods() == ["answers.judge"] * 6
    assert daemon.requests[0][1] == {
        "question": "Where is Ann?",
        "gold": ["Oslo"],
        "answer": "In Oslo.",
        "rubric": "general",
        "asked_at": "2023-06-01",
    }


def test_a_log_without_words_has_nothing_to_judge(daemon: FakeDaemon, tmp_path: Path) -> None:
    write_log(tmp_path / "log", words=False)
    with Log(tmp_path / "log", SETTINGS, run_id="r2") as log:
        a_bench(log, daemon.path, judge=True).run([CONVERSATION])

        assert verdicts(log) == [None, None, None]
    assert daemon.methods() == []


def test_judging_that_is_broken_off_goes_on_where_it_was(daemon: FakeDaemon, tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    asked = 0

    def away(params: JsonObject) -> JsonObject:
        nonlocal asked
        asked += 1
        if asked > 2:
            raise Refusal("unavailable", "the model does not answer")
        return judged_by_words(params)

    daemon.answers["answers.judge"] = away
    log = Log(tmp_path / "log", SETTINGS, run_id="r2", words=True)
    with log, pytest.raises(Unavailable, match="does not answer"):
        a_bench(log, daemon.path, judge=True).run([CONVERSATION])
    daemon.answers["answers.judge"] = judged_by_words
    daemon.requests.clear()
    with Log(tmp_path / "log", SETTINGS, run_id="r3", words=True) as log:
        a_bench(log, daemon.path, judge=True).run([CONVERSATION])

        assert verdicts(log) == [True, False, False]
    assert len(daemon.methods()) == 4


def test_without_a_judge_nothing_is_judged(daemon: FakeDaemon, tmp_path: Path) -> None:
    write_log(tmp_path / "log")
    with Log(tmp_path / "log", SETTINGS, run_id="r2", words=True) as log:
        a_bench(log, daemon.path, judge=False).run([CONVERSATION])

        assert verdicts(log) == [None, None, None]
