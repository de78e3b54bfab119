"""A Memory without words, to be kept and taken up again where it was: freezing it, and thawing it.

This is the other half of every part of a Memory, so it reads and sets what is otherwise theirs alone. A part that
grows an attribute belongs in here, too; tests/projections/test_snapshot.py compares all of them.
"""

# pyright: reportPrivateUsage=false

from __future__ import annotations

import unicodedata
from collections.abc import Generator, Iterator
from typing import Final

import msgspec

from events.decisions import GenerationPromoted
from events.envelope import Reference, identify
from events.session import TurnRecorded, TurnRevised
from projections.facts.chunking import Chunk
from projections.frozen import Reader, Row, Section, SnapshotUnusable, Sources, Writer
from projections.frozen_facts import freeze_placement, thaw_placement
from projections.frozen_trees import freeze_forest, thaw_forest
from projections.memory import Memory, MemoryParameters
from projections.recall.nodes import NodeSet
from projections.recall.state import NodeSetState
from projections.replays import Replay, Replays, _Extraction
from projections.steps import Steps, at_once
from projections.texts import turn_line
from projections.transcript import Placed, Transcript, TurnKept, _Line

__all__ = [
    "Reader",
    "SnapshotUnusable",
    "Sources",
    "can_freeze",
    "freeze",
    "made_by",
    "thaw",
    "thaw_nodes",
    "words_of_format",
]

# Raised with every change of what a snapshot holds or means.
FORMAT: Final = 7
_NODES: Final = "nodes"


def made_by(parameters: MemoryParameters, release: str) -> bytes:
    """What decides how a snapshot looks, as a hash: one that was made by anything else is not used."""
    return identify(
        b"mf.snapshot",
        str(FORMAT).encode(),
        repr(parameters).encode(),
        release.encode(),
        unicodedata.unidata_version.encode(),
    )


def can_freeze(memory: Memory) -> bool:
    """Whether a Memory is what a fold of the log gives: nothing is hidden in it, and nothing is left out."""
    return memory.user_seq > 0 and not (
        memory.needs_rebuild or memory._frozen or memory.hidden or memory.hidden_turns
    )


def words_of_format() -> bytes:
    """What stands in every snapshot, whoever's it is: one of a Memory in which there is nothing."""
    memory = Memory(bytes(16), MemoryParameters())
    memory.user_seq = 1
    return at_once(freeze(memory))


def freeze(memory: Memory) -> Steps[bytes]:
    """The snapshot of a Memory that nothing is folded into meanwhile.

    Made piece by piece: others may run at each yield. Raises `SnapshotUnusable` for one that cannot be frozen.
    """
    if not can_freeze(memory):
        raise SnapshotUnusable
    user_seq = memory.user_seq
    memory.forest.dirty_count()  # what is found on looking is found now
    writer = Writer(memory.user)
    nodes = yield from memory.nodes.freeze()
    content = yield from writer.write(_sections(memory, writer, nodes))
    if not can_freeze(memory) or memory.user_seq != user_seq:
        raise SnapshotUnusable
    return content


def thaw(reader: Reader, sources: Sources, memory: Memory) -> Generator[None, None, None]:
    """Make an empty Memory what the frozen one was, but for `thaw_nodes`. Others may run at each yield.

    The Memory's hindsight must have nothing in it that was undone since. Raises `SnapshotUnusable`.
    """
    yield from reader.resolve(sources)
    for batch in reader.batches("head"):
        for user_seq, closings, retracted, promoted_at in batch:
            memory.user_seq, memory.closings = user_seq, closings
            memory._retracted = set(reader.ids(retracted))
            memory.promoted, memory.promoted_at = _read_promotion(reader, promoted_at), promoted_at
    memory.user_id = sources.names.get(memory.user, "")
    for batch in reader.batches("sessions"):
        for (number,) in batch:
            session = reader.id(number)
            memory.session_ids[session] = sources.names.get(session, "")
    for batch in reader.batches("active"):
        memory.active_sessions.update((reader.id(number), at) for number, at in batch)
    yield from _thaw_transcript(reader, memory.transcript)
    yield from thaw_forest(reader, memory.forest)
    yield from thaw_placement(reader, memory.placement)
    yield from _thaw_replays(reader, memory.replays)


def thaw_nodes(reader: Reader, memory: Memory) -> None:
    """The last step of thawing: what is searched. A few dozen milliseconds in one piece, for any thread."""
    for ((state,),) in reader.batches(_NODES):
        frozen = msgspec.msgpack.decode(state, type=NodeSetState)
        nodes = NodeSet.thaw(frozen, memory.user, memory.parameters.search)
        memory.placement._nodes = memory.placement.groups._nodes = memory.nodes = nodes
        memory.placement.mark_names(memory.scopes.aliases.groups().keys())


