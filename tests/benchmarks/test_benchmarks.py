"""That the benchmarks run. What they say is for people to read: no figure of theirs passes or fails a test."""

from __future__ import annotations

import json
from math import isfinite

import pytest

from tests.benchmarks.measuring import Figure, Row, StepTimer, percentile
from tests.benchmarks.run import BENCHMARKS, json_lines, main, markdown_table

SHARE = 0.01


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_benchmark_gives_rows_with_a_ratio_and_what_it_is_against(name: str) -> None:
    rows = BENCHMARKS[name](SHARE)

    assert rows
    assert all(isfinite(row.ratio) and row.name and row.against for row in rows)


def test_a_name_that_is_no_benchmark_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        main(["appending"])

    assert "append, folding, loading" in capsys.readouterr().err


def test_a_row_is_a_line_of_markdown_and_an_object_of_json() -> None:
    row = Row("append, wall", 2.346, "raw rows", (Figure("ours_ms", 1234.5),), goal=3.0)

    assert markdown_table("append", [row]).splitlines()[-1] == (
        "| append, wall | **2.35** | ≤ 3 | raw rows | ours_ms 1,234 |"
    )
    assert json.loads(json_lines("append", [row])[0]) == {
        "benchmark": "append",
        "name": "append, wall",
        "ratio": 2.346,
        "goal": 3.0,
        "against": "raw rows",
        "ours_ms": 1234.5,
    }


def test_a_percentile_is_a_sample_and_never_below_its_share() -> None:
    samples = [float(n) for n in range(1, 101)]

    assert (percentile(samples, 0.5), percentile(samples, 0.99), percentile(samples, 1)) == (51.0, 100.0, 100.0)


async def test_a_timed_coroutine_returns_and_raises_what_it_would() -> None:
    timer = StepTimer()

    async def answer() -> int:
        return 42

    async def fail() -> None:
        raise ValueError("as it stands")

    result = await timer.time(answer())
    with pytest.raises(ValueError, match="as it stands"):
        await timer.time(fail())

    assert result == 42
    assert timer.cpu_s > 0
