"""The vectors of units: of each its sum, kept while the user is at hand; of its nodes, when they are needed.

They are made when they are first needed and kept up from then on; losing them costs a look at all vectors of the
user. Fact vectors are those that scenes are found with, so no text is embedded for a unit.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from daemon.building.fact_vectors import FactVectors
from daemon.folding import in_slices
from daemon.vector_source import VectorSource
from events.envelope import Reference
from events.eventtree import UnitId
from events.memory import FactId, Pointer
from events.time import Instant
from projections.eventtree.unit_sums import UnitNode, UnitSums
from projections.eventtree.units import Units
from projections.facts.canonical import Occurrence
from projections.memory import Memory
from projections.spaces import OURS
from projections.steps import Steps, each_of
from projections.texts import FactText
from projections.transcript import TurnKept

# Facts whose vectors are looked up at once.
FACTS_AT_ONCE: Final = 512
# Users whose sums are kept, and what these may take: those of the least recently used ones go first.
USERS_MAX: Final = 256
KEPT_BYTES_MAX: Final = 64 << 20
# What an instant takes in `Places`.
INSTANT_BYTES: Final = 40

Row = NDArray[np.float32]


@dataclass(slots=True)
class Places:
    """Where turns stand in time order. A new turn costs no look at the others, most come last."""

    instants: list[Instant] = field(default_factory=list[Instant])
    turns: int = 0

    def place(self, said_at: Instant) -> int:
        """The position of what was said then, among all instants at which something was said."""
        return bisect_left(self.instants, said_at)

    def take(self, memory: Memory) -> None:
        """Take in the turns that came since; those of a Memory only grow in number."""
        added = len(memory.turns) - self.turns
        for turn in islice(reversed(memory.turns.values()), added):
            at = bisect_left(self.instants, turn.said_at)
            if at == len(self.instants) or self.instants[at] != turn.said_at:
                self.instants.insert(at, turn.said_at)
        self.turns += added


@dataclass(slots=True)
class _Kept:
    """What is kept of one user, made of one Memory's units up to so many changes of them."""

    units: Units
    places: Places
    # By the number of the space that the vectors of a unit are in: they compare with no others.
    sums: dict[int, UnitSums] = field(default_factory=lambda: {OURS: UnitSums()})
    seen: int = 0

    def put(self, unit: UnitId, nodes: Sequence[UnitNode], space: int) -> None:
        """These are the nodes of a unit now, all in one space; without any, there is no such unit."""
        for number, sums in self.sums.items():
            if number != space and unit in sums:
                sums.put(unit, ())
        self.sums.setdefault(space, UnitSums()).put(unit, nodes)

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.sums.values()) + INSTANT_BYTES * len(self.places.instants)


@dataclass(frozen=True, slots=True)
class _Node:
    """A node before its vectors are here."""

    facts: tuple[FactId, ...]
    pointers: tuple[Pointer, ...]
    said_at: Instant
    order: tuple[Instant, int, int, int]


