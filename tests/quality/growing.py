"""A conversation grown into a Memory chunk by chunk, as the daemon grows it, without summaries.

Extraction and decisions are the daemon's own; nothing is asked to write a summary, so that trees of any shape and
budget can be counted from the same leaves (`tests.quality.refreshes`).
"""

from __future__ import annotations

import tempfile
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from pathlib import Path

import anyio

from daemon.building.deciding import Deciding
from daemon.building.extractions import plan_extractions
from daemon.building.work import Means, Origin
from daemon.memories import Memories
from daemon.offline.language_model import OfflineLanguageModel
from daemon.reading.recalled import GivenOut
from events.envelope import NewEvent, Reference
from events.log import EventLog
from projections.facts.scopes import Scope
from projections.memory import Memory, MemoryParameters
from projections.memtree.items import Item, Leaf
from projections.ports import Embedder, LanguageModel
from tests.builders import KEYS, SECRET, ManualClock, a_batch, a_closing, a_turn, seeded_nonces
from tests.bus_in_use import Reported
from tests.quality.locomo import Conversation, Turn

DECIDED_WITHIN_S = 60.0


@dataclass(frozen=True, slots=True)
class Step:
    """What some turns came to: the whole leaves of every tree that changed, and how many facts there are."""

    session: int  # counted from 0
    facts: int
    leaves: Mapping[Scope, tuple[Leaf, ...]]


@dataclass(frozen=True, slots=True)
class Grown:
    """How the trees of a conversation came about; `lengths` are the characters of each leaf's text, by digest."""

    steps: tuple[Step, ...]
    lengths: Mapping[bytes, int]

    @property
    def facts(self) -> int:
        """Canonical facts at the end."""
        return self.steps[-1].facts

    def final_leaves(self) -> dict[Scope, tuple[Leaf, ...]]:
        """The trees as they are at the end."""
        return {scope: leaves for step in self.steps for scope, leaves in step.leaves.items()}

    def by_session(self) -> tuple[Step, ...]:
        """The same growth seen at the end of each session only."""
        sessions: dict[int, Step] = {}
        for step in self.steps:
            before = sessions.get(step.session)
            leaves = {**before.leaves, **step.leaves} if before else step.leaves
            sessions[step.session] = Step(step.session, step.facts, leaves)
        return tuple(sessions.values())

    def rekeyed(self, seed: int) -> Grown:
        """The same growth with other keys, as another log would have it: other boundaries in the same trees."""
        keys = {key: blake2b(key, digest_size=16, key=seed.to_bytes(8, "big")).digest() for key in self.lengths}
        steps = tuple(
            replace(step, leaves={scope: _rekeyed(leaves, keys) for scope, leaves in step.leaves.items()})
            for step in self.steps
        )
        return Grown(steps, {keys[key]: length for key, length in self.lengths.items()})

    def at_once(self) -> tuple[Step, ...]:
        """The same growth seen at its end only."""
        return (Step(self.steps[-1].session, self.facts, self.final_leaves()),)


def events_of(conversation: Conversation) -> Iterator[tuple[NewEvent, ...]]:
    """What a chat service would publish, session by session: its turns, and that it is closed."""
    user = conversation.conversation_id
    for session in conversation.sessions:
        turns = [
            a_turn(
                content_of(turn),
                user_id=user,
                session_id=session.session_id,
                turn_id=turn.turn_id,
                name=turn.speaker,
                happened_at=turn.said_at,
            )
            for turn in session.turns
        ]
        yield (*turns, a_closing(session.session_id, user_id=user))


def content_of(turn: Turn) -> str:
    """As `memforest.locomo` publishes it."""
    return f"{turn.text} [shared: {turn.caption}]" if turn.caption else turn.text


