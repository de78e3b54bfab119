"""An answer as text for a prompt: its memories in the order of time, each behind its date, within a budget."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import TypeVar

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


def fit_tokens(lines: Iterable[tuple[T, str]], tokens_max: int) -> Iterator[T]:
    """The longest prefix whose lines have at most so many tokens together, ends of lines counted."""
    left = tokens_max * QUARTERS
    for each, line in lines:
        left -= count_quarters(line) + 1
        if left < 0:
            return
        yield each
