"""What a compaction that somebody asked for says of itself: how far it is, what it did, or what it would do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from daemon.building.live_nodes import Stays
from events.errors import MemForestError
from events.eventtree import NodesMerged
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory

# Losses are recorded in hundred-thousandths.
LOSS_UNIT = 100_000


class CompactionRunning(MemForestError):
    """A compaction of this user is running already; wait until it is done."""

    code = "busy"


@dataclass(slots=True)
class Progress:
    """How far a compaction is: of `groups` planned ones so many were dealt with, and how they ended."""

    groups: int = 0
    done: int = 0
    fused: int = 0
    parked: int = 0

    @property
    def left(self) -> int:
        """Planned and not fused, nor given up."""
        return max(0, self.groups - self.done)


@dataclass(frozen=True, slots=True)
class ProgressShown:
    """A compaction that runs now: of `groups` planned ones so many are `fused`, and `parked` were given up."""

    groups: int
    fused: int
    parked: int


@dataclass(slots=True)
class Counts:
    """What became of the planned groups, and what their answers took."""

    parked: int = 0
    waiting: int = 0
    waits_for: str | None = None
    calls: int = 0
    tokens: int = 0
    extractive: int = 0

    def take(self, merged: NodesMerged) -> None:
        """Count an answer."""
        self.calls += merged.usage.calls
        self.tokens += merged.usage.tokens
        self.extractive += merged.extractive


@dataclass(frozen=True, slots=True)
class ApartShown:
    """Nodes that no compaction merges now, by why.

    They are pinned, are states that may still end (or ended, and are merged with each other alone), are of kinds
    that the policy keeps apart, or were said too lately.
    """

    pinned: int = 0
    states: int = 0
    kinds: int = 0
    young: int = 0


@dataclass(frozen=True, slots=True)
class CompactionResult:
    """What a compaction did, or with `dry_run` would do. Nodes are facts and groups; `groups` are those it made.

    `cut` is the share of facts no longer searched alone; it stays below `ratio` where no further merge is allowed,
    by `member_cap` or because of what stays `apart`. `loss_bound` is summed over all groups that stand then.
    `calls` of the model took `tokens`; for a dry run it is one call a group whose answer is not recorded yet, and
    tokens are estimated at four characters each: instructions, the members' texts, an answer as long as these.
    `extractive` groups were put together of their members' own texts. Of the planned groups that were not made,
    `parked` were given up (`parked.retry` has them tried again), and `waiting` wait for the model, because of what
    `waits_for` says: compacting again goes on with them.
    """

    facts: int
    nodes_before: int
    nodes_after: int
    cut: float
    groups: int
    units: int
    loss_bound: float
    parked: int = 0
    waiting: int = 0
    waits_for: str | None = None
    dry_run: bool = False
    ratio: float = 0.0
    member_cap: int | None = None
    calls: int = 0
    tokens: int = 0
    extractive: int = 0
    apart: ApartShown = ApartShown()


def tell(
    memory: Memory,
    parameters: EventTreeParameters,
    nodes_before: int,
    nodes_after: int,
    stays: Mapping[Stays, int],
    counts: Counts,
) -> CompactionResult:
    """What a compaction came to by a Memory; the groups that it made are counted by the caller."""
    facts, units = len(memory.canon.facts), memory.units
    return CompactionResult(
        facts=facts,
        nodes_before=nodes_before,
        nodes_after=nodes_after,
        cut=1 - nodes_after / facts if facts else 0.0,
        groups=0,
        units=len(units.facts_of),
        loss_bound=sum(group.loss for group in units.groups.values()) / LOSS_UNIT,
        parked=counts.parked,
        waiting=counts.waiting,
        waits_for=counts.waits_for,
        ratio=parameters.ratio,
        member_cap=parameters.member_cap,
        calls=counts.calls,
        tokens=counts.tokens,
        extractive=counts.extractive,
        apart=ApartShown(
            stays.get(Stays.PINNED, 0),
            stays.get(Stays.STATE, 0),
            stays.get(Stays.KIND, 0),
            stays.get(Stays.YOUNG, 0),
        ),
    )
