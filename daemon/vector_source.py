"""Vectors of texts in the log: from the cache, or made and kept there; and the nodes of a Memory given theirs.

Closed chunks and facts are looked up first and kept afterwards. An open chunk is embedded as it stands and not
kept, since it will change. Groups are never embedded: the node set makes theirs of their members' vectors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from daemon.brought_vectors import FILLED_MAX, BroughtVectors
from daemon.texts import read_behind
from events.envelope import RecordedEvent, Reference
from events.errors import LogDamaged, StoreUnusable
from events.faults import fault_point
from events.log import EventLog
from events.memory import FactId
from events.session import MemoryImported
from projections.facts.imported import read_embedding
from projections.memory import Memory
from projections.ports import CachedVector, Embedder, EmbedderUnavailable, VectorCache, Vectors
from projections.recall.nodes import NodeKind, SearchNode
from projections.spaces import OURS, Space
from projections.texts import FactText, TextRef, compose, events_behind, name_text

# Part of the name under which vectors are kept: another way of making texts of nodes gets another number.
TEXTS_VERSION = 1
# Nodes whose vectors are looked up at once: ten to thirty megabytes.
LOOKED_UP_MAX = 16_384
# Texts that are named and vectors that are placed at once: a millisecond of the loop, which comes back sooner than
# others get their turn.
NAMED_MAX = 1_024
PLACED_MAX = 256
# A Memory that is loaded gets so many vectors that are not kept, such as those of open chunks, if that is quick:
# whoever asked for it waits.
FURNISHED_MAX = 8
FURNISH_WITHIN_S = 0.5


class NoCache:
    """A `VectorCache` that keeps nothing."""

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """Nothing is here."""
        return {}

    async def keep(self, user: Reference, model: str, vectors: Sequence[CachedVector]) -> None:
        """It is let go."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A text whose vector is wanted; `key` is its name in the cache, None for one that is not kept.

    `space`: whose vector it is, None for our embedder's.
    """

    ref: TextRef
    key: bytes | None
    space: Space | None = None

    @property
    def seqs(self) -> tuple[int, ...]:
        """The events whose words are in it."""
        return tuple(sorted(events_behind([self.ref])))


@dataclass(slots=True, eq=False)
class _Making:
    """A vector that somebody is making just now; `row` is None until it is there, and for ever if that failed."""

    done: anyio.Event = field(default_factory=anyio.Event)
    row: NDArray[np.float16] | None = None


class VectorSource:
    """Vectors of texts in the log: from the cache, or made and kept there.

    Who wants what another one is making waits for that: nothing is embedded twice because two came at once.
    """

    def __init__(
        self,
        log: EventLog,
        embedder: Embedder,
        cache: VectorCache | None = None,
        brought: VectorCache | None = None,
    ) -> None:
        """`brought` is where the vectors are kept that memories came with; without it, `cache`."""
        self._log = log
        self._embedder = embedder
        self._cache = cache or NoCache()
        self.brought = BroughtVectors(log, brought or self._cache)
        self._making: dict[tuple[Reference, bytes], _Making] = {}

    @property
    def model(self) -> str:
        """The name that vectors are kept under."""
        return f"{self._embedder.name}/{TEXTS_VERSION}"

    async def kept(self, user: Reference, refs: Sequence[TextRef]) -> dict[TextRef, NDArray[np.float16]]:
        """The vectors of these texts that are in the cache; none is made."""
        keys = [name_text(ref) for ref in refs]
        found = await self._load(user, keys)
        return {ref: found[key] for ref, key in zip(refs, keys, strict=True) if key in found}

    async def at_hand(self, user: Reference, refs: Sequence[TextRef]) -> dict[TextRef, NDArray[np.float16]]:
        """Those of these vectors that cost nothing: what is kept, or all where the embedder only hashes words."""
        if self._embedder.ranks:
            return await self.kept(user, refs)
        rows = await self.find(user, [Wanted(ref, None) for ref in refs])
        return {ref: row.astype(np.float16) for ref, row in zip(refs, rows, strict=True)}

    def our_spaces(self, memory: Memory) -> frozenset[int]:
        """The numbers of the spaces whose vectors are our embedder's: ours, and one that bears its name."""
        same = memory.spaces.find(self._embedder.name) if memory.spaces.known else None
        return frozenset((OURS,) if same is None else (OURS, same.number))

    def their_spaces(self, memory: Memory) -> frozenset[int]:
        """The numbers of the others, whose vectors memories came with."""
        return frozenset(space.number for space in memory.spaces.known) - self.our_spaces(memory)

    def space_of(self, memory: Memory, fact: FactId) -> int:
        """The number of the space that a fact's vector is in; of two spaces they are never compared or added."""
        number = memory.placement.space_of(fact)
        return OURS if number in self.our_spaces(memory) else number

    def want(self, memory: Memory, fact: FactId) -> Wanted:
        """A fact's vector in its space, to be found with others of that space."""
        ref = FactText(memory.canon.facts[fact].first.pointer)
        number = self.space_of(memory, fact)
        return Wanted(ref, name_text(ref), memory.spaces.known[number - 1] if number else None)

    async def find(self, user: Reference, wanted: Sequence[Wanted]) -> Vectors:
        """One unit row a text, shape (len(wanted), dimensions), rounded to what float16 holds; all of one space.

        Raises `EmbedderUnavailable` (never for another system's space), `LogDamaged` or `StoreUnusable`.
        """
        space = wanted[0].space if wanted else None
        if any(each.space != space for each in wanted):
            raise ValueError("vectors of several spaces are found one space after the other")
        if space is not None:
            refs = [each.ref for each in wanted if isinstance(each.ref, FactText)]
            return await self.brought.find(user, refs, space.width)
        rows: dict[Wanted, NDArray[np.float16]] = {}
        keys = [each.key for each in wanted if each.key is not None]
        if keys:
            found = await self._load(user, keys)
            rows = {each: found[each.key] for each in wanted if each.key in found}
        while missing := list(dict.fromkeys(each for each in wanted if each not in rows)):
            rows |= await self._make_or_wait(user, missing)
        if not wanted:
            return np.zeros((0, self._embedder.dimensions), dtype=np.float32)
        return np.stack([rows[each] for each in wanted]).astype(np.float32)

    async def _load(self, user: Reference, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        """What the cache has under these keys in our width."""
        width = self._embedder.dimensions
        if not width:
            return {}  # an endpoint has not told it yet, and so its vectors' name is not known
        found = await self._cache.load(user, self.model, keys)
        return {key: vector for key, vector in found.items() if vector.shape == (width,)}

    async def _make_or_wait(self, user: Reference, missing: Sequence[Wanted]) -> dict[Wanted, NDArray[np.float16]]:
        """The rows that nobody makes yet, and those that others make; without those that others failed to make."""
        theirs = {
            each: making
            for each in missing
            if each.key is not None and (making := self._making.get((user, each.key))) is not None
        }
        ours = [each for each in missing if each not in theirs]
        rows: dict[Wanted, NDArray[np.float16]] = {}
        # Before waiting for others, who may wait for these.
        if ours:
            makings = {each: _Making() for each in ours if each.key is not None}
            keys = [(user, each.key) for each in ours if each.key is not None]
            self._making.update(zip(keys, makings.values(), strict=True))
            try:
                rows = await self._make(user, ours)
            finally:
                for key, (each, making) in zip(keys, makings.items(), strict=True):
                    del self._making[key]
                    making.row = rows.get(each)
                    making.done.set()
        for each, making in theirs.items():
            await making.done.wait()
            if making.row is not None:
                rows[each] = making.row
        return rows

    async def _make(self, user: Reference, missing: Sequence[Wanted]) -> dict[Wanted, NDArray[np.float16]]:
        recorded = await read_behind(self._log, [each.ref for each in missing])
        texts = [compose(each.ref, recorded) for each in missing]
        rows = self._read_brought(missing, recorded)
        unmade = {each: text or "" for each, text in zip(missing, texts, strict=True) if each not in rows}
        if unmade:
            made = await self._embedder.embed(list(unmade.values()))
            rows.update(zip(unmade, made.astype(np.float16), strict=True))
        kept = [
            CachedVector(each.key, each.seqs, rows[each])
            for each, text in zip(missing, texts, strict=True)
            # None: erased meanwhile; its node is about to go.
            if each.key is not None and text is not None
        ]
        if kept:
            fault_point("vectors.before_keep")
            await self._cache.keep(user, self.model, kept)
            fault_point("vectors.after_keep")
        return rows

    def _read_brought(
        self, missing: Sequence[Wanted], recorded: Mapping[int, RecordedEvent]
    ) -> dict[Wanted, NDArray[np.float16]]:
        """The vectors that imported memories came with, where this very model made them."""
        model, width = self._embedder.name, self._embedder.dimensions
        rows: dict[Wanted, NDArray[np.float16]] = {}
        for each in missing:
            event = recorded[each.ref.occurrence.seq].event if isinstance(each.ref, FactText) else None
            vector = read_embedding(event, model, width) if isinstance(event, MemoryImported) else None
            if vector is not None:
                rows[each] = vector.astype(np.float16)
        return rows

    def without_vectors(self, memory: Memory, limit: int) -> list[SearchNode]:
        """Nodes of a Memory whose vectors are to be made by our embedder, or looked up."""
        nodes = memory.nodes.without_vectors(limit, self.our_spaces(memory))
        return [node for node in nodes if node.kind is not NodeKind.GROUP]

    async def fill(self, memory: Memory, batch: Sequence[SearchNode]) -> None:
        """Give nodes of a Memory their vectors, as far as they are still what they were when these are there.

        Raises `EmbedderUnavailable`, `LogDamaged` or `StoreUnusable`.
        """
        nodes = [node for node in batch if is_current(memory, node)]
        vectors = await self.find(memory.user, [_want(memory, node) for node in nodes])
        # What grew, was reworded or forgotten meanwhile has another vector now, or none.
        kept = [at for at, node in enumerate(nodes) if is_current(memory, node)]
        if kept:
            memory.nodes.set_vectors([nodes[at].id for at in kept], vectors[kept])

    async def fill_brought(self, memory: Memory, limit: int = FILLED_MAX, *, kept_only: bool = False) -> bool:
        """Give up to so many nodes the vectors they came with; whether there may be more.

        `kept_only`: without those that are still to be read from the log.

        Raises `LogDamaged` or `StoreUnusable`.
        """
        nodes, seq = memory.nodes, memory.user_seq
        if nodes.brought_at == seq:
            return False
        theirs = self.their_spaces(memory)
        batch = nodes.without_vectors(limit, theirs) if theirs else []
        batch = [node for node in batch if node.kind is not NodeKind.GROUP]
        if not batch:
            nodes.brought_at = seq
            return False
        before = nodes.count_without_vectors(theirs)
        await self.brought.fill(memory, batch, kept_only=kept_only)
        return nodes.count_without_vectors(theirs) != before

    async def furnish(self, memory: Memory, *, ours: bool = True) -> None:
        """Give a Memory that was just loaded the vectors that are kept, so that it answers as it did before.

        The few that are not kept are made, if that is quick; what is missing then comes with a `VectorFiller`.
        Without `ours` only those that memories came with.
        """
        try:
            while await self.fill_brought(memory, kept_only=True):
                pass
            with anyio.move_on_after(FURNISH_WITHIN_S):
                while await self.fill_brought(memory):
                    pass
            if not ours:
                return
            await self._put_kept(memory)
            rest = self.without_vectors(memory, FURNISHED_MAX + 1)
            if len(rest) <= FURNISHED_MAX:
                with anyio.move_on_after(FURNISH_WITHIN_S):
                    await self.fill(memory, rest)
        except (EmbedderUnavailable, LogDamaged, StoreUnusable):
            return  # `status` says why, and whoever follows the log

    async def _put_kept(self, memory: Memory) -> None:
        """Give the nodes the vectors that are kept."""
        wanted = memory.nodes.ids_without_vectors(self.our_spaces(memory))
        for at in range(0, len(wanted), LOOKED_UP_MAX):
            names = await _name_texts(memory, wanted[at : at + LOOKED_UP_MAX])
            kept = await self._load(memory.user, list(names.values()))
            if not kept:
                return  # where many in a row are not kept, hardly any is: another embedder was chosen
            ids = list(names)
            for start in range(0, len(ids), PLACED_MAX):
                await anyio.lowlevel.checkpoint()
                found = [each for each in ids[start : start + PLACED_MAX] if names[each] in kept]
                if found:
                    vectors = np.concatenate([kept[names[each]] for each in found])
                    memory.nodes.set_vectors(found, vectors.reshape(len(found), -1))


async def _name_texts(memory: Memory, ids: Sequence[bytes]) -> dict[bytes, bytes]:
    """The names of nodes' texts, with a chance for others now and then; without those that are gone by then."""
    names: dict[bytes, bytes] = {}
    for at in range(0, len(ids), NAMED_MAX):
        names |= memory.nodes.name_texts(ids[at : at + NAMED_MAX])
        await anyio.lowlevel.checkpoint()
    return names


def _want(memory: Memory, node: SearchNode) -> Wanted:
    # With the next turn an open chunk is another text.
    is_open = node.kind is NodeKind.CHUNK and node.id not in memory.chunks
    return Wanted(node.ref, None if is_open else name_text(node.ref))


def is_current(memory: Memory, node: SearchNode) -> bool:
    """Whether a node still has the text that it had: a chunk keeps its id while it grows, a fact keeps both."""
    if node.kind is not NodeKind.CHUNK:
        return True
    row = memory.nodes.row_of.get(node.id)
    return row is not None and memory.nodes.node(row).ref == node.ref
