"""The EventTree with and without each of its parts, as we ship it and as the paper has it, on equal inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from typing import TypeAlias

from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats
from tests.quality.ablations import (
    Pick,
    all_pairs,
    merge_along,
    minimum_tree,
    pick_best,
    pick_randomly,
    units_of_windows,
)
from tests.quality.baselines import Method, Sort
from tests.quality.compression import (
    Compress,
    by_session,
    eventtree,
    find_units,
    make_ids,
    parameters_for,
    with_singles,
)
from tests.quality.compression_inputs import Inputs, Kind
from tests.quality.compression_scores import Groups

# The nodes of a unit to the edges that may be taken; how the next one is picked, by parameters and seed.
Edges: TypeAlias = Callable[[Floats, tuple[int, ...]], Iterable[tuple[int, int]]]
PickOf: TypeAlias = Callable[[EventTreeParameters, int], Pick]


def ablations_of_ours(kind: Kind) -> tuple[Method, ...]:
    """Ours with units as the paper makes them, without each part of the paper's, and without each of our own."""
    ours = parameters_for(kind)
    own = (
        Method("units are sessions", Sort.OURS, by_session(ours), is_random=False),
        Method("without caps", Sort.OURS, eventtree(replace(ours, member_caps=()))),
        Method("without time bonus", Sort.OURS, eventtree(replace(ours, time_bonus=0.0))),
        Method("a quota of each unit", Sort.OURS, eventtree(replace(ours, budget="unit"))),
    )
    return (Method("**ours, units by KMeans**", Sort.OURS, eventtree(ours)), *_without_each(ours), *own)


def ablations_of_paper() -> tuple[Method, ...]:
    """The paper's settings whole and without each part (its tables 3 to 9)."""
    paper = EventTreeParameters(preset="paper")
    return (Method("**paper's settings**", Sort.PAPER, eventtree(paper)), *_without_each(paper))


def _without_each(parameters: EventTreeParameters) -> tuple[Method, ...]:
    return (
        Method("without g: windows of 5", Sort.PAPER, by_windows(parameters)),
        Method("without l", Sort.PAPER, eventtree(replace(parameters, beta=1.0))),
        Method("random pairs of a unit", Sort.PAPER, along(parameters, all_pairs, _random_pick)),
        Method("minimum spanning tree", Sort.PAPER, along(parameters, minimum_tree, _least_pick)),
        Method("without degrees", Sort.PAPER, eventtree(replace(parameters, eta=1.0))),
    )


def by_windows(parameters: EventTreeParameters) -> Compress:
    """Without g: units are stretches of time (A.3). Seeds decide ties only."""

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        labels = units_of_windows(inputs.vectors, inputs.positions)
        nodes = UnitNodes(inputs.vectors, inputs.positions, make_ids(inputs, seed), labels)
        return with_singles(inputs, plan_groups(nodes, replace(parameters, ratio=ratio)).groups)

    return compress


def along(parameters: EventTreeParameters, edges_of: Edges, pick_of: PickOf) -> Compress:
    """The units as they are, merged along other edges or in another order."""

    def compress(inputs: Inputs, ratio: float, seed: int) -> Groups:
        chosen = replace(parameters, ratio=ratio)
        labels = find_units(inputs, seed, chosen.alpha, chosen.beta, chosen.window)
        return merge_along(inputs.vectors, inputs.positions, labels, chosen, edges_of, pick_of(chosen, seed))

    return compress


def _random_pick(_parameters: EventTreeParameters, seed: int) -> Pick:
    return pick_randomly(seed)


def _least_pick(parameters: EventTreeParameters, _seed: int) -> Pick:
    return pick_best(parameters.eta, sign=-1.0)
