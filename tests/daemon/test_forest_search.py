"""Modes `forest` and `roots`: which trees and leaves answer, by vectors and by words, now and in the past."""

from __future__ import annotations

import random
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio
import msgspec
import pytest

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.forest_search import ForestSearch
from daemon.asking.query_params import QueryParams
from daemon.asking.tree_nodes import TreeNodesReader, TreeParams
from daemon.derived import DERIVED, DerivedStore
from daemon.memories import Memories
from daemon.tree_vectors import TreeVectorFiller
from daemon.vector_source import VectorSource
from daemon.vectors import VectorFiller
from events.errors import InvalidInput
from events.log import EventLog
from projections.memory import Memory
from projections.recall.agpr import ANY_EMBEDDER, NO_EMBEDDER
from tests.builders import KEYS, ManualClock
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

CITIES = ("Oslo", "Rome", "Bern", "Riga", "Nice", "Kyiv", "Cork", "Lodz", "Linz", "Graz")
FOREST_MODES = ("forest", "roots")


@dataclass
class Forested:
    """The daemon's parts, and an answerer that ranks by the vectors of an embedder, nodes of trees included."""

    parts: Parts
    embedder: ScriptedEmbedder
    source: VectorSource
    vectors: VectorFiller
    nodes: TreeVectorFiller
    answerer: Answerer

    async def ask(self, question: str, mode: str = "forest", **more: Any) -> Answer:
        params = QueryParams(user_id="alice", query=question, mode=mode, explain=True, **more)
        return await self.answerer.query(params)

    async def until_built(self) -> None:
        await self.parts.until_done()
        await wait_until(
            lambda: not self.vectors.count_waiting() and not self.nodes.count_waiting(),
            message="not all vectors are made",
        )


@asynccontextmanager
async def growing(log: EventLog, clock: ManualClock) -> AsyncGenerator[Forested]:
    """A store in which trees are built and get their vectors, which are kept beside it."""
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder)
    store = await DerivedStore.open(log.path.parent / DERIVED, log, Reported(), 64 << 20)
    try:
        source = VectorSource(log, embedder, store)
        vectors = VectorFiller(parts.memories, embedder, source, parts.reported)
        nodes = TreeVectorFiller(parts.memories, source, vectors, eager=True)
        answerer = make_answerer(parts, parts.memories, embedder, source, nodes)
        async with running(parts), anyio.create_task_group() as tasks:
            tasks.start_soon(vectors.run)
            tasks.start_soon(nodes.run)
            yield Forested(parts, embedder, source, vectors, nodes, answerer)
            tasks.cancel_scope.cancel()
    finally:
        await store.close()


def make_answerer(
    parts: Parts,
    memories: Memories,
    embedder: ScriptedEmbedder,
    source: VectorSource,
    nodes: TreeVectorFiller,
    on_loop_max: int = 30_000,
) -> Answerer:
    asking = (KEYS, parts.log, memories, embedder, ANY_EMBEDDER, lambda _: 0, parts.clock)
    return Answerer(*asking, vectors=source, trees=nodes, nodes_on_loop_max=on_loop_max)


async def travel(parts: Parts, sessions: int = 4, cities: int = 6, first: int = 0) -> None:
    """Sessions of a sentence about a city each, all different, and their ends."""
    await parts.memory()
    for n in range(first, first + sessions):
        await parts.say(*(f"In {city} I saw the river {n}." for city in CITIES[:cities]), session_id=f"s{n}")
        await parts.close(f"s{n}")


def shown(answer: Answer) -> bytes:
    """All that is the same when it is asked again."""
    explanation = answer.explanation and replace(answer.explanation, timings_ms={})
    return msgspec.json.encode(replace(answer, explanation=explanation))


@pytest.fixture
def plain(log: EventLog, clock: ManualClock) -> Parts:
    """Without vectors that rank."""
    return build_parts(log, clock, agpr=NO_EMBEDDER)


async def test_a_question_is_embedded_once_in_all_and_not_at_all_by_words(
    log: EventLog, clock: ManualClock
) -> None:
    async with growing(log, clock) as grown:
        await travel(grown.parts)
        await grown.until_built()
        asked = len(grown.embedder.questions), len(grown.embedder.texts)
        answers = [await grown.ask("Where was the river 2?", mode) for mode in FOREST_MODES]
        counted = len(grown.embedder.questions) - asked[0], len(grown.embedder.texts) - asked[1]
        by_words = [await grown.ask("Where was the river 2?", mode, vectors=False) for mode in FOREST_MODES]
        again = len(grown.embedder.questions) - asked[0], len(grown.embedder.texts) - asked[1]

    browsed = [each.explanation.browsed for each in (*answers, *by_words) if each.explanation]
    assert counted == again == (2, 0)
    assert [each.by for each in browsed if each] == ["vectors", "vectors", "words", "words"]
    assert all(each.memories for each in (*answers, *by_words))


