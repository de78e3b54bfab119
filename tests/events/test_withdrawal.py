"""Turns that are reworded or taken back: what stands, what falls with them, what waits again, what is refused."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path

import msgspec
import pytest

from events.codec import decode_event, encode_event
from events.envelope import NewEvent
from events.erasure import erase_retracted
from events.errors import StaleDecision
from events.gate import Verdict
from events.hindsight import read_hindsight
from events.log import EventLog
from events.memory import FactsExtracted, Pointer
from events.reading import read_user
from events.registry import SessionSummary, read_session_rows, read_sessions, read_waiting_sessions
from events.session import TurnConflicted, TurnRevised
from events.withdrawal import Void, read_voids
from tests.builders import (
    KEYS,
    a_batch,
    a_forgetting,
    a_merge,
    a_parking,
    a_place,
    a_retraction,
    a_revision,
    a_summary,
    a_turn,
    an_admission,
    an_extraction,
)
from tests.stored import stored_bytes, stored_rows

ALICE, S1 = KEYS.user("alice"), KEYS.session("alice", "s1")
MARKER = "an unmistakable sentence 7f3a"


async def verdicts(log: EventLog, *events: NewEvent) -> list[Verdict]:
    return [(await log.append_event(each)).verdict for each in events]


async def voids(log: EventLog, to_user_seq: int | None = None) -> dict[int, Void]:
    return await log.read(partial(read_voids, user=ALICE, to_user_seq=to_user_seq))


async def rows_to_cut(log: EventLog) -> list[int]:
    return [row.seq for row in await log.read(partial(read_session_rows, session=S1))]


async def waits(log: EventLog) -> bool:
    """Whether s1 has turns that no extraction covers."""
    return any(each.session == S1 for each in await log.read(read_waiting_sessions))


async def summary(log: EventLog) -> SessionSummary:
    (found,) = await log.read(partial(read_sessions, user=ALICE, session=S1))
    return found


def places(path: Path) -> list[tuple[int, int, int | None]]:
    """(place, highest revision, seq of what stands) of every turn."""
    return stored_rows(path, "SELECT seq, revision, standing FROM turns WHERE closing = 0 ORDER BY seq")


async def say_and_extract(log: EventLog, chunks: int) -> None:
    """t1, t2, … two a chunk, each chunk extracted with the turn before it: places 1.., extractions behind them."""
    turns = 2 * chunks
    await log.append(a_batch(*(a_turn(f"turn {n}", turn_id=f"t{n}") for n in range(1, turns + 1))))
    for first in range(1, turns, 2):
        context = () if first == 1 else (first - 1,)
        await log.append_event(an_extraction((first, first + 1), basis=turns, context=context))


async def test_a_revision_takes_the_place_of_the_turn_and_the_older_wording_stays_as_history(
    log: EventLog, log_path: Path
) -> None:
    events = [a_turn("one"), a_turn("next", turn_id="t2"), a_revision("two"), a_revision("three", 2)]
    assert await verdicts(log, *events) == [Verdict.RECORDED] * 4

    assert places(log_path) == [(1, 2, 4), (2, 0, 2)]
    assert await voids(log) == {1: Void(3, erases=False), 3: Void(4, erases=False)}
    assert (await summary(log)).turns == 2
    assert b"one" in stored_bytes(log_path)


async def test_a_wording_that_was_overtaken_stands_for_nothing_from_the_start(
    log: EventLog, log_path: Path
) -> None:
    events = [a_turn("one"), a_revision("four", 3), a_revision("two", 1)]
    assert await verdicts(log, *events) == [Verdict.RECORDED] * 3

    assert places(log_path) == [(1, 3, 2)]
    assert await voids(log) == {1: Void(2, erases=False), 3: Void(3, erases=False)}


async def test_a_revision_before_its_turn_gives_the_turn_its_place(log: EventLog, log_path: Path) -> None:
    assert await verdicts(log, a_revision("two"), a_turn("one")) == [Verdict.RECORDED] * 2

    assert places(log_path) == [(1, 1, 1)]
    assert await voids(log) == {2: Void(2, erases=False)}
    assert (await summary(log)).turns == 1


async def test_a_revision_that_comes_again_is_known_also_with_another_time_given_on_arrival(
    log: EventLog,
) -> None:
    untimed = a_revision("two", happened_at=None)
    await log.append(a_batch(a_turn("one"), untimed))

    later = replace(untimed, happened_at=untimed.happened_at + 5)
    assert await verdicts(log, untimed, later) == [Verdict.DUPLICATE] * 2
    assert log.head == 2


async def test_another_content_under_the_same_revision_is_a_conflict_and_the_first_one_stands(
    log: EventLog, log_path: Path
) -> None:
    await log.append(a_batch(a_turn("one"), a_revision("two")))
    conflicting = a_revision("not two", bus=a_place(7))

    assert await verdicts(log, conflicting, conflicting) == [Verdict.CONFLICTING] * 2
    events = await log.read(partial(read_user, user=ALICE))
    assert [each.event for each in events[2:]] == [TurnConflicted(2, "not two", "user", "Alice")]
    assert places(log_path) == [(1, 1, 2)]


@pytest.mark.parametrize(
    ("turn", "wait"), [("t1", [1, 2]), ("t2", [1, 2, 3, 4]), ("t3", [3, 4]), ("t4", [3, 4, 5, 6]), ("t6", [5, 6])]
)
async def test_the_chunk_of_a_revised_turn_waits_as_a_whole_and_so_does_the_one_that_read_it_as_context(
    log: EventLog, turn: str, wait: list[int]
) -> None:
    await say_and_extract(log, chunks=3)
    assert not await waits(log)
    await log.append_event(a_revision("other", turn_id=turn))

    assert await rows_to_cut(log) == wait
    assert await waits(log)
    assert (await summary(log)).waiting_turns == len(wait)


async def test_a_parked_extraction_falls_with_a_revision_like_any_other(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_turn(turn_id="t2"), a_parking((1, 2))))
    await log.append_event(a_revision("other"))

    assert await rows_to_cut(log) == [1, 2]


async def test_a_turn_taken_back_leaves_a_hole_and_the_rest_of_its_chunk_waits(
    log: EventLog, log_path: Path
) -> None:
    await say_and_extract(log, chunks=1)
    assert await verdicts(log, a_retraction("t1")) == [Verdict.RECORDED]

    assert places(log_path) == [(1, 0, None), (2, 0, 2)]
    assert await voids(log) == {1: Void(4, erases=True), 3: Void(4, erases=True)}
    assert await rows_to_cut(log) == [1, 2], "both places, or the chunks behind would be cut elsewhere"
    assert ((await summary(log)).turns, (await summary(log)).waiting_turns) == (1, 1)


async def test_a_chunk_whose_turns_are_all_taken_back_waits_for_nothing(log: EventLog) -> None:
    await say_and_extract(log, chunks=2)
    await log.append(a_batch(a_retraction("t1"), a_retraction("t2")))

    # The chunk behind waits, too: its context is gone.
    assert ((await summary(log)).turns, (await summary(log)).waiting_turns) == (2, 2)
    again = replace(an_extraction((3, 4), ("again",), basis=8), key="without its context")
    assert await verdicts(log, again) == [Verdict.RECORDED]
    assert not await waits(log)
    await log.append_event(a_turn(turn_id="t5"))
    assert await rows_to_cut(log) == [1, 2, log.head], "empty places count when chunks are cut"
    assert await waits(log)


async def test_a_retraction_before_the_turn_refuses_it_in_every_wording(log: EventLog, log_path: Path) -> None:
    assert await verdicts(log, a_retraction("t1")) == [Verdict.RECORDED]
    late = [a_turn(MARKER, bus=a_place(5)), a_revision(MARKER, bus=a_place(6))]

    assert await verdicts(log, *late) == [Verdict.REFUSED] * 2
    assert await verdicts(log, a_turn(turn_id="t2")) == [Verdict.RECORDED]
    assert MARKER.encode() not in stored_bytes(log_path)
    assert stored_rows(log_path, "SELECT seq, subject FROM unwanted ORDER BY seq") == [(5, None), (6, None)]


async def test_taking_back_twice_is_one_event(log: EventLog) -> None:
    await log.append_event(a_turn())

    assert await verdicts(log, a_retraction(), a_retraction()) == [Verdict.RECORDED, Verdict.DUPLICATE]
    assert (log.head, (await summary(log)).turns) == (2, 0)


async def test_a_redelivery_of_what_was_taken_back_is_refused(log: EventLog) -> None:
    events = [a_turn("one"), a_revision("two"), a_revision("three", 2)]
    await log.append(a_batch(*events, a_retraction()))

    assert await verdicts(log, *events) == [Verdict.REFUSED] * 3
    assert log.head == 4


async def test_a_turn_taken_back_falls_in_every_wording_with_its_conflicts_and_all_that_read_them(
    log: EventLog,
) -> None:
    await log.append(a_batch(a_turn("one"), a_turn(turn_id="t2")))
    await log.append_event(an_extraction((1, 2), basis=2))  # seq 3, of the first wording
    await log.append_event(a_revision("two"))  # 4
    await log.append_event(a_revision("not two", bus=a_place(9)))  # 5, a conflict with it
    await log.append_event(an_extraction((4, 2), basis=5, covers=(1, 2)))  # 6
    await log.append_event(a_summary(sources=(4, 2), basis=6))  # 7
    await log.append_event(a_merge(sources=(6,), basis=7))  # 8
    await log.append_event(a_summary("Kept.", node="kept", sources=(2,), basis=8))  # 9
    await log.append_event(a_revision("three", 3))  # 10
    await log.append_event(a_retraction())

    fallen = await voids(log)
    assert sorted(fallen) == [1, 3, 4, 5, 6, 7, 8, 10]
    assert all(void.erases for void in fallen.values())


async def test_every_message_that_held_the_words_is_unwanted_in_the_moment_they_are_erased(
    log: EventLog, log_path: Path
) -> None:
    turn = a_turn("one", bus=a_place(1))
    await log.append_event(turn)
    await log.append_event(replace(turn, bus=a_place(2)))
    await log.append_event(a_revision("two", bus=a_place(3)))
    await log.append_event(a_retraction(bus=a_place(4)))
    await log.write(erase_retracted)

    unwanted = stored_rows(log_path, "SELECT seq FROM unwanted ORDER BY seq")
    assert unwanted == [(1,), (2,), (3,)]


@pytest.mark.parametrize("edit", [a_retraction(), a_revision("other")], ids=["retracted", "revised"])
@pytest.mark.parametrize(
    "late",
    [
        an_extraction((1, 2), (MARKER,), basis=3),
        an_extraction((3,), (MARKER,), basis=3, context=(1,)),
        a_summary(MARKER, sources=(1,), basis=3),
        a_parking((1, 2), basis=3),
    ],
    ids=["extraction", "extraction with it as context", "summary", "parked"],
)
async def test_a_late_answer_that_read_what_fell_leaves_no_byte(
    log: EventLog, log_path: Path, edit: NewEvent, late: NewEvent
) -> None:
    await log.append(a_batch(a_turn(), a_turn(turn_id="t2"), a_turn(turn_id="t3"), edit))

    assert await verdicts(log, replace(late, key=MARKER)) == [Verdict.REFUSED]
    assert log.head == 4
    assert MARKER.encode() not in stored_bytes(log_path)
    assert await verdicts(log, an_extraction((3,), basis=3)) == [Verdict.RECORDED], "it read nothing of it"


@pytest.mark.parametrize("edit", [a_retraction(), a_revision("other")], ids=["retracted", "revised"])
async def test_a_decision_made_before_an_edit_is_stale(log: EventLog, edit: NewEvent) -> None:
    await log.append(a_batch(a_turn(), an_extraction((1,), basis=1), edit))

    for decision in (an_admission(Pointer(2, 0), basis=2), a_merge(sources=(2,), basis=2)):
        with pytest.raises(StaleDecision):
            await log.append_event(decision)
    assert await verdicts(log, a_merge(sources=(2,), basis=3)) == [Verdict.REFUSED]


async def test_a_turn_of_another_session_or_user_under_the_same_id_is_untouched(log: EventLog) -> None:
    await log.append(a_batch(a_turn(), a_turn(session_id="s2"), a_turn(user_id="bob"), a_retraction()))

    assert list(await voids(log)) == [1]
    assert await verdicts(log, a_turn(session_id="s3")) == [Verdict.RECORDED]


async def test_hindsight_at_an_earlier_position_knows_the_wording_of_then(log: EventLog) -> None:
    await log.append(a_batch(a_turn("one"), a_revision("two"), a_revision("three", 2)))
    now = await log.read(partial(read_hindsight, user=ALICE))
    then = [await log.read(partial(read_hindsight, user=ALICE, to_user_seq=at)) for at in (1, 2, 3)]

    turn = KEYS.key(a_turn().key)
    assert not (await log.read(partial(read_hindsight, user=ALICE, to_user_seq=0))).wordings
    assert now.wordings[turn].seq == then[2].wordings[turn].seq == 3
    assert (then[1].wordings[turn].seq, dict(then[0].wordings)) == (2, {})
    assert [sorted(each.voids) for each in (*then, now)] == [[], [1], [1, 2], [1, 2]]
    assert [each.user_seq for each in (*then, now)] == [1, 2, 3, 3]


async def test_hindsight_knows_what_was_taken_back_and_forgotten_at_whatever_position(log: EventLog) -> None:
    await log.append(a_batch(a_turn("one"), a_turn(session_id="s2"), a_retraction(), a_forgetting("s2")))
    then = await log.read(partial(read_hindsight, user=ALICE, to_user_seq=1))

    assert then.holes == {1}
    assert then.voids == {1: Void(3, erases=True)}
    assert then.tombstones == {KEYS.session("alice", "s2"): 4}


def test_an_extraction_of_version_1_covered_what_it_read_and_read_nothing_besides() -> None:
    new = an_extraction((4, 5), ("Alice moved.",), context=(3,)).event
    assert isinstance(new, FactsExtracted)
    body, words = encode_event(new)
    old = _without(body, "context", "covers", "replaces")

    assert decode_event("facts.extracted", 1, old, words) == replace(new, context=(), covers=(4, 5))


def _without(body: bytes, *fields: str) -> bytes:
    kept = {name: value for name, value in msgspec.json.decode(body).items() if name not in fields}
    return msgspec.json.encode(kept)


def test_a_revision_names_its_turn_by_the_key_of_the_first_wording() -> None:
    event = a_revision("x", 4).event

    assert isinstance(event, TurnRevised)
    assert event.turn == KEYS.key(a_turn().key)
