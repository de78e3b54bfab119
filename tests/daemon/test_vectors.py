"""Vectors of the nodes: filled in the background for what is here, and gone with their nodes."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from functools import partial

import anyio
import numpy as np
import pytest

from daemon.offline.embedder import HashingEmbedder
from daemon.vectors import TEXTS_MAX, VectorFiller
from events.log import EventLog
from projections.ports import Embedder, Vectors
from projections.recall.agpr import AgprParameters
from tests.builders import ManualClock, a_batch, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running_forgetter
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

COSINE = AgprParameters(cosine_weight=1.0, smoothing=0.0)
CITIES = ("Oslo", "Rome", "Bern", "Riga", "Nice", "Kyiv", "Cork", "Lodz")


class HeldEmbedder(ScriptedEmbedder):
    """Answers once it is let go."""

    def __init__(self) -> None:
        super().__init__()
        self.let_go = anyio.Event()

    async def embed(self, texts: Sequence[str]) -> Vectors:
        vectors = await super().embed(texts)
        await self.let_go.wait()
        return vectors


def build(log: EventLog, clock: ManualClock, embedder: Embedder, memories_max: int = 16) -> Parts:
    return build_parts(log, clock, embedder=embedder, agpr=COSINE, memories_max=memories_max)


@asynccontextmanager
async def filling(parts: Parts, embedder: Embedder) -> AsyncGenerator[None, None]:
    """Follow the log, erase, and fill; no model is asked, so the nodes are chunks."""
    filler = VectorFiller(parts.log, parts.memories, embedder)
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
    assert {memory.similarity for memory in answer.memories} == {0.0}


async def test_new_nodes_get_theirs_too_and_no_text_is_embedded_twice(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await say_cities(parts, "Oslo")
    await parts.memory()
    async with filling(parts, embedder):
        await until_filled(parts, 1)
        await say_cities(parts, "Rome", "Bern")
        await until_filled(parts, 3)

    assert sorted(embedder.texts) == [f"Alice: I was in {city}." for city in ("Bern", "Oslo", "Rome")]


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

    assert sizes == [TEXTS_MAX, 5]


async def test_nothing_is_fetched_for_its_vectors(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("for alice")
    await parts.say("for bob", user_id="bob")
    await parts.memory("alice")
    async with filling(parts, embedder):
        await until_filled(parts, 1)

    assert list(parts.memories.loaded()) == [ALICE]
    assert embedder.texts == ["Alice: for alice"]


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

    assert before == pytest.approx(1, abs=1e-6)
    assert grown == pytest.approx(1, abs=1e-6)
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
    assert kept == pytest.approx(1, abs=1e-6)


async def test_a_node_that_went_while_it_was_embedded_gets_no_vector(log: EventLog, clock: ManualClock) -> None:
    embedder, probe = HeldEmbedder(), ScriptedEmbedder()
    parts = build(log, clock, embedder)
    await parts.say("one")
    await parts.memory()
    async with filling(parts, embedder):
        await wait_until(lambda: embedder.texts == ["Alice: one"])
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
        await wait_until(lambda: embedder.texts == ["Alice: for alice"])
        await parts.memory("carol")
        here = set(parts.memories.loaded())
        embedder.let_go.set()
        await wait_until(lambda: "Alice: for carol" in embedder.texts)
        await wait_until(partial(_all_filled, parts))

    assert here == {ALICE, log.keys.user("carol")}
    assert "Alice: for bob" not in embedder.texts


async def test_filling_keeps_the_order_in_which_memories_go(log: EventLog, clock: ManualClock) -> None:
    """A Memory that only got its vectors was not asked for."""
    embedder = ScriptedEmbedder()
    parts = build(log, clock, embedder, memories_max=3)
    for user in ("alice", "bob", "carol"):
        await parts.say(f"for {user}", user_id=user)
        await parts.memory(user)
    order = list(parts.memories.loaded())
    async with filling(parts, embedder):
        await wait_until(lambda: len(embedder.texts) == 3)
        await wait_until(partial(_all_filled, parts))

    assert list(parts.memories.loaded()) == order


def _all_filled(parts: Parts) -> bool:
    return not any(memory.nodes.without_vectors(1) for memory in parts.memories.loaded().values())
