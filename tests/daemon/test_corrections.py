"""Correcting, retracting and pinning facts: what callers are told, what is recorded, and how long it holds."""

from __future__ import annotations

from pathlib import Path

import anyio
import pytest

from daemon.asking.answer_types import Source
from daemon.asking.fact_listing import FactShown
from daemon.asking.structures import FactsParams, Structures
from daemon.building.correction_plans import FactUnknown
from daemon.building.corrections import (
    TEXT_CHARACTERS_MAX,
    Corrections,
    CorrectParams,
    FactParams,
    FactSettled,
    PinParams,
)
from daemon.building.live_nodes import copy_standing, live_nodes
from daemon.building.replaying import Replaying, ReplayParams
from daemon.erasure.receipts import UserUnknown
from daemon.folding import fold_from_nothing
from daemon.memories import Memories
from events.errors import InvalidInput
from events.memory import FactCorrected, FactPinned, FactRetracted
from events.reading import read_user
from projections.digests import digest_memory
from tests.builders import KEYS, ManualClock
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, event_types, running
from tests.stored import stored_bytes
from tests.waiting import wait_until

BOSTON, MIAMI = "She lives in Boston.", "She lives in Miami."


@pytest.fixture
def structures(parts: Parts) -> Structures:
    return Structures(parts.log, parts.memories)


@pytest.fixture
def corrections(parts: Parts, structures: Structures, clock: ManualClock) -> Corrections:
    return Corrections(parts.log, parts.memories, parts.worker, structures, clock)


async def learn(parts: Parts, *contents: str, session_id: str = "s1") -> None:
    """Turns whose sentences are extracted, admitted and summarised."""
    async with running(parts):
        await parts.say(*contents, session_id=session_id)
        await parts.close(session_id)
        await parts.until_done()


async def known(structures: Structures) -> dict[str, FactShown]:
    """All facts by their texts."""
    page = await structures.facts(FactsParams(user_id="alice"))
    return {fact.text: fact for fact in page.facts}


async def correct(corrections: Corrections, fact: FactShown, text: str | None = None, **times: str) -> FactShown:
    settled = await corrections.correct(CorrectParams(user_id="alice", fact_id=fact.id, text=text, **times))
    assert settled.replaces == fact.id
    assert settled.fact is not None
    return settled.fact


def about(fact: FactShown) -> FactParams:
    return FactParams(user_id="alice", fact_id=fact.id)


async def check_fold(parts: Parts) -> None:
    """The live Memory is what a fold from nothing gives."""
    live = digest_memory(await parts.memory())

    assert digest_memory(await fold_from_nothing(parts.log, ALICE, SMALL)) == live


async def test_a_fact_is_shown_by_its_id(parts: Parts, structures: Structures, corrections: Corrections) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]

    assert await corrections.get(about(fact)) == fact
    assert not fact.pinned


@pytest.mark.parametrize("fact_id", ["00" * 16, "", "no hex"])
async def test_a_fact_that_nobody_knows_is_not_found(parts: Parts, corrections: Corrections, fact_id: str) -> None:
    await learn(parts, BOSTON)
    one = FactParams(user_id="alice", fact_id=fact_id)

    with pytest.raises(FactUnknown):
        await corrections.get(one)
    with pytest.raises(FactUnknown):
        await corrections.retract(one)
    with pytest.raises(FactUnknown):
        await corrections.correct(CorrectParams(user_id="alice", fact_id=fact_id, text="x"))
    with pytest.raises(FactUnknown):
        await corrections.pin(PinParams(user_id="alice", fact_id=fact_id))
    with pytest.raises(UserUnknown):
        await corrections.get(FactParams(user_id="bob", fact_id=fact_id))


async def test_a_retracted_fact_is_in_no_list_and_no_answer_and_its_turn_is(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON, "She has a cat.")
    fact = (await known(structures))[BOSTON]
    settled = await corrections.retract(about(fact))

    assert settled == FactSettled(None, fact.id)
    assert list(await known(structures)) == ["She has a cat."]
    assert [memory.kind for memory in (await parts.ask("Boston")).memories] == ["chunk"]
    with pytest.raises(FactUnknown):
        await corrections.get(about(fact))
    await check_fold(parts)


async def test_it_stays_away_when_the_session_is_extracted_again(
    parts: Parts, structures: Structures, corrections: Corrections, clock: ManualClock
) -> None:
    await learn(parts, BOSTON, "She has a cat.")
    await corrections.retract(about((await known(structures))[BOSTON]))
    replaying = Replaying(parts.log, parts.memories, parts.model, clock)
    parts.model.prompts += 1
    async with running(parts):
        await replaying.replay(ReplayParams(user_id="alice", session_id="s1"))
        await wait_until(lambda: len(parts.model.calls) >= 2)
        await parts.until_done()

    assert list(await known(structures)) == ["She has a cat."]
    assert "session.replayed" in await event_types(parts.log, ALICE)
    await check_fold(parts)


