"""An answer put together from what recall found and the events that hold its words. Nothing here waits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from daemon.asking.answer_types import (
    Answer,
    Explanation,
    MemberShown,
    MemoryShown,
    ParametersShown,
    PartShown,
    Source,
    Watermark,
)
from daemon.asking.contexts import context_line, fit_tokens
from daemon.asking.explanations import show_explanation
from daemon.asking.query_params import Asked
from events.envelope import RecordedEvent
from events.session import MemoryImported, Part, TurnRecorded, TurnRevised
from events.time import Instant, to_iso
from projections.memory import Memory
from projections.recall.confidence import Confidence
from projections.recall.explaining import Explained
from projections.recall.nodes import NodeKind
from projections.recall.selecting import Recalled
from projections.texts import FactText, TextRef, compose, events_behind


@dataclass(frozen=True, slots=True)
class Member:
    """A fact inside a group: where its text stands, and when it was said."""

    id: bytes
    ref: FactText
    said_at: Instant


@dataclass(frozen=True, slots=True)
class Found:
    """What recall found, without words; `members` of the groups that are to be opened, by the group's id.

    `ended`: when states among the memories ended, by their ids.
    """

    asked: Asked
    memories: list[Recalled]
    confidence: Confidence
    members: Mapping[bytes, tuple[Member, ...]]
    ended: Mapping[bytes, Instant]
    explained: Explained | None
    parameters: ParametersShown

    @property
    def seqs(self) -> set[int]:
        """The events that hold the texts and the sources."""
        refs: list[TextRef] = [memory.node.ref for memory in self.memories]
        refs += [member.ref for members in self.members.values() for member in members]
        if self.explained is not None:
            refs += [candidate.node.ref for candidate in self.explained.candidates]
        return events_behind(refs) | {seq for memory in self.memories for seq in memory.node.turns}


def find_members(memory: Memory, recalled: Iterable[Recalled]) -> dict[bytes, tuple[Member, ...]]:
    """The facts inside the groups among these memories, in time order."""
    found: dict[bytes, tuple[Member, ...]] = {}
    for each in recalled:
        group = memory.units.groups.get(each.node.id) if each.node.kind is NodeKind.GROUP else None
        if group is not None:
            firsts = [(fact, memory.canon.facts[fact].first) for fact in group.members]
            found[group.id] = tuple(Member(fact, FactText(first.pointer), first.said_at) for fact, first in firsts)
    return found


def find_ended(memory: Memory, recalled: Iterable[Recalled]) -> dict[bytes, Instant]:
    """When the states among these memories ended, but for those that hold still."""
    ended = ((each.node.id, memory.placement.validity.until(each.node.id)) for each in recalled)
    return {fact: until for fact, until in ended if until is not None}


def make_answer(
    found: Found,
    recorded: Mapping[int, RecordedEvent],
    watermark: Watermark,
    timings_ms: dict[str, float],
    redacted: int | None = None,
) -> Answer:
    """`recorded` holds the events of `found.seqs`; what was erased between ranking and reading is left out."""
    passages = list(_read(found, recorded))
    if found.asked.params.max_tokens is not None:
        passages = list(fit_tokens(((each, each.context) for each in passages), found.asked.params.max_tokens))
    memories = [each.memory for each in passages]
    in_time = sorted(passages, key=lambda each: each.said_at)
    explanation: Explanation | None = None
    if found.explained is not None:
        shown = {memory.id for memory in memories}
        explanation = show_explanation(found.explained, found.parameters, recorded, shown, timings_ms)
    return Answer(
        memories=memories,
        context="\n".join(each.context for each in in_time),
        watermark=watermark,
        confidence=found.confidence.value,
        insufficient=found.confidence.insufficient,
        redacted=redacted,
        explanation=explanation,
    )


@dataclass(frozen=True, slots=True)
class _Passage:
    """A memory of an answer, and the same in a context."""

    memory: MemoryShown
    said_at: Instant
    context: str


def _read(found: Found, recorded: Mapping[int, RecordedEvent]) -> Iterator[_Passage]:
    for each in found.memories:
        text = compose(each.node.ref, recorded)
        if text is None:
            continue
        texts = [(member, compose(member.ref, recorded)) for member in found.members.get(each.node.id, ())]
        members = [(member, inside) for member, inside in texts if inside is not None]
        lines = [context_line(each.node.said_at, text)]
        lines += [f"- {context_line(member.said_at, inside)}" for member, inside in members]
        opened = each.node.id in found.members
        until = found.ended.get(each.node.id)
        memory = _show_memory(each, text, members if opened else None, recorded, until)
        yield _Passage(memory, each.node.said_at, "\n".join(lines))


def _show_memory(
    recalled: Recalled,
    text: str,
    members: Sequence[tuple[Member, str]] | None,
    recorded: Mapping[int, RecordedEvent],
    until: Instant | None,
) -> MemoryShown:
    node = recalled.node
    turns = [recorded[seq] for seq in node.turns if recorded[seq].event is not None]
    parts: list[Part] = []
    sources: list[Source] = []
    for turn in turns:
        if isinstance(turn.event, TurnRecorded | TurnRevised | MemoryImported):
            sources.append(Source(turn.session_id, turn.event.turn_id))
        if isinstance(turn.event, TurnRecorded | TurnRevised):
            parts.extend(turn.event.parts)
    return MemoryShown(
        id=node.id.hex(),
        kind=node.kind,
        text=text,
        said_at=to_iso(node.said_at),
        time_start=to_iso(node.time_start),
        time_end=to_iso(node.time_end),
        score=recalled.score,
        similarity=recalled.similarity,
        propagation=recalled.propagation,
        sessions=sorted({turn.session_id for turn in turns if turn.session_id is not None}),
        sources=sources,
        parts=[PartShown(part.kind, part.reference, part.caption) for part in parts],
        members=None if members is None else [_show_member(*each) for each in members],
        valid_until=None if until is None else to_iso(until),
    )


def _show_member(member: Member, text: str) -> MemberShown:
    return MemberShown(member.id.hex(), text, to_iso(member.said_at))
