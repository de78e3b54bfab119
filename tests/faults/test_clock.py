"""Clocks that jump: ours by a year between appends and across a restart, the producers', and those of a zone.

Fault matrix row 25. The position in the log decides; times are kept as they were given, and no fold asks a clock.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from zoneinfo import ZoneInfo

import anyio
import msgspec
import pytest

from daemon.asking.history import locate
from daemon.bus.bus_messages import BusMessage
from daemon.bus.subjects import turn_subject
from daemon.decoders.decoding import Decoder
from daemon.folding import fold_from_nothing
from events.dead_letters import DeadLetter
from events.envelope import NewEvent, RecordedEvent
from events.gate import Verdict
from events.log import EventLog
from events.memory import Pointer
from events.reading import read_user
from events.session import TimeSource, TurnRecorded
from events.time import Instant, to_iso
from projections.digests import MemoryDigest, digest_memory
from tests.builders import (
    KEYS,
    MONDAY,
    SECRET,
    ManualClock,
    a_batch,
    a_closing,
    a_forgetting,
    a_place,
    a_summary,
    a_turn,
    an_admission,
    an_extraction,
    seeded_nonces,
)
from tests.daemon.parts_in_use import ALICE, QUICK, SMALL, build_parts, event_types, running
from tests.waiting import wait_until

DAY_MS = 86_400_000
YEAR_MS = 365 * DAY_MS
BERLIN = ZoneInfo("Europe/Berlin")
S1 = KEYS.session("alice", "s1")

STEADY = (60_000,) * 9
JUMPING = (YEAR_MS, -YEAR_MS, -YEAR_MS, 0, 2 * YEAR_MS, -1, 1, -YEAR_MS, 0)


def a_life() -> tuple[NewEvent, ...]:
    """Two sessions with a chunk each, what was read in the first, and a summary."""
    return (
        a_turn("Rex runs.", turn_id="t1"),
        a_turn("Nate swims.", turn_id="t2", happened_at=MONDAY - 7),
        a_turn("Zoe reads.", session_id="s2", turn_id="t1", happened_at=MONDAY + 9 * YEAR_MS),
        a_turn("Zoe sings.", session_id="s2", turn_id="t2"),
        an_extraction((1, 2), ("Rex runs.", "Nate swims."), basis=4),
        an_admission(Pointer(5, 0), basis=5),
        replace(an_admission(Pointer(5, 1), basis=6), key="admission/second"),
        a_summary(sources=(1, 2, 5), basis=7),
        a_closing("s2"),
    )


async def live(path: Path, jumps: Sequence[int]) -> tuple[list[RecordedEvent], MemoryDigest]:
    """The life under a clock that moves so before each append; the daemon is started again in the middle."""
    clock = ManualClock()
    log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
    try:
        parts = build_parts(log, clock)
        for number, (event, jump) in enumerate(zip(a_life(), jumps, strict=True)):
            clock.advance(jump)
            if number == 5:
                await log.close()
                log = await EventLog.open(path, clock, seeded_nonces(1), SECRET)
                parts = build_parts(log, clock)
            await log.append_event(event)
            await parts.memory()
        digest = digest_memory(await parts.memory())

        assert digest_memory(await fold_from_nothing(log, ALICE, SMALL)) == digest
        return list(await log.read(partial(read_user, user=ALICE))), digest
    finally:
        await log.close()


async def test_a_clock_that_jumps_a_year_between_appends_and_restarts_changes_no_place_and_no_memory(
    tmp_path: Path,
) -> None:
    steady, expected = await live(tmp_path / "steady.db", STEADY)
    jumping, digest = await live(tmp_path / "jumping.db", JUMPING)
    recorded_at = [event.recorded_at for event in jumping]

    assert digest == expected
    assert [event.event for event in jumping] == [event.event for event in steady]
    assert [event.user_seq for event in jumping] == list(range(1, 10))
    assert [event.happened_at for event in jumping] == [event.happened_at for event in a_life()]
    assert recorded_at == [MONDAY + sum(JUMPING[: n + 1]) for n in range(9)], "as the clock said, back and forth"


async def test_a_clock_that_was_set_back_a_year_puts_off_neither_chunks_nor_summaries(
    log: EventLog, clock: ManualClock
) -> None:
    """Not even by the time that the clock stands: what is from the future counts as long ago."""
    parts = build_parts(log, clock, worker=replace(QUICK, idle_s=30, refresh_age_s=600))
    async with running(parts):
        await parts.say(*(f"Rex runs on day {n}." for n in range(8)), "Nobody answered.")
        memory = await parts.memory()
        await wait_until(lambda: len(memory.canon.facts) == 8)
        before = await event_types(log)
        clock.advance(-YEAR_MS)
        await parts.until_done()
    after = await event_types(log)

    assert not {"chunk.closed", "interval.summarised"} & set(before)
    assert {"chunk.closed", "interval.summarised"} <= set(after)


async def test_a_chunk_is_not_taken_for_quiet_because_the_clock_lost_some_seconds(
    log: EventLog, clock: ManualClock
) -> None:
    parts = build_parts(log, clock)
    async with running(parts):
        await parts.say("Only one turn.")
        clock.advance(-29_000)
        await anyio.sleep(QUICK.tick_s * 3)  # so that the worker has looked

        assert await event_types(log, ALICE) == ["turn.recorded"]
        assert (await parts.ask("turn")).watermark.lag_s == 0, "and nothing is later than never"


async def test_an_instant_stands_for_the_last_event_that_was_recorded_by_it_whatever_the_clock_did(
    log: EventLog, clock: ManualClock
) -> None:
    for number, jump in enumerate((0, YEAR_MS, -YEAR_MS, 2 * YEAR_MS)):
        clock.advance(jump)
        await log.append_event(a_turn(turn_id=f"t{number}"))

    async def at(instant: Instant) -> int:
        return await log.read(lambda db: locate(db, ALICE, to_iso(instant)))

    assert await at(MONDAY - 1) == 0
    assert await at(MONDAY) == 3, "recorded again at this very time, after the year was taken back"
    assert await at(MONDAY + YEAR_MS) == 3
    assert await at(MONDAY + 2 * YEAR_MS) == 4


@pytest.mark.parametrize("reopens", [True, False], ids=["may begin anew", "may not"])
async def test_a_wish_from_the_bus_counts_by_its_time_there_when_our_clock_is_a_year_behind(
    log: EventLog, clock: ManualClock, reopens: bool
) -> None:
    """Or a redelivery from before the forgetting would look younger than it, and bring the session back."""
    clock.advance(-YEAR_MS)
    old = replace(a_turn("Zebra.", turn_id="old"), bus=replace(a_place(1), at=MONDAY), reopens=reopens)
    wish = replace(
        a_forgetting(), happened_at=MONDAY + 1000, bus=replace(a_place(2), at=MONDAY + 1000), time_assigned=True
    )
    await log.append(a_batch(old, wish))
    missed = replace(old, event=TurnRecorded("Zebra.", "user", "missed"), key="turn/alice/s1/missed/0")
    late = replace(missed, bus=replace(a_place(3), at=MONDAY + 2000), key="turn/alice/s1/late/0")

    assert (await log.append_event(missed)).verdict is Verdict.REFUSED
    assert (await log.append_event(late)).verdict is (Verdict.RECORDED if reopens else Verdict.REFUSED)


def a_message(timestamp: object, number: int, published_at: Instant = MONDAY) -> BusMessage:
    body = {
        "type": "turn", "user_id": "alice", "session_id": "s1", "role": "user", "content": f"Turn {number}.",
        "id": f"t{number}",
    }  # fmt: skip
    stamped = body if timestamp is None else {**body, "timestamp": timestamp}
    payload = msgspec.json.encode(stamped)
    return BusMessage(turn_subject("alice", "s1"), payload, {}, "MEMFOREST", number, published_at)


async def test_producers_whose_clocks_differ_by_years_keep_the_order_of_the_bus_and_their_own_times(
    log: EventLog, clock: ManualClock
) -> None:
    """The bus's clock goes back, too. A time that is guessed is flagged."""
    stamps = [MONDAY, MONDAY + YEAR_MS, MONDAY - YEAR_MS, MONDAY + YEAR_MS // 2, None, MONDAY]
    messages = [a_message(stamp, n, MONDAY - n * DAY_MS) for n, stamp in enumerate(stamps)]
    decoder = Decoder(KEYS, BERLIN)
    for message in messages:
        decoded = decoder.decode(message, "e1")
        assert not isinstance(decoded, DeadLetter)
        await log.append(a_batch(*decoded, read_to=message.stream_seq))
    parts = build_parts(log, clock)
    memory = await parts.memory()
    turns = [event for event in await log.read(partial(read_user, user=ALICE)) if event.event]

    assert [(turn.user_seq, turn.happened_at) for turn in turns] == [
        (n + 1, MONDAY - 4 * DAY_MS if stamp is None else stamp) for n, stamp in enumerate(stamps)
    ]
    said = [turn.event for turn in turns if isinstance(turn.event, TurnRecorded)]
    assert [turn.content for turn in said] == [f"Turn {n}." for n in range(6)]
    assert [turn.time_source is TimeSource.BUS for turn in said] == [stamp is None for stamp in stamps]
    assert [chunk.places for chunk in memory.chunks.values()] == [(1, 2), (3, 4), (5, 6)], "cut in log order"
    assert digest_memory(await fold_from_nothing(log, ALICE, SMALL)) == digest_memory(memory)


def time_of(stamp: object) -> tuple[str, TimeSource] | str:
    """The time of a turn with this timestamp and where it came from, or the reason of its dead letter."""
    decoded = Decoder(KEYS, BERLIN).decode(a_message(stamp, 1), "e1")
    if isinstance(decoded, DeadLetter):
        return decoded.reason
    (turn,) = decoded
    assert isinstance(turn.event, TurnRecorded)
    return to_iso(turn.happened_at), turn.event.time_source


ASSUMED, GIVEN = TimeSource.ZONE_ASSUMED, TimeSource.GIVEN


@pytest.mark.parametrize(
    ("stamp", "expected"),
    [
        pytest.param("2024-01-15T12:00:00", ("2024-01-15T11:00:00Z", ASSUMED), id="winter"),
        pytest.param("2024-07-15T12:00:00", ("2024-07-15T10:00:00Z", ASSUMED), id="summer"),
        pytest.param("2024-03-31T01:59:59", ("2024-03-31T00:59:59Z", ASSUMED), id="before the gap"),
        # What no clock on a wall showed is read as if the clocks had not been put forward yet.
        pytest.param("2024-03-31T02:30:00", ("2024-03-31T01:30:00Z", ASSUMED), id="in the gap"),
        pytest.param("2024-03-31T03:00:00", ("2024-03-31T01:00:00Z", ASSUMED), id="after the gap"),
        # What they showed twice is the first time.
        pytest.param("2024-10-27T02:30:00", ("2024-10-27T00:30:00Z", ASSUMED), id="shown twice"),
        pytest.param("2024-10-27T02:30:00+01:00", ("2024-10-27T01:30:00Z", GIVEN), id="the second time"),
        pytest.param("2024-10-27T03:00:00", ("2024-10-27T02:00:00Z", ASSUMED), id="after both"),
        pytest.param("2024-02-29T12:00:00Z", ("2024-02-29T12:00:00Z", GIVEN), id="leap day"),
        pytest.param("2024-02-29", ("2024-02-28T23:00:00Z", ASSUMED), id="leap day without a time"),
        pytest.param(1_709_208_000, ("2024-02-29T12:00:00Z", GIVEN), id="leap day in seconds"),
        pytest.param("2000-02-29T00:00:00Z", ("2000-02-29T00:00:00Z", GIVEN), id="leap day of a century"),
    ],
)
def test_a_time_on_the_wall_is_read_in_the_configured_zone_and_flagged(
    stamp: object, expected: tuple[str, TimeSource]
) -> None:
    assert time_of(stamp) == expected


@pytest.mark.parametrize(
    "stamp", ["2023-02-29T12:00:00Z", "1900-02-29", "2016-12-31T23:59:60Z", "2024-13-01", "2024-01-01T25:00:00Z"]
)
def test_a_day_or_a_second_that_no_calendar_has_is_a_dead_letter_and_never_the_wall_clock(stamp: str) -> None:
    assert "timestamp is neither ISO 8601" in str(time_of(stamp))