async def test_a_correction_answers_at_once_with_the_sources_of_what_it_replaces(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON, session_id="s1")
    await learn(parts, "He is old.", session_id="s2")
    fact = (await known(structures))[BOSTON]
    corrected = await correct(corrections, fact, MIAMI)

    assert (corrected.text, corrected.sources) == (MIAMI, [Source("s1", "t1")])
    assert (corrected.said_at, corrected.time_start) == (fact.said_at, fact.time_start)
    assert corrected.id != fact.id
    assert (await known(structures)).keys() == {MIAMI, "He is old."}
    assert MIAMI in await parts.texts("Miami")
    answer = await parts.ask("Boston", k=2)
    assert [memory.kind for memory in answer.memories] == ["fact", "chunk"], "before the turn that says otherwise"
    assert answer.memories[0].text == MIAMI
    await check_fold(parts)


async def test_what_is_read_in_two_sessions_is_corrected_in_both(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, "On day 3 she came.", session_id="s1")
    await learn(parts, "On day 3 she came.", session_id="s2")
    await correct(corrections, (await known(structures))["On day 3 she came."], "On day 3 she left.")
    recorded = await parts.log.read(lambda db: read_user(db, ALICE, limit=1_000))
    written = [each for each in recorded if isinstance(each.event, FactCorrected)]

    assert [each.session_id for each in written] == ["s1", "s2"]
    assert [each.lineage for each in written] == [(KEYS.session("alice", name),) for name in ("s1", "s2")]
    async with running(parts):
        await parts.forgetter.forget("alice", "s1")
        await parts.until_done()
    (left,) = (await known(structures)).values()
    assert (left.text, left.sessions) == ("On day 3 she left.", ["s2"])
    await check_fold(parts)


