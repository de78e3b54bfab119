"""The inside of a group: the nodes it stands for, those that a question is nearest to first.

A group is searched as one node; what an answer shows of one is up to whoever asks. By words alone; whoever has
vectors orders the members anew.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from projections.recall.agpr import SCORE_DECIMALS
from projections.recall.filters import Span, lies_in
from projections.recall.nodes import NodeSet
from projections.recall.rows import Outline, SearchNode


@dataclass(frozen=True, slots=True)
class Inside:
    """A node that a group stands for; `nearness` to the question is from 0 to 1, that of the nearest one."""

    node: SearchNode
    nearness: float


@dataclass(frozen=True)
class Opening:
    """Which groups of a node set are opened for a question with these terms, and which of their members.

    With `about`, those whose own time has a part in it: of a state that moved on the one that held then. Of a
    group with some of `told`, the nodes that tell what a question asks for, these alone.
    """

    nodes: NodeSet
    terms: tuple[str, ...]
    about: Span | None = None
    told: frozenset[bytes] = frozenset()

    def look(self, group: bytes) -> tuple[Inside, ...]:
        """The members of a group, the nearest first, and equal ones in their own order; () for no group."""
        held = self.nodes.inside(group)
        if self.about is not None:
            held = [each for each in held if lies_in(each[0], self.about)]
        if self.told:
            held = [each for each in held if each[0].id in self.told] or held
        scores = [self.nodes.lexical.score_counts(self._weights, counts) for _, counts in held]
        best = max(scores, default=0.0)
        found = [
            Inside(node, round(score / best, SCORE_DECIMALS) if best else 1.0)
            for (node, _), score in zip(held, scores, strict=True)
        ]
        return tuple(sorted(found, key=lambda each: (-each.nearness, each.node.time_start, each.node.id)))

    @cached_property
    def _weights(self) -> Mapping[int, float]:
        return self.nodes.lexical.weights(self.terms)


def outline_opened(outline: Outline, inside: tuple[Inside, ...], *, by_length: bool) -> Outline:
    """What an opened group shows for sure: all of its members, or where length counts the nearest one.

    What is no group, and has none `inside`, is shown as it is.
    """
    if not inside:
        return outline
    shown = [each.node for each in (inside[:1] if by_length else inside)]
    return Outline(
        id=outline.id,
        kind=outline.kind,
        turns=tuple(sorted({turn for node in shown for turn in node.turns})),
        said_at=outline.said_at,
        length=sum(node.length for node in shown),
        stated=outline.stated,
    )