class UnitVectors:
    """Sums and nodes of units, by user."""

    def __init__(self, vectors: FactVectors, source: VectorSource) -> None:
        # The groups that are planned of a user's nodes, by their facts: no unit is to tear them.
        self.held_together: Callable[[Reference], Mapping[FactId, tuple[FactId, ...]]] = lambda _: {}
        self._vectors = vectors
        self._source = source
        self._kept: OrderedDict[Reference, _Kept] = OrderedDict()

    def forget(self, user: Reference) -> None:
        """Keep nothing of a user."""
        self._kept.pop(user, None)

    def keeps(self, user: Reference) -> bool:
        """Whether sums of a user are kept."""
        return user in self._kept

    def alike(self, memory: Memory, facts: Iterable[FactId]) -> list[FactId]:
        """Those of a unit's facts that are known and in its space, which is that of the first."""
        known = [fact for fact in facts if fact in memory.canon.facts]
        return list(self.in_space(memory, known, self.space_of(memory, known))) if memory.spaces.known else known

    def in_space(self, memory: Memory, facts: Iterable[FactId], space: int) -> Iterator[FactId]:
        """Those of these known facts whose vectors are in this space; a microsecond each."""
        theirs, number_of = self._source.their_spaces(memory), memory.spaces.number_of
        for fact in facts:
            number = number_of.get(memory.canon.facts[fact].first.pointer.seq, OURS)
            if (number if number in theirs else OURS) == space:
                yield fact

    async def places(self, memory: Memory) -> Places:
        """Where the turns of a Memory stand in time."""
        return (await self._keep(memory)).places

    def space_of(self, memory: Memory, facts: Iterable[FactId]) -> int:
        """The number of the space of the first of these facts: units and groups are of one space."""
        known = memory.canon.facts if memory.spaces.known else ()
        first = next((fact for fact in facts if fact in known), None)
        return OURS if first is None else self._source.space_of(memory, first)

    async def sums(self, memory: Memory, space: int = OURS) -> tuple[UnitSums, int]:
        """The units of a space, and after how many changes they stood so: some may have come while this was made.

        Raises what `FactVectors.make` raises.
        """
        kept = await self._keep(memory)
        changes = memory.units.changes
        stale = memory.units.changed_since(kept.seen)
        page: list[UnitId] = []
        size = 0
        for at, unit in enumerate(stale, start=1):
            page.append(unit)
            size += len(memory.units.facts_of.get(unit, ()))
            if size >= FACTS_AT_ONCE or at == len(stale):
                found = await self.nodes(memory, page)
                await in_slices(each_of(found.items(), lambda each: self._put(memory, kept, *each)))
                page, size = [], 0
        kept.seen = max(kept.seen, changes)
        self._shrink()
        return kept.sums.setdefault(space, UnitSums()), kept.seen

    async def nodes(self, memory: Memory, units: Iterable[UnitId]) -> dict[UnitId, list[UnitNode]]:
        """All nodes of these units with their vectors, in time order: facts, and groups that are whole in one."""
        places = await self.places(memory)
        together = self.held_together(memory.user)
        facts_of = memory.units.facts_of

        def find(unit: UnitId) -> tuple[UnitId, list[_Node]]:
            return unit, _find_nodes(memory, self.alike(memory, facts_of.get(unit, ())), together)

        return await self._furnish(memory, places, dict(await in_slices(each_of(units, find))))

    async def nodes_with(self, memory: Memory, facts: Iterable[FactId]) -> list[UnitNode]:
        """The nodes that these facts, all of one space, are in, as of one unit."""
        places = await self.places(memory)
        together = dict(self.held_together(memory.user))
        # Of ten thousands, so not on the loop. What is taken out of the Memory meanwhile is a KeyError.
        found = await anyio.to_thread.run_sync(_find_nodes, memory, self.alike(memory, facts), together)
        return (await self._furnish(memory, places, {b"": found}))[b""]

    async def arrivals(self, memory: Memory, facts: Iterable[FactId]) -> list[UnitNode]:
        """Known facts of one space by themselves, with their vectors, in time order."""
        places = await self.places(memory)
        nodes = [_make_node(memory, (fact,)) for fact in facts if fact in memory.canon.facts]
        found = sorted(nodes, key=lambda node: node.order)
        return (await self._furnish(memory, places, {b"": found}))[b""]

    async def rows(self, memory: Memory, pointers: Iterable[Pointer]) -> dict[Pointer, Row]:
        """The unit vectors of these readings, each in its space, without those that the embedder refuses.

        Raises `EmbedderUnavailable`, `LogDamaged` or `StoreUnusable`.
        """
        by_space: dict[int, dict[Pointer, None]] = {}

        def place(pointer: Pointer) -> None:
            fact = memory.canon.holder(pointer) if memory.spaces.number_of.get(pointer.seq) else None
            space = OURS if fact is None else self._source.space_of(memory, fact.id)
            by_space.setdefault(space, {})[pointer] = None

        await in_slices(each_of(pointers, place))
        rows: dict[Pointer, Row] = {}
        for space, wanted in by_space.items():
            if space == OURS:
                rows |= await in_slices(self._vectors.rows_in_steps(memory.user, wanted))
            missing = [each for each in wanted if each not in rows]
            for at in range(0, len(missing), FACTS_AT_ONCE):
                some = missing[at : at + FACTS_AT_ONCE]
                if space == OURS:
                    made = await self._vectors.make(memory.user, some)
                    rows |= {each: row.astype(np.float32) for each, row in made.items()}
                    continue
                width = memory.spaces.known[space - 1].width
                brought = await self._source.brought.find(memory.user, list(map(FactText, some)), width)
                # Zeros: its words are gone, and it is about to go, too.
                rows |= {each: row for each, row in zip(some, brought, strict=True) if row.any()}
        return rows

    async def _furnish(
        self, memory: Memory, places: Places, found: dict[UnitId, list[_Node]]
    ) -> dict[UnitId, list[UnitNode]]:
        pointers = [pointer for nodes in found.values() for node in nodes for pointer in node.pointers]
        rows = await self.rows(memory, pointers)
        return await in_slices(_furnish_in_steps(places, found, rows))

    def _put(self, memory: Memory, kept: _Kept, unit: UnitId, nodes: list[UnitNode]) -> None:
        kept.put(unit, nodes, self.space_of(memory, (fact for node in nodes for fact in node.facts)))

    async def _keep(self, memory: Memory) -> _Kept:
        kept = self._kept.get(memory.user)
        if kept is None or kept.units is not memory.units:
            turns = list(memory.turns.values())
            places = Places(await anyio.to_thread.run_sync(_read_instants, turns), len(turns))
            # Somebody else may have been as quick.
            kept = self._kept.get(memory.user)
            if kept is None or kept.units is not memory.units:
                kept = self._kept[memory.user] = _Kept(memory.units, places)
        self._kept.move_to_end(memory.user)
        kept.places.take(memory)
        return kept

    def _shrink(self) -> None:
        """Let go of those that were used least recently, but for the last one's."""
        size_bytes = sum(kept.size_bytes for kept in self._kept.values())
        while len(self._kept) > USERS_MAX or (size_bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            _, kept = self._kept.popitem(last=False)
            size_bytes -= kept.size_bytes


def _furnish_in_steps(
    places: Places, found: Mapping[UnitId, list[_Node]], rows: Mapping[Pointer, Row]
) -> Steps[dict[UnitId, list[UnitNode]]]:
    furnished: dict[UnitId, list[UnitNode]] = {}
    for unit, nodes in found.items():
        width = next((len(rows[each]) for node in nodes for each in node.pointers if each in rows), 0)
        furnished[unit] = []
        for node in nodes:
            vector = _sum(rows, node.pointers, width)
            furnished[unit].append(UnitNode(node.facts, vector, places.place(node.said_at)))
            yield
    return furnished


def _find_nodes(
    memory: Memory, facts: Iterable[FactId], together: Mapping[FactId, tuple[FactId, ...]]
) -> list[_Node]:
    """What these facts are in, in time order. A group that goes beyond them (a trajectory) counts by its facts."""
    units, inside = memory.units, dict.fromkeys(facts)
    nodes: dict[tuple[FactId, ...], None] = {}
    for fact in inside:
        group = units.groups.get(units.group_of.get(fact, b""))
        members = together.get(fact, (fact,) if group is None else group.members)
        nodes[members if all(member in inside for member in members) else (fact,)] = None
    return sorted((_make_node(memory, each) for each in nodes), key=lambda node: node.order)


def _make_node(memory: Memory, facts: tuple[FactId, ...]) -> _Node:
    firsts = [memory.canon.facts[fact].first for fact in facts]
    last = max(firsts, key=order_of)
    return _Node(facts, tuple(first.pointer for first in firsts), last.said_at, order_of(last))


def order_of(first: Occurrence) -> tuple[Instant, int, int, int]:
    """The order in time of what facts say, as it is in every store that heard the same."""
    return first.said_at, first.turns[-1], first.pointer.n, first.pointer.seq


def _sum(rows: Mapping[Pointer, Row], pointers: Sequence[Pointer], width: int) -> Row:
    """The sum of the vectors of a node's facts; one that has none counts for nothing."""
    total = np.zeros(width, dtype=np.float32)
    for pointer in pointers:
        if pointer in rows:
            total += rows[pointer]
    return total


def _read_instants(turns: Sequence[TurnKept]) -> list[Instant]:
    return sorted({turn.said_at for turn in turns})
