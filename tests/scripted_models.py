"""Models that do what a test says: answers by a fixed rule, held back until they are let go, failing when told."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import TypeAlias

import anyio
import numpy as np

from daemon.offline.aliases import find_aliases
from events.decisions import PairVerdict
from events.memory import ExtractedFact, Mention, Task, Usage
from projections.ports import (
    ChunkText,
    FactsRead,
    IntervalText,
    MemberText,
    PairsRead,
    PairText,
    TextWritten,
    TurnText,
    Vectors,
)

# What a call was asked.
Question: TypeAlias = ChunkText | IntervalText | tuple[MemberText, ...] | tuple[PairText, ...]

# A text with this word in it gets an answer that no event can hold, so that the work is parked at once.
UNREADABLE = "unreadable"
UNSTORABLE = "\ud800"
# What a summary keeps of each child.
KEPT_CHARACTERS = 24
DAY_MS = 86_400_000

_SENTENCE = re.compile(r"[^.]+\.")
_CAPITAL = re.compile(r"\b[A-Z]\w*")
_ON_DAY = re.compile(r"on day (\d+)")


class ModelFailed(Exception):
    """What a model's adapter raises when its call came to nothing."""


@dataclass(eq=False)
class Call:
    """One question: it is answered once it is `let_go`, unless it is told to `fail`."""

    task: Task
    question: Question
    let_go: anyio.Event = field(default_factory=anyio.Event)
    failure: Exception | None = None
    answered: bool = False

    def answer(self) -> None:
        """Let the call have its answer."""
        self.let_go.set()

    def fail(self, error: Exception) -> None:
        """Let the call raise instead of answering."""
        self.failure = error
        self.let_go.set()

    @property
    def order(self) -> str:
        """A text by which calls stand in the same order however they came in."""
        return f"{self.task} {self.question!r}"


class ScriptedModel:
    """A language model whose answers follow from the question alone (or from a queue that a test fills).

    Facts are the sentences of the turns, entities their capitalised words (doubtful at the start of a sentence),
    and "on day 3" is the day they are about. A summary is the beginning of every child, a merge all of it.
    Pairs are all the same, or what verdict the queue has for them.
    """

    name = "scripted"

    def __init__(self, *, held: bool = False) -> None:
        """With `held`, a call waits until a test lets it go."""
        self.held = held
        # Other prompts, other answers: a test that wants its answers again counts this up.
        self.prompts = 1
        # What each answer took.
        self.usage = Usage()
        self.calls: list[Call] = []
        # Taken before the rule, in order: an answer, or what to raise.
        self.queue: deque[tuple[ExtractedFact, ...] | str | Exception] = deque()

    def waiting(self) -> list[Call]:
        """The calls that are held back, in an order that does not depend on how they came in."""
        return sorted((call for call in self.calls if not call.let_go.is_set()), key=lambda call: call.order)

    def release(self) -> None:
        """Answer everything that waits, and hold nothing back from now on."""
        self.held = False
        for call in self.waiting():
            call.answer()

    def version_of(self, task: Task) -> str:
        return f"{task} {self.prompts}"

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        queued = await self._receive(Task.EXTRACT, chunk)
        if isinstance(queued, tuple):
            return FactsRead(queued, self.usage)
        facts = tuple(fact for at, turn in enumerate(chunk.turns) for fact in read_facts(at, turn))
        return FactsRead(facts, self.usage, aliases=find_aliases(chunk.turns))

    async def summarise(self, interval: IntervalText) -> TextWritten:
        queued = await self._receive(Task.SUMMARISE, interval)
        text = queued if isinstance(queued, str) else shorten([child.text for child in interval.children])
        return TextWritten(text, self.usage)

    async def merge(self, members: Sequence[MemberText]) -> TextWritten:
        queued = await self._receive(Task.MERGE, tuple(members))
        text = queued if isinstance(queued, str) else " ".join(member.text for member in members)
        return TextWritten(text, self.usage)

    async def judge(self, pairs: Sequence[PairText]) -> PairsRead:
        queued = await self._receive(Task.JUDGE, tuple(pairs))
        verdict = PairVerdict(queued) if isinstance(queued, str) else PairVerdict.SAME
        return PairsRead((verdict,) * len(pairs), self.usage)

    async def _receive(self, task: Task, question: Question) -> tuple[ExtractedFact, ...] | str | None:
        call = Call(task, question)
        self.calls.append(call)
        if not self.held:
            call.answer()
        try:
            await call.let_go.wait()
        except BaseException:
            self.calls.remove(call)  # cancelled with its daemon: nobody waits any more
            raise
        if call.failure is not None:
            raise call.failure
        queued = self.queue.popleft() if self.queue else None
        if isinstance(queued, Exception):
            raise queued
        call.answered = True
        return queued


def read_facts(at: int, turn: TurnText) -> list[ExtractedFact]:
    """The facts of a turn by the rule; `at` is its place in the chunk."""
    return [_read_fact(at, turn, sentence.strip()) for sentence in _SENTENCE.findall(turn.text)]


def _read_fact(at: int, turn: TurnText, sentence: str) -> ExtractedFact:
    day = _ON_DAY.search(sentence)
    when = int(day[1]) * DAY_MS if day else turn.said_at
    mentions = tuple(Mention(m.group(), uncertain=m.start() == 0) for m in _CAPITAL.finditer(sentence))
    text = UNSTORABLE if UNREADABLE in sentence else sentence
    return ExtractedFact(text, (at,), when, when, mentions=mentions)


def shorten(texts: Sequence[str]) -> str:
    """The summary of these texts by the rule."""
    if any(UNREADABLE in text[:KEPT_CHARACTERS] for text in texts):
        return UNSTORABLE
    return "; ".join(text[:KEPT_CHARACTERS] for text in texts)


class ScriptedEmbedder:
    """Vectors from a hash of the text: equal texts are equal, all others are strangers."""

    name = "scripted"
    ranks = False
    trouble: str | None = None

    def __init__(self, dimensions: int = 16, seed: int = 0) -> None:
        self.dimensions = dimensions
        self.texts: list[str] = []
        self.questions: list[str] = []
        self._key = seed.to_bytes(8, "big")

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.texts.extend(texts)
        return np.array([self._row(text) for text in texts], dtype=np.float32).reshape(-1, self.dimensions)

    async def embed_question(self, text: str) -> Vectors:
        self.questions.append(text)
        return self._row(text)

    def _row(self, text: str) -> Vectors:
        seed = int.from_bytes(blake2b(text.encode(), key=self._key, digest_size=8).digest(), "big")
        row = np.random.default_rng(seed).normal(size=self.dimensions)
        return (row / np.linalg.norm(row)).astype(np.float32)
