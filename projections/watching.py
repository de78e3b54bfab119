"""Watching a Memory: what each event changed in it, for people who look how it came to be.

A `Watch` remembers what it saw last and compares. Costs as much as changed; an event of a kind that it does not
know, or one that takes things away, is compared in full.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice, takewhile
from typing import Any, TypeVar

from events.codec import Event
from events.decisions import FactsSuperseded, GenerationPromoted, Supersession
from events.envelope import RecordedEvent, Reference
from events.eventtree import NodesMerged, UnitId, UnitsPartitioned
from events.memory import ChunkKey, Digest, FactId, FactsAdmitted
from events.session import MemoryImported
from projections.changes import LOCAL, NOTHING, Changes, ScopeMove
from projections.facts.canonical import read_likeness
from projections.facts.imported import as_fact
from projections.facts.scopes import Scope, ScopeKind
from projections.memory import Memory
from projections.memtree.comparing import TreeMove, compare_trees
from projections.memtree.items import Item

K = TypeVar("K")


class Watch:
    """Looks at one Memory, event by event: apply one, then `look`. A Memory has one Watch at most."""

    def __init__(self, memory: Memory) -> None:
        """Sees the Memory as it is now; costs as much as it holds."""
        self._memory = memory
        self._facts: dict[FactId, int] = {}  # how many occurrences
        self._fact_of: dict[bytes, FactId] = {}  # by the key of its leaf
        self._waiting = self._unrouted = self._judged = 0
        self._superseded: dict[FactId, Supersession] = {}
        self._promoted: GenerationPromoted | None = None
        self._roots: dict[Scope, Item | None] = {}
        self._summaries: dict[Digest, object] = {}
        self._units: dict[FactId, UnitId] = {}
        self._groups: dict[bytes, object] = {}
        self._open: set[Reference] = set()
        self._chunks: dict[ChunkKey, object] = {}
        self._chunk_of: dict[int, ChunkKey] = {}
        self._waiting_chunks: set[ChunkKey] = set()
        self._hidden: frozenset[Reference] = frozenset()
        self._hidden_turns: frozenset[int] = frozenset()
        self._rows = 0
        self.look()

    def look(self, recorded: RecordedEvent | None = None) -> Changes:
        """What changed since the last look, by this event alone; without it, or when unsure, all is compared."""
        if recorded is not None and self._memory.is_forgotten(recorded):
            return NOTHING
        event = None if recorded is None else recorded.event
        # Of an erased event only its place is taken, which is a local thing.
        whole = recorded is None or (event is not None and type(event) not in LOCAL)
        named = [] if recorded is None else self._facts_named(recorded)
        founded, joined, gone = self._look_at_facts(named, whole=whole)
        closed, gone_chunks, waiting, served = self._look_at_chunks(event, whole=whole)
        trees = tuple(self._look_at_trees())
        made, undone = self._look_at_groups()
        superseded, standing = self._look_at_validity(event, whole=whole or bool(gone))
        sessions_hidden, turns_hidden, rows_hidden = self._look_at_hidden()
        return Changes(
            facts_founded=founded,
            facts_joined=joined,
            facts_gone=gone,
            occurrences_waiting=self._look_at_waiting(),
            facts_unrouted=self._look_at_unrouted(),
            facts_superseded=superseded,
            facts_standing=standing,
            pairs_judged=self._look_at_verdicts(),
            promoted=self._look_at_thresholds(),
            scopes=tuple(self._moves(trees)),
            trees=trees,
            summaries=self._look_at_summaries(event, whole=whole),
            units=self._look_at_units(named, whole=whole),
            groups_made=made,
            groups_undone=undone,
            chunks_opened=self._look_at_open_chunks(recorded),
            chunks_closed=closed,
            chunks_gone=gone_chunks,
            chunks_waiting=waiting,
            chunks_served=served,
            sessions_hidden=sessions_hidden,
            turns_hidden=turns_hidden,
            rows_hidden=rows_hidden,
        )

    def _facts_named(self, recorded: RecordedEvent) -> list[FactId]:
        """The facts that an event speaks of, once it is applied."""
        match recorded.event:
            case FactsAdmitted(admissions=admissions):
                return [admission.fact for admission in admissions]
            case UnitsPartitioned(units=units):
                return [fact for each in units for fact in each.facts]
            case NodesMerged(members=members):
                return list(members)
            case MemoryImported() as event:
                fact = self._memory.canon.find(read_likeness(as_fact(recorded, event), recorded.user))
                return [] if fact is None else [fact.id]
            case _:
                return []

    def _look_at_facts(self, named: list[FactId], *, whole: bool) -> tuple[tuple[FactId, ...], ...]:
        """Founded, joined and gone."""
        facts, seen = self._memory.canon.facts, self._facts
        new = {each for each in named if each in facts and each not in seen}
        # One fact may take up another one: then as many are there as before, or fewer.
        whole = whole or len(seen) + len(new) != len(facts)
        founded, gone = _compare(facts, seen, whole=whole)
        named_ones = facts if whole or gone else named
        joined = tuple(
            dict.fromkeys(
                each
                for each in named_ones
                if each in seen and each in facts and len(facts[each].occurrences) != seen[each]
            )
        )
        for fact in (*founded, *joined):
            seen[fact] = len(facts[fact].occurrences)
            self._fact_of[facts[fact].first.leaf_key] = fact
        for fact in gone:
            del seen[fact]
        return founded, joined, gone

    def _look_at_waiting(self) -> int:
        before, self._waiting = self._waiting, len(self._memory.canon.waiting)
        return self._waiting - before

    def _look_at_unrouted(self) -> int:
        before, self._unrouted = self._unrouted, len(self._memory.placement.scenes.unrouted)
        return self._unrouted - before

    def _look_at_validity(
        self, event: Event | None, *, whole: bool
    ) -> tuple[tuple[FactId, ...], tuple[FactId, ...]]:
        """States that ended, and known ones that hold again."""
        ended, seen = self._memory.placement.validity.superseded, self._superseded
        named: Sequence[FactId] = ()
        if whole:
            named = tuple(dict.fromkeys((*ended, *seen)))
        elif isinstance(event, FactsSuperseded):
            named = tuple(dict.fromkeys(each.fact for each in event.supersessions))
        moved = [fact for fact in named if ended.get(fact) != seen.get(fact)]
        for fact in moved:
            if fact in ended:
                seen[fact] = ended[fact]
            else:
                del seen[fact]
        standing = (fact for fact in moved if fact not in ended and fact in self._memory.canon.facts)
        return tuple(fact for fact in moved if fact in ended), tuple(standing)

    def _look_at_verdicts(self) -> int:
        before, self._judged = self._judged, len(self._memory.canon.verdicts)
        return self._judged - before

    def _look_at_thresholds(self) -> bool:
        before, self._promoted = self._promoted, self._memory.promoted
        return self._promoted != before

    def _look_at_chunks(self, event: Event | None, *, whole: bool) -> tuple[tuple[ChunkKey, ...], ...]:
        """Closed, gone, waiting and waiting no more."""
        chunks, waits = self._memory.chunks, self._memory.waiting_chunks
        closed, gone = _compare(chunks, self._chunks, whole=whole)
        for key in gone:
            del self._chunks[key]
        for key in closed:
            self._chunks[key] = chunks[key]
            self._chunk_of.update((turn, key) for turn in chunks[key].turns)
        if whole:
            waiting: tuple[ChunkKey, ...] = tuple(key for key in waits if key not in self._waiting_chunks)
            served = tuple(self._waiting_chunks - waits.keys())
        else:
            turns: Sequence[int] = getattr(event, "turns", ())
            before = {self._chunk_of[turn] for turn in turns if turn in self._chunk_of}
            again = (key for key in before if key not in self._waiting_chunks)  # resumed
            waiting = tuple(key for key in dict.fromkeys((*closed, *again)) if key in waits)
            served = tuple(key for key in before if key in self._waiting_chunks and key not in waits)
            if len(self._waiting_chunks) + len(waiting) - len(served) != len(waits):
                waiting = tuple(key for key in waits if key not in self._waiting_chunks)
                served = tuple(self._waiting_chunks - waits.keys())
        self._waiting_chunks.update(waiting)
        self._waiting_chunks.difference_update(served)
        return closed, gone, waiting, tuple(sorted(served))

    def _look_at_open_chunks(self, recorded: RecordedEvent | None) -> tuple[Reference, ...]:
        sessions = self._memory.session_ids if recorded is None else filter(None, (recorded.session,))
        opened: list[Reference] = []
        for session in sessions:
            if not self._memory.open_chunk(session):
                self._open.discard(session)
            elif session not in self._open:
                self._open.add(session)
                opened.append(session)
        return tuple(opened)

    def _look_at_trees(self) -> Iterator[TreeMove]:
        trees, roots = self._memory.forest.trees, self._roots
        changed, self._memory.forest.changed = self._memory.forest.changed, set()
        for scope in sorted(trees if changed is None else changed):
            root = trees[scope].root if scope in trees else None
            change = compare_trees(scope, roots.get(scope), root)
            roots[scope] = root
            if scope not in trees:
                del roots[scope]
            if change is not None:
                yield change

    def _moves(self, trees: tuple[TreeMove, ...]) -> Iterator[ScopeMove]:
        """The facts behind the leaves that came and went; the leaves of a session's tree are chunks."""
        for change in trees:
            if change.scope.kind is not ScopeKind.SESSION and (change.leaves_joined or change.leaves_left):
                joined, left = (
                    tuple(self._fact_of[leaf] for leaf in leaves if leaf in self._fact_of)
                    for leaves in (change.leaves_joined, change.leaves_left)
                )
                yield ScopeMove(change.scope, joined, left)

    def _look_at_summaries(self, event: Event | None, *, whole: bool) -> tuple[Digest, ...]:
        """Digests that have a summary now, or another one than before."""
        summaries, seen = self._memory.forest.summaries, self._summaries
        noted, gone = _compare(summaries, seen, whole=whole)
        digest = getattr(event, "digest", None)
        if whole:
            noted = tuple(each for each in summaries if seen.get(each) != summaries[each])
        elif digest in seen and seen[digest] != summaries.get(digest):
            noted = (*noted, digest)
        for each in gone:
            del seen[each]
        seen.update((each, summaries[each]) for each in noted if each in summaries)
        return noted

    def _look_at_units(self, named: list[FactId], *, whole: bool) -> tuple[tuple[FactId, UnitId], ...]:
        units, seen = self._memory.units.unit_of, self._units
        members = units if whole or len(units) < len(seen) else named
        moved = tuple((fact, units[fact]) for fact in members if fact in units and units[fact] != seen.get(fact))
        seen.update(moved)
        if len(seen) > len(units):
            for fact in [fact for fact in seen if fact not in units]:
                del seen[fact]
        return moved

    def _look_at_groups(self) -> tuple[tuple[bytes, ...], tuple[bytes, ...]]:
        """Made and undone. There are few groups beside facts, but even so only a change is looked at."""
        groups, seen = self._memory.units.groups, self._groups
        last = next(reversed(groups), None)
        if len(groups) == len(seen) and (last is None or seen.get(last) is groups[last]):
            return (), ()
        made = tuple(key for key, group in groups.items() if seen.get(key) is not group)
        undone = tuple(key for key in seen if key not in groups)
        self._groups = dict(groups)
        return made, undone

    def _look_at_hidden(self) -> tuple[tuple[Reference, ...], tuple[int, ...], int]:
        """Sessions and turns hidden, and how many rows with them: those of turns are taken out at once."""
        nodes = self._memory.nodes
        sessions, turns = self._memory.hidden - self._hidden, self._memory.hidden_turns - self._hidden_turns
        rows_before, self._rows = self._rows, len(nodes)
        self._hidden, self._hidden_turns = self._memory.hidden, self._memory.hidden_turns
        rows = rows_before - len(nodes) if turns else 0
        if sessions:
            rows += nodes.live_rows().size - nodes.live_rows(sessions).size
        return tuple(sorted(sessions)), tuple(sorted(turns)), rows


def _newest(held: dict[K, Any], count_before: int) -> tuple[K, ...]:
    """The last keys of a mapping that only grew: those beyond its former count, in order."""
    count = len(held) - count_before
    if count <= 0:
        return ()
    newest = list(islice(reversed(held), count))
    return tuple(reversed(newest))


def _compare(now: dict[K, Any], seen: dict[K, Any], *, whole: bool) -> tuple[tuple[K, ...], tuple[K, ...]]:
    """Keys that came and went. Without `whole`, a mapping that only grew is looked at from its end."""
    if not whole:
        new = tuple(takewhile(lambda key: key not in seen, _newest(now, len(seen))))
        if len(seen) + len(new) == len(now):
            return new, ()
    return tuple(key for key in now if key not in seen), tuple(key for key in seen if key not in now)
