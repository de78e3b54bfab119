"""The sweep of the chunk size b: what facts keep of answers and names, and what recall finds."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import chain
from statistics import fmean
from typing import Final, TypeAlias

from daemon.offline.extraction import extract_facts
from events.memory import ExtractedFact
from memforest.bench.evidence import recall_at, recall_within
from projections.facts.labels import normalise_label
from projections.memory import MemoryParameters
from projections.ports import ChunkText, TurnText
from projections.recall.agpr import NO_EMBEDDER
from projections.recall.tokens import terms
from tests.quality.growing import content_of, events_of, gardener
from tests.quality.in_process import Remembered, read_remembered
from tests.quality.locomo import Category, Conversation, Question, Session
from tests.quality.measure import recall_worded
from tests.quality.tables import Cell, Table

# The whole session is one chunk of more turns than any has.
SESSION: Final = 1_000
SIZES: Final = (1, 2, 4, 8, 16, SESSION)
# What the public code's prompt asks a model for, whatever the call is given to read: 5 to 8 facts. (Its parser
# keeps max(15, 15 b / 2), which hardly ever cuts: reference-code.md 1.)
FACTS_ASKED_FOR: Final = (5, 8)
CHARACTERS: Final = 4_000

_NAME = re.compile(r"(?<=[\w,] )[A-Z]\w*[a-z]\w*")
# Who is called Melanie is also called Mel and Mell.
CALLED_CHARS: Final = 3
_CALENDAR = re.compile(
    "(mon|tues|wednes|thurs|fri|satur|sun)(day)?"
    "|january|february|march|april|may|june|july|aug(ust)?|sept(ember)?|oct(ober)?|nov(ember)?|dec(ember)?"
)

Extractor: TypeAlias = Callable[[ChunkText], Sequence[ExtractedFact]]


@dataclass(frozen=True, slots=True)
class Extracted:
    """The facts of a conversation, each with the turns it rests on; the calls and CPU seconds they took."""

    facts: tuple[tuple[frozenset[str], ExtractedFact], ...]
    calls: int
    cpu_s: float

    def by_turn(self) -> dict[str, list[ExtractedFact]]:
        """The facts that rest on each turn."""
        found: dict[str, list[ExtractedFact]] = {}
        for turn_ids, fact in self.facts:
            for turn_id in turn_ids:
                found.setdefault(turn_id, []).append(fact)
        return found


def extract_at_most(count: int, chunk: ChunkText) -> Sequence[ExtractedFact]:
    """In place of a model that writes so many facts a call: those of the rules with the most different terms."""
    facts = extract_facts(chunk)
    ranked = sorted(range(len(facts)), key=lambda n: (-len(set(terms(facts[n].text))), n))
    return [facts[n] for n in sorted(ranked[:count])]


def read_facts(conversation: Conversation, chunk_turns: int, extract: Extractor) -> Extracted:
    """The facts of a conversation, cut into chunks of so many turns."""
    found: list[tuple[frozenset[str], ExtractedFact]] = []
    calls = 0
    cpu_s = 0.0
    for session in conversation.sessions:
        for turn_ids, chunk in _chunks(session, chunk_turns):
            began = time.thread_time()
            facts = extract(chunk)
            cpu_s += time.thread_time() - began
            calls += 1
            found += [(frozenset(turn_ids[position] for position in fact.turns), fact) for fact in facts]
    return Extracted(tuple(found), calls, cpu_s)


def _chunks(session: Session, chunk_turns: int) -> Iterator[tuple[list[str], ChunkText]]:
    said = [TurnText("user", turn.speaker, turn.said_at, content_of(turn)) for turn in session.turns]
    ids = [turn.turn_id for turn in session.turns]
    for at in range(0, len(said), chunk_turns):
        chunk = ChunkText(tuple(said[at : at + chunk_turns]), said[at - 1] if at else None)
        yield ids[at : at + chunk_turns], chunk


def answer_retention(questions: Iterable[Question], extracted: Extracted) -> list[float]:
    """Of each gold turn that says something of the answer, the share of that which its facts say.

    What it says of the answer are the answer's terms that stand in the turn: words, numbers, dates and names,
    stemmed, without stop words. What its facts say are the terms of all facts that rest on it.
    """
    facts = extracted.by_turn()
    return [
        len(words.intersection(*[_terms_of(facts.get(turn_id, ()))])) / len(words)
        for question in questions
        for turn_id, words in question.words.items()
        if words
    ]


def name_retention(conversation: Conversation, extracted: Extracted) -> list[bool]:
    """For every name in a turn whether a fact of the turn mentions it.

    A name is a word with a capital behind another word or a comma: a measure that knows nothing of the extractor.
    Left out are days and months, which facts keep as their time, and the speakers' own names, with which they
    mostly call each other ("Thanks, Mel!"). It is mentioned when it is a word of a label.
    """
    facts = extracted.by_turn()
    speakers = {turn.speaker.casefold() for session in conversation.sessions for turn in session.turns}
    kept: list[bool] = []
    for session in conversation.sessions:
        for turn in session.turns:
            labels = {label for fact in facts.get(turn.turn_id, ()) for label in _labels_of(fact)}
            names = map(normalise_label, _NAME.findall(content_of(turn)))
            kept += [name in labels for name in names if not _is_left_out(name, speakers)]
    return kept


def _is_left_out(name: str, speakers: Iterable[str]) -> bool:
    called = any(speaker.startswith(name[:CALLED_CHARS]) for speaker in speakers)
    return called or _CALENDAR.fullmatch(name) is not None


def _terms_of(facts: Iterable[ExtractedFact]) -> frozenset[str]:
    return frozenset(chain.from_iterable(terms(fact.text) for fact in facts))


def _labels_of(fact: ExtractedFact) -> set[str]:
    return {word for mention in fact.mentions for word in normalise_label(mention.label).split()}


async def _remember(conversation: Conversation, chunk_turns: int) -> Remembered:
    async with gardener(MemoryParameters(chunk_turns=chunk_turns)) as growing:
        for events in events_of(conversation):
            await growing.grow(events, conversation.conversation_id)
        return await read_remembered(growing.log, growing.memories, conversation)


@dataclass(frozen=True, slots=True)
class Found:
    """What recall finds of a question's evidence: R@10, b4000 and w4000 (`tests.quality.measure`)."""

    recall_10: float
    within: float
    worded: float


