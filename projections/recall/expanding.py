"""What a memory says in other words than the question: "instruments" asks for a violin, too.

Each word of a question counts in a row by its own BM25 or by that of a related word, less the further it is from
the asked one: by the best of them, not by their sum. The same for whole sessions. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.hits import Hits
from projections.recall.sessions import score_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.hits import Entries
    from projections.recall.lexical import LexicalIndex
    from projections.recall.sessions import SessionTable

    Column = NDArray[np.float64]

# Terms that are looked at for each word of a question, the nearest ones.
RELATED_MAX: Final = 20
# What more of all rows hold says nothing, and what is like it still less: the names of those who talk, mostly.
HELD_SHARE_MAX: Final = 1 / 8


@dataclass(frozen=True, slots=True)
class Related:
    """By the hash of each term of a question: the hashes of related terms, and how near each is, from 0 to 1."""

    terms: Mapping[int, Mapping[int, float]] = field(default_factory=dict[int, Mapping[int, float]])


@dataclass(frozen=True, slots=True, eq=False)
class Expansion:
    """What related words give each row and each session, beyond the words that are asked for."""

    rows: Column
    sessions: Column

    def added_to(self, hits: Hits) -> Hits:
        """The hits with what related words give."""
        return Hits(hits.rows, hits.shares, [*hits.steps, self.rows])


@dataclass(frozen=True, slots=True)
class _Asked:
    """A term of a question in the entries: its place, if any row holds it, and those of related ones."""

    place: int | None
    related: tuple[tuple[int, float], ...]


def expand(
    lexical: LexicalIndex, table: SessionTable, related: Related, asked: frozenset[int], size: int
) -> Expansion | None:
    """What the related words of a question give; None when there are none. `asked`: all its terms, by hash.

    A term that is asked for itself stands for no other.
    """
    held = lexical.holders({*related.terms, *(each for near in related.terms.values() for each in near)})
    most = max(1.0, HELD_SHARE_MAX * len(lexical))
    telling = {term for term, count in held.items() if 0 < count <= most}
    groups: dict[int, dict[int, float]] = {}
    for term, near in related.terms.items():
        if held[term] <= most:
            kept = {each: cosine for each, cosine in near.items() if each in telling and each not in asked}
            if kept:
                groups[term] = kept
    if not groups:
        return None
    known = sorted({*groups, *(each for near in groups.values() for each in near)} & telling)
    place = {term: n for n, term in enumerate(known)}
    entries = lexical.find_hashed(known)
    wanted = [
        _Asked(place.get(term), tuple((place[each], near[each]) for each in sorted(near)))
        for term, near in sorted(groups.items())
    ]
    return Expansion(
        _expand_rows(lexical, entries, wanted, size), _expand_sessions(score_terms(table, entries), wanted)
    )


def _expand_rows(lexical: LexicalIndex, entries: Entries, wanted: list[_Asked], size: int) -> Column:
    hits = lexical.weigh(entries)
    ends = np.cumsum([0, *entries.holders])
    total = np.zeros(size)
    for asked in wanted:
        slices = [(slice(ends[n], ends[n + 1]), cosine) for n, cosine in asked.related]
        rows = np.concatenate([hits.rows[each] for each, _ in slices])
        shares = np.concatenate([cosine * hits.shares[each] for each, cosine in slices])
        best = np.zeros(size)
        np.maximum.at(best, rows, shares)
        if asked.place is not None:
            own = slice(ends[asked.place], ends[asked.place + 1])
            best[hits.rows[own]] -= hits.shares[own]
        total += np.maximum(best, 0.0)
    return total


def _expand_sessions(scores: Column, wanted: list[_Asked]) -> Column:
    """`scores`: of each term in each session."""
    total = np.zeros(scores.shape[1])
    for asked in wanted:
        best = np.max([cosine * scores[n] for n, cosine in asked.related], axis=0)
        if asked.place is not None:
            best = best - scores[asked.place]
        total += np.maximum(best, 0.0)
    return total
