from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from events.appending import Batch
from events.codec import Event
from events.decisions import FactsRouted, FactsSuperseded, GenerationPromoted, PairsJudged, ScenesMerged
from events.envelope import NewEvent
from events.errors import StaleDecision
from events.eventtree import CompactionUndone, NodesMerged, PolicyChanged, UnitsPartitioned
from events.gate import CHANGES_FACTS, DECISIONS, Verdict
from events.log import EventLog
from events.memory import (
    FactCorrected,
    FactPinned,
    FactRetracted,
    FactsAdmitted,
    FactsExtracted,
    IntervalSummarised,
    Pointer,
)
from events.session import (
    SessionClosed,
    SessionForgotten,
    SessionReplayed,
    TurnRecorded,
    TurnRetracted,
    TurnRevised,
    UserForgotten,
)
from tests.builders import (
    KEYS,
    a_batch,
    a_closed_chunk,
    a_closing,
    a_dead_letter,
    a_forgetting,
    a_merge,
    a_parking,
    a_partition,
    a_place,
    a_summary,
    a_turn,
    an_admission,
    an_extraction,
)
from tests.stored import stored_bytes, stored_rows

MARKER = "an unmistakable sentence 7f3a"


async def verdicts(log: EventLog, *events: NewEvent) -> list[Verdict]:
    return [outcome.verdict for outcome in await log.append(Batch(events))]


def test_decisions_are_those_about_facts_scopes_units_and_generations() -> None:
    about_facts = {FactsAdmitted, FactsSuperseded, FactCorrected, FactRetracted, FactPinned}
    about_scopes_and_units = {FactsRouted, ScenesMerged, UnitsPartitioned, NodesMerged, CompactionUndone}

    assert set(DECISIONS) == about_facts | about_scopes_and_units | {GenerationPromoted, SessionReplayed}
    assert {*DECISIONS, PolicyChanged, TurnRevised, TurnRetracted, SessionForgotten, UserForgotten} <= set(
        CHANGES_FACTS
    )
    assert not {TurnRecorded, FactsExtracted, PairsJudged, IntervalSummarised, SessionClosed} & set(CHANGES_FACTS)


@pytest.mark.parametrize(
    "late",
    [
        an_extraction((1,), (MARKER,), basis=1),
        a_summary(MARKER, basis=1),
        a_summary(MARKER, ("s0", "s1"), basis=1),
        a_parking((1,), basis=1),
        a_closed_chunk(1, basis=1),
    ],
    ids=["extraction", "summary", "summary of two sessions", "parked", "chunk"],
)
async def test_a_late_answer_about_a_forgotten_session_leaves_a_count_and_no_byte(
    log: EventLog, log_path: Path, late: NewEvent
) -> None:
    await log.append(a_batch(a_turn(), a_forgetting()))
    late = replace(late, key=f"{late.key}/{MARKER}")

    for _ in range(2):
        outcome = await log.append_event(late)
        assert (outcome.verdict, outcome.seq, outcome.user_seq) == (Verdict.REFUSED, None, None)

    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(2,)]
    assert stored_rows(log_path, "SELECT * FROM refusals") == [(KEYS.key(late.key), 2)]
    assert MARKER.encode() not in stored_bytes(log_path)
    assert log.head == 2


async def test_an_answer_that_names_a_forgotten_session_is_refused_whatever_it_was_planned_from(
    log: EventLog,
) -> None:
    await log.append(a_batch(a_turn(), a_forgetting()))

    assert await verdicts(log, a_summary(basis=2)) == [Verdict.REFUSED]


async def test_forgetting_one_session_does_not_stop_the_answers_about_another(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_turn(session_id="s2"), a_forgetting("s1")))

    assert await verdicts(log, an_extraction((2,), session_id="s2", basis=0)) == [Verdict.RECORDED]


