"""Fault points: all of them listed, none armed by accident, and each deed as it is written."""

from __future__ import annotations

import ast
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from events.errors import InvalidInput, StoreUnusable
from events.faults import FAULT_POINTS, Fault, FaultInjected, arm, fault_point
from events.gate import Verdict
from events.log import EventLog
from tests.builders import a_turn
from tests.system.daemon_process import ROOT, run_command


@pytest.fixture(autouse=True)
def disarmed() -> Iterator[None]:
    """No fault is left to the next test."""
    yield
    arm(None)


def points_passed(folder: Path) -> list[str]:
    """The name at each `fault_point(...)` in a folder's code."""
    return [
        node.args[0].value
        for path in sorted(folder.rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "fault_point"
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    ]


def test_the_list_of_points_is_what_the_code_passes() -> None:
    passed = points_passed(ROOT / "events") + points_passed(ROOT / "daemon")

    assert sorted(set(passed)) == sorted(FAULT_POINTS)
    assert len(FAULT_POINTS) == len(set(FAULT_POINTS))


@pytest.mark.parametrize(
    ("specification", "fault"),
    [
        ("append.before_begin:kill", Fault("append.before_begin", "kill", 1)),
        ("append.after_commit:kill:7", Fault("append.after_commit", "kill", 7)),
        ("ingest.after_ack:raise:2", Fault("ingest.after_ack", "raise", 2)),
        ("ingest.after_ack:sleep:0.5", Fault("ingest.after_ack", "sleep", seconds_s=0.5)),
        ("", None),
        (None, None),
    ],
)
def test_a_fault_is_armed_as_it_is_written(specification: str | None, fault: Fault | None) -> None:
    assert arm(specification) == fault


@pytest.mark.parametrize(
    "specification",
    ["append", "append.before_lunch:kill", "append.before_begin", "append.before_begin:dance"]
    + [f"append.before_begin:{rest}" for rest in ("kill:0", "kill:x", "raise:-1", "sleep", "sleep:long")],
)
def test_a_misspelt_fault_is_refused_and_nothing_is_armed(specification: str) -> None:
    with pytest.raises(InvalidInput):
        arm(specification)

    for point in FAULT_POINTS:
        fault_point(point)


def test_only_the_armed_point_raises_and_only_once() -> None:
    arm("ingest.after_ack:raise:2")
    fault_point("ingest.after_append")
    fault_point("ingest.after_ack")
    with pytest.raises(FaultInjected):
        fault_point("ingest.after_ack")
    fault_point("ingest.after_ack")

    assert issubclass(FaultInjected, sqlite3.OperationalError)


async def test_a_daemon_with_a_misspelt_fault_does_not_start(tmp_path: Path) -> None:
    ended = await run_command("daemon", "run", "--data", str(tmp_path), environ={"MF_FAULT": "append.befor:kill"})

    assert ended.code != 0
    assert "MF_FAULT" in ended.errors
    assert not (tmp_path / "events.db").exists()


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("append.before_begin", []),
        ("append.after_insert", []),
        ("append.before_commit", []),
        ("append.after_commit", [("turn.recorded",)]),
    ],
)
async def test_an_append_that_fails_at_a_point_leaves_all_or_nothing_and_the_log_works(
    log: EventLog, point: str, left: list[tuple[str]]
) -> None:
    arm(f"{point}:raise")
    with pytest.raises(StoreUnusable):
        await log.append_event(a_turn())
    there = await log.read(lambda db: db.execute("SELECT type FROM events").fetchall())
    again = await log.append_event(a_turn())

    assert there == left
    assert again.verdict is (Verdict.DUPLICATE if left else Verdict.RECORDED)
    assert not await log.write(lambda db: db.in_transaction)


def test_a_point_that_is_not_armed_costs_next_to_nothing() -> None:
    """Counted, not timed: it calls nothing."""
    calls: list[str] = []

    def profile(frame: object, event: str, argument: object) -> None:
        calls.append(event)

    sys.setprofile(profile)
    try:
        fault_point("append.after_insert")
    finally:
        sys.setprofile(None)

    # Its own call and return, and setprofile's.
    assert calls == ["call", "return", "c_call"]
