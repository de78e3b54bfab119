"""Related words of a Memory: read when they are asked for, gone with what said them, the same anew."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import numpy as np

from daemon.asking.word_search import WordSearch, find_word_search
from daemon.memories import Memories
from daemon.offline.embedder import HashingEmbedder
from events.log import EventLog
from projections.ports import EmbedderUnavailable, Vectors
from projections.recall.tokens import terms
from tests.builders import ManualClock
from tests.bus_in_use import Reported
from tests.daemon.parts_in_use import ALICE, SMALL, build_parts, running

# What points the same way is related.
ALIKE = {"violin": "instrument", "cello": "instrument", "instruments": "instrument"}
FILLING = """
    apple banana cherry dune ember fjord glacier harbour island jungle kettle lantern meadow needle orchard pepper
    quarry river saddle thunder umbrella valley walnut yacht zebra acorn beetle canyon dagger eagle falcon garden
    hammer iceberg jacket kitten ladder magnet napkin oyster pebble quilt rabbit salmon turnip urchin violet wagon
    yogurt zipper anchor button candle dragon
"""


@dataclass
class AlikeWords:
    """A vector for every word: what is alike has nearly the same one."""

    dimensions: int = 64
    is_down: bool = False
    asked: list[str] = field(default_factory=list[str])
    # What happens while they are made.
    before: Callable[[Sequence[str]], Awaitable[None]] | None = None

    async def embed(self, texts: Sequence[str]) -> Vectors:
        if self.is_down:
            raise EmbedderUnavailable("down")
        if self.before is not None:
            await self.before(texts)
        self.asked += texts
        rows = np.zeros((len(texts), self.dimensions), dtype=np.float32)
        for row, text in zip(rows, texts, strict=True):
            seed = int.from_bytes(ALIKE.get(text, text).encode()[:8], "big")
            row[:] = np.random.default_rng(seed).normal(size=self.dimensions)
        unit: Vectors = rows / np.linalg.norm(rows, axis=1, keepdims=True)
        return unit


async def test_words_are_read_once_and_go_with_what_said_them(log: EventLog, clock: ManualClock) -> None:
    parts, vectors = build_parts(log, clock), AlikeWords()
    words = WordSearch(log, vectors)
    async with running(parts):
        memory = await parts.memory()
        await parts.say(" ".join(FILLING.split()), session_id="s1")
        await parts.say("My violin is old.", session_id="s2")
        await parts.until_done()
        violin, asked = (next(memory.nodes.lexical.hash(terms(each))) for each in ("violin", "instruments"))
        first = await words.find(memory, "Which instruments?")
        read = len(vectors.asked)
        again = await words.find(memory, "Which instruments?")
        read_again = len(vectors.asked) - read
        anew = Memories(log, SMALL, Reported())
        other = await WordSearch(log, AlikeWords()).find(await anew.catch_up(ALICE), "Which instruments?")
        vectors.is_down = True
        down = await words.find(memory, "Which instruments?")
        held = memory.nodes.words
        for node_id in [each for each in memory.nodes.row_of if held is not None and each in held]:
            memory.nodes.remove(node_id)

    assert first is not None
    assert first.terms[asked][violin] > 0.9
    assert first == again == other
    assert read_again == 1, "the question's word alone"
    assert down is None
    assert held is not None
    assert not len(held)


def test_without_vectors_that_rank_no_words_are_compared(log: EventLog) -> None:
    assert find_word_search(log, HashingEmbedder()) is None


async def test_an_open_chunk_that_grows_while_its_words_are_read_is_read_again(
    log: EventLog, clock: ManualClock
) -> None:
    parts, vectors = build_parts(log, clock), AlikeWords()
    words = WordSearch(log, vectors)
    await parts.say(" ".join(FILLING.split()), session_id="s1")
    await parts.close("s1")
    await parts.say("An old violin.", session_id="s2")
    memory = await parts.memory()
    grown = False

    async def grow(texts: Sequence[str]) -> None:
        nonlocal grown
        if "violin" in texts and not grown:
            grown = True
            await parts.say("And a cello.", session_id="s2")
            assert await parts.memory() is memory

    vectors.before = grow
    await words.find(memory, "Which instruments?")
    related = await words.find(memory, "Which instruments?")
    cello, asked = (next(memory.nodes.lexical.hash(terms(each))) for each in ("cello", "instruments"))

    assert grown
    assert related is not None
    assert related.terms[asked][cello] > 0.9


async def test_only_the_words_of_what_is_new_are_read_after_an_event(log: EventLog, clock: ManualClock) -> None:
    parts, vectors = build_parts(log, clock), AlikeWords()
    words = WordSearch(log, vectors)
    await parts.say(" ".join(FILLING.split()), session_id="s1")
    await parts.say("An old violin.", session_id="s2")
    memory = await parts.memory()
    await words.find(memory, "Which instruments?")
    await parts.say("And a cello.", session_id="s2")
    await parts.memory()
    waiting = memory.nodes.words is not None and len(memory.nodes.words.missing)
    await words.find(memory, "Which instruments?")

    assert waiting == 1, "of all nodes the one that is new"
    assert memory.nodes.words is not None
    assert not memory.nodes.words.missing


async def test_a_word_of_the_question_that_a_memory_says_is_not_embedded_again(
    log: EventLog, clock: ManualClock
) -> None:
    parts, vectors = build_parts(log, clock), AlikeWords()
    words = WordSearch(log, vectors)
    await parts.say(" ".join(FILLING.split()), session_id="s1")
    await parts.say("An old violin and a cello.", session_id="s2")
    memory = await parts.memory()
    found = await words.find(memory, "Which violin?")
    read = len(vectors.asked)
    vectors.is_down = True
    again = await words.find(memory, "Which violin?")
    cello, violin = (next(memory.nodes.lexical.hash(terms(each))) for each in ("cello", "violin"))

    assert found is not None
    assert found == again
    assert found.terms[violin][cello] > 0.9
    assert len(vectors.asked) == read == len(set(vectors.asked))
