"""Which sessions a question is about: BM25 over whole sessions, from the same postings as the rows' own.

A session says in many turns what it is about; a chunk of it may hold one word of the question only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

from projections.recall.hits import add_up

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from projections.recall.hits import Entries

    Column = NDArray[np.float64]
    Sessions = NDArray[np.int32]

_K1: Final = 1.2
_B: Final = 0.75

# Up to so many entries of terms are counted at once, and more term by term.
_ENTRIES_AT_ONCE: Final = 16_384

# "What has she painted", and not "what does she have to" or "what would she have".
_PERFECT: Final = re.compile(r"\b(?:has|have)\s", re.IGNORECASE)
_CLAUSE_END: Final = re.compile(r"[,.;:?!]")
_QUESTION_WORDS: Final = frozenset({"what", "which", "where", "who", "whom", "how"})
_OTHER_VERBS: Final = frozenset({"do", "does", "did", "to", "would", "could", "should", "might"})
# Characters between a question word and its verb, and of a question: it may be a whole page.
_CLAUSE_MAX: Final = 80
_QUESTION_MAX: Final = 1_000


@dataclass(frozen=True, slots=True, eq=False)
class SessionTable:
    """The sessions of a node set by number; what is here does not change any more.

    `of_row`: the session of each row. `of_chunk`: the same for chunks, one number beyond the last for other
    rows, whose words are in a chunk already. `lengths`: how many terms the chunks of each session have, 0 where
    the number stands for none; `live` where it does, `live_count` how often. `penalties`: what BM25 holds long
    ones back by. `runs`: the session of each run of neighbouring rows, and how long each is. `known`: how often
    loud terms stand in each session, as far as that was asked for.
    """

    of_row: NDArray[np.intp]
    of_chunk: Sessions
    lengths: Column
    live: NDArray[np.bool_]
    live_count: int
    penalties: Column
    runs: tuple[NDArray[np.intp], NDArray[np.intp]]
    known: dict[int, Column]


def make_table(of_row: Sessions, is_chunk: NDArray[np.bool_], row_lengths: NDArray[np.int32]) -> SessionTable:
    """From the session number of each row, whether it is a chunk, and how many terms it has."""
    sessions = int(of_row.max(initial=-1)) + 1
    of_chunk = np.where(is_chunk, of_row, np.int32(sessions))
    chunks = np.flatnonzero(is_chunk)
    lengths = add_up(of_row.take(chunks), row_lengths.take(chunks).astype(np.float64), sessions)
    live = lengths > 0
    live_count = int(live.sum())
    mean = lengths.sum() / max(1, live_count)
    penalties = _K1 * (1 - _B + _B * lengths / mean) if mean else np.ones(sessions)
    ends = np.append(np.flatnonzero(of_row[1:] != of_row[:-1]), max(0, of_row.size - 1))
    numbers = of_row.astype(np.intp)
    runs = numbers[ends[: of_row.size]], np.diff(ends[: of_row.size], prepend=-1)
    return SessionTable(numbers, of_chunk, lengths, live, live_count, penalties, runs, {})


def asks_of_many(question: str) -> bool:
    """Whether the answer is likely in many sessions: "what has she painted?", "where have they been?".

    The English perfect asks of a whole life, and then the session that fits the question best outweighs the others
    (multi-hop R@10 on LoCoMo: multilingual +2, without vectors +.2). Other languages ask of a life in other ways.
    """
    for verb in _PERFECT.finditer(question, 0, _QUESTION_MAX):
        clause = _CLAUSE_END.split(question[max(0, verb.start() - _CLAUSE_MAX) : verb.start()])[-1]
        words = set(clause.lower().split())
        if words & _QUESTION_WORDS and not words & _OTHER_VERBS:
            return True
    return False


def score_terms(table: SessionTable, entries: Entries) -> Column:
    """BM25 of each session for each term of these entries, shape (terms, sessions)."""
    counts = _count(table, entries)
    holders = (counts > 0).sum(axis=1, keepdims=True)
    weights = np.log1p((table.live_count - holders + 0.5) / (holders + 0.5))
    scores: Column = weights * counts / (counts + table.penalties)
    return scores


def score_sessions(table: SessionTable, entries: Entries, more: Column | None = None) -> Column:
    """BM25 of each session for the terms of these entries, shape (sessions,), stretched to 0 .. 1.

    All 0 where the sessions do not differ. Terms are added in the order of their entries, and then `more`.
    """
    sessions = table.live_count
    if not sessions or (not entries.holders and more is None):
        return np.zeros(len(table.lengths))
    scores: Column = score_terms(table, entries).sum(axis=0)
    if more is not None:
        scores += more
    known = scores if sessions == len(scores) else scores[table.live]
    low, high = float(known.min()), float(known.max())
    if low == high:
        return np.zeros(len(scores))
    scores -= low
    scores /= high - low
    if known is not scores:
        scores[~table.live] = 0.0
    return scores


def _count(table: SessionTable, entries: Entries) -> Column:
    """How often each term stands in each session, shape (terms, sessions)."""
    width = len(table.lengths) + 1
    if len(entries.rows) <= _ENTRIES_AT_ONCE:
        counted_at_once = _count_at_once(table, entries, width)
        if not any(entries.loud):
            return counted_at_once[:, :-1]
        counted = iter(counted_at_once)
    else:
        counted = _count_by_term(table, entries, width)
    counts = np.empty((len(entries.numbers), len(table.lengths)))
    for of_term, number, loud, column in zip(counts, entries.numbers, entries.loud, entries.columns, strict=True):
        of_term[:] = next(counted)[:-1] if column is None else _count_loud(table, entries, number)
        if loud and number not in table.known:
            table.known[number] = of_term.copy()
    return counts


def _count_at_once(table: SessionTable, entries: Entries, width: int) -> Column:
    quiet = entries.quiet
    places = np.repeat(np.arange(0, len(quiet) * width, width), np.array(quiet, dtype=np.intp))
    places += table.of_chunk.take(entries.rows)
    return add_up(places, entries.counts, len(quiet) * width).reshape(len(quiet), width)


def _count_by_term(table: SessionTable, entries: Entries, width: int) -> Iterator[Column]:
    """What one of them takes fits the processor's cache."""
    start = 0
    for holders in entries.quiet:
        span = slice(start, start + holders)
        start += holders
        yield add_up(table.of_chunk.take(entries.rows[span]), entries.counts[span], width)


def _count_loud(table: SessionTable, entries: Entries, number: int) -> Column:
    """How often a loud term stands in each session, shape (sessions,)."""
    counts = table.known.get(number)
    if counts is None:
        rows, held = entries.unpack((number,))
        counts = add_up(table.of_chunk.take(rows), held, len(table.lengths) + 1)[:-1]
    return counts
