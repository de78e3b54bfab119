"""Memory: everything that is known of one user, folded from the log event by event.

The fold depends on the log and on its parameters alone: no clock, no set order, no model. It keeps
structure and no texts, so an answer reads its texts from the log.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from events.codec import Event
from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, PairsJudged, ScenesMerged
from events.envelope import RecordedEvent, Reference, identify
from events.errors import LogDamaged
from events.eventtree import CompactionUndone, NodesMerged, PolicyChanged, UnitsPartitioned
from events.hindsight import Hindsight
from events.memory import (
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    WorkParked,
    WorkResumed,
)
from events.session import (
    UNDOING,
    ChunkClosed,
    MemoryImported,
    ReplayStarted,
    SessionClosed,
    SessionForgotten,
    SessionReplayed,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserForgotten,
)
from events.time import Instant
from projections.facts.aliases import read_links
from projections.facts.canonical import Fact, read_occurrences, share_sessions
from projections.facts.scopes import Scope, ScopeKind
from projections.memtree.forest import Forest, LeafText
from projections.memtree.items import Leaf
from projections.memtree.shape import TreeShape
from projections.memtree.tree_vectors import TreeVectors
from projections.parking import Parking
from projections.placement import Placement
from projections.recall.filters import turn_marks
from projections.recall.nodes import NodeKind, NodeSet, SearchNode
from projections.recall.rooms import SearchOptions
from projections.replays import Replays
from projections.texts import TurnsText, WrittenText
from projections.transcript import Cut, Transcript


@dataclass(frozen=True, slots=True)
class MemoryParameters:
    """What the fold depends on besides the log. Other parameters are another generation."""

    chunk_turns: int = 2  # b, paper B Eq. B5
    shape: TreeShape = field(default_factory=TreeShape)  # k
    concatenation_max: int = 800  # characters; ours: a short node needs no model call
    generation: int = 1
    # How it is searched, which changes nothing that is folded.
    search: SearchOptions = field(default_factory=SearchOptions, compare=False, repr=False)


class Memory:
    """The fold of one user. `apply` events in the order of user_seq; read the parts."""

    def __init__(self, user: Reference, parameters: MemoryParameters, hindsight: Hindsight | None = None) -> None:
        """`hindsight`: what the end of the log says of what comes before it, read before folding."""
        self.user = user
        self.parameters = parameters
        self.user_seq = 0
        self.user_id = ""
        self.session_ids: dict[Reference, str] = {}
        # Sessions with turns after their last closing, and when the last of these was recorded.
        self.active_sessions: dict[Reference, Instant] = {}
        # user_seq of the last SessionClosed: refresh is due when it grew. A count would fall with forgetting.
        self.closings = 0
        self.hindsight = hindsight or Hindsight()
        self.transcript = Transcript(parameters.chunk_turns, self.hindsight)
        self.turns = self.transcript.turns
        self.chunks = self.transcript.chunks
        self.waiting_chunks = self.transcript.waiting
        self.forest = Forest(parameters.shape, parameters.concatenation_max)
        self.tree_vectors = TreeVectors()
        self.laid_bytes = 0  # what browsing keeps of its trees
        self.nodes = NodeSet(user, parameters.search)
        self.placement = Placement(user, self.forest, self.nodes, self.transcript)
        self.canon = self.placement.canon
        self.scopes = self.placement.scopes
        self.units = self.placement.units
        self.members = self.placement.members
        self.spaces = self.placement.spaces
        self.replays = Replays()
        self.parking = Parking(self.transcript, self.replays, self.forest, self.units, self.canon)
        # By which embedder's thresholds facts are compared; None before the first were.
        self.promoted: GenerationPromoted | None = None
        self.promoted_at = 0  # seq of that event
        # Forgotten or withdrawn since this Memory was begun: never shown, and gone once it is folded again.
        self.hidden: frozenset[Reference] = frozenset()
        self.hidden_turns: frozenset[int] = frozenset()
        # Whether something was undone that is folded in; until it is folded again it is only hidden.
        self.needs_rebuild = False
        # Turns that were retracted, and are not folded in.
        self._retracted: set[Reference] = set()
        # Whether events to come can no longer be folded in.
        self._frozen = False

    def apply(self, recorded: RecordedEvent) -> None:
        """Take the next event.

        Raises `LogDamaged` when it is not the next one, or when its words are gone and nothing says why.
        """
        if recorded.user_seq != self.user_seq + 1:
            raise LogDamaged(f"user_seq {recorded.user_seq} came after {self.user_seq}")
        if not self.is_forgotten(recorded):
            self._take(recorded)
        self.user_seq = recorded.user_seq
        self.user_id = recorded.user_id or self.user_id

    def is_forgotten(self, recorded: RecordedEvent) -> bool:
        """Whether its user or a session in its lineage was forgotten later: it is as if it had never been."""
        tombstones = self.hindsight.tombstones
        return any(recorded.user_seq < tombstones.get(each, 0) for each in (self.user, *recorded.lineage))

    def _take(self, recorded: RecordedEvent) -> None:
        hindsight, event = self.hindsight, recorded.event
        if self._frozen and not isinstance(event, UNDOING):
            return  # what it may build on is not here; it is taken when all is folded again
        if recorded.seq in hindsight.holes:
            assert recorded.session is not None
            self._show_cut(self.transcript.leave_hole(recorded.session, recorded.seq))
        elif isinstance(event, TurnRecorded | TurnRevised):
            self.record_turn(recorded, event)
        elif recorded.seq in hindsight.voids:
            return
        elif event is None:
            raise LogDamaged(f"the words of the event at seq {recorded.seq} are gone, and nothing says why")
        else:
            handler = _HANDLERS.get(type(event))
            if handler is not None:
                handler(self, recorded, event)

    def pending(self) -> int:
        """Chunks to extract, facts to admit and to route, and nodes to summarise (design 4.2)."""
        facts = len(self.canon.waiting) + len(self.placement.scenes.unrouted)
        return len(self.waiting_chunks) + facts + self.forest.dirty_count()

    @property
    def size_bytes(self) -> int:
        """About what it takes in memory, vectors included (measured per object; tests/benchmarks/loading.py)."""
        facts, scenes = self.canon.facts, self.placement.scenes
        structure = 900 * len(self.turns) + 2_000 * len(facts) + 600 * len(self.chunks) + scenes.size_bytes
        return self.nodes.size_bytes + self.tree_vectors.size_bytes + self.laid_bytes + structure

    def open_chunk(self, session: Reference) -> tuple[int, ...]:
        """The turns of a session that are in no closed chunk yet."""
        return self.transcript.open_chunk(session)

    def shows(self, fact: Fact) -> bool:
        """Whether nothing that a fact rests on is hidden."""
        hidden, turns = self.hidden, self.hidden_turns  # nearly always none
        return not ((hidden and fact.sessions & hidden) or (turns and turns.intersection(fact.turns)))

    def close_session(self, recorded: RecordedEvent, _: SessionClosed) -> None:
        """The session is over: its open chunk ends and what it changed is due for refresh."""
        assert recorded.session is not None
        self.active_sessions.pop(recorded.session, None)
        self.closings = recorded.user_seq
        self._show_cut(self.transcript.close_chunk(recorded.session, None))

    def close_chunk(self, recorded: RecordedEvent, event: ChunkClosed) -> None:
        """The session went quiet: its open chunk ends, unless another turn came meanwhile."""
        assert recorded.session is not None
        self._show_cut(self.transcript.close_chunk(recorded.session, event.last_turn))

    def record_turn(self, recorded: RecordedEvent, event: TurnRecorded | TurnRevised) -> None:
        """A turn joins the open chunk of its session, which can be asked for at once; or it is reworded."""
        assert recorded.session is not None
        standing = self.transcript.wording_of(recorded)
        if standing is None:
            if isinstance(event, TurnRevised) and recorded.user_seq > self.hindsight.user_seq:
                self.withdraw_turn(event.turn, event.revision)
            return
        said = standing.event
        assert isinstance(said, TurnRecorded | TurnRevised)
        self.session_ids[recorded.session] = recorded.session_id or ""
        self.active_sessions[recorded.session] = recorded.recorded_at
        self._show_cut(self.transcript.place_turn(recorded, standing, turn_marks(said, self.nodes.mark)))
        for turn in self._retracted & self.transcript.placed.keys():
            self.withdraw_turn(turn)
        self.placement.set_scopes(self.scopes.count_turn(said.content, said.role, said.name, standing.seq))

    def import_memory(self, recorded: RecordedEvent, event: MemoryImported) -> None:
        """What another memory knew is a fact at once, and waits for nothing."""
        assert recorded.session is not None
        self.session_ids[recorded.session] = recorded.session_id or ""
        self.transcript.place_memory(recorded, turn_marks(event, self.nodes.mark))
        self.placement.take_over(recorded, event)
        if recorded.key in self._retracted:
            self.withdraw_turn(recorded.key)

    def withdraw_turn(self, turn: Reference, revision: int | None = None) -> None:
        """What a turn said stands no more: it has a later revision, or (None) it was retracted.

        Hidden at once, with all that rests on it; gone when this Memory is folded again.
        """
        placed = self.transcript.placed.get(turn)
        seq = self.transcript.memories.get(turn) if placed is None else placed.seq
        if seq is None:
            if revision is None:
                self._retracted.add(turn)  # it may be in the log and not folded yet
            return
        if revision is not None and (placed is None or revision <= placed.revision):
            return
        self.hidden_turns |= {seq}
        self.needs_rebuild = self._frozen = True
        for node in [self.nodes.node(int(row)) for row in self.nodes.live_rows(frozenset())]:
            if seq in node.turns:
                members = self.placement.groups.open(node.id) if node.kind is NodeKind.GROUP else [node]
                for each in members:
                    if seq in each.turns:
                        self.nodes.remove(each.id)
        self.placement.reopen(lambda fact: not self.shows(fact))

    def _show_cut(self, cut: Cut | None) -> None:
        """Search the chunk as it is now; once it is closed, its session's tree has a leaf for it."""
        if cut is None:
            return
        open_id = identify(b"mf.open", cut.session)  # it has no key before it closes
        if open_id in self.nodes.row_of:
            self.nodes.remove(open_id)
        if not cut.turns:
            return
        said_at = [self.turns[seq].said_at for seq in cut.turns]
        node = SearchNode(
            id=cut.chunk.key if cut.chunk else open_id,
            kind=NodeKind.CHUNK,
            ref=TurnsText(cut.turns),
            turns=cut.turns,
            sessions=share_sessions(frozenset((cut.session,))),
            said_at=said_at[0],
            time_start=min(said_at),
            time_end=max(said_at),
            length=len(cut.text),
        )
        self.nodes.add(node, cut.text, self.transcript.marks_of(cut.turns))
        if cut.chunk is not None:
            scope = Scope(ScopeKind.SESSION, cut.session.hex())
            leaf = Leaf(node.time_start, cut.leaf_key, node.time_end)
            self.forest.change(scope, [(leaf, LeafText(node.ref, node.length, node.sessions))])

    def extract_facts(self, recorded: RecordedEvent, event: FactsExtracted) -> None:
        """The facts of a chunk wait for their admission, with their texts at hand for indexing.

        One that is to replace another counts once that one is out of force.
        """
        if event.replaces is not None and event.replaces not in self.hindsight.voids:
            self.replays.note_replacement(recorded, event.replaces)
            return
        self.replays.note_extraction(recorded, event)
        self.transcript.cover(event.turns)
        said_at = {seq: self.turns[seq].said_at for seq in event.turns}
        occurrences = read_occurrences(recorded, event, said_at)
        self.placement.expect(occurrences, [fact.text for fact in event.facts])
        self.placement.join_names(read_links(recorded.seq, event))

    def correct_fact(self, recorded: RecordedEvent, event: FactCorrected | FactPinned) -> None:
        """A person says what is so, or that it is to stay; an undone pin is gone once all is folded again."""
        said_at = {seq: self.turns[seq].said_at for seq in event.turns}
        if isinstance(event, FactCorrected):
            self.placement.correct(recorded, event, said_at)
        elif event.pinned:
            self.placement.pin(recorded, event, said_at)
        elif recorded.user_seq > self.hindsight.user_seq:
            self.needs_rebuild = self._frozen = True

    def end_replay(self, recorded: RecordedEvent) -> None:
        """From here on the new extractions of a session stand: seen once all is folded again."""
        assert recorded.session is not None
        self.replays.end(recorded.session)
        if recorded.user_seq > self.hindsight.user_seq:
            self.needs_rebuild = self._frozen = True

    def forget_session(self, session: Reference) -> None:
        """Hide a session at once; its traces are gone when this Memory is folded again without it."""
        if session not in self.hindsight.tombstones or session in self.session_ids:
            self.hidden |= {session}
            self.needs_rebuild = True
            self.placement.groups.open_hidden(self.hidden)
            self.placement.reopen(lambda fact: not self.shows(fact))

    def forget_user(self) -> None:
        """Show nothing of all this any more, and take nothing more in."""
        if self.user in self.hindsight.tombstones and not self.session_ids:
            return
        self.hidden |= self.session_ids.keys()
        self.needs_rebuild = self._frozen = True


