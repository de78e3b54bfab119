"""Pieces of work for a model: what is read, what is asked, and the event that the answer becomes.

Each is planned from a Memory, done without it, and appended under the basis it was planned from, so that an
answer about a session forgotten meanwhile is dropped at the gate.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from daemon.texts import join_texts, read_behind
from events.envelope import NewEvent
from events.errors import MemForestError
from events.log import EventLog
from events.memory import FactsExtracted, IntervalSummarised, ParkReason, Task, WorkParked
from events.reading import read_events
from events.session import TurnRecorded
from events.time import EARLIEST, LATEST
from projections.facts.chunking import Chunk
from projections.facts.scopes import ScopeKind
from projections.memory import Memory
from projections.memtree.forest import SummaryWork
from projections.ports import ChunkText, IntervalText, LanguageModel, MemberText, TurnText


class AnswerInvalid(MemForestError):
    """The model's answer cannot be used."""

    code = "internal"


class WordsGone(MemForestError):
    """The words this work was planned on were erased meanwhile; there is nothing left to do."""

    code = "conflict"


class Work(Protocol):
    """One piece: `request` is the same for the same question, `ask` gives the event of its answer."""

    @property
    def task(self) -> Task:
        """What is asked for."""
        ...

    @property
    def request(self) -> bytes:
        """Hash over ids, never over words: one in flight, one recorded answer."""
        ...

    async def ask(self, log: EventLog, model: LanguageModel) -> NewEvent:
        """Ask the model. Raises `WordsGone`, `AnswerInvalid`, and whatever the model's adapter raises."""
        ...

    def park(self, reason: ParkReason) -> NewEvent:
        """The event that puts the work aside."""
        ...


@dataclass(frozen=True, slots=True)
class Origin:
    """For whom a piece of work is done and from which user_seq it was planned."""

    user_id: str
    basis: int
    generation: int


@dataclass(frozen=True, slots=True)
class Extraction:
    """Read the facts of one closed chunk."""

    origin: Origin
    chunk: Chunk
    session_id: str

    task = Task.EXTRACT

    @property
    def request(self) -> bytes:
        """The chunk's key: the same turns, the same question."""
        return self.chunk.key

    async def ask(self, log: EventLog, model: LanguageModel) -> NewEvent:
        """The facts of the chunk as an event."""
        seqs = self.chunk.turns if self.chunk.previous is None else (self.chunk.previous, *self.chunk.turns)
        recorded = await log.read(partial(read_events, seqs=seqs))
        turns = {seq: _turn_text(event.event, event.happened_at) for seq, event in recorded.items()}
        previous = None if self.chunk.previous is None else turns.get(self.chunk.previous)
        facts = await model.extract_facts(ChunkText(tuple(turns[seq] for seq in self.chunk.turns), previous))
        if any(not fact.turns or not set(fact.turns) <= set(range(len(self.chunk.turns))) for fact in facts):
            raise AnswerInvalid("a fact names a turn that its chunk does not have")
        if any(not EARLIEST <= fact.time_start <= fact.time_end <= LATEST for fact in facts):
            raise AnswerInvalid("a fact's interval ends before it starts, or is no date")
        event = FactsExtracted(self.origin.generation, self.chunk.key, self.chunk.turns, model.name, facts)
        return self._event(event, f"facts/{self.origin.generation}/{self.request.hex()}")

    def park(self, reason: ParkReason) -> NewEvent:
        """The chunk stays searchable verbatim; its facts are given up for now."""
        event = WorkParked(self.task, self.request, reason, self.chunk.turns)
        return self._event(event, f"parked/{self.origin.generation}/{self.request.hex()}")

    def _event(self, event: FactsExtracted | WorkParked, key: str) -> NewEvent:
        return NewEvent(
            user_id=self.origin.user_id,
            session_id=self.session_id,
            event=event,
            key=key,
            happened_at=self.chunk.time_end,
            lineage=(self.chunk.session,),
            basis=self.origin.basis,
            caused_by=self.chunk.turns[-1],
        )


@dataclass(frozen=True, slots=True)
class Summary:
    """Summarise one tree node whose children have their texts."""

    origin: Origin
    node: SummaryWork
    scope_name: str

    task = Task.SUMMARISE

    @property
    def request(self) -> bytes:
        """The node's digest: the same children, the same summary."""
        return self.node.digest

    async def ask(self, log: EventLog, model: LanguageModel) -> NewEvent:
        """The summary of the node as an event."""
        refs = [ref for child in self.node.children for ref in child.refs]
        recorded = await read_behind(log, refs)
        children: list[MemberText] = []
        for child in self.node.children:
            text = join_texts(child.refs, recorded)
            if text is None:
                raise WordsGone
            children.append(MemberText(text, child.time_start, child.time_end))
        text = await model.summarise(IntervalText(self.scope_name, tuple(children)))
        if not text.strip():
            raise AnswerInvalid("the summary is empty")
        event = IntervalSummarised(self.origin.generation, self.node.digest, model.name, text)
        return self._event(event, f"summary/{self.origin.generation}/{self.request.hex()}")

    def park(self, reason: ParkReason) -> NewEvent:
        """The node goes without a summary; its parent waits with it."""
        event = WorkParked(self.task, self.request, reason)
        return self._event(event, f"parked/{self.origin.generation}/{self.request.hex()}")

    def _event(self, event: IntervalSummarised | WorkParked, key: str) -> NewEvent:
        return NewEvent(
            user_id=self.origin.user_id,
            session_id=None,
            event=event,
            key=key,
            happened_at=max(child.time_end for child in self.node.children),
            lineage=tuple(sorted(self.node.lineage)),
            basis=self.origin.basis,
        )


def plan_extractions(memory: Memory, origin: Origin) -> Iterator[Extraction]:
    """The chunks that wait, in log order."""
    return (
        Extraction(origin, chunk, memory.session_ids[chunk.session]) for chunk in memory.waiting_chunks.values()
    )


def plan_summaries(memory: Memory, origin: Origin) -> Iterator[Summary]:
    """The nodes that can be summarised now."""
    for node in memory.forest.plan_summaries():
        kind, name = node.scope
        shown = memory.session_ids[bytes.fromhex(name)] if kind is ScopeKind.SESSION else name or "user"
        yield Summary(origin, node, shown)


def _turn_text(event: object, said_at: int) -> TurnText:
    if not isinstance(event, TurnRecorded):
        raise WordsGone
    captions = [f"[{part.caption}]" for part in event.parts if part.caption]
    return TurnText(event.role, event.name, said_at, " ".join([event.content, *captions]))
