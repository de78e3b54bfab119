"""MATRIX.md names a test for every fault that must have one, and only tests that exist."""

from __future__ import annotations

import ast
import re
from pathlib import Path

TESTS = Path(__file__).resolve().parents[1]
ROWS = {*range(1, 14), *range(15, 20), 21, *range(23, 37), 38, *range(40, 44)}
DEFECTS = {
    *(f"A{number}" for number in range(1, 16)),
    *(f"B{number}" for number in (1, 2, 3, 5, 6, 8, 9, 10)),
    *(f"C{number}" for number in (*range(1, 11), 14)),
}
PAINS = {"P1", "P2", "P4", "P5", "P7", "P8", "P10"}

_ROW = re.compile(r"^\| (?P<row>[ABCP]?\d+) \| (?P<fault>[^|]+) \| (?P<tests>.+) \|$", re.MULTILINE)
_TEST = re.compile(r"`(?P<file>[\w/]+\.py)::(?P<name>\w+)`")


def rows_of_the_matrix() -> dict[str, list[tuple[str, str]]]:
    """The tests of each row, as (file, name)."""
    text = (TESTS / "faults" / "MATRIX.md").read_text("utf-8")
    return {row["row"]: _TEST.findall(row["tests"]) for row in _ROW.finditer(text)}


def names_in(file: Path) -> set[str]:
    if not file.exists():
        return set()
    nodes = ast.walk(ast.parse(file.read_text("utf-8")))
    return {node.name for node in nodes if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}


def test_every_fault_that_must_be_tested_has_a_test() -> None:
    rows = rows_of_the_matrix()
    wanted = {str(row) for row in ROWS} | DEFECTS | PAINS

    assert wanted - rows.keys() == set()
    assert [row for row, tests in rows.items() if not tests] == []


def test_every_test_that_the_matrix_names_exists() -> None:
    named = {test for tests in rows_of_the_matrix().values() for test in tests}
    known = {file: names_in(TESTS / file) for file, _ in named}

    assert [f"{file}::{name}" for file, name in sorted(named) if name not in known[file]] == []
