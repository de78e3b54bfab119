"""Waiting until an event is folded in, what can never be waited for, and how far behind an answer is."""

from __future__ import annotations

import anyio
import pytest

from daemon.asking.freshness import TurnDeadLettered, TurnInConflict, TurnRefused, check_target
from events.dead_letters import DeadLetter
from events.errors import InvalidInput, MemForestError
from tests.builders import ManualClock, a_batch, a_forgetting, a_place, a_turn
from tests.daemon.parts_in_use import Parts, running_forgetter
from tests.waiting import HANGS_AFTER_S


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
        with anyio.fail_after(HANGS_AFTER_S):
            tasks.start_soon(parts.say, "I was in Rome.")
            answer = await parts.ask("Rome", wait_for="turn/alice/s1/t1/0")

    assert len(answer.memories) == 1


async def test_wait_for_what_never_comes_waits_and_blocks_nobody(parts: Parts) -> None:
    async with running_forgetter(parts), anyio.create_task_group() as tasks:
        for key in ("turn/alice/s1/never/0", 10_000):
            tasks.start_soon(lambda key=key: parts.ask("Rome", wait_for=key))  # type: ignore[misc]
        with anyio.fail_after(HANGS_AFTER_S):
            await parts.say("I was in Rome.")
            answer = await parts.ask("Rome", wait_for=1)
        tasks.cancel_scope.cancel()

    assert len(answer.memories) == 1


async def wait_for_key(parts: Parts, error: type[MemForestError]) -> MemForestError:
    with anyio.fail_after(HANGS_AFTER_S), pytest.raises(error) as raised:
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
    with anyio.fail_after(HANGS_AFTER_S), pytest.raises(TurnRefused) as refused:
        await parts.ask("Rome", wait_for="turn/alice/s2/late/0")

    assert (conflict.code, refused.value.code) == ("conflict", "conflict")


@pytest.mark.parametrize(
    "key",
    [
        "never",
        "turn/alice",
        "turn/alice/s1/t1/0/1",
        "turn/alice/s1/a b/0",
        "turn//s1/t1/0",
        "verb/alice/s1/t1/0",
        "turn/bob/s1/t1/0",
        -1,
    ],
)
async def test_a_key_that_nothing_is_ever_recorded_under_is_refused_at_once(parts: Parts, key: str | int) -> None:
    with anyio.fail_after(HANGS_AFTER_S), pytest.raises(InvalidInput, match="wait_for"):
        await parts.ask("Rome", wait_for=key)


@pytest.mark.parametrize(
    "key",
    [
        "turn/alice/s1/t1/0",
        "turn/alice/b32-me/b32-mfqq/-1",
        "message/alice/s1/m-1/3",
        "body/alice/s1/0123abcd/0",
        "close/message/alice/s1/m-1/0",
        "close/body/alice/s1/0123abcd/0",
        "retract/turn/alice/s1/t1/0",
        "forget/alice/s1",
    ],
)
def test_every_form_of_key_can_be_waited_for(key: str) -> None:
    check_target("alice", key)
