"""Memory: everything that is known of one user, folded from the log event by event.

The fold depends on the log and on its parameters alone: no clock, no set order, no model. It keeps
structure and no texts, so an answer reads its texts from the log.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from events.codec import Event
from events.envelope import RecordedEvent, Reference, identify
from events.errors import LogDamaged
from events.memory import (
    ChunkKey,
    FactId,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    NodesMerged,
    Pointer,
    Task,
    UnitsPartitioned,
    WorkParked,
)
from events.session import ChunkClosed, SessionClosed, SessionForgotten, TurnRecorded
from events.time import Instant
from projections.eventtree.units import Group, Units
from projections.facts.canonical import Canon, Fact, make_leaf_key, read_occurrences
from projections.facts.chunking import Chunk, Cutter, make_chunk_key
from projections.facts.scopes import EntityScopes, Scope, ScopeKind
from projections.memtree.forest import Forest, LeafText
from projections.memtree.shape import TreeShape
from projections.memtree.tree import Leaf
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.texts import FactText, TurnsText, WrittenText, turn_line


@dataclass(frozen=True, slots=True)
class MemoryParameters:
    """What the fold depends on besides the log. Other parameters are another generation."""

    chunk_turns: int = 2  # b, paper B Eq. B5
    shape: TreeShape = field(default_factory=TreeShape)  # k
    concatenation_max: int = 800  # characters; ours: a short node needs no model call
    generation: int = 1


@dataclass(frozen=True, slots=True)
class TurnKept:
    """A turn as the fold keeps it."""

    key: Reference
    session: Reference
    said_at: Instant


@dataclass(slots=True)
class _Session:
    """A session being cut; `texts` holds the lines of the open chunk only, `nonce` that of its first turn."""

    cutter: Cutter
    texts: list[str] = field(default_factory=list[str])
    nonce: bytes = b""
    previous: int | None = None  # the last turn of the chunk before


class Memory:
    """The fold of one user. `apply` events in the order of user_seq; read the parts."""

    def __init__(
        self,
        user: Reference,
        parameters: MemoryParameters,
        tombstones: Mapping[Reference, int] | None = None,
    ) -> None:
        """`tombstones`: forgotten session to the user_seq of its SessionForgotten, known before folding."""
        self.user = user
        self.parameters = parameters
        self.user_seq = 0
        self.user_id = ""
        self.session_ids: dict[Reference, str] = {}
        # Sessions with turns after their last closing, and when the last of these was recorded.
        self.active_sessions: dict[Reference, Instant] = {}
        # user_seq of the last SessionClosed: refresh is due when it grew. A count would fall with forgetting.
        self.closings = 0
        self.turns: dict[int, TurnKept] = {}
        self.chunks: dict[ChunkKey, Chunk] = {}
        self.canon = Canon()
        self.scopes = EntityScopes()
        self.forest = Forest(parameters.shape, parameters.concatenation_max)
        self.units = Units()
        self.nodes = NodeSet()
        # Which facts stand in the tree of each entity scope (and of `user`) now.
        self.members: dict[Scope, set[FactId]] = {}
        # Closed chunks that no extraction covers yet.
        self.waiting_chunks: dict[ChunkKey, Chunk] = {}
        # Sessions forgotten since this Memory was begun: never shown, and gone once it is folded again.
        self.hidden: frozenset[Reference] = frozenset()
        self._tombstones = dict(tombstones or {})
        self._sessions: dict[Reference, _Session] = {}
        self._covered: set[int] = set()
        self._chunk_of_turn: dict[int, ChunkKey] = {}
        # Texts of facts between extraction and admission, when they are indexed.
        self._waiting_texts: dict[Pointer, str] = {}

    def apply(self, recorded: RecordedEvent) -> None:
        """Take the next event.

        Raises `LogDamaged` when it is not the next one, or when its words are gone without a tombstone.
        """
        if recorded.user_seq != self.user_seq + 1:
            raise LogDamaged(f"user_seq {recorded.user_seq} came after {self.user_seq}")
        if not self.is_voided(recorded):
            if recorded.event is None:
                raise LogDamaged(f"the words of the event at seq {recorded.seq} are gone, and nothing says why")
            handler = _HANDLERS.get(type(recorded.event))
            if handler is not None:
                handler(self, recorded, recorded.event)
        self.user_seq = recorded.user_seq
        self.user_id = recorded.user_id or self.user_id

    def is_voided(self, recorded: RecordedEvent) -> bool:
        """Whether a session in its lineage was forgotten later: then it is as if it had never been."""
        return any(recorded.user_seq < self._tombstones.get(session, 0) for session in recorded.lineage)

    @property
    def needs_rebuild(self) -> bool:
        """Whether something was forgotten that is folded in; until then it is only hidden."""
        return bool(self.hidden)

    def pending(self) -> int:
        """Chunks to extract, facts to admit and nodes to summarise (design 4.2)."""
        return len(self.waiting_chunks) + len(self.canon.waiting) + self.forest.dirty_count()

    def open_chunk(self, session: Reference) -> tuple[int, ...]:
        """The turns of a session that are in no closed chunk yet."""
        return tuple(self._sessions[session].cutter.open) if session in self._sessions else ()

    def close_session(self, recorded: RecordedEvent, _: SessionClosed) -> None:
        """The session is over: its open chunk ends and what it changed is due for refresh."""
        assert recorded.session is not None
        self.active_sessions.pop(recorded.session, None)
        self.closings = recorded.user_seq
        self.close_chunk(recorded.session, None)

    def record_turn(self, recorded: RecordedEvent, turn: TurnRecorded) -> None:
        """A turn joins the open chunk of its session, which can be asked for at once."""
        assert recorded.session is not None
        self.session_ids[recorded.session] = recorded.session_id or ""
        self.active_sessions[recorded.session] = recorded.recorded_at
        self.turns[recorded.seq] = TurnKept(recorded.key, recorded.session, recorded.happened_at)
        state = self._sessions.setdefault(recorded.session, _Session(Cutter(self.parameters.chunk_turns)))
        if not state.cutter.open:
            state.nonce = recorded.nonce
        else:
            self.nodes.remove(_open_id(recorded.session))
        state.texts.append(turn_line(turn))
        complete = state.cutter.add_turn(recorded.seq)
        self._index_chunk(recorded.session, state, complete)
        self._set_scopes(self.scopes.count_turn(turn.content, turn.role, turn.name))

    def close_chunk(self, session: Reference, last_turn: int | None) -> None:
        """The open chunk of a session ends, if it has turns (and none after `last_turn`)."""
        state = self._sessions.get(session)
        complete = state.cutter.close(last_turn) if state else None
        if state is not None and complete is not None:
            self.nodes.remove(_open_id(session))
            self._index_chunk(session, state, complete)

    def _index_chunk(self, session: Reference, state: _Session, closed: tuple[int, ...] | None) -> None:
        turns = closed or tuple(state.cutter.open)
        text = "\n".join(state.texts)
        said_at = [self.turns[seq].said_at for seq in turns]
        key = make_chunk_key(self.turns[seq].key for seq in turns)
        chunk = Chunk(key, session, turns, min(said_at), max(said_at), state.previous)
        node = SearchNode(
            id=key if closed else _open_id(session),
            kind=NodeKind.CHUNK,
            ref=TurnsText(turns),
            turns=turns,
            sessions=frozenset((session,)),
            said_at=said_at[0],
            time_start=chunk.time_start,
            time_end=chunk.time_end,
            length=len(text),
        )
        self.nodes.add(node, text)
        if closed:
            state.texts.clear()
            state.previous = turns[-1]
            self._keep_chunk(chunk, node, make_leaf_key(state.nonce, 0, chunk.time_start, text))

    def _keep_chunk(self, chunk: Chunk, node: SearchNode, leaf_key: bytes) -> None:
        self.chunks[chunk.key] = chunk
        self._chunk_of_turn.update((seq, chunk.key) for seq in chunk.turns)
        if not self._covered.issuperset(chunk.turns):
            self.waiting_chunks[chunk.key] = chunk
        scope = Scope(ScopeKind.SESSION, chunk.session.hex())
        leaf = Leaf(chunk.time_start, leaf_key, chunk.time_end)
        self.forest.change(scope, [(leaf, LeafText(node.ref, node.length, node.sessions))])

    def extract_facts(self, recorded: RecordedEvent, event: FactsExtracted) -> None:
        """The facts of a chunk wait for their admission, with their texts at hand for indexing."""
        self.cover_turns(event.turns)
        said_at = {seq: self.turns[seq].said_at for seq in event.turns}
        occurrences = read_occurrences(recorded, event, said_at)
        self.canon.add_occurrences(occurrences)
        self._waiting_texts.update(
            (occurrence.pointer, fact.text) for occurrence, fact in zip(occurrences, event.facts, strict=True)
        )

    def cover_turns(self, turns: tuple[int, ...]) -> None:
        """An extraction, or its parking, took these turns: their chunk waits no longer."""
        self._covered.update(turns)
        for key in {self._chunk_of_turn[seq] for seq in turns if seq in self._chunk_of_turn}:
            if key in self.waiting_chunks and self._covered.issuperset(self.chunks[key].turns):
                del self.waiting_chunks[key]

    def admit_facts(self, event: FactsAdmitted) -> None:
        """Occurrences found or join facts: rows of the search, members of scopes, leaves of trees."""
        labels: set[str] = set()
        for fact, occurrence in self.canon.apply(event):
            text = self._waiting_texts.pop(occurrence.pointer)
            if fact.first is occurrence:
                self.nodes.add(self._fact_node(fact), text)
            elif fact.id in self.units.group_of:
                self.nodes.replace(self._group_node(self.units.groups[self.units.group_of[fact.id]]))
            else:
                self.nodes.replace(self._fact_node(fact))
            labels |= self.scopes.add_fact(fact.id, occurrence.mentions, fact.sessions)
        self._set_scopes(labels)

    def _set_scopes(self, labels: set[str]) -> None:
        """Bring the trees of these labels' scopes to what they should hold."""
        for label in sorted(labels):
            for change in self.scopes.changes(label):
                leaves = [(self._leaf(fact), self._leaf_text(fact)) for fact in sorted(change.joining)]
                self.forest.change(change.scope, leaves, [self._leaf(fact) for fact in sorted(change.leaving)])
                held = self.members.setdefault(change.scope, set())
                held |= change.joining
                held -= change.leaving
                if not held:
                    del self.members[change.scope]

    def _leaf_text(self, fact: FactId) -> LeafText:
        """Its words were said where it was first read; the summary's lineage is that session alone."""
        first = self.canon.facts[fact].first
        return LeafText(FactText(first.pointer), first.length, frozenset((first.session,)))

    def _leaf(self, fact: FactId) -> Leaf:
        first = self.canon.facts[fact].first
        return Leaf(first.time_start, first.leaf_key, first.time_end)

    def _fact_node(self, fact: Fact) -> SearchNode:
        first = fact.first
        return SearchNode(
            id=fact.id,
            kind=NodeKind.FACT,
            ref=FactText(first.pointer),
            turns=fact.turns,
            sessions=fact.sessions,
            said_at=first.said_at,
            time_start=first.time_start,
            time_end=first.time_end,
            length=first.length,
        )

    def merge_nodes(self, recorded: RecordedEvent, event: NodesMerged) -> None:
        """A group replaces its members in the search."""
        if not self.canon.facts.keys() >= set(event.members):
            return  # a member's own admission was voided; the group's words say nothing of it
        group, replaced = self.units.apply_merge(recorded, event)
        for node_id in (*(each.id for each in replaced), *event.members):
            if node_id in self.nodes.row_of:
                self.nodes.remove(node_id)
        self.nodes.add(self._group_node(group), event.text)

    def _group_node(self, group: Group) -> SearchNode:
        facts = [self.canon.facts[member] for member in group.members]
        return SearchNode(
            id=group.id,
            kind=NodeKind.GROUP,
            ref=WrittenText(group.seq),
            turns=tuple(sorted({turn for fact in facts for turn in fact.turns})),
            sessions=frozenset().union(*(fact.sessions for fact in facts)),
            said_at=max(fact.first.said_at for fact in facts),  # paper A, Eq. 8
            time_start=min(fact.first.time_start for fact in facts),
            time_end=max(fact.first.time_end for fact in facts),
            length=group.length,
        )

    def forget_session(self, session: Reference) -> None:
        """Hide a session at once; its traces are gone when this Memory is folded again without it."""
        if session not in self._tombstones:
            self.hidden |= {session}


