"""The baselines of paper A on the harness of `tests.quality.compression`, and ours against each of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cache, lru_cache
from itertools import product
from typing import Final

import numpy as np

from daemon.offline.entities import find_mentions
from projections.eventtree.literal import merge_pairwise
from projections.eventtree.merging import UnitNodes
from projections.eventtree.parameters import EventTreeParameters, one_cap
from projections.eventtree.spanning_tree import Floats
from projections.facts.labels import normalise_label
from tests.quality.bootstrap import Difference, compare_paired
from tests.quality.compression import (
    AGPR,
    RATIOS,
    SEEDS,
    SETTINGS,
    Compress,
    Outcome,
    by_session,
    evaluate,
    eventtree,
    find_units,
    make_ids,
    ours,
    parameters_for,
    uncompressed,
    with_singles,
)
from tests.quality.compression_inputs import Embed, Inputs, Kind
from tests.quality.compression_scores import Groups, Setting
from tests.quality.merging_baselines import merge_evenly, merge_halves, merge_neighbours, merge_randomly
from tests.quality.online_units import grow_online
from tests.quality.pruning import prune_by_graph, prune_by_kmeans, prune_by_pivots, prune_randomly
from tests.quality.tables import Cell, Table

# Whoever is named in more of the memories than this is one of the two who talk. A node linked to them is linked
# to nearly all others, so such links say nothing of its importance.
SPEAKER_SHARE: Final = 0.2
SURE: Final = 0.05


class Sort(Enum):
    """What a method does, which decides what it is held against."""

    OURS = "ours"
    PAPER = "paper"
    PRUNING = "pruning"
    MERGING = "merging"


@dataclass(frozen=True, slots=True)
class Method:
    """A way to compress under its name in the tables; one without randomness runs once."""

    name: str
    sort: Sort
    compress: Compress
    is_random: bool = True

    @property
    def seeds(self) -> Sequence[int]:
        """What it runs with."""
        return SEEDS if self.is_random else SEEDS[:1]


def methods_for(kind: Kind, embed: Embed | None) -> tuple[Method, ...]:
    """All that are compared, ours first. The literal run needs an embedder: it encodes what it merged anew."""
    defaults, best = parameters_for(kind), ours(kind)
    kmeans, sessions = eventtree(defaults), by_session(defaults)
    other = (
        Method("ours, units by KMeans", Sort.OURS, kmeans)
        if kind is Kind.TURNS
        else Method("ours, units are sessions", Sort.OURS, sessions, is_random=False)
    )
    return (
        Method("**ours**", Sort.OURS, best, is_random=kind is Kind.FACTS),
        other,
        Method("ours, online", Sort.OURS, grow_online(defaults), is_random=False),
        Method("ours, KMeans units, cap 8", Sort.OURS, eventtree(replace(defaults, member_caps=one_cap(8)))),
        Method("EventTree, paper's settings", Sort.PAPER, eventtree(EventTreeParameters(preset="paper"))),
        *([Method("the same, literal", Sort.PAPER, merge_literally(embed))] if embed else []),
        Method("random pruning", Sort.PRUNING, _random_pruning),
        Method("KMeans", Sort.PRUNING, _kmeans),
        Method("DART", Sort.PRUNING, _dart),
        Method("StreamMeCo", Sort.PRUNING, _streammeco),
        Method("random merging", Sort.MERGING, _random_merging),
        Method("ToMe", Sort.MERGING, _tome, is_random=False),
        Method("ToMe, as far as ours", Sort.MERGING, as_far_as(best, _tome)),
        Method("neighbours, most alike", Sort.MERGING, _neighbours, is_random=False),
        Method("neighbours, as far as ours", Sort.MERGING, as_far_as(best, _neighbours)),
        Method("neighbours, even runs", Sort.MERGING, _even_runs, is_random=False),
        Method("even runs, as far as ours", Sort.MERGING, as_far_as(best, _even_runs)),
    )


def merge_literally(embed: Embed) -> Compress:
    """The paper's loop with E(F(c_i, c_j)) of Eq. 8, where F writes the two texts one after the other."""

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        parameters = EventTreeParameters(preset="paper", ratio=ratio)
        labels = find_units(inputs, seed, parameters.alpha, parameters.beta, parameters.window)
        texts = inputs.texts

        def fuse(earlier: int, later: int) -> Floats:
            texts.append(f"{texts[earlier]}\n{texts[later]}")
            row: Floats = embed([texts[-1]])[0].astype(np.float64)
            return row

        nodes = UnitNodes(inputs.vectors, inputs.positions, make_ids(inputs, seed), labels)
        return with_singles(inputs, merge_pairwise(nodes, parameters, fuse).groups)

    return compress


