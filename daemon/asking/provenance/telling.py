"""What `why` found, told: structure from a Memory, words and calls from the log, as far as they may be shown."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, fields

import numpy as np
from numpy.typing import NDArray

from daemon.asking.provenance.decisions_told import Decisions, Joining, explain_joining
from daemon.asking.provenance.memory_lookup import FactFound, Found, JudgedFound
from daemon.asking.provenance.origins import (
    BusMessageShown,
    Call,
    FactBehind,
    FactNamed,
    GroupBehind,
    Joined,
    NodeAbove,
    PolicyInForce,
    ReadingShown,
    StateTold,
    TreeHolding,
    TurnShown,
    VerdictTold,
    Why,
    Writing,
)
from daemon.asking.spent import SpentShown, show_usage
from daemon.asking.words import Numbers, is_gone, source_of, text_of
from daemon.building.compacted import LOSS_UNIT
from daemon.bus.subjects import turn_subject
from daemon.models.background import COSINE_PARTS
from daemon.texts import join_texts
from events.envelope import RecordedEvent
from events.errors import InvalidInput
from events.eventtree import NodesMerged, Policy, PolicyChanged
from events.hindsight import Hindsight
from events.memory import FactCorrected, FactId, FactsExtracted, Pointer
from events.time import to_iso
from projections.facts.canonical import Fact, Occurrence
from projections.texts import TextRef, events_behind, text_of_fact

# How a fact came to be known, by the type of the event that says it.
_HOW = {
    "facts.extracted": "extracted",
    "fact.corrected": "corrected",
    "fact.pinned": "pinned",
    "memory.imported": "imported",
}
# Of a policy, what it keeps in thousandths.
_SHARES = ("ratio", "time_bonus")


@dataclass(frozen=True, slots=True)
class Told:
    """Everything that was read for an answer: events, what was undone of them, decisions, vectors of readings.

    `stream`: where subjects are ours. `near_from`: the cosine from which on two readings may be one.
    """

    recorded: Mapping[int, RecordedEvent]
    hindsight: Hindsight
    decisions: Decisions
    vectors: Mapping[Pointer, NDArray[np.float32]]
    stream: str
    near_from: int | None


class Tale:
    """Events as they may be told now: what was erased is said to be erased."""

    def __init__(self, told: Told) -> None:
        self._told = told

    def tell(self, found: Found, policy: RecordedEvent | None) -> Why:
        """The whole answer; `policy` is the user's when the group was made."""
        words, text = self.text(found.refs)
        written = None if found.written is None else self._writing(found.written, trajectory=found.trajectory)
        return Why(
            id=found.id.hex(),
            kind=found.kind,
            words=words,
            text=text,
            written=written,
            scopes=list(found.scopes),
            facts=[self._fact(fact) for fact in found.facts],
            turns=[self._turn(seq) for seq in found.turns],
            left_off=found.left_off,
            next=found.next,
            user_seq=found.user_seq,
            group=self._group(found, policy),
            trees=[
                TreeHolding(
                    id=tree.id,
                    kind=tree.kind,
                    scope=tree.scope,
                    leaves=tree.leaves,
                    way=[
                        NodeAbove(
                            id=step.node.digest.hex(),
                            level=step.node.level,
                            state=step.state,
                            leaves=step.node.size,
                            time_start=to_iso(step.node.time_start),
                            time_end=to_iso(step.node.time_end),
                            written=None if step.written is None else self._writing(step.written),
                        )
                        for step in tree.way
                    ],
                )
                for tree in found.trees
            ],
            trees_left_off=found.trees_left_off,
            redacted=sum(self._is_gone(seq) for seq in found.seqs()),
        )

    def text(self, refs: tuple[TextRef, ...]) -> tuple[str, str | None]:
        """Whether the words of these texts are kept, and the texts."""
        if not refs:
            return "none", None
        if any(self._is_gone(seq) for seq in events_behind(refs)):
            return "erased", None
        return "kept", join_texts(refs, self._told.recorded)

    def _writing(self, seq: int, *, trajectory: bool = False) -> Writing:
        """Who wrote a group or summary, and when."""
        recorded = self._told.recorded[seq]
        event = recorded.event
        merged = event if isinstance(event, NodesMerged) else None
        call = self._call(recorded)
        return Writing(
            model=call.model,
            user_seq=call.user_seq,
            at=call.at,
            request=call.request,
            spent=call.spent,
            extractive=merged is not None and merged.extractive,
            loss_bound=None if merged is None else merged.loss / LOSS_UNIT,
            trajectory=trajectory,
            prompt=call.prompt,
        )

    def _group(self, found: Found, policy: RecordedEvent | None) -> GroupBehind | None:
        group = found.group
        if group is None:
            return None
        return GroupBehind(
            id=group.id.hex(),
            unit=group.unit.hex(),
            members=len(group.members),
            written=self._writing(group.seq, trajectory=found.trajectory),
            policy=None if policy is None else _show_policy(policy),
        )

    def _fact(self, found: FactFound) -> FactBehind:
        """A fact with its readings, what it is a state of, and what a model said of it."""
        fact, first = found.fact, found.fact.first
        group = found.standing.group
        words, text = self._read(first.pointer)
        return FactBehind(
            id=fact.id.hex(),
            words=words,
            text=text,
            said_at=to_iso(first.said_at),
            time_start=to_iso(first.time_start),
            time_end=to_iso(first.time_end),
            pinned=fact.pinned,
            group=None if group is None else group.hex(),
            readings=[self._reading(found, occurrence) for occurrence in found.readings],
            left_off=found.left_off,
            state=self._state(found),
            judged=[self._judged(each, found.others) for each in found.judged],
        )

    def _turn(self, seq: int) -> TurnShown:
        """A turn, or what was imported, and where it stood on the bus."""
        turn = self._told.recorded[seq]
        event = None if self._is_gone(seq) else turn.event
        return TurnShown(
            user_seq=turn.user_seq,
            session_id=None if event is None else turn.session_id,
            turn_id=None if event is None else source_of(turn).turn_id,
            said_at=to_iso(turn.happened_at),
            words="erased" if event is None else "kept",
            text=None if event is None else text_of(event),
            bus=self._place_on_bus(turn, is_gone=event is None),
        )

    def _place_on_bus(self, turn: RecordedEvent, *, is_gone: bool) -> BusMessageShown | None:
        if turn.bus_stream is None or turn.bus_seq is None:
            return None
        subject = None
        if not is_gone and turn.bus_stream == self._told.stream and turn.user_id and turn.session_id:
            with suppress(InvalidInput):  # an id that no token carries came otherwise
                subject = turn_subject(turn.user_id, turn.session_id)
        return BusMessageShown(turn.bus_stream, turn.bus_seq, subject)

    def _reading(self, found: FactFound, occurrence: Occurrence) -> ReadingShown:
        recorded = self._told.recorded[occurrence.pointer.seq]
        event = None if self._is_gone(recorded.seq) else recorded.event
        words, text = self._read(occurrence.pointer)
        call = self._call(recorded) if isinstance(event, FactsExtracted) else None
        corrected = event if isinstance(event, FactCorrected) else None
        return ReadingShown(
            how=_HOW.get(recorded.type, recorded.type),
            model=None if call is None else call.model,
            user_seq=recorded.user_seq,
            at=to_iso(recorded.recorded_at),
            words=words,
            text=text,
            turns=[self._turn(seq) for seq in occurrence.turns],
            request=_hex(getattr(recorded.event, "request", b"")),
            spent=_spent(recorded),
            prompt=None if call is None else call.prompt,
            chunk=event.chunk.hex() if isinstance(event, FactsExtracted) else None,
            joined=self._joined(found, occurrence, recorded),
            replaces=None if corrected is None else corrected.fact.hex(),
            was=None if corrected is None else corrected.was.text,
        )

    def _joined(self, found: FactFound, occurrence: Occurrence, reading: RecordedEvent) -> Joined | None:
        told = self._told
        joining = explain_joining(found.fact, occurrence, reading, told.decisions, found.verdicts)
        if joining is None:
            return None
        like, cosine = self._nearest(found.fact, occurrence, joining)
        compared = joining.rule in ("near", "judged", "bridge") and told.near_from is not None
        return Joined(
            rule=joining.rule,
            user_seq=None if joining.event is None else joining.event.user_seq,
            at=None if joining.event is None else to_iso(joining.event.recorded_at),
            like=None if like is None or like.seq not in told.recorded else told.recorded[like.seq].user_seq,
            cosine=cosine,
            threshold=told.near_from / COSINE_PARTS if compared and told.near_from is not None else None,
            took_up=_hex(joining.took_up),
            call=None if joining.judged is None else self._call(joining.judged),
        )

    def _nearest(
        self, fact: Fact, occurrence: Occurrence, joining: Joining
    ) -> tuple[Pointer | None, float | None]:
        """The reading that one is most like, and how near they are where both vectors are at hand."""
        vectors, pointer = self._told.vectors, occurrence.pointer
        own = vectors.get(pointer)
        if joining.rule in ("founded", "same") or own is None:
            return joining.like, None
        known = [each.pointer for each in fact.occurrences if each.pointer in vectors and each.pointer != pointer]
        known = [joining.like] if joining.like in known else known
        cosines = [(round(float(np.dot(own, vectors[each])), 5), each) for each in known if each is not None]
        if not cosines:
            return joining.like, None
        cosine, like = max(cosines, key=lambda each: (each[0], [-part for part in each[1]]))
        return like, cosine

    def _state(self, found: FactFound) -> StateTold | None:
        standing, ended = found.standing, found.ended
        if standing.state is None:
            return None
        event = self._told.decisions.ended.get(found.fact.id) if ended is not None else None
        return StateTold(
            entity=standing.state.entity,
            attribute=standing.state.attribute,
            valid_from=to_iso(found.fact.first.time_start),
            valid_until=None if standing.valid_until is None else to_iso(standing.valid_until),
            predecessor=self._named(standing.predecessor, found.others),
            successor=self._named(standing.successor, found.others),
            ended_by=None if ended is None else self._named(ended.by, found.others),
            user_seq=None if event is None else event.user_seq,
            at=None if event is None else to_iso(event.recorded_at),
        )

    def _judged(self, judged: JudgedFound, others: Mapping[FactId, Fact]) -> VerdictTold:
        event = self._told.decisions.judged.get(judged.pair)
        return VerdictTold(
            verdict=judged.verdict.value,
            later=judged.later,
            other=self._named(judged.other, others),
            call=None if event is None else self._call(event),
        )

    def _named(self, fact: FactId | None, others: Mapping[FactId, Fact]) -> FactNamed | None:
        if fact is None or fact not in others:
            return None
        return FactNamed(fact.hex(), *self._read(others[fact].first.pointer))

    def _read(self, pointer: Pointer) -> tuple[str, str | None]:
        """Whether the words of a reading are kept, and its text."""
        if self._is_gone(pointer.seq):
            return "erased", None
        return "kept", text_of_fact(self._told.recorded[pointer.seq].event, pointer.n)

    def _call(self, recorded: RecordedEvent) -> Call:
        gone = is_gone(recorded, self._told.hindsight)
        return Call(
            model=None if gone else getattr(recorded.event, "model", None),
            user_seq=recorded.user_seq,
            at=to_iso(recorded.recorded_at),
            request=_hex(getattr(recorded.event, "request", b"")),
            spent=_spent(recorded),
            prompt=_hex(getattr(recorded.event, "prompt", b"")),
        )

    def _is_gone(self, seq: int) -> bool:
        return is_gone(self._told.recorded[seq], self._told.hindsight)


def has_standing(recorded: Iterable[RecordedEvent], hindsight: Hindsight, then: Hindsight) -> list[RecordedEvent]:
    """Those decisions that are neither forgotten by now nor were out of force then."""
    return [each for each in recorded if each.seq not in then.voids and not is_gone(each, hindsight)]


def _show_policy(recorded: RecordedEvent) -> PolicyInForce | None:
    if not isinstance(recorded.event, PolicyChanged):
        return None
    policy, values = recorded.event.policy, Numbers()
    for each in fields(Policy):
        value = getattr(policy, each.name)
        if isinstance(value, tuple):
            values[each.name] = ", ".join(value)
        elif value is not None:
            values[each.name] = value / 1000 if each.name in _SHARES else value
    return PolicyInForce(recorded.user_seq, values) if values else None


def _hex(id_: bytes | None) -> str | None:
    return id_.hex() if id_ else None


def _spent(recorded: RecordedEvent) -> SpentShown | None:
    usage = getattr(recorded.event, "usage", None)
    return show_usage(usage) if usage is not None and usage.calls else None
