"""How rows are kept: turns and where a text stands as a few numbers, and all of them in a snapshot."""

from __future__ import annotations

import struct
from array import array
from typing import Final, NamedTuple

import msgspec

from events.envelope import Reference
from events.memory import Pointer
from projections.texts import FactText, TextRef, TurnsText, WrittenText

OF_TURNS, OF_FACT, WRITTEN = range(3)
TURN_BYTES: Final = 8
# What reads so few turns; most nodes have one or two.
_READ_TURNS: Final = [struct.Struct(f"{count}q").unpack for count in range(17)]


class RowsState(msgspec.Struct, frozen=True, array_like=True):
    """Rows as bytes of arrays, session references and ids."""

    columns: dict[str, bytes]
    turns: list[bytes]
    session_sets: list[list[Reference] | None]
    session_sets_free: list[int]
    free: list[int]
    last_chunk: dict[Reference, int]


class KeptRef(NamedTuple):
    """`turns` are the node's own, and behind them those of its text if others; `n` is how many are its own."""

    kind: int
    seq: int
    n: int
    turns: bytes


def keep_ref(ref: TextRef, turns: tuple[int, ...]) -> KeptRef:
    """A node's turns and where its text stands."""
    kind, seq, n = OF_TURNS, 0, len(turns)
    match ref:
        case TurnsText(turns=own):
            turns = turns if own == turns else turns + own
        case FactText(occurrence=Pointer(seq=seq, n=n)):
            kind = OF_FACT
        case WrittenText(seq=seq):
            kind = WRITTEN
    return KeptRef(kind, seq, n, array("q", turns).tobytes())


def read_ref(kept: bytes, ref_kind: int, seq: int, n: int) -> TextRef:
    """Where the text stands."""
    if ref_kind == OF_TURNS:
        return TurnsText(read_numbers(kept[TURN_BYTES * n :] or kept))
    return FactText(Pointer(seq, n)) if ref_kind == OF_FACT else WrittenText(seq)


def read_turns(kept: bytes, ref_kind: int, n: int) -> tuple[int, ...]:
    """The node's own turns."""
    return read_numbers(kept[: TURN_BYTES * n] if ref_kind == OF_TURNS else kept)


def read_numbers(kept: bytes) -> tuple[int, ...]:
    """Numbers of eight bytes each."""
    count = len(kept) // TURN_BYTES
    if count < len(_READ_TURNS):
        return _READ_TURNS[count](kept)
    return struct.unpack(f"{count}q", kept)
