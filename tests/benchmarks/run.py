"""`python -m tests.benchmarks.run [name …] [--share S] [--json]`: runs benchmarks and prints their ratios.

Markdown, as it stands in BENCHMARKS.md. Nothing here passes or fails: a shared machine decides too much of it.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence

from daemon.lifecycle import collect_seldom
from tests.benchmarks import (
    append,
    building,
    compaction,
    compressed_search,
    deep_recall,
    eventtree_forgetting,
    eventtree_growth,
    folding,
    forest_recall,
    forgetting,
    loading,
    model_calls,
    recall,
    scanning,
    socket_round_trip,
    trees,
    write_path,
    write_path_long,
    write_path_queries,
)
from tests.benchmarks.measuring import Row, machine

BENCHMARKS: dict[str, Callable[[float], list[Row]]] = {
    "append": append.measure,
    "folding": folding.measure,
    "loading": loading.measure,
    "recall": recall.measure,
    "forest_recall": forest_recall.measure,
    "deep_recall": deep_recall.measure,
    "compressed_search": compressed_search.measure,
    "trees": trees.measure,
    "eventtree_growth": eventtree_growth.measure,
    "socket_round_trip": socket_round_trip.measure,
    "building": building.measure,
    "scanning": scanning.measure,
    "forgetting": forgetting.measure,
    "eventtree_forgetting": eventtree_forgetting.measure,
    "model_calls": model_calls.measure,
    "write_path": write_path.measure,
    "write_path_queries": write_path_queries.measure,
    "write_path_long": write_path_long.measure,
    "compaction": compaction.measure,
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmarks that are named, or all."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.run", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="name", help=", ".join(BENCHMARKS))
    parser.add_argument("--share", type=float, default=1.0, help="share of the full sizes, for a quick look")
    parser.add_argument("--json", action="store_true", help="one JSON object a row")
    options = parser.parse_args(arguments)
    unknown = [name for name in options.names if name not in BENCHMARKS]
    if unknown:
        parser.error(f"there is no benchmark {', '.join(unknown)}; there are {', '.join(BENCHMARKS)}")
    collect_seldom()  # as the daemon does
    if not options.json:
        print(machine())
    for name in options.names or BENCHMARKS:
        rows = BENCHMARKS[name](options.share)
        print("\n".join(json_lines(name, rows)) if options.json else markdown_table(name, rows), flush=True)
    return 0


def markdown_table(name: str, rows: Sequence[Row]) -> str:
    """The rows of one benchmark under its name."""
    lines = [f"\n### {name}\n", "| what | ratio | goal | against | figures |", "|---|---|---|---|---|"]
    for row in rows:
        figures = ", ".join(f"{figure.name} {shown(figure.value)}" for figure in row.figures)
        goal = "" if row.goal is None else f"≤ {shown(row.goal)}"
        lines.append(f"| {row.name} | **{shown(row.ratio)}** | {goal} | {row.against} | {figures} |")
    return "\n".join(lines)


def json_lines(name: str, rows: Sequence[Row]) -> list[str]:
    """One JSON object a row."""
    return [
        json.dumps(
            {
                "benchmark": name,
                "name": row.name,
                "ratio": row.ratio,
                "goal": row.goal,
                "against": row.against,
                **{figure.name: figure.value for figure in row.figures},
            }
        )
        for row in rows
    ]


def shown(value: float) -> str:
    """Two or three digits that count."""
    if abs(value) >= 100 or value == round(value):
        return f"{value:,.0f}"
    if abs(value) < 1:
        return f"{value:.2g}"
    return f"{value:.2f}" if abs(value) < 10 else f"{value:.1f}"


if __name__ == "__main__":
    sys.exit(main())
