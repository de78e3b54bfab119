"""Evidence recall without a judge (quality.md): the measures, two baselines, and the table.

Whatever ranks memories can be measured: hand `score` an answer as `Retrieved` items, best first, with the ids of
the turns whose words (or facts) each text really carries. `tests.quality.run` prints them all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import astuple, dataclass, fields
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from events.time import Instant, to_datetime
from memforest.bench.evidence import Retrieved, longest_prefix, recall_at, recall_within, reciprocal_rank
from projections.recall.agpr import NO_EMBEDDER, fuse, rank, smooth, top_rows
from projections.recall.lexical import LexicalIndex
from projections.recall.tokens import query_terms, terms
from tests.quality.locomo import Category, Conversation, Question, Session

if TYPE_CHECKING:
    from numpy.typing import NDArray

CHUNK_TURNS = 2  # b of paper B, Eq. B5
DEPTH = 50  # memories asked for; 8,000 characters hold fewer chunks than that
ANSWER = 10  # the k of AGPR: the first ten of the deep ranking are the answer to k = 10


# Answers one question with at most that many memories, best first.
Ranker: TypeAlias = Callable[[str, int], Sequence[Retrieved]]


@dataclass(frozen=True, slots=True)
class Scores:
    """The measures of one answer, or the means of several; each between 0 and 1."""

    recall_5: float
    recall_10: float
    recall_20: float
    mrr: float
    within_2000: float
    within_4000: float
    within_8000: float
    worded_4000: float


HEADINGS = ("R@5", "R@10", "R@20", "MRR", "b2000", "b4000", "b8000", "w4000")


def without_repeats(ranking: Iterable[Retrieved]) -> list[Retrieved]:
    """The ranking less every memory whose turns are all carried by better-ranked ones (design 3.4)."""
    seen: set[str] = set()
    kept: list[Retrieved] = []
    for memory in ranking:
        if memory.turn_ids and memory.turn_ids <= seen:
            continue
        seen |= memory.turn_ids
        kept.append(memory)
    return kept


def recall_worded(ranking: Iterable[Retrieved], question: Question, characters: int) -> float:
    """The same, of the gold turns whose share of the answer stands in the texts that carry them.

    A fact is one sentence of its turn, and may not be the one that answers.
    """
    said: dict[str, set[str]] = {}
    for memory in longest_prefix(ranking, characters):
        for turn_id in memory.turn_ids & question.gold:
            said.setdefault(turn_id, set()).update(terms(memory.text))
    return sum(question.words[turn_id] <= words for turn_id, words in said.items()) / len(question.gold)


def score(answer: Iterable[Retrieved], question: Question) -> Scores:
    """All measures of one answer; ranks and characters count after `without_repeats`."""
    ranking, gold = without_repeats(answer), question.gold
    return Scores(
        recall_at(ranking, gold, 5),
        recall_at(ranking, gold, 10),
        recall_at(ranking, gold, 20),
        reciprocal_rank(ranking, gold),
        recall_within(ranking, gold, 2_000),
        recall_within(ranking, gold, 4_000),
        recall_within(ranking, gold, 8_000),
        recall_worded(ranking, question, 4_000),
    )


def mean_scores(scores: Sequence[Scores]) -> Scores:
    """The mean of each measure over the questions."""
    return Scores(*np.mean([astuple(one) for one in scores], axis=0).tolist())


def evaluate(
    conversations: Iterable[Conversation], ranker_of: Callable[[Conversation], Ranker], depth: int = DEPTH
) -> list[tuple[Category, Scores]]:
    """The category and the scores of every question, each put once to its conversation's ranker."""
    return [
        (question.category, score(ranker(question.text, depth), question))
        for conversation in conversations
        for ranker in (ranker_of(conversation),)
        for question in conversation.questions
    ]


def table(rows: Iterable[tuple[str, Sequence[Scores]]]) -> str:
    """One line a row: its name, the mean scores in percent, the number of questions."""
    lines = [f"{'':52}" + "".join(f"{heading:>7}" for heading in HEADINGS) + f"{'n':>6}"]
    for name, scores in rows:
        means = mean_scores(scores)
        figures = "".join(f"{100 * getattr(means, field.name):7.1f}" for field in fields(means))
        lines.append(f"{name:52}{figures}{len(scores):6}")
    return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class Chunk:
    """Two turns of a session as a memory; `session` counts the sessions."""

    memory: Retrieved
    said_at: Instant
    session: int


def chunks_of(sessions: Iterable[Session], *, dated: bool) -> Iterator[Chunk]:
    """The chunks of each session in order, a line `Name: text` a turn; `dated` opens each with its day."""
    for number, session in enumerate(sessions):
        day = to_datetime(session.started_at)
        prefix = f"[{day.day} {day:%B} {day.year}] " if dated else ""
        for start in range(0, len(session.turns), CHUNK_TURNS):
            turns = session.turns[start : start + CHUNK_TURNS]
            text = prefix + "\n".join(f"{turn.speaker}: {turn.text}" for turn in turns)
            turn_ids = frozenset(turn.turn_id for turn in turns)
            yield Chunk(Retrieved(turn_ids, text), turns[0].said_at, number)


class _ChunkSearch:
    """The chunks of one conversation behind the product's own index, tokens and ranking."""

    def __init__(self, conversation: Conversation, *, dated: bool) -> None:
        self.chunks = list(chunks_of(conversation.sessions, dated=dated))
        self._index = LexicalIndex()
        for row, chunk in enumerate(self.chunks):
            self._index.add(row, terms(chunk.memory.text))
        session = np.array([chunk.session for chunk in self.chunks])
        rows = np.arange(len(self.chunks))
        same = session[1:] == session[:-1]
        self._previous = np.append(-1, np.where(same, rows[:-1], -1))
        self._next = np.append(np.where(same, rows[1:], -1), -1)
        self._said_at = np.array([chunk.said_at for chunk in self.chunks], dtype=np.int64)
        self._order = rows.astype(np.int64)

    def bm25(self, question: str, k: int) -> list[Retrieved]:
        """BM25 alone."""
        return self._memories(top_rows(fuse(self._lexical(question), None, 0), k, self._order))

    def core(self, question: str, k: int) -> list[Retrieved]:
        """The product without an embedder: smoothed BM25, then AGPR with the anchors of an answer of ten."""
        smoothed = smooth(self._lexical(question), self._previous, self._next, NO_EMBEDDER.smoothing)
        scores = fuse(smoothed, None, NO_EMBEDDER.cosine_weight)
        ranked = rank(scores, self._said_at, min(k, ANSWER), NO_EMBEDDER, self._order, depth=k)
        return self._memories(one.row for one in ranked)

    def _lexical(self, question: str) -> NDArray[np.float64]:
        return self._index.scores(query_terms(question), len(self.chunks))

    def _memories(self, rows: Iterable[int]) -> list[Retrieved]:
        return [self.chunks[row].memory for row in rows]


def bm25_ranker(conversation: Conversation, *, dated: bool = False) -> Ranker:
    """BM25 over 2-turn chunks."""
    return _ChunkSearch(conversation, dated=dated).bm25


def core_ranker(conversation: Conversation, *, dated: bool = False) -> Ranker:
    """BM25 over 2-turn chunks, smoothing and AGPR with the defaults for no embedder."""
    return _ChunkSearch(conversation, dated=dated).core
