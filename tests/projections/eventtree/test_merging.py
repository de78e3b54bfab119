"""Merging against an oracle that computes everything anew after each merge, and the promises of a plan."""

from __future__ import annotations

import hashlib
import math
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import numpy as np
import pytest

from projections.eventtree.literal import merge_pairwise
from projections.eventtree.merging import UnitNodes, plan_groups
from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import Floats, maximum_spanning_tree
from projections.ports import Vectors

PLAIN = EventTreeParameters(member_caps=(), time_bonus=0)
CAPPED = EventTreeParameters()
PAPER = EventTreeParameters(preset="paper")
HUBS_COUNT = EventTreeParameters(member_caps=((70, 4),), eta=0.8, ratio=0.7)

Fuse: TypeAlias = Callable[[Floats, Floats], Floats]


def unit_rows(rows: Floats) -> Vectors:
    return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)


def at_degrees(*degrees: float) -> Vectors:
    return np.array([(math.cos(math.radians(d)), math.sin(math.radians(d))) for d in degrees], np.float32)


def random_nodes(seed: int, count: int, units: int = 3, *, tie_heavy: bool = False) -> UnitNodes:
    print("seed", seed)
    rng = np.random.default_rng(seed)
    if tie_heavy:
        vectors = at_degrees(0, 40, 90, 200)[rng.integers(0, 4, count)]
    else:
        vectors = unit_rows(rng.normal(size=(count, 6)) + 0.8)
    return UnitNodes(
        vectors,
        rng.integers(0, count, count).tolist(),
        [b"%03d" % number for number in rng.permutation(count)],
        rng.integers(0, units, count).tolist(),
    )


def one_unit(vectors: Vectors, positions: list[int] | None = None) -> UnitNodes:
    count = len(vectors)
    return UnitNodes(vectors, positions or list(range(count)), [b"%02d" % n for n in range(count)], [0] * count)


def normalised_sum(one: Floats, other: Floats) -> Floats:
    total = one + other
    length = float(np.linalg.norm(total))
    return np.asarray(total / length if length else total, dtype=np.float64)


def hashed(one: Floats, other: Floats) -> Floats:
    """Stands for a model and an encoder: any vector, but for the same two always the same."""
    digest = hashlib.sha256(one.round(6).tobytes() + other.round(6).tobytes()).digest()
    row = np.frombuffer(digest, dtype=np.uint8)[: len(one)].astype(np.float64) + 1
    return np.asarray(row / np.linalg.norm(row), dtype=np.float64)


@dataclass(frozen=True, eq=False)
class Live:
    """A live node of the oracle: everything about it is computed from its members."""

    members: frozenset[int]
    vector: Floats


