"""What our own compression keeps, beside the bars it is to reach: batch and online, with each kind of unit."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Final, NamedTuple

from projections.eventtree.parameters import EventTreeParameters, one_cap
from tests.quality.compression import (
    PAPER,
    RATIOS,
    SEEDS,
    Compress,
    Outcome,
    by_session,
    evaluate,
    eventtree,
    ours,
    parameters_for,
    settings_for,
    uncompressed,
)
from tests.quality.compression_inputs import Embedding, Inputs, Kind
from tests.quality.online_units import grow_online
from tests.quality.tables import Cell, Table

# Percent of uncompressed + AGPR that ours keeps at least, by ratio. Static vectors have no bar of their own.
BARS: Final[Mapping[tuple[Kind, Embedding], tuple[float, ...]]] = MappingProxyType(
    {
        (Kind.FACTS, Embedding.HASHING): (98.5, 98.5, 97.0),
        (Kind.FACTS, Embedding.MINILM): (99.0, 98.5, 97.0),
        (Kind.TURNS, Embedding.HASHING): (99.5, 99.5, 99.5),
        (Kind.TURNS, Embedding.MINILM): (99.5, 99.5, 99.5),
    }
)
# What was chosen was chosen on the first conversations, and looked at on the others.
CHOSEN_ON: Final = 3


class Way(NamedTuple):
    """A way to compress, its name, and the seeds that make a difference to it."""

    name: str
    compress: Compress
    seeds: Sequence[int] = SEEDS


def ways_for(kind: Kind) -> tuple[Way, ...]:
    """Ours first, then what it might have been."""
    chosen = parameters_for(kind)
    eight = replace(chosen, member_caps=one_cap(8))
    local = replace(chosen, beta=0.6, window=10)
    by_other = (
        Way("KMeans units", eventtree(chosen))
        if kind is Kind.TURNS
        else Way("sessions as units", by_session(chosen), SEEDS[:1])
    )
    return (
        Way("**ours**", ours(kind)),
        by_other,
        Way("KMeans units, beta .6, w 10", eventtree(local)),
        Way("KMeans units, cap 8", eventtree(eight)),
        Way("sessions as units, cap 8", by_session(eight), SEEDS[:1]),
        Way("online", grow_online(chosen), SEEDS[:1]),
        Way("online, beta .6, w 10", grow_online(local), SEEDS[:1]),
        Way("the paper's settings", eventtree(EventTreeParameters(preset=PAPER))),
    )


def bar_tables(
    inputs: Sequence[Inputs], kind: Kind, embedding: Embedding, ways: Sequence[Way] | None = None
) -> Iterable[Table]:
    """What each way keeps at each ratio, and the first one, ours, beside its bars."""
    settings = settings_for(embedding)
    whole = uncompressed(inputs, settings)
    rows: list[Sequence[Cell]] = []
    bars: list[Sequence[Cell]] = []
    for way in ways_for(kind) if ways is None else ways:
        found = [evaluate(inputs, way.compress, ratio, seeds=way.seeds, settings=settings) for ratio in RATIOS]
        first = settings[0].name
        cells: list[Cell] = [way.name, " / ".join(f"{100 * each[first].cut:.1f}" for each in found)]
        cells += [
            " / ".join(f"{100 * each[setting.name].kept(whole[setting.name]):.1f}" for each in found)
            for setting in settings
        ]
        cells.append(" / ".join(_kept_by_half(inputs, each[first], whole[first]) for each in found))
        rows.append((*cells, len(way.seeds)))
        if not bars:
            bars += _bar_rows(kind, embedding, [each[first] for each in found], whole[first])
    name = f"{kind}, {embedding} vectors"
    scores = ", ".join(f"{setting.name} {100 * whole[setting.name].score:.1f}" for setting in settings)
    shown = " / ".join(f"{100 * ratio:.0f}" for ratio in RATIOS)
    halves = f"{settings[0].name}, first {CHOSEN_ON} and other conversations"
    headings = ("", f"cut, {shown} %", *(setting.name for setting in settings), halves, "seeds")
    yield Table(f"Kept of uncompressed ({scores}), {name}", headings, rows)
    yield Table(f"Bars, {name}", ("ratio", "bar", "kept", "cut", "met"), bars)


def _kept_by_half(inputs: Sequence[Inputs], found: Outcome, whole: Outcome) -> str:
    at = sum(len(each.questions) for each in inputs[:CHOSEN_ON])
    halves = (slice(None, at), slice(at, None))
    kept = [found.by_question[half].mean() / whole.by_question[half].mean() for half in halves]
    return ", ".join(f"{100 * each:.1f}" for each in kept)


def _bar_rows(
    kind: Kind, embedding: Embedding, found: Sequence[Outcome], whole: Outcome
) -> Iterable[Sequence[Cell]]:
    for ratio, bar, each in zip(RATIOS, BARS.get((kind, embedding), ()), found, strict=False):
        kept = 100 * each.kept(whole)
        yield f"{100 * ratio:.0f} %", bar, kept, f"{100 * each.cut:.1f} %", "yes" if kept >= bar else "no"
