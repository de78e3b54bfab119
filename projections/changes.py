"""What one event may change in a Memory, as a record of ids and counts; `watching` finds it."""

from __future__ import annotations

from dataclasses import dataclass

from events.codec import Event
from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, PairsJudged, ScenesMerged
from events.envelope import Reference
from events.eventtree import CompactionUndone, NodesMerged, PolicyChanged, UnitId, UnitsPartitioned
from events.memory import (
    ChunkKey,
    Digest,
    FactId,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    WorkParked,
    WorkResumed,
)
from events.session import (
    ChunkClosed,
    MemoryImported,
    SessionClosed,
    SessionErased,
    SessionReplayed,
    TurnConflicted,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserErased,
)
from projections.facts.scopes import Scope
from projections.memtree.comparing import TreeMove

# Events that touch nothing but what they name, or what is new after them. All others are compared in full.
LOCAL: frozenset[type[Event]] = frozenset(
    {
        TurnRecorded,
        TurnConflicted,
        MemoryImported,
        ChunkClosed,
        SessionClosed,
        SessionReplayed,
        SessionErased,
        UserErased,
        TurnRevised,
        TurnRetracted,
        FactsExtracted,
        FactsAdmitted,
        FactsRouted,
        ScenesMerged,
        FactsSuperseded,
        PairsJudged,
        GenerationPromoted,
        IntervalSummarised,
        UnitsPartitioned,
        NodesMerged,
        CompactionUndone,
        PolicyChanged,
        WorkParked,
        WorkResumed,
    }
)


@dataclass(frozen=True, slots=True)
class ScopeMove:
    """Facts that joined or left the scope of an entity, a scene or the user."""

    scope: Scope
    joined: tuple[FactId, ...]
    left: tuple[FactId, ...]


@dataclass(frozen=True, slots=True)
class Changes:
    """What was otherwise after an event than before it. Ids and counts only, never a word."""

    facts_founded: tuple[FactId, ...] = ()
    facts_joined: tuple[FactId, ...] = ()  # other occurrences than before
    facts_gone: tuple[FactId, ...] = ()
    occurrences_waiting: int = 0  # extracted and not admitted: how many more
    facts_unrouted: int = 0  # known and in no scene yet: how many more
    facts_superseded: tuple[FactId, ...] = ()  # states that ended, or ended otherwise than before
    facts_standing: tuple[FactId, ...] = ()  # states that hold again
    pairs_judged: int = 0
    promoted: bool = False  # facts are compared by other vectors and thresholds from now on
    scopes: tuple[ScopeMove, ...] = ()
    trees: tuple[TreeMove, ...] = ()
    summaries: tuple[Digest, ...] = ()
    units: tuple[tuple[FactId, UnitId], ...] = ()
    groups_made: tuple[bytes, ...] = ()
    groups_undone: tuple[bytes, ...] = ()
    chunks_opened: tuple[Reference, ...] = ()  # by session, since an open chunk has no key
    chunks_closed: tuple[ChunkKey, ...] = ()
    chunks_gone: tuple[ChunkKey, ...] = ()
    chunks_waiting: tuple[ChunkKey, ...] = ()  # for their extraction
    chunks_served: tuple[ChunkKey, ...] = ()  # that wait for it no more
    sessions_hidden: tuple[Reference, ...] = ()
    turns_hidden: tuple[int, ...] = ()  # reworded or retracted, until all is folded again
    rows_hidden: int = 0

    def __bool__(self) -> bool:
        """Whether anything changed."""
        return self != NOTHING


NOTHING = Changes()
