"""Tables written down: for a terminal, as Markdown, and as JSON. What was not measured is a dash, in JSON null."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from memforest.bench.records import Run
from memforest.bench.scoring import CONFIDENCE, Figure
from memforest.bench.table import Cell, Column, Table, Unit
from memforest.wire import JsonObject

DASH: Final = "-"
# Decimals of a figure, and of the ends of its interval.
_DECIMALS: Final = {Unit.PERCENT: 1, Unit.MS: 1, Unit.SECONDS: 1, Unit.SHARE: 3, Unit.COUNT: 1}


def as_text(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """Tables in columns of equal width, for a terminal."""
    parts: list[str] = []
    for table in tables:
        grid = _grid(table)
        widths = [max(map(len, column)) for column in zip(*grid, strict=True)]
        lines = [
            "  ".join(
                word.ljust(width) if at == 0 else word.rjust(width)
                for at, (word, width) in enumerate(zip(line, widths, strict=True))
            ).rstrip()
            for line in grid
        ]
        parts.append("\n".join([table.title, *lines, *_legend(table)]))
    return "\n\n".join([*parts, *notes]) + "\n"


def as_markdown(tables: Sequence[Table], notes: Sequence[str] = ()) -> str:
    """Tables for a page of documentation."""
    parts: list[str] = []
    for table in tables:
        head, *lines = [[word.replace("|", "\\|") for word in line] for line in _grid(table)]
        rule = ["---", *("---:" for _ in head[1:])]
        written = [f"| {' | '.join(line)} |" for line in (head, rule, *lines)]
        parts.append("\n".join([f"### {table.title}", "", *written, "", *_legend(table)]).rstrip())
    return "\n\n".join([*parts, *notes]) + "\n"


def as_json(run: Run, tables: Sequence[Table]) -> JsonObject:
    """All figures with how many values each is of, and their intervals."""
    return {
        "data_set": run.data_set,
        "k": run.k,
        "samples": run.samples,
        "judged": run.judged,
        "questions": len({each.case_id for each in run.asked}),
        "confidence": CONFIDENCE,
        "notes": list(run.notes),
        "tables": {table.key: _table_as_json(table) for table in tables},
    }


def _table_as_json(table: Table) -> JsonObject:
    return {
        "title": table.title,
        "columns": [
            {"name": column.name, "unit": column.unit.value, "explained": column.explained}
            for column in table.columns
        ],
        "rows": [
            {
                "daemon": row.daemon,
                "row": row.name,
                "figures": {
                    column.name: None if cell is None else _figure_as_json(cell)
                    for column, cell in zip(table.columns, row.cells, strict=True)
                },
            }
            for row in table.rows
        ],
    }


def _figure_as_json(figure: Figure) -> JsonObject:
    return {
        "mean": round(figure.mean, 6),
        "n": figure.n,
        "low": round(figure.low, 6),
        "high": round(figure.high, 6),
    }


def _grid(table: Table) -> list[list[str]]:
    """The words of a table, its head first and, where all rows are of as many values, these at its end."""
    daemons = {row.daemon for row in table.rows}
    counts = [{cell.n for row in table.rows if (cell := row.cells[at])} for at in range(len(table.columns))]
    lines = [["", *map(_head, table.columns)]]
    for row in table.rows:
        name = f"{row.daemon} {row.name}" if len(daemons) > 1 else row.name
        cells = [_write(cell, column) for cell, column in zip(row.cells, table.columns, strict=True)]
        lines.append([name, *(_with_count(*each) for each in zip(cells, row.cells, counts, strict=True))])
    if any(len(count) == 1 for count in counts):
        lines.append(["n", *(str(*count) if len(count) == 1 else DASH for count in counts)])
    return lines


def _head(column: Column) -> str:
    is_unit_shown = column.unit in (Unit.MS, Unit.SECONDS)
    return f"{column.name} ({column.unit.value})" if is_unit_shown else column.name


def _write(cell: Cell, column: Column) -> str:
    if cell is None:
        return DASH
    half, written = _half(cell), _number(cell.mean, column.unit)
    return f"{written} ±{_number(half, column.unit)}" if column.interval and half else written


def _half(cell: Cell) -> float:
    """Half of the width of an interval; 0 where it has none."""
    return 0.0 if cell is None else (cell.high - cell.low) / 2


def _number(value: float, unit: Unit) -> str:
    decimals = 0 if unit is Unit.COUNT and (value >= 100 or value.is_integer()) else _DECIMALS[unit]
    return f"{value:,.{decimals}f}"


def _with_count(written: str, cell: Cell, counts: set[int]) -> str:
    """Where the rows of a column are of differently many values, each says of how many."""
    return written if cell is None or len(counts) == 1 else f"{written} ({cell.n})"


def _legend(table: Table) -> list[str]:
    # A short name that heads two columns (B1 and F1 of a kind) is explained once.
    meanings = dict.fromkeys(column.explained for column in table.columns if column.explained)
    lines = ["; ".join(meanings) + "."] if meanings else []
    if any(
        _half(cell) for row in table.rows for cell, of in zip(row.cells, table.columns, strict=True) if of.interval
    ):
        lines.append(f"±: half of the {CONFIDENCE:.0%} bootstrap interval over questions.")
    return [*lines, *filter(None, [table.note])]
