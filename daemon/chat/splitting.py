"""Questions that are too long or too hard, made two of half the size: chunks, texts, intervals, groups. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, TypeVar

from projections.ports import ChunkText, IntervalText, MemberText, TurnText

# Halving a chunk of 64 turns takes six steps; two more halve a text.
DEPTH_MAX: Final = 8
# What a text of two sentences may have; asking for less of it helps no model.
TEXT_CHARS_MIN: Final = 160

_SENTENCE_END = re.compile(r"[.!?…]+[\"'”’»)\]]*\s+|[。！？｡]+[”’」』）】]*|\n+")
_SPACE = re.compile(r"\s+")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class ChunkPart:
    """A part of a chunk; its first turn is the chunk's turn at `position`."""

    chunk: ChunkText
    position: int


def split_chunk(chunk: ChunkText) -> tuple[ChunkPart, ChunkPart] | None:
    """Half of the turns and the other half; of a single turn half of its text; None when it is small already.

    The second part has the end of the first for its context.
    """
    turn, *others = chunk.turns
    if others:
        first, second = halve(chunk.turns)
        later = ChunkPart(ChunkText(second, first[-1]), len(first))
        return ChunkPart(ChunkText(first, chunk.previous), 0), later
    halves = split_text(turn.text)
    if halves is None:
        return None
    begin, end = (replace(turn, text=text) for text in halves)
    return ChunkPart(ChunkText((begin,), chunk.previous), 0), ChunkPart(ChunkText((end,), begin), 0)


def split_interval(interval: IntervalText) -> tuple[IntervalText, IntervalText] | None:
    """The earlier children and the later ones; of a single one half of its text; None when it is small already."""
    child, *others = interval.children
    if others:
        parts = halve(interval.children)
    else:
        halves = split_text(child.text)
        if halves is None:
            return None
        parts = ((replace(child, text=halves[0]),), (replace(child, text=halves[1]),))
    return IntervalText(interval.scope, parts[0]), IntervalText(interval.scope, parts[1])


def span_of(texts: Sequence[MemberText], text: str) -> MemberText:
    """A text that stands for these, over their time."""
    return MemberText(text, min(each.time_start for each in texts), max(each.time_end for each in texts))


def halve(items: tuple[T, ...]) -> tuple[tuple[T, ...], tuple[T, ...]]:
    """The first half, which has the odd one, and the rest."""
    middle = (len(items) + 1) // 2
    return items[:middle], items[middle:]


def split_text(text: str) -> tuple[str, str] | None:
    """A text cut at the end of a sentence nearest to its middle, else at a space, else there; None when short."""
    if len(text) < TEXT_CHARS_MIN:
        return None
    low, high = len(text) // 4, 3 * len(text) // 4
    for ends in (_SENTENCE_END, _SPACE):
        places = [match.end() for match in ends.finditer(text, low, high)]
        if places:
            return _cut(text, min(places, key=lambda place: abs(2 * place - len(text))))
    return _cut(text, len(text) // 2)


def characters_of(turns: Sequence[TurnText]) -> int:
    """Length of the texts together."""
    return sum(len(turn.text) for turn in turns)


def bytes_of(texts: Sequence[TurnText] | Sequence[MemberText]) -> int:
    """Length of the texts together as UTF-8, which is near to four times their tokens in every script."""
    return sum(len(each.text.encode("utf-8", "replace")) for each in texts)


def _cut(text: str, at: int) -> tuple[str, str] | None:
    first, second = text[:at].strip(), text[at:].strip()
    return (first, second) if first and second else None
