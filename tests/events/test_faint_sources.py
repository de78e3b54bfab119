"""What a person says of a fact holds words of turns that it does not rest on: it goes with their words only."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from events.envelope import NewEvent
from events.erasure import erase_retracted, settle_retracted, truncate_wal
from events.gate import Verdict
from events.log import EventLog
from events.memory import ExtractedFact, FactCorrected, FactPinned, FactRetracted
from events.withdrawal import read_voids
from tests.builders import KEYS, MONDAY, a_batch, a_closing, a_retraction, a_revision, a_turn, an_extraction, an_id
from tests.stored import stored_bytes, stored_rows

ALICE = KEYS.user("alice")
MARKER = b"zqx"
CONTEXT, UNREAD, TURN, EXTRACTION, CORRECTION = 1, 2, 3, 4, 5
SAYS = ExtractedFact("Alice broke the zqx.", (0,), MONDAY, MONDAY)

CORRECTIONS = pytest.mark.parametrize(
    "event",
    [
        FactRetracted(an_id("fact"), (TURN,), (CONTEXT, TURN), SAYS),
        FactCorrected(an_id("fact"), (TURN,), (CONTEXT, TURN), SAYS, SAYS),
        FactPinned(an_id("fact"), True, None, (TURN,), (CONTEXT, TURN), SAYS),
    ],
    ids=["retracted", "corrected", "pinned"],
)


def a_correction(event: FactRetracted | FactCorrected | FactPinned) -> NewEvent:
    return replace(a_closing(), event=event, key="correct/1", basis=EXTRACTION, time_assigned=True)


async def read_with_context(log: EventLog) -> None:
    """A fact that the turn t3 supports and whose text names what t1 said."""
    await log.append(
        a_batch(
            a_turn("My zqx is blue.", turn_id="t1"), a_turn("Hm.", turn_id="t2"), a_turn("It broke.", turn_id="t3")
        )
    )
    await log.append_event(an_extraction((TURN,), (SAYS.text,), context=(CONTEXT,), basis=3))


async def fallen(log: EventLog) -> set[int]:
    return set(await log.read(partial(read_voids, user=ALICE)))


@CORRECTIONS
async def test_it_is_erased_with_a_turn_that_was_only_context(
    log: EventLog, log_path: Path, event: FactRetracted | FactCorrected | FactPinned
) -> None:
    await read_with_context(log)
    await log.append_event(a_correction(event))
    await log.append_event(a_retraction("t1"))
    while await log.write(erase_retracted):
        pass
    await log.write(truncate_wal)
    await log.write(settle_retracted)

    assert MARKER not in stored_bytes(log_path)
    assert await fallen(log) == {CONTEXT, EXTRACTION, CORRECTION}


@CORRECTIONS
async def test_it_stands_when_such_a_turn_is_merely_edited(
    log: EventLog, event: FactRetracted | FactCorrected | FactPinned
) -> None:
    await read_with_context(log)
    await log.append_event(a_correction(event))
    await log.append_event(a_revision("My zqx is red.", turn_id="t1"))

    assert await fallen(log) == {CONTEXT, EXTRACTION}


@CORRECTIONS
async def test_it_falls_with_an_edit_of_the_turn_that_it_rests_on(
    log: EventLog, event: FactRetracted | FactCorrected | FactPinned
) -> None:
    await read_with_context(log)
    await log.append_event(a_correction(event))
    await log.append_event(a_revision("It sings.", turn_id="t3"))

    assert await fallen(log) == {TURN, EXTRACTION, CORRECTION}


@CORRECTIONS
@pytest.mark.parametrize(
    ("edit", "verdict"),
    [(a_retraction("t1"), Verdict.REFUSED), (a_retraction("t2"), Verdict.RECORDED)],
    ids=["of what it read", "of another turn"],
)
async def test_one_that_comes_after_the_retraction_leaves_no_word(
    log: EventLog, event: FactRetracted | FactCorrected | FactPinned, edit: NewEvent, verdict: Verdict
) -> None:
    await read_with_context(log)
    await log.append_event(edit)
    outcome = await log.append_event(replace(a_correction(event), basis=5))

    assert outcome.verdict is verdict


@CORRECTIONS
async def test_one_that_comes_after_an_edit_of_what_it_only_read_is_taken(
    log: EventLog, event: FactRetracted | FactCorrected | FactPinned
) -> None:
    await read_with_context(log)
    await log.append_event(a_revision("My zqx is red.", turn_id="t1"))
    outcome = await log.append_event(replace(a_correction(event), basis=5))

    assert outcome.verdict is Verdict.RECORDED


async def test_no_name_in_the_log_spells_a_retraction(log: EventLog, log_path: Path) -> None:
    """Its key names the turn that is to leave no trace."""
    await log.append_event(a_turn("zqx", turn_id="zqx"))
    await log.append_event(a_retraction("zqx"))
    names = stored_rows(log_path, "SELECT text FROM names JOIN events ON reference = key WHERE seq = 2")
    while await log.write(erase_retracted):
        pass
    await log.write(truncate_wal)

    assert names == []
    assert MARKER not in stored_bytes(log_path)


async def test_a_retraction_that_comes_before_its_turn_is_not_spelled_either(
    log: EventLog, log_path: Path
) -> None:
    await log.append_event(a_retraction("zqx"))
    again = await log.append_event(a_retraction("zqx"))

    assert MARKER not in stored_bytes(log_path)
    assert again.verdict is Verdict.DUPLICATE
