"""Fusing: one text for the nodes of a group, and the event that puts it in their place."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from daemon.building.live_nodes import LiveNode
from daemon.building.work import Means, Origin, WordsGone, check_text, hash_request, key_of_parking, name_ref
from daemon.texts import read_texts
from events.codec import Event
from events.envelope import NewEvent, Reference, identify
from events.memory import FactId, NodesMerged, ParkReason, Task, UnitId, UnitsPartitioned, Usage, WorkParked
from events.time import Instant
from projections.eventtree.units import make_group_id
from projections.memory import Memory
from projections.ports import MemberText
from projections.texts import events_behind


@dataclass(frozen=True, slots=True)
class Merge:
    """Write one text that stands for the nodes of a planned group."""

    origin: Origin
    nodes: tuple[LiveNode, ...]
    unit: UnitId
    lineage: tuple[Reference, ...]
    happened_at: Instant

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
        """The texts that are fused, in order."""
        return (name_ref(node.ref) for node in self.nodes)

    async def ask(self, means: Means) -> NewEvent:
        """The group as an event. Whether it may be recorded is decided on the facts of then, by `decide`."""
        refs = [node.ref for node in self.nodes]
        members: list[MemberText] = []
        for text, node in zip(await read_texts(means.log, refs), self.nodes, strict=True):
            if text is None:
                raise WordsGone
            members.append(MemberText(text, node.time_start, node.time_end))
        written = await means.model.merge(members)
        check_text(written.text, written.usage)
        merged = NodesMerged(
            generation=self.origin.generation,
            unit=self.unit,
            members=self.facts,
            sources=tuple(sorted(events_behind(refs))),
            model=means.model.name,
            text=written.text,
            request=hash_request(self, means.model),
            usage=written.usage,
        )
        return self._event(merged, f"merge/{self.request.hex()}")

    def reuse(self, answered: Event) -> NewEvent | None:
        """The same text; nothing was spent on it now."""
        if not isinstance(answered, NodesMerged):
            return None
        merged = replace(
            answered, generation=self.origin.generation, unit=self.unit, members=self.facts, usage=Usage()
        )
        return self._event(merged, f"merge/{self.request.hex()}")

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """Its nodes stay as they are, each for itself."""
        sources = tuple(sorted(events_behind(node.ref for node in self.nodes)))
        event = WorkParked(self.task, self.request, reason, sources, usage=usage)
        return self._event(event, key_of_parking(self.origin, self.request))

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


def plan_merge(memory: Memory, nodes: tuple[LiveNode, ...], unit: UnitId) -> Merge | None:
    """The work of fusing these nodes; None when a fact of theirs is no longer there."""
    facts = [memory.canon.facts.get(fact) for node in nodes for fact in node.members]
    firsts = [fact.first for fact in facts if fact is not None]
    if len(firsts) < len(facts):
        return None
    origin = Origin(memory.user, memory.user_id, memory.user_seq, memory.parameters.generation)
    lineage = tuple(sorted({first.session for first in firsts}))
    return Merge(origin, nodes, unit, lineage, max(first.said_at for first in firsts))


def decide(memory: Memory, event: UnitsPartitioned | NodesMerged) -> NewEvent:
    """An event about facts, with the sessions their words come from as lineage."""
    firsts = [memory.canon.facts[fact].first for fact in event.members]
    basis = memory.user_seq
    what = identify(b"mf.decision", event.unit, *event.members, basis.to_bytes(8, "big")).hex()
    return NewEvent(
        user_id=memory.user_id,
        session_id=None,
        event=event,
        key=f"{event.wire_name}/{what}",
        happened_at=max(first.said_at for first in firsts),
        lineage=tuple(sorted({first.session for first in firsts})),
        basis=basis,
    )
