"""Tables as they stand in BENCHMARKS.md."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

Cell: TypeAlias = str | int | float


class Table(NamedTuple):
    """A name, a heading a column, and the rows."""

    name: str
    headings: Sequence[str]
    rows: Sequence[Sequence[Cell]]

    def markdown(self) -> str:
        """The table under its name: whole numbers whole, others with two or three digits that count."""
        lines = [f"**{self.name}**", "", _line(self.headings), "|---" * len(self.headings) + "|"]
        return "\n".join([*lines, *(_line([_shown(cell) for cell in row]) for row in self.rows)])


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _shown(cell: Cell) -> str:
    if isinstance(cell, str):
        return cell
    if isinstance(cell, int):
        return f"{cell:,}"
    return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.1f}" if abs(cell) >= 10 else f"{cell:.2f}"
