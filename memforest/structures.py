"""The two structures of a memory as frozen records: MemTrees (paper B) and EventTree units (paper A).

As in `types`: fields a newer daemon adds are ignored, a field with a default may be missing, times are aware.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from memforest.types import CompactionProgress, Source


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
    """One unit of the EventTrees and how many nodes, facts and groups it has.

    `loss_bound` is the sum over its groups; so many of them are `extractive`.
    """

    id: str | int
    nodes: int
    facts: int
    groups: int
    loss_bound: float = 0.0
    extractive: int = 0


@dataclass(frozen=True, slots=True)
class Group:
    """Nodes that were merged into one; `members` are ids of facts. `text` is None once its words are gone.

    `loss_bound`: the most its merges cost together in similarity to a query. An `extractive` text was put together
    of its members' own by rule. A `trajectory` holds the values of one state, one after the other.
    """

    id: str
    text: str
    members: tuple[str, ...] = ()
    time_start: datetime | None = None
    time_end: datetime | None = None
    unit: str | None = None
    loss_bound: float = 0.0
    extractive: bool = False
    trajectory: bool = False


@dataclass(frozen=True, slots=True)
class Units:
    """A page of a user's units and the groups in them; `next` is the `after` of the next page.

    The other figures are of all of the user's: facts, the nodes they are in, the loss bound, and the compaction
    that somebody asked for and that runs now.
    """

    units: tuple[Unit, ...]
    groups: tuple[Group, ...] = ()
    next: str | None = None
    facts: int = 0
    nodes: int = 0
    loss_bound: float = 0.0
    compaction: CompactionProgress | None = None


@dataclass(frozen=True, slots=True)
class Apart:
    """Facts that are not merged: pinned, states that may still end, kinds never merged (by policy), too young."""

    pinned: int = 0
    states: int = 0
    kinds: int = 0
    young: int = 0


@dataclass(frozen=True, slots=True)
class Compaction:
    """What one compaction did to the EventTree nodes, or would do (`dry_run`); `cut` is the share (0-1) that went.

    `groups` were made by `calls` questions to the model, which took `tokens` (estimated from characters for a dry
    run). Of the planned groups `parked` were given up, and `waiting` wait because of `waits_for`: compact again.
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
    dry_run: bool = False
    ratio: float | None = None
    calls: int | None = None
    tokens: int | None = None
    extractive: int = 0
    apart: Apart = Apart()


@dataclass(frozen=True, slots=True)
class Undone:
    """Groups that stand no more, and how many facts are searched by themselves again."""

    groups: int
    facts: int


@dataclass(frozen=True, slots=True)
class CompactionPolicy:
    """How far a user's memory is compressed: the values in force.

    `set_by_user` names those that are this user's own; the others are the daemon's. `member_cap` is None for none.
    """

    preset: str
    online: bool
    ratio: float
    member_cap: int | None
    time_bonus: float
    min_age_s: float
    never_merged: tuple[str, ...] = ()
    set_by_user: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Merged:
    """The members' texts of a group in time order, and the one text that was made of them."""

    group: str
    members: tuple[str, ...]
    text: str
    model: str
    extractive: bool
    user_seq: int


@dataclass(frozen=True, slots=True)
class MergedPage:
    """Groups in the order in which they were made; `next` is the `after` of the next page."""

    merges: tuple[Merged, ...]
    next: int | None = None
