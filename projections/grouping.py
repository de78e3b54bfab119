"""Groups in the search: each stands for its members, which are searched again by themselves when it falls.

A group falls with a member that is known no more, pinned or undone, and with the end of a state that its text
tells of. Its members stay in their units, so only what is left of it is planned again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

import numpy as np

from events.envelope import RecordedEvent, Reference
from events.eventtree import CompactionUndone, GroupId, NodesMerged
from events.memory import FactId
from projections.eventtree.units import Group, Units
from projections.facts.canonical import Fact
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import WrittenText


class Grouping:
    """The groups of one user as rows of the search, in place of the rows of their members."""

    def __init__(
        self,
        facts: Mapping[FactId, Fact],
        units: Units,
        nodes: NodeSet,
        node_of: Callable[[Fact], SearchNode],
        marks_of: Callable[[SearchNode, Iterable[str]], set[int]],
    ) -> None:
        """`node_of` tells how a fact is searched, `marks_of` what filters may ask of a node that names these."""
        self._facts = facts
        self._units = units
        self._nodes = nodes
        self._node_of = node_of
        self._marks_of = marks_of

    def merge(self, recorded: RecordedEvent, event: NodesMerged) -> None:
        """A group replaces its members, and the groups that it took some of them from.

        Not where a member stands no more, and the group's words say nothing of it, or is to stay as it is.
        """
        facts = self._facts
        if not facts.keys() >= set(event.members) or any(facts[member].pinned for member in event.members):
            return
        group, replaced = self._units.apply_merge(recorded, event)
        for former in replaced:
            self._dissolve(former)
        for member in event.members:
            if member in self._nodes.row_of:
                self._nodes.set_aside(member)
        node = self.group_node(group)
        labels = (label for member in event.members for label in facts[member].labels)
        # A text of the members' own is found as they were; what a model wrote in its own words.
        text = None if event.extractive else event.text
        self._nodes.add_group(node, event.members, self._marks_of(node, labels), text)
        self._nodes.close_gaps()

    def undo(self, event: CompactionUndone) -> None:
        """The members of the groups of these facts are searched again, and kept apart."""
        for group in self._units.keep_apart(event):
            self._dissolve(group)

    def leave(self, fact: FactId) -> None:
        """The group that holds a fact, if one does, stands for its members no more."""
        group = self._units.group_of.get(fact)
        if group is not None:
            self._dissolve(self._units.undo_group(group))

    def open(self, group: GroupId) -> list[SearchNode]:
        """Search the members of a group by themselves: one of them is hidden, and the others need not be."""
        return self._dissolve(self._units.undo_group(group))

    def open_hidden(self, hidden: frozenset[Reference]) -> None:
        """Open the groups in which something from these sessions is."""
        rows = np.setdiff1d(self._nodes.live_rows(), self._nodes.live_rows(hidden))
        groups = rows[self._nodes.of_kinds(rows, (NodeKind.GROUP,))]
        for node in self._nodes.nodes_at(groups.tolist()):
            self.open(node.id)

    def shown_for(self, fact: Fact) -> SearchNode:
        """The row that a fact is found by: its own, or its group's."""
        group = self._units.group_of.get(fact.id)
        return self._node_of(fact) if group is None else self.group_node(self._units.groups[group])

    def group_node(self, group: Group) -> SearchNode:
        """How a group is searched: with all that its members rest on, and the time of the last one (Eq. 8)."""
        members = [self._node_of(self._facts[member]) for member in group.members]
        end = max(node.time_end for node in members)
        # As long as the last of its states holds, when that is longer than what any member is about.
        until = max(node.holds_until or 0 for node in members)
        return SearchNode(
            id=group.id,
            kind=NodeKind.GROUP,
            ref=WrittenText(group.seq),
            turns=tuple(sorted({turn for node in members for turn in node.turns})),
            sessions=frozenset().union(*(node.sessions for node in members)),
            said_at=max(node.said_at for node in members),
            time_start=min(node.time_start for node in members),
            time_end=end,
            length=group.length,
            stated=any(node.stated for node in members),
            holds_until=until if until > end else None,
            space=members[0].space,
        )

    def _dissolve(self, group: Group) -> list[SearchNode]:
        """Search the members of a group again in its place."""
        if group.id in self._nodes.row_of:
            self._nodes.remove(group.id)
        facts = [self._facts[member] for member in group.members]
        nodes = [self._node_of(fact) for fact in facts]
        for node, fact in zip(nodes, facts, strict=True):
            self._nodes.bring_back(node, self._marks_of(node, fact.labels))
        return nodes
