"""What was recalled for a question, as it is handed on to a model; and what a model is told beside the texts.

Read while the Memory is there, since it may be another one by the time a model has answered.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from daemon.asking.conflict_search import find_conflicts_among
from daemon.asking.showing import Found, Member
from projections.facts.canonical import Fact
from projections.ports import MemberText
from projections.recall.nodes import NodeKind
from projections.texts import FactText, compose

if TYPE_CHECKING:
    from daemon.asking.answer_types import Answer
    from daemon.asking.query_params import Asked
    from events.envelope import RecordedEvent
    from events.memory import FactId
    from projections.facts.canonical import Occurrence
    from projections.memory import Memory

# States of one chunk that ended: a few turns tell of no more, and a list of homes is no help.
ENDED_MAX: Final = 8


@dataclass(frozen=True, slots=True)
class Told:
    """By the ids of memories: which two contradict each other, and which states that one tells of ended."""

    conflicts: tuple[tuple[str, str], ...] = ()
    ended: Mapping[str, tuple[MemberText, ...]] = field(default_factory=dict[str, tuple[MemberText, ...]])


NOTHING_TOLD: Final = Told()


@dataclass(frozen=True, slots=True)
class Recalled:
    """A question, the events that the words of its memories are in, and how an answer is made of these."""

    asked: Asked
    recorded: Mapping[int, RecordedEvent]
    make: Callable[[Mapping[int, RecordedEvent]], Answer]
    told: Told


def abstain(answer: Answer) -> Answer:
    """The same, where there is nothing to answer from."""
    return replace(answer, citations=[], abstained=True)


def find_ended_inside(memory: Memory, found: Found) -> dict[bytes, tuple[Member, ...]]:
    """The states that ended, by the chunks whose turns tell of them: there they read as if they still held."""
    nodes = (each.node for each in found.memories)
    chunk_of = {turn: node.id for node in nodes if node.kind is NodeKind.CHUNK for turn in node.turns}
    validity, inside = memory.placement.validity, dict[bytes, list[Member]]()
    for _, chain in validity.chains():
        for each in chain:
            until, fact = validity.until(each.fact), memory.canon.facts.get(each.fact)
            if until is None or fact is None or not memory.shows(fact):
                continue
            for chunk, told in _told_in(fact, chunk_of).items():
                inside.setdefault(chunk, []).append(Member.of_fact(Fact(fact.id, told), until))
    return {chunk: tuple(members[:ENDED_MAX]) for chunk, members in inside.items()}


def _told_in(fact: Fact, chunk_of: Mapping[int, bytes]) -> dict[bytes, list[Occurrence]]:
    """Where a fact was told, by chunks: each tells it in its own words."""
    found: dict[bytes, list[Occurrence]] = {}
    for told in fact.occurrences:
        for chunk in {chunk_of[turn] for turn in told.turns if turn in chunk_of}:
            found.setdefault(chunk, []).append(told)
    return found


def tell(memory: Memory, found: Found, recorded: Mapping[int, RecordedEvent]) -> Told:
    """What a model is told of these memories. `recorded` holds the events of `found.seqs`."""
    shown: dict[FactId, bytes] = {}
    texts: dict[FactId, str] = {}
    for node in (each.node for each in found.memories):
        refs = {member.id: member.ref for member in found.members.get(node.id, ())}
        if isinstance(node.ref, FactText):
            refs[node.id] = node.ref
        for fact, ref in refs.items():
            text = compose(ref, recorded)
            if text is not None:
                shown[fact], texts[fact] = node.id, text
    pairs = [(shown[each.one].hex(), shown[each.other].hex()) for each in find_conflicts_among(memory, texts)]
    conflicts = tuple(dict.fromkeys(pair for pair in pairs if pair[0] != pair[1]))
    ended = {
        chunk.hex(): tuple(
            MemberText(text, each.time_start, each.time_end, each.until)
            for each in members
            if (text := compose(each.ref, recorded)) is not None
        )
        for chunk, members in found.ended_inside.items()
    }
    return Told(conflicts, ended)