@dataclass
class Oracle:
    """Eq. 5-8 over sets of members, with no state but the live nodes and the tree of members' edges."""

    nodes: UnitNodes
    parameters: EventTreeParameters
    # (one, other): an edge joins the live nodes that its ends are in now.
    tree: list[tuple[int, int]] = field(default_factory=list)

    def __post_init__(self) -> None:
        for unit in sorted(set(self.nodes.labels)):
            inside = [n for n, label in enumerate(self.nodes.labels) if label == unit]
            grown = maximum_spanning_tree(
                self.nodes.vectors[inside],
                [self.nodes.positions[n] for n in inside],
                [self.nodes.ids[n] for n in inside],
                self.parameters.time_bonus,
            )
            self.tree += [(inside[one], inside[other]) for one, other in grown.ends.tolist()]

    def run(self, fuse: Fuse | None) -> list[frozenset[int]]:
        """The live nodes at the end; without `fuse`, the sum is taken over all members each time."""
        live = [Live(frozenset({n}), row.astype(np.float64)) for n, row in enumerate(self.nodes.vectors)]
        while (pair := self.best_pair(live)) is not None:
            one, other = sorted(pair, key=lambda node: self.time(node.members))
            members = one.members | other.members
            vector = self.sum_of(members) if fuse is None else fuse(one.vector, other.vector)
            live = [node for node in live if node not in pair] + [Live(members, vector)]
        return [node.members for node in live]

    def best_pair(self, live: list[Live]) -> tuple[Live, Live] | None:
        """Eq. 6 and 7 over every edge between two live nodes."""
        home = {member: node for node in live for member in node.members}
        edges = [(home[one], home[other]) for one, other in self.tree if home[one] is not home[other]]
        degrees = Counter(id(end) for edge in edges for end in edge)
        eta = self.parameters.eta
        scored = []
        for one, other in edges:
            if self.allowed(one, other, live):
                gap = abs(self.time(one.members)[0] - self.time(other.members)[0])
                weight = float(one.vector @ other.vector) + self.parameters.time_bonus * math.exp(-gap / 2)
                score = eta * round(weight, 6) - (1 - eta) * (degrees[id(one)] + degrees[id(other)])
                low, high = sorted((self.name(one.members), self.name(other.members)))
                scored.append((-round(score, 12), low, high, (one, other)))
        return min(scored, key=lambda entry: entry[:3])[3] if scored else None

    def allowed(self, one: Live, other: Live, live: list[Live]) -> bool:
        cap = self.parameters.member_cap
        if cap is not None and self.facts(one.members | other.members) > cap:
            return False
        everywhere = self.parameters.budget == "user"
        unit = self.nodes.labels[min(one.members)]
        inside = [node for node in live if everywhere or self.nodes.labels[min(node.members)] == unit]
        facts = sum(self.facts(node.members) for node in inside)
        return len(inside) > math.ceil(round((1 - self.parameters.ratio) * facts, 9))

    def sum_of(self, members: frozenset[int]) -> Floats:
        rows = [self.nodes.counts[n] * self.nodes.vectors[n].astype(np.float64) for n in sorted(members)]
        return normalised_sum(np.sum(rows, axis=0), np.zeros(rows[0].shape))

    def facts(self, members: frozenset[int]) -> int:
        return sum(self.nodes.counts[n] for n in members)

    def name(self, members: frozenset[int]) -> bytes:
        return min(self.nodes.ids[n] for n in members)

    def time(self, members: frozenset[int]) -> tuple[int, bytes]:
        return max(self.nodes.positions[n] for n in members), self.name(members)


def vectors_fused_by(fuse: Fuse, nodes: UnitNodes) -> Callable[[int, int], Floats]:
    """A `FuseNodes` that keeps the vectors of merged nodes by number."""
    rows: list[Floats] = [row.astype(np.float64) for row in nodes.vectors]

    def fuse_nodes(one: int, other: int) -> Floats:
        rows.append(fuse(rows[one], rows[other]))
        return rows[-1]

    return fuse_nodes


def summing(nodes: UnitNodes) -> Callable[[int, int], Floats]:
    """A `FuseNodes` that gives the normalised sum of all members."""
    sums: list[Floats] = [
        count * row.astype(np.float64) for count, row in zip(nodes.counts, nodes.vectors, strict=True)
    ]

    def fuse_nodes(one: int, other: int) -> Floats:
        sums.append(sums[one] + sums[other])
        return normalised_sum(sums[-1], np.zeros(sums[-1].shape))

    return fuse_nodes


def merged(sets: list[frozenset[int]]) -> set[frozenset[int]]:
    return {members for members in sets if len(members) > 1}


@pytest.mark.parametrize("parameters", [PLAIN, CAPPED, PAPER, HUBS_COUNT])
@pytest.mark.parametrize("tie_heavy", [False, True])
def test_a_plan_is_what_scoring_everything_anew_after_each_merge_gives(
    parameters: EventTreeParameters, tie_heavy: bool
) -> None:
    for seed in range(8):
        nodes = random_nodes(seed, 4 + 3 * seed, tie_heavy=tie_heavy)

        found = plan_groups(nodes, parameters)
        expected = Oracle(nodes, parameters).run(None)

        assert set(map(frozenset, found.groups)) == merged(expected)
        assert found.merges == len(nodes.ids) - len(expected)
        assert found.cut == 1 - len(expected) / len(nodes.ids)


@pytest.mark.parametrize("parameters", [PLAIN, CAPPED, PAPER, HUBS_COUNT])
@pytest.mark.parametrize("fuse", [hashed, normalised_sum])
def test_the_literal_run_is_the_paper_whatever_the_encoder_answers(
    parameters: EventTreeParameters, fuse: Fuse
) -> None:
    for seed in range(8):
        nodes = random_nodes(seed, 4 + 3 * seed)

        found = merge_pairwise(nodes, parameters, vectors_fused_by(fuse, nodes))
        expected = Oracle(nodes, parameters).run(fuse)

        assert set(map(frozenset, found.groups)) == merged(expected)
        assert found.cut == 1 - len(expected) / len(nodes.ids)


