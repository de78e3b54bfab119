"""A Memory as its snapshot gives it back, for tests of what a snapshot keeps."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TypeVar

from events.envelope import RecordedEvent
from projections.memory import Memory
from projections.snapshot import Reader, Sources, freeze, thaw, thaw_nodes

T = TypeVar("T")


def drain(steps: Generator[None, None, T]) -> T:
    """What a generator returns in the end."""
    while True:
        try:
            next(steps)
        except StopIteration as done:
            value: T = done.value
            return value


def thawed(memory: Memory, log: Iterable[RecordedEvent], content: bytes | None = None) -> Memory:
    """The Memory of a snapshot: of this one as it is now, or of `content` that was made of it before."""
    again = Memory(memory.user, memory.parameters)
    reader = Reader(drain(freeze(memory)) if content is None else content, memory.user)
    events = {each.seq: each for each in log}
    names = {**memory.session_ids, memory.user: memory.user_id}
    drain(thaw(reader, Sources({seq: events[seq] for seq in reader.seqs}, names), again))
    thaw_nodes(reader, again)
    return again
