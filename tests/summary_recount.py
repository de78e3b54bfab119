"""Which nodes must have been summarised, counted from the leaves of a Memory's trees and the log alone.

Trees are built of the leaves anew, and their nodes are walked with the rule of concatenation written out plainly,
for tests and benchmarks, against what was asked of a model.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from events.log import LogReader
from events.memory import Digest, IntervalSummarised
from events.reading import read_events, read_user
from projections.memory import Memory
from projections.memtree.items import Item, Leaf
from projections.memtree.tree import MemTree
from projections.texts import compose, events_behind

EVENTS_MAX = 1_000_000


@dataclass
class Recount:
    """What was counted so far of one user; `wanted` are the nodes that had to be summarised."""

    concatenation_max: int
    wanted: set[Digest] = field(default_factory=set[Digest])
    _lengths: dict[Digest, int] = field(default_factory=dict[Digest, int])  # of each summary that was recorded

    async def count(self, log: LogReader, memory: Memory) -> set[Digest]:
        """The nodes that want a summary in the trees as they are now, and did not before.

        Raises KeyError when one that has a parent went without.
        """
        self._lengths = {each.digest: len(each.text) for each in await read_summaries(log, memory)}
        wanted: set[Digest] = set()
        for tree in memory.forest.trees.values():
            leaves = tree.leaves()
            refs = {leaf.key: memory.forest.refs_of(leaf) for leaf in leaves}
            behind = events_behind(ref for each in refs.values() for ref in each)
            recorded = await log.read(partial(read_events, seqs=behind))
            lengths = {key: len(compose(ref, recorded) or "") for key, (ref,) in refs.items()}
            root = MemTree.build(leaves, memory.parameters.shape).root
            assert root is not None
            self._measure(root, lengths, wanted)
        new = wanted - self.wanted
        self.wanted |= wanted
        return new

    def _measure(self, item: Item, lengths: dict[bytes, int], wanted: set[Digest]) -> int:
        """Characters of an item's text; collects the nodes below that are too long to be put together."""
        if isinstance(item, Leaf):
            return lengths[item.key]
        below = [self._measure(child, lengths, wanted) for child in item.children]
        together = sum(below) + len(below) - 1  # a line break between each two
        if together <= self.concatenation_max:
            return together
        wanted.add(item.digest)
        return self._lengths[item.digest]


async def read_summaries(log: LogReader, memory: Memory) -> list[IntervalSummarised]:
    """The summaries that were recorded of a user up to where its Memory is, in order."""
    events = await log.read(partial(read_user, user=memory.user, limit=EVENTS_MAX))
    recorded = (each.event for each in events if each.user_seq <= memory.user_seq)
    return [event for event in recorded if isinstance(event, IntervalSummarised)]