async def test_who_asks_with_the_text_of_a_fact_has_it_first(log: EventLog, clock: ManualClock) -> None:
    async with growing(log, clock) as grown:
        await travel(grown.parts, sessions=8)
        await grown.until_built()
        for n in range(8):
            for vectors in (True, False):
                answer = await grown.ask(f"In Kyiv I saw the river {n}.", vectors=vectors, k=1)
                assert f"In Kyiv I saw the river {n}." in answer.memories[0].text


async def test_the_same_is_answered_again_in_another_thread_and_by_a_memory_folded_from_nothing(
    log: EventLog, clock: ManualClock
) -> None:
    questions = ("Which river in Bern?", "river 3", "What did I see?")
    async with growing(log, clock) as grown:
        await travel(grown.parts)
        await grown.until_built()
        grown.parts.clock.advance(1)
        asked = [(mode, question) for mode in FOREST_MODES for question in questions]
        first = [shown(await grown.ask(question, mode)) for mode, question in asked]
        again = [shown(await grown.ask(question, mode)) for mode, question in asked]
        elsewhere = make_answerer(grown.parts, grown.parts.memories, grown.embedder, grown.source, grown.nodes, 0)
        threaded = [
            shown(await replace(grown, answerer=elsewhere).ask(question, mode)) for mode, question in asked
        ]
        # After a restart: vectors are taken from what was kept.
        memories = Memories(log, SMALL, Reported(), furnish=grown.source.furnish)
        nodes = TreeVectorFiller(memories, grown.source, None, eager=True)
        anew = replace(grown, answerer=make_answerer(grown.parts, memories, grown.embedder, grown.source, nodes))
        await memories.catch_up(ALICE)
        calls = len(grown.embedder.texts)
        restarted = [shown(await anew.ask(question, mode)) for mode, question in asked]

    assert first == again == threaded == restarted
    assert len(grown.embedder.texts) == calls


async def test_only_trees_of_the_families_that_are_asked_for_answer(plain: Parts) -> None:
    async with running(plain):
        await travel(plain)
        await plain.until_done()
    for families, kind in ((["session"], "session"), (["scene"], "scene"), (["entity"], "entity")):
        answer = await plain.ask("Which river in Bern?", mode="forest", families=families, explain=True)
        assert answer.explanation is not None
        assert answer.explanation.browsed is not None
        trees = answer.explanation.browsed.trees
        assert {tree.kind for tree in trees} <= {kind, "user" if kind == "entity" else kind}
        assert {memory.kind for memory in answer.memories} <= {"chunk" if kind == "session" else "fact"}
        assert bool(answer.memories) == bool(trees), "nothing that is in no tree"


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"mode": "forest", "families": []}, "families holds"),
        ({"mode": "forest", "families": ["Xylophon"]}, "families holds"),
        ({"mode": "agpr", "families": ["session"]}, "leave it out"),
        ({"vectors": False, "embedding": [1.0, 0.0]}, "leave out embedding"),
        ({"filters": {"kinds": "summary"}}, "chunk, fact, group"),
    ],
)
async def test_what_does_not_go_together_is_refused(plain: Parts, given: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidInput, match=says) as refused:
        await plain.ask("Where?", **given)

    assert "Xylophon" not in str(refused.value)


def roots_of(answer: Answer) -> dict[str, str]:
    """The scope of each tree that was recalled, by kind of its tree."""
    assert answer.explanation is not None
    assert answer.explanation.browsed is not None
    return {tree.scope: tree.kind for tree in answer.explanation.browsed.trees}


async def test_roots_are_the_texts_at_the_top_of_trees(plain: Parts) -> None:
    async with running(plain):
        await travel(plain)
        await plain.until_done()
    answer = await plain.ask("river 2", mode="roots", families=["session"], k=2)
    reader = TreeNodesReader(plain.log, plain.memories)
    first = await reader.tree(TreeParams(user_id="alice", kind="session", scope="s2"))

    assert [memory.kind for memory in answer.memories] == ["summary", "summary"]
    best = answer.memories[0]
    assert (best.id, best.text, best.time_end) == (first.root.id, first.root.text, first.root.time_end)
    assert best.text.splitlines()[0] in answer.context


