"""Chunks: a session's turns in log order, cut at b turns or by an event, never by a clock (design 3.3).

Paper B, Eq. B5. A closed chunk never reopens.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from events.envelope import Reference, identify
from events.memory import ChunkKey
from events.registry import RowKind, SessionRow
from events.time import Instant


@dataclass(frozen=True, slots=True)
class Chunk:
    """A run of turns of one session.

    `key` comes from the keys of the turns, so it is the same in every fold. `places` are the seqs of the turns as
    first recorded, retracted ones too; `turns` are the seqs of the wordings that stand.
    """

    key: ChunkKey
    session: Reference
    turns: tuple[int, ...]
    places: tuple[int, ...]
    time_start: Instant
    time_end: Instant


@dataclass(slots=True)
class Cutter:
    """Cuts one session. `open` holds the turns that are in no closed chunk yet."""

    size: int  # b
    open: list[int] = field(default_factory=list[int])

    def add_turn(self, seq: int) -> tuple[int, ...] | None:
        """Take the next turn; the chunk it completes, if it does."""
        self.open.append(seq)
        return self._cut() if len(self.open) >= self.size else None

    def close(self, last_turn: int | None = None) -> tuple[int, ...] | None:
        """Close the open chunk, if there is one. With `last_turn`, only if no later turn came meanwhile."""
        if not self.open or (last_turn is not None and self.open[-1] > last_turn):
            return None
        return self._cut()

    def _cut(self) -> tuple[int, ...]:
        chunk = tuple(self.open)
        self.open.clear()
        return chunk


def cut_chunks(rows: Iterable[SessionRow], size: int) -> list[tuple[int, ...]]:
    """The closed chunks (seqs of their turns) of a session's rows, which begin at the start of a chunk."""
    cutter = Cutter(size)
    closed: list[tuple[int, ...] | None] = []
    for row in rows:
        if row.kind is RowKind.TURN:
            closed.append(cutter.add_turn(row.seq))
        else:
            closed.append(cutter.close(row.last_turn))
    return [chunk for chunk in closed if chunk is not None]


def open_turns(rows: Iterable[SessionRow], size: int) -> tuple[SessionRow, ...]:
    """The turns of the open chunk, oldest first; empty when every chunk is closed."""
    listed = tuple(rows)
    taken = {seq for chunk in cut_chunks(listed, size) for seq in chunk}
    return tuple(row for row in listed if row.kind is RowKind.TURN and row.seq not in taken)


def make_chunk_key(turn_keys: Iterable[Reference]) -> ChunkKey:
    """The key of the chunk of these turns."""
    return identify(b"mf.chunk", *turn_keys)
