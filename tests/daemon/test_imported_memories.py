"""Imported memories in the daemon: answered at once with their source, corrected, taken back, forgotten."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from daemon.asking.answer_types import Source
from daemon.asking.fact_listing import FactShown
from daemon.asking.session_events import SessionEvents, SessionEventsParams
from daemon.asking.structures import FactsParams, Structures
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from daemon.folding import fold_from_nothing
from events.envelope import NewEvent
from events.session import MemoryImported
from projections.digests import digest_memory
from tests.builders import KEYS, ManualClock, a_batch, a_forgetting, a_retraction, a_turn
from tests.daemon.parts_in_use import ALICE, SMALL, Parts, event_types, running, running_forgetter
from tests.waiting import wait_until

NUTS, TEA = "Alice is allergic to nuts.", "Alice likes tea."


def a_memory(content: str, memory_id: str, session_id: str = "import") -> NewEvent:
    turn = a_turn(session_id=session_id, turn_id=memory_id)
    return replace(turn, event=MemoryImported(content, memory_id, metadata='{"from":"mem0"}'))


@pytest.fixture
def structures(parts: Parts) -> Structures:
    return Structures(parts.log, parts.memories)


@pytest.fixture
def corrections(parts: Parts, structures: Structures, clock: ManualClock) -> Corrections:
    return Corrections(parts.log, parts.memories, parts.worker, structures, clock)


async def known(structures: Structures) -> dict[str, FactShown]:
    return {fact.text: fact for fact in (await structures.facts(FactsParams(user_id="alice", limit=1000))).facts}


async def check_fold(parts: Parts) -> None:
    """The live Memory is what a fold from nothing gives."""
    live = digest_memory(await parts.memory())

    assert digest_memory(await fold_from_nothing(parts.log, ALICE, SMALL)) == live


async def test_a_memory_is_answered_at_once_with_its_source(parts: Parts, structures: Structures) -> None:
    await parts.log.append(a_batch(a_memory(NUTS, "x-1"), a_memory(TEA, "x-2")))
    (best, *_) = (await parts.ask("What is Alice allergic to?")).memories
    facts = await known(structures)

    assert (best.kind, best.text, best.sessions) == ("fact", NUTS, ["import"])
    assert [(source.session_id, source.turn_id) for source in best.sources] == [("import", "x-1")]
    assert (best.said_at, best.time_start, best.time_end) == ("2024-07-01T09:00:00Z",) * 3
    assert facts[NUTS].sources == [Source("import", "x-1")]
    assert parts.model.waiting() == []


async def test_a_memory_is_among_the_events_of_its_session(parts: Parts) -> None:
    await parts.log.append(a_batch(a_memory(NUTS, "x-1")))
    page = await SessionEvents(parts.log).events(SessionEventsParams(user_id="alice", session_id="import"))
    (event,) = page.events

    assert (event.type, event.text, event.what["characters"]) == ("memory.imported", NUTS, len(NUTS))


async def test_people_correct_pin_and_retract_what_was_imported(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await parts.log.append(a_batch(a_memory(NUTS, "x-1"), a_memory(TEA, "x-2")))
        nuts, tea = (await known(structures))[NUTS], (await known(structures))[TEA]
        change = CorrectParams(user_id="alice", fact_id=nuts.id, text="Alice is allergic to milk.")
        corrected = await corrections.correct(change)
        pinned = await corrections.pin(PinParams(user_id="alice", fact_id=tea.id))
        assert corrected.fact is not None
        await corrections.retract(FactParams(user_id="alice", fact_id=corrected.fact.id))
        await parts.until_done()

    assert corrected.fact.sources == [Source("import", "x-1")]
    assert corrected.fact.entities == ["alice"]
    assert pinned.fact is not None
    assert pinned.fact.pinned
    assert list(await known(structures)) == [TEA]
    await check_fold(parts)


async def test_what_a_person_retracted_stays_away_when_it_is_imported_again(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await parts.log.append(a_batch(a_memory(NUTS, "x-1"), a_memory(TEA, "x-2")))
        fact = (await known(structures))[NUTS]
        await corrections.retract(FactParams(user_id="alice", fact_id=fact.id))
        await parts.log.append(a_batch(a_memory(NUTS, "x-3")))

    assert list(await known(structures)) == [TEA]


async def test_taking_it_back_takes_the_correction_along(
    parts: Parts, structures: Structures, corrections: Corrections
) -> None:
    async with running(parts):
        await parts.log.append(a_batch(a_memory(NUTS, "x-1"), a_memory(TEA, "x-2")))
        fact = (await known(structures))[NUTS]
        await corrections.correct(
            CorrectParams(user_id="alice", fact_id=fact.id, text="Alice is allergic to milk.")
        )
        await parts.log.append(a_batch(a_retraction("x-1", "import")))
        await wait_until(
            lambda: all(
                each.user_seq == parts.log.head and not each.needs_rebuild
                for each in parts.memories.loaded().values()
            )
        )
        shown = await known(structures)
        texts = await parts.texts("What is Alice allergic to?")

    assert list(shown) == texts == [TEA]
    await check_fold(parts)


async def test_forgetting_its_session_counts_it_and_leaves_nothing(parts: Parts, structures: Structures) -> None:
    await parts.log.append(a_batch(a_memory(NUTS, "x-1"), a_turn("I like tea.", session_id="s2")))
    async with running_forgetter(parts):
        receipt = await parts.forgetter.forget("alice", "import")

    assert (receipt.events_voided, receipt.voided) == (1, {"memory.imported": 1})
    assert await parts.texts("What is Alice allergic to?") == ["Alice: I like tea."]
    assert await event_types(parts.log, KEYS.user("alice")) == [
        *("memory.imported", "turn.recorded", "session.forgotten", "session.erased"),
    ]


async def test_a_random_history_of_memories_and_turns_leaves_what_the_simplest_model_says(
    parts: Parts, structures: Structures
) -> None:
    """Live and folded from nothing: the texts that were imported and neither taken back nor forgotten."""
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    dice = random.Random(seed)
    standing: dict[tuple[str, str], str] = {}
    gone: set[tuple[str, str]] = set()
    forgotten: set[str] = set()
    for number in range(150):
        session = f"s{dice.randrange(6)}"
        what = dice.choices(["import", "say", "retract", "forget", "close", "look"], [10, 4, 3, 0.3, 1, 1])[0]
        memory_id = f"x-{dice.randrange(12)}"
        place = (session, memory_id)
        if what == "import":
            # Said in other words of the same few names, so that facts are shared and entities become active.
            text = f"{dice.choice(['Alice', 'Bob Ross'])} met Rex on day {dice.randrange(8)}."
            await parts.log.append(a_batch(a_memory(text, memory_id, session)))
            if session not in forgotten and place not in gone:
                standing.setdefault(place, text)
        elif what == "say":
            await parts.say(f"Rex is here, {number}.", session_id=session)
        elif what == "retract":
            await parts.log.append(a_batch(a_retraction(memory_id, session)))
            gone |= {place} if session not in forgotten else set()
            standing.pop(place, None)
        elif what == "forget":
            await parts.log.append(a_batch(a_forgetting(session)))
            forgotten.add(session)
            standing = {each: text for each, text in standing.items() if each[0] != session}
        elif what == "close":
            await parts.close(session)
        else:
            await parts.memory()

    await parts.memory()

    assert set(await known(structures)) == set(standing.values())
    await check_fold(parts)
