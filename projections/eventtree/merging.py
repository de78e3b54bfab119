"""Which nodes of a unit become one: a plan without a model, so that each final group is fused once.

`plan_groups` takes the decisions of the paper's progressive merging (Eq. 5-8; `literal`) on normalised sums of
member vectors.
"""

from __future__ import annotations

import heapq
import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from projections.eventtree.parameters import EventTreeParameters
from projections.eventtree.spanning_tree import (
    Floats,
    Integers,
    TreeEdges,
    edge_weights,
    maximum_spanning_tree,
    order_by_id,
    rescore,
    tree_degrees,
)
from projections.ports import Vectors


@dataclass(frozen=True, slots=True, eq=False)
class UnitNodes:
    """Live nodes and their units. A node may itself be a group: `member_counts` says of how many facts.

    `vectors` (n, d) are unit rows; `positions` are the source turns' places in time order, of a group the
    last; `labels` are units as `Partition` gives them. Raises `ValueError` when the lengths differ.
    """

    vectors: Vectors
    positions: Sequence[int]
    ids: Sequence[bytes]
    labels: Sequence[int]
    # None: every node is one fact.
    member_counts: Sequence[int] | None = None

    def __post_init__(self) -> None:
        lengths = {len(self.vectors), len(self.positions), len(self.ids), len(self.labels), len(self.counts)}
        if len(lengths) > 1:
            raise ValueError("vectors, positions, ids, labels and member_counts are of different lengths")

    @property
    def counts(self) -> Sequence[int]:
        """Facts in each node."""
        return (1,) * len(self.ids) if self.member_counts is None else self.member_counts


@dataclass(frozen=True, slots=True)
class MergePlan:
    """What to fuse. Groups name the nodes given by index, two or more each, in time order; so do the groups.

    `cut` is 1 - live nodes / facts afterwards, so merges made earlier count too. `loss_bound` sums
    (1 - mix) sqrt(2 - 2 rho) over the merges (Eq. 15 and 32): the most they cost together in similarity to a
    query that no member points away from. mix is the lighter node's share of the weight, because any member
    may be the one that the query is about; a node's weight is the length of its sum, so Eq. 11 is exact.
    `losses` are the terms by group: what each one costs.
    """

    groups: tuple[tuple[int, ...], ...]
    cut: float
    losses: tuple[float, ...]
    merges: int

    @property
    def loss_bound(self) -> float:
        """The sum of the losses of all groups."""
        return math.fsum(self.losses)


def unit_trees(nodes: UnitNodes, parameters: EventTreeParameters) -> TreeEdges:
    """The maximum spanning trees of all units as one forest; ends are indices of the nodes given.

    A group that has as many members as the cap allows is in no tree. It is near to everything, so that it would
    stand between nodes that may still be merged: units that are planned again and again came to a stop there.
    """
    cap = parameters.member_cap or math.inf
    units: defaultdict[int, list[int]] = defaultdict(list)
    for index, (label, facts) in enumerate(zip(nodes.labels, nodes.counts, strict=True)):
        if facts < cap:
            units[label].append(index)
    ends = [np.empty((0, 2), dtype=np.int64)]
    weights = [np.empty(0)]
    for inside in units.values():
        members = np.array(inside, dtype=np.int64)
        tree = maximum_spanning_tree(
            nodes.vectors[members],
            [nodes.positions[index] for index in inside],
            [nodes.ids[index] for index in inside],
            parameters.time_bonus,
        )
        ends.append(members[tree.ends])
        weights.append(tree.weights)
    return TreeEdges(np.concatenate(ends), np.concatenate(weights))


def plan_groups(nodes: UnitNodes, parameters: EventTreeParameters, *, trees_max: int = 1) -> MergePlan:
    """Plan to the end without a model: the best edge of all trees next, to the ratio or till none is allowed.

    A merged node's vector is the normalised sum of its members' (of a group given: its row times its count).
    The cap is tested before an edge is taken. Time m log m, plus d for each edge that is scored again.
    Full groups cut a tree into parts, so that nodes that may still be merged are in no edge together; with
    `trees_max` above 1 such nodes get trees of their own, so many times at most, and each group one plan still.
    """
    return _Contraction(nodes, parameters).run(trees_max)


