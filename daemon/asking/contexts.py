"""An answer as text for a prompt: its memories in the order of time, each behind its date, within a budget."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Generic, TypeVar

from events.time import Instant
from projections.recall.nodes import format_date

T = TypeVar("T")

# What tokenizers of common models make of text, in quarters of a token: a Latin letter is one, one of other
# alphabets two, and a sign of the scripts without spaces (and whatever else lies up there) a token of its own.
_ALPHABETS = re.compile("[\u0250-\u2e7f]")
_SIGNS = re.compile("[\u2e80-\U0010ffff]")
QUARTERS = 4


def count_quarters(text: str) -> int:
    """How many quarters of a token a text has, by rule: no tokenizer is asked, and none agrees with another."""
    if text.isascii():
        return len(text)
    return len(text) + len(_ALPHABETS.findall(text)) + 3 * len(_SIGNS.findall(text))


def context_line(said_at: Instant, text: str) -> str:
    """A memory as it stands in a context."""
    return f"{format_date(said_at)} {text}"


@dataclass(frozen=True, slots=True)
class Piece(Generic[T]):
    """A part of an answer, its line in a context, and what it is worth; a `head` opens a memory's place.

    `turns`: those that it is from; without any nothing else carries it. `behind`: what it says nothing without.
    """

    of: T
    line: str
    worth: float
    head: bool
    turns: frozenset[int] = frozenset()
    behind: T | None = None


def fit_pieces(pieces: Iterable[Piece[T]], tokens_max: int) -> list[T]:
    """The pieces that are shown: the worthiest whose lines have at most so many tokens together, ends counted.

    Equal ones in the order given; one whose turns are all shown already is left out. The first head that does not
    fit ends the answer, so that no memory is shown before a better one; of what stands behind a head each piece
    that fits is.
    """
    left = tokens_max * QUARTERS
    shown: dict[T, None] = {}
    seen: set[int] = set()
    for piece in sorted(pieces, key=lambda each: -each.worth):
        if (piece.turns and piece.turns <= seen) or (piece.behind is not None and piece.behind not in shown):
            continue
        quarters = count_quarters(piece.line) + 1
        if quarters <= left:
            left -= quarters
            shown[piece.of] = None
            seen |= piece.turns
        elif piece.head:
            break
    return list(shown)
