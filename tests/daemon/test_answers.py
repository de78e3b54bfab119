"""`query`: how many memories, in which order, from which moment on, and that the same question has one answer."""

from __future__ import annotations

import anyio
import msgspec
import pytest

from daemon.answers import (
    K_MAX,
    QUESTION_CHARACTERS_MAX,
    QueryParams,
    TurnDeadLettered,
    TurnInConflict,
    TurnRefused,
)
from events.dead_letters import DeadLetter
from events.envelope import NewEvent
from events.erasure import erase_slice
from events.errors import InvalidInput, MemForestError
from events.log import EventLog
from events.session import Part, TurnRecorded
from projections.recall.agpr import AgprParameters
from projections.recall.answering import CHARACTERS_PER_TOKEN
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_forgetting, a_place, a_turn, lineage_of
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running, running_forgetter
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
        used.append(embedder.texts)

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


async def test_the_watermark_tells_how_far_behind_the_answer_is(parts: Parts, clock: ManualClock) -> None:
    await parts.say("one")
    await parts.ask("one")  # and from here on nobody follows the log
    clock.advance(1_000)
    await parts.say("two", "three")
    clock.advance(2_500)
    watermark = (await parts.ask("one")).watermark

    assert (watermark.user_seq, watermark.projected_user_seq) == (3, 1)
    assert watermark.lag_s == 2.5, "since the first event that is not folded in"
    await parts.memory()
    after = (await parts.ask("one")).watermark
    assert (after.projected_user_seq, after.lag_s, after.pending) == (3, 0.0, 1)


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


async def test_wait_for_a_position_holds_the_query_until_it_is_folded(parts: Parts) -> None:
    await parts.ask("Rome")
    found: list[str] = []

    async def ask() -> None:
        found.extend(memory.text for memory in (await parts.ask("Rome", wait_for=2)).memories)

    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        tasks.start_soon(ask)
        await parts.say("I was in Rome.")
        early = list(found)
        await parts.say("It rained.")

    assert early == []
    assert found == ["Alice: I was in Rome.\nAlice: It rained."]


async def test_wait_for_a_key_holds_the_query_until_its_turn_is_folded(parts: Parts) -> None:
    await parts.ask("Rome")
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        with anyio.fail_after(5):
            tasks.start_soon(parts.say, "I was in Rome.")
            answer = await parts.ask("Rome", wait_for="turn/alice/s1/t1/0")

    assert len(answer.memories) == 1


async def test_wait_for_what_never_comes_waits_and_blocks_nobody(parts: Parts) -> None:
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        for key in ("turn/alice/s1/never/0", 10_000):
            tasks.start_soon(lambda key=key: parts.ask("Rome", wait_for=key))  # type: ignore[misc]
        with anyio.fail_after(2):
            await parts.say("I was in Rome.")
            answer = await parts.ask("Rome", wait_for=1)
        tasks.cancel_scope.cancel()

    assert len(answer.memories) == 1


async def wait_for_key(parts: Parts, error: type[MemForestError]) -> MemForestError:
    with anyio.fail_after(2), pytest.raises(error) as raised:
        await parts.ask("Rome", wait_for="turn/alice/s1/t1/0")
    return raised.value


async def test_wait_for_a_dead_letter_answers_at_once_with_its_reason(parts: Parts) -> None:
    letter = DeadLetter("s", b"Xylophon", "Expected `str`", a_place(1), "alice", "s1", "turn/alice/s1/t1/0")
    await parts.log.append(a_batch(letters=(letter,)))
    error = await wait_for_key(parts, TurnDeadLettered)

    assert (error.code, str(error)) == ("invalid", "the awaited message is a dead letter: Expected `str`")


async def test_wait_for_a_conflicting_or_refused_turn_answers_at_once(parts: Parts) -> None:
    await parts.log.append(a_batch(a_turn("one")))
    await parts.log.append(a_batch(a_turn("another")))
    conflict = await wait_for_key(parts, TurnInConflict)
    await parts.log.append_event(a_forgetting("s2"))
    await parts.log.append(a_batch(a_turn("too late", session_id="s2", turn_id="late")))
    with anyio.fail_after(2), pytest.raises(TurnRefused) as refused:
        await parts.ask("Rome", wait_for="turn/alice/s2/late/0")

    assert (conflict.code, refused.value.code) == ("conflict", "conflict")


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
