"""Vectors that decisions want: made once, many at a time, and found again when the user is planned."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

import anyio
import anyio.lowlevel
import numpy as np
from numpy.typing import NDArray

from daemon.building.errands import Errands
from daemon.building.fact_vectors import BATCHES_MAX, TEXTS_MAX, FactVectors
from daemon.vector_source import VectorSource, Wanted
from events.envelope import Reference
from events.log import EventLog
from events.memory import Pointer
from projections.ports import CachedVector, EmbedderUnavailable, TextRefused, Vectors
from projections.texts import FactText, name_text
from tests.builders import KEYS, MONDAY, a_batch, a_turn, an_extraction
from tests.bus_in_use import Reported
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

ALICE = KEYS.user("alice")
SOON_S = 0.02


class HeldEmbedder(ScriptedEmbedder):
    """Answers when it is let go; fails or refuses as it is told."""

    def __init__(self) -> None:
        super().__init__()
        self.batches: list[tuple[str, ...]] = []
        self.let_go = anyio.Event()
        self.away = False

    async def embed(self, texts: Sequence[str]) -> Vectors:
        self.batches.append(tuple(texts))
        if self.away:
            raise EmbedderUnavailable("it is away")
        await self.let_go.wait()
        if any("unspeakable" in text for text in texts):
            raise TextRefused("not this one")
        return await super().embed(texts)


class KeptInMemory:
    """A `VectorCache` that counts what it is asked for."""

    def __init__(self) -> None:
        self.kept: dict[bytes, NDArray[np.float16]] = {}

    async def load(self, user: Reference, model: str, keys: Sequence[bytes]) -> dict[bytes, NDArray[np.float16]]:
        return {key: self.kept[key] for key in keys if key in self.kept}

    async def keep(self, user: Reference, model: str, vectors: Sequence[CachedVector]) -> None:
        self.kept |= {each.key: each.vector for each in vectors}


@dataclass
class Making:
    embedder: HeldEmbedder
    cache: KeptInMemory
    source: VectorSource
    errands: Errands
    vectors: FactVectors
    pointers: list[Pointer]
    told: list[Reference] = field(default_factory=list[Reference])


@asynccontextmanager
async def making(log: EventLog, texts: Sequence[str]) -> AsyncGenerator[Making]:
    """One extraction with these facts, and what makes their vectors."""
    await log.append(a_batch(a_turn("Much.", happened_at=MONDAY)))
    outcome = await log.append_event(an_extraction((1,), tuple(texts)))
    assert outcome.seq is not None
    embedder, cache = HeldEmbedder(), KeptInMemory()
    source = VectorSource(log, embedder, cache)
    errands = Errands(Reported(), failed_pause_s=SOON_S, patience_s=10 * SOON_S)
    vectors = FactVectors(log, source, errands)
    pointers = [Pointer(outcome.seq, n) for n in range(len(texts))]
    made = Making(embedder, cache, source, errands, vectors, pointers)
    errands.on_done = made.told.append
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(errands.run)
        await anyio.lowlevel.checkpoint()
        yield made
        tasks.cancel_scope.cancel()


async def test_what_is_wanted_at_once_is_one_call(log: EventLog) -> None:
    async with making(log, ["one", "two", "three"]) as made:
        for pointer in made.pointers:
            made.vectors.want(ALICE, [pointer])
        made.embedder.let_go.set()
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 3)

    assert made.embedder.batches == [("one", "two", "three")]
    assert made.told == [ALICE]


async def test_a_call_that_is_out_keeps_no_later_one_waiting(log: EventLog) -> None:
    async with making(log, ["one", "two", "three"]) as made:
        for number, pointer in enumerate(made.pointers, start=1):
            made.vectors.want(ALICE, [pointer])
            await wait_until(lambda number=number: len(made.embedder.batches) == number)  # type: ignore[misc]
        made.embedder.let_go.set()
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 3)

    assert made.embedder.batches == [("one",), ("two",), ("three",)]


async def test_batches_are_bounded_in_size_and_in_number(log: EventLog) -> None:
    many = [f"fact {n}" for n in range(TEXTS_MAX * (BATCHES_MAX + 1))]
    async with making(log, many) as made:
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: len(made.embedder.batches) == BATCHES_MAX)
        out = [len(batch) for batch in made.embedder.batches]
        made.embedder.let_go.set()

        def are_all_here() -> bool:
            made.vectors.want(ALICE, made.pointers)  # as the user is planned again
            return len(made.vectors.rows(ALICE, made.pointers)) == len(many)

        await wait_until(are_all_here)

    assert out == [TEXTS_MAX] * BATCHES_MAX
    assert sorted(text for batch in made.embedder.batches for text in batch) == sorted(many)


async def test_whoever_searches_and_whoever_decides_share_one_embedding(log: EventLog) -> None:
    async with making(log, ["one", "two"]) as made:
        found: list[Vectors] = []

        async def fill() -> None:
            texts = [FactText(pointer) for pointer in made.pointers]
            found.append(await made.source.find(ALICE, [Wanted(text, name_text(text)) for text in texts]))

        async with anyio.create_task_group() as both:
            made.vectors.want(ALICE, made.pointers[:1])
            await wait_until(lambda: len(made.embedder.batches) == 1)
            both.start_soon(fill)
            await wait_until(lambda: len(made.embedder.batches) == 2)
            made.embedder.let_go.set()
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers[:1])) == 1)

    assert sorted(made.embedder.texts) == ["one", "two"]
    assert np.array_equal(found[0][0], made.vectors.rows(ALICE, made.pointers)[made.pointers[0]])
    assert set(made.cache.kept) == {name_text(FactText(pointer)) for pointer in made.pointers}


async def test_who_waits_for_another_one_who_fails_makes_it_alone(log: EventLog) -> None:
    async with making(log, ["one"]) as made:
        text = FactText(made.pointers[0])
        wanted = [Wanted(text, name_text(text))]
        rows: list[Vectors] = []

        async def find() -> None:
            rows.append(await made.source.find(ALICE, wanted))

        async with anyio.create_task_group() as second, anyio.create_task_group() as first:
            first.start_soon(find)
            await wait_until(lambda: len(made.embedder.batches) == 1)
            second.start_soon(find)
            await anyio.lowlevel.checkpoint()
            first.cancel_scope.cancel()
            made.embedder.let_go.set()

    assert len(rows) == 1
    assert made.embedder.batches == [("one",), ("one",)]


async def test_a_refused_text_costs_the_others_nothing_and_is_not_asked_for_again(log: EventLog) -> None:
    async with making(log, ["one", "unspeakable", "three"]) as made:
        made.embedder.let_go.set()
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 2)
        calls = len(made.embedder.batches)
        made.vectors.want(ALICE, made.pointers)
        await anyio.lowlevel.checkpoint()

    assert made.vectors.are_refused(made.pointers) == {made.pointers[1]}
    assert len(made.embedder.batches) == calls


async def test_an_embedder_that_failed_is_left_alone_for_a_while_and_then_the_user_is_told(log: EventLog) -> None:
    async with making(log, ["one"]) as made:
        made.embedder.away = True
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: made.errands.is_away(ALICE))
        calls = len(made.embedder.batches)
        made.vectors.want(ALICE, made.pointers)
        at_once = len(made.embedder.batches)
        told = len(made.told)
        await wait_until(lambda: len(made.told) > told)
        made.embedder.away = False
        made.embedder.let_go.set()
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 1)
        is_away = made.errands.is_away(ALICE)

    assert calls == at_once == 1
    assert not is_away


async def test_what_takes_very_long_counts_as_away_until_it_is_there(log: EventLog) -> None:
    async with making(log, ["one"]) as made:
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: made.errands.is_away(ALICE))
        told = list(made.told)
        made.embedder.let_go.set()
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 1)
        await wait_until(lambda: not made.errands.is_away(ALICE))

    assert told == [ALICE]
    assert made.embedder.batches == [("one",)]


async def test_a_fault_of_one_user_is_reported_and_nobody_elses(log: EventLog) -> None:
    reported, told = Reported(), list[Reference]()
    errands = Errands(reported, failed_pause_s=SOON_S)
    errands.on_done = told.append

    async def fail() -> None:
        raise RuntimeError("Rex")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(errands.run)
        await anyio.lowlevel.checkpoint()
        errands.begin(ALICE, "errand", fail)
        await wait_until(lambda: errands.is_away(ALICE))
        others = errands.is_away(KEYS.user("bob"))
        tasks.cancel_scope.cancel()

    assert not others
    assert [fields["error"] for fields in reported.fields("worker.plan_failed")] == ["RuntimeError"]


async def test_what_is_forgotten_is_remembered_no_more(log: EventLog) -> None:
    async with making(log, ["one"]) as made:
        made.embedder.let_go.set()
        made.vectors.want(ALICE, made.pointers)
        await wait_until(lambda: len(made.vectors.rows(ALICE, made.pointers)) == 1)
        made.vectors.forget(ALICE)

    assert made.vectors.rows(ALICE, made.pointers) == {}
