"""Asking the past: `as_of` answers what was answered then, whatever came since, but nothing that was forgotten."""

from __future__ import annotations

import random
import sqlite3
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import anyio
import pytest

from daemon import folding
from daemon.asking.answer_types import Answer
from daemon.asking.answers import Answerer
from daemon.asking.history import History, agree
from daemon.asking.query_params import QueryParams
from daemon.folding import fold_from_nothing
from events.erasure import erase_slice
from events.errors import InvalidInput, MemForestError
from events.hindsight import read_hindsight
from events.log import EventLog
from projections.digests import digest_memory
from projections.recall.agpr import NO_EMBEDDER
from tests.builders import KEYS, MONDAY, ManualClock, a_batch, a_closing, a_forgetting, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, build_parts, running
from tests.daemon.turn_edits import a_retraction, a_revision
from tests.scripted_models import ScriptedEmbedder
from tests.waiting import wait_until

T = TypeVar("T")

QUESTIONS = ("Who likes Rex?", "What is in Oslo?", "Zoe")
SENTENCES = ("Zoe likes Rex.", "Oslo is far, says Zoe.", "Rex was in Oslo on day {day}.", "It rained on Rex.")


@dataclass
class Lived:
    """Answers as they were given while the log grew, by user_seq and question."""

    answers: dict[tuple[int, str], Answer] = field(default_factory=dict[tuple[int, str], Answer])

    async def ask(self, parts: Parts) -> None:
        for question in QUESTIONS:
            answer = await parts.ask(question, k=50)
            self.answers[answer.watermark.projected_user_seq, question] = answer


async def live(parts: Parts, chance: random.Random, steps: int) -> Lived:
    """Turns, closings, building and compaction in some order, with questions all along."""
    lived = Lived()
    async with running(parts):
        for _ in range(steps):
            session = f"s{chance.randint(1, 3)}"
            match chance.choices(("say", "close", "build", "compact"), (10, 2, 3, 1))[0]:
                case "say":
                    sentence = chance.choice(SENTENCES).format(day=chance.randint(1, 3))
                    await parts.say(sentence, session_id=session)
                case "close":
                    await parts.close(session)
                case "build":
                    await build(parts)
                case _ if (await parts.memory()).canon.facts:
                    await parts.compactor.compact(ALICE, 0.3)
            await lived.ask(parts)
        await build(parts)
        await lived.ask(parts)
    return lived


async def build(parts: Parts) -> None:
    """A closed session is due at once; the rest waits for a clock that stands still."""
    for number in range(1, 4):
        await parts.close(f"s{number}")
    await parts.until_done()


def with_history(parts: Parts, history: History) -> Answerer:
    """An answerer of its own on this history."""
    return Answerer(
        KEYS, parts.log, parts.memories, ScriptedEmbedder(), NO_EMBEDDER, lambda _: 0, parts.clock, history
    )


async def ask_as_of(answerer: Answerer, as_of: int | str, question: str = "Zoe", k: int = 50) -> Answer:
    return await answerer.query(QueryParams(user_id="alice", query=question, k=k, as_of=as_of))


def texts(answer: Answer) -> list[str]:
    return [memory.text for memory in answer.memories]


@pytest.mark.parametrize("seed", range(4))
async def test_the_past_is_answered_as_it_was_when_it_was_the_present(
    log: EventLog, clock: ManualClock, seed: int
) -> None:
    """The oracle is the live Memory of then; positions are asked for in any order."""
    print(f"seed {seed}")
    chance, parts = random.Random(seed), build_parts(log, clock, agpr=NO_EMBEDDER)
    lived = await live(parts, chance, steps=24)
    history = History(log, SMALL, past_max=2, copy_from_events=5)
    answerer = with_history(parts, history)
    asked = list(lived.answers)
    chance.shuffle(asked)

    for user_seq, question in asked:
        then, now = lived.answers[user_seq, question], await ask_as_of(answerer, user_seq, question)
        assert (now.memories, now.context) == (then.memories, then.context), (user_seq, question)
        assert (now.watermark.user_seq, now.watermark.projected_user_seq) == (user_seq, user_seq)
        assert now.redacted == 0
    assert history.copied()
    assert len(history.held()) <= 2