async def test_forgetting_a_session_leaves_the_session_of_that_name_of_another_user(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_forgetting("s1")))

    assert await verdicts(log, a_turn(user_id="bob")) == [Verdict.RECORDED]


async def test_turns_and_closings_of_a_forgotten_session_are_refused_for_ever(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn(), a_forgetting()))

    late = [a_turn(MARKER, turn_id="t2", bus=a_place(9)), a_closing()]
    assert await verdicts(log, *late) == [Verdict.REFUSED, Verdict.REFUSED]
    assert MARKER.encode() not in stored_bytes(log_path)


async def test_a_session_can_be_forgotten_before_its_first_turn(log: EventLog) -> None:
    assert await verdicts(log, a_forgetting("s9")) == [Verdict.RECORDED]
    assert await verdicts(log, a_turn(session_id="s9")) == [Verdict.REFUSED]


async def test_a_turn_and_the_forgetting_of_its_session_in_one_batch_keep_their_order(log: EventLog) -> None:
    outcomes = await log.append(a_batch(a_turn(), a_forgetting(), a_turn(turn_id="t2")))

    assert [each.verdict for each in outcomes] == [Verdict.RECORDED, Verdict.RECORDED, Verdict.REFUSED]


async def test_a_known_turn_of_a_forgotten_session_is_refused_and_its_message_unwanted(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn(), a_forgetting()))

    outcome = await log.append_event(a_turn(bus=a_place(9)))
    assert (outcome.verdict, outcome.seq) == (Verdict.REFUSED, None)
    assert stored_rows(log_path, "SELECT stream, epoch, seq FROM unwanted") == [("MEMFOREST", "e1", 9)]


async def test_a_conflicting_turn_of_a_forgotten_session_leaves_no_byte(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(a_turn(), a_forgetting()))

    assert await verdicts(log, a_turn(MARKER)) == [Verdict.REFUSED]
    assert stored_rows(log_path, "SELECT type FROM events") == [("turn.recorded",), ("session.forgotten",)]
    assert MARKER.encode() not in stored_bytes(log_path)


async def test_a_dead_letter_of_a_forgotten_session_leaves_the_checkpoint_alone(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_forgetting()))
    await log.append(a_batch(letters=(a_dead_letter(MARKER.encode(), seq=5),), read_to=5))

    assert stored_rows(log_path, "SELECT * FROM dead_letters") == []
    assert await log.read_checkpoint("MEMFOREST") == a_place(5)
    assert MARKER.encode() not in stored_bytes(log_path)


async def test_forgetting_twice_is_one_event_whatever_the_key(log: EventLog, log_path: Path) -> None:
    first = await log.append_event(a_forgetting())
    second = await log.append_event(a_forgetting())
    third = await log.append_event(a_forgetting(key=f"another wish {MARKER}"))

    assert first.verdict is Verdict.RECORDED
    assert second == third == replace(first, verdict=Verdict.DUPLICATE)
    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(1,)]
    assert MARKER.encode() not in stored_bytes(log_path)


# What changes facts, scopes or units, by the user_seq it was planned from; decisions are about session s2.
CHANGES: dict[str, Callable[[int], NewEvent]] = {
    "admission": lambda basis: an_admission(Pointer(2, 0), ("s2",), basis=basis),
    "partition": lambda basis: a_partition(("s2",), basis=basis),
    "merge": lambda basis: a_merge("Alice lives in Miami.", ("s2",), basis=basis),
    "forgetting": lambda _: a_forgetting("s1"),
}