async def test_times_alone_can_be_corrected(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    moment = await correct(corrections, fact, time_start="2020-05-01T02:00:00+02:00")
    longer = await correct(corrections, moment, time_end="2021-05-01T00:00:00Z")

    assert (moment.text, moment.time_start, moment.time_end) == (BOSTON, *["2020-05-01T00:00:00Z"] * 2)
    assert (longer.time_start, longer.time_end) == ("2020-05-01T00:00:00Z", "2021-05-01T00:00:00Z")
    assert len(await known(structures)) == 1


@pytest.mark.parametrize(
    "change",
    [
        {},
        {"text": " \n"},
        {"text": "x" * (TEXT_CHARACTERS_MAX + 1)},
        {"text": "half a pair \ud800"},
        {"time_start": "yesterday"},
        {"time_start": "2020-05-01T00:00:00"},
        {"time_start": "2020-05-02T00:00:00Z", "time_end": "2020-05-01T00:00:00Z"},
        {"time_end": "1999-05-01T00:00:00Z"},
    ],
)
async def test_what_cannot_be_so_is_refused_and_changes_nothing(
    parts: Parts, structures: Structures, corrections: Corrections, change: dict[str, str]
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    head = parts.log.head

    with pytest.raises(InvalidInput) as raised:
        await corrections.correct(CorrectParams(user_id="alice", fact_id=fact.id, **change))
    assert "xxx" not in str(raised.value)
    assert parts.log.head == head
    assert await corrections.get(about(fact)) == fact


async def test_a_correction_that_changes_nothing_records_nothing(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    head = parts.log.head

    assert await correct(corrections, fact, f" {BOSTON} ") == fact
    assert parts.log.head == head


async def test_names_that_left_the_text_are_dropped_and_known_ones_that_came_are_taken(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON, "He came from Miami.", "She met Zoe at Harvard.")
    corrected = await correct(corrections, (await known(structures))[BOSTON], "She lives in Miami near Harvard.")

    assert corrected.entities == ["harvard", "miami", "she"]


async def test_a_correction_goes_with_its_session_and_leaves_no_word(
    parts: Parts, structures: Structures, corrections: Corrections, log_path: Path
) -> None:
    await learn(parts, BOSTON, session_id="s1")
    await learn(parts, "He is old.", session_id="s2")
    await correct(corrections, (await known(structures))[BOSTON], "She lives in Zanzibar.")
    async with running(parts):
        assert b"Zanzibar" in stored_bytes(log_path)
        await parts.forgetter.forget("alice", "s1")
        await parts.until_done()

        assert b"Zanzibar" not in stored_bytes(log_path)
    assert list(await known(structures)) == ["He is old."]
    await check_fold(parts)


async def test_a_pinned_fact_is_shown_as_such_and_stays_out_of_groups(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, *(f"thing {number} is here." for number in range(20)))
    await parts.compactor.compact(ALICE, 0.5)
    memory = await parts.memory()
    grouped = next(fact for fact in (await known(structures)).values() if fact.group is not None)
    settled = await corrections.pin(PinParams(user_id="alice", fact_id=grouped.id))

    assert settled.fact is not None
    assert (settled.fact.pinned, settled.fact.group, settled.fact.id) == (True, None, grouped.id)
    assert await corrections.get(about(grouped)) == settled.fact
    await parts.compactor.compact(ALICE, 0.7)
    assert not (await corrections.get(about(grouped))).group
    result = await parts.compactor.compact(ALICE, 0.7)
    assert result.nodes_after == len(live_nodes(copy_standing(memory)))
    await check_fold(parts)


async def test_pinning_twice_records_one_pin_and_letting_go_undoes_it(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    pin, unpin = (PinParams(user_id="alice", fact_id=fact.id, pinned=pinned) for pinned in (True, False))
    once = await corrections.pin(pin)
    assert await corrections.pin(pin) == once
    settled = await corrections.pin(unpin)
    assert await corrections.pin(unpin) == settled

    assert settled == FactSettled(fact, fact.id)
    assert (await event_types(parts.log, ALICE)).count("fact.pinned") == 2
    await check_fold(parts)


async def test_a_fact_that_was_extracted_again_and_is_let_go_stands_on_the_new_extraction(
    parts: Parts, structures: Structures, corrections: Corrections, clock: ManualClock
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    await corrections.pin(PinParams(user_id="alice", fact_id=fact.id))
    replaying = Replaying(parts.log, parts.memories, parts.model, clock)
    parts.model.prompts += 1
    async with running(parts):
        await replaying.replay(ReplayParams(user_id="alice", session_id="s1"))
        await wait_until(lambda: len(parts.model.calls) >= 2)
        await parts.until_done()
    assert (await corrections.get(about(fact))).pinned
    settled = await corrections.pin(PinParams(user_id="alice", fact_id=fact.id, pinned=False))

    assert settled.fact is not None
    assert (settled.fact.text, settled.fact.pinned, settled.fact.id == fact.id) == (BOSTON, False, False)
    assert not (await parts.memory()).canon.waiting
    await check_fold(parts)


async def test_a_pinned_fact_that_is_corrected_stays_pinned(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    await corrections.pin(PinParams(user_id="alice", fact_id=fact.id))
    corrected = await correct(corrections, fact, MIAMI)

    assert corrected.pinned
    assert list(await known(structures)) == [MIAMI]
    await check_fold(parts)


async def test_corrections_hold_in_another_run_of_the_daemon(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON, "She has a cat.", "She is old.")
    facts = await known(structures)
    await correct(corrections, facts[BOSTON], MIAMI)
    await corrections.retract(about(facts["She has a cat."]))
    await corrections.pin(PinParams(user_id="alice", fact_id=facts["She is old."].id))
    before = await known(structures)
    memories = Memories(parts.log, SMALL, parts.reported)

    assert await known(Structures(parts.log, memories)) == before


async def test_of_two_people_who_correct_a_fact_at_once_the_second_does_not_find_it(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, BOSTON)
    fact = (await known(structures))[BOSTON]
    outcomes: list[str] = []

    async def say(text: str) -> None:
        try:
            await correct(corrections, fact, text)
            outcomes.append("corrected")
        except FactUnknown:
            outcomes.append("not found")

    async with anyio.create_task_group() as people:
        people.start_soon(say, MIAMI)
        people.start_soon(say, "She lives in Davis.")

    assert sorted(outcomes) == ["corrected", "not found"]
    assert len(await known(structures)) == 1


async def test_corrections_go_through_while_other_facts_are_extracted_and_admitted(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, *(f"thing {number} is here." for number in range(6)))
    facts = list((await known(structures)).values())
    async with running(parts):
        async with anyio.create_task_group() as both:
            both.start_soon(parts.say, *(f"other {number} is there." for number in range(12)))
            for fact in facts:
                both.start_soon(corrections.retract, about(fact))
        await parts.close()
        await parts.until_done()

    assert (await known(structures)).keys() == {f"other {number} is there." for number in range(12)}
    await check_fold(parts)


async def test_each_event_names_the_turns_of_one_reading(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    await learn(parts, "Nothing.", BOSTON)
    fact = (await known(structures))[BOSTON]
    await corrections.pin(PinParams(user_id="alice", fact_id=fact.id))
    await corrections.retract(about(fact))
    recorded = await parts.log.read(lambda db: read_user(db, ALICE, limit=1_000))
    pinned, retracted = recorded[-2:]

    assert isinstance(pinned.event, FactPinned)
    assert isinstance(retracted.event, FactRetracted)
    assert (pinned.event.turns, pinned.event.says.turns, pinned.event.says.text) == ((2,), (0,), BOSTON)
    assert (retracted.event.turns, retracted.event.was.text) == ((2,), BOSTON)
    assert [each.basis for each in (pinned, retracted)] == [each.user_seq - 1 for each in (pinned, retracted)]