async def test_a_past_memory_is_the_fold_of_the_events_before(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    await live(parts, random.Random(9), steps=20)
    history = History(log, SMALL, copy_from_events=4)

    for user_seq in (log.head, 3, 11, 7, log.head - 1, 0):
        async with history.at(ALICE, user_seq) as memory:
            fresh = await fold_from_nothing(log, ALICE, SMALL, user_seq) if user_seq else None
            assert memory.user_seq == user_seq
            assert fresh is None or digest_memory(memory) == digest_memory(fresh)


async def test_an_instant_stands_for_the_last_event_recorded_by_then(parts: Parts, clock: ManualClock) -> None:
    for content in ("Zoe one.", "Zoe two.", "Zoe three."):
        await parts.say(content, session_id=content)
        clock.advance(60_000)  # the first is recorded at 09:00, the second at 09:01

    for instant, known in (
        ("2024-07-01T08:59:59.999Z", 0),
        ("2024-07-01T09:00:00Z", 1),
        ("2024-07-01T11:00:30+02:00", 1),
        ("2024-07-01T09:01:00Z", 2),
        ("2030-01-01T00:00:00Z", 3),
    ):
        answer = await ask_as_of(parts.answerer, instant)
        assert (len(answer.memories), answer.watermark.user_seq) == (known, known), instant


async def test_before_the_first_event_nothing_is_known(parts: Parts) -> None:
    await parts.say("Zoe.")
    for position in (0, "1999-01-01T00:00:00Z"):
        answer = await ask_as_of(parts.answerer, position)

        assert (answer.memories, answer.context, answer.redacted) == ([], "", 0)
        assert (answer.watermark.user_seq, answer.watermark.pending) == (0, 0)


@pytest.mark.parametrize("position", [2, -1, 10**30, "yesterday", "", "2023-02-01", "2023-02-01T09:00:00"])
async def test_a_position_that_is_none_is_invalid_and_not_repeated(parts: Parts, position: int | str) -> None:
    await parts.say("Zoe.")
    with pytest.raises(InvalidInput) as raised:
        await ask_as_of(parts.answerer, position)

    assert not position or str(position) not in str(raised.value)


async def test_nobodys_past_is_empty(parts: Parts) -> None:
    answer = await parts.ask("anything", "nobody", as_of=5)

    assert (answer.memories, parts.log.head) == ([], 0)


async def test_words_of_a_session_forgotten_since_are_not_shown_and_are_counted(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        for session in ("s1", "s2"):
            await parts.say(f"Zoe kept the secret of {session}.", "Zoe likes Rex.", session_id=session)
            await parts.close(session)
        await parts.until_done()
    before = log.head
    assert any("of s1" in text for text in texts(await ask_as_of(parts.answerer, before)))
    await log.append(a_batch(a_forgetting("s1")))
    forgotten = await ask_as_of(parts.answerer, before)
    await log.write(lambda db: erase_slice(db, KEYS.session("alice", "s1")))
    erased = await ask_as_of(parts.answerer, before)

    assert [text for text in texts(forgotten) if "of s2" in text]
    assert not [text for text in texts(forgotten) if "of s1" in text]
    assert texts(erased) == texts(forgotten)
    # Two turns, their extraction; a closing and an admission have no words. Summaries are of what was long.
    assert forgotten.redacted == erased.redacted
    assert erased.redacted is not None
    assert erased.redacted >= 3
    assert (await ask_as_of(parts.answerer, 1)).redacted == 1, "the first turn of the session"


async def test_before_a_revision_its_older_wording_is_known(parts: Parts, log: EventLog) -> None:
    await parts.say("Zoe lives in Rome.", "It rained.", "Zoe ate.")
    await log.append(a_batch(a_revision("Zoe lives in Bern.")))

    assert "Rome" in texts(await ask_as_of(parts.answerer, 3))[0] + texts(await ask_as_of(parts.answerer, 3))[1]
    now = " ".join(texts(await ask_as_of(parts.answerer, 4)))
    assert "Bern" in now
    assert "Rome" not in now
    then = await ask_as_of(parts.answerer, 1)
    assert (texts(then), then.redacted) == (["Alice: Zoe lives in Rome."], 0)


async def test_a_turn_retracted_since_is_not_known_at_any_time(parts: Parts, log: EventLog) -> None:
    await parts.say("Zoe lives in Rome.", "Zoe ate.", "Zoe slept.")
    assert "Rome" in " ".join(texts(await ask_as_of(parts.answerer, 2)))
    await log.append(a_batch(a_retraction("t1")))

    for position in (1, 2, 3, 4):
        answer = await ask_as_of(parts.answerer, position)
        assert "Rome" not in " ".join(texts(answer)), position
        assert answer.redacted == 1


class _ForgettingReader:
    """Reads a log; before the n-th reading from now a session is forgotten."""

    def __init__(self, log: EventLog, at_reading: int) -> None:
        self._log = log
        self._left = at_reading

    async def read(self, work: Callable[[sqlite3.Connection], T]) -> T:
        self._left -= 1
        if self._left == 0:
            await self._log.append(a_batch(a_forgetting("s1")))
        return await self._log.read(work)


@pytest.mark.parametrize("at_reading", [1, 2, 3])
async def test_what_is_forgotten_while_the_past_is_asked_is_not_answered(
    log: EventLog, clock: ManualClock, at_reading: int
) -> None:
    """Whether the user is known is not read when the Memory is here: the second reading is that of the words."""
    parts = build_parts(log, clock)
    await parts.say("Zoe kept a secret.", session_id="s1")
    await parts.say("Zoe ate.", session_id="s2")
    await parts.memory()
    reader = _ForgettingReader(log, at_reading)
    answerer = Answerer(
        KEYS,
        reader,  # type: ignore[arg-type]
        parts.memories,
        ScriptedEmbedder(),
        NO_EMBEDDER,
        lambda _: 0,
        clock,
        History(log, SMALL),
    )
    answer = await ask_as_of(answerer, 2)

    expected = ["Alice: Zoe ate."] if at_reading < 3 else ["Alice: Zoe ate.", "Alice: Zoe kept a secret."]
    assert sorted(texts(answer)) == expected


async def grow(parts: Parts, turns: int) -> None:
    """So many turns of one session, in one transaction."""
    said = [
        a_turn(f"Zoe {number}.", turn_id=f"t{number + 1}", happened_at=MONDAY + number * 1_000)
        for number in range(turns)
    ]
    await parts.log.append(a_batch(*said))


async def test_a_later_position_is_folded_on_from_an_earlier_one(parts: Parts, log: EventLog) -> None:
    await grow(parts, 30)
    history = History(log, SMALL)
    for position, folded in ((10, 10), (10, 10), (25, 25), (30, 30), (30, 30), (20, 50)):
        async with history.at(ALICE, position):
            pass
        assert history.events_folded == folded, position


async def test_an_earlier_position_is_folded_on_from_a_copy(parts: Parts, log: EventLog) -> None:
    await grow(parts, 40)
    history = History(log, SMALL, copy_from_events=10)
    async with history.at(ALICE, 40):
        pass
    assert (history.copied(), history.events_folded) == ([10, 16, 25, 38], 40)
    async with history.at(ALICE, 30) as memory:
        fresh = await fold_from_nothing(log, ALICE, SMALL, 30)
        assert digest_memory(memory) == digest_memory(fresh)

    assert history.events_folded == 45


async def test_a_memory_in_use_is_not_folded_on(parts: Parts, log: EventLog) -> None:
    await grow(parts, 20)
    history = History(log, SMALL)
    async with history.at(ALICE, 10) as early, history.at(ALICE, 20) as late:
        assert (early.user_seq, late.user_seq) == (10, 20)


async def test_copies_have_a_limit_in_bytes_and_memories_in_number(parts: Parts, log: EventLog) -> None:
    await grow(parts, 60)
    history = History(log, SMALL, past_max=2, copy_from_events=5, copy_bytes_max=20_000)
    for position in (60, 50, 40, 30):
        async with history.at(ALICE, position):
            pass

    assert [position for _, position in history.held()] == [40, 30]
    kept = sum(len(copy.packed) for copy in history._copies.values())
    assert 0 < kept <= 20_000


async def test_a_fold_that_is_cut_short_goes_on_where_it_was(parts: Parts, log: EventLog) -> None:
    await grow(parts, 600)
    history = History(log, SMALL)
    with anyio.CancelScope() as scope:
        async with anyio.create_task_group() as tasks:

            async def stop_in_the_middle() -> None:
                await wait_until(lambda: history._folding.locked())
                await log.read(lambda db: db.execute("SELECT 1").fetchone())
                scope.cancel()

            tasks.start_soon(stop_in_the_middle)
            async with history.at(ALICE, 600):
                pass
    before = [position for _, position in history.held()]
    async with history.at(ALICE, 600) as memory:
        digest = digest_memory(memory)

    assert before
    assert 0 <= before[0] < 600
    assert digest == digest_memory(await fold_from_nothing(log, ALICE, SMALL))


async def test_a_memory_whose_trees_were_not_looked_through_to_the_end_can_be_put_aside(
    parts: Parts, log: EventLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever asked gave up in the middle of the look that ends a long fold."""
    monkeypatch.setattr(folding, "SLICE_S", 60.0)
    await grow(parts, 30)
    history = History(log, SMALL, copy_from_events=21)
    async with history.at(ALICE, 20) as memory:
        next(memory.forest.look_in_steps())
    async with history.at(ALICE, 30) as memory:
        digest = digest_memory(memory)

    assert history.copied() == [21]
    assert digest == digest_memory(await fold_from_nothing(log, ALICE, SMALL))


async def test_several_may_ask_at_once_and_nothing_is_folded_twice(parts: Parts, log: EventLog) -> None:
    await grow(parts, 30)
    history = History(log, SMALL)

    async def look(position: int) -> None:
        async with history.at(ALICE, position) as memory:
            assert memory.user_seq == position

    async with anyio.create_task_group() as tasks:
        for position in (30, 10, 20, 10, 30):
            tasks.start_soon(look, position)

    assert {position for _, position in history.held()} <= {10, 20, 30}
    assert history.events_folded <= 10 + 20 + 30


async def test_what_was_forgotten_is_let_go_though_nobody_asks_again(parts: Parts, log: EventLog) -> None:
    await grow(parts, 10)
    await parts.say("Bob is here.", user_id="bob")
    history = History(log, SMALL, copy_from_events=4)
    for user, position in ((ALICE, 10), (KEYS.user("bob"), 1)):
        async with history.at(user, position):
            pass
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(history.run, log)
        await log.append(a_batch(a_forgetting("s1")))
        await wait_until(lambda: len(history.held()) == 1 and not history.copied())
        tasks.cancel_scope.cancel()

    assert history.held() == [(KEYS.user("bob"), 1)]
    assert history.copied() == []


async def test_hindsight_agrees_until_something_before_is_undone(parts: Parts, log: EventLog) -> None:
    await grow(parts, 4)
    seen = [await log.read(lambda db, at=at: read_hindsight(db, ALICE, at)) for at in (2, 4)]  # type: ignore[misc]
    await log.append(a_batch(a_closing(), a_retraction("t3")))
    after = await log.read(lambda db: read_hindsight(db, ALICE, 2))

    assert agree(*seen)
    assert not agree(seen[0], after)


async def test_as_of_and_the_present_agree_at_the_head(parts: Parts, log: EventLog) -> None:
    await grow(parts, 7)
    now, then = await parts.ask("Zoe 3", k=5), await ask_as_of(parts.answerer, log.head, "Zoe 3", k=5)

    assert replace(then, redacted=None) == now


async def test_a_position_is_one_of_the_user_who_is_asked(parts: Parts) -> None:
    await parts.say("Zoe for alice.")
    await parts.say("Zoe for bob.", user_id="bob")
    with pytest.raises(MemForestError):
        await parts.ask("Zoe", "bob", as_of=2)
    answer = await parts.ask("Zoe", "bob", as_of=1)

    assert [memory.text for memory in answer.memories] == ["Alice: Zoe for bob."]
