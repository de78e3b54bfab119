"""Time in a question that is asked of a Memory: what it asks for, and which facts tell it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace

from anyio import to_thread

from daemon.asking.answer_types import TimeShown
from daemon.asking.reference_dates import ReferenceDate
from daemon.asking.showing import Member
from daemon.reading.time_questions.reader import load_dates, read_time_question
from events.memory import FactId
from events.time import to_iso
from projections.memory import Memory
from projections.recall.answering import RecallRequest
from projections.recall.asked_states import choose_states, find_states
from projections.recall.temporal import find_anchor
from projections.recall.time_question import TimeQuestion


@dataclass(frozen=True, slots=True)
class TimeAsked:
    """What a question asks of time in a Memory; `told` are the facts that tell it, the best first."""

    question: TimeQuestion
    told: tuple[FactId, ...]
    groups: frozenset[bytes]
    nodes: tuple[tuple[bytes, ...], ...]

    def put_in(self, request: RecallRequest, *, all_members: bool) -> RecallRequest:
        """The request with that; groups that hold some of the facts are shown by these, or by `all_members`."""
        opens = request.opens
        return replace(
            request,
            time=self.question,
            told_by=self.nodes,
            told=frozenset() if all_members else frozenset(self.told),
            opens=lambda group: group in self.groups or opens(group),
        )

    def show(self) -> TimeShown:
        """What was read, without the question's words."""
        asked, span = self.question, self.question.span
        start = None if span is None or span.start is None else to_iso(span.start)
        end = None if span is None or span.end is None else to_iso(span.end)
        return TimeShown(
            kind=asked.kind,
            start=start,
            end=end,
            anchor=asked.anchor is not None,
            order=asked.order,
            state=asked.attribute,
            told=len(self.told),
        )


async def make_ready() -> None:
    """Have the rules compiled that read time in questions, off the loop; only a process's first question waits."""
    if not load_dates.cache_info().currsize:
        await to_thread.run_sync(load_dates)


def find_time(memory: Memory, question: str, reference: ReferenceDate) -> TimeAsked | None:
    """What a question asks of time, and who tells it; None when it asks of none."""
    asked = read_time_question(question, reference.at, reference.zone)
    if asked is None:
        return None
    told = _find_told(memory, question, asked)
    groups = frozenset(memory.units.group_of[fact] for fact in told if fact in memory.units.group_of)
    return TimeAsked(asked, told, groups, tuple(_nodes_of(memory, fact) for fact in told))


def first_members(
    members: Mapping[bytes, tuple[Member, ...]], told: Iterable[FactId]
) -> dict[bytes, tuple[Member, ...]]:
    """The facts inside opened groups, those that tell what is asked for first, the best of them before others."""
    place = {fact: at for at, fact in enumerate(told)}
    if not place:
        return dict(members)
    return {
        group: tuple(
            replace(member, nearness=1.0) if member.id in place else member
            for member in sorted(listed, key=lambda member: place.get(member.id, len(place)))
        )
        for group, listed in members.items()
    }


def _find_told(memory: Memory, question: str, asked: TimeQuestion) -> tuple[FactId, ...]:
    validity, canon = memory.placement.validity, memory.canon
    states = find_states(validity, memory.scopes, question, asked, memory.user)
    if states is None:
        return ()
    anchor = None
    if asked.anchor is not None and asked.span is None:
        anchor = find_anchor(memory.nodes, memory.nodes.live_rows(memory.hidden), asked.anchor)
    return tuple(
        choose_states(states, anchor, lambda fact: fact in canon.facts and memory.shows(canon.facts[fact]))
    )


def _nodes_of(memory: Memory, fact: FactId) -> tuple[bytes, ...]:
    """What is searched of a fact: itself; of one in a group what was said, and then the group."""
    group = memory.units.group_of.get(fact)
    if group is None:
        return (fact,)
    return (*sorted(memory.transcript.chunks_of(memory.canon.facts[fact].turns)), group)
