"""Summaries of tree nodes whose children have their texts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

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
from daemon.scene_names import find_labels
from daemon.texts import join_texts, read_behind
from events.codec import Event
from events.envelope import NewEvent
from events.memory import IntervalSummarised, ParkReason, Task, Usage, WorkParked
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.dirty import Bare
from projections.memtree.forest import SummaryWork, leaves_below
from projections.memtree.items import Node
from projections.ports import IntervalText, MemberText
from projections.texts import events_behind


@dataclass(frozen=True, slots=True)
class Summary:
    """Summarise one tree node."""

    origin: Origin
    node: SummaryWork
    scope_name: str

    task = Task.SUMMARISE

    @property
    def request(self) -> bytes:
        """The node's digest: the same children, the same summary."""
        return self.node.digest

    def inputs(self) -> Iterable[bytes]:
        """The node and its children's texts. Not the scope: a summary is of a digest, wherever that stands."""
        yield self.node.digest
        for child in self.node.children:
            yield b"".join(name_ref(ref) for ref in child.refs)

    async def ask(self, means: Means) -> NewEvent:
        """The summary of the node as an event."""
        refs = [ref for child in self.node.children for ref in child.refs]
        recorded = await read_behind(means.log, refs)
        children: list[MemberText] = []
        for child in self.node.children:
            text = join_texts(child.refs, recorded)
            if text is None:
                raise WordsGone
            children.append(MemberText(text, child.time_start, child.time_end))
        written = await means.model.summarise(IntervalText(self.scope_name, tuple(children)))
        check_text(written.text, written.usage)
        event = IntervalSummarised(
            generation=self.origin.generation,
            digest=self.node.digest,
            sources=tuple(sorted(recorded)),
            model=means.model.name,
            text=written.text,
            request=hash_request(self, means.model),
            prompt=hash_prompt(self, means.model),
            usage=written.usage,
        )
        return self._answer(event)

    def reuse(self, answered: Event) -> NewEvent | None:
        """The same text; nothing was spent on it now."""
        if not isinstance(answered, IntervalSummarised):
            return None
        return self._answer(replace(answered, generation=self.origin.generation, usage=Usage()))

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """The node goes without a summary; its parent waits with it."""
        sources = tuple(sorted(events_behind(ref for child in self.node.children for ref in child.refs)))
        event = WorkParked(self.task, self.request, reason, sources, usage=usage)
        return self._event(event, key_of_parking(self.origin, self.request))

    def _answer(self, event: IntervalSummarised) -> NewEvent:
        return self._event(event, f"summary/{self.origin.generation}/{self.request.hex()}")

    def _event(self, event: IntervalSummarised | WorkParked, key: str) -> NewEvent:
        return NewEvent(
            user_id=self.origin.user_id,
            session_id=None,
            event=event,
            key=key,
            happened_at=max(child.time_end for child in self.node.children),
            lineage=tuple(sorted(self.node.lineage)),
            basis=self.origin.basis,
        )


def plan_summaries(memory: Memory, origin: Origin, is_wanted: Callable[[Bare], bool]) -> Iterator[Summary]:
    """The wanted ones of the nodes that can be summarised now, the longest way to a root first."""
    for node in memory.forest.plan_summaries(is_wanted):
        yield Summary(origin, node, _call_for_models(memory, node.scope, node.node))


def _call_for_models(memory: Memory, scope: Scope, node: Node) -> str:
    """What a tree is about. Ids are no model's business: a session's may name people who are not spoken of.

    Of a scene what the node itself names: the label of another member may be forgotten while this is asked.
    """
    match scope.kind:
        case ScopeKind.SESSION:
            return "a conversation"
        case ScopeKind.SCENE:
            below = {leaf.key for leaf in leaves_below(node)}
            facts = memory.canon.facts
            told = [fact for fact in memory.members.get(scope, ()) if facts[fact].first.leaf_key in below]
            return ", ".join(find_labels(memory, sorted(told))) or "a subject"
        case ScopeKind.ENTITY | ScopeKind.USER:
            return scope.name or "a person"
