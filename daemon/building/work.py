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
from events.envelope import NewEvent, Reference, identify
from events.errors import MemForestError
from events.log import EventLog
from events.memory import FactsExtracted, IntervalSummarised, ParkReason, Task, WorkParked
from events.reading import read_events
from events.session import TurnRecorded, TurnRevised
from events.time import EARLIEST, LATEST, Instant
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
class Again:
    """Marks an extraction of a replay: the one it is to replace, and the request that asks for it."""

    replaces: int
    request: bytes


@dataclass(frozen=True, slots=True)
class Extraction:
    """Read the facts of one closed chunk."""

    origin: Origin
    chunk: Chunk
    context: tuple[int, ...]
    keys_of_context: tuple[Reference, ...]
    said_at: dict[int, Instant]
    session_id: str
    again: Again | None = None

    task = Task.EXTRACT

    @property
    def request(self) -> bytes:
        """The same turns after the same context, the same question, unless a replay asks it anew."""
        if self.again is not None:
            return self.again.request
        return identify(b"mf.extraction", self.chunk.key, *self.keys_of_context)

    async def ask(self, log: EventLog, model: LanguageModel) -> NewEvent:
        """The facts of the chunk as an event."""
        chunk = self.chunk
        recorded = await log.read(partial(read_events, seqs=(*self.context, *chunk.turns)))
        # An edit may have come without a time of its own; the chunk knows when the turn was said.
        turns = {seq: _turn_text(each.event, self.said_at[seq]) for seq, each in recorded.items()}
        previous = turns[self.context[-1]] if self.context else None
        facts = await model.extract_facts(ChunkText(tuple(turns[seq] for seq in chunk.turns), previous))
        if any(not fact.turns or not set(fact.turns) <= set(range(len(chunk.turns))) for fact in facts):
            raise AnswerInvalid("a fact names a turn that its chunk does not have")
        if any(not EARLIEST <= fact.time_start <= fact.time_end <= LATEST for fact in facts):
            raise AnswerInvalid("a fact's interval ends before it starts, or is no date")
        event = FactsExtracted(
            generation=self.origin.generation,
            chunk=chunk.key,
            turns=chunk.turns,
            context=self.context,
            covers=chunk.places,
            replaces=None if self.again is None else self.again.replaces,
            model=model.name,
            facts=facts,
        )
        return self._event(event, f"facts/{self.origin.generation}/{self.request.hex()}")

    def park(self, reason: ParkReason) -> NewEvent:
        """The chunk stays searchable verbatim; its facts are given up for now."""
        covered = ((), ()) if self.again else (self.chunk.turns, self.chunk.places)
        event = WorkParked(self.task, self.request, reason, *covered)
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
        sources = tuple(sorted(recorded))
        event = IntervalSummarised(self.origin.generation, self.node.digest, sources, model.name, text)
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
    """The chunks that wait, in log order; then those of sessions that are extracted again."""
    for chunk in memory.waiting_chunks.values():
        yield _extraction(memory, origin, chunk, None)
    for session in memory.replays.running:
        for chunk, replaces, request in memory.replays.remaining(session, memory.chunks):
            yield _extraction(memory, origin, chunk, Again(replaces, request))


def _extraction(memory: Memory, origin: Origin, chunk: Chunk, again: Again | None) -> Extraction:
    context = memory.transcript.context_of(chunk)
    return Extraction(
        origin=origin,
        chunk=chunk,
        context=context,
        keys_of_context=tuple(memory.turns[seq].key for seq in context),
        said_at={seq: memory.turns[seq].said_at for seq in (*context, *chunk.turns)},
        session_id=memory.session_ids[chunk.session],
        again=again,
    )


def plan_summaries(memory: Memory, origin: Origin) -> Iterator[Summary]:
    """The nodes that can be summarised now."""
    for node in memory.forest.plan_summaries():
        kind, name = node.scope
        shown = memory.session_ids[bytes.fromhex(name)] if kind is ScopeKind.SESSION else name or "user"
        yield Summary(origin, node, shown)


def _turn_text(event: object, said_at: int) -> TurnText:
    if not isinstance(event, TurnRecorded | TurnRevised):
        raise WordsGone
    captions = [f"[{part.caption}]" for part in event.parts if part.caption]
    return TurnText(event.role, event.name, said_at, " ".join([event.content, *captions]))