@dataclass(slots=True)
class Gardener:
    """Grows Memories on one log: turns go in, facts are extracted, admitted and routed before more is said."""

    log: EventLog
    memories: Memories
    deciding: Deciding
    means: Means
    _woken: anyio.Event = field(default_factory=anyio.Event)

    def wake(self, _: Reference) -> None:
        """There is more to decide for a user."""
        self._woken.set()
        self._woken = anyio.Event()

    async def grow(self, events: Sequence[NewEvent], user_id: str) -> Memory:
        """Take what was said, and all that follows from it but summaries."""
        await self.log.append(a_batch(*events))
        user = KEYS.user(user_id)
        memory = await self.memories.catch_up(user)
        origin = Origin(user, memory.user_id, memory.user_seq, memory.parameters.generation)
        if read := [await work.ask(self.means) for work in plan_extractions(memory, origin)]:
            await self.log.append(a_batch(*read))
        with anyio.fail_after(DECIDED_WITHIN_S):
            while True:
                woken = self._woken
                memory = await self.deciding.decide(user, await self.memories.catch_up(user))
                if memory.pending() == memory.forest.dirty_count():
                    return memory
                await woken.wait()


@asynccontextmanager
async def gardener(
    parameters: MemoryParameters | None = None,
    model: LanguageModel | None = None,
    embedder: Embedder | None = None,
) -> AsyncGenerator[Gardener]:
    """A fresh log that is gone afterwards, the offline models unless others are given."""
    with tempfile.TemporaryDirectory(prefix="mf-") as folder:
        clock = ManualClock()
        log = await EventLog.open(Path(folder) / "events.db", clock, seeded_nonces(1), SECRET)
        try:
            memories = Memories(log, parameters or MemoryParameters(), Reported())
            means = Means(log, model or OfflineLanguageModel(), GivenOut(log.keys.secret, clock))
            growing = Gardener(log, memories, Deciding(log, memories, embedder), means)
            growing.deciding.on_ready = growing.wake
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(growing.deciding.run)
                yield growing
                tasks.cancel_scope.cancel()
        finally:
            await log.close()


async def grow_trees(
    conversation: Conversation, parameters: MemoryParameters | None = None, model: LanguageModel | None = None
) -> Grown:
    """The growth of a conversation, looked at after every chunk."""
    steps: list[Step] = []
    roots: dict[Scope, Item | None] = {}
    chunk_turns = (parameters or MemoryParameters()).chunk_turns
    async with gardener(parameters, model) as growing:
        memory: Memory | None = None
        for number, events in enumerate(events_of(conversation)):
            for part in _parts(events, chunk_turns):
                memory = await growing.grow(part, conversation.conversation_id)
                steps.append(Step(number, len(memory.canon.facts), dict(_changed(memory, roots))))
        return Grown(tuple(steps), {} if memory is None else _lengths(memory))


def _rekeyed(leaves: Iterable[Leaf], keys: Mapping[bytes, bytes]) -> tuple[Leaf, ...]:
    return tuple(replace(leaf, key=keys[leaf.key]) for leaf in leaves)


def _parts(events: Sequence[NewEvent], chunk_turns: int) -> Iterable[Sequence[NewEvent]]:
    """The turns of each chunk; the closing of the session comes with its last turns."""
    starts = range(0, len(events) - 1, chunk_turns)
    return [events[at : at + chunk_turns + (at == starts[-1])] for at in starts]


def _changed(memory: Memory, roots: dict[Scope, Item | None]) -> Iterator[tuple[Scope, tuple[Leaf, ...]]]:
    """The trees whose root is another one than in `roots`, which is brought up to date."""
    trees = memory.forest.trees
    for scope in sorted({*trees, *roots}):
        root = trees[scope].root if scope in trees else None
        if root is not roots.get(scope):
            roots[scope] = root
            yield scope, trees[scope].leaves() if scope in trees else ()


def _lengths(memory: Memory) -> dict[bytes, int]:
    """Characters by leaf digest. A leaf that left a tree on the way is a fact or a chunk all the same."""
    length_of: Callable[[Item], int] = _by_ref(memory)
    chunks = {leaf.digest: length_of(leaf) for tree in memory.forest.trees.values() for leaf in tree.leaves()}
    return chunks | {fact.first.leaf_key: fact.first.length for fact in memory.canon.facts.values()}


def _by_ref(memory: Memory) -> Callable[[Item], int]:
    nodes = memory.nodes.nodes_at(memory.nodes.live_rows().tolist())
    lengths = {node.ref: node.length for node in nodes}
    return lambda item: lengths[memory.forest.refs_of(item)[0]]