async def recall_of(conversations: Iterable[Conversation], chunk_turns: int) -> list[Found]:
    """Every answerable question put to a Memory with chunks of so many turns, without an embedder."""
    found: list[Found] = []
    for conversation in conversations:
        remembered = await _remember(conversation, chunk_turns)
        for question in conversation.questions:
            if question.category != Category.ADVERSARIAL:
                ten = remembered.first(question.text, 10, NO_EMBEDDER, None)
                fitting = remembered.fitting(question.text, CHARACTERS, NO_EMBEDDER, None)
                found.append(
                    Found(
                        recall_at(ten, question.gold, 10),
                        recall_within(fitting, question.gold, CHARACTERS),
                        recall_worded(fitting, question, CHARACTERS),
                    )
                )
    return found


async def sweep_chunks(conversations: Sequence[Conversation], sizes: Iterable[int] = SIZES) -> tuple[Table, Table]:
    """Facts and recall under each chunk size; and the facts of models that write so many a call."""
    recall: list[Sequence[Cell]] = []
    models: list[Sequence[Cell]] = []
    for size in sizes:
        b = "session" if size == SESSION else size
        whole = _Kept.of(conversations, size, extract_facts)
        found = await recall_of(conversations, size)
        means = (100 * fmean(getattr(each, name) for each in found) for name in ("recall_10", "within", "worded"))
        recall.append((b, whole.facts, whole.facts / whole.cpu_s, *whole.shares(), *means))
        for count in FACTS_ASKED_FOR:
            kept = _Kept.of(conversations, size, partial(extract_at_most, count))
            models.append(
                (count, b, kept.calls, kept.facts, kept.facts / _sessions(conversations), *kept.shares())
            )
    shares = ("answer's terms", "whole answers", "names")
    return (
        Table(
            "Chunk size b: the offline extractor, and core recall",
            ("b", "facts", "facts a CPU second", *shares, "R@10", "b4000", "w4000"),
            recall,
        ),
        Table(
            "Chunk size b: the offline extractor with a limit of facts a call, in place of a model",
            ("facts a call", "b", "calls", "facts", "facts a session and call time", *shares),
            sorted(models, key=lambda row: row[0]),
        ),
    )


def _sessions(conversations: Iterable[Conversation]) -> int:
    """How many there are; all chunks of one are asked about at once, in the time of one call."""
    return sum(len(each.sessions) for each in conversations)


@dataclass(frozen=True, slots=True)
class _Kept:
    """What an extractor keeps of some conversations."""

    facts: int
    calls: int
    cpu_s: float
    answers: list[float]
    names: list[bool]

    @classmethod
    def of(cls, conversations: Iterable[Conversation], size: int, extract: Extractor) -> _Kept:
        """Extract them all in chunks of a size."""
        read = [(each, read_facts(each, size, extract)) for each in conversations]
        return cls(
            sum(len(extracted.facts) for _, extracted in read),
            sum(extracted.calls for _, extracted in read),
            sum(extracted.cpu_s for _, extracted in read),
            [share for each, extracted in read for share in answer_retention(each.questions, extracted)],
            [kept for each, extracted in read for kept in name_retention(each, extracted)],
        )

    def shares(self) -> tuple[float, float, float]:
        """In percent: of the answer's terms, of the turns all of whose terms are there, of the names."""
        whole = fmean(share == 1 for share in self.answers)
        return 100 * fmean(self.answers), 100 * whole, 100 * fmean(self.names)
