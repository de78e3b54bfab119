"""Vectors of nodes: made in the background after all others, kept, taken up again, and gone with what they say."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

import anyio
import numpy as np
import pytest

from daemon.derived import DERIVED, DerivedStore
from daemon.erasure.forgetting import Forgetter
from daemon.offline.embedder import HashingEmbedder
from daemon.store_files import with_sidecars
from daemon.texts import read_texts
from daemon.tree_vectors import TreeVectorFiller
from daemon.vector_source import VectorSource
from daemon.vectors import VectorFiller
from events.log import EventLog
from projections.memory import Memory
from projections.memtree.items import Item, Leaf, Node
from projections.memtree.tree_vectors import RootVectors
from projections.ports import Embedder, EmbedderUnavailable, TextRefused, VectorCache, Vectors
from tests.builders import ManualClock, a_forgetting
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.scripted_bus import erasing_without_a_server
from tests.scripted_models import ScriptedEmbedder, ScriptedModel
from tests.waiting import wait_until

CITIES = ("Oslo", "Rome", "Bern", "Riga", "Nice", "Kyiv", "Cork", "Lodz")
# Three children a node; what is short is put together.
SHORT_TOGETHER = replace(SMALL, concatenation_max=100)


@dataclass
class Filling:
    """The daemon's parts with both fillers at work."""

    parts: Parts
    vectors: VectorFiller
    nodes: TreeVectorFiller

    async def until_filled(self) -> RootVectors:
        """Wait until everything is summarised and has its vector; the roots."""
        await self.parts.until_done()
        await wait_until(
            lambda: not self.vectors.count_waiting() and not self.nodes.count_waiting(),
            message="not all vectors are made",
        )
        return await self.nodes.roots(ALICE)

    def memory(self) -> Memory:
        return self.parts.memories.loaded()[ALICE]