@pytest.mark.parametrize("parameters", [PLAIN, CAPPED, PAPER, HUBS_COUNT])
@pytest.mark.parametrize("tie_heavy", [False, True])
def test_a_plan_equals_the_literal_run_whose_encoder_is_linear(
    parameters: EventTreeParameters, tie_heavy: bool
) -> None:
    for seed in range(4):
        nodes = random_nodes(seed, 150, units=1 + 3 * seed, tie_heavy=tie_heavy)
        if seed % 2:  # some are groups from before
            nodes = replace(nodes, member_counts=np.random.default_rng(seed).integers(1, 5, 150).tolist())

        plan = plan_groups(nodes, parameters)
        literal = merge_pairwise(nodes, parameters, summing(nodes))

        assert plan.groups == literal.groups
        assert plan.merges == len(literal.pairs)
        assert plan.cut == literal.cut


def losses_of(nodes: UnitNodes, pairs: tuple[tuple[int, int], ...]) -> dict[frozenset[int], float]:
    """What the live nodes at the end cost: Eq. 15, summed over the pairs that each was made of."""
    sums = [count * row.astype(np.float64) for count, row in zip(nodes.counts, nodes.vectors, strict=True)]
    members = [frozenset({n}) for n in range(len(sums))]
    losses = [0.0] * len(sums)
    for one, other in pairs:
        lengths = sorted((float(np.linalg.norm(sums[one])), float(np.linalg.norm(sums[other]))))
        rho = float(sums[one] @ sums[other]) / (lengths[0] * lengths[1])
        losses.append(losses[one] + losses[other] + lengths[1] / sum(lengths) * math.sqrt(max(0.0, 2 - 2 * rho)))
        sums.append(sums[one] + sums[other])
        members.append(members[one] | members[other])
    gone = {end for pair in pairs for end in pair}
    return {members[n]: losses[n] for n in range(len(nodes.ids), len(sums)) if n not in gone}


@pytest.mark.parametrize("parameters", [PLAIN, CAPPED, PAPER, HUBS_COUNT])
def test_the_loss_of_each_group_is_that_of_the_pairs_of_the_literal_run(parameters: EventTreeParameters) -> None:
    for seed in range(4):
        nodes = random_nodes(seed, 120, units=1 + 2 * seed)
        nodes = replace(nodes, member_counts=np.random.default_rng(seed).integers(1, 3, 120).tolist())

        plan = plan_groups(nodes, parameters)
        expected = losses_of(nodes, merge_pairwise(nodes, parameters, summing(nodes)).pairs)

        assert plan.losses == pytest.approx([expected[frozenset(group)] for group in plan.groups], abs=1e-6)
        assert plan.loss_bound == pytest.approx(sum(expected.values()))


def test_the_literal_run_numbers_its_nodes_and_takes_the_later_time() -> None:
    # 0 and 1 are 4 degrees apart, 2 and 3 ten; then the two new nodes are all there is.
    nodes = one_unit(at_degrees(4, 0, 60, 70), [7, 3, 1, 5])
    parameters = replace(PLAIN, ratio=0.75, eta=1.0)

    found = merge_pairwise(nodes, parameters, summing(nodes))

    assert found.pairs == ((1, 0), (2, 3), (5, 4))
    assert found.positions == (7, 5, 7)
    assert found.groups == ((2, 1, 3, 0),)
    assert found.cut == 0.75


def test_of_equal_edges_a_merged_node_goes_by_the_smallest_id_of_its_members() -> None:
    # Two stars of equal nodes: 0 with 4 and 5, 1 with 2 and 3. After 0+4 the edge to 5 still comes before 1-2.
    nodes = replace(one_unit(at_degrees(*[0] * 6), [0] * 6), labels=[0, 1, 1, 1, 0, 0])
    two_merges = replace(PLAIN, eta=1.0, ratio=1 / 3)

    assert plan_groups(nodes, two_merges).groups == ((0, 4, 5),)
    assert merge_pairwise(nodes, two_merges, summing(nodes)).pairs == ((0, 4), (6, 5))


@pytest.mark.parametrize("count", [0, 1])
def test_fewer_than_two_nodes_are_left_alone(count: int) -> None:
    nodes = one_unit(at_degrees(0)[:count], [0][:count])

    assert merge_pairwise(nodes, PAPER, summing(nodes)).pairs == ()
