"""Which sessions a question is about: BM25 over whole sessions, from the same postings as the rows' own.

A session says in many turns what it is about; a chunk of it may hold one word of the question only.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from projections.recall.lexical import Entries

    Column = NDArray[np.float64]
    Sessions = NDArray[np.int32]

_K1: Final = 1.2
_B: Final = 0.75

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
    """The sessions of a node set by number, and nothing in it changes any more.

    `of_row`: the session of each row. `of_chunk`: the same for chunks, one number beyond the last for other
    rows, whose words are in a chunk already. `lengths`: how many terms the chunks of each session have, 0 where
    the number stands for none; `live` where it does. `penalties`: what BM25 holds long ones back by.
    """

    of_row: NDArray[np.intp]
    of_chunk: Sessions
    lengths: Column
    live: NDArray[np.bool_]
    penalties: Column


def make_table(of_row: Sessions, is_chunk: NDArray[np.bool_], row_lengths: NDArray[np.int32]) -> SessionTable:
    """From the session number of each row, whether it is a chunk, and how many terms it has."""
    sessions = int(of_row.max(initial=-1)) + 1
    of_chunk = np.where(is_chunk, of_row, np.int32(sessions))
    lengths = np.bincount(of_chunk, row_lengths.astype(np.float64), minlength=sessions + 1)[:sessions]
    live = lengths > 0
    mean = lengths.sum() / max(1, int(live.sum()))
    penalties = _K1 * (1 - _B + _B * lengths / mean) if mean else np.ones(sessions)
    return SessionTable(of_row.astype(np.intp), of_chunk, lengths.astype(np.float64, copy=False), live, penalties)


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


def score_sessions(table: SessionTable, entries: Entries) -> Column:
    """BM25 of each session for the terms of these entries, shape (sessions,), stretched to 0 .. 1.

    All 0 where the sessions do not differ. Terms are added in the order of their entries.
    """
    sessions = int(np.count_nonzero(table.live))
    if not sessions or not entries.holders:
        return np.zeros(len(table.lengths))
    counts = _count(table, entries)
    holders = (counts > 0).sum(axis=1, keepdims=True)
    weights = np.log1p((sessions - holders + 0.5) / (holders + 0.5))
    scores: Column = (weights * counts / (counts + table.penalties)).sum(axis=0)
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
    counts = np.empty((len(entries.holders), len(table.lengths)))
    start = 0
    # Term by term: what one of them takes fits the processor's cache.
    for of_term, holders in zip(counts, entries.holders, strict=True):
        span = slice(start, start + holders)
        start += holders
        sessions = table.of_chunk.take(entries.rows[span])
        of_term[:] = np.bincount(sessions, entries.counts[span], minlength=len(table.lengths) + 1)[:-1]
    return counts
