"""A model that has the last word of what is nearly the same: what it is asked, when, and what becomes of it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from daemon.building.deciding import DecidingParameters
from daemon.ledger_totals import LedgerTotals
from daemon.parked import Parked, ParkedListParams
from events.decisions import PairsJudged, PairVerdict
from events.log import EventLog
from events.memory import ExtractedFact, FactRole, Mention, ParkReason, StateOf, Task, Usage
from events.reading import read_user
from events.session import MemoryImported
from projections.ports import AnswerUnusable, ModelUnavailable, PairText
from tests.builders import MONDAY, ManualClock, a_batch, a_turn
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.scripted_models import Call, ScriptedModel
from tests.waiting import wait_until

DRIVES = "Today Ann drives her big old red car to the nice green lake."
AGAIN = "Today Ann drives her big old red car to a nice green lake."


@pytest.fixture
def judged(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock, model=ScriptedModel(), deciding=DecidingParameters(judged=True))


def judgements(parts: Parts) -> list[tuple[PairText, ...]]:
    """The pairs of each judgement that was asked for."""
    asked = [call.question for call in parts.model.calls if call.task is Task.JUDGE]
    return [
        tuple(pair for pair in each if isinstance(pair, PairText)) for each in asked if isinstance(each, tuple)
    ]


def is_out(parts: Parts) -> list[Call]:
    return [call for call in parts.model.waiting() if call.task is Task.JUDGE]


async def until_decided(parts: Parts) -> None:
    """All that was said is in facts; trees may wait for more."""

    def is_decided() -> bool:
        memories = parts.memories.loaded().values()
        return (
            not parts.worker.in_flight
            and sum(memory.user_seq for memory in memories) == parts.log.head
            and not any(
                memory.waiting_chunks or memory.canon.waiting or memory.placement.scenes.unrouted
                for memory in memories
            )
        )

    await wait_until(is_decided)


async def until_judging(parts: Parts) -> None:
    """The chunk that was just said is read, and the judge is asked; the model is held."""
    await wait_until(lambda: bool(parts.model.waiting()))
    parts.model.waiting()[0].answer()
    await wait_until(lambda: bool(is_out(parts)))


async def say_both(parts: Parts) -> None:
    """Two sessions that say nearly the same."""
    await parts.say(DRIVES, "Well.", session_id="s1")
    await until_decided(parts)
    await parts.say(AGAIN, "Good.", session_id="s2")


async def texts_of_facts(parts: Parts) -> list[int]:
    """How many readings each fact about the car has."""
    memory = await parts.memory()
    return sorted(len(fact.occurrences) for fact in memory.canon.facts.values() if "ann" in fact.labels)


async def test_a_pair_is_asked_about_once_and_the_verdict_is_recorded_and_counted(judged: Parts) -> None:
    judged.model.usage = Usage(calls=1, prompt_tokens=70)
    async with running(judged):
        await say_both(judged)
        await until_decided(judged)
        facts = await texts_of_facts(judged)
    ((pair,),) = judgements(judged)
    events = [each.event for each in await judged.log.read(lambda db: read_user(db, ALICE, limit=100))]
    (recorded,) = [each for each in events if isinstance(each, PairsJudged)]
    totals = await LedgerTotals(judged.log, judged.clock).read()

    assert (pair.earlier.text, pair.later.text) == (DRIVES, AGAIN)
    assert [each.verdict for each in recorded.pairs] == [PairVerdict.SAME]
    assert facts == [2]
    assert totals.in_all[Task.JUDGE] == Usage(calls=1, prompt_tokens=70)


async def test_what_is_nearly_the_same_waits_for_the_verdict_and_all_else_for_nothing(judged: Parts) -> None:
    async with running(judged):
        await judged.say(DRIVES, "Well.", session_id="s1")
        await until_decided(judged)
        judged.model.held = True
        await judged.say(AGAIN, "Bob swims.", session_id="s2")
        await until_judging(judged)
        memory = await judged.memory()
        known = [fact.labels for fact in memory.canon.facts.values()]
        waiting = [each.mentions for each in memory.canon.waiting.values()]
        judged.model.queue.append("different")
        judged.model.release()
        await until_decided(judged)

        assert any("bob" in labels for labels in known)
        assert len(waiting) == 1
        assert await texts_of_facts(judged) == [1, 1]


async def test_a_judgement_that_is_parked_leaves_it_to_the_rule(judged: Parts) -> None:
    async with running(judged):
        await judged.say(DRIVES, "Well.", session_id="s1")
        await until_decided(judged)
        judged.model.held = True
        await judged.say(AGAIN, "Good.", session_id="s2")
        await until_judging(judged)
        is_out(judged)[0].fail(AnswerUnusable(ParkReason.REFUSED))
        judged.model.release()
        await until_decided(judged)
        facts = await texts_of_facts(judged)
    page = await Parked(judged.log, judged.clock).list(ParkedListParams())

    assert facts == [2]
    assert [(each.task, each.reason) for each in page.parked] == [("judge", "refused")]


async def test_what_is_found_while_a_judgement_is_out_is_asked_together_after_it(judged: Parts) -> None:
    async with running(judged):
        await judged.say(*(DRIVES.replace("Ann", name) for name in ("Ann", "Bob", "Cid", "Dan")), session_id="s1")
        await until_decided(judged)
        judged.model.held = True
        await judged.say(AGAIN, "Good.", session_id="s2")
        await until_judging(judged)
        await judged.say(*(AGAIN.replace("Ann", name) for name in ("Bob", "Cid", "Dan")), "Good.", session_id="s2")
        for _ in range(2):
            await wait_until(lambda: any(call.task is Task.EXTRACT for call in judged.model.waiting()))
            next(call for call in judged.model.waiting() if call.task is Task.EXTRACT).answer()
        await wait_until(lambda: len(judged.worker.deciding.judging.found(ALICE)) == 4)
        out = len(is_out(judged))
        judged.model.release()
        await until_decided(judged)

    assert out == 1
    assert [len(pairs) for pairs in judgements(judged)] == [1, 3]


async def test_without_a_judge_no_pair_is_asked_about(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        await say_both(parts)
        await until_decided(parts)
        facts = await texts_of_facts(parts)

    assert judgements(parts) == []
    assert facts == [2]


async def test_a_verdict_that_was_paid_for_is_not_asked_for_again(judged: Parts) -> None:
    async with running(judged):
        await say_both(judged)
        await until_decided(judged)
    later = build_parts(judged.log, judged.clock, model=ScriptedModel(), deciding=DecidingParameters(judged=True))
    async with running(later):
        await until_decided(later)
        facts = await texts_of_facts(later)

    assert judgements(later) == []
    assert facts == [2]


async def test_an_imported_memory_is_the_fact_that_says_nearly_the_same(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        await parts.say("with her big old red car Ann drives to the nice green lake.", "Well.", session_id="s1")
        await until_decided(parts)
        told = MemoryImported("with her big old red car Ann drives to a nice green lake.", "x-1")
        await log.append(a_batch(replace(a_turn(session_id="import", turn_id="x-1"), event=told)))
        await until_decided(parts)
        facts = await texts_of_facts(parts)

    assert facts == [2]


def a_state(text: str, day: int) -> ExtractedFact:
    at = MONDAY + day * 86_400_000
    return ExtractedFact(text, (0,), at, at, FactRole.STATE, (Mention("Alice"),), state=StateOf("Alice", "job"))


BEFORE, AFTER = a_state("Alice is a senior engineer.", 0), a_state("Alice is an engineer for bridges.", 3)


async def until_judged(parts: Parts) -> dict[str, str]:
    """Which state ended by which, as soon as one did, by their days."""
    await wait_until(lambda: ALICE in parts.memories.loaded())
    await wait_until(lambda: bool(parts.memories.loaded()[ALICE].placement.validity.superseded))
    facts = (await parts.memory()).canon.facts
    superseded = parts.memories.loaded()[ALICE].placement.validity.superseded
    days = {fact: str((each.first.time_start - MONDAY) // 86_400_000) for fact, each in facts.items()}
    return {days[fact]: days[each.by] for fact, each in superseded.items() if each.by is not None}


async def test_an_unclear_state_is_asked_about_and_nothing_waits_for_it(judged: Parts) -> None:
    judged.model.queue += [(BEFORE, AFTER), "supersedes"]
    judged.model.held = True
    async with running(judged):
        await judged.say("Hello.", "Well.")
        await until_judging(judged)
        known = len((await judged.memory()).canon.facts)
        judged.model.release()
        ended = await until_judged(judged)

    assert known == 2
    assert ended == {"0": "3"}
    assert [len(pairs) for pairs in judgements(judged)] == [1]


@pytest.mark.parametrize("kept", [True, False], ids=["from a snapshot", "folded anew"])
async def test_an_unclear_state_that_was_not_judged_when_the_daemon_stopped_is_asked_about_again(
    judged: Parts, *, kept: bool
) -> None:
    judged.model.queue += [(BEFORE, AFTER)]
    judged.model.held = True
    async with running(judged):
        await judged.say("Hello.", "Well.")
        await until_judging(judged)
    later = build_parts(judged.log, judged.clock, model=ScriptedModel(), deciding=DecidingParameters(judged=True))
    later.model.queue.append("supersedes")
    if kept:  # it says of no state that something of it is to be planned
        (await later.memory()).placement.validity.touched.clear()
    async with running(later):
        ended = await until_judged(later)

    assert ended == {"0": "3"}
    assert [len(pairs) for pairs in judgements(later)] == [1]


async def until_judge_is_asked(parts: Parts, *contents: str) -> None:
    """Say something, have it extracted by the rule, and leave the question to the judge open."""
    parts.model.held = True
    await parts.say(*contents, session_id="s2")
    await wait_until(lambda: bool(parts.model.waiting()))
    parts.model.waiting()[0].answer()
    await wait_until(lambda: bool(is_out(parts)))


@pytest.mark.parametrize("verdict", ["supersedes", "contradicts", "different"])
async def test_of_what_happened_no_verdict_makes_one_end_the_other(judged: Parts, verdict: str) -> None:
    async with running(judged):
        await judged.say(DRIVES, "Well.", session_id="s1")
        await until_decided(judged)
        await until_judge_is_asked(judged, AGAIN, "Good.")
        judged.model.queue.append(verdict)
        judged.model.release()
        await until_decided(judged)
        facts, memory = await texts_of_facts(judged), await judged.memory()

    assert facts == [1, 1]
    assert memory.placement.validity.superseded == {}


async def test_while_the_judge_is_away_what_waits_for_it_is_pending_and_is_judged_when_it_is_back(
    judged: Parts,
) -> None:
    async with running(judged):
        await judged.say(DRIVES, "Well.", session_id="s1")
        await until_decided(judged)
        await until_judge_is_asked(judged, AGAIN, "Bob swims.")
        judged.model.queue += [ModelUnavailable("It is away.", 0.05) for _ in range(5)]
        judged.model.release()
        await wait_until(lambda: len(judgements(judged)) > 1)
        memory = await judged.memory()
        waiting, pending = len(memory.canon.waiting), memory.pending() - memory.forest.dirty_count()
        await until_decided(judged)
        facts = await texts_of_facts(judged)
    page = await Parked(judged.log, judged.clock).list(ParkedListParams())

    assert (waiting, pending) == (1, 1)
    assert facts == [2]
    assert page.parked == []
