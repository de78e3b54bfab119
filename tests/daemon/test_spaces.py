"""Memories with vectors of other models: asked by vectors of their own, kept apart, taken in only if they fit."""

from __future__ import annotations

import random
from base64 import b64encode
from collections.abc import AsyncGenerator
from dataclasses import replace

import anyio
import numpy as np
import pytest
from numpy.typing import NDArray

from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.query_params import QueryParams
from daemon.derived import DERIVED, DerivedStore
from daemon.fitting import Fitting
from daemon.folding import fold_from_nothing
from daemon.logs import quiet
from daemon.vector_source import VectorSource
from daemon.vectors import BroughtFiller
from events.envelope import NewEvent
from events.erasure import read_unerased
from events.errors import InvalidInput, LogClosed
from events.log import EventLog
from events.session import MemoryImported
from projections.digests import digest_memory
from projections.facts.imported import read_width
from projections.ports import BROUGHT, CachedVector
from projections.recall.agpr import AgprParameters
from projections.spaces import SPACES_MAX
from tests.builders import KEYS, ManualClock, a_batch, a_forgetting, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

FILM, CHAT = "film-model", "chat-model"
# How texts are near to each other, by hand: a mug, tea, and neither.
MUG, TEA, ELSE = [1.0, 0.0, 0.2], [0.1, 1.0, 0.0], [-0.2, -0.1, -1.0]


def packed(numbers: list[float]) -> str:
    return b64encode(np.array(numbers, dtype="<f4").tobytes()).decode()


def a_memory(
    memory_id: str, content: str, vector: list[float] | None, model: str | None = FILM, session_id: str = "import"
) -> NewEvent:
    turn = a_turn(session_id=session_id, turn_id=memory_id)
    embedding = None if vector is None else packed(vector)
    return replace(turn, event=MemoryImported(content, memory_id, embedding=embedding, embedding_model=model))


class Asking:
    """A daemon's way to answer, with a store for vectors and an embedder of sixteen numbers."""

    def __init__(
        self, parts: Parts, derived: DerivedStore, embedder: ScriptedEmbedder, agpr: AgprParameters
    ) -> None:
        self.parts, self.embedder = parts, embedder
        self.source = VectorSource(parts.log, embedder, None, derived)
        planned = (parts.memories, embedder, agpr, lambda _: 0, parts.clock)
        self.answerer = Answerer(KEYS, parts.log, *planned, vectors=self.source)

    async def ask(self, question: str, **more: object) -> Answer:
        await self.parts.memory()
        return await self.answerer.query(QueryParams(user_id="alice", query=question, **more))  # type: ignore[arg-type]

    async def fill_ours(self) -> None:
        memory = await self.parts.memory()
        await self.source.fill(memory, self.source.without_vectors(memory, 99))


@pytest.fixture
async def derived(log: EventLog) -> AsyncGenerator[DerivedStore]:
    store = await DerivedStore.open(log.path.with_name(DERIVED), log, quiet, 1 << 30)
    yield store
    await store.close()


@pytest.fixture
def words(log: EventLog, clock: ManualClock, derived: DerivedStore) -> Asking:
    """Without an embedder that ranks."""
    return Asking(build_parts(log, clock), derived, ScriptedEmbedder(), AgprParameters())


@pytest.fixture
def vectors(log: EventLog, clock: ManualClock, derived: DerivedStore) -> Asking:
    """With one."""
    agpr = AgprParameters(cosine_weight=0.5, smoothing=0.0)
    return Asking(build_parts(log, clock, agpr=agpr), derived, ScriptedEmbedder(), agpr)


async def told(log: EventLog) -> None:
    """Three memories of a film, two of a chat in two numbers, and one that brought nothing."""
    await log.append(
        a_batch(
            a_memory("f-1", "A red cup stands on a shelf.", MUG),
            a_memory("f-2", "Somebody drinks something hot.", TEA),
            a_memory("f-3", "A door is opened.", ELSE),
            a_memory("c-1", "Alice was in Rome.", [1.0, 0.1], CHAT),
            a_memory("c-2", "Bob was in Oslo.", [-1.0, 0.2], CHAT),
            a_memory("o-1", "Paul sings.", None, None),
        )
    )