def as_far_as(reference: Compress, method: Compress) -> Compress:
    """The method with as many nodes left as the other one leaves: caps may end a run above the ratio."""

    @cache
    def reached(inputs: Inputs, ratio: float, seed: int) -> float:
        return 1 - len(reference(inputs, ratio, seed)) / len(inputs)

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        return method(inputs, reached(inputs, ratio, seed), seed)

    return compress


def _random_pruning(inputs: Inputs, ratio: float, seed: int) -> Groups:
    return _alone(prune_randomly(len(inputs), ratio, seed))


def _kmeans(inputs: Inputs, ratio: float, seed: int) -> Groups:
    return _alone(prune_by_kmeans(inputs.vectors, ratio, seed))


def _dart(inputs: Inputs, ratio: float, seed: int) -> Groups:
    return _alone(prune_by_pivots(inputs.vectors, ratio, seed))


def _streammeco(inputs: Inputs, ratio: float, seed: int) -> Groups:
    return _alone(prune_by_graph(inputs.vectors, inputs.sessions, count_links(inputs), ratio, seed))


def _random_merging(inputs: Inputs, ratio: float, seed: int) -> Groups:
    return merge_randomly(len(inputs), ratio, seed)


def _tome(inputs: Inputs, ratio: float, _seed: int) -> Groups:
    return merge_halves(inputs.vectors, ratio)


def _neighbours(inputs: Inputs, ratio: float, _seed: int) -> Groups:
    cap = EventTreeParameters(ratio=ratio).member_cap or len(inputs)
    return merge_neighbours(inputs.vectors, inputs.sessions, ratio, cap)


def _even_runs(inputs: Inputs, ratio: float, _seed: int) -> Groups:
    return merge_evenly(inputs.sessions, ratio)


def _alone(kept: Sequence[int]) -> list[tuple[int, ...]]:
    return [(node,) for node in kept]


@lru_cache(maxsize=16)
def count_links(inputs: Inputs) -> tuple[int, ...]:
    """How many names each memory is linked to, found by the product's rules; the two who talk are left out.

    They stand in for the faces and voices of StreamMeCo's graph. Its edges also have weights, which grow when a
    face is seen again; names in a text have none, so each counts once.
    """
    named = [{normalise_label(each.label) for each in find_mentions(text)} for text in inputs.texts]
    often = Counter(label for labels in named for label in labels)
    speakers = {label for label, count in often.items() if count > SPEAKER_SHARE * len(inputs)}
    return tuple(len(labels - speakers) for labels in named)


@dataclass(frozen=True, slots=True)
class Measured:
    """The outcomes of methods by ratio and setting, and what they are shares of."""

    ratios: Sequence[float]
    settings: Sequence[Setting]
    whole: dict[str, Outcome]
    outcomes: dict[tuple[str, float], dict[str, Outcome]]

    def kept(self, name: str, ratio: float, setting: str) -> float:
        """In percent of uncompressed + AGPR, whatever the setting."""
        return 100 * self.outcomes[name, ratio][setting].kept(self.whole[AGPR.name])