class Nodes:
    """Nodes by number, those given and those merged: who is in them, and what may still be joined."""

    def __init__(self, nodes: UnitNodes, parameters: EventTreeParameters) -> None:
        count = len(nodes.ids)
        self.given = count
        # A merged node goes by the smallest id of its members: nodes are disjoint, so this stays unique.
        self.ranks: list[int] = np.argsort(order_by_id(nodes.ids)).tolist()
        self.positions = [int(position) for position in nodes.positions]
        self.counts = [int(facts) for facts in nodes.counts]
        self.members: list[tuple[int, ...]] = [(index,) for index in range(count)]
        self._live = dict.fromkeys(range(count))
        self._cap = parameters.member_cap or math.inf
        self.labels = [int(label) for label in nodes.labels]
        # A pool is what shares a budget: all units, or each by itself.
        self._pools = self.labels if parameters.budget == "unit" else [0] * (2 * count)
        live: defaultdict[int, int] = defaultdict(int)
        facts: defaultdict[int, int] = defaultdict(int)
        for pool, inside in zip(self._pools, self.counts, strict=False):
            live[pool] += 1
            facts[pool] += inside
        self._left = {pool: live[pool] - parameters.live_target(facts[pool]) for pool in live}
        self._facts = sum(self.counts)

    def by_id(self, one: int, other: int) -> tuple[int, int]:
        """What breaks a tie between edges: (smaller id, larger id), as ranks."""
        low, high = sorted((self.ranks[one], self.ranks[other]))
        return low, high

    def by_time(self, one: int, other: int) -> tuple[int, int]:
        """The earlier node first; at one position, the smaller id."""
        earlier, later = sorted((one, other), key=self._time)
        return earlier, later

    def open(self) -> list[int]:
        """Live nodes that may take others in."""
        return [n for n in self._live if self._left[self._pools[n]] > 0 and self.counts[n] < self._cap]

    def is_live(self, node: int) -> bool:
        """Whether the node was not merged into another one."""
        return node in self._live

    def may_join(self, one: int, other: int) -> bool:
        """Whether budget and cap let the two become one. A no is final: budgets shrink, nodes grow."""
        return self._left[self._pools[one]] > 0 and self.counts[one] + self.counts[other] <= self._cap

    def join(self, one: int, other: int) -> int:
        """Make one node of two; its time is the later one's (Eq. 8). The number of the new node."""
        merged = len(self.ranks)
        self.ranks.append(min(self.ranks[one], self.ranks[other]))
        self.positions.append(max(self.positions[one], self.positions[other]))
        self.counts.append(self.counts[one] + self.counts[other])
        self.members.append(self.members[one] + self.members[other])
        self.labels.append(self.labels[one])
        self._left[self._pools[one]] -= 1
        del self._live[one], self._live[other]
        self._live[merged] = None
        return merged

    def groups(self) -> dict[int, tuple[int, ...]]:
        """The merged nodes as members in time order, themselves in time order of their first."""
        merged = {n: tuple(sorted(self.members[n], key=self._time)) for n in self._live if n >= self.given}
        return dict(sorted(merged.items(), key=lambda item: self._time(item[1][0])))

    def cut(self) -> float:
        """The share of all facts that has no node of its own."""
        return 1 - len(self._live) / self._facts if self._facts else 0.0

    def _time(self, node: int) -> tuple[int, int]:
        return self.positions[node], self.ranks[node]


