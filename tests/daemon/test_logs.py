"""What is logged: a closed list of names, whole lines, and no name in the code that is not in the list."""

from __future__ import annotations

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import structlog

from daemon.logs import _WARNINGS, LOG_EVENTS, make_report  # pyright: ignore[reportPrivateUsage]

ROOT = Path(__file__).resolve().parents[2]
DAEMON = ROOT / "daemon"

# Logs one event in a process of its own, where standard error is what it is for a daemon.
LOG_ONE = """
import sys
from daemon.logs import configure_logs
report = configure_logs(sys.argv[1], sys.argv[2])
report("ingest.batch_recorded", messages=3, recorded=2, duplicates=1, refused=0)
report("ingest.write_failed", code="unavailable")
"""


def written(level: str, form: str) -> list[str]:
    """The lines on standard error; nothing may stand on standard output."""
    environment = {key: value for key, value in os.environ.items() if key not in ("FORCE_COLOR", "NO_COLOR")}
    run = subprocess.run(
        [sys.executable, "-c", LOG_ONE, level, form],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    assert run.stdout == ""
    return run.stderr.splitlines()


def reported_names() -> dict[str, str]:
    """Each name that the daemon's code hands to a report, with where."""
    found: dict[str, str] = {}
    for path in sorted(DAEMON.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.Call) or not node.args:
                continue
            called = node.func
            name = called.attr if isinstance(called, ast.Attribute) else getattr(called, "id", "")
            first = node.args[0]
            if name.lstrip("_") == "report" and isinstance(first, ast.Constant):
                found[str(first.value)] = f"{path.name}:{node.lineno}"
    return found


def test_every_name_in_the_code_is_in_the_list_and_the_other_way_round() -> None:
    names = reported_names()

    assert {name: place for name, place in names.items() if name not in LOG_EVENTS} == {}
    assert LOG_EVENTS.keys() - names.keys() == set(), "nobody logs these any more"


def test_every_report_in_the_code_has_a_name_that_can_be_checked() -> None:
    """No f-string and no variable: such a name would be found out in production."""
    for path in sorted(DAEMON.rglob("*.py")):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute | ast.Name):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else node.func.id
                if name.lstrip("_") == "report":
                    assert isinstance(node.args[0], ast.Constant), f"{path.name}:{node.lineno}"


def test_names_say_the_part_and_what_happened_and_warnings_are_names() -> None:
    for name, tells in LOG_EVENTS.items():
        part, dot, happened = name.partition(".")
        assert dot
        assert part.isidentifier()
        assert happened.isidentifier()
        assert tells
    assert LOG_EVENTS.keys() >= _WARNINGS


def test_a_name_that_is_not_in_the_list_is_refused_and_nothing_is_written() -> None:
    with structlog.testing.capture_logs() as captured:
        report = make_report(structlog.get_logger())
        with pytest.raises(KeyError, match=r"daemon\.invented"):
            report("daemon.invented", words="Xylophon")

    assert captured == []


def test_each_name_has_one_level() -> None:
    with structlog.testing.capture_logs() as captured:
        report = make_report(structlog.get_logger())
        for name in LOG_EVENTS:
            report(name)

    levels = {line["event"]: line["log_level"] for line in captured}
    assert levels == {name: "warning" if name in _WARNINGS else "info" for name in LOG_EVENTS}


def test_in_a_pipe_each_line_is_one_json_object() -> None:
    first, second = (json.loads(line) for line in written("info", "auto"))
    stamp = first.pop("timestamp")

    assert stamp.endswith("Z")
    assert first == {
        "event": "ingest.batch_recorded",
        "level": "info",
        "messages": 3,
        "recorded": 2,
        "duplicates": 1,
        "refused": 0,
    }
    assert (second["event"], second["level"], second["code"]) == ("ingest.write_failed", "warning", "unavailable")


def test_the_level_decides_what_is_written() -> None:
    assert [json.loads(line)["event"] for line in written("warning", "json")] == ["ingest.write_failed"]
    assert written("error", "json") == []


def test_for_people_a_line_says_the_same_in_words() -> None:
    line = written("info", "console")[0]

    assert "ingest.batch_recorded" in line
    assert "messages" in line
    assert not line.startswith("{")