def measure_methods(
    inputs: Sequence[Inputs],
    methods: Sequence[Method],
    ratios: Sequence[float] = RATIOS,
    settings: Sequence[Setting] = SETTINGS,
    report: Callable[[str], None] = lambda _name: None,
) -> Measured:
    """Every method at every ratio and in every setting; `report` hears of each one that is done."""
    outcomes: dict[tuple[str, float], dict[str, Outcome]] = {}
    for method in methods:
        for ratio in ratios:
            outcomes[method.name, ratio] = evaluate(
                inputs, method.compress, ratio, seeds=method.seeds, settings=settings
            )
        report(method.name)
    return Measured(ratios, settings, uncompressed(inputs, settings), outcomes)


def kept_table(title: str, methods: Sequence[Method], measured: Measured) -> Table:
    """What each keeps at each ratio, and in brackets the cut where it is below the ratio."""
    whole = [100 * measured.whole[each.name].kept(measured.whole[AGPR.name]) for each in measured.settings]
    rows: list[Sequence[Cell]] = [("not compressed", *(f"{each:.1f}" for each in whole), 1)]
    for method in methods:
        cells = (
            " / ".join(_kept_cell(measured, method.name, ratio, setting.name) for ratio in measured.ratios)
            for setting in measured.settings
        )
        rows.append((method.name, *cells, len(method.seeds)))
    ratios = " / ".join(f"{100 * ratio:.0f}" for ratio in measured.ratios)
    headings = ("", *(f"{each.name}, {ratios} %" for each in measured.settings), "seeds")
    return Table(title, headings, rows)


def _kept_cell(measured: Measured, name: str, ratio: float, setting: str) -> str:
    cut = measured.outcomes[name, ratio][setting].cut
    reached = "" if cut > ratio - 0.01 else f" ({100 * cut:.0f})"
    return f"{measured.kept(name, ratio, setting):.1f}{reached}"


def comparison_table(title: str, methods: Sequence[Method], measured: Measured, setting: Setting) -> Table:
    """The first method less each other: points of evidence within 4,000 characters, 95 % interval and p."""
    first, *others = methods
    rows = [
        (other.name, *(_difference_cell(measured, first, other, ratio, setting.name) for ratio in measured.ratios))
        for other in others
    ]
    headings = (f"{first.name} less …", *(f"{100 * ratio:.0f} %" for ratio in measured.ratios))
    return Table(f"{title}, {setting.name}", headings, rows)


def _compare(measured: Measured, first: Method, other: Method, ratio: float, setting: str) -> Difference:
    one, two = (measured.outcomes[each.name, ratio][setting].by_question for each in (first, other))
    return compare_paired(one, two)


def _difference_cell(measured: Measured, first: Method, other: Method, ratio: float, setting: str) -> str:
    found = _compare(measured, first, other, ratio, setting)
    p = "p < .001" if found.p < 0.001 else f"p {found.p:.3f}".replace("0.", ".", 1)
    return f"{100 * found.mean:+.1f} [{100 * found.low:+.1f}, {100 * found.high:+.1f}] {p}"


def missed_bars(title: str, methods: Sequence[Method], measured: Measured) -> Table:
    """Where the first method misses a bar of this comparison.

    It is above every pruning and the paper's settings with p < .05, and at most one point of what is kept below
    any merging.
    """
    first, *others = methods
    rows: list[Sequence[Cell]] = []
    for other, ratio, setting in product(others, measured.ratios, measured.settings):
        found = _compare(measured, first, other, ratio, setting.name)
        one, two = (measured.kept(name, ratio, setting.name) for name in (first.name, other.name))
        if other.sort is Sort.MERGING:
            is_missed = one < two - 1
        else:
            is_missed = other.sort is not Sort.OURS and (one <= two or found.p >= SURE)
        if is_missed:
            rows.append((other.name, f"{100 * ratio:.0f} %", setting.name, f"{one - two:+.1f}", f"{found.p:.3f}"))
    headings = ("bar missed against", "ratio", "setting", "points kept", "p")
    return Table(title, headings, rows or [("none", *[""] * 4)])
