"""Fusing: one text for the nodes of a group, and the event that puts it in their place.

A model's text is taken when it keeps what its members say, and makes nothing up. When it does not, even after it
was told what is wrong, the members' own texts stand one below the other.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from daemon.building.live_nodes import LiveNode
from daemon.building.work import (
    Means,
    Origin,
    WordsGone,
    check_text,
    hash_prompt,
    hash_request,
    key_of_parking,
    name_ref,
)
from daemon.offline.joining import join_members
from daemon.texts import read_texts
from events.codec import Event
from events.envelope import NewEvent, Reference, identify
from events.eventtree import NodesMerged, UnitId
from events.memory import FactId, ParkReason, Task, Usage, WorkParked
from events.time import Instant
from projections.eventtree.units import make_group_id
from projections.memory import Memory
from projections.ports import AnswerUnusable, MemberText, TextWritten
from projections.texts import TextRef, events_behind


@dataclass(frozen=True, slots=True)
class Merge:
    """Write one text that stands for the nodes of a planned group.

    `loss` is what the group costs a query at most, in hundred-thousandths (Eq. 15). `ends`: seqs of the events
    that tell when its states ended, which its text says, too; whoever edits those takes the text along.
    """

    origin: Origin
    nodes: tuple[LiveNode, ...]
    unit: UnitId
    lineage: tuple[Reference, ...]
    happened_at: Instant
    loss: int = 0
    ends: tuple[int, ...] = ()

    task = Task.MERGE

    @property
    def facts(self) -> tuple[FactId, ...]:
        """The facts of all its nodes, in time order."""
        return tuple(fact for node in self.nodes for fact in node.members)

    @property
    def request(self) -> bytes:
        """The id of the group that it is to make: the same facts, the same text."""
        return make_group_id(self.facts)

    def inputs(self) -> Iterable[bytes]:
        """The texts that are fused, in order; of states that ended with when, since the text says so."""
        for node in self.nodes:
            yield name_ref(node.ref)
            if node.until is not None:
                yield b"until %d" % node.until

    async def ask(self, means: Means) -> NewEvent:
        """The group as an event. Whether it may be recorded is decided on the facts of then, by `decide`."""
        refs: list[TextRef] = [node.ref for node in self.nodes]
        spans = [(node.time_start, node.time_end, node.until) for node in self.nodes]
        members = await _read_members(means, refs, spans)
        try:
            written = await means.model.merge(members)
            check_text(written.text, written.usage)
        except AnswerUnusable as error:
            refs = [ref for node in self.nodes for ref in node.member_refs]
            spans = [(start, start, node.until) for node in self.nodes for start in node.member_starts]
            joined = join_members(await _read_members(means, refs, spans))
            written = TextWritten(joined, error.usage, extractive=True)
        merged = NodesMerged(
            generation=self.origin.generation,
            unit=self.unit,
            members=self.facts,
            sources=self._sources(refs),
            model=means.model.name,
            text=written.text,
            request=hash_request(self, means.model),
            prompt=hash_prompt(self, means.model),
            usage=written.usage,
            loss=self.loss,
            extractive=written.extractive,
        )
        return self._event(merged, f"merge/{self.request.hex()}")

    def reuse(self, answered: Event) -> NewEvent | None:
        """The same text, extractive or not; nothing was spent on it now."""
        if not isinstance(answered, NodesMerged):
            return None
        merged = replace(
            answered,
            generation=self.origin.generation,
            unit=self.unit,
            members=self.facts,
            sources=tuple(sorted({*answered.sources, *self.ends})),
            usage=Usage(),
            loss=self.loss,
        )
        return self._event(merged, f"merge/{self.request.hex()}")

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """Its nodes stay as they are, each for itself."""
        sources = self._sources(node.ref for node in self.nodes)
        event = WorkParked(self.task, self.request, reason, sources, usage=usage)
        return self._event(event, key_of_parking(self.origin, self.request))

    def _sources(self, refs: Iterable[TextRef]) -> tuple[int, ...]:
        return tuple(sorted({*events_behind(refs), *self.ends}))

    def _event(self, event: NodesMerged | WorkParked, key: str) -> NewEvent:
        return NewEvent(
            user_id=self.origin.user_id,
            session_id=None,
            event=event,
            key=key,
            happened_at=self.happened_at,
            lineage=self.lineage,
            basis=self.origin.basis,
        )


def plan_merge(memory: Memory, nodes: tuple[LiveNode, ...], unit: UnitId, loss: int = 0) -> Merge | None:
    """The work of fusing these nodes; None when a fact of theirs is no longer there.

    `loss`: the terms of Eq. 15 of the merges in it, summed, in hundred-thousandths.
    """
    members = tuple(fact for node in nodes for fact in node.members)
    if any(fact not in memory.canon.facts for fact in members):
        return None
    origin = Origin(memory.user, memory.user_id, memory.user_seq, memory.parameters.generation)
    lineage, said_at = _lineage_of(memory, members), _said_at(memory, members)
    return Merge(origin, nodes, unit, lineage, said_at, loss, _ends_of(memory, members))


def plan_trajectory(memory: Memory, states: tuple[LiveNode, ...]) -> Merge | None:
    """The work of fusing states that ended (`live_nodes.due_trajectories`): a unit by themselves, at no loss.

    Where somebody lived before is near to where they lived then, and a question for either finds both.
    """
    return plan_merge(memory, states, states[0].id)


def decide(memory: Memory, event: NodesMerged) -> NewEvent:
    """A merge, with the sessions its words come from as lineage."""
    basis = memory.user_seq
    what = identify(b"mf.decision", event.unit, *event.members, basis.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=event,
        key=f"{event.wire_name}/{what}",
        happened_at=_said_at(memory, event.members),
        lineage=_lineage_of(memory, event.members),
        basis=basis,
    )


def _lineage_of(memory: Memory, members: Iterable[FactId]) -> tuple[Reference, ...]:
    """Where the members were first read; of states that ended all that this rests on, as its own event has it.

    Whoever forgets the session that tells of the next home takes back that the last one was left, and when.
    """
    facts, superseded = memory.canon.facts, memory.placement.validity.superseded
    lineage: set[Reference] = set()
    for member in members:
        lineage.add(facts[member].first.session)
        ended = superseded.get(member)
        if ended is not None:
            lineage |= facts[member].sessions
            if ended.by in facts:
                lineage |= facts[ended.by].sessions
    return tuple(sorted(lineage))


def _ends_of(memory: Memory, members: Iterable[FactId]) -> tuple[int, ...]:
    """The events with the states that ended these."""
    facts, superseded = memory.canon.facts, memory.placement.validity.superseded
    ended = (superseded[member].by for member in members if member in superseded)
    return tuple(sorted({facts[by].first.pointer.seq for by in ended if by is not None and by in facts}))


def _said_at(memory: Memory, members: Iterable[FactId]) -> Instant:
    """When the last of them was said (Eq. 8)."""
    return max(memory.canon.facts[member].first.said_at for member in members)


async def _read_members(
    means: Means, refs: Sequence[TextRef], spans: Iterable[tuple[Instant, Instant, Instant | None]]
) -> list[MemberText]:
    """The texts with their times. Raises `WordsGone`."""
    members: list[MemberText] = []
    for text, span in zip(await read_texts(means.log, refs), spans, strict=True):
        if text is None:
            raise WordsGone
        members.append(MemberText(text, *span))
    return members
