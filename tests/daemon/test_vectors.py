"""Vectors of the nodes: filled in the background for what is here, and gone with their nodes."""

from __future__ import annotations

from base64 import b64encode
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from daemon.vector_source import VectorSource
from daemon.vectors import TEXTS_MAX, VectorFiller
from events.envelope import Reference
from events.log import EventLog
from events.session import MemoryImported
from projections.memory import MemoryParameters
from projections.ports import CachedVector, Embedder, EmbedderUnavailable, TextRefused, VectorCache, Vectors
from projections.recall.agpr import PAPER, AgprParameters
from tests.builders import KEYS, ManualClock, a_batch, a_forgetting, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running_forgetter
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

COSINE = PAPER
CITIES = ("Oslo", "Rome", "Bern", "Riga", "Nice", "Kyiv", "Cork", "Lodz")


class HeldEmbedder(ScriptedEmbedder):
    """Answers once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = anyio.Event()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = await super().embed(texts)
        if texts != ["."]:
            await self.let_go.wait()
        return vectors


def build(log: EventLog, clock: ManualClock, embedder: Embedder, memories_max: int = 16) -> Parts:
    return build_parts(log, clock, embedder=embedder, agpr=COSINE, memories_max=memories_max)


@asynccontextmanager
async def filling(
    parts: Parts, embedder: Embedder, cache: VectorCache | None = None
) -> AsyncGenerator[None, None]:
    """Follow the log, erase, and fill; no model is asked, so the nodes are chunks."""
    source = VectorSource(parts.log, embedder, cache)
    filler = VectorFiller(parts.memories, embedder, source, parts.reported)
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(filler.run)
        try:
            yield
        finally:
            tasks.cancel_scope.cancel()


async def until_filled(parts: Parts, nodes: int) -> None:
    """So many nodes of alice are here, and each has its vector."""

    def is_filled() -> bool:
        memory = parts.memories.loaded()[ALICE]
        return len(memory.nodes) == nodes and not memory.nodes.without_vectors(1)

    await wait_until(is_filled, message="the nodes do not get their vectors")


def said(embedder: ScriptedEmbedder) -> list[str]:
    """The texts it was asked for, without what the filler tries it with."""
    return [text for text in embedder.texts if text != "."]


async def nearest(parts: Parts, embedder: Embedder, text: str) -> float:
    """The largest cosine of any row, used or not, with a text."""
    query = (await embedder.embed([text]))[0].astype(np.float32)
    return float((await parts.memory()).nodes.cosines(query).max())


async def by_cosine(embedder: Embedder, texts: list[str], question: str) -> list[str]:
    """The oracle: all texts, the nearest first."""
    vectors = await embedder.embed([question, *texts])
    cosines = (vectors[1:] @ vectors[0]).tolist()
    return [text for _, text in sorted(zip(cosines, texts, strict=True), reverse=True)]


async def say_cities(parts: Parts, *cities: str) -> None:
    for city in cities:
        await parts.say(f"I was in {city}.", session_id=city)


async def test_a_memory_that_has_all_its_vectors_is_passed_over_until_it_grows(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    async with filling(parts, embedder):
        await parts.say("The dog is Rex.")
        memory = await parts.memory()
        await wait_until(lambda: memory.nodes.settled_at == memory.user_seq)
        filled = not memory.nodes.without_vectors(1)
        await parts.say("Alma is 7.", session_id="s2")
        await parts.memory()
        await until_filled(parts, 2)

    assert filled


@pytest.mark.parametrize("embedder", [ScriptedEmbedder(), HashingEmbedder()], ids=["scripted", "hashing"])
async def test_a_question_ranks_by_cosine_once_the_nodes_have_their_vectors(
    log: EventLog, clock: ManualClock, embedder: Embedder
) -> None:
    parts = build(log, clock, embedder)
    await say_cities(parts, *CITIES)
    await parts.memory()
    question = "I was in Bern last week."
    async with filling(parts, embedder):
        await until_filled(parts, len(CITIES))
        answer = await parts.ask(question, k=len(CITIES), mode="flat")
    shown = [memory.text for memory in answer.memories]
    vectors = await embedder.embed([question, *shown])
    cosines = np.round(vectors[1:] @ vectors[0], 5).tolist()

    assert sorted(shown) == sorted(f"Alice: I was in {city}." for city in CITIES)
    assert cosines == sorted(cosines, reverse=True), "texts as near as each other may stand in any order"
    assert len(set(cosines)) > 1


async def test_the_words_of_the_question_do_not_count_then(log: EventLog, clock: ManualClock) -> None:
    """The scripted vectors are strangers to each other: the shared word helps only where words count."""
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await say_cities(parts, *CITIES)
    await parts.memory()
    async with filling(parts, embedder):
        await until_filled(parts, len(CITIES))
        firsts = [(await parts.ask(city, k=1, mode="flat")).memories[0].text for city in CITIES]
    texts = [f"Alice: I was in {city}." for city in CITIES]

    assert firsts == [(await by_cosine(embedder, texts, city))[0] for city in CITIES]
    assert firsts != texts


async def test_a_node_without_its_vector_is_found_all_the_same(log: EventLog, clock: ManualClock) -> None:
    parts = build(log, clock, ScriptedEmbedder())
    await say_cities(parts, *CITIES)
    answer = await parts.ask("Bern", k=len(CITIES), mode="flat")

    assert len(answer.memories) == len(CITIES)
    assert answer.memories[0].text == "Alice: I was in Bern.", "without any vector words alone rank"


async def test_new_nodes_get_theirs_too_and_no_text_is_embedded_twice(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await say_cities(parts, "Oslo")
    await parts.memory()
    async with filling(parts, embedder):
        await until_filled(parts, 1)
        await say_cities(parts, "Rome", "Bern")
        await until_filled(parts, 3)

    assert sorted(said(embedder)) == [f"Alice: I was in {city}." for city in ("Bern", "Oslo", "Rome")]


async def test_many_nodes_are_embedded_in_parts(log: EventLog, clock: ManualClock) -> None:
    sizes: list[int] = []

    class Measured(ScriptedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Vectors:
            sizes.append(len(texts))
            return await super().embed(texts)

    parts = build(log, clock, Measured())
    turns = [a_turn(f"Turn {n}.", session_id=f"s{n}", turn_id=f"x{n}") for n in range(TEXTS_MAX + 5)]
    await log.append(a_batch(*turns))
    await parts.memory()
    async with filling(parts, Measured()):
        await until_filled(parts, len(turns))

    # The first one is a try; the others go side by side.
    assert (sizes[0], sorted(sizes[1:])) == (1, [5, TEXTS_MAX])


async def test_nothing_is_fetched_for_its_vectors(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("for alice")
    await parts.say("for bob", user_id="bob")
    await parts.memory("alice")
    async with filling(parts, embedder):
        await until_filled(parts, 1)

    assert list(parts.memories.loaded()) == [ALICE]
    assert said(embedder) == ["Alice: for alice"]


async def test_a_chunk_that_grew_leaves_no_vector_of_what_it_was(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("one")
    await parts.memory()
    async with filling(parts, embedder):
        await until_filled(parts, 1)
        before = await nearest(parts, embedder, "Alice: one")
        await parts.say("two")
        await wait_until(lambda: parts.memories.loaded()[ALICE].user_seq == 2)
        await until_filled(parts, 1)
        after = await nearest(parts, embedder, "Alice: one")
        grown = await nearest(parts, embedder, "Alice: one\nAlice: two")

    assert before == pytest.approx(1, abs=1e-3)
    assert grown == pytest.approx(1, abs=1e-3)
    assert after < 0.95


async def test_a_forgotten_session_leaves_no_vector(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("Xylophon", session_id="s1")
    await parts.say("harmless", session_id="s2")
    await parts.memory()
    async with filling(parts, embedder):
        await until_filled(parts, 2)
        await parts.forgetter.forget("alice", "s1")
        await until_filled(parts, 1)
        forgotten = await nearest(parts, embedder, "Alice: Xylophon")
        kept = await nearest(parts, embedder, "Alice: harmless")

    assert forgotten < 0.95
    assert kept == pytest.approx(1, abs=1e-3)


async def test_a_node_that_went_while_it_was_embedded_gets_no_vector(log: EventLog, clock: ManualClock) -> None:
    embedder, probe = HeldEmbedder(), ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("one")
    await parts.memory()
    async with filling(parts, embedder):
        await wait_until(lambda: said(embedder) == ["Alice: one"])
        await parts.say("two")
        await wait_until(lambda: parts.memories.loaded()[ALICE].user_seq == 2)
        embedder.let_go.set()
        await until_filled(parts, 1)
        old = await nearest(parts, probe, "Alice: one")

    assert old < 0.95


async def test_one_that_went_meanwhile_is_not_fetched_back(log: EventLog, clock: ManualClock) -> None:
    embedder = HeldEmbedder()
    parts = build(log, clock, embedder, memories_max=2)
    for user in ("alice", "bob", "carol"):
        await parts.say(f"for {user}", user_id=user)
    await parts.memory("alice")
    await parts.memory("bob")
    async with filling(parts, embedder):
        await wait_until(lambda: sorted(said(embedder)) == ["Alice: for alice", "Alice: for bob"])
        await parts.memory("carol")
        here = set(parts.memories.loaded())
        embedder.let_go.set()
        await wait_until(lambda: "Alice: for carol" in embedder.texts)
        await wait_until(partial(_all_filled, parts))

    assert here == {log.keys.user("bob"), log.keys.user("carol")}
    assert set(parts.memories.loaded()) == here


async def test_filling_keeps_the_order_in_which_memories_go(log: EventLog, clock: ManualClock) -> None:
    """A Memory that only got its vectors was not asked for."""
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder, memories_max=3)
    for user in ("alice", "bob", "carol"):
        await parts.say(f"for {user}", user_id=user)
        await parts.memory(user)
    order = list(parts.memories.loaded())
    async with filling(parts, embedder):
        await wait_until(lambda: len(said(embedder)) == 3)
        await wait_until(partial(_all_filled, parts))

    assert list(parts.memories.loaded()) == order


def _all_filled(parts: Parts) -> bool:
    return not any(memory.nodes.without_vectors(1) for memory in parts.memories.loaded().values())


class KeptVectors:
    """A `VectorCache` in memory."""

    def __init__(self) -> None:
        self.held: dict[tuple[Reference, str, bytes], CachedVector] = {}

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        return {key: self.held[user, model, key].vector for key in keys if (user, model, key) in self.held}

    async def keep(self, user: Reference, model: str, vectors: Sequence[CachedVector]) -> None:
        self.held.update(((user, model, each.key), each) for each in vectors)


async def test_what_was_embedded_once_comes_from_the_cache_bit_for_bit(log: EventLog, clock: ManualClock) -> None:
    cache, first = KeptVectors(), ScriptedEmbedder()
    parts = build(log, clock, first)
    await parts.say("one", "two", "three", "four")  # two chunks that are closed
    await parts.memory()
    async with filling(parts, first, cache):
        await until_filled(parts, 2)
        before = await parts.ask("one", k=9)
    second = ScriptedEmbedder()
    again = build(log, clock, second)
    await again.memory()
    async with filling(again, second, cache):
        await until_filled(again, 2)
        after = await again.ask("one", k=9)

    assert len(said(first)) == len(cache.held) == 2
    assert said(second) == []
    assert after == before
    assert {each.seqs for each in cache.held.values()} == {(1, 2), (3, 4)}


async def test_a_memory_that_brings_a_vector_of_this_model_is_not_embedded(
    log: EventLog, clock: ManualClock
) -> None:
    embedder, brought = ScriptedEmbedder(), np.eye(16, dtype="<f4")[0]
    parts = build(log, clock, embedder)
    for n, model in enumerate(("scripted", "another model")):
        turn = a_turn(turn_id=f"x-{n}")
        packed = b64encode(brought.tobytes()).decode()
        told = MemoryImported(f"Nate likes tea {n}.", f"x-{n}", embedding=packed, embedding_model=model)
        await log.append(a_batch(replace(turn, event=told)))
    await parts.memory()
    cache = KeptVectors()
    async with filling(parts, embedder, cache):
        nodes = (await parts.memory()).nodes
        await wait_until(lambda: not nodes.without_vectors(1, {0, 1}))
        cosines = nodes.cosines(brought)

    assert said(embedder) == [], "nor is one that brings a vector of another model, which is compared with none"
    assert cosines.tolist() == [pytest.approx(1, abs=1e-4), 0]
    assert len(cache.held) == 1


async def test_an_open_chunk_is_embedded_as_it_stands_and_not_kept(log: EventLog, clock: ManualClock) -> None:
    cache, embedder = KeptVectors(), ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("one")
    await parts.memory()
    async with filling(parts, embedder, cache):
        await until_filled(parts, 1)

    assert said(embedder) == ["Alice: one"]
    assert cache.held == {}


async def test_a_chunk_that_grew_while_it_was_embedded_gets_the_vector_of_what_it_is(
    log: EventLog, clock: ManualClock
) -> None:
    """It is the same chunk, still open: only its text tells."""
    embedder, probe = HeldEmbedder(), ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder, agpr=COSINE, memory=MemoryParameters(chunk_turns=4))
    await parts.say("one")
    await parts.memory()
    async with filling(parts, embedder):
        await wait_until(lambda: said(embedder) == ["Alice: one"])
        await parts.say("two")
        await wait_until(lambda: parts.memories.loaded()[ALICE].user_seq == 2)
        embedder.let_go.set()
        await wait_until(lambda: len(said(embedder)) == 2)
        await until_filled(parts, 1)
        grown = await nearest(parts, probe, "Alice: one\nAlice: two")

    assert grown == pytest.approx(1, abs=1e-3)


async def test_vectors_of_another_model_or_width_are_not_taken(log: EventLog, clock: ManualClock) -> None:
    cache = KeptVectors()
    made: list[int] = []
    for embedder in (
        ScriptedEmbedder(),
        Renamed(),
        ScriptedEmbedder(dimensions=8),
        ScriptedEmbedder(dimensions=8),
    ):
        parts = build(log, clock, embedder)
        if not log.head:
            await parts.say("one", "two")
        await parts.memory()
        async with filling(parts, embedder, cache):
            await until_filled(parts, 1)
        made.append(len(said(embedder)))

    assert made == [1, 1, 1, 0]


class Renamed(ScriptedEmbedder):
    name = "scripted-2"


class Failing(ScriptedEmbedder):
    """An embedder that is out of order until it is mended; texts with x in them it never takes."""

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.trouble is not None:
            raise EmbedderUnavailable(self.trouble)
        if any("x" in text for text in texts):
            raise TextRefused
        return await super().embed(texts)

    async def embed_question(self, text: str) -> Vectors:
        if self.trouble is not None:
            raise EmbedderUnavailable(self.trouble)
        return await super().embed_question(text)


async def test_while_the_embedder_fails_words_answer_and_it_is_told_once(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = Failing()
    embedder.trouble = "nothing listens"
    agpr = AgprParameters(cosine_weight=0.5)
    parts = build_parts(log, clock, embedder=embedder, agpr=agpr)
    await say_cities(parts, "Oslo", "Rome", "Bern")
    await parts.memory()
    async with filling(parts, embedder):
        answer = await parts.ask("Rome", k=1)
        await wait_until(lambda: parts.reported.names().count("embedder.state_changed") == 1)
        waiting = len(parts.memories.loaded()[ALICE].nodes.without_vectors(9))
        embedder.trouble = None
        await until_filled(parts, 3)
        await wait_until(lambda: parts.reported.names().count("embedder.state_changed") == 2)

    assert answer.memories[0].text == "Alice: I was in Rome."
    assert waiting == 3


async def test_a_text_that_the_model_does_not_take_keeps_no_other_waiting(
    log: EventLog, clock: ManualClock
) -> None:
    embedder = Failing()
    parts = build(log, clock, embedder)
    await say_cities(parts, "Oslo", "Xanten in x", "Bern")
    memory = await parts.memory()
    async with filling(parts, embedder):
        await wait_until(lambda: len(memory.nodes.without_vectors(9)) == 1)

    assert sorted(said(embedder)) == ["Alice: I was in Bern.", "Alice: I was in Oslo."]


async def test_one_user_s_many_texts_do_not_keep_another_user_waiting(log: EventLog, clock: ManualClock) -> None:
    class OneHeld(ScriptedEmbedder):
        async def embed(self, texts: Sequence[str]) -> Vectors:
            if "Alice: for alice" in texts:
                await anyio.sleep_forever()
            return await super().embed(texts)

    embedder = OneHeld()
    parts = build(log, clock, embedder)
    for user in ("alice", "bob"):
        await parts.say(f"for {user}", user_id=user)
        await parts.memory(user)
    async with filling(parts, embedder):
        await wait_until(lambda: said(embedder) == ["Alice: for bob"])
        bob = parts.memories.loaded()[log.keys.user("bob")]
        await wait_until(lambda: not bob.nodes.without_vectors(1))


async def test_a_memory_that_is_loaded_has_its_vectors_before_anybody_asks(
    log: EventLog, clock: ManualClock
) -> None:
    """Those that are kept, and that of the chunk that is still open."""
    cache, embedder = KeptVectors(), ScriptedEmbedder()
    source = VectorSource(log, embedder, cache)
    parts = build(log, clock, embedder)
    await parts.say("one", "two", "three")
    first = Memories(log, SMALL, parts.reported, furnish=source.furnish)
    second = Memories(log, SMALL, parts.reported, furnish=source.furnish)
    for memories in (first, second):
        memory = await memories.catch_up(ALICE)
        assert len(memory.nodes) == 2
        assert memory.nodes.without_vectors(9) == []

    assert said(embedder) == ["Alice: one\nAlice: two", "Alice: three", "Alice: three"]


async def test_a_memory_that_is_folded_anew_has_its_vectors_too(log: EventLog, clock: ManualClock) -> None:
    cache, embedder = KeptVectors(), ScriptedEmbedder()
    source = VectorSource(log, embedder, cache)
    parts = build(log, clock, embedder)
    await parts.say("one", "two", session_id="s1")
    await parts.say("three", "four", session_id="s2")
    memories = Memories(log, SMALL, parts.reported, furnish=source.furnish)
    before = await memories.catch_up(ALICE)
    await log.append_event(a_forgetting("s1"))
    memories.hide(ALICE, KEYS.session("alice", "s1"))
    after = await memories.catch_up(ALICE)

    assert after is not before
    assert (len(after.nodes), after.nodes.without_vectors(9)) == (1, [])
    assert len(said(embedder)) == 2


async def test_a_memory_is_loaded_though_its_embedder_fails(log: EventLog, clock: ManualClock) -> None:
    embedder = Failing()
    embedder.trouble = "nothing listens"
    parts = build(log, clock, embedder)
    await parts.say("one", "two")
    memories = Memories(log, SMALL, parts.reported, furnish=VectorSource(log, embedder, KeptVectors()).furnish)
    memory = await memories.catch_up(ALICE)

    assert len(memory.nodes.without_vectors(9)) == 1
