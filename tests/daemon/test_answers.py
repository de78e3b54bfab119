"""`query`: how many memories, in which order, from which moment on, and that the same question has one answer."""

from __future__ import annotations

import random
from dataclasses import replace

import msgspec
import pytest

from daemon.asking.answers import Answerer
from daemon.asking.contexts import QUARTERS, context_line, count_quarters
from daemon.asking.explanations import CANDIDATE_TEXT_MAX
from daemon.asking.query_params import K_MAX, QUESTION_CHARACTERS_MAX, QueryParams
from events.envelope import NewEvent
from events.erasure import erase_slice
from events.errors import InvalidInput
from events.log import EventLog
from events.session import Part, TurnRecorded
from projections.ports import EmbedderUnavailable, Vectors
from projections.recall.agpr import AgprParameters
from projections.recall.answering import CHARACTERS_PER_TOKEN, RecallRequest, choose, prepare, score_rows
from tests.builders import (
    KEYS,
    MONDAY,
    ManualClock,
    a_batch,
    a_forgetting,
    a_revision,
    a_turn,
    lineage_of,
)
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.scripted_models import ScriptedEmbedder


async def say_cities(parts: Parts) -> None:
    """Six chunks of two turns; Rome in two of them."""
    for city in ("Oslo", "Rome", "Bern", "Riga", "Rome", "Kyiv"):
        await parts.say(f"I was in {city} last week.", "It rained.")


async def test_the_best_memory_comes_first_with_its_sources_and_times(parts: Parts) -> None:
    await say_cities(parts)
    answer = await parts.ask("Who was in Bern?", k=1)

    (memory,) = answer.memories
    assert (memory.kind, memory.text) == ("chunk", "Alice: I was in Bern last week.\nAlice: It rained.")
    assert [(source.session_id, source.turn_id) for source in memory.sources] == [("s1", "t5"), ("s1", "t6")]
    assert (memory.sessions, memory.parts) == (["s1"], [])
    assert (memory.said_at, memory.time_end) == ("2024-07-01T09:05:00Z", "2024-07-01T09:06:00Z")
    assert answer.context == f"[1 July 2024] {memory.text}"


async def test_k_memories_at_most_and_ten_unless_asked(parts: Parts) -> None:
    await parts.say(*(f"turn {number} about Rome" for number in range(60)))

    assert [len((await parts.ask("Rome", k=k)).memories) for k in (1, 3, 20)] == [1, 3, 20]
    assert len((await parts.ask("Rome")).memories) == 10


async def test_the_context_is_in_the_order_of_time_to_the_millisecond(parts: Parts) -> None:
    """Written times do not sort as text: 09:00:00.500Z comes before 09:00:00Z there."""
    for number, ms in enumerate((500, 0, 999)):
        turn = a_turn(f"Rome {ms}", session_id=f"s{number}", happened_at=MONDAY + ms)
        await parts.log.append(a_batch(turn))
    answer = await parts.ask("Rome")

    lines = [line.removeprefix("[1 July 2024] Alice: ") for line in answer.context.split("\n")]
    assert lines == ["Rome 0", "Rome 500", "Rome 999"]


async def test_max_tokens_bounds_the_texts_and_stands_in_for_k(parts: Parts) -> None:
    await parts.say(*(f"turn number {number:02} about Rome" for number in range(60)))
    for tokens in (1, 20, 100, 10_000):
        answer = await parts.ask("Rome", max_tokens=tokens)
        assert sum(len(memory.text) for memory in answer.memories) <= tokens * CHARACTERS_PER_TOKEN

    assert len(answer.memories) == 30, "all of them, more than the ten of a question without a budget"
    assert (await parts.ask("Rome", max_tokens=1)).context == ""
    assert len((await parts.ask("Rome", max_tokens=10_000, k=2)).memories) == 2


async def test_flat_ranks_by_similarity_alone(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, agpr=AgprParameters(gamma=0.1, smoothing=0.0))
    await say_cities(parts)
    flat = (await parts.ask("Rome", k=6, mode="flat")).memories
    spread = (await parts.ask("Rome", k=6)).memories

    assert [memory.score for memory in flat] == sorted((memory.similarity for memory in flat), reverse=True)
    assert [memory.score for memory in spread] != [memory.score for memory in flat]


