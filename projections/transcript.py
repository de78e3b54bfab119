"""The turns of one user's sessions, each at its place and in its last wording, cut into chunks.

A retracted turn leaves an empty place: it still counts when the session is cut, so that no other chunk changes
(design 3.3: chunks never reopen).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable
from dataclasses import dataclass, field

from events.envelope import RecordedEvent, Reference, identify
from events.hindsight import Hindsight
from events.memory import ChunkKey
from events.session import TimeSource, TurnRecorded, TurnRevised
from events.time import Instant
from projections.facts.canonical import make_leaf_key
from projections.facts.chunking import Chunk, Cutter, make_chunk_key
from projections.texts import turn_line


@dataclass(frozen=True, slots=True)
class TurnKept:
    """A turn as the fold keeps it."""

    key: Reference
    session: Reference
    said_at: Instant
    marks: tuple[int, ...] = ()  # what filters may ask of it


@dataclass(frozen=True, slots=True)
class Cut:
    """The chunk at the end of a session after a change: still open, or closed by it.

    `turns` are the seqs of what stands in it (none: all its places are empty), `text` is what is searched.
    """

    session: Reference
    turns: tuple[int, ...]
    text: str
    chunk: Chunk | None  # once it is closed
    leaf_key: bytes


@dataclass(frozen=True, slots=True)
class Placed:
    """Where a turn stands: its place, and the event and revision that say what."""

    place: int
    seq: int
    revision: int


@dataclass(slots=True)
class _Line:
    """A turn of an open chunk, whose words are at hand until it closes."""

    seq: int
    text: str
    mark: bytes


@dataclass(slots=True)
class _Session:
    """A session being cut: all its places in order, and the lines of its open chunk."""

    cutter: Cutter
    places: list[int] = field(default_factory=list[int])
    lines: list[_Line] = field(default_factory=list[_Line])


class Transcript:
    """Takes turns and closings in the order of the log."""

    def __init__(self, chunk_turns: int, hindsight: Hindsight) -> None:
        self.turns: dict[int, TurnKept] = {}
        self.chunks: dict[ChunkKey, Chunk] = {}
        # Closed chunks that no extraction covers yet.
        self.waiting: dict[ChunkKey, Chunk] = {}
        self.placed: dict[Reference, Placed] = {}
        # Imported memories by their key, to the seq of each.
        self.memories: dict[Reference, int] = {}
        self._chunk_turns = chunk_turns
        self._hindsight = hindsight
        self._sessions: dict[Reference, _Session] = {}
        self._standing: dict[int, int] = {}
        self._covered: set[int] = set()
        self._chunk_of_turn: dict[int, ChunkKey] = {}
        self._marks: dict[tuple[int, ...], tuple[int, ...]] = {}

    def wording_of(self, recorded: RecordedEvent) -> RecordedEvent | None:
        """The event that says what is at a new place; None when this event begins none."""
        event = recorded.event
        if not isinstance(event, TurnRecorded | TurnRevised):
            return None
        turn = _turn_of(recorded, event)
        if turn in self.placed:
            return None
        standing = self._hindsight.wordings.get(turn, recorded)
        return None if standing.seq in self._hindsight.voids else standing

    def place_turn(self, recorded: RecordedEvent, standing: RecordedEvent, marks: tuple[int, ...] = ()) -> Cut:
        """A turn takes the next place of its session, in the wording that stands; `marks` are of that wording."""
        event = standing.event
        assert recorded.session is not None
        assert isinstance(event, TurnRecorded | TurnRevised)
        # An edit without a time of its own says the same thing at the same time.
        untimed = event.time_source is TimeSource.BUS
        said_at = recorded.happened_at if untimed else standing.happened_at
        # Most turns of a user carry the same few marks.
        marks = self._marks.setdefault(marks, marks)
        self.turns[standing.seq] = TurnKept(standing.key, recorded.session, said_at, marks)
        self._standing[recorded.seq] = standing.seq
        self.placed[_turn_of(standing, event)] = Placed(recorded.seq, standing.seq, event.revision)
        line = turn_line(event)
        mark = make_leaf_key(standing.nonce, 0, said_at, line)
        state = self._session(recorded.session)
        state.lines.append(_Line(standing.seq, line, mark))
        return self._place(recorded.session, state, recorded.seq)

    def place_memory(self, recorded: RecordedEvent, marks: tuple[int, ...]) -> None:
        """An imported memory is a turn of its own: facts rest on it, and it stands in no chunk."""
        assert recorded.session is not None
        marks = self._marks.setdefault(marks, marks)
        self.turns[recorded.seq] = TurnKept(recorded.key, recorded.session, recorded.happened_at, marks)
        self.memories[recorded.key] = recorded.seq

    def leave_hole(self, session: Reference, place: int) -> Cut:
        """The place of a retracted turn."""
        return self._place(session, self._session(session), place)

    def close_chunk(self, session: Reference, last_turn: int | None) -> Cut | None:
        """The open chunk of a session ends, if it has places (and none after `last_turn`)."""
        state = self._sessions.get(session)
        places = state.cutter.close(last_turn) if state else None
        return None if state is None or places is None else self._cut(session, state, places)

    def open_chunk(self, session: Reference) -> tuple[int, ...]:
        """The turns of a session that are in no closed chunk yet."""
        return tuple(line.seq for line in self._sessions[session].lines) if session in self._sessions else ()

    def context_of(self, chunk: Chunk) -> tuple[int, ...]:
        """The turn before a chunk that stands, if there is one: what its first words may refer to."""
        places = self._sessions[chunk.session].places
        for at in range(bisect_left(places, chunk.places[0]) - 1, -1, -1):
            if places[at] in self._standing:
                return (self._standing[places[at]],)
        return ()

    def chunks_of(self, turns: Iterable[int]) -> set[ChunkKey]:
        """The closed chunks that these turns stand in."""
        return {self._chunk_of_turn[seq] for seq in turns if seq in self._chunk_of_turn}

    def marks_of(self, turns: Iterable[int]) -> set[int]:
        """What filters may ask of a memory that rests on these turns."""
        return {mark for seq in turns if seq in self.turns for mark in self.turns[seq].marks}

    def cover(self, turns: Iterable[int]) -> None:
        """An extraction, or its parking, took these turns: their chunk waits no longer."""
        self._covered.update(turns)
        for key in self.chunks_of(turns):
            if key in self.waiting and self._covered.issuperset(self.chunks[key].turns):
                del self.waiting[key]

    def uncover(self, turns: Iterable[int]) -> None:
        """The parking that took these turns was undone: their chunk waits again."""
        self._covered.difference_update(turns)
        for key in self.chunks_of(turns):
            self.waiting[key] = self.chunks[key]

    def _session(self, session: Reference) -> _Session:
        return self._sessions.setdefault(session, _Session(Cutter(self._chunk_turns)))

    def _place(self, session: Reference, state: _Session, place: int) -> Cut:
        state.places.append(place)
        return self._cut(session, state, state.cutter.add_turn(place))

    def _cut(self, session: Reference, state: _Session, closed: tuple[int, ...] | None) -> Cut:
        turns = tuple(line.seq for line in state.lines)
        text = "\n".join(line.text for line in state.lines)
        leaf_key = identify(b"mf.leaf", *(line.mark for line in state.lines))
        if closed is None:
            return Cut(session, turns, text, None, leaf_key)
        state.lines.clear()
        if not turns:
            return Cut(session, (), "", None, leaf_key)
        said_at = [self.turns[seq].said_at for seq in turns]
        key = make_chunk_key(self.turns[seq].key for seq in turns)
        chunk = Chunk(key, session, turns, closed, min(said_at), max(said_at))
        self.chunks[key] = chunk
        self._chunk_of_turn.update((seq, key) for seq in turns)
        if not self._covered.issuperset(turns):
            self.waiting[key] = chunk
        return Cut(session, turns, text, chunk, leaf_key)


def _turn_of(recorded: RecordedEvent, event: TurnRecorded | TurnRevised) -> Reference:
    return recorded.key if isinstance(event, TurnRecorded) else event.turn
