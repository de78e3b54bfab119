"""Extraction: the facts of one closed chunk, the first time or again."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from functools import partial

import anyio.to_thread

from daemon.building.work import Means, Origin, WordsGone, hash_prompt, hash_request, key_of_parking
from daemon.reading.recalled import strip_chunk
from events.codec import Event
from events.envelope import NewEvent, Reference, identify
from events.memory import FactsExtracted, ParkReason, Task, Usage, WorkParked
from events.reading import read_events
from events.session import TurnRecorded, TurnRevised
from events.time import EARLIEST, LATEST, Instant
from projections.facts.chunking import Chunk
from projections.memory import Memory
from projections.ports import AnswerUnusable, ChunkText, FactsRead, TurnText

# Turns that are looked through within a millisecond or two; longer ones are, off the loop.
INLINE_CHARS_MAX = 4_000


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

    def inputs(self) -> Iterable[bytes]:
        """The chunk, what came before it, and when each turn was said, which an edit may leave as it was."""
        yield self.chunk.key
        yield from self.keys_of_context
        for seq in (*self.context, *self.chunk.turns):
            yield seq.to_bytes(8, "big") + self.said_at[seq].to_bytes(8, "big", signed=True)

    async def ask(self, means: Means) -> NewEvent:
        """The facts of the chunk as an event. What came from our own answers is not remembered again."""
        chunk = self.chunk
        recorded = await means.log.read(partial(read_events, seqs=(*self.context, *chunk.turns)))
        # An edit may have come without a time of its own; the chunk knows when the turn was said.
        turns = {seq: _turn_text(each.event, self.said_at[seq]) for seq, each in recorded.items()}
        previous = turns[self.context[-1]] if self.context else None
        said = ChunkText(tuple(turns[seq] for seq in chunk.turns), previous)
        said = await _strip(said, partial(means.given_out.knows, self.origin.user))
        means.on_read(self.origin.user, self.request)
        if any(turn.text.strip() for turn in said.turns):
            read = await means.model.extract_facts(said)
            _check(read, len(chunk.turns))
        else:
            read = FactsRead((), skipped=True)
        event = FactsExtracted(
            generation=self.origin.generation,
            chunk=chunk.key,
            turns=chunk.turns,
            context=self.context,
            covers=chunk.places,
            replaces=None if self.again is None else self.again.replaces,
            model=means.model.name,
            facts=read.facts,
            request=hash_request(self, means.model),
            prompt=hash_prompt(self, means.model),
            usage=read.usage,
            missed=read.missed,
            skipped=read.skipped,
            aliases=read.aliases,
        )
        return self._answer(event)

    def reuse(self, answered: Event) -> NewEvent | None:
        """The same facts, for this chunk once more; nothing was spent on them now."""
        if not isinstance(answered, FactsExtracted):
            return None
        return self._answer(
            replace(
                answered,
                generation=self.origin.generation,
                covers=self.chunk.places,
                replaces=None if self.again is None else self.again.replaces,
                usage=Usage(),
            )
        )

    def park(self, reason: ParkReason, usage: Usage) -> NewEvent:
        """The chunk stays searchable verbatim; its facts are given up for now."""
        covers = () if self.again else self.chunk.places  # of a replay the old extraction stays
        event = WorkParked(self.task, self.request, reason, self.chunk.turns, covers, usage)
        return self._event(event, key_of_parking(self.origin, self.request))

    def _answer(self, event: FactsExtracted) -> NewEvent:
        return self._event(event, f"facts/{self.origin.generation}/{self.request.hex()}")

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


def plan_extractions(memory: Memory, origin: Origin) -> Iterator[Extraction]:
    """The chunks that wait, in log order; then those of sessions that are extracted again."""
    for chunk in memory.waiting_chunks.values():
        yield _plan(memory, origin, chunk, None)
    for session in memory.replays.running:
        for chunk, replaces, request in memory.replays.remaining(session, memory.chunks):
            yield _plan(memory, origin, chunk, Again(replaces, request))


def preview_extraction(memory: Memory, chunk: Chunk) -> Extraction:
    """What a replay would ask about a chunk; not to be appended."""
    origin = Origin(memory.user, memory.user_id, memory.user_seq, memory.parameters.generation)
    return _plan(memory, origin, chunk, None)


def _plan(memory: Memory, origin: Origin, chunk: Chunk, again: Again | None) -> Extraction:
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


async def _strip(chunk: ChunkText, is_known: Callable[[str, Instant], bool]) -> ChunkText:
    if sum(len(turn.text) for turn in chunk.turns) <= INLINE_CHARS_MAX:
        return strip_chunk(chunk, is_known)
    return await anyio.to_thread.run_sync(strip_chunk, chunk, is_known)


def _check(read: FactsRead, turns: int) -> None:
    """Whatever an adapter let through: a fact of a turn that its chunk does not have, or of no interval."""
    if any(
        not fact.turns
        or not set(fact.turns) <= set(range(turns))
        or not EARLIEST <= fact.time_start <= fact.time_end <= LATEST
        for fact in read.facts
    ):
        raise AnswerUnusable(ParkReason.ANSWER_INVALID, read.usage)


def _turn_text(event: object, said_at: Instant) -> TurnText:
    if not isinstance(event, TurnRecorded | TurnRevised):
        raise WordsGone
    captions = [f"[{part.caption}]" for part in event.parts if part.caption]
    return TurnText(event.role, event.name, said_at, " ".join([event.content, *captions]))