def spaces(answer: Answer) -> list[tuple[str | None, int, int, bool, bool]]:
    return [(s.model, s.dimensions, s.memories, s.reached, s.ours) for s in answer.spaces or []]


async def test_a_question_finds_memories_of_a_model_by_a_vector_of_that_model(words: Asking) -> None:
    await told(words.parts.log)
    film = await words.ask("coffee", k=6, embedding=MUG, embedding_model=FILM)
    chat = await words.ask("coffee", k=6, embedding=[-1.0, 0.1], embedding_model=CHAT)

    assert film.memories[0].text == "A red cup stands on a shelf."
    assert chat.memories[0].text == "Bob was in Oslo."
    assert spaces(film) == [
        ("scripted", 16, 1, False, True),
        (FILM, 3, 3, True, False),
        (CHAT, 2, 2, False, False),
    ]
    assert [reached for *_, reached, _ in spaces(chat)] == [False, False, True]


async def test_without_such_a_vector_words_find_them_and_the_answer_says_so(vectors: Asking) -> None:
    await told(vectors.parts.log)
    await vectors.fill_ours()
    answer = await vectors.ask("Who was in Oslo?", k=2)

    assert answer.memories[0].text == "Bob was in Oslo."
    assert [(model, reached) for model, _, _, reached, _ in spaces(answer)] == [
        *(("scripted", True), (FILM, False), (CHAT, False)),
    ]
    assert vectors.embedder.texts == ["Paul sings."], "what came with a vector is not embedded here"


async def test_a_question_s_own_vector_and_one_of_another_model_count_together(vectors: Asking) -> None:
    await told(vectors.parts.log)
    await vectors.fill_ours()
    answer = await vectors.ask("Paul sings.", k=6, embedding=TEA, embedding_model=FILM)
    first_two = {memory.text for memory in answer.memories[:2]}

    assert first_two == {"Paul sings.", "Somebody drinks something hot."}
    assert vectors.embedder.questions == ["Paul sings."]


async def test_answers_without_other_spaces_have_no_such_field(vectors: Asking) -> None:
    await vectors.parts.log.append(a_batch(a_memory("o-1", "Paul sings.", None)))

    assert (await vectors.ask("Paul")).spaces is None


async def test_a_vector_without_its_model_s_name_goes_by_its_width_when_that_is_one_s_alone(
    vectors: Asking,
) -> None:
    log = vectors.parts.log
    await told(log)
    by_width = await vectors.ask("coffee", embedding=MUG)
    await log.append(a_batch(a_memory("x-1", "Tea.", [1.0, 2.0, 3.0], "third-model")))

    assert by_width.memories[0].text == "A red cup stands on a shelf."
    with pytest.raises(InvalidInput, match="more than one model; name the one"):
        await vectors.ask("coffee", embedding=MUG)
    with pytest.raises(InvalidInput, match="has 5 numbers, and the vectors here have 16"):
        await vectors.ask("coffee", embedding=[1.0] * 5)
    with pytest.raises(InvalidInput, match="has 2 numbers, and those of its embedding_model have 3"):
        await vectors.ask("coffee", embedding=[1.0, 2.0], embedding_model=FILM)
    with pytest.raises(InvalidInput, match="names the model of an embedding"):
        await vectors.ask("coffee", embedding_model=FILM)


async def test_a_model_of_which_nothing_is_known_is_no_mistake_of_the_asker(vectors: Asking) -> None:
    """A host sends its vectors from the first question on."""
    nobody = await vectors.ask("coffee", embedding=[1.0] * 7, embedding_model="new")
    await told(vectors.parts.log)
    answer = await vectors.ask("Who was in Oslo?", k=1, embedding=[1.0] * 7, embedding_model="new")

    assert nobody.memories == []
    assert answer.memories[0].text == "Bob was in Oslo."
    assert not any(reached for *_, reached, ours in spaces(answer) if not ours)