def _open_id(session: Reference) -> bytes:
    """The id of a session's open chunk, which has no key before it closes."""
    return identify(b"mf.open", session)


def _on_chunk_closed(memory: Memory, recorded: RecordedEvent, event: ChunkClosed) -> None:
    assert recorded.session is not None
    memory.close_chunk(recorded.session, event.last_turn)


def _on_forgotten(memory: Memory, recorded: RecordedEvent, _: SessionForgotten) -> None:
    assert recorded.session is not None
    memory.forget_session(recorded.session)


def _on_parked(memory: Memory, _: RecordedEvent, event: WorkParked) -> None:
    if event.task is Task.EXTRACT:
        memory.cover_turns(event.turns)
    elif event.task is Task.SUMMARISE:
        memory.forest.note_parked(event.request)


def _on_summarised(memory: Memory, recorded: RecordedEvent, event: IntervalSummarised) -> None:
    memory.forest.note_summary(event.digest, WrittenText(recorded.seq), len(event.text))


# The map of the fold: which event changes what. Types that are not here change nothing.
_HANDLERS: dict[type[Event], Callable[[Memory, RecordedEvent, Any], None]] = {
    TurnRecorded: Memory.record_turn,
    SessionClosed: Memory.close_session,
    ChunkClosed: _on_chunk_closed,
    SessionForgotten: _on_forgotten,
    FactsExtracted: Memory.extract_facts,
    FactsAdmitted: lambda memory, _, event: memory.admit_facts(event),
    IntervalSummarised: _on_summarised,
    UnitsPartitioned: lambda memory, _, event: memory.units.apply_partition(event),
    NodesMerged: Memory.merge_nodes,
    WorkParked: _on_parked,
}
