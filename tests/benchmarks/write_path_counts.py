"""What the write path asked for: calls, texts and tokens, against limits and a count from the leaves alone."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.benchmarks.measuring import Figure, Row
from tests.benchmarks.stub_run import Built, Counts

PROMPT_TOKENS_MAX = 800  # of an extraction
CHAT_TOKENS_MAX, EMBEDDING_TOKENS_MAX = 165_000, 75_000
# Of the summaries without concatenation, the share that is left with it.
CONCATENATION_LEFT_MAX = 0.45
# Sessions by number, from 1: what a new fact costs must not grow with what is there.
EARLY, LATE = 3, 8
GROWTH_MAX = 1.3
# Of the same input with the tree rule of algorithms.md over the public code's own facts (performance.md).
PUBLISHED, PUBLISHED_JOINED = 302, 116


@dataclass(frozen=True, slots=True)
class Counted:
    """What one run took, the nodes that were new after each session by a count of ours, and the stub's figures."""

    built: Built
    new_nodes: tuple[int, ...]
    stats: dict[str, Any]


def count_rows(plain: Counted, joined: Counted) -> list[Row]:
    """The rows of the same sessions without concatenation (`plain`) and with it."""
    total, less = plain.built.total, joined.built.total
    tokens = Figure("with_concatenation", less["prompt_tokens"])
    embedded = Figure("with_concatenation", less["embedding_tokens"])
    left = (Figure("with", less["summarise"]), Figure("without", total["summarise"]))
    return [
        _summaries_row("no concatenation", plain, PUBLISHED),
        _summaries_row("with concatenation", joined, PUBLISHED_JOINED),
        Row("summaries with concatenation", _share(*left), "without", left, CONCATENATION_LEFT_MAX),
        _tokens_row("chat prompt tokens", total["prompt_tokens"], CHAT_TOKENS_MAX, tokens),
        _tokens_row("embedding tokens", total["embedding_tokens"], EMBEDDING_TOKENS_MAX, embedded),
        _texts_row(plain),
        *_growth_rows(plain),
        _prompt_row(plain),
    ]


def _summaries_row(name: str, seen: Counted, published: int) -> Row:
    """Summaries asked for against the nodes that were new; 1 when nothing was asked in vain."""
    asked, new = seen.built.total["summarise"], sum(seen.new_nodes)
    figures = (Figure("asked", asked), Figure("new_nodes", new), Figure("of_the_public_codes_facts", published))
    return Row(f"summaries, {name}", asked / max(1, new), "new nodes, recounted", figures, 1.0)


def _tokens_row(name: str, tokens: int, most: int, other: Figure) -> Row:
    return Row(name, tokens / most, f"{most:,}", (Figure("without_concatenation", tokens), other), 1.0)


def _texts_row(seen: Counted) -> Row:
    total, new = seen.built.total, sum(seen.new_nodes)
    most = total["facts"] + total["extract"] + new
    figures = (
        Figure("texts", total["texts"]),
        Figure("facts", total["facts"]),
        Figure("chunks", total["extract"]),
        Figure("new_nodes", new),
    )
    return Row("texts embedded", total["texts"] / most, "facts + chunks + new nodes", figures, 1.0)


def _growth_rows(seen: Counted) -> list[Row]:
    """What a new fact takes in a late session and in an early one."""
    if len(seen.built.sessions) < LATE:
        return []
    early, late = seen.built.sessions[EARLY - 1], seen.built.sessions[LATE - 1]
    return [growth_row(name, kind, early, late) for name, kind in _PER_FACT.items()]


_PER_FACT = {
    "chat calls": "chat",
    "texts embedded": "texts",
    "chat prompt tokens": "prompt_tokens",
    "embedding tokens": "embedding_tokens",
}


def growth_row(name: str, kind: str, early: Counts, late: Counts, most: float = GROWTH_MAX) -> Row:
    """What a new fact takes in a later stretch against an earlier one."""
    each = [counts[kind] / max(1, counts["facts"]) for counts in (early, late)]
    figures = (Figure("early", each[0]), Figure("late", each[1]))
    return Row(f"{name} per new fact, later", each[1] / each[0], "earlier", figures, most)


def _prompt_row(seen: Counted) -> Row:
    stats = seen.stats
    tokens = stats["prompt_tokens"]["extract"] / stats["calls"]["extract"]
    figures = (Figure("mean", tokens), Figure("longest", stats["prompt_tokens_max"]["extract"]))
    return Row("prompt tokens of an extraction", tokens / PROMPT_TOKENS_MAX, str(PROMPT_TOKENS_MAX), figures, 1.0)


def _share(part: Figure, whole: Figure) -> float:
    return part.value / max(1, whole.value)