def _sections(memory: Memory, w: Writer, nodes: NodeSetState) -> Iterator[Section]:
    promoted_at = w.read_again(memory.promoted_at) if memory.promoted else 0
    yield "head", [(memory.user_seq, memory.closings, w.ids(sorted(memory._retracted)), promoted_at)]
    yield "sessions", (w.name(session) for session in memory.session_ids)
    yield "active", ((w.id(session), at) for session, at in memory.active_sessions.items())
    yield from _freeze_transcript(memory.transcript, w)
    yield from freeze_forest(memory.forest, w)
    yield from freeze_placement(memory.placement, w)
    yield from _freeze_replays(memory.replays, w)
    yield _NODES, [(msgspec.msgpack.encode(nodes),)]


def _read_promotion(r: Reader, seq: int) -> GenerationPromoted | None:
    event = r.event(seq).event if seq else None
    if not isinstance(event, GenerationPromoted | None):
        raise SnapshotUnusable
    return event


def _freeze_transcript(transcript: Transcript, w: Writer) -> Iterator[Section]:
    marks = {each: n for n, each in enumerate(transcript._marks)}
    yield "marks", ((each,) for each in marks)
    yield (
        "turns",
        (
            (seq, w.id(turn.key), w.id(turn.session), turn.said_at, marks[turn.marks])
            for seq, turn in transcript.turns.items()
        ),
    )
    yield (
        "chunks",
        (
            (w.id(key), w.id(chunk.session), chunk.turns, chunk.places, chunk.time_start, chunk.time_end)
            for key, chunk in transcript.chunks.items()
        ),
    )
    yield "waiting_chunks", ((w.id(key),) for key in transcript.waiting)
    yield (
        "placed",
        ((w.id(turn), each.place, each.seq, each.revision) for turn, each in transcript.placed.items()),
    )
    yield "memories", ((w.id(key), seq) for key, seq in transcript.memories.items())
    yield "standing", transcript._standing.items()
    yield "covered", ((seq,) for seq in sorted(transcript._covered))
    yield "cuts", (_freeze_cut(session, transcript, w) for session in transcript._sessions)


def _freeze_cut(session: Reference, transcript: Transcript, w: Writer) -> Row:
    state = transcript._sessions[session]
    lines = [(w.read_again(line.seq), line.mark) for line in state.lines]
    return w.id(session), state.cutter.open, state.places, lines


def _thaw_transcript(r: Reader, transcript: Transcript) -> Iterator[None]:
    marks = [tuple(each) for batch in r.batches("marks") for (each,) in batch]
    transcript._marks.update((each, each) for each in marks)
    for batch in r.batches("turns"):
        transcript.turns.update(
            (seq, TurnKept(r.id(key), r.id(session), said_at, marks[n])) for seq, key, session, said_at, n in batch
        )
        yield
    for batch in r.batches("chunks"):
        for number, session, turns, places, time_start, time_end in batch:
            key = r.id(number)
            chunk = Chunk(key, r.id(session), tuple(turns), tuple(places), time_start, time_end)
            transcript.chunks[key] = chunk
            transcript._chunk_of_turn.update(dict.fromkeys(chunk.turns, key))
        yield
    for batch in r.batches("waiting_chunks"):
        keys = [r.id(number) for (number,) in batch]
        transcript.waiting.update((key, transcript.chunks[key]) for key in keys)
    for batch in r.batches("placed"):
        transcript.placed.update((r.id(turn), Placed(*each)) for turn, *each in batch)
        yield
    for batch in r.batches("memories"):
        transcript.memories.update((r.id(key), seq) for key, seq in batch)
    for batch in r.batches("standing"):
        transcript._standing.update(batch)
        yield
    for batch in r.batches("covered"):
        transcript._covered.update(seq for (seq,) in batch)
    for batch in r.batches("cuts"):
        for number, places_open, places, lines in batch:
            state = transcript._session(r.id(number))
            state.cutter.open.extend(places_open)
            state.places.extend(places)
            state.lines.extend(_Line(seq, _read_line(r, seq), mark) for seq, mark in lines)
        yield


def _read_line(r: Reader, seq: int) -> str:
    event = r.event(seq).event
    if not isinstance(event, TurnRecorded | TurnRevised):
        raise SnapshotUnusable
    return turn_line(event)


def _freeze_replays(replays: Replays, w: Writer) -> Iterator[Section]:
    yield (
        "replays",
        (
            (w.id(session), replay.started, list(replay.replaced.items()))
            for session, replay in replays.running.items()
        ),
    )
    yield (
        "extractions",
        (
            (w.id(chunk), None if each.session is None else w.id(each.session), each.seq, each.user_seq)
            for chunk, each in replays._standing.items()
        ),
    )
    yield "parked_replays", ((request,) for request in sorted(replays._parked))


def _thaw_replays(r: Reader, replays: Replays) -> Iterator[None]:
    for batch in r.batches("replays"):
        for session, started, replaced in batch:
            replays.running[r.id(session)] = Replay(started, dict(replaced))
    for batch in r.batches("extractions"):
        for chunk, session, seq, user_seq in batch:
            replays._standing[r.id(chunk)] = _Extraction(None if session is None else r.id(session), seq, user_seq)
        yield
    for batch in r.batches("parked_replays"):
        replays._parked.update(request for (request,) in batch)