async def test_the_same_question_has_the_same_answer_to_the_last_byte(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        await say_cities(parts)
        await parts.close()
        await parts.until_done()
        answers = {msgspec.json.encode(await parts.ask("Rome rained", k=20)) for _ in range(5)}
    fresh = build_parts(log, clock)
    answers.add(msgspec.json.encode(await fresh.ask("Rome rained", k=20)))

    assert len(answers) == 1


async def test_a_vector_is_made_only_when_the_ranking_uses_it(log: EventLog, clock: ManualClock) -> None:
    used: list[list[str]] = []
    for weight in (0.0, 0.5):
        embedder = ScriptedEmbedder()
        parts = build_parts(log, clock, embedder=embedder, agpr=AgprParameters(cosine_weight=weight))
        await parts.say("In Rome.", session_id=f"s{weight}")
        await parts.ask("Where?")
        used.append(embedder.questions)

    assert used == [[], ["Where?"]]


async def test_an_unknown_user_has_no_memories_and_is_not_written_down(parts: Parts) -> None:
    answer = await parts.ask("anything", "nobody")

    assert (answer.memories, answer.context) == ([], "")
    assert (answer.watermark.user_seq, answer.watermark.projected_user_seq, answer.watermark.pending) == (0, 0, 0)
    assert parts.log.head == 0


async def test_users_do_not_see_each_other(parts: Parts) -> None:
    await parts.say("Rome for alice", user_id="alice")
    await parts.say("Rome for bob", user_id="bob")

    assert await parts.texts("Rome", "alice") == ["Alice: Rome for alice"]
    assert await parts.texts("Rome", "bob") == ["Alice: Rome for bob"]


async def test_parts_of_a_turn_come_back_with_the_memory(parts: Parts) -> None:
    image = Part("image_url", "https://a/b.png", "our dog Rex")
    event = TurnRecorded("Look!", "user", "t1", name="Alice", parts=(image,))
    await parts.log.append_event(NewEvent("alice", "s1", event, "turn/1", MONDAY, lineage_of(["s1"])))
    (memory,) = (await parts.ask("Rex")).memories

    assert memory.text == "Alice: Look! [our dog Rex]"
    assert [(part.kind, part.reference, part.caption) for part in memory.parts] == [
        ("image_url", "https://a/b.png", "our dog Rex")
    ]


@pytest.mark.parametrize(
    "wrong",
    [
        {"k": 0},
        {"k": K_MAX + 1},
        {"k": -1},
        {"max_tokens": 0},
        {"mode": "Xylophon"},
        {"query": "  "},
        {"query": "x" * (QUESTION_CHARACTERS_MAX + 1)},
    ],
)
async def test_parameters_out_of_range_are_refused_without_being_quoted(
    parts: Parts, wrong: dict[str, object]
) -> None:
    params = msgspec.convert({"user_id": "alice", "query": "Rome"} | wrong, QueryParams)
    with pytest.raises(InvalidInput) as raised:
        await parts.answerer.query(params)

    assert "Xylophon" not in str(raised.value)


async def test_the_context_with_its_dates_never_has_more_tokens_than_asked_for(parts: Parts) -> None:
    chance = random.Random(1)
    for number in range(40):
        words = chance.choices(["Rome", "東京に行きました", "été", "Москва", "🚀"], k=chance.randint(1, 9))
        await parts.say(" ".join(["Rome", *words]), session_id=f"s{number}")
    for tokens in (1, 10, 57, 333, 5_000):
        answer = await parts.ask("Rome", max_tokens=tokens)
        lines = [context_line(MONDAY, memory.text) for memory in answer.memories]

        assert count_quarters(answer.context) <= tokens * QUARTERS
        assert sorted(answer.context.split("\n")) == sorted(lines) if lines else answer.context == ""
    assert len(answer.memories) == 40


async def test_what_does_not_fit_in_tokens_is_explained_by_the_budget(parts: Parts) -> None:
    for number in range(12):
        await parts.say(f"東京に行きました {number}", session_id=f"s{number}")
    answer = await parts.ask("東京", max_tokens=60, explain=True)
    assert answer.explanation is not None
    ranks = {each.id: each.rank for each in answer.explanation.candidates if each.rank is not None}
    dropped = {each.dropped for each in answer.explanation.candidates if each.rank is None}

    assert 0 < len(answer.memories) < 12
    assert ranks == {memory.id: place + 1 for place, memory in enumerate(answer.memories)}
    assert dropped == {"budget"}


async def test_an_embedding_of_the_caller_ranks_and_no_other_is_made(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedEmbedder()
    parts = build_parts(log, clock, embedder=embedder, agpr=AgprParameters(cosine_weight=1.0, smoothing=0.0))
    await say_cities(parts)
    memory = await parts.memory()
    nodes = [memory.nodes.node(row) for row in memory.nodes.live_rows().tolist()]
    vectors = await embedder.embed([str(number) for number in range(len(nodes))])
    memory.nodes.set_vectors([node.id for node in nodes], vectors)
    for node, vector in zip(nodes, vectors, strict=True):
        given = [float(each) * 7 for each in vector]
        answer = await parts.ask("Whatever", k=1, embedding=given, explain=True)
        assert answer.memories[0].id == node.id.hex()
        assert answer.explanation is not None
        assert answer.explanation.candidates[0].cosine == pytest.approx(1, abs=0.01)
        assert answer.explanation.parameters.embedder == embedder.name

    assert embedder.questions == []


async def test_an_embedding_that_cannot_be_compared_is_refused_with_what_to_do(
    log: EventLog, clock: ManualClock
) -> None:
    by_words = build_parts(log, clock)
    by_both = build_parts(log, clock, agpr=AgprParameters(cosine_weight=0.5))
    with pytest.raises(InvalidInput, match="ranks by words alone"):
        await by_words.ask("Rome", embedding=[1.0] * 16)
    with pytest.raises(InvalidInput, match="has 3 numbers, and the vectors here have 16, made by scripted"):
        await by_both.ask("Rome", embedding=[1.0] * 3)


async def test_without_its_embedder_a_question_is_answered_by_words(log: EventLog, clock: ManualClock) -> None:
    class Away(ScriptedEmbedder):
        async def embed_question(self, text: str) -> Vectors:
            raise EmbedderUnavailable

    parts = build_parts(log, clock, embedder=Away(), agpr=AgprParameters(cosine_weight=0.5))
    await say_cities(parts)
    answer = await parts.ask("Bern", k=1, explain=True)

    assert answer.memories[0].text == "Alice: I was in Bern last week.\nAlice: It rained."
    assert answer.explanation is not None
    assert answer.explanation.parameters.embedder is None


async def test_an_explanation_changes_nothing_and_shows_texts_that_are_cut(parts: Parts) -> None:
    await parts.say("Rome " + "and so on " * 100, "It rained.")
    await say_cities(parts)
    plain, explained = await parts.ask("Rome", k=3), await parts.ask("Rome", k=3, explain=True)
    explanation = explained.explanation

    assert plain.explanation is None
    assert plain == replace(explained, explanation=None)
    assert explanation is not None
    assert max(len(each.text) for each in explanation.candidates) == CANDIDATE_TEXT_MAX
    assert list(explanation.timings_ms) == ["embed", "load", "filter", "score", "rank", "explain", "read"]
    assert (explanation.parameters.mode, explanation.parameters.k) == ("agpr", 3)


async def test_an_explanation_has_the_weight_that_sessions_had_for_this_question(parts: Parts) -> None:
    await say_cities(parts)
    one = await parts.ask("Who was in Bern last week?", explain=True)
    many = await parts.ask("Where has Alice been?", explain=True)

    assert one.explanation is not None
    assert many.explanation is not None
    assert one.explanation.parameters.session_weight == AgprParameters().session_weight
    assert many.explanation.parameters.session_weight == 0


async def test_an_answer_says_how_sure_it_is(parts: Parts) -> None:
    await say_cities(parts)
    await parts.say(*(f"number {number} of the list" for number in range(100)))
    said, unsaid = await parts.ask("Who was in Bern last week?"), await parts.ask("Which yacht did Nate charter?")

    assert said.confidence > unsaid.confidence
    assert (said.insufficient, unsaid.insufficient) == (False, True)


async def test_a_reworded_turn_keeps_its_source_and_its_parts(parts: Parts) -> None:
    await parts.say("Rome")
    await parts.log.append(a_batch(a_revision("Rome, again", turn_id="t1")))
    await parts.memory()
    (memory,) = (await parts.ask("Rome")).memories

    assert memory.text == "Alice: Rome, again"
    assert [(source.session_id, source.turn_id) for source in memory.sources] == [("s1", "t1")]


async def test_many_nodes_are_scored_in_another_thread_with_the_same_answer(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    await say_cities(parts)
    keys = (log.keys, log, parts.memories, ScriptedEmbedder(), AgprParameters(), lambda _: 0, clock)
    elsewhere = Answerer(*keys, nodes_on_loop_max=0)
    for question in ("Rome", "Who was in Bern?", "It rained"):
        assert await elsewhere.query(QueryParams(user_id="alice", query=question)) == await parts.ask(question)


async def test_what_goes_while_it_is_scored_is_not_in_the_answer(log: EventLog, clock: ManualClock) -> None:
    """Forgotten, and an open chunk that grew: its row was taken by others meanwhile."""
    parts = build_parts(log, clock)
    await parts.say("Rome secret", session_id="s1")
    await parts.say("Rome open", session_id="s2")
    memory = await parts.memory()
    request = RecallRequest("Rome", 10, AgprParameters())
    prepared = prepare(memory.nodes, request)
    leading = score_rows(prepared, request)
    memory.forget_session(KEYS.session("alice", "s1"))
    await parts.say("Rome more", "Rome new", session_id="s2")
    await parts.memory()
    found = choose(memory.nodes, replace(request, hidden=memory.hidden), prepared, leading)

    assert all(not each.node.sessions & memory.hidden for each in found.memories)
    assert {each.node.id for each in found.memories} <= set(memory.nodes.row_of)


async def test_words_that_were_erased_after_ranking_are_left_out(parts: Parts) -> None:
    """The fold has not heard of it yet; the log has."""
    await parts.say("Rome secret", session_id="s1")
    await parts.say("Rome harmless", session_id="s2")
    await parts.memory()
    session = KEYS.session("alice", "s1")
    await parts.log.append_event(a_forgetting("s1"))
    await parts.log.write(lambda db: erase_slice(db, session))
    answer = await parts.ask("Rome")

    assert parts.memories.loaded()[ALICE].user_seq == 2
    assert [memory.text for memory in answer.memories] == ["Alice: Rome harmless"]
