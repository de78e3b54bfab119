"""An answer put together from what recall found and the events that hold its words. Nothing here waits."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from daemon.asking.answer_types import (
    Answer,
    Browsed,
    Explanation,
    MemberShown,
    MemoryShown,
    ParametersShown,
    PartShown,
    Source,
    TimeShown,
    Watermark,
)
from daemon.asking.contexts import Piece, context_line, fit_pieces
from daemon.asking.explanations import show_explanation
from daemon.asking.passing import Passing
from daemon.asking.query_params import Asked
from daemon.asking.spaces import SpaceFound
from daemon.offline.joining import join_members
from daemon.texts import join_texts
from events.envelope import RecordedEvent
from events.memory import FactId
from events.session import MemoryImported, Part, TurnRecorded, TurnRevised
from events.time import Instant, to_iso
from projections.facts.canonical import Fact
from projections.memory import Memory
from projections.ports import MemberText
from projections.recall.confidence import Confidence
from projections.recall.explaining import Explained
from projections.recall.opening import Inside
from projections.recall.selecting import Recalled
from projections.texts import FactText, TextRef, compose, events_behind

# How much a member's own nearness counts beside its group's score. By words LoCoMo's turns at a cut of 70 % keep
# 107 % of the evidence with .4 and 95 % with 1, where MiniLM ranks 101 and 87 %; by cosine it is 102 % for both.
NEARNESS_WEIGHT: Final = 0.4
# The place of a memory's own text among its pieces.
WHOLE: Final = -1


@dataclass(frozen=True, slots=True)
class Member:
    """A fact inside a group: where its text stands, what time it is about, and when it ended, if it is a state.

    `nearness` to the question is from 0 to 1, that of the nearest member.
    """

    id: bytes
    ref: FactText
    turns: tuple[int, ...]
    said_at: Instant
    time_start: Instant
    time_end: Instant
    until: Instant | None
    nearness: float

    @classmethod
    def of_fact(cls, fact: Fact, until: Instant | None, nearness: float = 0.0) -> Member:
        """A fact as it is now."""
        first = fact.first
        return cls(
            id=fact.id,
            ref=FactText(first.pointer),
            turns=fact.turns,
            said_at=first.said_at,
            time_start=first.time_start,
            time_end=first.time_end,
            until=until,
            nearness=nearness,
        )


@dataclass(frozen=True, slots=True)
class Found:
    """What recall found, without words; `members` of the groups that are to be opened, by the group's id.

    `by_members`: those of which no text but their members' is shown. `ended`: when states among the memories
    ended, by their ids. `ended_inside`: such states in chunks, for who writes an answer.
    """

    asked: Asked
    memories: list[Recalled]
    confidence: Confidence
    members: Mapping[bytes, tuple[Member, ...]]
    by_members: frozenset[bytes]
    ended: Mapping[bytes, Instant]
    explained: Explained | None
    parameters: ParametersShown
    spaces: tuple[SpaceFound, ...] = ()
    ended_inside: Mapping[bytes, tuple[Member, ...]] = field(default_factory=dict[bytes, tuple[Member, ...]])
    # Of memories whose text is several put together, these, by the memory's id; and how trees were gone down.
    together: Mapping[bytes, tuple[TextRef, ...]] = field(default_factory=dict[bytes, tuple[TextRef, ...]])
    browsed: Browsed | None = None
    # What the question asks of time, and the facts that tell it.
    time: TimeShown | None = None
    told: tuple[FactId, ...] = ()

    @property
    def seqs(self) -> set[int]:
        """The events that hold the texts and the sources."""
        refs: list[TextRef] = [memory.node.ref for memory in self.memories]
        for inside in (self.members, self.ended_inside):
            refs += [member.ref for members in inside.values() for member in members]
        if self.explained is not None:
            refs += [candidate.node.ref for candidate in self.explained.candidates]
        refs += [ref for texts in self.together.values() for ref in texts]
        firsts = {each.space.first for each in self.spaces if each.space is not None}
        return firsts | events_behind(refs) | {seq for memory in self.memories for seq in memory.node.turns}


def find_members(passing: Passing, inside: Mapping[bytes, tuple[Inside, ...]]) -> dict[bytes, tuple[Member, ...]]:
    """The facts inside groups that are opened, as they stand, in the order of their nearness."""
    return {group: tuple(_member(passing, each) for each in members) for group, members in inside.items()}


def nearest_first(members: Iterable[Member], near: Mapping[FactId, float]) -> tuple[Member, ...]:
    """The same members by their cosine with the question; those without one behind, in their own order."""
    best = max([*near.values(), 0.0])
    shares = {fact: max(0.0, cosine) / best if best else 1.0 for fact, cosine in near.items()}
    placed = [replace(member, nearness=shares.get(member.id, 0.0)) for member in members]
    return tuple(sorted(placed, key=lambda member: near.get(member.id, -1.0), reverse=True))


def find_ended(memory: Memory, recalled: Iterable[Recalled]) -> dict[bytes, Instant]:
    """When the states among these memories ended, but for those that hold still; of a group of such the last."""
    groups, until = memory.units.groups, memory.placement.validity.until
    ended: dict[bytes, Instant] = {}
    for each in recalled:
        group = groups.get(each.node.id)
        ends = [until(fact) for fact in ((each.node.id,) if group is None else group.members)]
        if None not in ends:
            ended[each.node.id] = max(end for end in ends if end is not None)
    return ended


def make_answer(
    found: Found,
    recorded: Mapping[int, RecordedEvent],
    watermark: Watermark,
    timings_ms: dict[str, float],
    redacted: int | None = None,
) -> Answer:
    """`recorded` holds the events of `found.seqs`; what was erased between ranking and reading is left out."""
    passages = _choose(list(_read(found, recorded)), found.asked.params.max_tokens)
    memories = [_show_memory(each, recorded, found.ended.get(each.recalled.node.id)) for each in passages]
    in_time = sorted((line for each in passages for line in each.lines()), key=lambda line: line[0])
    explanation: Explanation | None = None
    if found.explained is not None:
        shown = {memory.id for memory in memories}
        explanation = show_explanation(found.explained, found.parameters, recorded, shown, timings_ms)
        explanation = replace(explanation, browsed=found.browsed, time=found.time)
    return Answer(
        mode=found.asked.mode,
        why_mode=found.asked.why_mode,
        memories=memories,
        context="\n".join(line for _, line in in_time),
        watermark=watermark,
        confidence=found.confidence.value,
        insufficient=found.confidence.insufficient,
        redacted=redacted,
        explanation=explanation,
    )


@dataclass(frozen=True, slots=True)
class _Passage:
    """A memory of an answer with its words; without a `text` it is what its members say, the nearest first.

    `members` is None for what is not opened.
    """

    recalled: Recalled
    text: str | None
    members: tuple[tuple[Member, str], ...] | None

    def lines(self) -> list[tuple[Instant, str]]:
        """The same in a context: what stands together, and the time it belongs to."""
        members = self.members or ()
        if self.text is None:
            return [(member.said_at, context_line(member.said_at, text)) for member, text in members]
        said_at = self.recalled.node.said_at
        lines = [context_line(said_at, self.text)]
        lines += [f"- {context_line(member.said_at, text)}" for member, text in members]
        return [(said_at, "\n".join(lines))]

    def in_time(self) -> list[tuple[Member, str]]:
        """Its members in the order of time."""
        return sorted(self.members or (), key=lambda each: (each[0].time_start, each[0].said_at))


def _read(found: Found, recorded: Mapping[int, RecordedEvent]) -> Iterator[_Passage]:
    for each in found.memories:
        text = join_texts(found.together.get(each.node.id, (each.node.ref,)), recorded)
        if text is None:
            continue
        opened = each.node.id in found.members
        texts = [(member, compose(member.ref, recorded)) for member in found.members.get(each.node.id, ())]
        members = tuple((member, inside) for member, inside in texts if inside is not None)
        by_members = each.node.id in found.by_members
        if by_members and not members:
            continue
        yield _Passage(each, None if by_members else text, members if opened else None)


def _choose(passages: list[_Passage], tokens_max: int | None) -> list[_Passage]:
    """What fits: the memories by rank, each with the members that are worth more than what comes behind it.

    A member is worth its group's score less up to `NEARNESS_WEIGHT` of it, the farther it is behind the nearest
    one: so a group of which one member is of use takes no more room than that.
    """
    if tokens_max is None:
        return passages
    pieces: list[Piece[tuple[int, int]]] = []
    worth = math.inf
    for at, passage in enumerate(passages):
        worth = min(worth, passage.recalled.score)  # by rank, also where a person's word stands before its turns
        pieces += _pieces_of(passage, at, worth)
    shown: dict[int, set[int]] = {}
    for at, n in fit_pieces(pieces, tokens_max):
        shown.setdefault(at, set()).add(n)
    return [
        replace(passage, members=_keep(passage.members, shown[at]))
        for at, passage in enumerate(passages)
        if at in shown
    ]


def _pieces_of(passage: _Passage, at: int, worth: float) -> Iterator[Piece[tuple[int, int]]]:
    """The text of a memory, or its members, by their places; what a person had a say in is carried by nothing."""
    node = passage.recalled.node
    if passage.text is not None:
        turns = frozenset(() if node.stated else node.turns)
        yield Piece((at, WHOLE), context_line(node.said_at, passage.text), worth, head=True, turns=turns)
    for n, (member, text) in enumerate(passage.members or ()):
        line = context_line(member.said_at, text)
        if passage.text is not None:
            yield Piece((at, n), f"- {line}", _weigh(worth, member), head=False, behind=(at, WHOLE))
        else:
            turns = frozenset(() if node.stated else member.turns)
            yield Piece((at, n), line, worth if n == 0 else _weigh(worth, member), head=n == 0, turns=turns)


def _weigh(worth: float, member: Member) -> float:
    return worth * (1 - NEARNESS_WEIGHT * (1 - member.nearness))


def _keep(
    members: tuple[tuple[Member, str], ...] | None, places: set[int]
) -> tuple[tuple[Member, str], ...] | None:
    return members and tuple(each for n, each in enumerate(members) if n in places)


def _show_memory(passage: _Passage, recorded: Mapping[int, RecordedEvent], ended: Instant | None) -> MemoryShown:
    """A memory as an answer shows it; what is shown by its members has their sources, sessions and times."""
    node, text = passage.recalled.node, passage.text
    seqs, said_at, start, end = node.turns, node.said_at, node.time_start, node.time_end
    if text is None:
        inside = [member for member, _ in passage.in_time()]
        text = join_members(
            [MemberText(text, each.time_start, each.time_end, each.until) for each, text in passage.in_time()]
        )
        seqs = tuple(sorted({seq for each in inside for seq in each.turns}))
        said_at = max(each.said_at for each in inside)
        start, end = min(each.time_start for each in inside), max(each.time_end for each in inside)
        ends = [each.until for each in inside if each.until is not None]
        ended = max(ends) if len(ends) == len(inside) else None
    turns = [recorded[seq] for seq in seqs if recorded[seq].event is not None]
    return MemoryShown(
        id=node.id.hex(),
        kind=node.kind,
        text=text,
        said_at=to_iso(said_at),
        time_start=to_iso(start),
        time_end=to_iso(end),
        score=passage.recalled.score,
        similarity=passage.recalled.similarity,
        propagation=passage.recalled.propagation,
        sessions=sorted({turn.session_id for turn in turns if turn.session_id is not None}),
        sources=_sources(turns),
        parts=[PartShown(part.kind, part.reference, part.caption) for part in _parts(turns)],
        members=None if passage.members is None else [_show_member(*each) for each in passage.members],
        valid_until=None if ended is None else to_iso(ended),
    )


def _sources(turns: Sequence[RecordedEvent]) -> list[Source]:
    return [
        Source(turn.session_id, turn.event.turn_id)
        for turn in turns
        if isinstance(turn.event, TurnRecorded | TurnRevised | MemoryImported)
    ]


def _parts(turns: Sequence[RecordedEvent]) -> list[Part]:
    return [
        part for turn in turns if isinstance(turn.event, TurnRecorded | TurnRevised) for part in turn.event.parts
    ]


def _show_member(member: Member, text: str) -> MemberShown:
    until = None if member.until is None else to_iso(member.until)
    return MemberShown(member.id.hex(), text, to_iso(member.said_at), until)


def _member(passing: Passing, inside: Inside) -> Member:
    """A member as the fold has it now, as far as it passes."""
    memory = passing.memory
    fact = passing.fact(memory.canon.facts[inside.node.id])
    return Member.of_fact(fact, memory.placement.validity.until(fact.id), inside.nearness)
