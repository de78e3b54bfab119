"""What became of the EventTree: units, groups, groups undone, and how far a user's memory is compressed (paper A).

Every text that a model wrote is in one of these events, so folding the log never calls a model.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, TypeAlias

from events.memory import NOTHING_SPENT, FactId, FactRole, Usage, Word, upcast_answer

# Hash of the unit's centre fact when the unit was made.
UnitId: TypeAlias = bytes
# Hash of the facts in it.
GroupId: TypeAlias = bytes


@dataclass(frozen=True, slots=True)
class UnitMembers:
    """Facts that are in a unit from now on, whichever they were in before."""

    unit: UnitId
    facts: tuple[FactId, ...]


@dataclass(frozen=True, slots=True)
class UnitsPartitioned:
    """What changed of which unit holds which fact (paper A, Eq. 1-4).

    All its facts were first read in one session, its lineage: who is forgotten takes no other's place along.
    """

    wire_name: ClassVar = "units.partitioned"
    version: ClassVar = 2
    generation: int
    units: tuple[UnitMembers, ...]


@dataclass(frozen=True, slots=True)
class NodesMerged:
    """The facts of a group were fused into one node (paper A, Eq. 8); it replaces them in recall.

    `loss` is the most that this costs together in similarity to a query, in hundred-thousandths (Eq. 15, summed
    over the merges of the group). An extractive text was put together by rule, of the members' own.
    """

    wire_name: ClassVar = "nodes.merged"
    version: ClassVar = 4
    generation: int
    unit: UnitId
    members: tuple[FactId, ...]
    sources: tuple[int, ...]  # seqs of the events whose words it was made of
    model: Word
    text: Word
    request: bytes = b""  # as in FactsExtracted
    usage: Usage = NOTHING_SPENT
    loss: int = 0
    extractive: bool = False
    prompt: bytes = b""  # as in FactsExtracted


@dataclass(frozen=True, slots=True)
class CompactionUndone:
    """The groups of these facts stand no more; the facts are kept apart until a compaction is asked for.

    It names no session, and facts instead of groups: whoever is forgotten, no smaller group comes back that the
    undone one had taken in, and those who are left of it stay apart.
    """

    wire_name: ClassVar = "compaction.undone"
    version: ClassVar = 1
    generation: int
    facts: tuple[FactId, ...]


@dataclass(frozen=True, slots=True)
class Policy:
    """How far one user's memory is compressed, where that differs from the configuration (None: it does not).

    `ratio` and `time_bonus` are in thousandths; a `member_cap` of 0 is none.
    """

    online: bool | None = None
    ratio: int | None = None
    member_cap: int | None = None
    time_bonus: int | None = None
    min_age_s: int | None = None
    never_merged: tuple[FactRole, ...] | None = None


AS_CONFIGURED = Policy()


@dataclass(frozen=True, slots=True)
class PolicyChanged:
    """This is the whole policy of the user from now on."""

    wire_name: ClassVar = "policy.changed"
    version: ClassVar = 1
    policy: Policy


def upcast_units_partitioned(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 told of one unit, and of facts of any sessions."""
    return {"generation": body["generation"], "units": [{"unit": body["unit"], "facts": body["members"]}]}


def upcast_nodes_merged(body: dict[str, Any]) -> dict[str, Any]:
    """Version 1 was of rules alone."""
    return upcast_nodes_merged_2(upcast_answer(body))


def upcast_nodes_merged_2(body: dict[str, Any]) -> dict[str, Any]:
    """Version 2 did not say what a group costs, nor whose words its text is of."""
    return {**body, "loss": 0, "extractive": False}
