"""Compaction in the background: when it comes, what goes before it, what it leaves alone, what breaks it off."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from daemon.building.deciding import DecidingParameters
from daemon.parked import Parked, ResumeParams
from events.appending import Batch, Outcome
from events.envelope import NewEvent, Reference
from events.eventtree import NodesMerged, Policy, PolicyChanged, UnitsPartitioned
from events.log import EventLog
from events.memory import ExtractedFact, FactRole, ParkReason, Task, WorkParked
from events.reading import read_user
from projections.digests import digest_memory
from projections.eventtree.parameters import EventTreeParameters
from projections.memory import Memory
from projections.ports import ModelFailed, ModelUnavailable
from tests.builders import KEYS, SECRET, ManualClock, seeded_nonces
from tests.daemon.parts_in_use import ALICE, QUICK, Parts, build_parts, merges, running
from tests.daemon.test_deciding import ScriptedComparer
from tests.scripted_models import Question, ScriptedModel
from tests.waiting import wait_until

E = TypeVar("E")
# Few nodes above the target are let be, however few the facts: so many are enough to be compacted.
FACTS = 60
ONLINE = EventTreeParameters()
MONTH_S = 30 * 86_400


class MergesHeld(ScriptedModel):
    """Answers all but merges at once; those are held back until a test lets them go."""

    holds = frozenset((Task.MERGE,))

    async def _receive(self, task: Task, question: Question) -> tuple[ExtractedFact, ...] | str | None:
        self.held = task in self.holds
        return await super()._receive(task, question)

    def release(self) -> None:
        self.holds = frozenset()
        super().release()


class OneFails(ScriptedModel):
    """Fails on the first merge that it is asked for, as often as that comes."""

    fails = True
    _first: Question | None = None

    async def _receive(self, task: Task, question: Question) -> tuple[ExtractedFact, ...] | str | None:
        answer = await super()._receive(task, question)
        if task is Task.MERGE and self.fails:
            self._first = self._first or question
            if question == self._first:
                raise ModelFailed("thing 3")
        return answer


class MeddlingLog(EventLog):
    """Lets somebody else decide something just before the first groups are written."""

    meddle: Callable[[], NewEvent] | None = None

    async def append(self, batch: Batch) -> tuple[Outcome, ...]:
        if self.meddle is not None and any(isinstance(each.event, NodesMerged) for each in batch.events):
            event, self.meddle = self.meddle(), None
            await super().append(Batch(events=(event,)))
        return await super().append(batch)


@pytest.fixture
async def meddling(log_path: Path, clock: ManualClock) -> AsyncIterator[MeddlingLog]:
    log = await MeddlingLog.open(log_path, clock, seeded_nonces(1), SECRET)
    assert isinstance(log, MeddlingLog)
    yield log
    await log.close()


async def learn(parts: Parts, facts: int = FACTS, session_id: str = "s1", first: int = 0) -> None:
    """So many facts of one session, which is over then."""
    things = (f"thing {first + number} of {session_id}." for number in range(facts))
    await parts.say(*things, session_id=session_id)
    await parts.close(session_id)


def is_compacted(parts: Parts) -> bool:
    """Nothing waits, and nothing is to be compacted."""
    return parts.is_done() and parts.worker.count_planned(ALICE) == 0


async def until_compacted(parts: Parts) -> None:
    await wait_until(lambda: is_compacted(parts), message="the compaction does not come to an end")


async def leave_merges_unanswered(parts: Parts, pause_s: float) -> None:
    """The model goes away once merges are all that is asked: an answer after that would say that it is back."""
    merges_max = QUICK.concurrency // 2
    await wait_until(lambda: len(parts.model.waiting()) == len(parts.worker.in_flight) == merges_max)
    for call in parts.model.waiting():
        call.fail(ModelUnavailable("it is away", pause_s))


def live_nodes(memory: Memory) -> int:
    return len(memory.canon.facts) - len(memory.units.group_of) + len(memory.units.groups)


async def recorded(log: EventLog, kind: type[E]) -> list[tuple[tuple[Reference, ...], E]]:
    """The events of a kind, each with its lineage."""
    events = await log.read(lambda db: read_user(db, ALICE, limit=10_000))
    return [(each.lineage, each.event) for each in events if isinstance(each.event, kind)]


def a_policy(policy: Policy, key: str = "policy") -> NewEvent:
    return NewEvent(user_id="alice", session_id=None, event=PolicyChanged(policy), key=key, happened_at=0)


async def texts_of_groups(parts: Parts) -> set[str]:
    return {merged.text for _, merged in await recorded(parts.log, NodesMerged)}


async def test_facts_of_an_ended_session_are_compacted_with_one_call_a_group(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=ONLINE)
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        memory = await parts.memory()
    groups = [len(group.members) for group in memory.units.groups.values()]

    assert set(memory.units.unit_of) == set(memory.canon.facts)
    assert len(memory.canon.facts) == FACTS
    assert live_nodes(memory) <= 30 + 10, "a few above the target are let be"
    assert len(merges(parts)) == len(groups) <= FACTS / 2
    assert max(groups) <= 3
    assert all(group.loss for group in memory.units.groups.values())


async def test_units_are_recorded_as_deltas_one_event_for_the_session_that_a_fact_was_read_in(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=ONLINE)
    async with running(parts):
        for name in ("s1", "s2", "s3"):
            await learn(parts, 30, name)
            await until_compacted(parts)
        memory = await parts.memory()
    partitions = await recorded(log, UnitsPartitioned)
    moved = [(lineage, fact) for lineage, each in partitions for unit in each.units for fact in unit.facts]

    assert {len(lineage) for lineage, _ in partitions} == {1}
    assert all((memory.canon.facts[fact].first.session,) == lineage for lineage, fact in moved)
    assert len(partitions) <= 3 * 3, "not one event a fact"
    assert 90 <= len(moved) <= 2 * 90, "only what moves is told again"


async def test_while_a_session_goes_on_nothing_of_it_is_compacted_until_it_is_quiet(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=ONLINE)
    async with running(parts):
        await parts.say(*(f"thing {number}." for number in range(FACTS)))
        await wait_until(lambda: len(parts.memories.loaded()[ALICE].canon.facts) == FACTS)
        await wait_until(lambda: not parts.worker.in_flight)
        waiting, early = parts.worker.count_planned(ALICE), await recorded(log, UnitsPartitioned)
        clock.advance(31_000)
        await until_compacted(parts)

    assert (waiting, early) == (1, []), "that there is something to do can be seen"
    assert merges(parts)


@pytest.mark.parametrize(
    "parameters", [None, EventTreeParameters(preset="paper"), EventTreeParameters(online=False)]
)
async def test_nothing_is_compacted_where_that_is_off(
    log: EventLog, clock: ManualClock, parameters: EventTreeParameters | None
) -> None:
    parts = build_parts(log, clock, online=parameters)
    async with running(parts):
        await learn(parts, 30)
        await until_compacted(parts)
        memory = await parts.memory()

    assert (memory.units.unit_of, merges(parts)) == ({}, [])


async def test_a_user_may_say_otherwise_and_that_counts_at_once(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, online=EventTreeParameters(online=False))
    async with running(parts):
        await learn(parts)
        await parts.until_done()
        before = parts.worker.count_planned(ALICE)
        await log.append_event(a_policy(Policy(online=True, ratio=300)))
        await wait_until(lambda: parts.worker.count_planned(ALICE) > 0)
        await until_compacted(parts)
        memory = await parts.memory()

    assert before == 0
    assert FACTS * 0.7 <= live_nodes(memory) <= FACTS * 0.7 + 10
    assert max(len(group.members) for group in memory.units.groups.values()) == 2


async def test_no_text_is_embedded_for_a_unit(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedComparer()
    parts = build_parts(log, clock, compared_by=embedder, online=ONLINE)
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
    mine = [text for text in embedder.texts if text.endswith("of s1.")]

    assert len(mine) == len(set(mine)) == FACTS


async def test_without_an_embedder_units_wait_and_nothing_else_does(log: EventLog, clock: ManualClock) -> None:
    embedder = ScriptedComparer(away=True)
    soon = DecidingParameters(failed_pause_s=0.03)
    parts = build_parts(log, clock, compared_by=embedder, deciding=soon, online=ONLINE)
    async with running(parts):
        await learn(parts)
        await wait_until(lambda: len(parts.memories.loaded()[ALICE].canon.facts) == FACTS)
        await wait_until(lambda: not parts.memories.loaded()[ALICE].forest.dirty_count())
        placed = dict((await parts.memory()).units.unit_of)
        embedder.away = False
        await until_compacted(parts)
        memory = await parts.memory()

    assert placed == {}
    assert len(memory.units.unit_of) == FACTS
    assert memory.units.groups


async def test_merges_leave_half_of_the_slots_to_turns_which_are_answered_meanwhile(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE)
    async with running(parts):
        await learn(parts)
        await parts.until_asked(QUICK.concurrency // 2)
        await parts.say("The dog is Rex.", "Rex barks.", session_id="s2")
        await wait_until(lambda: len(parts.memories.loaded()[ALICE].canon.facts) == FACTS + 2)
        asked, pending = len(parts.model.waiting()), (await parts.ask("Rex")).watermark.pending
        parts.model.release()
        await parts.close("s2")
        await until_compacted(parts)

    assert asked == QUICK.concurrency // 2
    assert pending >= asked, "planned groups are pending"


async def test_a_daemon_that_is_never_quiet_compacts_all_the_same_one_group_at_a_time(
    log: EventLog, clock: ManualClock
) -> None:
    quick = replace(QUICK, concurrency=2, refresh_age_s=0.2)
    model = MergesHeld()
    parts = build_parts(log, clock, worker=quick, model=model, online=ONLINE)
    async with running(parts):
        await learn(parts)
        await parts.until_asked(1)
        (merge,) = parts.model.waiting()
        model.holds = frozenset(Task)
        for name in ("bob", "carol"):
            await parts.say(*(f"It is day {number}." for number in range(60)), user_id=name, session_id=name)
        merge.answer()
        await wait_until(lambda: parts.worker.compacting is not None and parts.worker.compacting.is_overdue(ALICE))
        while not any(call.task is Task.MERGE for call in parts.model.waiting()):
            await parts.until_asked(1)
            parts.model.waiting()[0].answer()
        left = len(parts.memories.loaded()[KEYS.user("carol")].waiting_chunks)
        ahead = sum(call.task is Task.MERGE and not call.answered for call in parts.model.calls)

    assert left > 0, "others still wait for their extraction"
    assert ahead == 1


async def test_a_merge_that_is_given_up_is_not_asked_again_until_it_is_resumed(
    log: EventLog, clock: ManualClock
) -> None:
    model = OneFails()
    parts = build_parts(log, clock, model=model, online=ONLINE)
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        ((_, parked),) = await recorded(log, WorkParked)
        asked, groups = len(merges(parts)), len((await parts.memory()).units.groups)
        model.fails = False
        await Parked(log, clock).retry(ResumeParams(user_id="alice"))
        await wait_until(lambda: len(merges(parts)) > asked)
        await until_compacted(parts)
        again = len((await parts.memory()).units.groups)

    assert (parked.task, parked.reason) == (Task.MERGE, ParkReason.MODEL_FAILED)
    assert asked == groups + 3, "three tries, and no more"
    assert (again, len(merges(parts))) == (groups + 1, asked + 1)


async def test_a_stale_decision_is_made_again_without_a_second_call(
    meddling: MeddlingLog, clock: ManualClock
) -> None:
    parts = build_parts(meddling, clock, online=ONLINE)
    meddling.meddle = lambda: a_policy(Policy(min_age_s=0))
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        groups = len((await parts.memory()).units.groups)

    assert meddling.meddle is None
    assert len(merges(parts)) == groups > 0


async def test_what_is_younger_than_the_least_age_is_merged_when_it_is_old_enough(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, online=replace(ONLINE, min_age_s=MONTH_S))
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        early = len(merges(parts))
        clock.advance((MONTH_S + 2 * FACTS * 60) * 1000)
        await wait_until(lambda: len(merges(parts)) > 0)
        await until_compacted(parts)
        memory = await parts.memory()

    assert early == 0
    assert live_nodes(memory) <= 40


async def test_kinds_that_are_never_merged_are_not(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, online=replace(ONLINE, never_merged=tuple(FactRole)))
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)

    assert merges(parts) == []


async def test_a_session_that_is_forgotten_while_its_facts_are_fused_leaves_nothing(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE)
    async with running(parts):
        await learn(parts, 40, "s1")
        await learn(parts, 40, "s2")
        await parts.until_asked(QUICK.concurrency // 2)
        await parts.forgetter.forget("alice", "s2")
        parts.model.release()
        await until_compacted(parts)
        memory = await parts.memory()

    assert len(memory.canon.facts) == 40
    assert set(memory.units.unit_of) == set(memory.canon.facts)
    assert live_nodes(memory) <= 20 + 10
    assert not any("of s2" in text for text in await texts_of_groups(parts) if text)


async def test_whoever_is_compacted_on_demand_is_left_alone(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, online=ONLINE)
    assert parts.worker.compacting is not None
    on_demand = {ALICE}
    parts.worker.compacting.gives_way = on_demand.__contains__
    async with running(parts):
        await learn(parts)
        await until_compacted(parts)
        meanwhile = len(merges(parts))
        on_demand.clear()
        await wait_until(lambda: len(merges(parts)) > 0)
        await until_compacted(parts)

    assert meanwhile == 0


async def test_a_compaction_that_is_broken_off_goes_on_and_ends_as_it_would_have(
    log: EventLog, clock: ManualClock, tmp_path: Path
) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE)
    async with running(parts):
        await learn(parts)
        await parts.until_asked(QUICK.concurrency // 2)
        for call in parts.model.waiting()[:2]:
            call.answer()
        await wait_until(lambda: len(parts.memories.loaded()[ALICE].units.groups) == 2)
    again = build_parts(log, clock, online=ONLINE)
    async with running(again):
        await until_compacted(again)
        digest, groups = digest_memory(await again.memory()), await texts_of_groups(again)
    other = await EventLog.open(tmp_path / "other.db", clock, seeded_nonces(1), SECRET)
    whole = build_parts(other, clock, online=ONLINE)
    async with running(whole):
        await learn(whole)
        await until_compacted(whole)
        expected = await texts_of_groups(whole)
    fresh = build_parts(log, clock)
    folded = digest_memory(await fresh.memory())
    await other.close()

    assert groups == expected
    assert len(merges(again)) == len(expected) - 2, "what was recorded is not paid for again"
    assert folded == digest


async def test_while_the_model_is_away_groups_wait_and_cost_nothing(log: EventLog, clock: ManualClock) -> None:
    parts = build_parts(log, clock, model=MergesHeld(), online=ONLINE)
    async with running(parts):
        await learn(parts)
        await leave_merges_unanswered(parts, 0.3)
        await wait_until(lambda: parts.worker.waiting_for_model > 0)
        waiting = parts.worker.count_planned(ALICE)
        parts.model.release()
        await until_compacted(parts)

    assert waiting >= QUICK.concurrency // 2
    assert parts.worker.waiting_for_model == 0


async def test_a_user_nobody_knows_has_nothing_planned(parts: Parts) -> None:
    assert parts.worker.count_planned(KEYS.user("bob")) == 0
