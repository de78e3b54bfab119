"""Nodes of trees get their vectors in the background, after facts and chunks; recall asks here for roots."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import anyio
import anyio.lowlevel
import anyio.to_thread
import numpy as np
from numpy.typing import NDArray

from daemon.asking.tree_nodes import may_be_shown
from daemon.folding import in_slices
from daemon.memories import Memories
from daemon.vector_source import VectorSource, Wanted
from daemon.vectors import VectorFiller
from events.envelope import Reference
from events.errors import LogDamaged, StoreUnusable
from projections.facts.chunking import make_chunk_key
from projections.facts.scopes import Scope
from projections.memory import Memory
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.tree_vectors import (
    NO_CODES,
    Codes,
    ItemVectors,
    RootVectors,
    count_without_vectors,
    gather,
    look_for_wanted,
)
from projections.ports import EmbedderUnavailable, TextRefused
from projections.recall.slab import quantise
from projections.texts import FactText, TextRef, TurnsText, name_text

# Nodes of a batch: what a model in this process embeds in a tenth of a second; facts wait no longer for it.
NODES_MAX = 32
# Nodes that get theirs at once: some milliseconds of the loop.
SETTLED_MAX = 4
# So many of the nodes that were found are taken before trees that grew meanwhile are looked through again.
TAKEN_MAX = 256
# Steps of a walk through the trees of a user for `status`: a millisecond or two.
COUNTING_STEPS_MAX = 2_000
# While a tree is built its summaries come one by one: they are embedded together when it stands, or after so long.
TOGETHER_WITHIN_S = 10.0
# After an embedder failed, or the log of a user did.
FAILED_PAUSE_S = 2.0
# Who asks for roots waits so long for vectors that are missing; what is not there by then is left out.
FILL_WITHIN_S = 0.5
# Users who asked for roots, where vectors are made for these alone.
ASKED_MAX = 1_000


class TreeVectorFiller:
    """Vectors of the nodes of all Memories that are here: one batch at a time, of one user after the other."""

    def __init__(
        self,
        memories: Memories,
        source: VectorSource,
        ahead: VectorFiller | None = None,
        *,
        eager: bool,
        quick: bool = False,
    ) -> None:
        """`ahead` gives facts and chunks theirs, which come first.

        Unless `eager` the nodes of a user get theirs once somebody asks for roots: where vectors rank nothing
        else, as those of the hashing embedder, most users need none. `quick`: making one takes neither a call nor
        long, so that whoever asks can wait for it.
        """
        self._memories = memories
        self._source = source
        self._ahead = ahead
        self._eager = eager
        self._quick = quick
        self._asked: OrderedDict[Reference, None] = OrderedDict()
        # Since when nodes of a user wait for the rest of their trees, and until when a user whose texts cannot be
        # read is left alone (monotonic).
        self._waiting_since: dict[Reference, float] = {}
        self._left_until: dict[Reference, float] = {}

    def count_waiting(self) -> int:
        """Nodes that have a text and want a vector, of the Memories that are here; of very many, at least some."""
        waiting = 0
        for user, memory in self._memories.loaded().items():
            if self._serves(user) and memory.tree_vectors.settled_at != memory.user_seq:
                waiting += _count_wanted(memory)
        return waiting

    async def run(self) -> None:
        """Fill for ever. What cannot be embedded now is tried again after a pause."""
        while True:
            changed, loaded = self._memories.changed, self._memories.loaded()
            for times in (self._waiting_since, self._left_until):
                for user in times.keys() - loaded.keys():
                    del times[user]
            went_on = False
            try:
                for user, memory in loaded.items():
                    if self._is_due(user, memory):
                        went_on |= await self._fill_user(user, memory)
            except EmbedderUnavailable:  # `status` says why
                await anyio.sleep(FAILED_PAUSE_S)
            if not went_on:
                await self._memories.wait_a_moment(changed)

    async def roots(self, user: Reference) -> RootVectors:
        """What root recall begins at: the roots of the trees that may be shown, and intervals of large ones.

        Loads the user's Memory if it is not here. Raises `LogDamaged` or `StoreUnusable`.
        """
        async with self._memories.use(user) as memory:
            self._note_asked(user)
            await self._fill_soon(memory)
            vectors = memory.tree_vectors
            state = (memory.user_seq, vectors.changes, memory.hidden, memory.hidden_turns)
            if vectors.told is not None and vectors.told[0] == state:
                return vectors.told[1]
            found = _roots_of(memory)
            parts = await self._vectors_of(memory, [item for _, item in found])
            # Thousands of roots take longer than the loop has.
            roots = await anyio.to_thread.run_sync(_gather_roots, found, parts)
            vectors.told = state, roots
            return roots

    async def ready(self, memory: Memory) -> None:
        """Have the vectors of nodes that take neither long nor a call: somebody is about to compare them."""
        self._note_asked(memory.user)
        await self._fill_soon(memory)

    async def children(self, user: Reference, nodes: Sequence[Node]) -> ItemVectors:
        """The children of these nodes, in order, leaves among them. One without a vector has cosine 0.

        Loads the user's Memory if it is not here. Raises `LogDamaged` or `StoreUnusable`.
        """
        items = [child for node in nodes for child in node.children]
        async with self._memories.use(user) as memory:
            return gather(items, await self._vectors_of(memory, items))

    def _serves(self, user: Reference) -> bool:
        return self._eager or user in self._asked

    def _note_asked(self, user: Reference) -> None:
        self._asked[user] = None
        self._asked.move_to_end(user)
        if len(self._asked) > ASKED_MAX:
            self._asked.popitem(last=False)

    def _is_due(self, user: Reference, memory: Memory) -> bool:
        """Whether nodes of a user want vectors, and neither their trees nor vectors of facts are being made."""
        if memory.tree_vectors.settled_at == memory.user_seq or not self._serves(user):
            return False
        now = anyio.current_time()
        since = self._waiting_since.setdefault(user, now)
        if self._left_until.get(user, now) > now or (memory.pending() and now - since < TOGETHER_WITHIN_S):
            return False
        return self._ahead is None or not self._ahead.is_behind(memory)

    async def _fill_user(self, user: Reference, memory: Memory) -> bool:
        try:
            return await self._fill_some(memory, make=True)
        except (LogDamaged, StoreUnusable):  # whoever follows the log reports it
            self._left_until[user] = anyio.current_time() + FAILED_PAUSE_S
            return False

    async def _fill_soon(self, memory: Memory) -> None:
        """Fill what takes neither long nor a call: somebody waits."""
        if memory.tree_vectors.settled_at == memory.user_seq:
            return
        with anyio.move_on_after(FILL_WITHIN_S):
            while await self._fill_some(memory, make=self._quick):
                pass

    async def _fill_some(self, memory: Memory, *, make: bool) -> bool:
        """Give some nodes their vectors; whether any got one. Without `make` only what takes no call."""
        forest, vectors = memory.forest, memory.tree_vectors
        nodes = await _take_wanted(memory)
        if not nodes:
            await in_slices(vectors.sweep(forest))
            vectors.settled_at = vectors.wanted_at
            self._waiting_since.pop(memory.user, None)
            return False
        refs = {node.digest: forest.summaries[node.digest] for node in nodes if node.digest in forest.summaries}
        found = await self._find(memory.user, list(refs.values()), make=make)
        written = {digest: found[ref] for digest, ref in refs.items() if ref in found}
        composed = [node for node in nodes if node.digest not in refs]
        below = [child for node in composed for child in node.children if isinstance(child, Leaf)]
        parts, refused = await self._leaf_codes(memory, below, make=make)
        leaves: dict[bytes, NDArray[np.floating[Any]] | None] = dict.fromkeys(refused)
        for part in parts:
            leaves.update(part.restored())
        went_on = False
        for at in range(0, len(nodes), SETTLED_MAX):
            went_on |= vectors.settle(nodes[at : at + SETTLED_MAX], refs, written, leaves)
            await anyio.lowlevel.checkpoint()
        return went_on

    async def _vectors_of(self, memory: Memory, items: Sequence[Item]) -> list[Codes]:
        """The vectors of nodes and leaves, as far as they are there, or are made without a call."""
        leaves = [item for item in items if isinstance(item, Leaf)]
        parts, _ = await self._leaf_codes(memory, leaves, make=self._quick)
        nodes = dict.fromkeys(item.digest for item in items if item.level)
        return [memory.tree_vectors.codes_of(nodes), *parts]

    async def _leaf_codes(
        self, memory: Memory, leaves: Iterable[Leaf], *, make: bool
    ) -> tuple[list[Codes], list[bytes]]:
        """The vectors of leaves: of the facts and chunks that are searched, or kept, or made; and the keys of
        leaves whose texts the model refuses."""
        wanted = {leaf.key: ref for leaf in leaves if (ref := memory.forest.leaf_ref(leaf.key)) is not None}
        searched = _searched(memory, wanted)
        rest = {key: wanted[key] for key in wanted.keys() - set(searched.digests)}
        found = await self._find(memory.user, list(rest.values()), make=make)
        rows = {key: row for key, ref in rest.items() if (row := found.get(ref)) is not None}
        parts = [searched]
        if rows:
            parts.append(Codes(list(rows), quantise(np.stack(list(rows.values())))))
        return parts, [key for key, ref in rest.items() if ref in found and key not in rows]

    async def _find(
        self, user: Reference, refs: Sequence[TextRef], *, make: bool
    ) -> dict[TextRef, NDArray[np.floating[Any]] | None]:
        """The vectors of these texts: those that are kept, and with `make` all; None for one that is refused."""
        if not refs:
            return {}
        if not make:
            return dict(await self._source.kept(user, refs))
        try:
            rows = await self._source.find(user, [Wanted(ref, name_text(ref)) for ref in refs])
        except TextRefused:
            if len(refs) == 1:
                return {refs[0]: None}
            half = len(refs) // 2
            first = await self._find(user, refs[:half], make=True)
            return first | await self._find(user, refs[half:], make=True)
        return dict(zip(refs, rows, strict=True))


async def _take_wanted(memory: Memory) -> list[Node]:
    """Some nodes that want a vector, children before parents.

    To look for them takes a walk through the trees, so all that it finds are kept for the next batches.
    """
    forest, vectors = memory.forest, memory.tree_vectors
    while True:
        is_old = vectors.wanted_at != memory.user_seq and vectors.taken >= TAKEN_MAX
        if is_old or not vectors.wanted:
            user_seq = memory.user_seq
            wanted: list[Node] = []
            await in_slices(look_for_wanted(forest, vectors, wanted))
            vectors.wanted, vectors.wanted_at, vectors.taken = wanted, user_seq, 0
            if not vectors.wanted:
                return []
        some, vectors.wanted = vectors.wanted[:NODES_MAX], vectors.wanted[NODES_MAX:]
        vectors.taken += len(some)
        # Others may have got theirs meanwhile.
        left = [node for node in some if node.digest not in vectors]
        if left:
            return left


def _count_wanted(memory: Memory) -> int:
    """How many nodes want a vector, counted once for each state of a Memory."""
    vectors = memory.tree_vectors
    state = memory.user_seq, vectors.changes
    if vectors.counted[0] != state:
        vectors.counted = state, count_without_vectors(memory.forest, vectors, COUNTING_STEPS_MAX)
    return vectors.counted[1]


def _roots_of(memory: Memory) -> list[tuple[Scope, Item]]:
    """Where recall may enter the trees that may be shown, by kind and name of their scopes."""
    scopes = sorted(memory.forest.trees, key=lambda scope: (scope.kind, scope.name))
    shown = scopes
    if memory.hidden or memory.hidden_turns:
        shown = [scope for scope in scopes if may_be_shown(memory, scope)]
    return [(scope, item) for scope in shown for item in memory.forest.recall_roots(scope)]


def _gather_roots(found: Sequence[tuple[Scope, Item]], parts: Sequence[Codes]) -> RootVectors:
    having = {digest for part in parts for digest in part.digests}
    kept = [(scope, item) for scope, item in found if item.digest in having]
    gathered = gather([item for _, item in kept], parts)
    return RootVectors(gathered.items, gathered.rows, gathered.picture, tuple(scope for scope, _ in kept))


def _searched(memory: Memory, wanted: Mapping[bytes, TextRef]) -> Codes:
    """The vectors that facts and chunks are searched by, of those leaves which have a row of their own."""
    nodes = memory.nodes
    slab = nodes.view().slab
    row_of = {key: nodes.row_of.get(_searched_id(memory, ref), -1) for key, ref in wanted.items()}
    having = [key for key, row in row_of.items() if row >= 0]
    if slab is None or not having:
        return NO_CODES
    rows = np.array([row_of[key] for key in having], dtype=np.intp)
    codes = slab.take(rows)
    # A fact keeps its id when another of its wordings comes first.
    current = [node.ref == wanted[key] for key, node in zip(having, nodes.nodes_at(rows.tolist()), strict=True)]
    places = [at for at, is_current in enumerate(current) if is_current and codes.steps[at]]
    return Codes([having[at] for at in places], codes.take(places))


def _searched_id(memory: Memory, ref: TextRef) -> bytes:
    """The id under which the text of a leaf is searched, if it is."""
    if isinstance(ref, TurnsText):
        return make_chunk_key(memory.turns[seq].key for seq in ref.turns if seq in memory.turns)
    fact = memory.canon.holder(ref.occurrence) if isinstance(ref, FactText) else None
    return b"" if fact is None else fact.id
