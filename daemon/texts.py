"""Texts by reference, read from the log when they are needed and kept nowhere."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

from events.envelope import RecordedEvent
from events.log import EventLog
from events.reading import read_events
from projections.memtree.forest import SEPARATOR
from projections.texts import TextRef, compose, events_behind


async def read_behind(log: EventLog, refs: Sequence[TextRef]) -> dict[int, RecordedEvent]:
    """The events that hold these texts, by seq."""
    return await log.read(partial(read_events, seqs=events_behind(refs)))


async def read_texts(log: EventLog, refs: Sequence[TextRef]) -> list[str | None]:
    """The texts of these references, in order; None where the words were erased meanwhile."""
    recorded = await read_behind(log, refs)
    return [compose(ref, recorded) for ref in refs]


def join_texts(refs: Sequence[TextRef], recorded: Mapping[int, RecordedEvent]) -> str | None:
    """The text of a node that consists of several; None where words were erased meanwhile."""
    texts = [compose(ref, recorded) for ref in refs]
    present = [text for text in texts if text is not None]
    return SEPARATOR.join(present) if len(present) == len(texts) else None