def _on_forgotten(memory: Memory, recorded: RecordedEvent, _: SessionForgotten) -> None:
    assert recorded.session is not None
    memory.forget_session(recorded.session)


def _on_promoted(memory: Memory, recorded: RecordedEvent, event: GenerationPromoted) -> None:
    memory.promoted, memory.promoted_at = event, recorded.seq


def _on_summarised(memory: Memory, recorded: RecordedEvent, event: IntervalSummarised) -> None:
    memory.forest.note_summary(event.digest, WrittenText(recorded.seq), len(event.text))


# The map of the fold: which event changes what. Types that are not here change nothing.
_HANDLERS: dict[type[Event], Callable[[Memory, RecordedEvent, Any], None]] = {
    TurnRetracted: lambda memory, _, event: memory.withdraw_turn(event.turn),
    MemoryImported: Memory.import_memory,
    SessionClosed: Memory.close_session,
    ChunkClosed: Memory.close_chunk,
    SessionForgotten: _on_forgotten,
    ReplayStarted: lambda memory, recorded, _: memory.replays.start(recorded),
    SessionReplayed: lambda memory, recorded, _: memory.end_replay(recorded),
    UserForgotten: lambda memory, _, event: memory.forget_user(),
    FactsExtracted: Memory.extract_facts,
    FactsAdmitted: lambda memory, _, event: memory.placement.admit(event),
    FactsRouted: lambda memory, _, event: memory.placement.route(event),
    ScenesMerged: lambda memory, _, event: memory.placement.merge_scenes(event),
    FactsSuperseded: lambda memory, _, event: memory.placement.supersede(event),
    PairsJudged: lambda memory, _, event: memory.placement.judge(event),
    GenerationPromoted: _on_promoted,
    FactRetracted: lambda memory, recorded, event: memory.placement.retract(recorded, event),
    FactCorrected: Memory.correct_fact,
    FactPinned: Memory.correct_fact,
    IntervalSummarised: _on_summarised,
    UnitsPartitioned: lambda memory, _, event: memory.units.apply_partition(event),
    NodesMerged: lambda memory, recorded, event: memory.placement.groups.merge(recorded, event),
    CompactionUndone: lambda memory, _, event: memory.placement.groups.undo(event),
    PolicyChanged: lambda memory, _, event: memory.units.change_policy(event),
    WorkParked: lambda memory, _, event: memory.parking.park(event),
    WorkResumed: lambda memory, _, event: memory.parking.resume(event),
}