@asynccontextmanager
async def filling(
    parts: Parts, embedder: Embedder, cache: VectorCache | None = None, *, eager: bool = True
) -> AsyncGenerator[Filling]:
    """The worker and the fillers run."""
    source = VectorSource(parts.log, embedder, cache)
    vectors = VectorFiller(parts.memories, embedder, source, parts.reported)
    nodes = TreeVectorFiller(parts.memories, source, vectors, eager=eager, quick=not eager)
    async with running(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(vectors.run)
        tasks.start_soon(nodes.run)
        try:
            yield Filling(parts, vectors, nodes)
        finally:
            tasks.cancel_scope.cancel()


@asynccontextmanager
async def kept(log: EventLog) -> AsyncGenerator[DerivedStore]:
    store = await DerivedStore.open(log.path.parent / DERIVED, log, Reported(), 64 << 20)
    try:
        yield store
    finally:
        await store.close()


async def tell(parts: Parts, *cities: str, session_id: str = "s1") -> None:
    """A session of a turn a city, and its end."""
    await parts.memory()
    await parts.say(*(f"I was in {city}." for city in cities), session_id=session_id)
    await parts.close(session_id)


def said(embedder: ScriptedEmbedder) -> list[str]:
    """The texts it was asked for, without what the filler tries it with."""
    return [text for text in embedder.texts if text != "."]


async def summaries(parts: Parts) -> list[str]:
    """The oracle: the summaries that the log holds."""
    refs = list(parts.memories.loaded()[ALICE].forest.summaries.values())
    return [text for text in await read_texts(parts.log, refs) if text is not None]


def standing(memory: Memory) -> set[bytes]:
    return {node.digest for tree in memory.forest.trees.values() for node in tree.nodes()}


async def test_every_node_with_a_text_has_a_vector_and_each_summary_is_embedded_once(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        await fill.until_filled()
        first = said(embedder), await summaries(parts)
        await tell(parts, *CITIES[4:], session_id="s2")
        await fill.until_filled()
        memory, written = fill.memory(), await summaries(parts)

    assert len(standing(memory)) >= 3
    assert all(digest in memory.tree_vectors for digest in standing(memory))
    assert [said(embedder).count(text) for text in written] == [1] * len(written)
    assert sorted(first[0][-len(first[1]) :]) == sorted(first[1]), "facts and chunks come first"


async def test_roots_come_by_scope_and_each_is_as_near_as_its_summary(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        await tell(parts, *CITIES[4:], session_id="s2")
        roots = await fill.until_filled()
        forest = fill.memory().forest
        questions = [
            (await embedder.embed([await text_of(parts, item)]))[0] if isinstance(item, Node) else None
            for item in roots.items
        ]
        nearest = [int(np.argmax(roots.cosines(question))) for question in questions if question is not None]

    assert roots.scopes == tuple(sorted(forest.trees))
    assert roots.items == tuple(forest.trees[scope].root for scope in roots.scopes)
    assert nearest == [at for at, item in enumerate(roots.items) if isinstance(item, Node)]
    assert len(nearest) >= 2


def session_root(roots: RootVectors) -> Node:
    """The root of the tree of the only session, whose leaves are its chunks."""
    (root,) = (item for scope, item in zip(roots.scopes, roots.items, strict=True) if scope.kind == "session")
    assert isinstance(root, Node)
    return root


async def text_of(parts: Parts, node: Item) -> str:
    """The oracle: a node's summary, or a leaf's text, as the log has it."""
    (text,) = await read_texts(parts.log, parts.memories.loaded()[ALICE].forest.refs_of(node))
    assert text is not None
    return text


async def test_children_are_told_in_order_leaves_among_them(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES, session_id="s1")
        roots = await fill.until_filled()
        root = session_root(roots)
        children = await fill.nodes.children(ALICE, [root, root])
        asked = (await embedder.embed(["Alice: I was in Bern.\nAlice: I was in Riga."]))[0]

    assert children.items == root.children * 2
    assert all(isinstance(child, Leaf) for child in children.items)
    assert np.flatnonzero(children.cosines(asked) > 0.999).tolist() == [1, 5]
    assert (children.cosines(asked) != 0).all()


async def test_what_is_put_together_takes_no_call_of_its_own(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder, memory=replace(SMALL, concatenation_max=10_000))
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES, session_id="s1")
        roots = await fill.until_filled()
        root = session_root(roots)
        texts = [await text_of(parts, child) for child in root.children]
        total = np.sum(await ScriptedEmbedder().embed(texts), axis=0)

    place = roots.items.index(root)
    assert roots.cosines(total / np.linalg.norm(total))[place] == pytest.approx(1, abs=1e-3)
    assert await summaries(parts) == []
    assert max(text.count("I was in") for text in said(embedder)) == 2, "chunks are the longest texts embedded"


async def test_after_a_restart_the_vectors_are_there_without_a_call(log: EventLog, clock: ManualClock) -> None:
    first, second = ScriptedEmbedder(), ScriptedEmbedder()
    parts, again = build_parts(log, clock, embedder=first), build_parts(log, clock, embedder=second)
    question = (await ScriptedEmbedder().embed(["Oslo"]))[0]
    async with kept(log) as store, filling(parts, first, store) as fill:
        await tell(parts, *CITIES)
        before = await fill.until_filled()
    await again.memory()
    async with kept(log) as store, filling(again, second, store) as fill:
        at_once = await fill.nodes.roots(ALICE)
        after = await fill.until_filled()

    assert said(second) == []
    assert before.scopes == after.scopes == at_once.scopes
    assert before.cosines(question).tolist() == after.cosines(question).tolist()


async def test_another_embedder_makes_its_own_and_drives_the_old_out(log: EventLog, clock: ManualClock) -> None:
    first, second = ScriptedEmbedder(), ScriptedEmbedder(seed=2)
    second.name = "another"
    parts, again = build_parts(log, clock, embedder=first), build_parts(log, clock, embedder=second)
    async with kept(log) as store:
        async with filling(parts, first, store) as fill:
            await tell(parts, *CITIES)
            await fill.until_filled()
        refs = list(parts.memories.loaded()[ALICE].forest.summaries.values())
        old = await VectorSource(log, first, store).kept(ALICE, refs)
        await again.memory()
        async with filling(again, second, store) as fill:
            await fill.until_filled()
        dropped = await VectorSource(log, first, store).kept(ALICE, refs)
        new = await VectorSource(log, second, store).kept(ALICE, refs)

    assert len(old) == len(new) == len(refs) >= 1
    assert dropped == {}


async def test_a_node_that_waits_for_its_summary_is_no_root_and_the_old_summary_does_not_stand_for_it(
    log: EventLog, clock: ManualClock
) -> None:
    embedder, model = ScriptedEmbedder(), ScriptedModel()
    parts = build_parts(log, clock, embedder=embedder, model=model)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        before = await fill.until_filled()
        model.held = True
        await tell(parts, *CITIES[4:], session_id="s2")
        while not any(call.task == "summarise" for call in model.waiting()):
            await parts.until_asked(1)
            for call in model.waiting():
                if call.task != "summarise":
                    call.answer()
            await anyio.lowlevel.checkpoint()
        memory = fill.memory()
        during = await fill.nodes.roots(ALICE)
        dirty = {scope for scope in memory.forest.trees if memory.forest.dirty_count(scope)}
        model.release()
        after = await fill.until_filled()

    assert dirty
    assert dirty.isdisjoint(during.scopes)
    assert set(during.scopes) | dirty == set(after.scopes)
    assert set(before.scopes) <= set(after.scopes)


async def test_vectors_that_rank_nothing_are_made_once_somebody_asks(log: EventLog, clock: ManualClock) -> None:
    embedder = HashingEmbedder(256)
    parts = build_parts(log, clock, embedder=embedder)
    async with filling(parts, embedder, eager=False) as fill:
        await tell(parts, *CITIES)
        await parts.until_done()
        memory = fill.memory()
        unasked = len(memory.tree_vectors), fill.nodes.count_waiting()
        roots = await fill.nodes.roots(ALICE)
        await tell(parts, *CITIES, session_id="s2")
        await fill.until_filled()
        children = await fill.nodes.children(ALICE, [item for item in roots.items if isinstance(item, Node)])
        asked = (await embedder.embed(["Alice: I was in Oslo."]))[0]

    assert unasked == (0, 0)
    assert set(roots.scopes) <= set(memory.forest.trees)
    assert roots.items
    assert all(digest in memory.tree_vectors for digest in standing(memory))
    assert children.cosines(asked).min() > 0.2


async def test_a_forgotten_session_takes_the_vectors_of_its_nodes_out_of_every_file(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedEmbedder(dimensions=64)
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store:
        erasing = replace(erasing_without_a_server(log, log.path.parent, clock, parts.reported), derived=store)
        async with filling(parts, embedder, store) as fill:
            await tell(parts, *CITIES[:4], session_id="s1")
            await fill.until_filled()
            await tell(parts, *CITIES[4:], session_id="s2")
            await fill.until_filled()
            texts = await summaries(parts)
            stored = [row.astype(np.float16).tobytes() for row in await ScriptedEmbedder(64).embed(texts)]
            before = [vector in files_of(log) for vector in stored]
            forgetter = Forgetter(erasing, parts.memories, wait_s=5)
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(forgetter.run)
                await log.append_event(a_forgetting("s1"))
                await wait_until(lambda: "forgetting.erased" in parts.reported.names())
                tasks.cancel_scope.cancel()
            roots = await fill.until_filled()
            kept_texts = await summaries(parts)

    gone = [vector for text, vector in zip(texts, stored, strict=True) if text not in kept_texts]
    assert before == [True] * len(texts)
    assert len(gone) >= 1
    assert not any(vector in files_of(log) for vector in gone)
    assert len(roots.items) == len(roots.scopes) >= 1
    assert "forgetting.residue_found" not in parts.reported.names()


def files_of(log: EventLog) -> bytes:
    """The bytes of every file of the store."""
    paths = [*with_sidecars(log.path.parent / DERIVED), *with_sidecars(log.path)]
    return b"".join(path.read_bytes() for path in paths if path.exists())


async def test_trees_that_know_of_a_forgotten_session_are_not_told_until_they_are_made_anew(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        await tell(parts, *CITIES[4:], session_id="s2")
        await fill.until_filled()
        memory = fill.memory()
        (hidden,) = (session for session, name in memory.session_ids.items() if name == "s1")
        memory.forget_session(hidden)
        roots = await fill.nodes.roots(ALICE)

    assert [scope.kind for scope in roots.scopes] == ["session"]
    assert roots.scopes[0].name != hidden.hex()


class Choosy(ScriptedEmbedder):
    """Takes no text that has one of these words in it; and none at all while it is away."""

    def __init__(self, *words: str) -> None:
        super().__init__()
        self.words = words
        self.away = False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.away:
            raise EmbedderUnavailable("away")
        if any(word in text for word in self.words for text in texts):
            raise TextRefused("not this one")
        return await super().embed(texts)


async def test_a_text_that_the_model_refuses_keeps_no_other_waiting(log: EventLog, clock: ManualClock) -> None:
    embedder = Choosy("Oslo")
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        await tell(parts, *CITIES[4:], session_id="s2")
        await parts.until_done()
        await wait_until(lambda: fill.nodes.count_waiting() == 0)
        memory = fill.memory()
        written = dict(zip(await summaries(parts), memory.forest.summaries, strict=True))
        having = {text for text, digest in written.items() if memory.tree_vectors.codes_of([digest]).digests}

    assert any("Oslo" in text for text in written)
    assert having == {text for text in written if "Oslo" not in text}


async def test_while_the_embedder_is_away_roots_are_fewer_and_come_when_it_is_back(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = Choosy()
    parts = build_parts(log, clock, embedder=embedder)
    async with kept(log) as store, filling(parts, embedder, store) as fill:
        await tell(parts, *CITIES[:4], session_id="s1")
        before = await fill.until_filled()
        embedder.away = True
        await tell(parts, *CITIES[4:], session_id="s2")
        await parts.until_done()
        during = await fill.nodes.roots(ALICE)
        embedder.away = False
        after = await fill.until_filled()

    assert len(during.scopes) < len(after.scopes)
    assert set(before.scopes) <= set(after.scopes)