@pytest.mark.parametrize("decide", ["admission", "partition", "merge"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_decision_is_stale_when_facts_scopes_or_units_changed_after_its_basis(
    log: EventLog, log_path: Path, decide: str, change: str
) -> None:
    await log.append(a_batch(a_turn(), a_turn(session_id="s2")))
    await log.append_event(CHANGES[change](2))

    with pytest.raises(StaleDecision):
        await log.append_event(replace(CHANGES[decide](2), key=MARKER))

    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(3,)]
    assert MARKER.encode() not in stored_bytes(log_path)
    assert await verdicts(log, replace(CHANGES[decide](3), key=MARKER)) == [Verdict.RECORDED]


async def test_turns_extractions_and_summaries_make_no_decision_stale(log: EventLog) -> None:
    await log.append(a_batch(a_turn()))
    await log.append(
        a_batch(
            a_turn(turn_id="t2"), an_extraction((1,)), a_summary(), a_parking((2,)), a_closing(), a_closed_chunk(2)
        )
    )

    assert await verdicts(log, an_admission(Pointer(3, 0), basis=1)) == [Verdict.RECORDED]


async def test_decisions_of_one_batch_stand_on_one_basis(log: EventLog) -> None:
    await log.append(a_batch(a_turn()))
    batch = [an_admission(Pointer(1, n), basis=1) for n in range(3)] + [a_partition(basis=1), a_merge(basis=1)]

    assert await verdicts(log, *batch) == [Verdict.RECORDED] * 5
    with pytest.raises(StaleDecision):
        await log.append_event(an_admission(Pointer(1, 9), basis=1))


async def test_one_stale_decision_turns_its_whole_batch_away(log: EventLog, log_path: Path) -> None:
    await log.append(a_batch(a_turn(), an_admission(Pointer(1, 0), basis=1)))
    letter = a_dead_letter(MARKER.encode(), seq=3)

    with pytest.raises(StaleDecision):
        await log.append(a_batch(a_turn(MARKER, turn_id="t2"), a_partition(basis=1), letters=(letter,), read_to=3))
    assert stored_rows(log_path, "SELECT count(*) FROM events") == [(2,)]
    assert await log.read_checkpoint("MEMFOREST") is None
    assert MARKER.encode() not in stored_bytes(log_path)


async def test_the_decisions_of_another_user_make_nothing_stale(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), an_admission(Pointer(1, 0), user_id="bob", basis=0)))

    assert await verdicts(log, an_admission(Pointer(1, 0), basis=1)) == [Verdict.RECORDED]


async def test_the_same_key_with_another_type_is_a_conflict(log: EventLog) -> None:
    """A closing and a forgetting have the same empty body; only their type tells them apart."""
    first: Event = SessionClosed()
    await log.append_event(replace(a_closing(), event=first, key="k"))

    assert await verdicts(log, replace(a_forgetting("s2"), key="k")) == [Verdict.CONFLICTING]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({}, Verdict.DUPLICATE),
        ({"happened_at": 5}, Verdict.CONFLICTING),
        ({"happened_at": 5, "time_assigned": True}, Verdict.DUPLICATE),
        ({"bus": a_place(77)}, Verdict.DUPLICATE),
        ({"event": TurnRecorded("I moved to Miami.", "user", "t1", name="Bob")}, Verdict.CONFLICTING),
        ({"event": TurnRecorded("I moved to Tampa.", "user", "t1", name="Alice")}, Verdict.CONFLICTING),
        ({"event": TurnRecorded("I moved to Miami.", "user", "t1", 1, "Alice")}, Verdict.CONFLICTING),
        # The same words in other fields.
        ({"event": TurnRecorded("user", "I moved to Miami.", "t1", name="Alice")}, Verdict.CONFLICTING),
        ({"event": TurnRecorded("I moved to Miami.", "user", "t1", agent_id="Alice")}, Verdict.CONFLICTING),
    ],
)
async def test_a_known_key_is_a_duplicate_only_with_the_same_content(
    log: EventLog, change: dict[str, object], verdict: Verdict
) -> None:
    await log.append_event(a_turn())

    outcome = await log.append_event(replace(a_turn(), **change))  # type: ignore[arg-type]
    assert (outcome.verdict, outcome.seq, outcome.user_seq) == (verdict, 1, 1)
