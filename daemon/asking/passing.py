"""What filters let through of what a Memory knows several times: wordings of facts, and leaves of trees.

A fact that was told in several sessions passes by any of them, and is shown as it was told there.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from msgspec.structs import replace

from projections.facts.canonical import Fact
from projections.recall.filters import Filters, Sieve, label_marks
from projections.recall.rows import NodeKind
from projections.texts import FactText

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from projections.facts.canonical import Occurrence
    from projections.memory import Memory
    from projections.recall.filters import Marked
    from projections.recall.rows import SearchNode

    Rows = NDArray[np.intp]


@dataclass(frozen=True, slots=True)
class Passing:
    """A Memory as filters let it be seen."""

    memory: Memory
    sieve: Sieve

    @classmethod
    def of(cls, memory: Memory, filters: Filters) -> Passing:
        """The Memory as it stands."""
        return cls(memory, Sieve(memory.nodes, filters))

    def fact(self, fact: Fact) -> Fact:
        """A fact that passes, as those tell it that pass."""
        if len(fact.occurrences) == 1:
            return fact
        kept = self.sieve.narrow(fact.occurrences, self._marked)
        return fact if len(kept) == len(fact.occurrences) else Fact(fact.id, kept)

    def node(self, node: SearchNode) -> SearchNode:
        """A node that passes, with the wording and the sources that do."""
        fact = self.memory.canon.holder(node.ref.occurrence) if isinstance(node.ref, FactText) else None
        kept = None if fact is None else self.fact(fact)
        if kept is None or kept is fact:
            return node
        first, ref = kept.first, FactText(kept.first.pointer)
        if node.kind is not NodeKind.FACT:  # a group's sources are those of all its members that are shown
            return replace(node, ref=ref)
        return replace(
            node,
            ref=ref,
            turns=kept.turns,
            sessions=kept.sessions,
            said_at=first.said_at,
            time_start=first.time_start,
            time_end=first.time_end,
            length=first.length,
        )

    def leaves_left_out(self, rows: Rows) -> Iterator[bytes]:
        """The keys of leaves whose words do not pass, though these rows do, by which they are found."""
        memory, sieve = self.memory, self.sieve
        if not sieve.leaves_something:
            return
        for fact in memory.canon.facts.values():
            if len(fact.occurrences) > 1 and self.fact(fact).first is not fact.first:
                yield fact.first.leaf_key
        groups = rows[memory.nodes.of_kinds(rows, {NodeKind.GROUP})]
        for group in memory.nodes.ids(groups):
            for member in memory.nodes.inside(group):
                if not sieve.passes(member):
                    yield memory.canon.facts[member.node.id].first.leaf_key

    def _marked(self, told: Occurrence) -> Marked:
        marks = self.memory.transcript.marks_of(told.turns)
        marks |= label_marks((mention.label for mention in told.mentions), self.memory.nodes.mark)
        return marks, (told.session,)
