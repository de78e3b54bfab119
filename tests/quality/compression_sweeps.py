"""Sweeps of the EventTree's numbers and of AGPR's over compressed memories, each value with the cut it reached."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

from projections.eventtree.parameters import EventTreeParameters
from tests.quality.compression import (
    AGPR,
    PAPER,
    WHOLE,
    evaluate,
    eventtree,
    parameters_for,
    settings_for,
    uncompressed,
)
from tests.quality.compression_inputs import Embedding, Inputs, Kind
from tests.quality.tables import Cell, Table

# Around the values of the paper, in bold in the tables (5.1, D.4).
TREE_VALUES: Final[tuple[tuple[str, str, tuple[float, ...]], ...]] = (
    ("alpha", "alpha", (0.01, 0.02, 0.05, 0.1, 0.2)),
    ("beta", "beta", (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)),
    ("w", "window", (1, 2, 5, 10, 20)),
    ("eta", "eta", (0.8, 0.9, 0.95, 0.99, 1.0)),
)
SEARCH_VALUES: Final[tuple[tuple[str, str, tuple[float, ...]], ...]] = (
    ("gamma", "gamma", (0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 1.0)),
    ("L", "candidates_per_answer", (1, 2, 4, 8, 16)),
    ("lambda", "anchor_share", (0.1, 0.2, 0.4, 0.6, 1.0)),
)
RATIO: Final = 0.5


def sweep_tree(inputs: Sequence[Inputs], kind: Kind, embedding: Embedding, ratio: float = RATIO) -> Table:
    """Alpha, beta, w and eta, one at a time: kept in percent of uncompressed + AGPR, groups opened and whole; cut.

    Units are by KMeans, as these numbers speak of them.
    """
    bases = (parameters_for(kind), EventTreeParameters(preset=PAPER))
    settings = (settings_for(embedding)[0], WHOLE)
    whole = uncompressed(inputs, settings[:1])[AGPR.name]

    def cells_of(parameters: EventTreeParameters) -> list[str]:
        found = evaluate(inputs, eventtree(parameters), ratio, settings=settings)
        kept = [f"{100 * found[setting.name].kept(whole):.1f}" for setting in settings]
        return [*kept, f"{100 * found[AGPR.name].cut:.0f}"]

    standard = [cells_of(base) for base in bases]
    rows: list[Sequence[Cell]] = []
    for symbol, field, values in TREE_VALUES:
        for value in values:
            cells: list[Cell] = []
            for base, found in zip(bases, standard, strict=True):
                is_default = value == getattr(base, field)
                cells += (
                    [f"**{each}**" for each in found] if is_default else cells_of(_replaced(base, field, value))
                )
            rows.append((symbol, f"{value:g}", *cells))
    columns = ("groups opened", "groups whole", "cut")
    headings = [f"{whose}, {column}" for whose in ("ours", "paper's") for column in columns]
    title = f"Numbers of the EventTree at {100 * ratio:.0f} %, {kind}, {embedding} vectors"
    return Table(title, ("", "value", *headings), rows)


def sweep_search(inputs: Sequence[Inputs], kind: Kind, embedding: Embedding, ratio: float = RATIO) -> Table:
    """Gamma, L and lambda, one at a time, of memories as they are, ours and the paper's, in percent of the first.

    The uncompressed memories with the bars' AGPR are 100.
    """
    base = settings_for(embedding)[0]
    settings = [
        replace(base, name=f"{symbol} {value:g}", agpr=_replaced(base.agpr, field, value))
        for symbol, field, values in SEARCH_VALUES
        for value in values
    ]
    whole = uncompressed(inputs, (base, *settings))
    ours = evaluate(inputs, eventtree(parameters_for(kind)), ratio, settings=settings)
    paper = evaluate(inputs, eventtree(EventTreeParameters(preset=PAPER)), ratio, settings=settings)
    rows: list[Sequence[Cell]] = []
    for symbol, field, values in SEARCH_VALUES:
        for value in values:
            kept = [100 * each[f"{symbol} {value:g}"].kept(whole[AGPR.name]) for each in (whole, ours, paper)]
            is_default = value == getattr(AGPR.agpr, field)
            rows.append(
                (symbol, f"{value:g}", *(f"**{each:.1f}**" if is_default else f"{each:.1f}" for each in kept))
            )
    reached = [next(iter(each.values())).cut for each in (ours, paper)]
    return Table(
        f"Numbers of AGPR, {kind}, {embedding} vectors",
        (
            "",
            "value",
            "not compressed",
            *(f"{whose}, cut {100 * cut:.0f} %" for whose, cut in zip(("ours", "paper's"), reached, strict=True)),
        ),
        rows,
    )


def _replaced(parameters: Any, name: str, value: float) -> Any:
    """With one field of another value; whole numbers stay whole."""
    return replace(parameters, **{name: type(getattr(parameters, name))(value)})