async def test_memories_that_name_no_model_are_one_space(words: Asking) -> None:
    await words.parts.log.append(a_batch(a_memory("a", "Alpha.", MUG, None), a_memory("b", "Beta.", TEA, None)))
    answer = await words.ask("coffee", embedding=TEA)

    assert answer.memories[0].text == "Beta."
    assert spaces(answer) == [(None, 3, 2, True, False)] or spaces(answer)[-1] == (None, 3, 2, True, False)


async def test_answers_are_the_same_again_after_a_restart_and_a_rebuild(
    log: EventLog, clock: ManualClock, derived: DerivedStore
) -> None:
    await told(log)
    asked = {"k": 6, "embedding": MUG, "embedding_model": FILM, "explain": False}
    answers: list[Answer] = []
    for _ in range(2):
        asking = Asking(build_parts(log, clock), derived, ScriptedEmbedder(), AgprParameters())
        answers += [await asking.ask("shelf", **asked), await asking.ask("shelf", **asked)]
    kept = await derived.load(ALICE, BROUGHT, [b"%d,0" % seq for seq in range(1, 7)])

    assert answers[0].memories
    assert all(answer == answers[0] for answer in answers)
    assert sorted(row.shape for row in kept.values()) == [(2,), (2,), (3,), (3,), (3,)]


async def test_a_memory_that_is_loaded_has_all_vectors_that_are_kept_whatever_else_is_missing(
    log: EventLog, words: Asking
) -> None:
    """Or a question just behind a restart had another answer than one a minute later."""
    await told(log)
    await words.source.fill_brought(await words.parts.memory())
    await log.append(a_batch(a_memory("f-4", "A window is closed.", ELSE)))
    loaded = await fold_from_nothing(log, ALICE, SMALL)
    await log.close()
    with pytest.raises(LogClosed):
        await words.source.furnish(loaded, ours=False)

    assert loaded.nodes.count_without_vectors(words.source.their_spaces(loaded)) == 1, "the log cannot be read"


async def test_vectors_that_were_brought_stand_beside_those_of_the_embedder(
    vectors: Asking, derived: DerivedStore
) -> None:
    """Which lets go of those of another embedder when it keeps its own."""
    await told(vectors.parts.log)
    memory = await vectors.parts.memory()
    await vectors.source.fill_brought(memory)
    row = np.ones(16, dtype=np.float16)
    await derived.keep(ALICE, "scripted/1", [CachedVector(b"mine", (6,), row)])
    kept = await derived.load(ALICE, BROUGHT, [b"%d,0" % seq for seq in range(1, 7)])

    assert len(kept) == 5
    assert len(await derived.load(ALICE, "scripted/1", [b"mine"])) == 1


async def test_the_filler_gives_them_their_vectors_while_the_embedder_is_away(words: Asking) -> None:
    await told(words.parts.log)
    memory = await words.parts.memory()
    theirs = words.source.their_spaces(memory)
    before = memory.nodes.count_without_vectors(theirs)
    filler = BroughtFiller(words.parts.memories, words.source)
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(filler.run)
        await wait_until(lambda: memory.nodes.brought_at == memory.user_seq)
        tasks.cancel_scope.cancel()

    assert (before, memory.nodes.count_without_vectors(theirs)) == (5, 0)
    assert words.embedder.texts == []


async def test_what_is_forgotten_is_gone_from_its_space_and_from_the_store(
    words: Asking, derived: DerivedStore
) -> None:
    log = words.parts.log
    await log.append(a_batch(a_memory("a", "Alpha.", MUG, session_id="s1"), a_memory("b", "Beta.", TEA)))
    await words.ask("x", embedding=MUG, embedding_model=FILM)
    await log.append_event(a_forgetting("s1"))
    answer = await words.ask("x", embedding=MUG, embedding_model=FILM)
    (unerased,) = await log.read(read_unerased)
    needles = await derived.read_vectors_of(unerased)
    await derived.erase(unerased)

    assert [memory.text for memory in answer.memories] == ["Beta."]
    assert spaces(answer)[-1] == (FILM, 3, 1, True, False)
    assert len(needles) == 1
    assert await derived.find_kept(set(needles), unerased) == set()
    assert len(await derived.load(ALICE, BROUGHT, [b"1,0", b"2,0"])) == 1


