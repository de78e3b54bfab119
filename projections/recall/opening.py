"""The inside of a group: the nodes it stands for, those that a question is nearest to first.

A group is searched as one node; what an answer shows of one is up to whoever asks. By words alone; whoever has
vectors orders the members anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from msgspec.structs import replace

from projections.recall.agpr import SCORE_DECIMALS
from projections.recall.filters import Sieve
from projections.recall.nodes import NodeSet
from projections.recall.rows import Outline, SearchNode


@dataclass(frozen=True, slots=True)
class Inside:
    """A node that a group stands for; `nearness` to the question is from 0 to 1, that of the nearest one."""

    node: SearchNode
    nearness: float


@dataclass(frozen=True)
class Opening:
    """Which members of groups of a node set are shown for a question with these terms.

    Those that pass the `sieve`: of a state that moved on the one that held then. Of a group with some of `told`,
    the nodes that tell what a question asks for, these alone.
    """

    nodes: NodeSet
    terms: tuple[str, ...]
    sieve: Sieve
    told: frozenset[bytes] = frozenset()

    def look(self, group: bytes) -> tuple[Inside, ...]:
        """The members of a group, the nearest first, and equal ones in their own order; () for no group."""
        held = [each for each in self.nodes.inside(group) if self.sieve.passes(each)]
        if self.told:
            held = [each for each in held if each.node.id in self.told] or held
        scores = [self.nodes.lexical.score_counts(self._weights, each.counts) for each in held]
        best = max(scores, default=0.0)
        found = [
            Inside(each.node, round(score / best, SCORE_DECIMALS) if best else 1.0)
            for each, score in zip(held, scores, strict=True)
        ]
        return tuple(sorted(found, key=lambda each: (-each.nearness, each.node.time_start, each.node.id)))

    def narrow(self, node: SearchNode) -> SearchNode:
        """A node as it may be told of: of a group that leaves something out what the nearest member says, with the
        sources of those that are shown."""
        inside = self.look(node.id) if self.sieve.leaves_out(node.id) else ()
        if not inside:
            return node
        turns = {turn for each in inside for turn in each.node.turns}
        said_at = max(each.node.said_at for each in inside)
        return replace(node, ref=inside[0].node.ref, turns=tuple(sorted(turns)), said_at=said_at)

    @cached_property
    def _weights(self) -> Mapping[int, float]:
        return self.nodes.lexical.weights(self.terms)


def outline_opened(outline: Outline, inside: tuple[Inside, ...]) -> Outline:
    """What an opened group has its place for: the nearest member, as if that stood there by itself.

    The others come along where there is room. A group that went only when all of its turns are carried would
    keep a place beside the chunk that says what it was found for. What has none `inside` is shown as it is.
    """
    if not inside:
        return outline
    nearest = inside[0].node
    return replace(outline, turns=nearest.turns, length=nearest.length)
