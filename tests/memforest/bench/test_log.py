"""The log of a run: read again it says what was done, and it belongs to one run alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from memforest.bench.log import BadLog, Begun, Log, Spending
from memforest.bench.records import Asked, Built, Case, Evidence, Marks, SessionsFound, Spent, Worded

SETTINGS: dict[str, Any] = {"data_set": "locomo", "k": 10, "rows": {"BM25": {"vectors": False}}, "questions": None}
CASE = Case("c/1", "c", "temporal", "Where is the key?", answers=("under the stone",))
BEGUN = Begun("", "c", 0, "bench-locomo-r1-1-c", Spending(3, 400, 0.5))
BUILT = Built("", "c", 2, 40, 1.5, 6, 900, 0.25, 17)
ASKED = Asked(
    "",
    "agpr",
    "c/1",
    "temporal",
    evidence=Evidence(0.5, 1.0, 1.0, 0.0, 0.5, 1.0, 0.25),
    sessions=SessionsFound(1.0, 1.0, 1.0),
    spent=Spent(1.0, 2.0, 3.0, 4.0, 2, 5, 6),
    mode="agpr",
    confidence=0.25,
    memories=("aa", "bb"),
    worded=(Worded("under the stone", abstained=False, cited=("aa",), marks=Marks(judged=True, f1=1.0)),),
)


def opened(path: Path, **more: Any) -> Log:
    return Log(path, SETTINGS | more, run_id="r1")


def write_one(path: Path, *, words: bool = False) -> None:
    with Log(path, SETTINGS, run_id="r1", words=words) as log:
        log.begin(BEGUN)
        log.build(BUILT, 0)
        log.ask(ASKED, CASE)
        log.forget("", "c")


def test_what_was_written_is_known_again_but_for_the_words(tmp_path: Path) -> None:
    write_one(tmp_path / "log")
    with Log(tmp_path / "log", SETTINGS, run_id="another") as log:
        known = log.known

        assert (log.run_id, log.resumed) == ("r1", True)
    (asked,) = known.asked.values()

    assert known.begun == {("", "c", 0): BEGUN}
    assert known.built == {("", "c", 0): BUILT}
    assert known.forgotten == {("", "c")}
    assert asked.worded[0].text is None
    assert (asked.evidence, asked.sessions, asked.spent) == (ASKED.evidence, ASKED.sessions, ASKED.spent)
    assert asked.worded[0].marks == ASKED.worded[0].marks


@pytest.mark.parametrize("words", [False, True])
def test_words_stand_in_a_log_only_when_they_are_wanted(tmp_path: Path, words: bool) -> None:
    write_one(tmp_path / "log", words=words)
    text = (tmp_path / "log").read_text("utf-8")

    assert ("Where is the key?" in text) is words
    assert ("under the stone" in text) is words


def test_a_last_line_that_was_cut_off_is_cut_away(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_one(path)
    whole = path.read_bytes()
    path.write_bytes(whole + whole.splitlines()[3][:50])
    with opened(path) as log:
        log.ask(ASKED, CASE)

    assert path.read_bytes().startswith(whole + b'{"type": "asked"')
    with opened(path) as log:
        assert len(log.known.asked) == 1


def test_the_last_line_about_a_question_counts(tmp_path: Path) -> None:
    path = tmp_path / "log"
    with opened(path) as log:
        log.ask(Asked("", "agpr", "c/1", "temporal", fault="internal"), CASE)
        log.ask(ASKED, CASE)
    with opened(path) as log:
        (asked,) = log.known.asked.values()

        assert asked.fault is None


@pytest.mark.parametrize("other", [{"k": 5}, {"rows": {}}, {"questions": 3}, {"new": 1}])
def test_a_log_of_other_settings_is_refused_and_left_as_it_is(tmp_path: Path, other: dict[str, Any]) -> None:
    write_one(tmp_path / "log")
    before = (tmp_path / "log").read_bytes()
    with pytest.raises(BadLog, match=next(iter(other))):
        opened(tmp_path / "log", **other)

    assert (tmp_path / "log").read_bytes() == before


def test_a_file_that_is_no_log_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    for content in (b"my diary\n", b"my diary, so far", b'{"type": "turn"}\n', b"[]\n"):
        (tmp_path / "log").write_bytes(content)
        with pytest.raises(BadLog):
            opened(tmp_path / "log")

        assert (tmp_path / "log").read_bytes() == content


def test_a_damaged_line_is_named_by_its_number(tmp_path: Path) -> None:
    path = tmp_path / "log"
    write_one(path)
    lines = path.read_bytes().splitlines()
    lines[2] = json.dumps({"type": "built", "stage": 0}).encode()
    path.write_bytes(b"\n".join(lines) + b"\n")
    with pytest.raises(BadLog, match="Line 3"):
        opened(path)


def test_two_runs_do_not_write_one_log(tmp_path: Path) -> None:
    with opened(tmp_path / "log"), pytest.raises(BadLog, match="Another run"):
        opened(tmp_path / "log")
