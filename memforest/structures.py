"""The two structures of a memory as frozen records: MemTrees (paper B) and EventTree units (paper A).

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memforest.types import Source


@dataclass(frozen=True, slots=True)
class Tree:
    """One MemTree: what it is about, its size, and how many of its nodes wait for a summary.

    `scope` is a session, the label of an entity, `user`, or the id of a scene; `name` what people call it.
    `aliases` are the other names of an entity, or those of the user.
    """

    scope: str
    kind: str
    leaves: int
    height: int
    nodes: int
    dirty: bool | int = 0
    root_text: str | None = None
    id: str | None = None
    name: str | None = None
    aliases: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class TreeNode:
    """A node or leaf of a tree. `state` is leaf, summarised, concatenated, dirty or parked.

    `id` of a leaf is that of its memory. `children` is None for a leaf and where the answer ends.
    """

    id: str
    kind: str
    level: int
    state: str
    time_start: datetime
    time_end: datetime
    leaves: int
    text: str | None = None
    sources: tuple[Source, ...] | None = None
    children: tuple[TreeNode, ...] | None = None


@dataclass(frozen=True, slots=True)
class TreeNodes:
    """One tree from `root` downwards; `left_off` counts the leaves that were too deep or too many."""

    id: str
    scope: str
    kind: str
    leaves: int
    height: int
    dirty: int
    root: TreeNode
    left_off: int = 0
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Unit:
    """One unit of the EventTrees and how many nodes, facts and groups it has."""

    id: str | int
    nodes: int
    facts: int
    groups: int


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that were merged into one; `members` are ids of facts. `text` is None once its words are gone."""

    id: str
    text: str
    members: tuple[str, ...] = ()
    time_start: datetime | None = None
    time_end: datetime | None = None
    unit: str | None = None


@dataclass(frozen=True, slots=True)
class Units:
    """A page of a user's units and the groups in them; `next` is the `after` of the next page."""

    units: tuple[Unit, ...]
    groups: tuple[Group, ...] = ()
    next: str | None = None


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction did to the EventTree nodes; `cut` is the share (0-1) that went.

    Of the planned groups `parked` were given up, and `waiting` wait because of `waits_for`: compact again later.
    """

    facts: int
    nodes_before: int
    nodes_after: int
    cut: float
    groups: int
    units: int
    loss_bound: float | None = None
    parked: int = 0
    waiting: int = 0
    waits_for: str | None = None
