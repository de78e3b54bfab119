"""Where a text stands in the log, and how it is put together from events. Projections keep no texts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from events.envelope import RecordedEvent
from events.errors import LogDamaged
from events.eventtree import NodesMerged
from events.memory import ExtractedFact, FactCorrected, FactPinned, FactsExtracted, IntervalSummarised, Pointer
from events.session import MemoryImported, TurnRecorded, TurnRevised


@dataclass(frozen=True, slots=True)
class TurnsText:
    """The turns at these seqs, verbatim, one `speaker: text` a line."""

    turns: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class FactText:
    """The text of one extracted fact, of one that a person wrote or keeps, or of an imported memory."""

    occurrence: Pointer


@dataclass(frozen=True, slots=True)
class WrittenText:
    """The text of a summary or a merge: what the event at this seq says."""

    seq: int


TextRef: TypeAlias = TurnsText | FactText | WrittenText


def name_text(ref: TextRef) -> bytes:
    """The name of a text for ever: wordings never change, another one has another seq."""
    match ref:
        case FactText(occurrence=pointer):
            return name_fact(*pointer)
        case TurnsText(turns=turns):
            return f"turns,{turns}".encode()
        case WrittenText(seq=seq):
            return b"written,%d" % seq


def name_fact(seq: int, n: int) -> bytes:
    """The name of a fact's text."""
    return b"%d,%d" % (seq, n)


def events_behind(refs: Iterable[TextRef]) -> set[int]:
    """The seqs of the events that hold these texts."""
    seqs: set[int] = set()
    for ref in refs:
        match ref:
            case TurnsText(turns=turns):
                seqs.update(turns)
            case FactText(occurrence=occurrence):
                seqs.add(occurrence.seq)
            case WrittenText(seq=seq):
                seqs.add(seq)
    return seqs


def compose(ref: TextRef, recorded: Mapping[int, RecordedEvent]) -> str | None:
    """The text of a reference; None when its words were erased.

    Raises `LogDamaged` when the reference points at an event of another kind.
    """
    if isinstance(ref, TurnsText):
        lines = [_turn_line(recorded, seq) for seq in ref.turns]
        return None if None in lines else "\n".join(line for line in lines if line is not None)
    if isinstance(ref, FactText):
        event = _event(recorded, ref.occurrence.seq)
        text = text_of_fact(event, ref.occurrence.n)
        if text is None and event is not None:
            raise LogDamaged(f"the event at seq {ref.occurrence.seq} holds no such fact")
        return text
    event = _event(recorded, ref.seq)
    if event is None:
        return None
    if not isinstance(event, IntervalSummarised | NodesMerged):
        raise LogDamaged(f"the event at seq {ref.seq} holds no written text")
    return event.text


def fact_in(event: object, n: int) -> ExtractedFact | None:
    """The n-th fact of an event as it was read or written; an imported memory is none, it has a text alone."""
    match event:
        case FactsExtracted(facts=facts) if 0 <= n < len(facts):
            return facts[n]
        case FactCorrected(says=says) | FactPinned(says=says):
            return says
        case _:
            return None


def text_of_fact(event: object, n: int) -> str | None:
    """The text of an event's n-th fact, an imported memory's, too; None when it has no such fact."""
    if isinstance(event, MemoryImported):
        return event.content
    fact = fact_in(event, n)
    return None if fact is None else fact.text


def turn_line(turn: TurnRecorded | TurnRevised) -> str:
    """A turn as it is searched, shown and read by models: its text with that of its parts, after its speaker."""
    captions = [part.caption for part in turn.parts if part.caption]
    return f"{turn.name or turn.role}: " + " ".join([turn.content, *(f"[{caption}]" for caption in captions)])


def _turn_line(recorded: Mapping[int, RecordedEvent], seq: int) -> str | None:
    event = _event(recorded, seq)
    if event is None:
        return None
    if not isinstance(event, TurnRecorded | TurnRevised):
        raise LogDamaged(f"the event at seq {seq} is no turn")
    return turn_line(event)


def _event(recorded: Mapping[int, RecordedEvent], seq: int) -> object | None:
    if seq not in recorded:
        raise LogDamaged(f"the event at seq {seq} is missing")
    return recorded[seq].event