async def test_embeddings_that_do_not_fit_are_named_before_they_are_taken(words: Asking) -> None:
    log, fitting = words.parts.log, Fitting(KEYS, words.parts.memories)
    await told(log)
    events = [
        a_memory("x-1", "a", MUG),
        a_memory("x-2", "b", [1.0, 2.0]),
        a_memory("x-3", "c", [1.0, 2.0], "new"),
        a_memory("x-4", "d", [1.0, 2.0, 3.0], "new"),
        a_memory("x-5", "e", None),
        a_memory("x-6", "f", [1.0], None),
        a_memory("x-7", "g", [1.0, 2.0], None),
        a_turn("not a memory"),
    ]
    reasons = await fitting.find_unfit(events)

    assert [reason is None for reason in reasons] == [True, False, True, False, True, True, False, True]
    assert "has 2 numbers, and those of its embedding_model have 3" in str(reasons[1])
    assert "that name no embedding_model have 1" in str(reasons[6])
    with pytest.raises(InvalidInput, match="has 2 numbers"):
        await fitting.check(events)


async def test_a_user_has_a_bounded_number_of_spaces_and_forgetting_makes_room(words: Asking) -> None:
    log, fitting = words.parts.log, Fitting(KEYS, words.parts.memories)
    many = [a_memory(f"m-{n}", f"Text {n}.", [1.0, float(n)], f"model {n}", f"s{n}") for n in range(SPACES_MAX)]
    reasons = await fitting.find_unfit([*many, a_memory("m-9", "More.", MUG)])
    await log.append(a_batch(*many))
    await log.append(a_batch(a_memory("late", "Slipped through.", MUG, "ninth")))
    memory = await words.parts.memory()
    full = await fitting.find_unfit([a_memory("m-9", "More.", MUG)])
    await log.append(a_batch(a_forgetting("s3"), a_forgetting("s4")))
    after = await fitting.find_unfit([a_memory("m-9", "More.", MUG)])

    assert [reason is None for reason in reasons] == [True] * SPACES_MAX + [False]
    assert len(memory.spaces.known) == SPACES_MAX
    assert memory.nodes.count_by_space()[0] == 1, "its text is as good as any"
    assert "8 models already" in str(full[0])
    assert after == [None]


async def test_a_vector_that_slipped_through_is_as_good_as_none(words: Asking) -> None:
    log = words.parts.log
    await told(log)
    await log.append(a_batch(a_memory("w", "Other width.", [1.0, 2.0]), a_memory("z", "No way.", [0.0, 0.0, 0.0])))
    memory = await words.parts.memory()
    answer = await words.ask("width", k=1, embedding=MUG, embedding_model=FILM)

    assert memory.nodes.count_by_space() == {0: 3, 1: 3, 2: 2}
    assert answer.memories


def test_the_width_of_an_embedding_is_told_without_reading_it() -> None:
    for width in range(1, 40):
        assert read_width(packed([1.0] * width)) == width


async def test_a_random_history_folds_to_the_same_spaces_live_and_from_nothing(
    log: EventLog, clock: ManualClock, derived: DerivedStore
) -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    dice, chance = random.Random(seed), np.random.default_rng(seed)
    asking = Asking(build_parts(log, clock), derived, ScriptedEmbedder(), AgprParameters())
    widths = {"a": 3, "b": 3, "c": 5}

    def a_vector(width: int) -> NDArray[np.float64]:
        return chance.normal(size=width)

    for number in range(60):
        session = f"s{dice.randrange(5)}"
        if dice.random() < 0.06:
            await log.append_event(a_forgetting(session))
        elif dice.random() < 0.2:
            await asking.parts.memory()
        else:
            model = dice.choice("abc")
            vector = a_vector(widths[model]).tolist()
            await log.append(a_batch(a_memory(f"m{number}", f"Text {number}.", vector, model, session)))
    live = await asking.parts.memory()
    while await asking.source.fill_brought(live):
        pass
    folded = await fold_from_nothing(log, ALICE, SMALL)

    assert digest_memory(folded) == digest_memory(live)
    assert folded.spaces.known == live.spaces.known
    assert folded.nodes.count_by_space() == live.nodes.count_by_space()
    assert live.nodes.without_vectors(1, asking.source.their_spaces(live)) == []
