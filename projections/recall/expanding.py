"""What a memory says in other words than the question: "instruments" asks for a violin, too.

Each word of a question counts in a row by its own BM25 or by that of a related word, less the further it is from
the asked one: by the best of them, not by their sum. The same for whole sessions. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.hits import Hits, add_up
from projections.recall.sessions import score_terms

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.lexical import LexicalIndex
    from projections.recall.sessions import SessionTable

    Column = NDArray[np.float64]
    Places = NDArray[np.intp]

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


@dataclass(frozen=True, slots=True, eq=False)
class _Pairs:
    """Asked terms beside their related ones, asked term by asked term.

    `own`: the place of each asked term in the entries, -1 where no row holds it; `starts`: its first pair. Of
    each pair `asked` is the number of the asked term, `places` and `cosines` where and how near the other is.
    """

    own: Places
    starts: Places
    asked: Places
    places: Places
    cosines: Column

    @classmethod
    def of(cls, groups: Mapping[int, Mapping[int, float]], place: Mapping[int, int]) -> _Pairs:
        """By the hash of each asked term those of related ones; `place`: of the terms that rows hold."""
        own, counts, places, cosines = list[int](), list[int](), list[int](), list[float]()
        for term in sorted(groups):
            near = groups[term]
            own.append(place.get(term, -1))
            counts.append(len(near))
            for each in sorted(near):
                places.append(place[each])
                cosines.append(near[each])
        starts = np.cumsum([0, *counts[:-1]])
        asked = np.repeat(np.arange(len(counts)), counts)
        return cls(np.array(own), starts, asked, np.array(places), np.array(cosines))


def expand(
    lexical: LexicalIndex, table: SessionTable, related: Related, asked: frozenset[int], size: int
) -> Expansion | None:
    """What the related words of a question give; None when there are none. `asked`: all its terms, by hash.

    A term that is asked for itself stands for no other.
    """
    held = lexical.look_up({*related.terms, *(each for near in related.terms.values() for each in near)})
    most = max(1.0, HELD_SHARE_MAX * len(lexical))
    telling = {term for term, (_, holders) in held.items() if holders <= most}
    groups: dict[int, dict[int, float]] = {}
    for term, near in related.terms.items():
        if term in telling or term not in held:
            kept = {each: cosine for each, cosine in near.items() if each in telling and each not in asked}
            if kept:
                groups[term] = kept
    if not groups:
        return None
    known = sorted({*groups, *(each for near in groups.values() for each in near)} & telling)
    place = {term: n for n, term in enumerate(known)}
    entries = lexical.entries(held[term] for term in known)
    pairs = _Pairs.of(groups, place)
    return Expansion(
        _expand_rows(lexical.weigh(entries), np.array(entries.holders), pairs, size),
        _expand_sessions(score_terms(table, entries), pairs),
    )


def _expand_rows(hits: Hits, holders: Places, pairs: _Pairs, size: int) -> Column:
    """Looks only at the rows that hold a related term. `holders`: rows of each term, which are side by side."""
    held, starts = holders[pairs.places], np.cumsum(holders) - holders
    at = _ranges(starts[pairs.places], held)
    shares = hits.shares[at] * np.repeat(pairs.cosines, held)
    # A row that several asked terms have related ones in is there once for each.
    keys = hits.rows[at] + size * np.repeat(pairs.asked, held)
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    firsts = np.flatnonzero(np.diff(keys, prepend=-1))
    keys, best = keys[firsts], np.maximum.reduceat(shares[order], firsts)
    known = np.flatnonzero(pairs.own >= 0)
    counts = holders[pairs.own[known]]
    own = _ranges(starts[pairs.own[known]], counts)
    own_keys = hits.rows[own] + size * np.repeat(known, counts)
    # Rows that hold the asked term, too; ascending, as the keys are.
    found = np.minimum(np.searchsorted(own_keys, keys), max(0, len(own_keys) - 1))
    if len(own_keys):
        best -= np.where(own_keys[found] == keys, hits.shares[own[found]], 0.0)
    return add_up(keys % size, np.maximum(best, 0.0), size)


def _ranges(starts: Places, counts: Places) -> Places:
    """start, start + 1, ... so many times, one range after the other."""
    before: Places = np.cumsum(counts) - counts
    places: Places = np.arange(int(counts.sum())) + np.repeat(starts - before, counts)
    return places


def _expand_sessions(scores: Column, pairs: _Pairs) -> Column:
    """`scores`: of each term in each session."""
    near = scores[pairs.places] * pairs.cosines[:, None]
    best = np.maximum.reduceat(near, pairs.starts, axis=0)
    known = np.flatnonzero(pairs.own >= 0)
    best[known] -= scores[pairs.own[known]]
    total: Column = np.maximum(best, 0.0).sum(axis=0)
    return total
