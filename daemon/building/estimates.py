"""What a planned compaction would take: questions to the model, and tokens by the length of texts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from daemon.building.fusing import Merge
from daemon.building.live_nodes import LiveNode, count_nodes
from daemon.chat.prompts import INSTRUCTIONS
from events.memory import Task
from projections.memory import Memory
from projections.recall.answering import CHARACTERS_PER_TOKEN

# Of each prompt, besides the texts.
INSTRUCTION_CHARS: Final = len(INSTRUCTIONS[Task.MERGE])


@dataclass(slots=True)
class Estimate:
    """What would stand and what it would take, group by group; `parked` ones were given up before.

    `loss` is in hundred-thousandths, `characters` are those of prompts and answers.
    """

    nodes_after: int
    loss: int
    pairwise: bool
    groups: int = 0
    parked: int = 0
    calls: int = 0
    characters: int = 0

    @property
    def tokens(self) -> int:
        """About as many as the characters have."""
        return self.characters // CHARACTERS_PER_TOKEN

    def take(self, memory: Memory, works: Sequence[Merge], recorded: Sequence[bool]) -> None:
        """Take in some groups; `recorded` says of which the answer is in the log, and costs nothing.

        An answer is taken for as long as the texts it is made of. Pair by pair, the texts of a group are read anew
        with each merge, and are taken to come one after the other.
        """
        units = memory.units
        for work, is_known in zip(works, recorded, strict=True):
            if work.request in units.parked:
                self.parked += 1
                continue
            self.groups += 1
            live = dict.fromkeys(units.group_of.get(fact, fact) for fact in work.facts)
            self.nodes_after -= len(live) - 1
            self.loss += work.loss - sum(units.groups[node].loss for node in live if node in units.groups)
            if is_known and not self.pairwise:
                continue
            lengths = [_length(memory, node) for node in work.nodes]
            for length in _lengths_asked(lengths, pairwise=self.pairwise):
                self.calls += 1
                self.characters += INSTRUCTION_CHARS + 2 * length


def begin_estimate(memory: Memory, *, pairwise: bool) -> Estimate:
    """What stands now."""
    return Estimate(count_nodes(memory), sum(group.loss for group in memory.units.groups.values()), pairwise)


def _lengths_asked(lengths: Sequence[int], *, pairwise: bool) -> Iterable[int]:
    """How long the texts of each question about one group are."""
    if not pairwise:
        return (sum(lengths),)
    return (sum(lengths[:count]) for count in range(2, len(lengths) + 1))


def _length(memory: Memory, node: LiveNode) -> int:
    """Characters of a node's text; none of one that is gone by now."""
    group, fact = memory.units.groups.get(node.id), memory.canon.facts.get(node.id)
    if group is not None:
        return group.length
    return 0 if fact is None else fact.first.length