class _Contraction:
    """A forest being contracted along its best edges, which a heap finds.

    A contraction changes the degrees of nobody else: each neighbour swaps one edge for one. So only the edges
    at the new node are scored again, and an entry of the heap is stale only when one of its ends is gone.
    """

    def __init__(self, nodes: UnitNodes, parameters: EventTreeParameters) -> None:
        self._run = Nodes(nodes, parameters)
        self._parameters = parameters
        self._given = nodes.vectors
        # Of merged nodes only: the direction of the sum of their members. Its length is `_weights`.
        self._directions: dict[int, Floats] = {}
        self._weights = [float(facts) for facts in nodes.counts]
        self._heap: list[tuple[float, int, int, int, int]] = []
        # By number of the node: what it cost to make it, all of its merges.
        self._losses = [0.0] * self._run.given
        self._take_up(unit_trees(nodes, parameters))

    def run(self, trees_max: int) -> MergePlan:
        """Take the best edge that is allowed until there is none, nor any in trees of what is left."""
        self._contract_all()
        for _ in range(1, trees_max):
            before = len(self._losses)
            self._take_up(self._grow_again())
            self._contract_all()
            if len(self._losses) == before:
                break
        groups, merges = self._run.groups(), len(self._losses) - self._run.given
        losses = tuple(self._losses[n] for n in groups)
        return MergePlan(tuple(groups.values()), self._run.cut(), losses, merges)

    def _contract_all(self) -> None:
        run = self._run
        while self._heap:
            _, _, _, one, other = heapq.heappop(self._heap)
            if run.is_live(one) and run.is_live(other) and run.may_join(one, other):
                self._losses.append(self._losses[one] + self._losses[other] + self._contract(one, other))

    def _take_up(self, edges: TreeEdges) -> None:
        """Begin with these trees."""
        # Each merge makes one node, so fewer than 2 n numbers are ever used.
        self._degrees = tree_degrees(edges, 2 * self._run.given)
        self._neighbours: defaultdict[int, list[int]] = defaultdict(list)
        for one, other in edges.ends.tolist():
            self._neighbours[one].append(other)
            self._neighbours[other].append(one)
        self._offer(edges)

    def _grow_again(self) -> TreeEdges:
        """Trees of the nodes that may still be merged."""
        run, left = self._run, self._run.open()
        if not left:
            return TreeEdges(np.empty((0, 2), dtype=np.int64), np.empty(0))
        nodes = UnitNodes(
            np.array([self._direction(n) for n in left], dtype=np.float32),
            [run.positions[n] for n in left],
            [run.ranks[n].to_bytes(8, "big") for n in left],
            [run.labels[n] for n in left],
            [run.counts[n] for n in left],
        )
        edges = unit_trees(nodes, self._parameters)
        return TreeEdges(np.array(left, dtype=np.int64)[edges.ends], edges.weights)

    def _offer(self, edges: TreeEdges) -> None:
        """Score edges (Eq. 6) and put on the heap those that may be taken."""
        scores = rescore(edges, self._degrees, self._parameters.eta).tolist()
        for score, (one, other) in zip(scores, edges.ends.tolist(), strict=True):
            if self._run.may_join(one, other):
                heapq.heappush(self._heap, (-score, *self._run.by_id(one, other), one, other))

    def _contract(self, one: int, other: int) -> float:
        """Make one node of two and score its edges; the term of Eq. 15 that this costs."""
        loss = self._loss(one, other)
        merged = self._run.join(one, other)
        self._add_vectors(one, other)
        beside = [n for n in self._neighbours.pop(one) if n != other]
        beside += [n for n in self._neighbours.pop(other) if n != one]
        for node in beside:
            theirs = self._neighbours[node]
            theirs[theirs.index(one if one in theirs else other)] = merged
        self._neighbours[merged] = beside
        self._degrees[merged] = len(beside)
        if beside:
            self._offer(self._edges_of(merged, beside))
        return loss

    def _edges_of(self, merged: int, beside: list[int]) -> TreeEdges:
        """The new node's edges, weighed anew."""
        direction = self._direction(merged)
        cosines = np.array([np.dot(direction, self._direction(node)) for node in beside])
        at = self._run.positions[merged]
        gaps: Integers = np.array([at - self._run.positions[node] for node in beside], dtype=np.int64)
        ends = np.array([(merged, node) for node in beside], dtype=np.int64)
        return TreeEdges(ends, edge_weights(cosines, gaps, self._parameters.time_bonus))

    def _direction(self, node: int) -> Floats:
        merged = self._directions.get(node)
        return self._given[node].astype(np.float64) if merged is None else merged

    def _add_vectors(self, one: int, other: int) -> None:
        """The new node's vector: the sum of both, kept as a direction and a length."""
        total = self._weights[one] * self._direction(one) + self._weights[other] * self._direction(other)
        length = float(np.sqrt(np.dot(total, total)))
        for gone in (one, other):
            self._directions.pop(gone, None)
        # Opposite vectors cancel out; such a node is similar to nothing.
        self._directions[len(self._weights)] = total / length if length else total
        self._weights.append(length)

    def _loss(self, one: int, other: int) -> float:
        """(1 - mix) sqrt(2 - 2 rho) for the lighter node."""
        rho = float(np.dot(self._direction(one), self._direction(other)))
        weights = self._weights[one], self._weights[other]
        heavier_share = max(weights) / sum(weights) if sum(weights) else 1.0
        return heavier_share * math.sqrt(max(0.0, 2 - 2 * rho))