async def test_sources_of_a_root_are_the_turns_whose_words_stand_in_it(log: EventLog, clock: ManualClock) -> None:
    """A benchmark that counts sources would count a summary of all there is as an answer to everything."""
    together = build_parts(log, clock, agpr=NO_EMBEDDER, memory=replace(SMALL, concatenation_max=200))
    async with running(together):
        await travel(together, sessions=1, cities=4)
        await travel(together, sessions=1, cities=10, first=1)
        await together.until_done()
    answer = await together.ask("river", mode="roots", families=["session"], k=2)
    long, short = sorted(answer.memories, key=lambda memory: len(memory.sources))

    assert (long.sources, long.sessions) == ([], [])
    assert {source.session_id for source in short.sources} == set(short.sessions) == {"s0"}
    assert len(short.sources) == 4
    assert all(f"In {city} I saw the river 0." in short.text for city in CITIES[:4])


async def test_a_root_answers_within_filters_only_if_all_below_it_passes(plain: Parts) -> None:
    async with running(plain):
        await travel(plain)
        await plain.until_done()
    reader = TreeNodesReader(plain.log, plain.memories)
    only = await reader.tree(TreeParams(user_id="alice", kind="session", scope="s1"))
    filtered = await plain.ask("river", mode="roots", filters={"sessions": "s1"}, explain=True)
    free = await plain.ask("river", mode="roots", explain=True)

    assert only.root.id in {memory.id for memory in filtered.memories}
    assert {scope for scope, kind in roots_of(filtered).items() if kind == "session"} == {"s1"}
    assert {scope for scope, kind in roots_of(free).items() if kind == "session"} == {"s0", "s1", "s2", "s3"}
    assert all("river 1" in memory.text or memory.id == only.root.id for memory in filtered.memories)


async def test_what_was_said_just_now_is_found_beside_the_trees(plain: Parts) -> None:
    async with running(plain):
        await travel(plain)
        await plain.until_done()
    await plain.say("A walrus waved.", session_id="new")
    await plain.memory()
    answer = await plain.ask("Who waved, a walrus?", mode="forest", k=1, explain=True)

    assert answer.memories[0].text == "Alice: A walrus waved."
    assert answer.explanation is not None
    assert answer.explanation.browsed is not None
    assert answer.explanation.browsed.loose >= 1


async def test_a_session_that_is_forgotten_is_in_no_answer_from_trees_from_then_on(plain: Parts) -> None:
    async with running(plain):
        await travel(plain)
        await plain.until_done()
        before = [await plain.ask("river 2", mode=mode, explain=True) for mode in FOREST_MODES]
        await plain.forgetter.forget("alice", "s2")
        hidden = [await plain.ask("river 2", mode=mode, k=50, explain=True) for mode in FOREST_MODES]
        await plain.until_done()
        after = [await plain.ask("river 2", mode=mode, k=50, explain=True) for mode in FOREST_MODES]

    assert "river 2" in before[0].context
    assert "s2" in roots_of(before[1])
    for answer in (*hidden, *after):
        assert "river 2" not in answer.context
        assert all("s2" not in memory.sessions for memory in answer.memories)
        assert answer.explanation is not None
        assert answer.explanation.browsed is not None
        assert all(tree.scope != "s2" for tree in answer.explanation.browsed.trees)
    assert all(answer.memories for answer in after)


@pytest.mark.parametrize("seed", range(2))
async def test_the_past_answers_from_the_trees_of_then(log: EventLog, clock: ManualClock, seed: int) -> None:
    """The oracle is the answer of the live Memory at that position."""
    print(f"seed {seed}")
    chance, parts = random.Random(seed), build_parts(log, clock, agpr=NO_EMBEDDER)
    then: dict[tuple[int, str], Answer] = {}
    async with running(parts):
        for n in range(5):
            await travel(parts, sessions=1, cities=chance.randint(2, 6), first=n)
            if chance.random() < 0.6:
                await parts.until_done()
            memory = await parts.memory()
            for mode in FOREST_MODES:
                then[memory.user_seq, mode] = await parts.ask("Which river in Rome?", mode=mode)
        await parts.until_done()
    asked = list(then)
    chance.shuffle(asked)

    for user_seq, mode in asked:
        answer = await parts.ask("Which river in Rome?", mode=mode, as_of=user_seq)
        if then[user_seq, mode].watermark.projected_user_seq == user_seq:
            assert answer.memories == then[user_seq, mode].memories


async def test_trees_that_did_not_change_are_laid_out_once(plain: Parts) -> None:
    search = ForestSearch()

    async def lay_out() -> dict[object, object]:
        memory: Memory = await plain.memory()
        columns = await search.columns(memory, by_vectors=False)
        assert await search.columns(memory, by_vectors=False) is columns, "nothing happened meanwhile"
        return dict(zip(columns.scopes, columns.layouts, strict=True))

    async with running(plain):
        await travel(plain)
        await plain.until_done()
        before = await lay_out()
        await travel(plain, sessions=1, first=9)
        await plain.until_done()
        after = await lay_out()

    same = [scope for scope in before if after.get(scope) is before[scope]]
    assert len(same) >= 4, "those of the other sessions"
    assert len(after) > len(before)
