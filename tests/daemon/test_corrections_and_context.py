"""Corrections of facts that were read with the chunk before as context: their events name those turns as read."""

from __future__ import annotations

from pathlib import Path

import pytest

from daemon.asking.fact_listing import FactShown
from daemon.asking.structures import FactsParams, Structures
from daemon.building.corrections import Corrections, CorrectParams, FactParams, PinParams
from events.log import EventLog
from events.memory import ExtractedFact, FactCorrected, FactPinned, FactRetracted, FactsExtracted
from events.reading import read_user
from projections.ports import ChunkText, FactsRead
from tests.builders import MONDAY, ManualClock, a_retraction
from tests.daemon.parts_in_use import ALICE, Parts, build_parts, running
from tests.scripted_models import ScriptedModel
from tests.stored import stored_bytes
from tests.waiting import wait_until

BROKE = "Alice broke her xylophon."
CONTEXT = 2
ACTIONS = pytest.mark.parametrize("action", ["retract", "correct", "pin", "unpin"])


class ModelWithContext(ScriptedModel):
    """Reads one fact in a chunk: what the turn before it was about."""

    async def extract_facts(self, chunk: ChunkText) -> FactsRead:
        await super().extract_facts(chunk)
        reads_it = chunk.previous is not None and "xylophon" in chunk.previous.text
        text = BROKE if reads_it else "Alice speaks."
        return FactsRead((ExtractedFact(text, (0,), MONDAY, MONDAY),))


@pytest.fixture
def parts(log: EventLog, clock: ManualClock) -> Parts:
    return build_parts(log, clock, model=ModelWithContext())


async def fact_read_with_context(parts: Parts, structures: Structures) -> FactShown:
    """A fact of one turn that spells what the turn before said, which ends another chunk."""
    await parts.say("Hm.", "My xylophon is blue.", "It broke.", "Oh.")
    await parts.close()
    await parts.until_done()
    facts = (await structures.facts(FactsParams(user_id="alice"))).facts
    assert isinstance(facts, list)
    (found,) = [fact for fact in facts if fact.text == BROKE]
    assert isinstance(found, FactShown)
    return found


async def act(corrections: Corrections, action: str, fact_id: str) -> None:
    match action:
        case "retract":
            await corrections.retract(FactParams(user_id="alice", fact_id=fact_id))
        case "correct":
            await corrections.correct(
                CorrectParams(user_id="alice", fact_id=fact_id, text="Alice sold her xylophon.")
            )
        case _:
            await corrections.pin(PinParams(user_id="alice", fact_id=fact_id))
            if action == "unpin":
                await corrections.pin(PinParams(user_id="alice", fact_id=fact_id, pinned=False))


@ACTIONS
async def test_a_correction_goes_with_the_context_of_its_fact(
    parts: Parts, clock: ManualClock, log_path: Path, action: str
) -> None:
    structures = Structures(parts.log, parts.memories)
    corrections = Corrections(parts.log, parts.memories, parts.worker, structures, clock)
    async with running(parts):
        fact = await fact_read_with_context(parts, structures)
        await act(corrections, action, fact.id)
        recorded = await parts.log.read(lambda db: read_user(db, ALICE, limit=1_000))
        await parts.log.append_event(a_retraction("t2"))
        await wait_until(lambda: bool(parts.reported.fields("forgetting.turns_erased")))
        await parts.until_done()

    extracted = [each.event for each in recorded if isinstance(each.event, FactsExtracted)]
    said = [each.event for each in recorded if isinstance(each.event, FactRetracted | FactCorrected | FactPinned)]
    assert (CONTEXT,) in [each.context for each in extracted], "otherwise this shows nothing"
    assert said
    assert all(CONTEXT in event.read and set(event.turns) < set(event.read) for event in said)
    assert b"xylophon" not in stored_bytes(log_path)


async def test_what_is_said_of_a_correction_read_what_the_correction_read(
    parts: Parts, clock: ManualClock
) -> None:
    structures = Structures(parts.log, parts.memories)
    corrections = Corrections(parts.log, parts.memories, parts.worker, structures, clock)
    async with running(parts):
        fact = await fact_read_with_context(parts, structures)
        settled = await corrections.correct(
            CorrectParams(user_id="alice", fact_id=fact.id, text="Alice sold her xylophon.")
        )
        assert settled.fact is not None
        await corrections.retract(FactParams(user_id="alice", fact_id=settled.fact.id))
        recorded = await parts.log.read(lambda db: read_user(db, ALICE, limit=1_000))

    corrected, retracted = (
        each.event for each in recorded if isinstance(each.event, FactRetracted | FactCorrected)
    )
    assert CONTEXT in corrected.read
    assert retracted.read == corrected.read
